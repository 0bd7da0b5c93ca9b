"""A program is replayed with known seconds: what runs beside what, what is waited for, and who holds whom back."""

from __future__ import annotations

from typing import Any

import pytest

from dsgen.kernels import (
    Link,
    Rates,
    collective_seconds,
    contention,
    copy_seconds,
    cpu_adam_seconds,
    four_bit_seconds,
    host_traffic_seconds,
    new_memory_seconds,
    nvme_seconds,
)
from dsgen.kernels.measured_facts import CONTENTION as FACTS
from dsgen.simulating.durations import flops, seconds
from dsgen.simulating.replay import replay
from dsgen.simulating.timelines import CONTENTION, HOST_BOUND, KERNELS, Timeline

# A byte takes a nanosecond on the GPU, an operator 10 us of the host, a view 1 us, a module 50 us, a hook 100 us.
RATES = Rates(
    architecture="sm80",
    processors=100,
    bf16_flops_per_second=1e14,
    fp16_flops_per_second=1e14,
    tf32_flops_per_second=1e14,
    fp32_flops_per_second=1e13,
    product_efficiency=1.0,
    sustained=1.0,
    fp32_efficiency=1.0,
    memory_bytes_per_second=1e9,
    memory_efficiency=1.0,
    l2_cache_bytes=0,
    l2_bytes_per_second=0.0,
    kernel_seconds=0.0,
    dispatch_seconds=10e-6,
    backward_dispatch_seconds=5e-6,
    view_seconds=1e-6,
    module_seconds=50e-6,
    collective_dispatch_seconds=20e-6,
    hook_seconds=100e-6,
    host_link_bytes_per_second=1e9,
    host_memory_bytes_per_second=1e12,
    cpu_cores=8,
    numa_domains=1,
    core_bytes_per_second=1e9,
    nvme_read_bytes_per_second=1e9,
    nvme_write_bytes_per_second=1e9,
    gpus_per_node=8,
    intra=Link("nvlink", 1e11, 0.8, 0.8, 2e-6, True),
    inter=Link("infiniband", 1e10, 0.9, 0.9, 4e-6, True),
    nearest=None,
)
MILLISECOND = 10**6  # bytes that take one
GATHER = ("all-gather", 10**8, 8, 8)  # kind, bytes, ranks, ranks of a node
COPIED = copy_seconds(RATES, 8 * MILLISECOND, direction="to_host")  # 9.8 ms
GATHERED = collective_seconds(RATES, "all_gather", 10**8, 8, 8)  # 1.1 ms
GATHERING = "all-gather, nvlink"
SLOWER = 1 + contention(RATES, "all_gather", 8, 8)  # a kernel beside it


def traffic(size: int, stream: int = 0, call: str = "python") -> tuple[Any, ...]:
    return "traffic", stream, call, False, "add", "stream", size


def replayed(
    *entries: tuple[Any, ...], loops: list[list[int]] | None = None, stage: int = 2, launcher: str = "deepspeed"
) -> Timeline:
    """Entries in this order; equal ones are one entry of the table."""
    table = list(dict.fromkeys(entries))
    order = [table.index(one) for one in entries]
    program = {"entries": table, "order": order, "loops": loops or []}
    return replay(program, RATES, ranks_per_node=8, stage=stage, launcher=launcher, kernel="flash2")


def added_up(found: Timeline) -> bool:
    return sum(found.parts.values()) == pytest.approx(found.seconds, rel=1e-12)


def test_a_host_that_is_ahead_costs_only_the_first_dispatch() -> None:
    found = replayed(*[traffic(MILLISECOND)] * 5)

    assert found.seconds == pytest.approx(5e-3 + 10e-6)
    assert found.parts == pytest.approx({HOST_BOUND: 10e-6, "memory-bound": 5e-3})
    assert found.host_seconds == pytest.approx(50e-6)


def test_small_kernels_are_bound_by_the_host() -> None:
    found = replayed(*[traffic(1000), ("view", "python")] * 100)

    assert found.seconds == pytest.approx(100 * 11e-6)
    assert found.parts["memory-bound"] == pytest.approx(100e-6)
    assert added_up(found)


