"""The answers of `dsgen memory` as text and JSON: verdict, parts, phases, every stage and offload, what would do."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from dsgen.asking.memory_questions import (
    BY_PROGRAM,
    CHOSEN,
    DEFAULT,
    Alternative,
    Counterfactuals,
    Footprint,
    Question,
)
from dsgen.memory import MemoryEstimate, PhaseMemory, Place, Verdict
from dsgen.memory.later import lacking
from dsgen.report import footprints, memory_words
from dsgen.report.bars import batch_words, card_line, machine_words, room_line
from dsgen.report.converted import conversions_data
from dsgen.report.headroom import card_data, headroom_data, headroom_line, verdict_line
from dsgen.report.loading_words import loading_data
from dsgen.report.observed import observations_data, observed_lines
from dsgen.report.plan import layout_data
from dsgen.shapes.units import gib
from dsgen.strategies.strategies import Strategy, describe

__all__ = [
    "data",
    "headline",
    "marked_line",
    "on_disk",
    "phases",
    "question_data",
    "row_verdict",
    "said_lines",
    "text",
    "wrapped",
]

NARROWEST = 60  # columns; a narrower terminal wraps the lines itself
_FEWEST_CELLS, _MOST_CELLS = 8, 60  # of a stacked bar
_BESIDE = 57  # columns of a row of the table beside its bar
_LABEL = 26  # columns before the answer of a counterfactual
_OVER = ">"  # at the end of a bar that is longer than the GPU
_FREE = "·"
# Letter of a stacked bar -> what it stands for, and words one of which the names of its parts have; the first that fits
_KINDS = {
    "b": ("buffers and all else", ("bucket", "buffer", "gathered", "temporar", "input")),
    "o": ("optimizer", ("optimizer", "master", "moment")),
    "g": ("gradients", ("gradient",)),
    "a": ("activations and loss", ("activation", "logits", "loss", "checkpointed", "recomput")),
    "w": ("weights", ("weight", "parameter", "adapter")),
}
_ORDER = "wgoab"
_NAMES = {"none": "GPU", "cpu": "CPU", "nvme": "NVMe"}
_CHECKPOINTS = ("save", "resume")
# What is told of a place beside which there are others.
_KEPT = ("verdict", "peak_bytes", "needed_bytes", "low_bytes", "high_bytes", "limit_bytes", "overhead_bytes", "parts")
_BETWEEN = "*"  # behind a verdict that holds for training alone


def text(footprint: Footprint, width: int = 80) -> str:
    """The answers for a person, with a final newline.

    Args:
        footprint: The question and its answers.
        width: Columns of the terminal.
    """
    width = max(width, NARROWEST)
    memory = footprint.memory
    lines = [*wrapped(headline(footprint.question), width), *wrapped(verdict_line(footprint), width)]
    lines += [line for said in said_lines(footprint.question) for line in wrapped(said, width)]
    if footprint.question.job.hardware.calibrated:
        lines += _calibrated(footprint.question, width)
    lines += [line for note in footprint.question.notes for line in wrapped(f"note: {note}", width)]
    lines += ["", *footprints.place_lines("GPU", memory.gpu, width)]
    card = card_line(memory.gpu), room_line(memory.gpu), headroom_line(memory, footprint.later)
    for told in (*card, *observed_lines(footprint)):
        lines += textwrap.wrap(told, width, initial_indent=" " * 6, subsequent_indent=" " * 8, break_on_hyphens=False)
    lines += footprints.place_lines("host", memory.host, width)
    if memory.nvme.peak_bytes:
        lines += footprints.place_lines("NVMe", memory.nvme, width)
    if memory.phases:
        beside, disks = footprints.beside(memory), on_disk(footprint)
        lines += ["", *footprints.phase_lines(phases(footprint), beside=beside, disks=disks)]
        lines += [line for told in memory_words.warnings(footprint) for line in wrapped(told, width)]
    lines += ["", *_table(footprint, width), ""]
    for label, told in memory_words.answers(footprint):
        lead = f"{label:>{_LABEL}}  "
        lines += textwrap.wrap(told, width, initial_indent=lead, subsequent_indent=" " * len(lead))
    return "\n".join(lines) + "\n"


def phases(footprint: Footprint) -> tuple[PhaseMemory, ...]:
    """Loading, steps, what comes between them, and what turns a checkpoint into another, in the order of a run."""
    behind = (PhaseMemory(one.name, 0, 0, {}, one.parts) for one in footprint.conversions)
    return (*footprint.memory.phases, *(one.phase for one in footprint.later), *behind)


def on_disk(footprint: Footprint) -> dict[str, int]:
    """Phase -> bytes of the files that it writes, at most while it runs."""
    saved = sum(footprint.written.values())
    return ({"save": saved} if saved else {}) | {one.name: one.disk_bytes for one in footprint.conversions}


def _calibrated(question: Question, width: int) -> list[str]:
    """What the machine was measured by."""
    from dsgen.asking.calibrating import basis  # most machines were not measured

    return wrapped(basis(question.job), width)


def headline(question: Question) -> str:
    """One line: model, GPUs, strategy, the batch's arithmetic, length and dtype."""
    job, chosen = question.job, question.strategy
    gpus = f"{job.nodes} x {job.gpus_per_node}" if job.nodes > 1 else str(job.world)
    return (
        f"{job.names.get('model', 'model')} on {gpus} {machine_words(job)}: {describe(chosen)}, "
        f"micro-batch {chosen.micro_batch} x {batch_words(chosen, job.world)}, {job.tokens}, {chosen.precision}"
    )


