"""`dsgen plan --compare` as a person uses it: the screen, the JSON, the exit codes, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from command_line import MAIN, run

TWO = ["zero3", "zero1,tp=4"]


def shown(*arguments: str, columns: int = 80, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    return run("plan", *MAIN, *arguments).out


def test_words_behind_the_option_are_strategies_too(monkeypatch: pytest.MonkeyPatch) -> None:
    once = shown("--compare", *TWO, monkeypatch=monkeypatch)
    twice = shown("--compare", TWO[0], "--compare", TWO[1], monkeypatch=monkeypatch)

    assert once == twice
    assert re.search(r"^ +zero3 +zero1, tp=4( +planned)?$", once, re.M)
    for row in ("tokens/s/GPU", "seconds of a step", "  matrix products", "GPU GiB", "verdict"):
        assert re.search(rf"^{row} ", once, re.M)


def test_a_scenario_file_among_them_is_the_scenario(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("hw: a100-40g\nmodel: 7b\nseq_len: 2048\n")

    done = run("plan", str(file), "--compare", *TWO, "--format", "json")

    assert json.loads(done.out)["job"]["seq_len"] == 2048
    assert [one["name"] for one in json.loads(done.out)["strategies"]][:2] == TWO


def test_json_has_parts_and_interval() -> None:
    told = json.loads(run("plan", *MAIN, "--compare", *TWO, "zero1,tp=3", "--format", "json").out)

    for one in told["strategies"]:
        if one["refused"]:
            assert one["name"] == "zero1,tp=3"
            continue
        spent = one["cost"]
        assert sum(spent["parts"].values()) == pytest.approx(spent["seconds_per_step"])
        assert spent["tokens_per_second_per_gpu_low"] < spent["tokens_per_second_per_gpu"]
        assert one["memory"]["gpu"]["limit_bytes"] > 0
    assert told["fastest"] in [one["name"] for one in told["strategies"]]


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_lines_keep_to_the_width(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [*TWO, "zero2,offload=cpu,no-checkpointing,mb=1", "zero0,param=nvme", "zero1,tp=3"]
    out = shown("--compare", *names, columns=columns, monkeypatch=monkeypatch)

    assert max(map(len, out.splitlines())) <= columns
    assert len(re.findall(r"^verdict ", out, re.M)) == {60: 3, 80: 2, 200: 1}[columns]


@pytest.mark.parametrize(("names", "code"), [(["zero3"], 0), (["zero0", "zero3"], 0), (["zero0"], 1)])
def test_exit_1_says_that_none_fits(names: list[str], code: int) -> None:
    assert run("plan", *MAIN, "--compare", *names).code == code


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--compare", "zero9"], "error: compare: unknown word zero9 in a strategy"),
        (["--compare", "zero3", "--config", "x.json"], "error: --config and --compare are two questions"),
        (["zero3", "zero1"], "error: zero3 and zero1 are two scenarios"),
        (["--compare", "zero3", "a.yaml", "b.yml"], "error: a.yaml and b.yml are two scenarios"),
    ],
)
def test_bad_input_is_one_error(arguments: list[str], said: str) -> None:
    done = run("plan", *MAIN, *arguments)

    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(said)
