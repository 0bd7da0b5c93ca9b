"""What `dsgen memory` says besides numbers by place, as words: text, JSON and the page say the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs

from dsgen.asking.memory_questions import EVALUATED, Change, Footprint
from dsgen.asking.memory_questions.loaders import evaluates_as_the_trainer
from dsgen.jobs.releases import evaluates_in_chunks
from dsgen.memory import MemoryEstimate, Place, Verdict
from dsgen.memory.later import lacking
from dsgen.report import footprints
from dsgen.report.converted import conversion_lines
from dsgen.report.loading_words import loading_lines
from dsgen.shapes.units import gib
from dsgen.strategies.strategies import Strategy

__all__ = ["answers", "warnings"]

_NONE = "none: not even 1 fits"
_GATHERS = 3  # the stage at which rank 0 gathers what is saved


def warnings(footprint: Footprint) -> Iterator[str]:
    """What of that does not fit, how the model comes in, and what an evaluation leaves behind."""
    yield from loading_lines(footprint)
    one, most, training = footprint.evaluation, footprint.most_evaluated, footprint.question.job.training
    if one is not None and one.verdict is not Verdict.FITS:
        said, trains = EVALUATED in footprint.question.said, evaluates_as_the_trainer(footprint.question)
        by = "which is the Trainer's default" if trains else "a number that your program decides"
        which = "" if said else f", {by},"
        takes = f"an evaluation of {one.sequences} sequence{'s' if one.sequences > 1 else ''}{which} takes up to"
        fewer = f"say per_device_eval_batch_size={most}" if trains else f"evaluate at most {most} at a time"
        todo = fewer if most else "not even one sequence surely fits"
        if footprint.question.kept:
            todo = "say eval_accumulation_steps=1, or give the Trainer preprocess_logits_for_metrics"
        yield f"{takes} {gib(one.high_bytes)} of {gib(one.limit_bytes)} GiB: {todo}"
    if one is not None and training.chunked_loss and not evaluates_in_chunks(training):
        if evaluates_in_chunks(attrs.evolve(training, liger=None)):
            since, release = "0.6 does Liger listen to the Trainer, which tells it to skip them", training.liger
        else:
            since = "transformers 5.15 does the Trainer tell Liger to skip them there too"
            release = training.transformers
        yield (
            "an evaluation holds all logits, though training with Liger's loss does not: only since "
            f"{since} (skip_logits), and this is {release}"
        )
    if one is not None and one.left_bytes > 0:
        yield (
            f"an evaluation leaves weights gathered: the next pass of training takes up to {gib(one.left_bytes)} GiB "
            "more, and engine.empty_partition_cache() behind it gives them back"
        )
    for later in footprint.later:
        ram, how = later.host, _READS.get(later.phase.phase)
        if how is not None and ram.verdict is not Verdict.FITS:
            why = how(footprint.question.strategy, footprint.question.job.gpus_per_node)
            yield f"{later.phase.phase} takes up to {gib(ram.high_bytes)} of {gib(ram.limit_bytes)} GiB of RAM: {why}"
    yield from conversion_lines(footprint.conversions, footprint.unconverted, footprint.memory.host.limit_bytes)


def _saved(chosen: Strategy, ranks: int) -> str:
    if chosen.stage == _GATHERS or chosen.tp > 1:
        return "rank 0 gathers the weights there"
    return f"each of a node's {ranks} ranks copies the whole model there, at ZeRO-3 one alone"


def _resumed(chosen: Strategy, ranks: int) -> str:
    return f"each of a node's {ranks} ranks reads its files there"


# Phase -> why it takes so much of a node's RAM.
_READS: Mapping[str, Callable[[Strategy, int], str]] = {"save": _saved, "resume": _resumed}


def answers(footprint: Footprint) -> list[tuple[str, str]]:
    """The counterfactuals: what is asked, and the answer."""
    known, memory = footprint.counterfactuals, footprint.memory
    said = []
    if memory.verdict is not Verdict.FITS:
        ways = [_way(change, memory) for change in known.changes]
        said.append(("smallest change that fits", ways[0] if ways else "none of strategy, length or method"))
        said += [("or", way) for way in ways[1:]]
    model = footprint.question.job.model
    longer = (known.seq_len or 0) > model.max_positions and not model.relative_buckets
    beyond = f" (the model has {model.max_positions:,} positions)" if longer else ""
    bound = " (all its positions)" if known.seq_len_bound else ""
    nodes = f" in {known.nodes} nodes" if known.nodes > 1 else ""
    evaluated = footprint.most_evaluated
    return [
        *said,
        ("largest micro-batch", f"{known.micro_batch:,}" if known.micro_batch else _NONE),
        *([] if evaluated is None else [("largest evaluation", f"{evaluated:,} at a time" if evaluated else _NONE)]),
        ("longest sequence", f"{known.seq_len:,} tokens{beyond}{bound}" if known.seq_len else "none fits"),
        ("fewest GPUs", f"{known.gpus:,}{nodes}" if known.gpus else "no number of them is enough"),
        ("host RAM needed", _ram(footprint)),
    ]


def _ram(footprint: Footprint) -> str:
    known = footprint.counterfactuals
    if not known.host_bytes:
        return "more than there is"
    said = f"{known.host_bytes // 2**30:,} GiB a node"
    if known.host_bytes == known.host_training_bytes or not known.host_training_bytes:
        return said
    most = max(footprint.later, key=lambda one: one.host.high_bytes)
    return f"{said} for {most.noun}, {known.host_training_bytes // 2**30:,} while it trains"


def _way(change: Change, memory: MemoryEstimate) -> str:
    said = " ".join(_options(change.options))
    tight = next((name for name in ("gpu", "host", "nvme") if getattr(memory, name).verdict is not Verdict.FITS), "gpu")
    place: Place = getattr(change.memory, tight)
    name = {"gpu": "GPU", "host": "host", "nvme": "NVMe"}[tight]
    return f"{said} ({'; '.join((change.words, f'{name} {footprints.interval(place)}', *lacking(change.later)))})"


def _options(options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        if isinstance(value, bool):
            yield f"--{name.replace('_', '-')}"
            continue
        for one in value if isinstance(value, list) else [value]:
            yield f"--{name.replace('_', '-')} {one}"
