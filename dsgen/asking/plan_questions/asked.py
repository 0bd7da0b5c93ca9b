"""What `import dsgen` offers of questions about a plan: a config, named strategies, other values, a deadline."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from dsgen.asking import memory_questions
from dsgen.asking.plan_questions import contests, deadlines, what_ifs
from dsgen.asking.plan_questions.amounts import seconds_of, tokens_of
from dsgen.asking.plan_questions.offers import Offer, offers
from dsgen.asking.plan_questions.speedups import Speedups
from dsgen.asking.plan_questions.speedups import speedups as faster
from dsgen.asking.plan_questions.variations import field_named
from dsgen.jobs import scenarios
from dsgen.jobs.composed import PYTHON, Layers
from dsgen.jobs.job import Job
from dsgen.planning.planner import Plan
from dsgen.rendering import Config
from dsgen.rendering.wanted import Path, Values, Wanted, job, plan
from dsgen.shapes.arguments import names_arguments, path_of, text_of
from dsgen.shapes.errors import mistake

__all__ = ["compare", "fewest_gpus", "program_changes", "speedups", "training_time", "what_if"]


@names_arguments(scenarios.NAMES)
def speedups(wanted: Wanted, config: Values | Path | None = None, deepspeed: str | None = None) -> Speedups:
    """The speed of a config as it is, and each change that makes it at least 2 % faster and surely fits.

    Args:
        wanted, config, deepspeed: As in `memory`; without a config the strategy is what `wanted` says.

    Raises:
        DsgenError: As `memory`.
    """
    return faster(memory_questions.question(job(wanted, deepspeed), config))


@names_arguments(scenarios.NAMES)
def program_changes(wanted: Wanted, deepspeed: str | None = None) -> tuple[Offer, ...]:
    """What the program could do otherwise, where that is worth it, each with the best strategy that it allows.

    What trains the same (a chunked loss, another attention kernel, adapters of the base's type at stage 3) where it is
    10 % faster, or saves an offload or a doubt; adapters and a shorter sequence only where the plan as
    asked offloads, or may not fit.

    Raises:
        DsgenError: As `plan`.
    """
    return offers(plan(wanted, deepspeed))


@names_arguments(scenarios.NAMES)
def compare(wanted: Wanted, *strategies: str, deepspeed: str | None = None) -> contests.Contest:
    """Named strategies of a job side by side, with the planner's own choice: time by parts, memory, verdict.

    Args:
        wanted: At least a hardware and a model.
        strategies: Such as "zero3" or "zero1,tp=4,offload=cpu": zero0 to zero3, tp=N, offload=cpu|nvme|none,
            param=cpu|nvme|none, mb=N, accum=N, checkpointing, no-checkpointing, hpz=N.
        deepspeed: As in `job`.

    Raises:
        DsgenError: A mistake in what was said, or an unknown word, with the nearest.
    """
    names = [text_of(name, "a strategy", "zero1,tp=4") for name in strategies]
    return contests.contest(job(wanted, deepspeed), names)


@names_arguments(scenarios.NAMES)
def what_if(wanted: Values | Path, field: str, values: Sequence[Any], deepspeed: str | None = None) -> what_ifs.WhatIf:
    """The best plan for each value of a field, and where the strategy that wins changes.

    Args:
        wanted: A scenario, as a dict of its fields or as a file; a job is made of it for each value.
        field: A field of a scenario ("network", "seq_len"), or a path ("hardware.host_memory").
        values: Two values or more.
        deepspeed: As in `job`.

    Raises:
        DsgenError: An unknown field, with the nearest; a value that it cannot have; or no value has a plan.
    """
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise mistake(f"values is {values!r}", must="it must be a list", todo=f"Write values=[{values!r}, ...].")
    name = field_named(text_of(field, "field", "network"))
    return what_ifs.what_if(_scenario(wanted, deepspeed), name, values)


@names_arguments(scenarios.NAMES)
def fewest_gpus(
    wanted: Values | Path, tokens: float | str, deadline: str | datetime.timedelta, deepspeed: str | None = None
) -> deadlines.Budget:
    """The fewest GPUs that train so many tokens before a deadline, with GPU-hours, and the price if there is one.

    Args:
        wanted: A scenario, as a dict of its fields or as a file; what it says of GPUs and nodes is left aside.
        tokens: A number, or text such as "300B".
        deadline: Such as "7d", "36h" or a timedelta.
        deepspeed: As in `job`.

    Raises:
        DsgenError: A mistake in what was said, or no number of GPUs is fast enough, with the best that is possible.
    """
    said = _scenario(wanted, deepspeed)
    return deadlines.fewest_gpus(said, tokens_of(tokens), seconds_of(deadline))


@names_arguments(scenarios.NAMES)
def training_time(wanted: Wanted, tokens: float | str, deepspeed: str | None = None) -> deadlines.Fleet:
    """How long the best plan trains on so many tokens, with GPU-hours, and the price if the hardware has one.

    Args:
        wanted: At least a hardware and a model.
        tokens: A number, or text such as "300B".
        deepspeed: As in `job`.

    Raises:
        DsgenError: As `plan`, or no number of tokens.
    """
    return deadlines.training_time(plan(wanted, deepspeed), tokens_of(tokens))


def _scenario(wanted: Values | Path, deepspeed: str | None) -> scenarios.Scenario:
    """A scenario as it is said, from which jobs that differ in a field can be made."""
    if isinstance(wanted, (Config, Layers, Plan, Job)):
        raise mistake(
            f"a {type(wanted).__name__} says no scenario",
            must="a job is made for each value: it must be the fields of a scenario, or the file of one",
            todo='Such as {"hw": "a100-40g", "model": "7b"}.',
        )
    said = scenarios.of(wanted, PYTHON) if isinstance(wanted, Mapping) else scenarios.read(path_of(wanted))
    return said if deepspeed is None else attrs.evolve(said, deepspeed=deepspeed)
