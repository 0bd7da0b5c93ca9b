"""The time of a strategy's step: its speed with the interval, and the parts that fill it, as text and as data."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from dsgen.cost.sample_lengths import own_share
from dsgen.cost.steps import derived, stand_in
from dsgen.cost.steps import speed_interval as shares
from dsgen.jobs.job import Job
from dsgen.jobs.samples import varied_mean
from dsgen.planning.candidates import Candidate
from dsgen.planning.launchers import said_by_a_person, starting_words, threads_matter
from dsgen.report.bars import bar, rounded

__all__ = ["data", "differences", "launcher_lines", "nearest_lines", "padding_lines", "part_lines", "seconds_text",
           "speed_interval", "speed_line"]  # fmt: skip

_LEAST = 0.005  # share of a step below which a part is not worth a line
_LEAST_DIFFERENCE = 0.01  # share of a step below which a part is no reason for a choice
_MOST_DIFFERENCES = 2
_NAME = 22  # columns of a part's name
_UNITS = ((86_400 * 365.25, "years"), (86_400, "days"), (3_600, "hours"), (60, "min"))


def speed_line(item: Candidate) -> str:
    """Tokens a second and GPU with their interval, and how long a step takes."""
    low, high = map(rounded, speed_interval(item))
    step = seconds_text(item.cost.seconds)
    return f"speed about {rounded(item.speed)} tokens/s/GPU ({low} to {high}), a step takes {step}"


def padding_lines(item: Candidate, width: int) -> list[str]:
    """What of a step's tokens is no sample's own, where micro-batches are padded; nothing where hardly any are.

    And whose lengths packed samples are taken to have, where nobody said it.
    """
    job, training = item.job, item.job.training
    if training.packing and training.mean_len is None:
        words = "attention of whole sequences: packed samples see less of them (--mean-len N says how long they are)"
    elif (lost := 1 - own_share(job, item.strategy)) >= _LEAST:
        whose = "waits for are another GPU's" if training.padding_free else "computes, or waits for, are padding"
        words = f"of a sample's own tokens: {lost:.0%} of those that a step {whose}"
    else:
        return []
    return textwrap.wrap(words, width, subsequent_indent="  ", break_on_hyphens=False)


def nearest_lines(job: Job, width: int) -> list[str]:
    """Whose kernels a speed is made of, where nobody has measured this GPU's; nothing where somebody has."""
    name = stand_in(job)
    if name is None and not derived(job):
        return []
    whose = "by its datasheet" if derived(job) else f"as measured on {name}"
    words = f"kernels {whose}: of this GPU there are no measurements, and the interval is wider"
    return textwrap.wrap(words, width, subsequent_indent="  ", break_on_hyphens=False)


def launcher_lines(item: Candidate, width: int) -> list[str]:
    """Which cores Adam on the host is taken to have, and who decides it; nothing where no launcher does."""
    job = item.job
    if not threads_matter(job, item.strategy):
        return []
    by = "" if said_by_a_person(job) else f" (--launcher {job.training.launcher}; nobody says another)"
    words = f"Adam on the host: {starting_words(job)}{by}"
    return textwrap.wrap(words, width, subsequent_indent="  ", break_on_hyphens=False)


def speed_interval(item: Candidate) -> tuple[float, float]:
    """The least and the most tokens a second and GPU that a strategy plausibly reaches."""
    low, high = shares(item.job, item.strategy)
    return item.speed * low, item.speed * high


def part_lines(item: Candidate) -> Iterator[str]:
    """What fills a step, the longest first."""
    whole = item.cost.seconds
    for name, seconds in sorted(item.cost.parts.items(), key=lambda part: -part[1]):
        if seconds >= _LEAST * whole:
            share = seconds / whole
            yield f"      {name:<{_NAME}} {seconds_text(seconds):>9} {share:>4.0%}  {bar(share)}"


def seconds_text(seconds: float) -> str:
    """A duration with three digits in the unit that a person would use: 12.3 ms, 4.56 s, 2.5 days."""
    for size, unit in _UNITS:
        if seconds >= 2 * size:
            return f"{rounded(seconds / size) if seconds >= 100 * size else f'{seconds / size:.1f}'} {unit}"
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def differences(seconds: Mapping[str, float], whole: float) -> str:
    """The parts in which two steps differ most, two at most: `offload +3.4 s, communication -120 ms`; maybe none.

    Args:
        seconds: Part -> seconds that it takes longer.
        whole: Seconds of the step that they are compared with.
    """
    largest = sorted(seconds.items(), key=lambda part: -abs(part[1]))[:_MOST_DIFFERENCES]
    told = [(name, more) for name, more in largest if abs(more) >= _LEAST_DIFFERENCE * whole]
    return ", ".join(f"{name} {'+' if more > 0 else '-'}{seconds_text(abs(more))}" for name, more in told)


def data(item: Candidate) -> dict[str, Any]:
    """The same as plain JSON types: seconds, tokens a second, their intervals, the parts that add up, whose kernels."""
    cost = item.cost
    low, high = shares(item.job, item.strategy)
    varied = varied_mean(item.job.training) is not None
    own = {"own_tokens_share": own_share(item.job, item.strategy)} if varied else {}
    return {
        "seconds_per_step": cost.seconds,
        "seconds_per_step_low": cost.seconds / high,
        "seconds_per_step_high": cost.seconds / low,
        "tokens_per_second_per_gpu": cost.tokens_per_second_per_gpu,
        "tokens_per_second_per_gpu_low": cost.tokens_per_second_per_gpu * low,
        "tokens_per_second_per_gpu_high": cost.tokens_per_second_per_gpu * high,
        "communication_share": cost.communication_share,
        "hidden_seconds": cost.hidden_seconds,
        "parts": dict(cost.parts),
        "nearest": stand_in(item.job),
        **own,
    }
