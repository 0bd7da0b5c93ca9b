"""The time of a simulated step as text and as data: what fills it, what is hidden, what decides its end, its passes."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from dsgen.report.tables import table
from dsgen.simulating import ALIKE, PathStretch, PhaseTime, Simulation, Timeline

__all__ = ["data", "group", "longest", "micro_steps", "part_rows", "speed_line", "stretch_words", "text_lines"]

_LEAST = 0.001  # share of the step below which a part is not worth a line
_SHOWN = 0.0005  # the same of a column of the passes: what would be 0.0 % everywhere
_LONGEST = 5  # stretches of the critical path that are shown
_MARGIN = 8  # columns: the indent, and two between each pair of four
_PASSES = 4  # micro-steps that are shown one by one
_EQUAL = 0.005  # share by which passes differ that are told as one
_TERA = 1e12
_NUMBER = re.compile(r"\.\d+")  # of a layer or an expert
_STEP = "step"  # phase of the optimizer
# Group of parts -> what it holds, besides the parts of its own name; a part with a comma is of the first word's group.
_GROUPS = {"offload": ("copies", "CPU optimizer", "host operators", "drives")}
_PLAIN = ("products", "attention", "memory-bound", "optimizer", "contention", "host-bound")


def text_lines(simulation: Simulation, width: int) -> Iterator[str]:
    """The step's seconds, what fills them, and what runs beside; nothing where there is no time."""
    time = simulation.step_time
    if time is None or not time.seconds:
        return
    yield from _wrapped(speed_line(simulation, time), width)
    heads = ["what fills it", "seconds", "share", "hidden", "critical path"]
    yield from table(list(part_rows(time)), width, heads).splitlines()
    yield from _wrapped(f"the host works for {_seconds(time.host_seconds)} of it", width)
    yield from _wrapped("longest stretches of the critical path, which decides the step's end", width)
    yield from _stretch_lines(list(longest(time))[:_LONGEST], width)
    yield from _passes(time, width)
    peak = f"{simulation.peak_flops_per_second / _TERA:,.0f} TFLOP/s"
    yield from _wrapped(f"MFU and HFU are by the dense peak of {peak}; MFU leaves out what is recomputed", width)
    if simulation.run.steps == 1:
        yield from _wrapped("the first step: it makes the optimizer's states, and stage 3 does not prefetch yet", width)
    if time.nearest is not None:
        yield from _wrapped(f"kernels as measured on {time.nearest}: of this GPU there are no measurements", width)


def data(simulation: Simulation) -> dict[str, Any] | None:
    """The same as plain JSON types; None where there is no time."""
    time = simulation.step_time
    if time is None or not time.seconds:
        return None
    return {
        "step": simulation.run.steps,
        "step_seconds": time.seconds,
        **_told(simulation, time),
        "peak_flops_per_second": simulation.peak_flops_per_second,
        "parts": dict(time.parts),
        "groups": _grouped(time.parts),
        "hidden": dict(time.hidden),
        "critical_path": {
            "parts": dict(time.path),
            "stretches": [one._asdict() for one in time.stretches],
        },
        "host_seconds": time.host_seconds,
        "phases": [{**one._asdict(), "parts": dict(one.parts), "gpu_seconds": one.gpu_seconds} for one in time.phases],
        "micro_steps": [
            {
                "micro_steps": [first, last],
                "each_seconds": sum(parts.values()),
                "parts": parts,
                "groups": _grouped(parts),
            }
            for first, last, parts in micro_steps(time)
        ],
        "nearest": time.nearest,
    }


def speed_line(simulation: Simulation, time: Timeline) -> str:
    """How long the step takes, and what that makes."""
    told = _told(simulation, time)
    return (
        f"step {simulation.run.steps} takes {_seconds(time.seconds)}: {told['tokens_per_second_per_gpu']:,.0f} "
        f"tokens/s/GPU, {told['model_flops_per_second'] / _TERA:,.1f} TFLOP/s a GPU, MFU {told['mfu']:.1%}, "
        f"HFU {told['hfu']:.1%}"
    )