def test_what_autograd_calls_has_a_cost_of_its_own_and_what_a_hook_calls_is_paid_with_it() -> None:
    engine = replayed(*[traffic(0, call="engine")] * 10)
    hook = replayed(("hook",), *[traffic(0, call="hook"), ("view", "hook")] * 10)

    called = replayed(("call",), *[traffic(0)] * 10)

    assert engine.seconds == pytest.approx(50e-6)
    assert called.seconds == pytest.approx(150e-6)
    assert hook.seconds == pytest.approx(100e-6)


def test_a_layer_in_4_bits_costs_the_host_more_than_its_launch() -> None:
    found = replayed(*[("traffic", 0, "engine", False, "dequantize_4bit", "stream", 0)] * 10)

    assert found.seconds == pytest.approx(10 * (5e-6 + four_bit_seconds(RATES, 1)))
    assert four_bit_seconds(RATES, 10) == pytest.approx(600e-6)


def test_two_streams_share_the_gpu() -> None:
    """Each law is of a kernel that has the GPU alone: 2 ms of each take 4 ms, then 1 ms is left of the longer one."""
    found = replayed(traffic(3 * MILLISECOND), traffic(2 * MILLISECOND, stream=1))

    assert found.seconds == pytest.approx(5e-3 + 10e-6)
    assert found.busy["memory-bound"] == pytest.approx(5e-3)
    assert found.parts["memory-bound"] == pytest.approx(3e-3)
    assert found.parts[CONTENTION] == pytest.approx(2e-3)
    assert found.hidden["memory-bound"] == pytest.approx(2e-3)
    assert [one.queue for one in found.intervals] == ["compute", "stream 1"]
    assert [one.alone for one in found.intervals] == pytest.approx([3e-3, 2e-3])
    assert added_up(found)


def test_a_stream_waits_for_another() -> None:
    found = replayed(traffic(2 * MILLISECOND, stream=1), ("wait_stream", 0, 1), traffic(MILLISECOND))

    assert found.seconds == pytest.approx(10e-6 + 3e-3)
    assert found.parts["memory-bound"] == pytest.approx(3e-3)
    assert added_up(found)


def test_an_event_holds_what_the_stream_had_when_it_was_recorded() -> None:
    early = replayed(
        traffic(MILLISECOND, stream=1),
        ("record", 0, 1),
        traffic(5 * MILLISECOND, stream=1),
        ("wait_event", 0, 0),
        traffic(MILLISECOND),
    )

    last = next(one for one in early.intervals if one.queue == "compute")
    assert last.begin == pytest.approx(10e-6 + 1e-3)
    assert last.seconds == pytest.approx(2e-3)  # it shares the GPU
    assert early.seconds == pytest.approx(10e-6 + 7e-3)


def test_an_event_of_before_the_program_has_happened() -> None:
    assert replayed(("wait_event", 3, 0), ("join", 4, 0), ("sync_event", 3)).seconds == 0.0


@pytest.mark.parametrize("wait", [("sync_event", 0), ("sync_stream", 0), ("sync_device",)])
def test_a_host_that_waits_dispatches_late(wait: tuple[Any, ...]) -> None:
    """It is behind by one dispatch from then on; what it waits for is work, not idleness."""
    found = replayed(traffic(MILLISECOND), ("record", 0, 0), wait, traffic(MILLISECOND))

    assert found.seconds == pytest.approx(2 * (10e-6 + 1e-3))
    assert found.parts == pytest.approx({"memory-bound": 2e-3, HOST_BOUND: 20e-6})
    assert found.host_seconds == pytest.approx(20e-6)


def test_reading_a_number_waits_and_copies() -> None:
    """10 us to dispatch it, and a copy of 4 bytes."""
    read = 10e-6 + copy_seconds(RATES, 4, direction="to_host")

    found = replayed(traffic(MILLISECOND), ("item", 0), traffic(MILLISECOND))

    assert found.seconds == pytest.approx(10e-6 + 1e-3 + read + 10e-6 + 1e-3)


def test_a_collective_that_is_waited_for_at_once_is_exposed() -> None:
    found = replayed(("collective", 0, 0, "python", *GATHER), ("join", 0, 0), traffic(MILLISECOND))

    assert found.seconds == pytest.approx(20e-6 + GATHERED + 1e-3)
    assert found.parts == pytest.approx({HOST_BOUND: 20e-6, GATHERING: GATHERED, "memory-bound": 1e-3})
    assert found.hidden[GATHERING] == pytest.approx(0.0, abs=1e-12)


