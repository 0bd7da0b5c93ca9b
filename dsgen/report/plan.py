"""A plan as a table: the chosen strategy, its rivals, the rejections, and bars of where the memory goes."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from dsgen.asking.plan_questions.offers import offers as offered
from dsgen.jobs.job import Job
from dsgen.memory import Place
from dsgen.planning.candidates import Candidate
from dsgen.planning.planner import Plan, compared
from dsgen.report import costs, needs, offers, schedules
from dsgen.report.bars import bar, folded, machine_words, network_words, place_line, rounded, whole_node
from dsgen.report.headroom import between_steps, plan_data, plan_lines
from dsgen.shapes.units import gib
from dsgen.strategies.strategies import Rejection, describe

__all__ = ["candidate_data", "data", "job_data", "job_line", "layout_data", "text"]

MOST_REJECTIONS = 8  # shown without --all; the nearest misses first
NARROWEST = 60  # columns; a narrower terminal wraps the lines itself
NUMBERS_WIDTH = 33  # columns of the four numbers behind a strategy
NOTE_WIDTH = 30  # least room in which a reason is readable beside its row; else it goes below


def text(plan: Plan, every: bool = False, width: int = 80, target: str | None = None) -> str:
    """The plan for a person, with a final newline.

    Args:
        plan: The plan.
        every: Show every rejection, those of pins included.
        width: Columns of the terminal.
        target: The program that trains, where it is known.
    """
    job = plan.job
    width = max(width, NARROWEST)
    shown = _shown(plan, every)
    rejections, groups = _apart(shown)
    rows = [
        (plan.chosen, f"{_doubt(plan.chosen)}chosen: {plan.reason}"),
        *((rival, f"{_doubt(rival)}{_compared(rival, plan)}") for rival in plan.runners_up),
    ]
    names = [str(item.strategy) for item, _ in rows] + [_name(rejection, plan) for rejection in rejections]
    column = min(max(map(len, names)), width - NUMBERS_WIDTH - 4)
    head = f"{job_line(job)}, {plan.chosen.strategy.global_batch} sequences a step"
    lines = [
        *textwrap.wrap(head, width, subsequent_indent="  ", break_on_hyphens=False),
        *([whole_node(job)] if whole_node(job) else []),
        "",
        f"   {'strategy':<{column}} {'GPU GiB':>7} {'host GiB':>8} {'tok/s/GPU':>9} {'comm':>5}",
    ]
    for place, (item, note) in enumerate(rows, 1):
        lines += _row(f"{place:>2}", str(item.strategy), _numbers(item), note, column, width)
    for rejection in rejections:
        lines += _row(" -", _name(rejection, plan), "", rejection.why, column, width)
    for why, members in groups.items():
        lines += _group(why, members, plan, width)
    hidden = len(plan.rejections) - len(shown)
    if hidden:
        lines.append(f"   {hidden} more rejected (--all shows them)")
    lines += ["", *_memory(plan, width, target), costs.speed_line(plan.chosen)]
    lines += [*costs.part_lines(plan.chosen), *costs.nearest_lines(job, width)]
    lines += [*costs.padding_lines(plan.chosen, width), *costs.launcher_lines(plan.chosen, width)]
    if changes := offered(plan):
        lines.append("")
        for line in offers.lines(changes):
            lines += textwrap.wrap(line, width, subsequent_indent="  ", break_on_hyphens=False)
    if plan.job.hardware.calibrated:
        from dsgen.report import calibrated  # most machines were not measured

        lines += ["", *calibrated.plan_lines(plan)]
    if rate := schedules.sentence(plan):
        lines += ["", *textwrap.wrap(rate, width, subsequent_indent="  ", break_on_hyphens=False)]
    lines += ["", *textwrap.wrap(needs.sentence(plan), width, subsequent_indent="  ", break_on_hyphens=False)]
    if plan.job.pins:
        lines += ["", *(f"pinned: {pin}" for pin in dict.fromkeys(str(pin) for pin in job.pins))]
    return "\n".join(lines) + "\n"


def _doubt(item: Candidate) -> str:
    """Words before the note of a row that does not surely fit: it is there because nothing does."""
    return "" if item.sure else "may not fit; "


def _row(mark: str, name: str, numbers: str, note: str, column: int, width: int) -> list[str]:
    """One row: the strategy, its numbers, and the note beside them or below."""
    if len(name) > column:
        cut = name.replace(" mb ", " mb_").rfind(" ", 0, column + 1)  # a micro-batch keeps its number
        head, tail = name[:cut], name[cut + 1 :]
        lines = [f"{mark} {head:<{column}} {numbers}".rstrip(), f"     {tail}"]
        room = 0
    else:
        lines = [f"{mark} {name:<{column}} {numbers}".rstrip()]
        room = width - (column + NUMBERS_WIDTH + 5 if numbers else max(len(lines[0]), column + 3) + 2)
    if room >= min(NOTE_WIDTH, len(note)) and room >= max(map(len, note.split())):  # a path stays whole
        first, *rest = textwrap.wrap(note, room, break_on_hyphens=False)
        lead = " " * (width - room)
        return [f"{lines[0]:<{width - room}}{first}", *(lead + line for line in rest)]
    return [*lines, *_below(note, width)]


def _below(words: str, width: int) -> list[str]:
    """Words under a row; a path that is longer than a line stays whole."""
    return textwrap.wrap(words, width - 5, initial_indent="     ", subsequent_indent="     ",
                         break_long_words=False, break_on_hyphens=False)  # fmt: skip


def _apart(rejections: Sequence[Rejection]) -> tuple[list[Rejection], dict[str, list[Rejection]]]:
    """Those that have a row of their own, and by its words those that share a reason, which has no number."""
    shared: dict[str, list[Rejection]] = {}
    for item in rejections:
        if not item.missing_bytes:
            shared.setdefault(item.why, []).append(item)
    groups = {why: members for why, members in shared.items() if len(members) > 1}
    return [item for item in rejections if item.missing_bytes or item.why not in groups], groups


def _name(item: Rejection, plan: Plan) -> str:
    """A rejected strategy; with its dtype where that is not the plan's."""
    name = describe(item.layout)
    return name if item.layout.precision == plan.chosen.strategy.precision else f"{name}, {item.layout.precision}"