def group(sort: str) -> str:
    """The group of a part: communication, offload, or the part itself."""
    if sort in _PLAIN:
        return sort
    word = sort.partition(",")[0]
    return next((name for name, words in _GROUPS.items() if word in words), "communication")


def longest(time: Timeline) -> Iterator[list[str]]:
    """The stretches of the critical path that take most together, those of the same work in each pass or layer as one.

    Each has count, seconds and their sum, what it is, the phase, and the modules; a layer's number is `*` where it is
    of several. Passes that are added up count as the one that they are like.
    """
    alike: dict[tuple[str, str, str], list[PathStretch]] = {}
    for one in time.stretches:
        if one.what == ALIKE:
            continue
        every = one._replace(first=_NUMBER.sub(".*", one.first), last=_NUMBER.sub(".*", one.last))
        alike.setdefault((one.what, one.phase, stretch_words(every)), []).append(one)
    for (what, phase, words), members in sorted(alike.items(), key=lambda item: -_together(item[1])):
        names = {stretch_words(one) for one in members}
        yield [_times(members), what, phase, words if len(names) > 1 else names.pop()]


def _together(members: Sequence[PathStretch]) -> float:
    """Seconds of all of them, and of what they stand for."""
    seconds = 0.0
    for one in members:
        seconds += one.seconds + one.repeated_seconds
    return seconds


def _times(members: Sequence[PathStretch]) -> str:
    """How often, how long each, and how long together: 16 x 1.92 s = 30.7 s."""
    count = 0.0
    for one in members:
        count += 1 + one.repeated_seconds / one.seconds
    most, least = (ends(one.seconds for one in members) for ends in (max, min))
    upto = "up to " if least < (1 - _EQUAL) * most else ""
    whole = _seconds(_together(members))
    return f"{round(count)} x {upto}{_seconds(most)} = {whole}" if round(count) > 1 else whole


def _stretch_lines(rows: list[list[str]], width: int) -> Iterator[str]:
    """Stretches as a table; their modules below them where they have no room beside them."""
    columns = [max((len(row[place]) for row in rows), default=0) for place in range(4)]
    if sum(columns) + _MARGIN <= width:
        yield from table(rows, width).splitlines()
        return
    for line, row in zip(table([row[:-1] for row in rows], width).splitlines(), rows, strict=True):
        yield line
        if row[-1]:
            yield from textwrap.wrap(row[-1], width, initial_indent=" " * 6, subsequent_indent=" " * 8)


def stretch_words(one: PathStretch) -> str:
    """The modules of a stretch: from which to which."""
    names = list(dict.fromkeys(name for name in (one.first, one.last) if name))
    return " to ".join(names)


def _wrapped(words: str, width: int) -> list[str]:
    return textwrap.wrap(words, width, subsequent_indent="  ")


def _told(simulation: Simulation, time: Timeline) -> dict[str, float]:
    """Speeds of one GPU.

    FLOPs are those of products and attention that the run makes on this rank; of attention the pairs of positions that
    are seen, its backward counted as twice its forward. MFU leaves out what is recomputed, HFU counts it; both are by
    the dense peak of the run's dtype.
    """
    model, hardware = time.model_flops / time.seconds, time.hardware_flops / time.seconds
    return {
        "tokens_per_second_per_gpu": simulation.tokens_per_step_and_gpu / time.seconds,
        "model_flops_per_second": model,
        "hardware_flops_per_second": hardware,
        "mfu": model / simulation.peak_flops_per_second,
        "hfu": hardware / simulation.peak_flops_per_second,
    }


def part_rows(time: Timeline) -> Iterator[list[str]]:
    """Lines of the parts, largest first, then of what is hidden as a whole."""
    hidden = time.hidden
    for name in dict.fromkeys((*sorted(time.parts, key=lambda name: -time.parts[name]), *hidden)):
        seconds, aside, critical = time.parts.get(name, 0.0), hidden.get(name, 0.0), time.path.get(name, 0.0)
        if max(seconds, aside, critical) >= _LEAST * time.seconds:
            yield [
                name,
                _seconds(seconds) if seconds else "",
                f"{seconds / time.seconds:.1%}" if seconds else "",
                _seconds(aside) if aside >= _SHOWN * time.seconds else "",
                _seconds(critical) if critical else "",
            ]