def test_a_collective_that_is_waited_for_later_is_hidden() -> None:
    found = replayed(
        ("collective", 0, 1, "python", *GATHER), traffic(5 * MILLISECOND), ("join", 0, 0), traffic(MILLISECOND)
    )

    beside = GATHERED - 10e-6  # the kernel is queued behind it
    lost = beside * (1 - 1 / SLOWER)
    assert 1 + FACTS.slowdown * 0.8 * RATES.intra.bytes_per_second / FACTS.bytes_per_second == SLOWER
    assert found.seconds == pytest.approx(30e-6 + 6e-3 + lost)
    assert found.parts == pytest.approx({HOST_BOUND: 30e-6, "memory-bound": 6e-3, CONTENTION: lost})
    assert found.hidden[GATHERING] == pytest.approx(GATHERED)


def test_collectives_inside_a_node_do_not_wait_for_those_between_nodes() -> None:
    """Other links carry them; those that cross the same links go one after the other."""
    first, between = ("collective", 0, 1, "python", *GATHER), ("all-gather", 10**8, 16, 8)
    apart = replayed(first, ("collective", 1, 2, "python", *between))
    alike = replayed(first, ("collective", 1, 2, "python", *GATHER))

    begins = {one.queue: one.begin for one in apart.intervals}
    assert begins["inter-node"] - begins["collectives"] == pytest.approx(RATES.collective_dispatch_seconds)
    first, second = (one.begin for one in alike.intervals)
    assert second - first == pytest.approx(GATHERED)


def test_a_collective_that_is_queued_later_slows_what_is_running() -> None:
    """The kernel runs from 10 us on; the host queues the collective 20 us later, and nothing is in its way."""
    found = replayed(traffic(5 * MILLISECOND), ("collective", 0, 1, "python", *GATHER))

    lost = GATHERED * (1 - 1 / SLOWER)
    assert found.seconds == pytest.approx(10e-6 + 5e-3 + lost)
    gather = next(one for one in found.intervals if one.queue == "collectives")
    assert (gather.begin, gather.seconds) == pytest.approx((30e-6, GATHERED))  # nothing slows it


def test_copies_and_collectives_do_not_slow_each_other() -> None:
    copy = ("copy", 1, "python", "to_host", 8 * MILLISECOND, True, False)

    found = replayed(copy, ("collective", 0, 2, "python", *GATHER))

    assert found.seconds == pytest.approx(10e-6 + COPIED)


def test_a_slow_link_takes_little_of_the_gpu() -> None:
    """10 GB/s between nodes, shared by all that a node sends: what NCCL needs for it is a few processors."""
    within, between = (contention(RATES, "all_gather", ranks, 8) for ranks in (8, 16))

    assert 0 < between < within / 5
    assert contention(RATES, "all_gather", 1, 1) == 0


def test_a_collective_begins_when_its_stream_has_come_to_it() -> None:
    found = replayed(traffic(2 * MILLISECOND), ("collective", 0, 0, "python", *GATHER))

    assert found.seconds == pytest.approx(10e-6 + 2e-3 + GATHERED)
    assert added_up(found)


def test_collectives_wait_for_each_other() -> None:
    found = replayed(*[("collective", 0, stream, "python", *GATHER) for stream in (1, 2)])

    assert found.seconds == pytest.approx(20e-6 + 2 * GATHERED)


def test_what_the_host_waits_for_is_what_holds_the_gpu_back() -> None:
    """The GPU is idle while the host waits for the collective, then for one dispatch."""
    found = replayed(("collective", 0, 1, "python", *GATHER), ("join", 0, 1), ("sync_stream", 1), traffic(MILLISECOND))

    assert found.parts == pytest.approx({GATHERING: GATHERED, HOST_BOUND: 30e-6, "memory-bound": 1e-3})


@pytest.mark.parametrize("wait", [("wait_stream", 0, 1), ("sync_stream", 1)])
def test_a_wait_for_a_stream_that_waits_is_for_what_that_waits_for(wait: tuple[Any, ...]) -> None:
    """ZeRO-3's stream of fetches waits for its collective, then copies; the collective waits for another stream."""
    found = replayed(
        traffic(2 * MILLISECOND, stream=2),
        ("collective", 0, 2, "hook", *GATHER),
        ("join", 0, 1),
        traffic(MILLISECOND, stream=1, call="hook"),
        wait,
        traffic(MILLISECOND, call="hook"),
    )

    assert found.parts == pytest.approx({HOST_BOUND: 10e-6, GATHERING: GATHERED, "memory-bound": 4e-3})


