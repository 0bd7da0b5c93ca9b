"""An adopted config for a person: what it runs, what dsgen would do otherwise, and what that gains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dsgen.asking.adopting import Adoption
from dsgen.memory import expandable
from dsgen.planning.candidates import Candidate
from dsgen.report import costs, speedups
from dsgen.report.bars import place_line
from dsgen.report.memory import headline, wrapped
from dsgen.report.speedups import NARROWEST, change_lines
from dsgen.strategies.strategies import describe

__all__ = ["data", "text"]

_CLOSE = 0.02  # of the speed: no gain that a person would change a config for, as dsgen plan --config has it


def text(made: Adoption, name: str, width: int = 80, written_to: str | None = None) -> str:
    """The answer, with a final newline.

    Args:
        made: What was adopted.
        name: What the config is called.
        width: Columns of the terminal.
        written_to: The scenario's file; None where it went to stdout.
    """
    width = max(width, NARROWEST)
    now = made.speedups.now
    lines = [
        *wrapped(f"{name}: {len(made.config.paths())} keys, and the scenario renders back to each of them", width),
        *wrapped(f"it runs {headline(made.question)}", width),
        *_numbers(now),
        *(line for note in made.question.notes for line in wrapped(f"note: {note}", width)),
        "",
        *(line for sentence in _otherwise(made) for line in wrapped(sentence, width)),
        *(_numbers(made.own) if made.own is not None else ()),
        "",
        *change_lines(made.speedups, width),
        "",
    ]
    place = written_to or "scenario.yaml"
    lines.append(
        f"wrote {place}. Next: dsgen render {place}" if written_to else f"Next: -o {place}, dsgen render {place}"
    )
    return "\n".join(lines) + "\n"


def _numbers(item: Candidate) -> Iterator[str]:
    memory = item.memory
    yield place_line("GPU", memory.gpu)
    yield place_line("host", memory.host)
    if memory.nvme.peak_bytes:
        yield place_line("NVMe", memory.nvme)
    yield costs.speed_line(item)


def _otherwise(made: Adoption) -> Iterator[str]:
    """What a plan of dsgen's own takes, and what it gains."""
    if made.own is None or made.gain is None:
        yield "dsgen would have no plan of its own: nothing that it plans surely fits with as many sequences a step"
        return
    chosen = made.own.strategy
    takes = (
        f"{describe(chosen)}, micro-batch {chosen.micro_batch} x accumulation {chosen.accumulation}, {chosen.precision}"
    )
    if expandable(made.own.job) and not expandable(made.question.job):
        takes += ", with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, without which it is counted above"
    if abs(made.gain) < _CLOSE:
        yield f"dsgen would take {takes}: as fast, within {_CLOSE:.0%}"
    elif made.gain > 0:
        much = f"{made.gain + 1:.1f}x as fast" if made.gain >= 1 else f"{made.gain:.0%} faster"
        yield f"dsgen would take {takes}: {much} for the same sequences a step"
    else:
        yield f"dsgen would take {takes}: {-made.gain:.0%} slower than what is there"


def data(made: Adoption, written_to: str | None = None) -> dict[str, Any]:
    """The same as plain JSON types: bytes, seconds, and shares of the speed."""
    return {
        "scenario": made.text,
        "written_to": written_to,
        "config": dict(made.config),
        "warnings": [str(warning) for warning in made.warnings],
        "notes": list(made.question.notes),
        "runs": costs.data(made.speedups.now),
        "dsgen_would": costs.data(made.own) if made.own is not None else None,
        "gain": made.gain,
        "faster": speedups.data(made.speedups),
    }
