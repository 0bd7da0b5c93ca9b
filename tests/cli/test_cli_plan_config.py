"""`dsgen plan --config` as a person uses it: the screen, the JSON, the exit codes, and what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from dsgen.cli import main

Run = Callable[..., tuple[object, str, str]]
CONFIG = """{
  "train_micro_batch_size_per_gpu": 1,
  "gradient_accumulation_steps": 16,
  "bf16": {"enabled": true},
  "zero_optimization": {"stage": 3, "overlap_comm": false, "offload_optimizer": {"device": "cpu"}}
}"""
ACCELERATE = """distributed_type: DEEPSPEED
deepspeed_config:
  zero_stage: 3
  gradient_accumulation_steps: 8
  offload_optimizer_device: cpu
  offload_param_device: cpu
mixed_precision: bf16
num_machines: 1
num_processes: 4
"""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command line at a width; gives the exit code, stdout and stderr."""

    def call(*arguments: str, columns: int = 80) -> tuple[object, str, str]:
        monkeypatch.setenv("COLUMNS", str(columns))
        with pytest.raises(SystemExit) as stopped:
            main(["plan", *arguments])
        captured = capsys.readouterr()
        return stopped.value.code, captured.out, captured.err

    return call


@pytest.fixture
def config(tmp_path: Path) -> str:
    """A file with a config that could be faster."""
    file = tmp_path / "ds.json"
    file.write_text(CONFIG)
    return str(file)


