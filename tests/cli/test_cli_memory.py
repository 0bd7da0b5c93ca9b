"""`dsgen memory` as a person uses it: the screen, the JSON, the exit codes, and what is refused."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import dsgen
from dsgen.asking.memory_questions import alternatives, ask
from dsgen.cli import main
from dsgen.report.memory import _KINDS, _kind

MAIN = ["memory", "--hw", "a100-40g", "--model", "7b"]
Run = Callable[..., tuple[object, str, str]]

JSON_CONFIG = """{
  "train_micro_batch_size_per_gpu": 2, // as DeepSpeed reads it
  "bf16": {"enabled": true},
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}
}"""
ACCELERATE = """compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
deepspeed_config:
  zero_stage: 3
  offload_optimizer_device: none
  offload_param_device: none
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
            main(list(arguments))
        captured = capsys.readouterr()
        return stopped.value.code, captured.out, captured.err

    return call


def test_what_fits_exits_with_0(run: Run) -> None:
    code, out, err = run(*MAIN)

    assert (code, err) == (0, "")
    assert re.search(r"^FITS: GPU [\d.]+ to [\d.]+ of 39.4 GiB, host ", out, re.M)


def test_what_does_not_fit_exits_with_1_and_says_what_would(run: Run) -> None:
    code, out, _ = run(*MAIN, "--zero-stage", "0", "--checkpointing", "full")

    assert code == 1
    assert "\nDOES NOT FIT: GPU" in out
    assert re.search(r"smallest change that fits +--zero-stage [123]", out)
    assert re.search(r"largest micro-batch +none: not even 1 fits", out)


def test_what_is_uncertain_is_a_warning(run: Run) -> None:
    """As of `dsgen plan`, `render` and `simulate`: the exit code is that of what fits, and stderr says the doubt."""
    given = [*MAIN, "--zero-stage", "3", "--tp", "1", "--micro-batch", "1", "--offload", "none", "--format", "json"]
    _, out, _ = run(*given)
    gpu = json.loads(out)["gpu"]
    between = (gpu["low_bytes"] + gpu["overhead_bytes"] + gpu["high_bytes"]) // 2

    code, out, err = run(*given, "--set", f"hardware.usable_memory={between} B")

    assert (code, json.loads(out)["verdict"]) == (0, "uncertain")
    evaluation = "warning: evaluation of 8 sequences does not fit on the GPU\n"  # one is trained at a time
    assert err == f"{evaluation}warning: it is not certain to fit: see the interval of each place\n"


@pytest.mark.parametrize("columns", [80, 200])
@pytest.mark.parametrize("more", [[], ["--zero-stage", "0"], ["--all"], ["--offload", "nvme", "--gpus", "128"]])
def test_lines_keep_to_the_width(run: Run, columns: int, more: list[str]) -> None:
    _, out, _ = run(*MAIN, *more, columns=columns)

    assert max(map(len, out.splitlines())) <= columns


def test_who_chose_what_is_said(run: Run) -> None:
    _, out, _ = run(*MAIN, "--zero-stage", "3", "--micro-batch", "2")
    chosen = re.search(r"^chosen: (.*(?:\n  .*)*)", out, re.M)

    assert chosen is not None
    assert "checkpointing" in chosen[1]
    assert "stage" not in chosen[1]
    assert re.search(r"^default: sequence length 4096", out, re.M)


def test_the_table_has_every_stage_and_offload_and_marks_the_asked_one(run: Run) -> None:
    _, out, _ = run(*MAIN, "--zero-stage", "2", "--micro-batch", "1")
    rows = re.findall(r"^([> ]) ([0-3]) +(GPU|CPU|NVMe) +(GPU|CPU|NVMe) +[\d.,]+ [wgoabx·>]+ ", out, re.M)

    assert len(rows) == 10
    assert [(stage, optimizer) for mark, stage, optimizer, _ in rows if mark == ">"] == [("2", "GPU")]


def test_a_stacked_bar_is_as_long_as_its_share(run: Run) -> None:
    _, out, _ = run(*MAIN, "--zero-stage", "2", "--micro-batch", "1", columns=200)
    drawn = re.findall(r"(?:GPU|CPU|NVMe) +([\d.]+) ([wgoab·]{20,}>?|[wgoab]+>)", out)

    assert len(drawn) == 10
    for size, bar in drawn:
        filled = len(bar.rstrip("·"))
        assert filled == len(bar) if float(size) > 39.4 else abs(filled / len(bar) - float(size) / 39.4) < 0.03
        assert bar.endswith(">") == (float(size) > 39.4) or size == "39.4"