def said_lines(question: Question) -> tuple[str, ...]:
    """What was chosen, what is a default, and what each program decides: the lines that say something."""
    program = dict.fromkeys(one.by for one in question.said.values() if one.by.startswith(BY_PROGRAM))
    return tuple(line for word in (CHOSEN, DEFAULT, *program) if (line := _by_line(question, word)))


def _by_line(question: Question, word: str) -> str:
    """What was chosen, is a default, or the program decides: `chosen: stage 2, micro-batch 4`."""
    values = [f"{name} {_value(item.value)}" for name, item in question.said.items() if item.by == word]
    return f"{word}: {', '.join(values)}" if values else ""


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:g}"
    return " ".join(value) if isinstance(value, tuple) else str(value)


def _table(footprint: Footprint, width: int) -> Iterator[str]:
    """Every stage and offload, one row each, with the GPU as a bar of what takes it."""
    question = footprint.question
    cells = max(_FEWEST_CELLS, min(_MOST_CELLS, width - _BESIDE))
    limit = gib(footprint.memory.gpu.limit_bytes)
    yield from wrapped(f"every stage and offload at micro-batch {question.strategy.micro_batch}; all else equal", width)
    scale = f"0{limit + ' GiB':>{cells - 1}}"
    yield f"  stage optim params GPU GiB {scale} {'host':>6} {'NVMe':>6} verdict"
    both = len({item.strategy.checkpointing for item in footprint.alternatives}) > 1
    before: bool | None = None
    for item in footprint.alternatives:
        if both and item.strategy.checkpointing != before:
            before = item.strategy.checkpointing
            yield f"  {'with' if before else 'without'} activation checkpointing"
        yield _row(item, cells)
    legend = ", ".join(f"{letter} {_KINDS[letter][0]}" for letter in _ORDER)
    yield from wrapped(f"  > as asked; {legend}", width)
    yield from wrapped(f"  {marked_line(footprint)}", width)


def _row(item: Alternative, cells: int) -> str:
    chosen, memory = item.strategy, item.memory
    gpu = memory.gpu
    nvme = gib(memory.nvme.peak_bytes) if memory.nvme.peak_bytes else "-"
    return (
        f"{'>' if item.asked else ' '} {chosen.stage:<5} {_NAMES[chosen.offload_optimizer]:<5} "
        f"{_NAMES[chosen.offload_param]:<6} {gib(gpu.needed_bytes):>7} {_stacked(gpu, cells)} "
        f"{gib(memory.host.needed_bytes):>6} {nvme:>6} {row_verdict(item)}"
    )


def row_verdict(item: Alternative) -> str:
    """The verdict of an alternative, marked where it fits only while it trains."""
    mark = f" {_BETWEEN}" if item.later is not Verdict.FITS and item.memory.verdict is not Verdict.DOES_NOT_FIT else ""
    return f"{item.memory.verdict.value}{mark}"


def marked_line(footprint: Footprint) -> str:
    """What the mark behind a verdict means; empty where none has it."""
    if not any(row_verdict(item).endswith(_BETWEEN) for item in footprint.alternatives):
        return ""
    return f"{_BETWEEN} while it trains; an evaluation, a save or a resume does not surely fit"


def _stacked(place: Place, cells: int) -> str:
    """A bar of letters, one for each kind of part; it is full at the limit, and ends in > beyond it."""
    sizes = dict.fromkeys(_ORDER, 0)
    for name, size in (*place.parts.items(), *((name, size) for name, size in place.overhead.items())):
        sizes[_kind(name)] += size
    drawn, total = "", 0
    for letter, size in sizes.items():
        total += size
        drawn += letter * (min(cells + 1, round(cells * total / max(1, place.limit_bytes))) - len(drawn))
    if len(drawn) > cells or total > place.limit_bytes:
        return f"{drawn[: cells - 1]:{letter}<{cells - 1}}{_OVER}"
    return f"{drawn:{_FREE}<{cells}}"