def test_copies_and_the_hosts_own_work() -> None:
    """Adam runs when the copy is there."""
    adam = cpu_adam_seconds(RATES, 10**5, ranks_per_node=8, launcher="deepspeed")
    copy = ("copy", 0, "python", "to_host", 8 * MILLISECOND, True, True)

    found = replayed(copy, ("adam", 10**5, 28 * 10**5), traffic(MILLISECOND))

    assert found.parts == pytest.approx(
        {HOST_BOUND: 20e-6, "copies": COPIED, "CPU optimizer": adam, "memory-bound": 1e-3}
    )


def test_a_copy_that_does_not_block_lets_the_host_go_on() -> None:
    """It runs behind the dispatch of the kernel, 10 us, and behind the kernel."""
    copy = ("copy", 1, "python", "to_host", 8 * MILLISECOND, True, False)

    found = replayed(copy, traffic(MILLISECOND))

    assert found.hidden["copies"] == pytest.approx(1.01e-3)
    assert found.parts["copies"] == pytest.approx(COPIED - 1.01e-3)


def test_files_are_read_beside_everything() -> None:
    """Each of the node's eight ranks reads as much."""
    read = nvme_seconds(RATES, 8 * MILLISECOND, "read")

    found = replayed(("file", "read", MILLISECOND), traffic(MILLISECOND), ("sync_files",), traffic(MILLISECOND))

    assert found.busy["drives, read"] == pytest.approx(read)
    assert found.seconds == pytest.approx(read + 10e-6 + 1e-3)
    assert added_up(found)


def test_kernels_of_the_step_are_the_optimizers() -> None:
    found = replayed(("phase", "input", 1), traffic(MILLISECOND), ("phase", "step", 1), traffic(MILLISECOND))

    assert found.parts["optimizer"] == found.parts["memory-bound"] == pytest.approx(1e-3)
    assert [(one.phase, one.micro_batch) for one in found.phases] == [("input", 1), ("step", 1)]
    assert sum(one.seconds for one in found.phases) == pytest.approx(found.seconds)


def test_flops_of_products_and_of_seen_pairs() -> None:
    """Of 4 queries and keys 10 pairs are seen, with a window of 2 keys 7; backward is twice forward."""
    product = ("product", 0, "python", False, 10, 20, 30, 2, "bf16")
    recomputed = ("product", 0, "python", True, 10, 20, 30, 1, "bf16")
    shape = (1, 2, 2, 4, 4, 8, True)
    attention = [("attention", 0, "python", False, phase, *shape, window, "bf16")
                 for phase, window in (("forward", 0), ("backward", 0), ("forward", 2))]  # fmt: skip

    found = replayed(product, recomputed, *attention)

    head = 2 * 8  # heads and their size
    seen = head * (4 * 10 + 8 * 10 + 4 * 7)
    assert found.model_flops == 24_000 + seen
    assert found.hardware_flops == 24_000 + 12_000 + seen


def test_beside_a_mask_a_kernel_takes_longer_and_no_more_is_seen() -> None:
    """A mask leaves nothing to leave out: all pairs are computed, of which as many are the model's."""
    shape = (1, 32, 8, 4096, 4096, 128)
    own, beside = ([("attention", 0, "python", False, "forward", *shape, causal, window, "bf16")
                    for window in (0, 1024)] for causal in (True, False))  # fmt: skip

    assert [flops(one) for one in beside] == [flops(one) for one in own]
    bound = RATES._replace(memory_bytes_per_second=1e15)  # by arithmetic alone
    whole, narrow = (seconds(one, bound, 8, "flash2") for one in own)
    assert seconds(beside[0], bound, 8, "flash2") == seconds(beside[1], bound, 8, "flash2") > 6 * narrow
    assert seconds(beside[0], bound, 8, "flash2") > 3 * whole