def test_all_shows_checkpointing_both_ways(run: Run) -> None:
    _, out, _ = run(*MAIN, "--all")

    assert "without activation checkpointing" in out
    assert "  with activation checkpointing" in out
    assert len(re.findall(r"^[> ] [0-3] ", out, re.M)) == 20


def test_every_part_of_every_case_has_its_letter() -> None:
    """No part falls to "all else" but what is named there: buffers, and what no tensor holds."""
    names: set[str] = set()
    for more in ({"method": "qlora"}, {"offload": "nvme"}, {"offload": "all", "zero_stage": 3}, {}):
        asked = ask(dsgen.job(dsgen.profile("a100-40g") | dsgen.profile("7b") | {"training": more}))
        names |= {name for item in alternatives(asked, every=True) for name in item.memory.gpu.parts}

    words = _KINDS["b"][1]
    assert {name for name in names if _kind(name) == "b" and not any(word in name for word in words)} <= {"overhead"}
    assert _kind("weights") == "w"
    assert _kind("fp32 master weights") == "o"
    assert _kind("gradients") == "g"
    assert _kind("activations") == "a"


def test_a_terminal_without_the_letters_of_a_bar_gets_plain_ones() -> None:
    """As a pipe on Windows is: cp1252."""
    done = subprocess.run(
        [sys.executable, "-m", "dsgen", *MAIN],
        env={**os.environ, "PYTHONIOENCODING": "cp1252", "COLUMNS": "80"},
        capture_output=True,
        check=True,
    )
    lines = done.stdout.decode("cp1252").splitlines()

    assert max(map(len, lines)) <= 80
    assert any("###..." in line for line in lines)
    assert not any("\\" in line for line in lines)


def test_json_has_the_shared_shape_and_the_answers(run: Run) -> None:
    code, out, err = run(*MAIN, "--format", "json", "--zero-stage", "2")
    found = json.loads(out)

    assert (code, err) == (0, "")
    shared = ["verdict", "gpu", "host", "nvme", "phases", "card"]
    more = ["question", "alternatives", "counterfactuals", "loading", "warnings", "evaluation", "checkpoints"]
    more += ["saved", "conversions", "unconverted", "later", "headroom", "observations", "differences"]
    assert list(found) == [*shared, *more]
    assert found["verdict"] == "fits"
    assert sum(found["gpu"]["parts"].values()) == found["gpu"]["peak_bytes"]
    assert found["question"]["said"]["stage"] == {"value": 2, "by": "--zero-stage"}
    assert found["question"]["said"]["micro-batch"]["by"] == "chosen"
    assert [item["asked"] for item in found["alternatives"]].count(True) == 1
    edges = {"micro_batch", "seq_len", "gpus", "nodes", "host_bytes", "host_training_bytes"}
    assert set(found["counterfactuals"]) == {"changes", *edges}


def test_a_page_has_the_verdict_and_the_exit_code_of_the_text(run: Run) -> None:
    for said, code in ((("--zero-stage", "2"), 0), (("--zero-stage", "0"), 1)):
        page, text = run(*MAIN, *said, "--format", "html"), run(*MAIN, *said)
        assert (page[0], text[0]) == (code, code)
        assert page[1].startswith("<!DOCTYPE html>")
        assert next(line for line in text[1].splitlines() if "FIT" in line).split(":")[0] in page[1]


def test_json_says_what_would_do(run: Run) -> None:
    _, out, _ = run(*MAIN, "--format", "json", "--zero-stage", "0")
    change = json.loads(out)["counterfactuals"]["changes"][0]

    assert change["gpu"]["verdict"] == "fits"
    assert change["options"]["zero_stage"] in (1, 2, 3)


