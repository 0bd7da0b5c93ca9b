"""How long steps take by what a log prints: progress bars, DeepSpeed's and Megatron's timers, the Trainer's summary."""

from __future__ import annotations

import math
import re
import statistics

import attrs

__all__ = ["OFTEN", "WORDS", "Timings", "read", "timings"]

WORDS = ("train_steps_per_second",)  # once a run
OFTEN = ("s/it", "it/s", "SamplesPerSec=", "elapsed time per iteration", "time (ms) |", "skipped=")  # in every step
MOST = 4096  # values that are kept of each kind; of more every second one
MOST_BARS = 16
WARM_UP = 3  # values left out where there are more than twice as many: the first steps compile and fill caches
# A bar without a description: bars of loading and of tokenizing have one.
_BAR = re.compile(r"^\s*\d{1,3}%\|[^|]*\| *(\d+)/(\d+) \[[\d:]+<[\d:?]+, +([\d.]+|\?)(s/it|it/s)")
_SAMPLES = re.compile(r"CurrSamplesPerSec=([\d.e+-]+)|(?<![A-Za-z])SamplesPerSec=([\d.e+-]+)")
_SUMMARY = re.compile(r"'?train_steps_per_second'?\s*[:=]\s*'?([\d.e+-]+)")
_ITERATION = re.compile(r"elapsed time per iteration \((m?s)\): ([\d.]+)")
_PARTS = re.compile(r"\| (fwd|bwd|step|forward|backward)(?:_microstep)?: ([\d.]+)")
_GLOBAL_STEP = re.compile(r"global_step=(\d+)|\bstep=(\d+), skipped")
_PART_NAMES = {"fwd": "forward", "bwd": "backward"}


@attrs.frozen(kw_only=True)
class Timings:
    """What a log says of time.

    Attributes:
        step_seconds: One optimizer step: the median after the first few; None where nothing says it.
        samples_per_second: Sequences of all GPUs, as DeepSpeed's timer says; None where it says nothing.
        count: How many values that rests on.
        source: What printed them.
        parts: forward, backward, step -> seconds, of wall_clock_breakdown; empty where it is off.
        steps: The last step that was seen.
    """

    step_seconds: float | None
    samples_per_second: float | None
    count: int
    source: str
    parts: dict[str, float]
    steps: int


class Values:
    """Numbers of a run that may be endless, of which evenly spread ones are kept."""

    def __init__(self) -> None:
        self.kept: list[float] = []
        self.seen, self.stride = 0, 1

    def add(self, value: float) -> None:
        """Take one more; what is no positive number is left out."""
        if not (math.isfinite(value) and value > 0):
            return
        if self.seen % self.stride == 0:
            self.kept.append(value)
            if len(self.kept) > MOST:
                self.kept = self.kept[::2]
                self.stride *= 2
        self.seen += 1

    @property
    def median(self) -> float | None:
        """Of those after the warm-up."""
        warm = self.kept[WARM_UP:] if len(self.kept) > 2 * WARM_UP else self.kept
        return statistics.median(warm) if warm else None


def read(text: str, into: dict[str, Values]) -> int | None:
    """Take what a line says of time.

    Args:
        text: The line, without a rank's name.
        into: Kind -> values: "bar TOTAL", "samples", "summary", "iteration", and "part NAME".

    Returns:
        The step that the line says is done; None where it says none.
    """
    if bar := _BAR.match(text):
        done, total, rate, unit = bar.groups()
        kind = f"bar {total[:12]}"
        if kind in into or len(into) < MOST_BARS:
            number = _number(rate)
            into.setdefault(kind, Values()).add(number if unit == "s/it" else 1 / number if number else 0.0)
        return int(done[:12])
    for kind, pattern in (("samples", _SAMPLES), ("summary", _SUMMARY)):
        if match := pattern.search(text):
            into.setdefault(kind, Values()).add(_number(next(group for group in match.groups() if group)))
    if match := _ITERATION.search(text):
        into.setdefault("iteration", Values()).add(_number(match[2]) / (1000 if match[1] == "ms" else 1))
    if "time (ms) |" in text:
        for name, said in _PARTS.findall(text):
            into.setdefault(f"part {_PART_NAMES.get(name, name)}", Values()).add(_number(said) / 1000)
    step = _GLOBAL_STEP.search(text)
    return int(next(group for group in step.groups() if group)[:12]) if step else None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def timings(values: dict[str, Values], steps: int) -> Timings:
    """What all lines together say; of several sources the one that measures the step most directly."""
    bars = [(int(kind.split()[1]), one) for kind, one in values.items() if kind.startswith("bar ")]
    longest = max(bars, key=lambda pair: (pair[1].seen, pair[0]), default=None)
    summary = values.get("summary")
    seconds, count, source = None, 0, ""
    if summary is not None and summary.median:
        seconds, count, source = 1 / summary.median, summary.seen, "the Trainer's train_steps_per_second"
    elif (iteration := values.get("iteration")) is not None and iteration.median:
        seconds, count, source = iteration.median, iteration.seen, "elapsed time per iteration"
    elif longest is not None and longest[1].median:
        seconds, count, source = longest[1].median, longest[1].seen, "the progress bar"
    samples = values.get("samples")
    if seconds is None and samples is not None:
        count, source = samples.seen, "DeepSpeed's SamplesPerSec"
    parts = {kind.split()[1]: one.median for kind, one in values.items() if kind.startswith("part ") and one.median}
    return Timings(
        step_seconds=seconds,
        samples_per_second=samples.median if samples is not None else None,
        count=count,
        source=source,
        parts=parts,
        steps=steps,
    )
