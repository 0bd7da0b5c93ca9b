"""A simulated step over time as an SVG: what runs in each stream, the critical path, and the GPU's bytes; no script."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

import attrs

from dsgen.report.step_time import group
from dsgen.report.timeline import ticks
from dsgen.shapes.units import gib
from dsgen.simulating import ALIKE, KERNELS, Simulation, Timeline

__all__ = ["colour", "streams"]

# Group of parts, or kind of collective -> colour. Readable on white and on black, and apart from each other.
_COLOURS = {
    "products": "#4e79a7",
    "attention": "#b07aa1",
    "memory-bound": "#2a9d8f",
    "optimizer": "#59a14f",
    KERNELS: "#4e79a7",
    "all-gather": "#f28e2b",
    "reduce-scatter": "#e15759",
    "all-reduce": "#d37295",
    "communication": "#c2703d",
    "copies": "#9c755f",
    "CPU optimizer": "#86bc6a",
    "host operators": "#c7a17a",
    "offload": "#7a6a5a",
    "host-bound": "#a0a7ad",
    "contention": "#edc948",
}
_PHASES = {"input": "#a0a7ad", "forward": "#76b7f2", "backward": "#b07aa1", "step": "#59a14f", ALIKE: "#a0a7ad"}
_WIDTH, _LEFT, _RIGHT = 1080, 100, 20  # px: the drawing, the room for names, and beside it
_PLOT = _WIDTH - _LEFT - _RIGHT
_ROW, _GAP = 26, 8  # px of a row, and below it
_MEMORY = 130  # px of the panel of bytes
_NARROW = 1.0  # px below which neighbours are drawn as one
_BREAK = 44  # px of time that is left out
_LEAST = 0.04  # share of the step from which passes that are added up are left out of the axis
_LETTER = 6.3  # px of a letter at 11 px, about
_TICKS = 8  # times on the axis, about
_STEPS = (1, 2, 2.5, 5, 10)  # times a power of ten


@attrs.frozen
class _Piece:
    """Something that is drawn in a row."""

    begin: float
    end: float
    sort: str
    words: str
    module: str = ""


@attrs.frozen
class _Axis:
    """Seconds to px, with the stretches of time that are left out."""

    seconds: float
    cuts: tuple[tuple[float, float], ...]

    def x(self, moment: float) -> float:
        """Where a moment is, in px."""
        drawn = self.seconds - sum(end - begin for begin, end in self.cuts)
        each = (_PLOT - _BREAK * len(self.cuts)) / drawn
        place, out = float(_LEFT), 0.0
        for begin, end in self.cuts:
            if moment <= begin:
                break
            inside = min(moment, end) - begin
            place += _BREAK * inside / (end - begin)
            out += inside
        return place + (moment - out) * each


def colour(sort: str) -> str:
    """Of a part or a group of parts."""
    return _COLOURS.get(sort.partition(",")[0]) or _COLOURS.get(group(sort), "#6b7280")


def streams(simulation: Simulation, time: Timeline) -> str:
    """The drawing as one element, in the colours of `dsgen.report.timeline.STYLE`."""
    axis = _Axis(time.seconds, _cuts(time))
    rows = list(_rows(time))
    top = 34.0
    bottom = top + len(rows) * (_ROW + _GAP) + _ROW + _GAP
    body = [*_grid(axis, top, bottom + _MEMORY + 22 if time.memory else bottom)]
    body += _host(time, axis, top)
    for number, (name, pieces) in enumerate(rows, start=1):
        body += _row(name, pieces, axis, top + number * (_ROW + _GAP))
    if time.memory:
        body += _memory(simulation, time, axis, bottom + 22)
        bottom += _MEMORY + 22
    legend, height = _legend(rows, bottom + 14)
    bottom += 14 + height
    title = f"Step {simulation.run.steps} over time: {len(rows)} rows, {time.seconds:.3g} s"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="dsgen-memory" role="img" viewBox="0 0 {_WIDTH} {bottom:.0f}" '
        f'width="100%" aria-label="{escape(title)}"><rect class="ground" width="{_WIDTH}" height="{bottom:.0f}"/>'
        f"{''.join(body)}{legend}</svg>"
    )


def _cuts(time: Timeline) -> tuple[tuple[float, float], ...]:
    """Where passes are added up and no queue has anything: that time is left out of the axis."""
    added = [(one.begin, one.begin + one.seconds) for one in time.phases if one.phase == ALIKE]
    cuts, latest = [], 0.0
    for one in sorted(time.intervals, key=lambda one: one.begin) if added else ():
        if one.begin - latest > _LEAST * time.seconds and any(
            begin < one.begin and latest < end for begin, end in added
        ):
            cuts.append((latest, one.begin))
        latest = max(latest, one.begin + one.seconds)
    return tuple(cuts)


def _rows(time: Timeline) -> Iterator[tuple[str, list[_Piece]]]:
    """The critical path, then each queue."""
    yield (
        "critical path",
        [
            _Piece(one.begin, one.begin + one.seconds, one.what, one.what, one.last or one.first)
            for one in time.stretches
            if one.what != ALIKE
        ],
    )
    queues: dict[str, list[_Piece]] = {}
    for one in time.intervals:
        size = f", {gib(one.bytes)} GiB" if one.bytes >= 2**20 else ""
        piece = _Piece(one.begin, one.begin + one.seconds, one.sort, f"{one.name}{size}", one.module)
        queues.setdefault(one.queue, []).append(piece)
    yield from queues.items()


def _grid(axis: _Axis, top: float, bottom: float) -> Iterator[str]:
    """Times, and where the axis is cut."""
    each = _round_step(axis.seconds - sum(end - begin for begin, end in axis.cuts))
    for number in range(int(axis.seconds / each) + 1):
        moment = number * each
        if any(begin < moment < end for begin, end in axis.cuts):
            continue
        x = axis.x(moment)
        yield f'<path class="grid" d="M{x:.1f} {top - 6:.0f}V{bottom:.0f}"/>'
        yield f'<text class="soft" text-anchor="middle" x="{x:.1f}" y="{top - 12:.0f}">{_clock(moment, each)}</text>'
    for begin, end in axis.cuts:
        left, right = axis.x(begin), axis.x(end)
        said = f"passes alike, {end - begin:.3g} s"
        yield (
            f'<rect class="band" x="{left:.1f}" y="{top:.0f}" width="{right - left:.1f}" height="{bottom - top:.0f}">'
            f"<title>{said}</title></rect>"
            f'<text class="soft" text-anchor="middle" transform="translate({(left + right) / 2 + 4:.1f} '
            f'{(top + bottom) / 2:.0f}) rotate(-90)">{said}</text>'
        )


def _round_step(seconds: float) -> float:
    power = 10.0 ** (len(f"{int(seconds * 1e6)}") - 8)
    while True:
        for factor in _STEPS:
            if seconds / (power * factor) <= _TICKS:
                return power * factor
        power *= 10


def _clock(moment: float, each: float) -> str:
    if each >= 0.1:
        return f"{moment:g} s" if moment else "0"
    return f"{moment * 1e3:g} ms" if moment else "0"


def _host(time: Timeline, axis: _Axis, top: float) -> Iterator[str]:
    """The phases, as the host goes through them."""
    yield _name("host's phases", top)
    several = any(one.micro_batch > 1 for one in time.phases)
    for one in time.phases:
        left, right = axis.x(one.begin), axis.x(one.begin + one.seconds)
        if right - left < _NARROW / 2:
            continue
        name = f"{one.phase} {one.micro_batch}" if several and one.phase != ALIKE else one.phase
        said = f"{name}: {_span(one.begin, one.begin + one.seconds)}; the GPU is at it for {_long(one.gpu_seconds)}"
        yield (
            f'<rect x="{left:.1f}" y="{top:.0f}" width="{max(right - left - 0.5, 0.5):.1f}" height="{_ROW}" rx="2" '
            f'fill="{_PHASES.get(one.phase, "#a0a7ad")}" fill-opacity=".45"><title>{escape(said)}</title></rect>'
        )
        if len(name) * _LETTER < right - left - 4:
            at = f'x="{left + 4:.1f}" y="{top + _ROW / 2 + 4:.0f}"'
            yield f'<text class="soft" pointer-events="none" {at}>{name}</text>'


def _row(name: str, pieces: Sequence[_Piece], axis: _Axis, top: float) -> Iterator[str]:
    """One queue: columns of what runs, by kind, and what a pointer shows of each."""
    yield _name(name, top)
    shapes: dict[str, list[str]] = {}
    hovers = []
    for left, right, members in _columns(pieces, axis):
        parts: dict[str, float] = {}
        for one in members:
            parts[one.sort] = parts.get(one.sort, 0.0) + one.end - one.begin
        whole, floor = sum(parts.values()) or 1.0, top + _ROW
        for sort, seconds in parts.items():
            ceiling = floor - _ROW * seconds / whole
            shapes.setdefault(sort, []).append(f"M{left:.1f} {floor:.1f}V{ceiling:.1f}H{right:.1f}V{floor:.1f}Z")
            floor = ceiling
        hovers.append(
            f'<rect class="hover" x="{left:.1f}" y="{top:.0f}" width="{right - left:.1f}" height="{_ROW}">'
            f"<title>{escape(_told(members, parts))}</title></rect>"
        )
    yield from (f'<path fill="{colour(sort)}" d="{"".join(drawn)}"/>' for sort, drawn in shapes.items())
    yield from hovers


def _columns(pieces: Sequence[_Piece], axis: _Axis) -> Iterator[tuple[float, float, list[_Piece]]]:
    """Left end, right end and what is between: neighbours that are too narrow to be seen are taken together."""
    members: list[_Piece] = []
    left = right = 0.0
    for one in pieces:
        begin, end = axis.x(one.begin), axis.x(one.end)
        if members and (right - left >= _NARROW or end - begin >= _NARROW or begin - right > _NARROW / 2):
            yield left, max(right, left + _NARROW / 4), members
            members = []
        if not members:
            left = begin
        members.append(one)
        right = end
    if members:
        yield left, max(right, left + _NARROW / 4), members


def _told(members: Sequence[_Piece], parts: dict[str, float]) -> str:
    """What a pointer shows of a column."""
    first, last = members[0], members[-1]
    names = list(dict.fromkeys(one.words for one in members))
    head = (
        names[0] if len(names) == 1 else f"{len(members)} kernels" if len(parts) > 1 else f"{len(members)} x {names[0]}"
    )
    busy = sum(parts.values())
    kinds = ", ".join(f"{sort} {seconds / busy:.0%}" for sort, seconds in parts.items()) if busy else ""
    modules = list(dict.fromkeys(one.module for one in (first, last) if one.module))
    lines = [head, kinds if kinds and names != [first.sort] else "", _span(first.begin, last.end), " to ".join(modules)]
    return "\n".join(line for line in lines if line)


def _span(begin: float, end: float) -> str:
    return f"{_long(end - begin)} from {begin * 1e3:,.2f} ms on"


def _long(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:,.2f} ms"


def _name(name: str, top: float) -> str:
    return f'<text class="soft" text-anchor="end" x="{_LEFT - 8}" y="{top + _ROW / 2 + 4:.0f}">{escape(name)}</text>'


def _memory(simulation: Simulation, time: Timeline, axis: _Axis, top: float) -> Iterator[str]:
    """Bytes of the GPU's tensors as the host allocates them: the most of each px."""
    base = top + _MEMORY
    columns: dict[int, int] = {}
    moments = [*(moment for moment, _ in time.memory[1:]), time.seconds]
    for (moment, size), until in zip(time.memory, moments, strict=True):
        for place in range(int(axis.x(moment)), int(axis.x(until)) + 1):
            columns[place] = max(columns.get(place, 0), size)
    most = max(columns.values()) * 1.08
    for value, words in ticks(most):
        y = base - value / most * _MEMORY
        yield f'<path class="grid" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>'
        yield f'<text class="soft" text-anchor="end" x="{_LEFT - 8}" y="{y + 4:.1f}">{words}</text>'
    line = "".join(f"L{place} {base - size / most * _MEMORY:.1f}" for place, size in sorted(columns.items()))
    first, last = min(columns), max(columns)
    peak = max(size for _, size in time.memory)
    yield (
        f'<path fill="#4e79a7" fill-opacity=".35" stroke="#4e79a7" d="M{first} {base:.0f}{line}L{last} {base:.0f}Z">'
        f"<title>tensors on the GPU: at most {gib(peak)} GiB in step {simulation.run.steps}</title></path>"
        f'<text class="soft" x="{_LEFT}" y="{top - 6:.0f}">tensors on the GPU, as the host allocates them: at most '
        f"{gib(peak)} GiB</text>"
    )


def _legend(rows: Iterable[tuple[str, list[_Piece]]], top: float) -> tuple[str, float]:
    """The colours in use."""
    sorts = dict.fromkeys(one.sort for _, pieces in rows for one in pieces if one.sort != KERNELS)
    names = dict.fromkeys(sort if "," not in sort else sort.partition(",")[0] for sort in sorts)
    x, y, body = float(_LEFT), top + 10, []
    for name in names:
        width = 26 + _LETTER * 1.1 * len(name)
        if x + width > _WIDTH - _RIGHT:
            x, y = float(_LEFT), y + 20
        body.append(
            f'<rect x="{x:.0f}" y="{y - 10:.0f}" width="12" height="12" rx="2" fill="{colour(name)}"/>'
            f'<text class="soft" x="{x + 17:.0f}" y="{y:.0f}">{escape(name)}</text>'
        )
        x += width
    return "".join(body), y - top + 14
