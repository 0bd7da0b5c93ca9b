"""A plan drawn: memory against speed of all strategies, and the best speed over GPUs, network and length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from dsgen.asking.plan_questions.what_ifs import Case, WhatIf, told
from dsgen.cost import cost
from dsgen.jobs.job import Job
from dsgen.planning.candidates import Candidate, search
from dsgen.planning.planner import Plan
from dsgen.report import charts, costs
from dsgen.report import plan as plan_text
from dsgen.report.bars import rounded
from dsgen.report.charts import CHOSEN, FITS, MAY_FIT, TOO_LARGE, Mark
from dsgen.report.page_parts import PAGE_STYLE
from dsgen.shapes.units import gib
from dsgen.strategies.buffers import choose
from dsgen.strategies.strategies import Rejection, batches, describe, strategy

__all__ = ["html", "marks", "svg", "what_if_html", "what_if_svg"]

_GIB = 2**30
_SPEED = "tokens/s/GPU"
_TITLES = {"gpus": "GPUs", "network": "network between nodes", "seq_len": "tokens of a sequence"}


def svg(plan: Plan) -> str:
    """Memory against speed, as a file of its own."""
    return charts.alone(_scatter(plan))


def html(plan: Plan, curves: Sequence[WhatIf], target: str | None = None) -> str:
    """The plan as a page that loads nothing from elsewhere.

    Args:
        plan: The plan.
        curves: The best plan for other values of a field, each drawn and told in a table.
        target: The program that trains, where it is known.
    """
    words = plan_text.text(plan, width=110, target=target)
    parts = [f"<pre>{escape(words)}</pre>", _wide(_scatter(plan)), _strategies(plan)]
    for curve in curves:
        parts += [_wide(_curve(curve)), _table(curve)]
    return _page(plan_text.job_line(plan.job), parts)


def what_if_svg(answer: WhatIf) -> str:
    """The best speed for each value, as a file of its own."""
    return charts.alone(_curve(answer))


def what_if_html(answer: WhatIf) -> str:
    """The same as a page that loads nothing from elsewhere."""
    first = next(case.plan for case in answer.cases if case.plan is not None)
    title = f"{plan_text.job_line(first.job)}: the best plan for each {_title(answer)}"
    return _page(title, [_wide(_curve(answer)), _table(answer)])


def marks(plan: Plan) -> tuple[Mark, ...]:
    """Every strategy that was weighed: GiB of a GPU, tokens a second and GPU; those that lack memory too."""
    weighed, rivals = search(plan.job), [item.strategy for item in plan.runners_up]
    said = [
        _mark(item, CHOSEN if item.strategy == plan.chosen.strategy else FITS)._replace(
            labelled=item.strategy in (plan.chosen.strategy, *rivals)
        )
        for item in weighed.fitting
    ]
    said += [_mark(item, MAY_FIT) for item in weighed.uncertain]
    for item in weighed.rejections:
        if item.place == "gpu" and (mark := _too_large(plan.job, item)) is not None:
            said.append(mark)
    return tuple(said)


def _mark(item: Candidate, kind: str) -> Mark:
    gpu, (low, high) = item.memory.gpu, costs.speed_interval(item)
    words = {CHOSEN: "chosen", FITS: "fits", MAY_FIT: "may not fit"}[kind]
    said = f"{item.strategy}: {rounded(item.speed)} {_SPEED}, {gib(gpu.needed_bytes)} GiB of a GPU, {words}"
    return Mark(gpu.needed_bytes / _GIB, item.speed, low, high, describe(item.strategy), said, kind)


def _too_large(job: Job, item: Rejection) -> Mark | None:
    """A strategy that lacks memory, at its smallest micro-batch."""
    triples = batches(job, item.layout)
    if isinstance(triples, str):
        return None
    layout = item.layout
    buffers = choose(job, layout.stage, layout.tp, layout.offload_optimizer, layout.offload_param)
    speed = cost(job, strategy(layout, triples[-1], buffers)).tokens_per_second_per_gpu
    needs = (job.hardware.usable_memory_bytes + item.missing_bytes) / _GIB
    return Mark(needs, speed, speed, speed, describe(layout), f"{describe(layout)}: {item.why}", TOO_LARGE)


def _scatter(plan: Plan) -> str:
    limit = plan.chosen.memory.gpu.limit_bytes / _GIB
    title = "memory against speed of every strategy: filled fits, orange may not, grey does not (at the edge: far more)"
    said = f"{limit:.1f} GiB of the card"
    return charts.scatter(title, "GiB of one GPU", _SPEED, marks(plan), limit, said)


def _curve(answer: WhatIf) -> str:
    points = [_point(case) for case in answer.cases]
    names = [told(case.value) for case in answer.cases]
    title = f"the best plan's speed over {_title(answer)}; dashed where another strategy wins"
    return charts.curve(title, _title(answer), _SPEED, points, names)


def _point(case: Case) -> Mark:
    if case.plan is None:
        return Mark(0.0, 0.0, 0.0, 0.0, "", case.refused, TOO_LARGE)
    chosen = case.plan.chosen
    low, high = costs.speed_interval(chosen)
    said = f"{told(case.value)}: {chosen.strategy}, {rounded(chosen.speed)} {_SPEED}"
    return Mark(0.0, chosen.speed, low, high, case.winner, said)


def _title(answer: WhatIf) -> str:
    return _TITLES.get(answer.field, answer.field)


def _strategies(plan: Plan) -> str:
    rows = sorted(marks(plan), key=lambda mark: (mark.kind == TOO_LARGE, mark.kind == MAY_FIT, -mark.y))
    words = {CHOSEN: "chosen", FITS: "fits", MAY_FIT: "may not fit", TOO_LARGE: "does not fit"}
    cells = [(mark.name, rounded(mark.y), _interval(mark), f"{mark.x:.1f}", words[mark.kind]) for mark in rows]
    return _rows(("strategy", _SPEED, "interval", "GiB of a GPU", ""), cells)


def _interval(mark: Mark) -> str:
    return f"{rounded(mark.low)} to {rounded(mark.high)}" if mark.high > mark.low else ""


def _table(answer: WhatIf) -> str:
    cells = []
    for case in answer.cases:
        if case.plan is None:
            cells.append((told(case.value), "", "", "", case.refused))
            continue
        chosen = case.plan.chosen
        low, high = costs.speed_interval(chosen)
        memory = gib(chosen.memory.gpu.needed_bytes)
        cells.append(
            (
                told(case.value),
                rounded(chosen.speed),
                f"{rounded(low)} to {rounded(high)}",
                memory,
                str(chosen.strategy),
            )
        )
    return _rows((_title(answer), _SPEED, "interval", "GiB of a GPU", "strategy"), cells)


def _rows(head: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    top = "".join(f"<th>{escape(name)}</th>" for name in head)
    rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in cells)
    return f'<div class="scroll"><table><tr>{top}</tr>{rows}</table></div>'


def _wide(drawing: str) -> str:
    return f'<div class="scroll">{drawing}</div>'


def _page(title: str, parts: Sequence[str]) -> str:
    style = f"{PAGE_STYLE}pre{{overflow-x:auto;font-size:13px}}{charts.CHART_STYLE}"
    return "\n".join(_lines(title, style, parts)) + "\n"


def _lines(title: str, style: str, parts: Sequence[str]) -> Iterator[str]:
    yield '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width,initial-scale=1">'
    yield f"<title>{escape(title)}</title><style>{style}</style></head>\n<body>"
    yield f"<h1>{escape(title)}</h1>"
    yield from parts
    yield "</body></html>"
