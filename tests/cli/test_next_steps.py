"""What a person is told who wrote something that dsgen cannot take, or that it takes otherwise: and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import run

CARD = ("--hw", "a100-80g", "--model", "llama-3.1-8b")
NETWORK = (
    "name: mine\nkind: network\nnetwork:\n  fabric: infiniband\n  bandwidth: 100 Gb/s\n  latency: 2 us\n  rdma: true\n"
)
IN_YAML = "zero_optimization:\n  stage: 2\nbf16:\n  enabled: true\ntrain_micro_batch_size_per_gpu: 1\n"
COMMENTED = '{\n  "output_dir": "s3://bucket",\n  "bf16": true, /* ours */\n  "per_device_train_batch_size": 2\n}\n'


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def words(text: str) -> str:
    return " ".join(text.split())


def test_a_plan_says_where_nobody_says_the_length(here: Path) -> None:
    (here / "args.yaml").write_text("per_device_train_batch_size: 2\nbf16: true\n", encoding="utf-8")
    (here / "long.yaml").write_text("per_device_train_batch_size: 2\nmax_length: 2048\n", encoding="utf-8")

    shown = words(run("plan", *CARD, "--gpus", "8", "--args", "args.yaml").out)
    assert "4096 tokens (a default: --seq-len), " in shown
    for more in (("--args", "args.yaml", "--seq-len", "4096"), ("--args", "long.yaml")):
        assert "a default" not in words(run("plan", *CARD, "--gpus", "8", *more).out)


def test_json_with_comments_is_said_to_be_that(here: Path) -> None:
    """transformers 5.23 reads such a file neither as JSON (json.loads) nor as YAML (yaml.safe_load)."""
    (here / "args.json").write_text(COMMENTED, encoding="utf-8")
    told = run("plan", *CARD, "--args", "args.json")
    assert told.code == 2
    assert "args.json:3: it is JSON with comments" in told.err
    assert "Take the comments out" in told.err

    (here / "args.json").write_text(COMMENTED.replace("/* ours */", ""), encoding="utf-8")
    assert run("plan", *CARD, "--args", "args.json").code == 0
    (here / "args.json").write_text(COMMENTED.replace("/* ours */", "").replace(": 2", ": [2"), encoding="utf-8")
    assert "not YAML" in run("plan", *CARD, "--args", "args.json").err  # an address is no comment


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("  foo: 3\n", "mine.yaml:8: unknown path network.foo; neither dsgen nor DeepSpeed reads it "
         "network has fabric, bandwidth, latency, rdma."),
        ("speeed: 3\n", "A fact stands below network: dsgen profiles new network NAME shows them all."),
        ("latency: 3 us\n", "did you mean network.latency?"),
    ],
)  # fmt: skip
def test_an_unknown_key_of_a_profile_is_told_which_there_are(here: Path, more: str, said: str) -> None:
    (here / "mine.yaml").write_text(NETWORK + more, encoding="utf-8")
    told = run("plan", *CARD, "--gpus", "16", "--network", "mine.yaml")
    assert told.code == 2
    assert said in words(told.err)


def test_a_dtype_of_fewer_bits_is_not_taken_for_a_wide_one(here: Path) -> None:
    (here / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 1}', encoding="utf-8")
    for command in (("plan",), ("simulate", "--world-size", "8", "--config", "ds.json")):
        told = run(*command, *CARD, "--precision", "fp8")
        assert told.code == 2
        assert "roducts in 8 bits are not counted: --precision bf16 counts all else" in told.err
        assert "fp32?" not in told.err
    assert "--method qlora" in run("plan", *CARD, "--precision", "nf4").err
    assert "did you mean fp16?" in run("plan", *CARD, "--precision", "float16").err


def test_experts_that_are_not_counted_are_answered_with_what_is(here: Path) -> None:
    asked = ("--hw", "a100-80g", "--gpus", "8", "--model", "mixtral-8x7b", "--method", "lora", "--transformers", "4.57")
    for command in ("memory", "plan", "render"):
        told = run(command, *asked, "--lora-targets", "all-linear")
        assert told.code == 2
        assert "--lora-targets q_proj,k_proj,v_proj,o_proj, or take transformers 5." in told.err
    assert run("memory", *asked, "--lora-targets", "q_proj,k_proj,v_proj,o_proj").code == 0


def test_what_an_evaluation_generates_is_answered_with_the_option_that_counts_it(here: Path) -> None:
    (here / "args.yaml").write_text("per_device_train_batch_size: 2\npredict_with_generate: true\n", encoding="utf-8")
    assert "--generate TOKENS of dsgen memory" in run("memory", *CARD, "--args", "args.yaml").err


def test_a_config_in_yaml_that_deepspeed_takes_otherwise_is_told_of_wherever_it_is_weighed(here: Path) -> None:
    (here / "ds.yaml").write_text(IN_YAML, encoding="utf-8")
    said = "note: ds.yaml:1: DeepSpeed reads no YAML: it takes the file for HJSON"
    asked = (*CARD, "--gpus", "8")
    commands = (("memory", "--config", "ds.yaml"), ("plan", "--config", "ds.yaml"), ("adopt", "ds.yaml"))
    for command in commands:
        told = run(*command, *asked)
        assert said in words(told.out + told.err)

    (here / "ds.yaml").write_text(f"# dsgen: ignore[yaml-not-read]\n{IN_YAML}", encoding="utf-8")
    assert said not in words(run(*commands[0], *asked).out)
    (here / "ds.yaml").write_text("bf16: {enabled: true}\ntrain_micro_batch_size_per_gpu: 1\n", encoding="utf-8")
    assert said not in words(run(*commands[0], *asked).out)  # HJSON has it so, too
