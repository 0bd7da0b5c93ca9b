"""A simulation's memory over the run as an SVG: stacked areas by kind, phases below, the limit above; no script."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from html import escape

import attrs

from dsgen.memory import Place
from dsgen.report.simulation import headlines
from dsgen.shapes.units import gib
from dsgen.simulating import Sample, Simulation

__all__ = ["COLOURS", "STYLE", "drawing", "svg", "ticks"]

# Kind -> colour, from the ground up: what stays, what comes and goes. Readable on white and on black.
COLOURS = {
    "weights": "#4e79a7",
    "fp32 master weights": "#2a9d8f",
    "optimizer states": "#59a14f",
    "gradients": "#e15759",
    "communication buckets": "#f28e2b",
    "offload buffers": "#b07aa1",
    "gathered parameters": "#76b7f2",
    "activations": "#d37295",
    "logits and loss": "#edc948",
    "kept logits": "#bab0ac",
    "inputs": "#9c755f",
    "temporaries": "#a0a7ad",
    "other": "#6b7280",
}
_OTHER = "#6b7280"  # of a kind that is not in the list
STYLE = """
.dsgen-memory{--ink:#1f2430;--soft:#5f6675;--line:#d5d9e0;--ground:#ffffff;--limit:#b3261e;--band:#f3f5f8}
@media (prefers-color-scheme:dark){.dsgen-memory{--ink:#e8eaf0;--soft:#a2a9b8;--line:#3a4150;--ground:#14171d;
--limit:#ff8a80;--band:#1c212a}}
.dsgen-memory text{fill:var(--ink);font:12px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
.dsgen-memory .soft{fill:var(--soft);font-size:11px}
.dsgen-memory .head{font-size:15px;font-weight:600}
.dsgen-memory .label{font-weight:600}
.dsgen-memory .grid{stroke:var(--line);stroke-width:1;fill:none}
.dsgen-memory .step{stroke:var(--soft);stroke-width:1;fill:none;stroke-dasharray:3 3}
.dsgen-memory .limit{stroke:var(--limit);stroke-width:1.5;stroke-dasharray:7 4;fill:none}
.dsgen-memory .over{fill:var(--limit)}
.dsgen-memory .band{fill:var(--band)}
.dsgen-memory .ground{fill:var(--ground)}
.dsgen-memory .hover{fill:transparent}
.dsgen-memory .hover:hover{fill:var(--ink);fill-opacity:.08}
"""

_WIDTH, _LEFT, _RIGHT = 960, 64, 24  # px: the drawing, the room for the axis, and beside it
_PLOT = _WIDTH - _LEFT - _RIGHT
_HEIGHTS = {"gpu": 280, "host": 150}  # px of a panel's plot
_BELOW = 54  # px below a plot: phases, steps, a gap
_LETTER = 6.3  # px of a letter at 11 px, about
_ROW = 20  # px of a line of the legend
_COLUMNS = 4  # of the legend
_NEAR = 3.0  # a limit up to this many times the peak is drawn in scale
_SHORT = {"forward": "fwd", "backward": "bwd", "step": "step", "load": "load", "init": "init", "evaluate": "eval",
          "resume": "res"}  # fmt: skip
_TICKS = (1, 2, 2.5, 5, 10)  # times a power of ten


@attrs.frozen
class _Span:
    """A phase on the x axis: its place in the estimate's phases, and its two ends in px."""

    phase: int
    begin: float
    end: float


def svg(simulation: Simulation) -> str:
    """The drawing as a file of its own, with a final newline."""
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + drawing(simulation, alone=True) + "\n"


def drawing(simulation: Simulation, alone: bool = False) -> str:
    """The drawing as one element.

    Args:
        simulation: The simulation.
        alone: Bring style and heading along, for a file without a page around it.
    """
    places = {"gpu": simulation.estimate.gpu, "host": simulation.estimate.host}
    kinds = [
        kind
        for kind in _order(simulation)
        if any(kind in one.parts for all_ in simulation.timeline.values() for one in all_)
    ]
    title, *rest = headlines(simulation)
    top, body = 58.0 if alone else 12.0, []
    if alone:
        body += [
            f'<text class="head" x="{_LEFT}" y="24">{escape(_cut(title, 100))}</text>',
            f'<text class="soft" x="{_LEFT}" y="43">{escape(_cut(" ".join(rest), 140))}</text>',
        ]
    legend, height = _legend(kinds, top)
    body += legend
    top += height + 26
    for name, label in (("gpu", "one GPU"), ("host", f"one node's RAM, {simulation.ranks_per_node} ranks")):
        body += _panel(simulation, name, label, places[name], kinds, top)
        top += _HEIGHTS[name] + _BELOW + 26
    body.append(f'<text class="soft" x="{_LEFT}" y="{top - 16:.0f}">{escape(_cut(_footnote(simulation), 145))}</text>')
    style = f"<style>{STYLE}</style>" if alone else ""
    description = (
        f"Bytes by kind over {simulation.run.steps} steps, stacked. GPU: peak {gib(places['gpu'].peak_bytes)} GiB in "
        f"{places['gpu'].phase}. Host: peak {gib(places['host'].peak_bytes)} GiB of a node in {places['host'].phase}."
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="dsgen-memory" role="img" viewBox="0 0 {_WIDTH} {top:.0f}" '
        f'width="100%" style="max-width:{_WIDTH * 1.4:.0f}px" aria-labelledby="dsgen-title dsgen-desc">'
        f'<title id="dsgen-title">{escape(title)}</title><desc id="dsgen-desc">{escape(description)}</desc>{style}'
        f'<rect class="ground" width="{_WIDTH}" height="{top:.0f}"/>{"".join(body)}</svg>'
    )


def _footnote(simulation: Simulation) -> str:
    release = simulation.versions.get("deepspeed", "").partition("+")[0]
    return f"x: the run in order of allocations, not seconds. DeepSpeed {release} on a virtual GPU; no GPU was used."


def _order(simulation: Simulation) -> list[str]:
    """Every kind from the ground up; kinds that are not known come last."""
    named = {kind for samples in simulation.timeline.values() for one in samples for kind in one.parts}
    return [*COLOURS, *sorted(named - set(COLOURS))]


def _legend(kinds: Sequence[str], top: float) -> tuple[list[str], float]:
    cell = _PLOT / _COLUMNS
    rows = []
    for index, kind in enumerate(kinds):
        x, y = _LEFT + index % _COLUMNS * cell, top + index // _COLUMNS * _ROW
        rows.append(
            f'<rect x="{x:.0f}" y="{y:.0f}" width="12" height="12" rx="2" fill="{COLOURS.get(kind, _OTHER)}"/>'
            f'<text x="{x + 18:.0f}" y="{y + 10:.0f}">{escape(kind)}</text>'
        )
    return rows, -(-len(kinds) // _COLUMNS) * _ROW


def _panel(
    simulation: Simulation, name: str, label: str, place: Place, kinds: Sequence[str], top: float
) -> Iterator[str]:
    """One place: title, grid, areas, limit, phases and what a pointer shows."""
    samples, height = simulation.timeline[name], _HEIGHTS[name]
    limit = place.limit_bytes if simulation.limits else 0
    drawn = 0 < limit <= _NEAR * max(place.peak_bytes, 1)
    most = max(place.peak_bytes, limit if drawn else 0, 1) * 1.06
    base = top + height
    yield f'<text class="label" x="{_LEFT}" y="{top - 9:.0f}">{escape(label)}</text>'
    said = f"peak {gib(place.peak_bytes)} GiB in {place.phase}"
    if limit:
        said += f"; limit {gib(limit)} GiB{'' if drawn else ', far above'}: {place.verdict.value}"
    yield f'<text class="soft" text-anchor="end" x="{_WIDTH - _RIGHT}" y="{top - 9:.0f}">{escape(said)}</text>'
    spans = list(_spans(samples))
    for index, span in enumerate(spans):
        if index % 2 == 0:
            yield f'<rect class="band" {_box(span, top, height)}/>'
    for value, words in ticks(most):
        y = base - value / most * height
        yield f'<path class="grid" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>'
        yield f'<text class="soft" text-anchor="end" x="{_LEFT - 8}" y="{y + 4:.1f}">{words}</text>'
    yield from _areas(samples, kinds, most, base, height)
    if drawn:
        y = base - limit / most * height
        yield f'<path class="limit" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>'
        right = _WIDTH - _RIGHT - 6
        yield f'<text class="soft over" text-anchor="end" x="{right}" y="{y + 14:.1f}">limit {gib(limit)} GiB</text>'
    yield from _phases(simulation, spans, name, top, base)


def _spans(samples: Sequence[Sample]) -> Iterator[_Span]:
    """The stretch of every phase: samples are evenly spread."""
    each, begin = _PLOT / max(len(samples), 1), 0
    for phase, group in itertools.groupby(samples, key=lambda one: one.phase):
        count = sum(1 for _ in group)
        yield _Span(phase, _LEFT + begin * each, _LEFT + (begin + count) * each)
        begin += count


def _box(span: _Span, top: float, height: float) -> str:
    return f'x="{span.begin:.1f}" y="{top:.0f}" width="{span.end - span.begin:.1f}" height="{height:.0f}"'


def ticks(most: float) -> Iterator[tuple[float, str]]:
    """Four or five round numbers up to the top, in GiB."""
    whole = most / 2**30
    power = 10.0 ** (len(str(int(whole))) - 2 if whole >= 1 else -2)
    while not any(whole / (power * factor) <= 5 for factor in _TICKS):
        power *= 10
    step = next(power * factor for factor in _TICKS if whole / (power * factor) <= 5)
    for index in range(int(whole / step) + 1):
        yield index * step * 2**30, f"{index * step:g}" + (" GiB" if index == 0 else "")


def _areas(samples: Sequence[Sample], kinds: Sequence[str], most: float, base: float, height: float) -> Iterator[str]:
    """One stepped area for each kind on top of those before it."""
    each = _PLOT / max(len(samples), 1)
    floor = [0] * len(samples)
    for kind in kinds:
        ceiling = [low + one.parts.get(kind, 0) for low, one in zip(floor, samples, strict=True)]
        if ceiling == floor:
            continue
        path = "".join(_stretches(floor, ceiling, each, most, base, height))
        largest = max(one.parts.get(kind, 0) for one in samples)
        yield (
            f'<path fill="{COLOURS.get(kind, _OTHER)}" d="{path}">'
            f"<title>{escape(kind)}: at most {gib(largest)} GiB</title></path>"
        )
        floor = ceiling


def _stretches(
    floor: Sequence[int], ceiling: Sequence[int], each: float, most: float, base: float, height: float
) -> Iterator[str]:
    """Rectangles of equal neighbours: floor and ceiling of each."""
    runs = itertools.groupby(range(len(floor)), key=lambda index: (floor[index], ceiling[index]))
    for (low, high), group in runs:
        indexes = list(group)
        if high > low:
            left, right = _LEFT + indexes[0] * each, _LEFT + (indexes[-1] + 1) * each
            top, bottom = base - high / most * height, base - low / most * height
            yield f"M{left:.1f} {bottom:.1f}V{top:.1f}H{right:.1f}V{bottom:.1f}Z"


def _phases(simulation: Simulation, spans: Sequence[_Span], name: str, top: float, base: float) -> Iterator[str]:
    """Names of the phases where there is room, the steps below them, and the numbers under the pointer."""
    phases = simulation.estimate.phases
    last = max((span.phase for span in spans), default=-1)
    labels = _labels((phases[min(span.phase, len(phases) - 1)].phase, span.end - span.begin) for span in spans)
    for span in spans:
        phase = phases[min(span.phase, len(phases) - 1)]
        width, middle = span.end - span.begin, (span.begin + span.end) / 2
        label = labels[phase.phase]
        if len(label) * _LETTER < width - 2:
            yield f'<text class="soft" text-anchor="middle" x="{middle:.1f}" y="{base + 15:.0f}">{label}</text>'
        parts = phase.gpu if name == "gpu" else phase.host
        top_parts = sorted(parts.items(), key=lambda item: -item[1])
        told = "\n".join(f"{kind}: {gib(size)} GiB" for kind, size in top_parts if size)
        where = f"step {phase.step}, " if phase.step else ""
        batch = f" {phase.micro_batch}" if phase.micro_batch else ""
        yield (
            f'<rect class="hover" {_box(span, top, base - top + 20)}>'
            f"<title>{escape(f'{where}{phase.phase}{batch}: peak {gib(sum(parts.values()))} GiB')}\n{escape(told)}"
            "</title></rect>"
        )
        if span.phase != last:
            yield f'<path class="grid" d="M{span.end:.1f} {base:.0f}v6"/>'
    for step, group in itertools.groupby(spans, key=lambda span: phases[min(span.phase, len(phases) - 1)].step):
        held = list(group)
        begin, end = held[0].begin, held[-1].end
        words = f"step {step}" if step else "start"
        if len(words) * _LETTER < end - begin:
            yield f'<text x="{(begin + end) / 2:.1f}" y="{base + 34:.0f}" text-anchor="middle">{words}</text>'
        if step:
            yield f'<path class="step" d="M{begin:.1f} {top:.0f}V{base:.0f}m0 20v18"/>'


def _labels(widths: Iterable[tuple[str, float]]) -> dict[str, str]:
    """What to call each phase everywhere: its name, or where that finds no room once, a shorter one."""
    narrowest: dict[str, float] = {}
    for name, width in widths:
        narrowest[name] = min(width, narrowest.get(name, width))
    return {
        name: name if len(name) * _LETTER < width - 2 else _SHORT.get(name, name) for name, width in narrowest.items()
    }


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