def _group(why: str, members: Sequence[Rejection], plan: Plan, width: int) -> list[str]:
    """A reason, and below it what it is true of; all of another dtype are named by that."""
    own = plan.chosen.strategy.precision
    whole: list[str] = []
    for precision in dict.fromkeys(item.layout.precision for item in members):
        count = sum(item.layout.precision == precision for item in members)
        if precision != own and count == sum(item.layout.precision == precision for item in plan.rejections):
            whole.append(precision)
    names = [_name(item, plan) for item in members if item.layout.precision not in whole]
    names += [f"everything in {precision}" for precision in whole]
    lead = textwrap.wrap(why, width, initial_indent=" - ", subsequent_indent="   ",
                         break_long_words=False, break_on_hyphens=False)  # fmt: skip
    return [*lead, *_below("; ".join(names), width)]


def _numbers(item: Candidate) -> str:
    memory = item.memory
    return (
        f"{gib(memory.gpu.needed_bytes):>7} {gib(memory.host.needed_bytes):>8} {rounded(item.speed):>9} "
        f"{item.cost.communication_share:>5.0%}"
    )


def data(plan: Plan, target: str | None = None) -> dict[str, Any]:
    """The plan as plain JSON types; bytes and seconds throughout.

    Args:
        plan: The plan.
        target: The program that trains, where it is known.
    """
    job, chosen = plan.job, candidate_data(plan.chosen)
    chosen["memory"] |= plan_data(plan.chosen.memory, between_steps(plan, target))
    return {
        "job": job_data(job),
        "reason": plan.reason,
        "chosen": chosen,
        "runners_up": [candidate_data(item) for item in plan.runners_up],
        "rejections": [
            {
                "strategy": describe(item.layout),
                **layout_data(item.layout),
                "why": item.why,
                "missing_bytes": item.missing_bytes,
                "place": item.place or None,
                "uncertain": item.uncertain,
                "pin": str(item.pin) if item.pin else None,
            }
            for item in plan.rejections
        ],
        "program_changes": offers.data(offered(plan)),
        **_calibration(plan),
        "schedule": schedules.data(plan),
        "needs": needs.data(plan),
        "pins": [str(pin) for pin in job.pins],
        "warnings": list(plan.warnings),
    }


def _calibration(plan: Plan) -> dict[str, Any]:
    """What the measurements of the machine changed, where there are some."""
    if not plan.job.hardware.calibrated:
        return {}
    from dsgen.report import calibrated

    return {"calibration": calibrated.data(plan)}


