"""What of the golden scenarios is trained on real ranks beside the matrix: what training can tell from all of it.

Of the scenarios for the release line that is proven: other optimizers and schedules, `torch_autocast`, hpZ, AutoTP with
stage 3, and so on. As `golden.trained` has it: in a scenario's own precision and in fp32, on two ranks and on four.

LoRA and QLoRA are trained as adapters, with the scenario's own targets and rank, as far as a tiny model has it, and the
activation checkpointing of its program: one case for each structure with each kind of adapters. A scenario whose
program makes the optimizer is trained with that one.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from typing import Any

from dsgen.asking.proofs import of_rendered
from dsgen.deepspeed import surface
from dsgen.jobs import scenarios
from dsgen.jobs.assembly import assemble
from dsgen.jobs.job import Job
from dsgen.proving import expectations
from dsgen.proving.adaptation import tensor_parallel_degree
from dsgen.proving.proven_models import ProvenModel
from dsgen.proving.sizeless import sibling
from golden import scenes, trained
from golden.structures import structure

__all__ = ["LINE", "NEEDS_GPU", "adapted", "alone", "cases", "configs", "form", "jobs", "proven_model"]

LINE = "0.19"  # the release line that the extra dsgen[proof] installs
# Structures that no CPU can train: scenario -> the operator DeepSpeed has for GPUs only.
NEEDS_GPU = {"optimizer-lion": "FusedLion"}
# The adapters of a tiny model learn in ten steps, few with larger ones.
ADAPTERS_RATE, FEW_ADAPTERS_RATE, ALL = 1e-2, 3e-2, "all-linear"
GATHERED = 3  # the stage that gathers each adapter by itself, ten times as slowly as a CPU multiplies: one micro-batch
PROGRAM = "AdamW"  # the optimizer that a program brings whose config names none: torch's
NUMBERS = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")


@functools.cache
def configs() -> dict[str, dict[str, Any]]:
    """The committed configs made for the release line that is proven, by scenario."""
    told = {}
    for name in scenes.names():
        wanted = scenarios.read(str(scenes.SCENARIOS / f"{name}.yaml")).deepspeed
        if surface.load(wanted).version.startswith(f"{LINE}."):
            told[name] = json.loads((scenes.CONFIGS / f"{name}.json").read_text("utf-8"))
    return told


@functools.cache
def jobs() -> dict[str, Job]:
    """The job of each of them."""
    read = {name: scenarios.read(str(scenes.SCENARIOS / f"{name}.yaml")) for name in configs()}
    return {name: assemble(scenarios.layers(said), said.deepspeed) for name, said in read.items()}


def adapted() -> tuple[str, ...]:
    """The scenarios that train adapters."""
    return tuple(name for name, job in jobs().items() if job.training.method != "full")


@functools.cache
def proven_model(name: str) -> ProvenModel:
    """What `dsgen prove` trains of a scenario: its model, adapters, optimizer and activation checkpointing."""
    return of_rendered(scenes.scene(name).config).trained


def cases(matrix: Sequence[trained.Case]) -> tuple[trained.Case, ...]:
    """Each scenario that training can tell from those before it and from the matrix.

    Args:
        matrix: What is trained of the matrix, whose structures are not trained again.
    """
    seen = {form(case) for case in matrix}
    made: list[trained.Case] = []
    for name, config in configs().items():
        if name not in NEEDS_GPU:
            new = [case for case in alone(name, config) if form(case) not in seen]
            seen |= {form(case) for case in new}
            made += new
    return (*made, *(trained.on_more_ranks(case) for case in made if case.ranks < trained.MORE_RANKS))


def form(case: trained.Case) -> Any:
    """What training can tell from another's; adapters by the family that has them too, for each has its own modules."""
    config = {key: value for key, value in trained.told_apart(case.config).items() if key not in NUMBERS}
    program = case.model["model_type"], json.dumps(case.adapters, sort_keys=True), case.checkpointing
    return structure(config), case.ranks, case.optimizer, program if case.adapters else ()


def alone(name: str, config: dict[str, Any]) -> Iterator[trained.Case]:
    """In its own precision and in fp32."""
    job = jobs()[name]
    subject = proven_model(name) if name in adapted() else ProvenModel()
    kept = trained.told_apart(config)
    own = trained.precision_of(kept)
    wide = "nvme" in (expectations.optimizer_place(kept), expectations.parameter_place(kept))
    only_fp32 = wide and "leaf_module" in kept["zero_optimization"]
    for precision in ("fp32",) if only_fp32 else dict.fromkeys((own, "fp32")):
        used = trained.shrunk(kept, precision, wide=wide, rate=_rate(subject))
        if subject.adapters and expectations.stage(kept) == GATHERED:
            used |= {"gradient_accumulation_steps": 1, "train_batch_size": used["train_batch_size"] // 2}
        yield trained.Case(
            name=f"{name}, {'bf16' if trained.AUTOCAST in kept else precision}",
            config=used,
            model=sibling(job.model),
            ranks=trained.SPLIT_RANKS if tensor_parallel_degree(kept) > 1 else trained.RANKS,
            wide=wide,
            stands_for=int(precision == own),
            resumes=expectations.optimizer_place(kept) != "nvme",
            adapters=subject.adapters.to_engine() if subject.adapters else None,
            checkpointing=subject.checkpointing,
            optimizer=_brought(job.training.optimizer, config),
        )


def _rate(subject: ProvenModel) -> float | None:
    """Of learning; None for that of the optimizer."""
    if subject.adapters is None:
        return None
    return ADAPTERS_RATE if ALL in subject.adapters.targets else FEW_ADAPTERS_RATE


def _brought(asked: str, config: dict[str, Any]) -> str:
    """The optimizer that the program makes; "" for that of the config."""
    return "" if "optimizer" in config else asked if asked.endswith("8bit") else PROGRAM