def test_a_config_is_taken_as_it_is(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "ds.json"
    config.write_text(JSON_CONFIG)
    _, out, _ = run(*MAIN, "--config", str(config), "--format", "json")
    asked = json.loads(out)["question"]

    assert (asked["stage"], asked["offload_optimizer"], asked["micro_batch"]) == (2, "cpu", 2)
    assert asked["buffers"]["reduce_bucket"] == 500_000_000
    assert asked["said"]["micro-batch"]["by"] == f"{config}:2"
    assert asked["config"] == str(config)


def test_accelerates_yaml_is_a_config_and_fixes_the_gpus(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "accelerate.yaml"
    config.write_text(ACCELERATE)
    _, out, _ = run(*MAIN, "--config", str(config), "--format", "json")
    asked = json.loads(out)["question"]

    assert (asked["stage"], asked["gpus"], asked["precision"]) == (3, 4, "bf16")

    _, out, _ = run(*MAIN, "--config", str(config), "--gpus", "2", "--format", "json")
    assert json.loads(out)["question"]["gpus"] == 2


def test_a_yaml_that_names_a_config_is_followed(run: Run, tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(JSON_CONFIG)
    training = tmp_path / "train.yaml"
    training.write_text("model_name_or_path: x\ndeepspeed: ds.json\n")
    _, out, _ = run(*MAIN, "--config", str(training), "--format", "json")

    assert json.loads(out)["question"]["offload_optimizer"] == "cpu"


def test_a_scenario_file_is_a_question_too(run: Run, tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text("hw: a100-40g\nmodel: 7b\nzero_stage: 1\nmethod: lora\nlora_targets: [q_proj, v_proj]\n")
    _, out, _ = run("memory", str(scenario), "--lora-rank", "8", "--format", "json")
    said = json.loads(out)["question"]["said"]

    assert said["stage"] == {"value": 1, "by": f"{scenario}:3"}
    assert said["lora targets"]["value"] == ["q_proj", "v_proj"]
    assert said["lora rank"] == {"value": 8, "by": "--lora-rank"}


def test_a_dropout_of_adapters_counts_and_is_said(run: Run) -> None:
    asked = [*MAIN, "--zero-stage", "2", "--micro-batch", "1", "--method", "lora", "--checkpointing", "none"]
    shares = [[], ["--lora-dropout", "0"], ["--lora-dropout", "0.05"], ["--lora-dropout", "0.5"]]
    found = [json.loads(run(*asked, *share, "--format", "json")[1]) for share in shares]
    peaks = [one["gpu"]["peak_bytes"] for one in found]

    assert "lora targets all-linear, lora dropout 0" in " ".join(run(*asked)[1].split())
    assert found[2]["question"]["said"]["lora dropout"] == {"value": 0.05, "by": "--lora-dropout"}
    assert peaks[0] == peaks[1] < peaks[2] == peaks[3]  # what is kept does not depend on how much is dropped


def test_a_card_without_a_profile_needs_only_its_memory(run: Run) -> None:
    code, out, _ = run("memory", "--gpu-memory", "24GiB", "--host-memory", "64GiB", "--model", "125m", "--gpus", "1")

    assert code == 0
    assert "of 22.0 GiB" in out
    assert "of 60.8 GiB" in out


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--attention", "eager"], "eager"),
        (["--optimizer", "SGD"], "SGD"),
        (["--method", "qlora", "--lora-rank", "4"], "qlora"),
        (["--chunked-loss"], "chunked loss"),
    ],
)
def test_every_fact_of_a_measurement_changes_the_answer(run: Run, more: list[str], words: str) -> None:
    fixed = [*MAIN, "--zero-stage", "2", "--tp", "1", "--micro-batch", "1", "--offload", "none", "--format", "json"]
    fixed += ["--checkpointing", "none"]
    _, before, _ = run(*fixed)
    _, after, _ = run(*fixed, *more)

    answers = [json.loads(text) for text in (before, after)]
    differs = [(found["gpu"]["parts"], found["phases"], found["counterfactuals"]["seq_len"]) for found in answers]
    assert differs[0] != differs[1], words


BAD: list[tuple[list[str], str]] = [
    (["--model", "nope"], "no model profile named 'nope'"),
    (["--tp", "3"], "8 GPUs do not divide"),
    (["--gpus", "0"], "cluster.gpus is 0; it must be a whole number of at least 1"),
    (["--world-size", "0"], "cluster.gpus is 0; it must be a whole number of at least 1"),
    (["--gpus", "4", "--world-size", "8"], "mean the same"),
    (["--zero-stage", "7"], "training.zero_stage is 7; it must be 0, 1, 2 or 3"),
    (["--gpu-memory", "lots"], "hardware.gpu_memory is lots; it must be a number with a unit"),
    (["--gpu-memory", "-1GiB"], "hardware.gpu_memory is -1GiB"),
    (["--host-memory", "64"], "hardware.host_memory is 64"),
    (["--attention", "xformers"], "it must be one of flash, sdpa, eager"),
    (["--optimizer", "adafactor"], "it must be one of AdamW"),
    (["--method", "lora", "--lora-targets", "query"], "it must name a matrix of llama"),
    (["--method", "lora", "--lora-targets", ","], "it must be a list of names"),
    (["--method", "lora", "--lora-rank", "0"], "it must be a whole number of at least 1"),
    (["--method", "lora", "--lora-dropout", "1"], "training.lora_dropout is 1; it must be below 1"),
    (["--method", "lora", "--lora-dropout", "-0.1"], "training.lora_dropout is -0.1; it must be at least 0"),
    (["--model", "mixtral-8x7b", "--method", "lora", "--lora-dropout", "0.1"], "of: q_proj, k_proj, v_proj, o_proj"),
    (["--method", "lora", "--lora-dropout", "some"], "training.lora_dropout is some; it must be a finite number"),
    (["--micro-batch", "1.5"], "it must be a whole number"),
    (["--seq-len", "-1"], "it must be a whole number of at least 1"),
    (["--config", "not-there.json"], "not-there.json: there is no such file"),
]


@pytest.mark.parametrize(("more", "message"), BAD)
def test_a_mistake_is_one_message_and_exit_code_2(run: Run, more: list[str], message: str) -> None:
    code, out, err = run(*MAIN, *more)

    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert message in err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file holds nothing"),
        ("{}", "it is empty"),
        ("[1, 2]", ":1:1: the top level is a list"),
        ('{"a": ', "never closed"),
        ('{"train_batch_size": 8, "zero_optimization": {"stage": 7}}', ":1: zero_optimization.stage is 7"),
        ('{"model_type": "llama", "hidden_size": 64}', "name that with --model"),
        ('{"tensor_parallel": {"autotp_size": 3}}', "8 GPUs do not divide"),
    ],
)
def test_a_file_that_is_no_config_is_a_mistake(run: Run, tmp_path: Path, text: str, message: str) -> None:
    config = tmp_path / "ds.json"
    config.write_text(text)
    code, out, err = run(*MAIN, "--config", str(config))

    assert (code, out) == (2, "")
    assert message in err
    assert str(config) in err


