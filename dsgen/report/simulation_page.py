"""A simulation as one page of HTML: memory over the run, the step over time, and what they are made of as tables."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from html import escape

from dsgen.report import footprints, step_time
from dsgen.report.page_parts import framed, place_section, swatch, table
from dsgen.report.simulation import (
    headlines,
    host_words,
    how,
    of_checkpoint,
    place_made,
    shortage_words,
    torch_words,
    traffic,
)
from dsgen.report.streams import colour, streams
from dsgen.report.timeline import STYLE, drawing
from dsgen.shapes.units import gib
from dsgen.simulating import Simulation

__all__ = ["html"]

_MIB = 2**20
_LONGEST = 12  # stretches of the critical path


def html(simulation: Simulation) -> str:
    """The page, with a final newline; it loads nothing from elsewhere."""
    title, *rest = headlines(simulation)
    estimate = simulation.estimate
    places = [
        (
            "GPU",
            "one GPU",
            estimate.gpu,
            "; ".join(filter(None, (torch_words(simulation), shortage_words(simulation)))),
        ),
        ("host", "one node's RAM", estimate.host, host_words(simulation)),
    ]
    if estimate.nvme.peak_bytes:
        places.append(("NVMe", "one node's drives", estimate.nvme, ""))
    body = [
        f"<h1>{escape(title)}</h1>",
        *(f'<p class="soft">{escape(line)}</p>' for line in rest),
        f"<p><b>{escape(footprints.verdict_line(estimate))}</b></p>" if simulation.limits else "",
        f'<div class="scroll">{drawing(simulation)}</div>',
        *_time(simulation),
        '<div class="columns">',
        *(place_section(label, place, words, simulation.limits) for _, label, place, words in places),
        "</div>",
        _phases(simulation),
        *_largest(simulation),
        _collectives(simulation),
        _filled(simulation),
        *(f'<p class="soft">{escape(line)}</p>' for line in (*simulation.notes, *how(simulation))),
    ]
    return framed(title, body, STYLE)


def _time(simulation: Simulation) -> Iterator[str]:
    """The step over time, what fills it, what decides its end, and its micro-steps; nothing where there is no time."""
    time = simulation.step_time
    if time is None or not time.seconds:
        return
    said = step_time.speed_line(simulation, time)
    yield f"<h2>{escape(said[:1].upper() + said[1:])}</h2>"
    yield f'<div class="scroll">{streams(simulation, time)}</div>'
    yield '<div class="columns">'
    rows = [[swatch(colour(row[0])) + escape(row[0]), *map(escape, row[1:])] for row in step_time.part_rows(time)]
    parts = table(("what fills it", "seconds", "share", "hidden", "critical path"), rows, 1)
    yield f"<section><h2>What fills the step</h2>{parts}</section>"
    longest = [list(map(escape, row)) for row in itertools.islice(step_time.longest(time), _LONGEST)]
    path = table(("longest", "what", "phase", "module"), longest, 0, 1)
    yield f"<section class='wide'><h2>What decides its end: the critical path</h2>{path}</section>"
    yield "</div>"
    passes = step_time.micro_steps(time)
    names = sorted({name for *_, parts in passes for name in parts}, key=lambda name: -passes[0][2].get(name, 0.0))
    rows = [
        [
            f"{first}" if first == last else f"{first} to {last}, each",
            f"{sum(parts.values()) * 1e3:,.1f}",
            *(f"{parts[name] * 1e3:,.1f}" if name in parts else "" for name in names),
        ]
        for first, last, parts in passes
    ]
    yield "<h2>Micro-steps on the GPU, milliseconds</h2>"
    yield table(("forward and backward", "all", *map(escape, names)), rows, 1)


def _phases(simulation: Simulation) -> str:
    head, *lines = footprints.phase_rows(simulation.phases, simulation.ends, disks=simulation.disk_bytes)
    told = "".join(f'<p class="soft">{escape(line)}</p>' for line in of_checkpoint(simulation))
    return "<h2>Phases, GiB</h2>" + table(head, [[escape(cell) for cell in line] for line in lines], 1) + told


def _largest(simulation: Simulation) -> Iterator[str]:
    for name, label in (("gpu", "GPU"), ("host", "host")):
        rows = [
            (
                gib(one.bytes),
                f"{one.count:,}",
                escape(one.kind),
                escape(f"{one.dtype} {one.shape}"),
                escape(place_made(one)),
            )
            for one in simulation.largest[name]
        ]
        if rows:
            heads = ("GiB", "count", "what", "each", "made in")
            yield f"<h2>Largest tensors at the {label}'s peak</h2>" + table(heads, rows, 0, 2)


def _collectives(simulation: Simulation) -> str:
    rows = [
        (
            f"{one.step or ''}",
            one.phase,
            one.kind,
            f"{one.ranks}",
            f"{one.count:,}",
            gib(one.bytes),
            f"{one.largest_bytes / _MIB:,.1f}",
        )
        for one in traffic(simulation.collectives)
    ]
    heads = ("step", "phase", "collective", "ranks", "calls", "GiB", "largest MiB")
    return "<h2>Collectives of a rank</h2>" + table(heads, rows, 3) if rows else ""


def _filled(simulation: Simulation) -> str:
    rows = [(escape(one.key), escape(str(one.value)), escape(one.why)) for one in simulation.filled]
    head = "<h2>Filled in, as the training program does</h2>"
    return head + table(("key", "value", "why"), rows, 3) if rows else ""
