"""`dsgen plan --tokens --deadline --gpus auto` as a person uses it: screen, JSON, exit codes, what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from command_line import MAIN, refused, run

AUTO = ["--gpus", "auto", "--tokens", "30B", "--deadline", "7d", "--network", "ib-hdr-200g"]
PRICE = ["--set", "hardware.price_per_gpu_hour=2"]


def test_the_fewest_gpus_stand_first_and_are_marked() -> None:
    done = run("plan", *MAIN, *AUTO)
    first = re.match(r"7b, 30B tokens in 7.0 days on a100-40g: ([\d,]+) GPUs", done.out)

    assert (done.code, done.err) == (0, "")
    assert first is not None
    assert re.search(rf"^> +{first[1]} +[\d.]+ \w+ +[\d,]+ +[\d,]+ +\d+%", done.out, re.M)
    assert "GPU-hours\n" in done.out
    assert "price" not in done.out


def test_how_much_a_step_trains_is_said_as_the_fewest_gpus_hang_on_it() -> None:
    """Where nobody says it, it follows the GPUs."""
    asked = [*AUTO[:3], "300B", "--deadline", "9d", *AUTO[-2:]]
    free, pinned = (run("plan", *MAIN, *asked, *more).out.splitlines() for more in ([], ["--global-batch", "1024"]))
    told = json.loads(run("plan", *MAIN, *asked, "--format", "json").out)
    sizes = {fleet["gpus"]: fleet["chosen"]["global_batch"] for fleet in told["fleets"]}

    assert min(sizes.values()) < max(sizes.values())
    said = f"4096 tokens over ib-hdr-200g, {sizes[told['fewest']]} sequences a step ("
    assert f"{said}{min(sizes.values())} to {max(sizes.values())} in the rows" in free[1]
    assert pinned[1] == "4096 tokens over ib-hdr-200g, 1024 sequences a step"
    fewest = [int(re.findall(r": ([\d,]+) GPUs", lines[0])[0].replace(",", "")) for lines in (free, pinned)]
    assert fewest[1] < fewest[0]


def test_a_price_has_its_column() -> None:
    told = json.loads(run("plan", *MAIN, *AUTO, *PRICE, "--format", "json").out)
    out = run("plan", *MAIN, *AUTO, *PRICE).out

    assert "      price " in out
    for fleet in told["fleets"]:
        assert fleet["price"] == pytest.approx(2 * fleet["gpu_hours"])
        assert fleet["seconds_low"] < fleet["seconds"] < fleet["seconds_high"]
        spent = fleet["chosen"]["cost"]
        assert sum(spent["parts"].values()) == pytest.approx(spent["seconds_per_step"])
    assert told["fewest"] in [fleet["gpus"] for fleet in told["fleets"] if fleet["meets"]]


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_lines_keep_to_the_width(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))

    for more in ([*AUTO, *PRICE], ["--tokens", "300B", "--deadline", "7d", *PRICE]):
        assert max(map(len, run("plan", *MAIN, *more).out.splitlines())) <= max(80, columns)


@pytest.mark.parametrize(("deadline", "code", "word"), [("1000d", 0, "met"), ("1h", 1, "missed")])
def test_a_plan_says_how_long_tokens_take_and_whether_that_is_in_time(deadline: str, code: int, word: str) -> None:
    done = run("plan", *MAIN, "--tokens", "3B", "--deadline", deadline)
    told = json.loads(run("plan", *MAIN, "--tokens", "3B", "--deadline", deadline, "--format", "json").out)

    assert done.code == code
    assert re.search(r"^3B tokens: [\d.]+ \w+ \(", done.out, re.M)
    assert re.search(rf"^deadline of .+: {word}$", done.out, re.M)
    assert told["training"]["meets"] == (word == "met")
    assert told["chosen"]["strategy"]


def test_a_missed_deadline_says_the_fewest_gpus_that_meet_it() -> None:
    asked = ["--tokens", "3B", "--network", "ib-hdr-200g", "--deadline", "8h"]
    done = run("plan", *MAIN, "--nodes", "2", *asked)
    told = json.loads(run("plan", *MAIN, "--nodes", "2", *asked, "--format", "json").out)["training"]
    auto = json.loads(run("plan", *MAIN, *asked, "--gpus", "auto", "--format", "json").out)
    gpus = auto["fewest"]

    assert done.code == 1
    words = " ".join(done.out.split())
    assert f"missed the fewest GPUs that meet it: {gpus} GPUs ({gpus // 8} x 8) over ib-hdr-200g, " in words
    assert told["fewest"]["gpus"] == gpus
    assert told["fewest"]["seconds"] <= told["deadline_seconds"] < told["seconds"]
    assert told["refused"] is None
    assert "over ethernet-25g (assumed)" in " ".join(
        run("plan", *MAIN, "--tokens", "3B", "--deadline", "8h").out.split()
    )


def test_a_deadline_that_no_number_of_gpus_meets_says_the_best_there_is() -> None:
    asked = ["--tokens", "3B", "--deadline", "1min"]
    done, told = run("plan", *MAIN, *asked), json.loads(run("plan", *MAIN, *asked, "--format", "json").out)["training"]

    assert done.code == 1
    assert "nothing meets it: no number of GPUs up to 8,192 trains 3B tokens in 1 min" in " ".join(done.out.split())
    assert told["fewest"] is None
    assert "the best that is possible is" in told["refused"]
    assert "fewest" not in json.loads(run("plan", *MAIN, "--tokens", "3B", "--deadline", "9d", "--format", "json").out)


def test_tokens_and_total_tokens_are_one() -> None:
    lines = [
        run("plan", *MAIN, *more, "--deadline", "9d").out for more in (["--tokens", "3B"], ["--total-tokens", "3B"])
    ]

    assert lines[0] == lines[1]
    assert "falls" in lines[0]
    assert run("plan", *MAIN, "--tokens", "3B", "--total-tokens", "3000M", "--deadline", "9d").out == lines[0]


def test_steps_are_as_many_tokens_as_the_plan_s_step_has(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("hw: a100-40g\nmodel: 7b\ntotal_steps: 3000\n")
    asked = ["--total-steps", "3000", "--deadline", "9d"]
    told = json.loads(run("plan", *MAIN, *asked, "--format", "json").out)
    training, spent = told["training"], told["chosen"]["cost"]

    assert training["tokens"] == 3000 * 256 * 4096
    assert training["seconds"] == pytest.approx(3000 * spent["seconds_per_step"])
    assert training["meets"] is True
    assert "falls along a cosine over 3,000 steps" in (out := run("plan", *MAIN, *asked).out)
    assert re.search(r"^3,000 steps, 3\.146B tokens: ", out, re.M)
    assert run("plan", str(file), "--deadline", "9d").out == out


def test_steps_of_a_batch_find_the_fewest_gpus_as_their_tokens_do() -> None:
    asked = [*MAIN, "--network", "ib-hdr-200g", "--gpus", "auto", "--deadline", "1d", "--global-batch", "512"]
    steps, tokens = (
        json.loads(run("plan", *asked, *more, "--format", "json").out)
        for more in (["--total-steps", "3000"], ["--tokens", str(3000 * 512 * 4096)])
    )

    assert (steps["fewest"], steps["tokens"]) == (tokens["fewest"], tokens["tokens"])
    assert [one["seconds"] for one in steps["fleets"]] == [one["seconds"] for one in tokens["fleets"]]


@pytest.mark.parametrize(("packed", "each"), [([], 300), (["--packing"], 4096)])
def test_steps_of_padded_sequences_have_their_samples_tokens_alone(packed: list[str], each: int) -> None:
    """However many GPUs: on 8 it is asked of the plan, on as many as needed of the batch."""
    steps = ["--mean-len", "300", *packed, "--global-batch", "512", "--total-steps", "3000", "--deadline", "30d"]
    sought = json.loads(run("plan", *MAIN, "--gpus", "auto", *steps, "--format", "json").out)
    told = json.loads(run("plan", *MAIN, *steps, "--format", "json").out)

    assert sought["tokens"] == told["training"]["tokens"] == 3000 * 512 * each


def test_without_a_deadline_only_the_time_is_said() -> None:
    done = run("plan", *MAIN, "--tokens", "3B")

    assert done.code == 0
    assert "deadline" not in done.out


def test_an_assumed_network_is_a_warning() -> None:
    assert "assumed ethernet-25g" in run("plan", *MAIN, *AUTO[:-2]).err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--gpus", "auto"], "it needs --tokens and --deadline"),
        (["--gpus", "auto", "--tokens", "3B"], "it needs --tokens and --deadline"),
        (["--deadline", "7d"], "--deadline is said without --tokens"),
        (["--deadline", "7d", "--compare", "zero3"], "Drop --compare or --deadline"),
        (["--deadline", "7d", "--total-steps", "9", "--format", "svg"], "--format svg and --deadline"),
        (["--deadline", "0d", "--tokens", "3B"], "deadline is 0d; it must be longer than nothing"),
        (["--deadline", "7d", "--total-steps", "0"], "training.total_steps is 0; it must be a whole number"),
        (["--gpus", "auto", "--deadline", "7d"], "it needs --tokens and --deadline"),
        (
            ["--gpus", "auto", "--deadline", "7d", "--total-steps", "9"],
            "total_steps is 9, and no batch is said; on other",
        ),
        ([*AUTO, "--nodes", "2"], "auto finds the nodes too"),
        (["--tokens", "3B", "--total-tokens", "4B"], "mean the same"),
        (["--tokens", "0"], "tokens is"),
        (["--tokens", "-3B"], "tokens is"),
        (["--tokens", "3B", "--deadline", "soon"], "deadline is soon"),
        (["--tokens", "3B", "--deadline", "-7d"], "deadline is"),
        (["--gpus", "auto", "--tokens", "300B", "--deadline", "1min"], "the best that is possible is"),
        ([*AUTO, "--set", "hardware.price_per_gpu_hour=-2"], "price_per_gpu_hour is -2; it must be at least 0"),
        (["--tokens", "3B", "--total-steps", "100"], "both say how long training lasts"),
        ([*AUTO, "--total-steps", "100"], "--tokens 30B and --total-steps 100; both say how long training lasts"),
        (["--tokens", "1"], "tokens is 1; it must be at least 1,048,576, which one step of this plan trains on: 256"),
        (["--tokens", "1", "--gpus", "auto", "--deadline", "1d"], "tokens is 1; it must be at least"),
        (["--tokens", "3B", "--deadline", "5218w"], "at most a century, which is 5217w"),
        (["--tokens", "3B", "--compare", "zero3"], "are two questions"),
        (["--gpus", "auto", "--what-if", "seq_len=1,2"], "are two questions"),
    ],
)
def test_bad_input_is_one_error(arguments: list[str], said: str) -> None:
    assert said in refused("plan", *MAIN, *arguments)


def test_the_tokens_of_a_scenario_are_those_to_train_on(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("hw: a100-40g\nmodel: 7b\ntotal_tokens: 3B\n")
    unsaid, said, other = (
        run("plan", str(file), *more, "--deadline", "1000d") for more in ((), ("--tokens", "3B"), ("--tokens", "6B"))
    )

    assert unsaid.out == said.out
    assert (unsaid.err, said.err) == ("", "")
    assert re.search(r"^3B tokens: ", unsaid.out, re.M)
    assert re.search(r"^6B tokens: ", other.out, re.M)
