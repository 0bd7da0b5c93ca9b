"""The answers of `dsgen memory` as one page of HTML, in the words of its text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from dsgen.asking.memory_questions import Footprint
from dsgen.report import footprints, memory_words
from dsgen.report.bars import card_line, room_line
from dsgen.report.headroom import headroom_line, verdict_line
from dsgen.report.memory import headline, marked_line, on_disk, phases, row_verdict, said_lines
from dsgen.report.observed import observed_lines
from dsgen.report.page_parts import framed, place_section, table
from dsgen.shapes.units import gib
from dsgen.strategies.strategies import describe

__all__ = ["html"]


def html(footprint: Footprint) -> str:
    """The page, with a final newline; it loads nothing from elsewhere."""
    title, memory = headline(footprint.question), footprint.memory
    told = card_line(memory.gpu), room_line(memory.gpu), headroom_line(memory, footprint.later)
    gpu = "; ".join(line for line in told if line)
    places = [("one GPU", memory.gpu, gpu), ("one node's RAM", memory.host, "")]
    if memory.nvme.peak_bytes:
        places.append(("one node's drives", memory.nvme, ""))
    notes = [f"note: {note}" for note in footprint.question.notes]
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<p><b>{escape(verdict_line(footprint))}</b></p>",
        *(f'<p class="soft">{escape(line)}</p>' for line in (*said_lines(footprint.question), *notes) if line),
        *(f"<p>{escape(told)}</p>" for told in observed_lines(footprint)),
        '<div class="columns">',
        *(place_section(label, place, words, True) for label, place, words in places),
        "</div>",
        *_phases(footprint),
        _alternatives(footprint),
        "<h2>What would do</h2>" + table(("asked", "answer"), _escaped(memory_words.answers(footprint)), 2),
    ]
    return framed(title, parts)


def _phases(footprint: Footprint) -> Iterator[str]:
    """Loading, steps, an evaluation, a save and a resume, and what there is to say of them."""
    if not footprint.memory.phases:
        return
    beside, disks = footprints.beside(footprint.memory), on_disk(footprint)
    head, *rows = footprints.phase_rows(phases(footprint), beside=beside, disks=disks)
    yield "<h2>Phases, GiB</h2>" + table(head, _escaped(rows), 1)
    yield from (f"<p>{escape(told)}</p>" for told in memory_words.warnings(footprint))


def _alternatives(footprint: Footprint) -> str:
    rows = [
        (
            describe(item.strategy) + (" (as asked)" if item.asked else ""),
            gib(item.memory.gpu.needed_bytes),
            gib(item.memory.host.needed_bytes),
            gib(item.memory.nvme.peak_bytes) if item.memory.nvme.peak_bytes else "",
            row_verdict(item),
        )
        for item in footprint.alternatives
    ]
    size = footprint.question.strategy.micro_batch
    head = f"<h2>Every stage and offload at micro-batch {size}; all else equal</h2>"
    told = table(("strategy", "GPU GiB", "host", "NVMe", "verdict"), _escaped(rows), 1, 4)
    mark = marked_line(footprint)
    return head + told + (f"<p>{escape(mark)}</p>" if mark else "") if rows else ""


def _escaped(rows: Iterable[Sequence[str]]) -> list[list[str]]:
    return [[escape(cell) for cell in row] for row in rows]
