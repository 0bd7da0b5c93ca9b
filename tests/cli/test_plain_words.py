"""One word for one thing on every screen, and an answer where a person asks in the words of a scenario."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from command_line import MAIN, refused, run

TWO_NODES = ("--hw", "a100-40g", "--gpus", "16", "--model", "llama-3.1-70b")
SPLIT = (*TWO_NODES, "--method", "full", "--tp", "4")


def words(*arguments: str) -> str:
    done = run(*arguments)
    return " ".join((done.out + done.err).split())


def test_the_arithmetic_of_a_batch_is_the_same_on_every_screen() -> None:
    """AutoTP's groups are replicas everywhere: `memory` said "16 / 4 GPUs x 64" beside "4 replicas x 64 steps"."""
    said = r"4 replicas x accumulation 64 = 256"

    assert f"micro-batch 1 x {said}" in words("render", *SPLIT)
    assert f"micro-batch 1 x {said}" in words("memory", *SPLIT)
    assert f"x {said}" in words("plan", *SPLIT, "--compare", "zero3,tp=4,offload=all,mb=1,accum=64,checkpointing")


@pytest.mark.parametrize(("more", "told"), [([], True), (["--gpus", "8"], False), (["--nodes", "1"], False)])
def test_a_node_that_nobody_said_is_said(more: list[str], told: bool) -> None:
    whole = "a whole node of 8 GPUs, as its profile has it (--gpus N says another)"

    assert (whole in words("plan", "--hw", "4090", "--model", "1b", *more)) is told
    assert (whole in words("render", "--hw", "4090", "--model", "1b", *more)) is told


def test_one_gpu_and_several_nodes_are_no_whole_node() -> None:
    assert "whole node of" not in words("plan", "--hw", "4090", "--model", "1b", "--gpus", "1")
    assert "whole node of" not in words("plan", *TWO_NODES)


def test_why_answers_for_a_section_and_for_fields_of_a_scenario() -> None:
    named = words("why", "network", *TWO_NODES, "--network", "ib-hdr-200g")

    assert "Of the profile ib-hdr-200g" in named
    assert "network.bandwidth = 200 Gb/s" in named
    assert "ethernet-25g is assumed, for nobody named one: --network NAME." in words("why", "network", *TWO_NODES)
    assert "One node: nothing is sent over a network." in words("why", "network", *MAIN)
    assert words("why", "seq_len", *MAIN, "--seq-len", "512").startswith("training.seq_len = 512")
    assert words("why", "gpus", *MAIN, "--gpus", "4").startswith("cluster.gpus = 4")
    assert words("why", "optimizer", *MAIN).startswith("optimizer The optimizer DeepSpeed builds")
    assert "network has no speed" in refused("why", "network.speed", *MAIN)


def test_a_program_loads_as_it_does_in_every_plan_of_many() -> None:
    """A chunked loss of the Trainer is Liger with all its kernels: more speed in `--what-if` and `--gpus auto` too."""
    asked = ("plan", "--hw", "a100-80g", "--model", "llama-3.1-8b", "--chunked-loss")

    def speed(*more: str) -> str:
        done = run(*asked, *more)
        assert "does nothing" not in done.err
        return done.out

    lengths = ("--what-if", "seq_len=2048,4096")
    time = ("--gpus", "auto", "--tokens", "10B", "--deadline", "30d")
    assert speed(*lengths) != speed(*lengths, "--target", "hf-trainer")
    assert speed(*time) != speed(*time, "--target", "hf-trainer")
    for other in (lengths, time):
        assert "no target 'nonsense'" in refused(*asked, *other, "--target", "nonsense")


def test_adopt_knows_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ds.json").write_text('{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}')
    asked = ("adopt", "ds.json", "--hw", "a100-80g", "--gpus", "8", "--model", "llama-3.1-8b", "--chunked-loss")

    plain, known = run(*asked), run(*asked, "--target", "hf-trainer")

    assert (plain.code, known.code) == (0, 0)
    assert plain.out == known.out  # no scenario says who loads it
    assert plain.err != known.err
    assert "no target 'nonsense'" in refused(*asked, "--target", "nonsense")


def test_a_checklist_says_once_where_its_file_comes_from() -> None:
    told = run("needs", *MAIN, "--method", "lora", "--target", "axolotl").out

    assert told.count("# done: axolotl.yaml says it") > 1
    assert told.count("dsgen render --target axolotl -o ds_config.json") == 1


def test_launch_says_where_arguments_of_the_program_stand() -> None:
    for option in ("--data-path", "--learning-rate"):
        said = refused("launch", *MAIN, "--with", "deepspeed", "--script", "t.py", "-o", "run", option, "1e-5")
        assert f"stand behind --: -- {option} ..." in said
    assert "stand behind" not in refused("plan", *MAIN, "--args", "1e-5")


def test_the_page_of_a_run_says_what_a_checkpoint_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """7B in 16 bits and 12 bytes of fp32 states for each: 14 times 6.74 billion; and no share of a step above all."""
    monkeypatch.chdir(tmp_path)
    Path("t.py").write_text("import deepspeed\n")
    Path("hosts").write_text("a slots=8\nb slots=8\n")
    rest = ("--with", "deepspeed", "--script", "t.py", "--dry-run")

    page, slow = words("launch", *MAIN, *rest), words("launch", *SPLIT, *rest, "--hostfile", "hosts")

    size = float(re.search(r"A checkpoint takes about ([\d.]+) GiB of disk", page)[1])  # type: ignore[index]
    assert size == pytest.approx(14 * 6.74e9 / 2**30, rel=0.16)
    assert "a step takes longer than expected" in slow
    assert not re.search(r"above 1\d\d %|every 1 steps", page + slow)


@pytest.mark.parametrize(("gpus", "what"), [("1", "copies to and from RAM"), ("8", "communication")])
def test_what_overlap_comm_puts_beside_backward_is_named(
    gpus: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One GPU has nobody to communicate with: what gains there is the way of offloaded parameters."""
    monkeypatch.chdir(tmp_path)
    zero = {
        "stage": 3,
        "overlap_comm": False,
        "offload_param": {"device": "cpu"},
        "offload_optimizer": {"device": "cpu"},
    }
    config = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 16, "bf16": {"enabled": True}}
    optimizer = {"type": "AdamW", "params": {"lr": 2e-5}}
    Path("ds.json").write_text(json.dumps({**config, "optimizer": optimizer, "zero_optimization": zero}))

    told = words("plan", "--hw", "a100-80g", "--model", "llama-3.1-8b", "--gpus", gpus, "--config", "ds.json")

    assert f"{what} beside backward" in told