def test_a_folder_is_no_config(run: Run, tmp_path: Path) -> None:
    code, _, err = run(*MAIN, "--config", str(tmp_path))

    assert code == 2
    assert "it is a folder" in err


def test_a_model_of_another_kind_names_those_that_are_known(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert", "hidden_size": 768}')
    code, _, err = run("memory", "--hw", "a100-40g", "--model", str(tmp_path))

    assert code == 2
    assert "model_type is 'bert'" in err
    assert "llama" in err


def test_a_sequence_longer_than_the_model_is_a_note(run: Run) -> None:
    _, out, _ = run(*MAIN, "--seq-len", "8192", columns=200)

    assert "note: 8192 tokens are more than the 4096 of the model" in out


def test_nothing_named_is_a_mistake(run: Run) -> None:
    code, _, err = run("memory")

    assert code == 2
    assert "no hardware is named" in err


def test_what_other_processes_hold_is_counted(run: Run) -> None:
    said = ("--zero-stage", "2", "--offload", "none", "--tp", "1", "--micro-batch", "4", "--checkpointing", "full")
    tight = (*MAIN, *said, "--format", "json")
    alone, shared = (json.loads(run(*tight, *more)[1]) for more in ((), ("--gpu-memory-used", "3GiB")))

    assert (alone["verdict"], shared["verdict"]) == ("fits", "uncertain")
    assert shared["gpu"]["overhead"]["other processes"] == 3 * 2**30
    assert shared["gpu"]["overhead_bytes"] == alone["gpu"]["overhead_bytes"] + 3 * 2**30
    assert shared["gpu"]["peak_bytes"] == alone["gpu"]["peak_bytes"]


def test_a_card_that_others_fill_is_refused(run: Run) -> None:
    code, out, err = run(*MAIN, "--gpu-memory-used", "40GiB")

    assert (code, out) == (2, "")
    assert "hardware.gpu_memory_used is 40.0 GiB" in err
    assert "nothing would be left for the training" in err


def test_a_config_that_does_not_start_is_said_to_be_one(run: Run, tmp_path: Path) -> None:
    both = tmp_path / "both.json"
    both.write_text('{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "fp16": {"enabled": true}}')
    told = " ".join(run(*MAIN, "--config", str(both))[1].split())

    assert "both.json:1: it does not start: fp16 and bf16 are both enabled" in told
    assert "dsgen rule DSG600 explains" in told


def test_batch_sizes_that_contradict_are_said_once(run: Run, tmp_path: Path) -> None:
    thirty = tmp_path / "thirty.json"
    thirty.write_text('{"train_batch_size": 30, "train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}}')
    told = " ".join(run(*MAIN, "--config", str(thirty))[1].split())

    assert "it does not start: train_batch_size 30 is no multiple of train_micro_batch_size_per_gpu 4" in told
    assert "DeepSpeed refuses that" not in told
