"""What went wrong in a run, as text of a screen and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from dsgen.asking.plan_questions.speedups import Speedup
from dsgen.diagnosing import UNKNOWN_ERROR, Diagnosis, NextChange, Symptom
from dsgen.diagnosing.causes import CONSEQUENCE, SLOW
from dsgen.diagnosing.remarks import fragmented
from dsgen.memory import Verdict
from dsgen.report import costs
from dsgen.shapes.units import gib

__all__ = ["data", "text"]

NARROWEST = 60  # columns; a narrower terminal wraps the lines itself
VARIABLE = "PYTORCH_CUDA_ALLOC_CONF"  # where torch does not name it itself
_LEAST_BYTES = 2**26  # below which what is saved is not worth a word
_LEAST_SLOWER = 0.005  # share of the speed below which two are as fast
_TWICE = 0.995  # more time for a token from which on it is said in times, as dsgen plan says it
_PHASES = {"load": "while the model loaded", "init": "while DeepSpeed started", "launch": "at the launch",
           "resume": "while a checkpoint was loaded", "save": "while a checkpoint was saved",
           "evaluate": "in evaluation", "data": "in the data loader", "training": "in training"}  # fmt: skip
_MOST_OTHERS = 5
_OF_HOST = ("host-out-of-memory", "process-killed")
_HEAD = 10  # columns before a change and between it and what it gives
_GENERAL = 3  # general changes that are shown beside numbers


def text(diagnosis: Diagnosis, width: int = 80) -> str:
    """The answer for a person, with a final newline.

    Args:
        diagnosis: What went wrong.
        width: Columns of the terminal.
    """
    width = max(width, NARROWEST)
    lines = [*_wrapped(_headline(diagnosis), width, "")]
    lines += [line for said in _told(diagnosis) for line in _wrapped(said, width, "  ")]
    lines += _next(diagnosis, width)
    lines += [line for said in _others(diagnosis) for line in _wrapped(said, width, "  ")]
    return "\n".join(lines) + "\n"


def _wrapped(words: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(
        words, width, initial_indent=indent, subsequent_indent=f"{indent}  ", break_on_hyphens=False
    ) or [indent]


def _headline(diagnosis: Diagnosis) -> str:
    record, root = diagnosis.record, diagnosis.root
    if root is not None and root.cause is not None:
        return f"{root.cause.words}{_when(root)}{_numbers(root)}"
    if root is not None:
        return f"an error that dsgen does not know{_when(root)}"
    if record.failed:
        return "the run failed, and the log does not say why"
    if diagnosis.code is not None and diagnosis.pace is not None:
        pace = diagnosis.pace
        return (
            f"steps are slow: {_seconds(pace.measured_seconds)} instead of {_seconds(pace.predicted_seconds)} "
            f"({_seconds(pace.low_seconds)} to {_seconds(pace.high_seconds)} is plausible)"
        )
    return f"nothing wrong is known of in {record.lines:,} line{'s' if record.lines != 1 else ''}"


def _when(symptom: Symptom) -> str:
    """On which rank, in which phase, of which step, and where in the log."""
    rank = f" on rank {symptom.rank}" if symptom.rank is not None else ""
    gpu = symptom.facts.get("gpu")
    rank = f" on GPU {gpu}" if not rank and gpu is not None else rank
    phase = ""
    if symptom.level == SLOW:
        return f"{rank} (line {symptom.line:,})"
    if symptom.phase in ("forward", "backward", "step"):
        phase = f" in {'the optimizer step' if symptom.phase == 'step' else symptom.phase}"
    elif symptom.phase is not None:
        phase = f" {_PHASES.get(symptom.phase, symptom.phase)}"
    step = symptom.step if symptom.phase in ("forward", "backward", "step", "training") else None
    return f"{rank}{phase}{f' of step {step:,}' if step is not None else ''} (line {symptom.line:,})"


def _numbers(symptom: Symptom) -> str:
    """The numbers of a full card."""
    sizes = [symptom.facts.get(f"{name}_bytes") for name in ("asked", "free", "total")]
    if symptom.code != "gpu-out-of-memory" or not all(isinstance(size, int) for size in sizes):
        return ""
    asked, free, total = (gib(float(size)) for size in sizes if size is not None)
    return f": {asked} GiB asked, {free} free of {total}"


def _told(diagnosis: Diagnosis) -> Iterator[str]:
    """The line itself, why, what the numbers say, and the pace."""
    record, root = diagnosis.record, diagnosis.root
    if root is not None and not _numbers(root):  # of a full card the headline and the remarks say it all
        yield f"log: {_short(root.text)}"
        if root.cause is not None:
            yield root.cause.why
    elif root is not None:
        pass
    elif record.failed:
        yield f"log: {_short(record.failed)}"
        if record.last_error and record.last_error != record.failed:
            yield f"last error: {_short(record.last_error)}"
        yield "look at the logs of the other ranks and nodes: a launcher prints only that one of them ended"
    elif diagnosis.code is None:
        yield f"last line: {_short(record.last_line)}"
        if record.last_error:
            yield f"an error that the run went on after: {_short(record.last_error)}"
        if not record.finished:
            yield "no line says that it is done: where it hangs, py-spy dump --pid PID shows at what"
    yield from _pace(diagnosis)
    yield from diagnosis.remarks


def _short(line: str) -> str:
    return line if len(line) <= 150 else f"{line[:147]}..."


def _pace(diagnosis: Diagnosis) -> Iterator[str]:
    time, pace = diagnosis.record.time, diagnosis.pace
    if pace is not None and diagnosis.code != "slow-steps":
        verdict = "slower than is plausible" if pace.slow else "as predicted"
        if pace.measured_seconds < pace.low_seconds:
            verdict = (
                "faster than predicted: it is not the job that is described here, or a step is not what is printed"
            )
        yield f"a step took {_seconds(pace.measured_seconds)}, predicted {_seconds(pace.predicted_seconds)}: {verdict}"
    elif pace is None and time.step_seconds is not None:
        yield f"a step took {_seconds(time.step_seconds)} (by {time.source})"
    if time.parts and (pace is None or pace.slow):
        yield "of a micro-batch: " + ", ".join(f"{name} {_seconds(took)}" for name, took in time.parts.items())
    reserved = diagnosis.record.peak_reserved_bytes or diagnosis.record.peak_allocated_bytes
    if reserved and diagnosis.predicted is not None and (diagnosis.root is None or "memory" in diagnosis.root.code):
        kind = "reserved" if diagnosis.record.peak_reserved_bytes else "allocated"
        gpu = diagnosis.predicted.gpu
        predicted = gpu.reserved_bytes if kind == "reserved" else gpu.peak_bytes
        yield f"DeepSpeed printed a peak of {gib(reserved)} GiB {kind}; predicted {gib(predicted)}"


def _seconds(value: float) -> str:
    return costs.seconds_text(value)


def _next(diagnosis: Diagnosis, width: int) -> list[str]:
    """What to change: with numbers where there are some, else in general."""
    rows: list[tuple[str, str]] = []
    root = diagnosis.root
    if root is not None and root.code == "gpu-out-of-memory" and (loose := fragmented(root)) is not None:
        variable = root.facts.get("variable", VARIABLE)
        rows.append((f"{variable}=expandable_segments:True", f"up to -{gib(loose)} GiB, free"))
    predicted = diagnosis.predicted
    if root is not None and root.code in _OF_HOST and predicted is not None and predicted.host.verdict is Verdict.FITS:
        rows += [(words, "") for words in diagnosis.general[:1]]  # something else takes it, or less is there
    rows += [(change.words, _gives(change)) for change in diagnosis.changes]
    rows += [(_words(one), f"{one.gain:+.0%} speed") for one in diagnosis.speedups]
    if all(abs(change.saved_bytes) < _LEAST_BYTES for change in diagnosis.changes) and not diagnosis.speedups:
        first = 1 if diagnosis.changes or diagnosis.general[:1] == tuple(words for words, _ in rows) else 0
        rows += [(words, "") for words in diagnosis.general[first:][:_GENERAL]]
    if not rows and diagnosis.code == UNKNOWN_ERROR:
        rows.append(("search for the line in the issues of the library that its traceback names", ""))
    lines: list[str] = []
    column = max((len(words) for words, gives in rows if gives and len(words) + len(gives) < width - _HEAD), default=0)
    for place, (words, gives) in enumerate(rows):
        head = "  next  " if not place else "   or   "
        beside = f"{head}{words:<{column}}  {gives}"
        if gives and len(beside) <= width:
            lines.append(beside)
            continue
        told = f"{words}: {gives}" if gives else words
        lines += textwrap.wrap(
            told, width, initial_indent=head, subsequent_indent=" " * (len(head) + 2), break_on_hyphens=False,
            break_long_words=False,
        )  # fmt: skip
    programs = list(_programs(diagnosis))
    if programs:
        lines += _wrapped(f"with the Trainer {'; '.join(programs)}", width, "  ")
    if diagnosis.changes and not any(change.enough for change in diagnosis.changes):
        lines += _wrapped("none of them is enough by itself: dsgen plan looks for a strategy that fits", width, "  ")
    return lines


def _programs(diagnosis: Diagnosis) -> Iterator[str]:
    """What the Trainer calls each change; with its number where an option stands twice with others."""
    changes = [change for change in diagnosis.changes if change.program]
    options = [change.words.split()[0] for change in changes]
    for option, change in zip(options, changes, strict=True):
        named = option if options.count(option) == 1 else " ".join(change.words.split()[:2])
        yield f"{named} is {change.program}"


def _words(one: Speedup) -> str:
    return "; ".join(one.words)


def _gives(change: NextChange) -> str:
    """What a change gives and costs."""
    if change.slower is None:
        pace = "speed not known"
    elif abs(change.slower) < _LEAST_SLOWER:
        pace = "as fast"
    elif change.slower > _TWICE:
        pace = f"{1 + change.slower:.1f}x slower"
    elif change.slower > 0:
        pace = f"{1 - 1 / (1 + change.slower):.0%} slower"
    else:
        pace = f"{1 / (1 + change.slower) - 1:.0%} faster"
    if abs(change.saved_bytes) < _LEAST_BYTES:
        return f"as much memory, {pace}"
    saved = f"{'-' if change.saved_bytes >= 0 else '+'}{gib(abs(change.saved_bytes))} GiB"
    doubt = "" if change.enough else ", not enough"
    return f"{saved}, {pace}{doubt}{'' if change.same else ', trains less'}"


def _others(diagnosis: Diagnosis) -> Iterator[str]:
    """What else the log has, and whether it follows."""
    root = diagnosis.root
    others = diagnosis.record.others
    for one in others[:_MOST_OTHERS]:
        words = one.cause.words if one.cause is not None else f"an error that dsgen does not know ({_short(one.text)})"
        times = f"{one.count:,} lines from line {one.line:,}" if one.count > 1 else f"line {one.line:,}"
        follows = ": it follows" if root is not None and root.level < one.level == CONSEQUENCE else ""
        follows = ": usual at the beginning of fp16" if one.harmless else follows
        yield f"also: {words} ({times}){follows}"
    if len(others) > _MOST_OTHERS:
        yield f"and {len(others) - _MOST_OTHERS} more: --format json"


def data(diagnosis: Diagnosis) -> dict[str, Any]:
    """The same as plain JSON types: bytes and seconds."""
    record, predicted, pace = diagnosis.record, diagnosis.predicted, diagnosis.pace
    return {
        "code": diagnosis.code,
        "cause": _symptom(diagnosis.root) if diagnosis.root is not None else None,
        "remarks": list(diagnosis.remarks),
        "next": [
            {
                "options": change.options,
                "words": change.words,
                "program": change.program,
                "saved_bytes": change.saved_bytes,
                "slower": change.slower,
                "enough": change.enough,
                "trains_the_same": change.same,
            }
            for change in diagnosis.changes
        ],
        "faster": [{"words": list(one.words), "keys": dict(one.keys), "gain": one.gain} for one in diagnosis.speedups],
        "general": list(diagnosis.general),
        "also": [_symptom(one) for one in record.others],
        "predicted": None
        if predicted is None
        else {
            "gpu_peak_bytes": predicted.gpu.peak_bytes,
            "gpu_reserved_bytes": predicted.gpu.reserved_bytes,
            "gpu_limit_bytes": predicted.gpu.limit_bytes,
            "host_bytes": predicted.host.needed_bytes,
            "host_limit_bytes": predicted.host.limit_bytes,
            "verdict": predicted.verdict.value,
        },
        "step": {
            "seconds": pace.measured_seconds if pace is not None else record.time.step_seconds,
            "samples_per_second": record.time.samples_per_second,
            "parts": record.time.parts,
            "last": record.time.steps,
            "predicted_seconds": pace.predicted_seconds if pace is not None else None,
            "plausible_seconds": [pace.low_seconds, pace.high_seconds] if pace is not None else None,
            "slow": pace.slow if pace is not None else None,
        },
        "log": {
            "lines": record.lines,
            "bytes": record.size_bytes,
            "world": record.world,
            "finished": record.finished,
            "failed": record.failed or None,
            "last_error": record.last_error or None,
            "last_line": record.last_line,
            "peak_allocated_bytes": record.peak_allocated_bytes or None,
            "peak_reserved_bytes": record.peak_reserved_bytes or None,
        },
    }


def _symptom(one: Symptom) -> dict[str, Any]:
    cause = one.cause
    return {
        "code": one.code,
        "words": cause.words if cause is not None else None,
        "why": cause.why if cause is not None else None,
        "source": cause.source if cause is not None else None,
        "line": one.line,
        "text": one.text,
        "rank": one.rank,
        "ranks": list(one.ranks),
        "phase": one.phase,
        "step": one.step,
        "count": one.count,
        "harmless": one.harmless,
        "facts": one.facts,
        "behind": {str(rank): number for rank, number in one.behind.items()},
    }