def job_data(job: Job) -> dict[str, Any]:
    """What a job is, as plain JSON types."""
    return {
        "names": dict(job.names),
        "nodes": job.nodes,
        "gpus_per_node": job.gpus_per_node,
        "gpus": job.world,
        "seq_len": job.seq_len,
        **({"target_len": job.target_len} if job.model.encoder_layers else {}),
        **({"mean_len": job.training.mean_len} if job.training.mean_len else {}),
        **{name: True for name in ("packing", "padding_free") if getattr(job.training, name)},
        "deepspeed": job.version,
    }


def job_line(job: Job) -> str:
    """What a job is, in words: model, GPUs, tokens."""
    where = f"{job.nodes} x {job.gpus_per_node}" if job.nodes > 1 else str(job.world)
    over = f" over {network_words(job)}" if job.nodes > 1 else ""
    return f"{job.names.get('model', 'model')} on {where} {machine_words(job)}{over}, {job.tokens}{_unsaid_length(job)}"


def _unsaid_length(job: Job) -> str:
    """That nobody says the length of a sequence: it decides the most of activations and time."""
    return " (a default: --seq-len)" if job.training.seq_len is None else ""


def _compared(rival: Candidate, plan: Plan) -> str:
    """How much slower or faster a rival is, and the parts of its time that make it so."""
    cost = plan.chosen.cost
    why, pace = costs.differences(cost.less_than(rival.cost), cost.seconds), compared(plan, rival)
    return f"{pace}: {why}" if why else pace


def _shown(plan: Plan, every: bool) -> list[Rejection]:
    if every:
        return list(plan.rejections)
    own = [item for item in plan.rejections if item.pin is None]
    short = sorted((item for item in own if item.missing_bytes), key=_nearness)
    return [*short, *(item for item in own if not item.missing_bytes)][:MOST_REJECTIONS]


def _nearness(item: Rejection) -> tuple[bool, int]:
    """How near a rejected strategy is to fitting: first what may fit."""
    return not item.uncertain, item.missing_bytes


def _memory(plan: Plan, width: int, target: str | None) -> list[str]:
    memory = plan.chosen.memory
    card = plan_lines(memory, between_steps(plan, target))
    lines = [
        *folded(f"{place_line('GPU', memory.gpu)}; peak in {memory.gpu.phase}", width),
        *_parts(memory.gpu),
        *(part for line in card for part in _told(line, width)),
        place_line("host", memory.host),
        *_parts(memory.host),
    ]
    if memory.nvme.peak_bytes:
        lines += [place_line("NVMe", memory.nvme), *_parts(memory.nvme)]
    return lines


def _told(line: str, width: int) -> list[str]:
    """Words below the parts of a place."""
    return textwrap.wrap(line, width, initial_indent=" " * 6, subsequent_indent=" " * 8, break_on_hyphens=False)


def _parts(place: Place) -> list[str]:
    largest = [*sorted(place.parts.items(), key=lambda item: -item[1]), *place.overhead.items()]
    return [f"      {name:<22} {gib(size):>6} GiB  {bar(size / place.limit_bytes)}" for name, size in largest if size]


def candidate_data(item: Candidate) -> dict[str, Any]:
    """A strategy with its estimates as plain JSON types: bytes, seconds, their intervals and their parts."""
    chosen = item.strategy
    return {
        "strategy": describe(chosen),
        **layout_data(chosen),
        "micro_batch": chosen.micro_batch,
        "accumulation": chosen.accumulation,
        "global_batch": chosen.global_batch,
        "buffers": chosen.buffers._asdict(),
        "memory": {
            "verdict": item.memory.verdict.value,
            **{
                name: _place(place)
                for name, place in (("gpu", item.memory.gpu), ("host", item.memory.host), ("nvme", item.memory.nvme))
            },
        },
        "cost": costs.data(item),
    }


def layout_data(item: Any) -> dict[str, Any]:
    """What a layout is, as plain JSON types."""
    return {
        name: getattr(item, name)
        for name in ("stage", "offload_optimizer", "offload_param", "tp", "checkpointing", "precision")
    }


def _place(place: Place) -> dict[str, Any]:
    return {
        "peak_bytes": place.peak_bytes,
        "low_bytes": place.low_bytes,
        "high_bytes": place.high_bytes,
        "overhead_bytes": place.overhead_bytes,
        "limit_bytes": place.limit_bytes,
        "phase": place.phase,
        "verdict": place.verdict.value,
        "parts": dict(place.parts),
    }