def test_the_critical_path_is_what_decides_the_end() -> None:
    """Forward is queued early and ends early; the second stream's copy is late, and the last kernel waits for it."""
    copy = ("copy", 1, "python", "to_host", 8 * MILLISECOND, True, False)
    found = replayed(
        ("phase", "input", 1),
        ("phase", "forward", 1),
        ("module", "model.layers.0"),
        copy,
        traffic(MILLISECOND),
        ("wait_stream", 0, 1),
        ("phase", "backward", 1),
        ("module", "model.layers.1"),
        traffic(2 * MILLISECOND),
        ("module", "model.layers.0"),
        traffic(3 * MILLISECOND),
    )

    assert sum(found.path.values()) == pytest.approx(found.seconds, rel=1e-12)
    assert found.path == pytest.approx({HOST_BOUND: 10e-6, "copies": COPIED, "memory-bound": 5e-3})
    assert found.parts["memory-bound"] == pytest.approx(6e-3)  # the compute stream runs one more, off the path
    told = [(one.what, one.phase, one.first, one.last) for one in found.stretches]
    assert told == [
        (HOST_BOUND, "forward", "", ""),
        ("copies", "forward", "model.layers.0", "model.layers.0"),
        (KERNELS, "backward", "model.layers.1", "model.layers.0"),
    ]
    assert [one.seconds for one in found.stretches] == pytest.approx([10e-6, COPIED, 5e-3])


@pytest.mark.parametrize(("off", "on", "gained"), [(0.0, 1.0, 0.0), (1.0, 0.5, 2.5e-3)])
def test_what_is_off_the_path_can_be_faster_without_any_gain(off: float, on: float, gained: float) -> None:
    def seconds(off: float, on: float) -> float:
        copy = ("copy", 1, "python", "to_host", 8 * MILLISECOND, True, False)
        behind = (("wait_stream", 0, 1), traffic(int(5 * on * MILLISECOND)))
        return replayed(copy, traffic(int(off * MILLISECOND)), *behind).seconds

    assert seconds(1.0, 1.0) - seconds(off, on) == pytest.approx(gained, abs=1e-12)


def test_dispatch_is_of_the_phase_in_which_the_host_dispatches() -> None:
    """A host that never waits goes through all phases in one piece, which had all been of its first one."""
    call = traffic(1)  # a nanosecond: the host bounds it
    found = replayed(
        ("phase", "input", 1),
        ("phase", "forward", 1),
        *(call,) * 3,
        ("phase", "backward", 1),
        *(call,) * 5,
        ("phase", "input", 1),
        ("phase", "forward", 1),
        *(call,) * 2,
        ("phase", "step", 1),
        call,
    )

    told = [(one.phase, one.micro_batch) for one in found.stretches if one.what == HOST_BOUND]
    assert told == [("forward", 1), ("backward", 1), ("forward", 2), ("step", 2)]
    seconds = [one.seconds for one in found.stretches if one.what == HOST_BOUND]
    assert seconds == pytest.approx([30e-6, 50e-6, 20e-6, 10e-6])
    assert sum(found.path.values()) == pytest.approx(found.seconds, rel=1e-12)


def test_the_path_goes_through_the_host_where_that_waits() -> None:
    """Adam on the CPU runs when the copy is there; the host, not a stream, has waited for it."""
    adam = cpu_adam_seconds(RATES, 10**5, ranks_per_node=8, launcher="deepspeed")
    copy = ("copy", 1, "python", "to_host", 8 * MILLISECOND, True, True)

    found = replayed(copy, ("adam", 10**5, 28 * 10**5), traffic(MILLISECOND))

    assert [one.what for one in found.stretches] == [HOST_BOUND, "copies", "CPU optimizer", HOST_BOUND, KERNELS]
    assert found.path["CPU optimizer"] == pytest.approx(adam)


def test_the_parts_of_the_phases_add_up_to_the_step() -> None:
    """Backward is queued while forward runs: the GPU's seconds are told by the phase that queued them."""
    found = replayed(
        ("phase", "forward", 1), traffic(3 * MILLISECOND), ("phase", "backward", 1), traffic(2 * MILLISECOND),
        ("collective", 0, 0, "python", *GATHER),
    )  # fmt: skip

    forward, backward = found.phases
    assert forward.parts == pytest.approx({HOST_BOUND: 10e-6, "memory-bound": 3e-3})
    assert backward.parts == pytest.approx({"memory-bound": 2e-3, GATHERING: GATHERED})
    assert forward.gpu_seconds + backward.gpu_seconds == pytest.approx(found.seconds, rel=1e-12)
    assert forward.seconds == pytest.approx(10e-6)  # the host is through with it