def micro_steps(time: Timeline) -> list[tuple[int, int, dict[str, float]]]:
    """First pass, last pass, and the parts of each: forward and backward; neighbours that are alike are told as one."""
    told: list[tuple[int, int, dict[str, float]]] = []
    last = max((one.micro_batch for one in time.phases), default=0)
    begins = sorted({one.micro_batch for one in time.phases})
    for place, begin in enumerate(begins):
        until = begins[place + 1] - 1 if place + 1 < len(begins) else last
        own = [one for one in time.phases if one.micro_batch == begin and (one.phase != _STEP or begin != last)]
        parts = {name: seconds / (until - begin + 1) for name, seconds in _sum(own).items()}
        if told and _alike(told[-1][2], parts):
            first, before, average = told[-1]
            many, few = before - first + 1, until - begin + 1
            both = {
                name: (many * average.get(name, 0.0) + few * parts.get(name, 0.0)) / (many + few)
                for name in dict.fromkeys((*average, *parts))
            }
            told[-1] = first, until, both
        else:
            told.append((begin, until, parts))
    return told


def _alike(one: dict[str, float], other: dict[str, float]) -> bool:
    longest = max(sum(one.values()), sum(other.values()))
    return all(abs(one.get(name, 0.0) - other.get(name, 0.0)) <= _EQUAL * longest for name in {*one, *other})


def _sum(phases: Sequence[PhaseTime]) -> dict[str, float]:
    parts: dict[str, float] = {}
    for one in phases:
        for name, seconds in one.parts.items():
            parts[name] = parts.get(name, 0.0) + seconds
    return parts


def _grouped(parts: Any) -> dict[str, float]:
    groups: dict[str, float] = {}
    for name, seconds in parts.items():
        groups[group(name)] = groups.get(group(name), 0.0) + seconds
    return groups


def _passes(time: Timeline, width: int) -> Iterator[str]:
    """A table of the micro-steps and of the optimizer's step, by groups of parts."""
    columns = [
        (f"{first}" if first == last else f"{first} to {last}, each", _grouped(parts))
        for first, last, parts in _shortened(micro_steps(time))
    ]
    last_pass = max((one.micro_batch for one in time.phases), default=0)
    optimizer = [one for one in time.phases if one.phase == _STEP and one.micro_batch == last_pass]
    columns += [("optimizer", _grouped(_sum(optimizer)))] if optimizer else []
    names = [
        name
        for name in (*_PLAIN[:3], "communication", "offload", "optimizer", "contention", "host-bound")
        if any(parts.get(name, 0.0) >= _SHOWN * time.seconds for _, parts in columns)
    ]
    if names and time.phases:
        rows = [[name, *(_milliseconds(parts.get(name, 0.0)) for _, parts in columns)] for name in names]
        rows.append(["all", *(_milliseconds(sum(parts.values())) for _, parts in columns)])
        yield from table(rows, width, ["micro-step, ms", *(label for label, _ in columns)]).splitlines()


def _shortened(passes: list[tuple[int, int, dict[str, float]]]) -> list[tuple[int, int, dict[str, float]]]:
    """At most so many passes as are shown: those in the middle by their mean."""
    if len(passes) <= _PASSES:
        return passes
    middle = passes[1:-1]
    many = middle[-1][1] - middle[0][0] + 1
    mean: dict[str, float] = {}
    for first, last, parts in middle:
        for name, seconds in parts.items():
            mean[name] = mean.get(name, 0.0) + (last - first + 1) / many * seconds
    return [passes[0], (middle[0][0], middle[-1][1], mean), passes[-1]]


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f}" if seconds else ""


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.1f} ms"
