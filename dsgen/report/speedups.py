"""A strategy as it is and what would make it faster, as text and as JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from dsgen.asking.plan_questions.speedups import LEAST_GAIN, Speedup, Speedups
from dsgen.memory import Verdict
from dsgen.report import costs
from dsgen.report.bars import folded, place_line, rounded
from dsgen.report.memory import headline, question_data, said_lines, wrapped
from dsgen.report.plan import candidate_data
from dsgen.shapes.units import gib

__all__ = ["change_lines", "data", "text"]

NARROWEST = 60  # columns; a narrower terminal wraps the lines itself
_NUMBERS = 28  # columns of the three numbers behind a change
_NO_OFFLOAD = ("optimizer on the GPU: no offload", "parameters on the GPU: no offload")
_NO_WORD = "Accelerate's file has no word for it, a config that its deepspeed_config_file names has"
_UNSEEN = 0.005  # a gain or a loss that shows as nothing
_BATCH = ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size")
_WIDEST = 90  # columns of a change's words; beyond it the numbers are too far away to be read with them


def text(answer: Speedups, width: int = 80) -> str:
    """The answer for a person, with a final newline.

    Args:
        answer: The strategy and its changes.
        width: Columns of the terminal.
    """
    width = max(width, NARROWEST)
    question, now = answer.question, answer.now
    memory = now.memory
    lines = [*wrapped(headline(question), width), *wrapped(costs.speed_line(now), width)]
    lines += [line for said in said_lines(question) for line in wrapped(said, width)]
    if question.job.hardware.calibrated:
        from dsgen.asking.calibrating import basis  # most machines were not measured

        lines += wrapped(basis(question.job), width)
    lines += [line for note in question.notes for line in wrapped(f"note: {note}", width)]
    lines += [line for said in _misread(answer) for line in wrapped(f"note: {said}", width)]
    lines += ["", *costs.part_lines(now), *costs.nearest_lines(question.job, width)]
    lines += [*costs.padding_lines(now, width), *costs.launcher_lines(now, width), ""]
    lines += [*folded(f"{place_line('GPU', memory.gpu)}; peak in {memory.gpu.phase}", width)]
    lines.append(place_line("host", memory.host))
    if memory.nvme.peak_bytes:
        lines.append(place_line("NVMe", memory.nvme))
    if answer.verdict is Verdict.DOES_NOT_FIT:
        lines += wrapped("note: it does not run as it is, and gains are over a speed that it cannot have", width)
    lines += ["", *change_lines(answer, width)]
    if answer.verdict is not Verdict.FITS:
        lines += ["", *_ways(answer, width)]
    return "\n".join(lines) + "\n"


def _misread(answer: Speedups) -> Iterator[str]:
    """What of the config is not as written, with its place and its rule."""
    subject = answer.question.subject
    name = subject.document.name if subject is not None else ""
    yield from (f"{name}:{one.line}: {one.message} ({one.code})" for one in answer.findings)


def _ways(answer: Speedups, width: int) -> Iterator[str]:
    """What makes it fit."""
    ways = answer.ways
    if not ways:
        yield from wrapped("nothing of strategy, length or method makes it surely fit: take more GPUs", width)
        return
    yield "   what makes it surely fit, the smallest of each kind"
    for change in ways:
        gpu = change.memory.gpu
        sizes = f"GPU {gib(gpu.least_bytes)} to {gib(gpu.high_bytes)} of {gib(gpu.limit_bytes)} GiB"
        line = f"{' '.join(_options(change.options))}: {change.words}; {sizes}"
        yield from textwrap.wrap(line, width, initial_indent=" " * 3, subsequent_indent=" " * 7, break_on_hyphens=False)


def _options(options: Mapping[str, Any]) -> Iterator[str]:
    """Options as they are typed beside --config."""
    for field, value in options.items():
        name = f"--{field.replace('_', '-')}"
        yield name if isinstance(value, bool) else " ".join(f"{name} {one}" for one in _listed(value))


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def change_lines(answer: Speedups, width: int) -> Iterator[str]:
    """Each change with its gain, speed and memory, and below it what to write."""
    if not answer.changes and answer.together is None:
        yield from wrapped("faster: no change of strategy or buffers gains 2 % or more and surely fits", width)
        yield from _tried_lines(answer, width)
        return
    column = min(width - _NUMBERS - 3, _WIDEST)
    yield f"   {'what would make it faster':<{column}} {'gain':>7} {'tok/s/GPU':>9} {'GPU GiB':>8}"
    for place, one in enumerate(answer.changes, 1):
        yield from _rows(f"{place:>2}", one, column, width)
    if answer.together is not None:
        yield from _rows(" =", answer.together, column, width, "together: ")
    if answer.tried:
        yield ""
    yield from _tried_lines(answer, width)


def _tried_lines(answer: Speedups, width: int) -> Iterator[str]:
    """What was tried besides, in short: what gains too little, what is slower, and what does not surely fit."""
    small = [one for one in answer.tried if _UNSEEN > -one.gain > -LEAST_GAIN]
    slower = [one for one in answer.tried if -one.gain >= _UNSEEN]
    large = [one for one in answer.tried if one.gain >= LEAST_GAIN]
    for lead, tried in (("gains less than 2 %", small), ("is slower", slower), ("does not surely fit", large)):
        if tried:
            yield from wrapped(f"tried, and {lead}: {', '.join(_short(answer, one) for one in tried)}", width)


def _short(answer: Speedups, one: Speedup) -> str:
    """A change that was tried, in a few words: what a config would say, and what it gains if that is anything."""
    said = []
    for path, value in one.keys.items():
        name = path.removeprefix("zero_optimization.")
        if name not in _BATCH:
            written = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value
            said.append(f"no {name}" if value is None else f"{name} {_word(written)}")
    after = one.after.strategy.checkpointing
    if after != answer.now.strategy.checkpointing:
        said.insert(0, f"{'' if after else 'no '}checkpointing")
    if one.after.strategy.micro_batch != answer.now.strategy.micro_batch:
        said.append(f"micro-batch {one.after.strategy.micro_batch}")
    if not said:  # the config stays as it is
        said.append(one.words[0].partition(",")[0])
    gain = f"{one.gain:+.1%}" if abs(one.gain) < LEAST_GAIN else _gain(one.gain)  # +2% is no less than 2 %
    return f"{' and '.join(said)}{f' ({gain})' if abs(one.gain) >= _UNSEEN else ''}"


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _rows(mark: str, one: Speedup, column: int, width: int, lead: str = "") -> Iterator[str]:
    first, *rest = textwrap.wrap(lead + "; ".join(_joined(one.words)), column, break_on_hyphens=False)
    needed = gib(one.after.memory.gpu.needed_bytes)
    yield f"{mark} {first:<{column}} {_gain(one.gain):>7} {rounded(one.after.speed):>9} {needed:>8}"
    yield from (f"     {line}" for line in rest)
    todo = ", ".join([*_written(one), *one.programs])
    for line in textwrap.wrap(todo, width - 7, break_long_words=False, break_on_hyphens=False):
        yield f"       {line}"


def _joined(words: tuple[str, ...]) -> Iterator[str]:
    """The sentences of a change; of both places of offload one."""
    both = set(_NO_OFFLOAD) <= set(words)
    for one in words:
        if not both or one not in _NO_OFFLOAD:
            yield one
        elif one == _NO_OFFLOAD[0]:
            yield "optimizer and parameters on the GPU: no offload"


def _gain(gain: float) -> str:
    """A gain as a person reads it: +26%, or 3.4x from twice the speed on; a loss as -3%."""
    return f"{gain + 1:.1f}x" if gain >= 1 else f"{gain:+.0%}"


def _written(one: Speedup) -> Iterator[str]:
    """What to write, with the line that says it now."""
    for key, value in one.keys.items():
        place = f" ({one.where[key]})" if key in one.where else ""
        name = one.names.get(key, key)
        if name is None:
            name, place = key, f" ({_NO_WORD})"
        yield f"without {name}{place}" if value is None else f"{name}: {json.dumps(value)}{place}"


def data(answer: Speedups) -> dict[str, Any]:
    """The answer as plain JSON types; bytes and seconds throughout."""
    return {
        "question": question_data(answer.question),
        "verdict": answer.verdict.value,
        "now": candidate_data(answer.now),
        "speedups": [_speedup(one) for one in answer.changes],
        "together": _speedup(answer.together) if answer.together is not None else None,
        "tried": [{**_change(one), "verdict": one.after.memory.verdict.value} for one in answer.tried],
        "ways": [{"options": dict(one.options), "words": one.words} for one in answer.ways],
        "findings": [one.to_dict() for one in answer.findings],
    }


def _speedup(one: Speedup) -> dict[str, Any]:
    return {**_change(one), "where": dict(one.where), "names": dict(one.names), "after": candidate_data(one.after)}


def _change(one: Speedup) -> dict[str, Any]:
    return {"words": list(one.words), "gain": one.gain, "keys": dict(one.keys), "programs": list(one.programs)}
