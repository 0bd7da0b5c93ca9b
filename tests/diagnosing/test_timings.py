"""What a log says of time: progress bars, DeepSpeed's and Megatron's timers, the Trainer's summary."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsgen.diagnosing import read
from dsgen.diagnosing.timings import MOST, Timings, Values


def time_of(*lines: str) -> Timings:
    """What lines say of time."""
    return read(["\n".join(lines).encode()]).time


def bars(*seconds: float, total: int = 900) -> list[str]:
    """A training's progress bar."""
    return [f" 1%|1 | {step}/{total} [11:16<13:02:24, {took:.2f}s/it]" for step, took in enumerate(seconds, 1)]


def test_a_bar_of_training_tells_the_step_and_others_do_not() -> None:
    other = [f"Map: 10%|1 | {n}/4714 [00:02<00:00, 1943.76 examples/s]" for n in range(9)]
    loads = ["Loading checkpoint shards: 50%|## | 1/2 [00:01<00:01, 40.80s/it]"]

    told = time_of(*other, *loads, *bars(9, 9, 9, 2, 2, 2, 2))  # the first steps compile

    assert (told.step_seconds, told.steps, told.source) == (2, 7, "the progress bar")


def test_steps_a_second_are_turned_around() -> None:
    assert time_of(" 1%|1 | 12/900 [11:16<13:02:24, 4.00it/s]").step_seconds == 0.25


def test_the_longest_bar_is_the_training_s() -> None:
    evaluation = [f"  9%|9 | {n}/11 [00:01<00:01, 7.00it/s]" for n in range(1, 12)]

    assert time_of(*bars(*[3.0] * 40), *evaluation).step_seconds == 3


@pytest.mark.parametrize(
    ("line", "seconds", "samples"),
    [
        ("{'train_runtime': 4.2, 'train_samples_per_second': 8.1, 'train_steps_per_second': 0.02}", 50, None),
        ("  train_steps_per_second   =      0.02", 50, None),
        (" iteration 5/ 9 | elapsed time per iteration (ms): 4247.9 | loss: 2", 4.2479, None),
        ("[timer.py:157:stop] 0/10, SamplesPerSec=1.5, MemAllocated=0.93GB, MaxMemAllocated=12.76GB", None, 1.5),
        ("epoch=0/micro_step=8/global_step=4, RunningAvgSamplesPerSec=9.9, CurrSamplesPerSec=2.5, MemAllocated=1GB",
         None, 2.5),
    ],
)  # fmt: skip
def test_other_sources(line: str, seconds: float | None, samples: float | None) -> None:
    told = time_of(line)

    assert told.step_seconds == (pytest.approx(seconds) if seconds is not None else None)
    assert told.samples_per_second == samples


def test_deepspeed_s_breakdown_and_its_peaks() -> None:
    micro = "fwd_microstep: 1020.60 | bwd_microstep: 3864.56 | bwd_inner_microstep: 9.0 | step_microstep: 22.87"
    memory = "MA 11.76 GB         Max_MA 11.76 GB         CA 11.77 GB         Max_CA 12 GB"

    record = read([f"time (ms) | {micro}\n[utils.py:830:see_memory_usage] {memory}\n".encode()])

    assert record.time.parts == pytest.approx({"forward": 1.0206, "backward": 3.86456, "step": 0.02287})
    assert record.peak_allocated_bytes == int(11.76 * 2**30)
    assert record.peak_reserved_bytes == 12 * 2**30


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=300), st.integers(1, 60))
def test_values_are_few_and_their_median_lies_among_them(values: list[float], times: int) -> None:
    kept = Values()
    for value in values * times:
        kept.add(value)

    assert len(kept.kept) <= MOST
    assert kept.median is not None and min(values) <= kept.median <= max(values)
