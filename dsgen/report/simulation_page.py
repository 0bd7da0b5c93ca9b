"""A simulation as one page of HTML: memory over the run, the step over time, and what they are made of as tables."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from dsgen.memory import Place
from dsgen.report import footprints, step_time
from dsgen.report.simulation import headlines, host_words, how, place_made, torch_words, traffic
from dsgen.report.streams import colour, streams
from dsgen.report.timeline import COLOURS, STYLE, drawing
from dsgen.shapes.units import gib
from dsgen.simulating import Simulation

__all__ = ["PAGE_STYLE", "html"]

PAGE_STYLE = """
:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;margin:2rem auto;max-width:1100px;
padding:0 1rem;background:#fff;color:#1f2430}
h1{font-size:1.35rem;margin:0 0 .2rem}h2{font-size:1.05rem;margin:1.8rem 0 .4rem}
p{margin:.2rem 0}.soft{color:#5f6675}
table{border-collapse:collapse;margin:.3rem 0;font-size:14px}
th,td{padding:.2rem .8rem .2rem 0;text-align:left;border-bottom:1px solid #d5d9e0;vertical-align:top}
td.number,th.number{text-align:right;font-variant-numeric:tabular-nums}
.swatch{display:inline-block;width:.75rem;height:.75rem;border-radius:2px;margin-right:.5rem}
.scroll{overflow-x:auto}
td{white-space:nowrap}
.columns section.wide{max-width:none;flex-grow:2}
.wide td:last-child{white-space:normal;overflow-wrap:anywhere}
.columns{display:flex;flex-wrap:wrap;gap:0 2.5rem}
.columns section{flex:1 1 22rem;max-width:34rem}
@media (prefers-color-scheme:dark){body{background:#14171d;color:#e8eaf0}.soft{color:#a2a9b8}
th,td{border-color:#3a4150}}
"""
_MIB = 2**20
_LONGEST = 12  # stretches of the critical path


def html(simulation: Simulation) -> str:
    """The page, with a final newline; it loads nothing from elsewhere."""
    title, *rest = headlines(simulation)
    estimate = simulation.estimate
    places = [
        ("GPU", "one GPU", estimate.gpu, torch_words(simulation)),
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
        *(_place(label, place, words, simulation.limits) for _, label, place, words in places),
        "</div>",
        _phases(simulation),
        *_largest(simulation),
        _collectives(simulation),
        _filled(simulation),
        *(f'<p class="soft">{escape(line)}</p>' for line in (*simulation.notes, *how(simulation))),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{PAGE_STYLE}{STYLE}</style></head>\n<body>\n"
        + "\n".join(part for part in body if part)
        + "\n</body></html>\n"
    )


def _time(simulation: Simulation) -> Iterator[str]:
    """The step over time, what fills it, what decides its end, and its micro-steps; nothing where there is no time."""
    time = simulation.step_time
    if time is None or not time.seconds:
        return
    said = step_time.speed_line(simulation, time)
    yield f"<h2>{escape(said[:1].upper() + said[1:])}</h2>"
    yield f'<div class="scroll">{streams(simulation, time)}</div>'
    yield '<div class="columns">'
    rows = [[_swatch(colour(row[0])) + escape(row[0]), *map(escape, row[1:])] for row in step_time.part_rows(time)]
    parts = _table(("what fills it", "seconds", "share", "hidden", "critical path"), rows, 1)
    yield f"<section><h2>What fills the step</h2>{parts}</section>"
    longest = [list(map(escape, row)) for row in itertools.islice(step_time.longest(time), _LONGEST)]
    path = _table(("longest", "what", "phase", "module"), longest, 0, 1)
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
    yield _table(("forward and backward", "all", *map(escape, names)), rows, 1)


def _swatch(filled: str) -> str:
    return f'<span class="swatch" style="background:{filled}"></span>'


def _place(label: str, place: Place, words: str, limits: bool) -> str:
    """One place: what it comes to, and its parts."""
    verdict = f" of {gib(place.limit_bytes)} GiB: {place.verdict.value}" if limits else " GiB"
    interval = f"certain {gib(place.least_bytes)}, at most {gib(place.high_bytes)} GiB"
    rows: list[Sequence[str]] = [
        (
            _swatch(COLOURS.get(name, "#6b7280")) + escape(name),
            f"{size:,}",
            gib(size),
        )
        for name, size in sorted(place.parts.items(), key=lambda item: -item[1])
        if size
    ]
    rows.append(("<b>all tensors at the peak</b>", f"<b>{place.peak_bytes:,}</b>", f"<b>{gib(place.peak_bytes)}</b>"))
    rows += [(f"{escape(name)} (no tensor)", f"{size:,}", gib(size)) for name, size in place.overhead.items() if size]
    head = f"<h2>{escape(label)}: {gib(place.peak_bytes)}{escape(verdict)}</h2>"
    said = f"peak in {place.phase}; {interval}" + (f"; {words}" if words else "")
    return f"<section>{head}<p class='soft'>{escape(said)}</p>{_table(('part', 'bytes', 'GiB'), rows, 1)}</section>"


def _phases(simulation: Simulation) -> str:
    head, *lines = footprints.phase_rows(simulation.estimate.phases, simulation.ends)
    return "<h2>Phases, GiB</h2>" + _table(head, [[escape(cell) for cell in line] for line in lines], 1)


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
            yield f"<h2>Largest tensors at the {label}'s peak</h2>" + _table(heads, rows, 0, 2)


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
    return "<h2>Collectives of a rank</h2>" + _table(heads, rows, 3) if rows else ""


def _filled(simulation: Simulation) -> str:
    rows = [(escape(one.key), escape(str(one.value)), escape(one.why)) for one in simulation.filled]
    head = "<h2>Filled in, as the training program does</h2>"
    return head + _table(("key", "value", "why"), rows, 3) if rows else ""


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], first: int, until: int | None = None) -> str:
    """A table whose columns from `first` up to `until` are numbers; cells are HTML."""

    def cells(tag: str, row: Sequence[str]) -> str:
        last = len(row) if until is None else until
        return "".join(
            f'<{tag} class="number">{cell}</{tag}>' if first <= index < last else f"<{tag}>{cell}</{tag}>"
            for index, cell in enumerate(row)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{cells("th", heads)}</tr></thead><tbody>{body}</tbody></table></div>'