def test_an_interval_tells_what_it_waited_for() -> None:
    found = replayed(("collective", 0, 1, "python", *GATHER), ("join", 0, 0), traffic(MILLISECOND), traffic(0))

    causes = {one.queue: one.cause for one in found.intervals}
    waited = next(one for one in found.intervals if one.queue == "compute")
    assert found.intervals[waited.cause].name == "all-gather"
    assert causes["collectives"] == -1


def test_memory_is_told_by_the_hosts_clock() -> None:
    """The host allocates; the GPU is behind."""
    table = [traffic(MILLISECOND), ("sync_stream", 0)]
    program = {"entries": table, "order": [0, 1, 0], "loops": [], "held": [[0, 100], [2, 300]]}

    found = replay(program, RATES, ranks_per_node=8, stage=2, launcher="deepspeed", kernel="flash2")

    assert found.memory == ((0.0, 100), (pytest.approx(10e-6 + 1e-3), 300))


@pytest.mark.parametrize("last", [("item", 0), ("view", "python")])
def test_a_loop_is_as_long_as_what_it_stands_for(last: tuple[Any, ...]) -> None:
    """The passes that are added up, not gone through, cost what each of them costs.

    Also where nothing in them makes the host wait, which then runs ahead of the GPU further with every pass.
    """
    one_pass = (("phase", "input", 1), traffic(MILLISECOND), ("collective", 0, 0, "python", *GATHER),
                ("join", 0, 0), traffic(3 * MILLISECOND), last)  # fmt: skip

    looped = replayed(*one_pass * 2, traffic(MILLISECOND), loops=[[6, 12, 30]])
    whole = replayed(*one_pass * 32, traffic(MILLISECOND))

    assert looped.seconds == pytest.approx(whole.seconds, rel=1e-9)
    assert looped.parts == pytest.approx(whole.parts, rel=1e-6)
    assert looped.busy == pytest.approx(whole.busy, rel=1e-6)
    assert looped.path == pytest.approx(whole.path, rel=1e-6)
    assert sum(looped.path.values()) == pytest.approx(looped.seconds, rel=1e-9)
    assert sum(one.gpu_seconds for one in looped.phases) == pytest.approx(looped.seconds, rel=1e-6)
    assert looped.host_seconds == pytest.approx(whole.host_seconds, rel=1e-9)
    assert "passes alike" in [one.phase for one in looped.phases]
    assert len(looped.intervals) < len(whole.intervals) / 4


def test_at_stage_3_collectives_and_kernels_take_turns() -> None:
    """Though the collective has a stream of its own: so are they measured (dsgen.kernels.takes_turns)."""
    program = [
        traffic(MILLISECOND),
        ("collective", 0, 1, "python", *GATHER),
        traffic(2 * MILLISECOND),
        ("join", 0, 0),
        traffic(MILLISECOND),
    ]

    hidden, turns = replayed(*program, stage=2), replayed(*program, stage=3)

    assert hidden.seconds < 4e-3 + GATHERED
    assert turns.seconds == pytest.approx(4e-3 + GATHERED + 10e-6, rel=1e-2)
    assert turns.parts[GATHERING] == pytest.approx(GATHERED, rel=0.05)
    assert CONTENTION not in turns.parts
    assert added_up(turns)


@pytest.mark.parametrize("launcher", ["torchrun", "deepspeed"])
def test_the_launcher_decides_the_threads_of_the_hosts_work(launcher: str) -> None:
    adam = replayed(("adam", 10**6, 28 * 10**6), launcher=launcher)
    scaling = replayed(("host", "mul_", 8 * 10**6, 0), launcher=launcher)

    assert adam.busy["CPU optimizer"] == pytest.approx(
        cpu_adam_seconds(RATES, 10**6, ranks_per_node=8, launcher=launcher)
    )
    assert scaling.busy["host operators"] == pytest.approx(
        RATES.dispatch_seconds + host_traffic_seconds(RATES, 8 * 10**6, ranks_per_node=8, launcher=launcher)
    )


def test_what_the_host_writes_to_new_memory_takes_longer() -> None:
    used, new = (replayed(("host", "cast", 6 * 10**6, fresh)).busy["host operators"] for fresh in (0, 2 * 10**6))

    assert new - used == pytest.approx(2 * 10**6 / 2.7e9)
    assert new - used == pytest.approx(new_memory_seconds(RATES, 2 * 10**6, ranks_per_node=8, launcher="deepspeed"))
