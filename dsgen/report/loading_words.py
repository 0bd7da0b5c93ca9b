"""How a model comes in, as words: what loading takes beside the phases, and what there is to do where it fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dsgen.asking.memory_questions import Footprint
from dsgen.memory import Verdict
from dsgen.shapes.units import gib

__all__ = ["loading_data", "loading_lines"]

_GATHERS = 3  # the stage of zero.Init


def loading_lines(footprint: Footprint) -> Iterator[str]:
    """What loading takes beside the phases, and what there is to do where it is what fails."""
    memory, job, chosen = footprint.memory, footprint.question.job, footprint.question.strategy
    load, init, *_ = memory.phases
    first = footprint.first_to_fail
    second = "too" if first is not None and (first.phase, first.place) == ("load", "host") else "first"
    ranks, mapped = job.gpus_per_node, gib(memory.mapped_bytes)
    if job.training.loading != "auto":
        yield (
            f"load: {mapped} GiB of the checkpoint's files lie in a node's page cache, once for all its ranks; the "
            "kernel takes them back when RAM is short"
        )
    if memory.host.verdict is not Verdict.FITS and memory.host.phase == "load":
        each = gib(load.host_bytes // ranks)
        todo = "Safetensors in the dtype that from_pretrained is asked for are mapped once a node: --loading mapped"
        if chosen.stage == _GATHERS and not job.training.zero_init:
            todo = "Under zero.Init rank 0 alone reads them: --zero-init"
        yield f"load fails first: {ranks} ranks x {each} GiB of weights in the RAM of a node. {todo}"
    if memory.host.verdict is not Verdict.FITS and memory.host.phase == "init":
        each = gib(init.host_bytes // ranks)
        yield f"init fails {second}: {ranks} ranks x {each} GiB in RAM, where this DeepSpeed makes the weights flat"
    whole = init.gpu_bytes + memory.gpu.overhead_bytes
    if chosen.stage == _GATHERS and not job.training.zero_init and whole > memory.gpu.limit_bytes:
        yield (
            f"init fails {second}: without zero.Init each rank moves the whole model to its GPU, {gib(whole)} of "
            f"{gib(memory.gpu.limit_bytes)} GiB: make TrainingArguments or HfDeepSpeedConfig before from_pretrained"
        )


def loading_data(footprint: Footprint) -> dict[str, Any]:
    """The same as plain JSON types; `zero_init` is null below stage 3, which has none."""
    training = footprint.question.job.training
    return {
        "way": training.loading,
        "zero_init": training.zero_init if footprint.question.strategy.stage == _GATHERS else None,
        "page_cache_bytes": footprint.memory.mapped_bytes,
        "notes": list(loading_lines(footprint)),
    }