def test_the_screen_says_speed_memory_and_what_is_faster(run: Run, config: str) -> None:
    code, out, err = run("--config", config, "--hw", "a100-80g", "--model", "1b")

    assert (code, err) == (0, "")
    assert out.startswith("1b on 8 a100-80g: ZeRO-3 + CPU optimizer")
    assert re.search(r"^speed about [\d,]+ tokens/s/GPU \([\d,]+ to [\d,]+\), a\n?  ?step takes ", out, re.M)
    assert re.search(r"^      matrix products +[\d.]+ (?:ms|s) +\d+%  █", out, re.M)
    assert re.search(r"^ 1 .+ (?:\+\d+%|[\d.]+x) +[\d,]+ +[\d.]+$", out, re.M)
    assert f"without zero_optimization.offload_optimizer ({config}:5)" in re.sub(r"\n +", " ", out)


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_lines_keep_to_the_width(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ds.json").write_text(CONFIG)

    _, out, _ = run("--config", "ds.json", "--hw", "a100-80g", "--model", "1b", columns=columns)

    assert max(map(len, out.splitlines())) <= max(columns, 80 if columns == 60 else columns)


def test_json_has_the_interval_and_parts_that_add_up(run: Run, config: str) -> None:
    code, out, _ = run("--config", config, "--hw", "a100-80g", "--model", "1b", "--format", "json")
    told = json.loads(out)

    assert code == 0
    for one in (told["now"], *(item["after"] for item in told["speedups"])):
        spent = one["cost"]
        assert sum(spent["parts"].values()) == pytest.approx(spent["seconds_per_step"])
        assert spent["seconds_per_step_low"] < spent["seconds_per_step"] < spent["seconds_per_step_high"]
        speed = "tokens_per_second_per_gpu"
        assert spent[f"{speed}_low"] < spent[speed] < spent[f"{speed}_high"]
        assert one["memory"]["verdict"] == "fits"
    assert told["question"]["config"] == config


def test_what_accelerate_loads_is_read_with_its_ranks(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "accelerate.yaml"
    file.write_text(ACCELERATE)

    code, out, _ = run("--config", str(file), "--hw", "a100-80g", "--model", "1b", "--format", "json")

    assert code == 0
    assert json.loads(out)["question"]["gpus"] == 4
    assert any("zero_optimization.offload_optimizer" in item["keys"] for item in json.loads(out)["speedups"])


def test_what_does_not_fit_exits_with_1(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "ds.json"
    file.write_text('{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}}')

    code, out, _ = run("--config", str(file), "--hw", "a100-40g", "--model", "7b")

    assert code == 1
    assert "does not fit" in out
    assert "note: it does not run as it is" in out


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_what_does_not_fit_names_what_makes_it_fit(run: Run, tmp_path: Path, columns: int) -> None:
    file = tmp_path / "ds.json"
    file.write_text(
        '{"train_micro_batch_size_per_gpu": 16, "bf16": {"enabled": true}, "zero_optimization": {"stage": 1}}'
    )
    asked = ["--config", str(file), "--hw", "a100-80g", "--model", "7b"]

    _, out, _ = run(*asked, columns=columns)
    ways = json.loads(run(*asked, "--format", "json")[1])["ways"]

    told = out.split("\n\n")[-1]
    assert "it does not run" not in out  # it may fit, and that it surely does is worth a change
    assert told.startswith("   what makes it surely fit, the smallest of each kind\n")
    assert max(map(len, told.splitlines())) <= columns
    assert len(ways) >= 4
    for way in ways:
        options = [
            part
            for name, value in way["options"].items()
            for part in (f"--{name.replace('_', '-')}", *([] if value is True else [str(value)]))
        ]
        assert f"{' '.join(options)}: " in " ".join(told.split())
        code, after, _ = run(*asked, *options, "--format", "json")
        assert (code, json.loads(after)["verdict"], json.loads(after)["ways"]) == (0, "fits", [])


def test_what_fits_is_told_of_no_way_out(run: Run, config: str) -> None:
    assert "what makes it surely fit" not in run("--config", config, "--hw", "a100-80g", "--model", "1b")[1]


@pytest.mark.parametrize(
    ("text", "codes", "said"),
    [
        ('{"train_micro_batch_size_per_gpu": 1,\n"zero_optimisation": {"stage": 3}}', ["DSG102"],
         "ds.json:2: zero_optimisation is a key that DeepSpeed 0.19.8 never reads: it does nothing here; "
         "zero_optimization is meant (DSG102)"),
        ('{"bf16": {"enabled": true}}', ["DSG200"], "DeepSpeed stops at the parse; it needs one of them"),
        ('{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 1, "offload_param": {"device": "cpu"}},'
         '"wall_clock_breakdown": true}', [], ""),  # what it says of speed, and of what does nothing, is lint's
        (CONFIG, [], ""),
    ],
)  # fmt: skip
def test_what_is_not_as_written_is_said(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, codes: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ds.json").write_text(text)
    asked = ["--config", "ds.json", "--hw", "a100-80g", "--model", "1b"]

    _, out, _ = run(*asked)

    assert [one["code"] for one in json.loads(run(*asked, "--format", "json")[1])["findings"]] == codes
    assert said in " ".join(out.split())
    assert ("(DSG" in out) is bool(codes)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--config", "missing.json", "--hw", "a100-40g", "--model", "7b"], "missing.json"),
        (["--config", "ds.json", "--model", "7b"], "no hardware is named"),
        (["--config", "ds.json", "--hw", "a100-40g"], "no model is named"),
        (["--config", "empty.json", "--hw", "a100-40g", "--model", "7b"], "it needs train_batch_size or train_micro_"),
        (["--config", "broken.json", "--hw", "a100-40g", "--model", "7b"], "broken.json:1"),
    ],
)
def test_bad_input_is_one_error(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (("ds.json", CONFIG), ("empty.json", "{}"), ("broken.json", '{"bf16": [}')):
        (tmp_path / name).write_text(text)

    code, out, err = run(*arguments)

    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert said in err


def test_all_does_nothing_beside_a_config(run: Run, config: str) -> None:
    _, _, err = run("--config", config, "--hw", "a100-80g", "--model", "1b", "--all")

    assert err == "warning: --all does nothing: it shows the rejections of a plan alone\n"


def test_arguments_beside_the_config_bring_the_model_and_the_length(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("zero3.yaml").write_text(ACCELERATE)
    Path("sft.yaml").write_text("model_name_or_path: Qwen/Qwen2.5-7B\nmax_length: 2048\nbf16: true\n")

    code, out, _ = run("--config", "zero3.yaml", "--args", "sft.yaml", "--hw", "a100-80g")

    assert code == 0
    assert out.startswith("qwen2.5-7b on 4 a100-80g")
    assert "2048 tokens" in out
    alone = run("--args", "sft.yaml", "--hw", "a100-80g")  # without a config it is the scenario
    assert alone[1].startswith("qwen2.5-7b on 8 a100-80g, 2048 tokens")
