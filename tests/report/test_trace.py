"""A trace keeps the rules of its format, which viewers do not forgive: fields, rows, nesting, arrows."""

from __future__ import annotations

import itertools
import json
import re
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from timed import simulation, time_of

from dsgen.report.trace import trace

FIELDS = {
    "X": {"name", "cat", "ph", "ts", "dur", "pid", "tid", "args"},
    "M": {"name", "ph", "pid", "tid", "args"},
    "s": {"name", "cat", "ph", "ts", "id", "pid", "tid"},
    "f": {"name", "cat", "ph", "ts", "id", "pid", "tid", "bp"},
    "C": {"name", "ph", "ts", "pid", "args"},
}
METADATA = {"process_name", "thread_name", "thread_sort_index"}


@pytest.fixture
def events(tmp_path: Path) -> list[dict[str, Any]]:
    """Those of a step; numbers with all their digits."""
    told = simulation(tmp_path)
    parsed = json.loads(trace(time_of(told), 'a "job" <&>'), parse_float=Decimal, parse_int=Decimal)
    assert set(parsed) == {"displayTimeUnit", "traceEvents"}
    listed: list[dict[str, Any]] = parsed["traceEvents"]
    return listed


def test_every_event_has_the_fields_of_its_phase(events: list[dict[str, Any]]) -> None:
    assert {one["ph"] for one in events} == set(FIELDS)
    for one in events:
        assert set(one) == FIELDS[one["ph"]]
        if one["ph"] == "M":
            assert one["name"] in METADATA
        else:
            assert one["ts"] >= 0
            assert one["ts"] == round(one["ts"], 3)  # whole nanoseconds
        if one["ph"] == "X":
            assert one["dur"] > 0  # one without a length puts viewers that pair begins and ends out of step


def test_every_row_is_named_once(events: list[dict[str, Any]]) -> None:
    named = [one["tid"] for one in events if one["name"] == "thread_name"]
    ordered = {one["tid"]: one["args"]["sort_index"] for one in events if one["name"] == "thread_sort_index"}
    used = {one["tid"] for one in events if one["ph"] in "Xsf"}

    assert len(named) == len(set(named))
    assert used == set(named) == set(ordered)
    assert {one["pid"] for one in events} == {0}
    assert [one["args"]["name"] for one in events if one["name"] == "process_name"] == ['a "job" <&>']


def test_events_of_a_row_nest(events: list[dict[str, Any]]) -> None:
    """To the nanosecond: an event begins when the one before it in its row is over, or lies within it."""
    rows = defaultdict(list)
    for one in events:
        if one["ph"] == "X":
            rows[one["tid"]].append((one["ts"], one["ts"] + one["dur"]))

    assert len(rows) >= 4
    for spans in rows.values():
        around: list[Decimal] = []
        for begin, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while around and around[-1] <= begin:
                around.pop()
            assert not around or end <= around[-1]
            around.append(end)


def test_an_event_is_over_before_the_next_also_in_the_numbers_of_a_viewer(events: list[dict[str, Any]]) -> None:
    """JavaScript's: `ts + dur` is rounded to 53 bits, and must not pass the begin of the next."""
    rows = defaultdict(list)
    for one in events:
        if one["ph"] == "X":
            rows[one["tid"]].append((float(one["ts"]), float(one["dur"])))

    for spans in rows.values():
        ordered = sorted(spans)
        for (begin, lasts), (following, _) in itertools.pairwise(ordered):
            assert begin + lasts <= following


def test_arrows_begin_in_what_was_waited_for_and_end_where_the_wait_is_over(events: list[dict[str, Any]]) -> None:
    begun, ended = ({one["id"]: one for one in events if one["ph"] == kind} for kind in "sf")
    slices = defaultdict(list)
    for one in events:
        if one["ph"] == "X":
            slices[one["tid"]].append((one["ts"], one["ts"] + one["dur"]))

    assert begun
    assert set(begun) == set(ended)
    for key, arrow in begun.items():
        last = ended[key]
        assert last["bp"] == "e"  # it ends in what is around it, not in what comes next
        assert arrow["tid"] != last["tid"]
        source = [span for span in slices[arrow["tid"]] if span[0] <= arrow["ts"] < span[1]]
        target = [span for span in slices[last["tid"]] if span[0] <= last["ts"] < span[1]]
        assert len(source) == len(target) == 1
        assert target[0][0] == last["ts"]
        assert abs(source[0][1] - last["ts"]) <= Decimal("0.002")  # it had to wait until just then


def test_what_others_slow_tells_what_it_would_take_alone(events: list[dict[str, Any]]) -> None:
    slowed = [one for one in events if "alone_us" in one.get("args", {})]

    assert slowed
    assert all(one["args"]["alone_us"] < one["dur"] for one in slowed)
    assert all(one["cat"] in ("memory-bound", "products", "attention") for one in slowed)


def test_a_product_and_an_attention_tell_their_sizes(events: list[dict[str, Any]]) -> None:
    told = {cat: {one["args"].get("sizes", "") for one in events if one.get("cat") == cat and one["ph"] == "X"}
            for cat in ("products", "attention", "memory-bound")}  # fmt: skip

    assert all(re.fullmatch(r"(\d+ x )?\d+ x \d+ x \d+, (bf16|fp16|fp32)", one) for one in told["products"])
    assert all(re.fullmatch(r"\d+ x \d+ heads, \d+ x \d+ x \d+, (bf16|fp16|fp32)", one) for one in told["attention"])
    assert told["products"]
    assert told["attention"]
    assert told["memory-bound"] <= {""}


def test_the_counter_tells_the_bytes_of_the_gpu(events: list[dict[str, Any]]) -> None:
    told = [one["args"]["bytes"] for one in events if one["ph"] == "C"]

    assert max(told) == 21 * 2**30
