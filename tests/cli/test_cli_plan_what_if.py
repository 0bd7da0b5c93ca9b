"""`dsgen plan --what-if` as a person uses it: the screen, the JSON, and what is refused."""

from __future__ import annotations

import json
import re

import pytest
from command_line import MAIN, refused, run

NETWORKS = ["--nodes", "4", "--what-if", "network=ethernet-10g,ethernet-25g,ib-hdr-200g"]


def test_the_table_has_a_row_for_each_value_and_the_break_even() -> None:
    done = run("plan", *MAIN, *NETWORKS)

    assert (done.code, done.err) == (0, "")
    for name in ("ethernet-10g", "ethernet-25g", "ib-hdr-200g"):
        assert re.search(rf"^{name} +[\d,]+ +[\d,]+ +[\d.]+ \w+ +[\d.]+ +\d+%", done.out, re.M)
    assert "\nwhere the winner changes\n" in done.out or "\nthe choice does not change: " in done.out


def test_json_has_parts_interval_and_turns() -> None:
    told = json.loads(run("plan", *MAIN, *NETWORKS, "--format", "json").out)

    assert told["field"] == "network"
    assert [case["value"] for case in told["cases"]] == ["ethernet-10g", "ethernet-25g", "ib-hdr-200g"]
    for case in told["cases"]:
        spent = case["chosen"]["cost"]
        assert sum(spent["parts"].values()) == pytest.approx(spent["seconds_per_step"])
        assert spent["seconds_per_step_low"] < spent["seconds_per_step_high"]
        assert case["job"]["names"]["network"] == case["value"]
    assert all(set(turn) == {"last", "first", "before", "after", "searched"} for turn in told["turns"])


def test_between_networks_the_bandwidth_is_told_at_which_the_choice_changes() -> None:
    done = run("plan", *MAIN, *NETWORKS)
    told = json.loads(run("plan", *MAIN, *NETWORKS, "--format", "json").out)["by_bandwidth"]
    words = " ".join(done.out.split())

    assert [(one["network"], one["first"], one["last"]) for one in told] == [
        ("ethernet-10g", "10 Gb/s", "25 Gb/s"),
        ("ethernet-25g", "25 Gb/s", "200 Gb/s"),
    ]
    for one in told:
        assert f"by bandwidth alone, from {one['first']} to {one['last']} and else as {one['network']}" in words
        assert one["turns"]
        for turn in one["turns"]:
            assert f"between {turn['last']} and {turn['first']}: {turn['before']} -> {turn['after']}" in words


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["seq_len=1800,2048"], "the choice does not change: ZeRO-2, checkpointing wins at each of these values"),
        (["training.lr=1e-4,1e-5"], "the choice does not change: ZeRO-2, checkpointing wins at each of these values"),
        (["gpus=8,7", "--global-batch", "64"], "wins at each of these values that has a plan"),
    ],
)
def test_a_choice_that_does_not_change_is_said_to_stay(asked: list[str], said: str) -> None:
    out = run("plan", *MAIN, "--what-if", *asked).out

    assert said in " ".join(out.split())
    assert "where the winner changes" not in out


def test_what_does_not_fit_is_a_row() -> None:
    done = run("plan", *MAIN, "--what-if", "seq_len=4096,4000000", "--format", "json")

    assert done.code == 0
    assert "fits nowhere" in json.loads(done.out)["cases"][1]["refused"]


@pytest.mark.parametrize("columns", [60, 80, 200])
@pytest.mark.parametrize(
    "more", [NETWORKS, ["--what-if", "seq_len=1024,65536,400000"], ["--what-if", "hardware.host_memory=64 GiB,1 TiB"]]
)
def test_lines_keep_to_the_width(monkeypatch: pytest.MonkeyPatch, columns: int, more: list[str]) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))

    out = run("plan", *MAIN, *more).out

    assert max(map(len, out.splitlines())) <= columns


def test_an_assumed_network_is_said_once_for_each_size() -> None:
    done = run("plan", *MAIN, "--what-if", "gpus=8,16,16")

    assert done.err.count("no network named for 2 nodes") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--what-if", "netwrk=a,b"], "did you mean network?"),
        (["--what-if", "network"], "it must be field=value,value"),
        (["--what-if", ""], "names no field; it must be field=value,value"),
        (["--what-if", "seq_len=1,x"], "training.seq_len is x"),
        (["--what-if", "seq_len=1"], "seq_len is 1 in each; a table needs from 2 to 64 that differ"),
        (["--what-if", "seq_len=4096,4096"], "seq_len is 4096 in each; a table needs from 2 to 64 that differ"),
        (["--what-if", "lr"], "unknown field lr;"),
        (["--what-if", "lr=1e-4,1e-5"], "did you mean training.lr?"),
        (["--what-if", "network"], "network has no value;"),
        (["--what-if", "network=,"], "network has no value;"),
        (["--what-if", "network=a,"], "network=a, has an empty value;"),
        (["--what-if", "=a"], "=a names no field;"),
        (["--what-if", "network=ethernet-10g,ib-hdr-200g"], "a network joins nodes"),
        (["--what-if", "seq_len=1,2", "--compare", "zero3"], "are two questions"),
        (["--what-if", "file=a,b"], "unknown field file"),
        (["--what-if", "seq_len=1,2", "--what-if", "gpus=4,8"], "--what-if is said 2 times"),
        (
            ["--what-if", "seq_len=1,2,gpus=4,8"],
            "seq_len and gpus are two fields; one field has other values at a time",
        ),
        (["--what-if", "seq_len=1,2 gpus=4,8"], "Ask each by itself: --what-if seq_len=1,2."),
        (["--what-if", "seq_len=1,2", "--deadline", "7d"], "Drop --what-if or --deadline"),
    ],
)
def test_bad_input_is_one_error(arguments: list[str], said: str) -> None:
    assert said in refused("plan", *MAIN, *arguments)