def _kind(name: str) -> str:
    return next((letter for letter, (_, words) in _KINDS.items() if any(word in name for word in words)), "b")


def wrapped(line: str, width: int) -> list[str]:
    """A line of words broken at a width; what follows is indented."""
    return textwrap.wrap(line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def data(footprint: Footprint) -> dict[str, Any]:
    """The answers as plain JSON types; bytes throughout."""
    job = footprint.question.job
    return {
        **footprints.data(footprint.memory, ranks_per_node=job.gpus_per_node),
        "card": card_data(footprint.memory.gpu),
        "question": question_data(footprint.question),
        "alternatives": [
            {
                **_strategy(item.strategy),
                "asked": item.asked,
                "verdict": item.memory.verdict.value,
                "later_verdict": item.later.value,
                **_places(item.memory),
            }
            for item in footprint.alternatives
        ],
        "counterfactuals": _counterfactuals(footprint.counterfactuals),
        "loading": loading_data(footprint),
        "warnings": list(memory_words.warnings(footprint)) if footprint.memory.phases else [],
        "evaluation": _evaluation(footprint),
        "checkpoints": {
            one.phase.phase: {"gpu_parts": dict(one.phase.gpu), "host_parts": dict(one.phase.host)}
            for one in footprint.later
            if one.phase.phase in _CHECKPOINTS
        },
        "saved": {"disk_bytes": sum(footprint.written.values()) or None, "disk_parts": dict(footprint.written)},
        "conversions": conversions_data(footprint.conversions, footprint.memory.host.limit_bytes),
        "unconverted": [{"name": one.name, "reason": one.reason} for one in footprint.unconverted],
        "later": [
            {
                "phase": one.phase.phase,
                "verdict": one.verdict.value,
                **_kept({"gpu": footprints.place_data(one.gpu), "host": footprints.place_data(one.host)}),
            }
            for one in footprint.later
        ],
        "headroom": headroom_data(footprint.memory, footprint.later),
        **observations_data(footprint),
    }


def _evaluation(footprint: Footprint) -> dict[str, Any] | None:
    """A batch of the Trainer's default size, and the largest; null where it is not counted."""
    one = footprint.evaluation
    if one is None:
        return None
    return {
        "sequences": one.sequences,
        "verdict": one.verdict.value,
        "peak_bytes": one.peak_bytes,
        "high_bytes": one.high_bytes,
        "limit_bytes": one.limit_bytes,
        "parts": dict(one.parts),
        "left_bytes": one.left_bytes,
        "most_sequences": footprint.most_evaluated,
    }


def question_data(question: Question) -> dict[str, Any]:
    """What was asked, and who said it, as plain JSON types."""
    job = question.job
    return {
        "names": dict(job.names),
        "config": question.subject.document.name if question.subject is not None else None,
        "nodes": job.nodes,
        "gpus_per_node": job.gpus_per_node,
        "gpus": job.world,
        "seq_len": job.seq_len,
        **({"target_len": job.target_len} if job.model.encoder_layers else {}),
        **({"mean_len": job.training.mean_len} if job.training.mean_len else {}),
        **{name: True for name in ("packing", "padding_free") if getattr(job.training, name)},
        "method": job.training.method,
        "optimizer": job.training.optimizer,
        "attention": job.training.attention,
        "chunked_loss": job.training.chunked_loss,
        "activation_offloading": job.training.activation_offloading,
        "deepspeed": job.version,
        **_strategy(question.strategy),
        "global_batch": question.strategy.global_batch,
        "buffers": question.strategy.buffers._asdict(),
        "said": {
            name: {"value": list(item.value) if isinstance(item.value, tuple) else item.value, "by": item.by}
            for name, item in question.said.items()
        },
        "notes": list(question.notes),
    }


def _strategy(chosen: Strategy) -> dict[str, Any]:
    return {
        "strategy": describe(chosen),
        **layout_data(chosen),
        "micro_batch": chosen.micro_batch,
        "accumulation": chosen.accumulation,
    }


def _places(memory: MemoryEstimate) -> dict[str, Any]:
    whole = footprints.data(memory)
    return _kept({place: whole[place] for place in ("gpu", "host", "nvme")})


def _kept(places: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {place: {name: whole[name] for name in _KEPT} for place, whole in places.items()}


def _counterfactuals(known: Counterfactuals) -> dict[str, Any]:
    return {
        "changes": [
            {
                "options": dict(change.options),
                "words": change.words,
                **_places(change.memory),
                "lacking": list(lacking(change.later)),
            }
            for change in known.changes
        ],
        "micro_batch": known.micro_batch,
        "seq_len": known.seq_len,
        "gpus": known.gpus,
        "nodes": known.nodes or None,
        "host_bytes": known.host_bytes,
        "host_training_bytes": known.host_training_bytes,
    }
