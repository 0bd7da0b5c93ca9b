"""The best plan for each value of a field: each is the plan of that scenario, and winners change where it is said."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

import dsgen
from dsgen.asking.plan_questions.variations import field_named, number, read, spelled
from dsgen.asking.plan_questions.what_ifs import NOTHING
from dsgen.strategies.strategies import describe

JOB: dict[str, Any] = {"hw": "a100-40g", "model": "7b"}
NETWORKS = ["ethernet-10g", "ethernet-25g", "ib-hdr-200g"]


def winner(scenario: dict[str, Any]) -> str:
    try:
        return describe(dsgen.plan(scenario).chosen.strategy)
    except dsgen.DsgenError:
        return NOTHING


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("network", NETWORKS),
        ("seq_len", [1024, 4096]),
        ("gpus", [8, 16, 64]),
        ("nodes", [2, 4]),
        ("hw", ["a100-40g", "a100-80g"]),
        ("model", ["1b", "7b"]),
        ("precision", ["bf16", "fp32"]),
        ("method", ["full", "lora"]),
        ("micro_batch", [1, 2]),
        ("gpu_memory", ["40 GiB", "80 GiB"]),
        ("training", ["standard", "lora"]),
        ("chunked_loss", [True, False]),
        ("objective", ["memory", "throughput"]),
    ],
)
def test_each_row_is_the_plan_of_its_scenario(field: str, values: list[Any]) -> None:
    scenario = {**JOB, "nodes": 4} if field == "network" else JOB

    told = dsgen.what_if(scenario, field, values)

    assert [case.value for case in told.cases] == values
    for case in told.cases:
        alone = dsgen.plan({**scenario, field: case.value})
        assert case.plan is not None
        assert case.plan.chosen == alone.chosen


def test_a_path_is_a_field_too() -> None:
    told = dsgen.what_if(JOB, "hardware.host_memory", ["64 GiB", "2 TiB"])

    for case in told.cases:
        assert case.plan is not None
        assert case.plan.chosen == dsgen.plan({**JOB, "set": {"hardware.host_memory": case.value}}).chosen


def test_what_was_said_before_is_replaced() -> None:
    said = {**JOB, "seq_len": 512, "set": {"training.lr": 1e-5}}

    first, second = dsgen.what_if(said, "seq_len", [2048, 8192]).cases
    by_path = dsgen.what_if(said, "training.seq_len", [2048, 8192]).cases

    assert first.plan is not None
    assert second.plan is not None
    assert (first.plan.job.seq_len, second.plan.job.seq_len) == (2048, 8192)
    assert [case.plan.chosen for case in by_path if case.plan] == [first.plan.chosen, second.plan.chosen]


def test_a_faster_network_is_never_slower() -> None:
    speeds = [
        case.plan.chosen.speed for case in dsgen.what_if({**JOB, "nodes": 8}, "network", NETWORKS).cases if case.plan
    ]

    assert len(speeds) == 3
    assert speeds[0] < speeds[2]


def test_named_values_turn_between_neighbours() -> None:
    told = dsgen.what_if({**JOB, "nodes": 4}, "network", NETWORKS)
    winners = [case.winner for case in told.cases]
    pairs = [(one, other) for one, other in itertools.pairwise(winners) if one != other]

    assert [(turn.before, turn.after) for turn in told.turns] == pairs
    assert not any(turn.searched for turn in told.turns)


@pytest.mark.parametrize("values", [[512, 65_536], [2048, 400_000]])
def test_between_numbers_the_break_even_is_searched(values: list[int]) -> None:
    told = dsgen.what_if(JOB, "seq_len", values)

    assert told.turns
    for turn in told.turns:
        last, first = (int(text.replace(",", "")) for text in (turn.last, turn.first))
        assert min(values) <= last < first <= max(values)
        assert first - last <= max(1, 0.011 * last)
        assert winner({**JOB, "seq_len": last}) == turn.before
        assert winner({**JOB, "seq_len": first}) == turn.after


@pytest.mark.parametrize("networks", [["ethernet-10g", "ib-hdr-200g"], ["ib-hdr-200g", "ethernet-25g"]])
def test_between_networks_the_bandwidth_of_the_slower_is_searched(networks: list[str]) -> None:
    said = {**JOB, "nodes": 4}
    told = dsgen.what_if(said, "network", networks)

    slower = min(networks, key=lambda name: int(name.split("-")[-1].rstrip("g")))
    assert [one.network for one in told.by_bandwidth] == [slower]
    for turn in told.by_bandwidth[0].turns:
        last, first = number(turn.last), number(turn.first)
        assert last is not None
        assert first is not None
        assert last < first <= 1.02 * last
        for bandwidth, strategy in ((turn.last, turn.before), (turn.first, turn.after)):
            assert winner({**said, "network": slower, "set": {"network.bandwidth": bandwidth}}) == strategy


def test_between_networks_of_one_bandwidth_there_is_none_to_search() -> None:
    told = dsgen.what_if({**JOB, "nodes": 4}, "network", ["roce-100g", "ib-edr-100g", "ethernet-100g"])

    assert len({case.plan.job.network.bandwidth_bytes_per_second for case in told.cases if case.plan}) == 1
    assert told.by_bandwidth == ()


@pytest.mark.parametrize(
    ("field", "values"),
    [("network.bandwidth", ["10Gb/s", "200Gb/s"]), ("network.latency", ["1us", "100ms"]),
     ("gpu_memory_used", ["1 GiB", "25 GiB"])],
)  # fmt: skip
def test_every_quantity_is_searched_and_told_in_its_unit(field: str, values: list[str]) -> None:
    said = {**JOB, "nodes": 4, "network": "ib-hdr-200g"}
    told = dsgen.what_if(said, field, values)
    path = {"gpu_memory_used": "hardware.gpu_memory_used"}.get(field, field)

    assert told.cases[0].winner != told.cases[-1].winner
    assert told.turns
    for turn in told.turns:
        assert turn.searched
        assert turn.last.split()[1] == values[0].lstrip("0123456789. ")
        assert "e+" not in turn.last
        for value, strategy in ((turn.last, turn.before), (turn.first, turn.after)):
            assert winner({**said, "set": {path: value}}) == strategy


def test_what_wins_between_two_values_alone_is_not_missed() -> None:
    """At both ends checkpointing and the optimizer on the CPU win, and between them neither of the two."""
    ends = {"hw": "a100-40g", "model": "7b", "nodes": 2, "network": "ethernet-25g"}
    answer = dsgen.what_if(ends, "seq_len", [2048, 8192])
    assert answer.cases[0].winner == answer.cases[1].winner
    assert answer.turns
    assert answer.turns[0].before == answer.turns[-1].after == answer.cases[0].winner
    for one, other in itertools.pairwise(answer.turns):
        assert one.after == other.before


def test_gpus_are_searched_in_the_steps_that_the_values_share() -> None:
    told = dsgen.what_if({**JOB, "network": "ib-hdr-200g"}, "gpus", [16, 4096])

    for turn in told.turns:
        assert all(int(text.replace(",", "")) % 16 == 0 for text in (turn.last, turn.first))


def test_sizes_are_searched_and_told_in_their_unit() -> None:
    told = dsgen.what_if(JOB, "gpu_memory", ["24 GiB", "80 GiB"])

    assert told.turns
    for turn in told.turns:
        last, first = number(turn.last), number(turn.first)
        assert turn.last.endswith(" GiB")
        assert last is not None
        assert first is not None
        assert 24 * 2**30 <= last < first <= 80 * 2**30
        assert first - last <= 0.011 * last


def test_what_has_no_plan_is_a_row_that_says_why() -> None:
    told = dsgen.what_if(JOB, "seq_len", [4096, 4_000_000])

    assert told.cases[1].plan is None
    assert "fits nowhere" in told.cases[1].refused
    assert told.turns[-1].after == NOTHING


@pytest.mark.parametrize(
    ("field", "values", "words"),
    [
        ("sequ_len", [1, 2], "did you mean seq_len?"),
        ("netwrk", ["a", "b"], "did you mean network?"),
        ("set", [1, 2], "unknown field set"),
        ("foo.bar", [1, 2], "unknown path foo.bar"),
        ("hardware.gpu_memroy", ["1 GiB", "2 GiB"], "did you mean hardware.gpu_memory"),
        ("network", ["ethernet-10g", "nosuch"], "no network profile named 'nosuch'"),
        ("network", ["ethernet-10g", "ethernet-25g"], "a network joins nodes"),
        ("precision", ["bf16", "bf17"], "did you mean bf16?"),
        ("seq_len", [0, 4], "it must be a whole number of at least 1"),
        ("seq_len", [4096, 4096], "a table needs from 2"),
        ("seq_len", [4096], "a table needs from 2"),
        ("seq_len", [], "a table needs from 2"),
        ("seq_len", list(range(1, 100)), "a table needs from 2"),
        ("hw", [1, 2], "it must be the name of a profile"),
        ("deepspeed", [0.19, 0.18], "it must be a release"),
        ("seq_len", "4096", "it must be a list"),
        (3, [1, 2], "field is 3; it must be text"),
    ],
)
def test_a_mistake_is_one_clear_error(field: Any, values: Any, words: str) -> None:
    with pytest.raises(dsgen.DsgenError) as raised:
        dsgen.what_if(JOB, field, values)

    assert words in str(raised.value)


def test_a_job_that_is_made_already_cannot_be_varied() -> None:
    with pytest.raises(dsgen.DsgenError, match="a Job says no scenario"):
        dsgen.what_if(dsgen.job(JOB), "seq_len", [1, 2])  # type: ignore[arg-type]


def test_a_scenario_file_is_varied(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("hw: a100-40g\nmodel: 7b\nseq_len: 512\nzero_stage: 3\n")

    cases = dsgen.what_if(file, "zero_stage", [2, 3], deepspeed="0.18").cases

    assert [case.plan.chosen.strategy.stage for case in cases if case.plan] == [2, 3]
    assert [case.plan.job.seq_len for case in cases if case.plan] == [512, 512]
    assert [case.plan.job.version[:4] for case in cases if case.plan] == ["0.18", "0.18"]


@pytest.mark.parametrize(
    ("text", "field", "values"),
    [
        ("network=ethernet-10g, ib-hdr-200g", "network", ("ethernet-10g", "ib-hdr-200g")),
        ("--seq-len=1024,2048", "seq_len", (1024, 2048)),
        ("hardware=a100-40g,a100-80g", "hw", ("a100-40g", "a100-80g")),
        ("training.seq_len=1,2", "seq_len", (1, 2)),
        ("chunked_loss=true,false", "chunked_loss", (True, False)),
        ("lora_targets=q_proj+v_proj,all-linear", "lora_targets", (["q_proj", "v_proj"], ["all-linear"])),
        ("model=70b,7b", "model", ("70b", "7b")),
        ("gpu_memory=24GiB,40GiB", "gpu_memory", ("24GiB", "40GiB")),
        ("torch=2.4,2.10", "torch", ("2.4", "2.10")),
        ("transformers=4.57,5.0", "transformers", ("4.57", "5.0")),
    ],
)
def test_words_of_the_command_line_are_read(text: str, field: str, values: tuple[Any, ...]) -> None:
    assert read(text) == (field, values)


@pytest.mark.parametrize("text", ["", "seq_len", "=1,2", "seq_len=", "seq_len=1,", "seq_len=1,,2"])
def test_words_that_say_no_field_and_values_are_refused(text: str) -> None:
    with pytest.raises(dsgen.DsgenError, match="it must be field=value,value"):
        read(text)


def test_numbers_and_quantities_are_told_apart_from_names() -> None:
    assert (number(3), number("40 GiB"), number("10 Gb/s")) == (3, 40 * 2**30, 1.25e9)
    assert (number("7b"), number(True), number("ethernet-10g")) == (None, None, None)
    assert spelled(1.25e9, "10 Gb/s") == "10 Gb/s"
    assert spelled(36 * 2**30, "24GiB") == "36 GiB"
    assert spelled(17_295, 4096) == "17,295"
    assert field_named("micro-batch") == "micro_batch"


@pytest.mark.parametrize(("field", "values"), [("gpus", [8, 16]), ("nodes", [1, 2])])
def test_a_network_that_joins_the_nodes_of_other_rows_is_none_of_one_node(field: str, values: list[int]) -> None:
    alone, joined = dsgen.what_if({**JOB, "network": "ib-hdr-200g"}, field, values).cases

    assert alone.plan is not None
    assert alone.plan.chosen == dsgen.plan(JOB).chosen
    assert joined.plan is not None
    assert joined.plan.job.network.fabric == "infiniband"


def test_a_network_for_one_node_is_still_refused_where_all_rows_have_one() -> None:
    with pytest.raises(dsgen.DsgenError, match="named for one node"):
        dsgen.what_if({**JOB, "network": "ib-hdr-200g"}, "seq_len", [2048, 4096])


def test_a_row_that_is_what_is_said_already_is_no_mistake() -> None:
    told = dsgen.what_if({**JOB, "gpus": 8}, "gpus", [8, 4])

    assert not any("changes nothing" in warning for warning in told.warnings)
