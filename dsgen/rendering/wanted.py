"""What says a job in Python: a Config, a Plan, a Job, profiles joined with `|`, or a dict of a scenario's fields."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from dsgen.deepspeed import surface
from dsgen.jobs import scenarios
from dsgen.jobs.assembly import assemble
from dsgen.jobs.composed import PYTHON, Layers
from dsgen.jobs.job import Job
from dsgen.planning.planner import Plan
from dsgen.planning.planner import plan as plan_job
from dsgen.rendering.configs import Config
from dsgen.shapes.arguments import names_arguments, path_of
from dsgen.shapes.errors import mistake

__all__ = ["Path", "Values", "Wanted", "job", "plan", "scenario"]

Values = Mapping[str, Any]
Path = str | os.PathLike[str]
Wanted = Config | Plan | Job | Layers | Values
"""What says a job; a dict has the fields of a scenario: {"hw": "a100-40g", "model": "7b", "seq_len": 8192}."""


@names_arguments(scenarios.NAMES)
def scenario(said: Path | Values) -> Layers:
    """A scenario: the options of the command line, committed as a file or said as a dict.

    Raises:
        DsgenError: Unreadable, or an unknown field; with file and line.
    """
    parsed = scenarios.of(said, PYTHON) if isinstance(said, Mapping) else scenarios.read(path_of(said))
    return Layers(scenarios.layers(parsed), parsed.deepspeed)


@names_arguments(scenarios.NAMES)
def job(wanted: Wanted, deepspeed: str | None = None) -> Job:
    """Assemble a Job.

    Args:
        wanted: At least a hardware and a model.
        deepspeed: The DeepSpeed release ("0.19"); None is what a scenario says, else the newest known.

    Raises:
        DsgenError: All that is wrong, each with the place where it was written.
    """
    if isinstance(wanted, (Config, Plan, Job)):
        made = wanted.plan.job if isinstance(wanted, Config) else wanted.job if isinstance(wanted, Plan) else wanted
        return _for_release(made, deepspeed)
    if isinstance(wanted, Mapping):
        wanted = scenario(wanted)
    if not isinstance(wanted, Layers):
        raise mistake(
            f"{wanted!r} says no job",
            must='it must be profiles joined with |, or a dict such as {"hw": "a100-40g", "model": "7b"}',
            todo=f"For a scenario file: dsgen.scenario({os.fspath(wanted)!r})."
            if isinstance(wanted, (str, os.PathLike))
            else None,
        )
    return assemble(wanted.layers, deepspeed or wanted.deepspeed)


@names_arguments(scenarios.NAMES)
def plan(wanted: Wanted, deepspeed: str | None = None) -> Plan:
    """Choose a strategy. What else `dsgen plan` answers: speedups, compare, what_if, fewest_gpus, training_time.

    Raises:
        DsgenError: A mistake in what was said, contradicting pins, or nothing that fits.
    """
    made = job(wanted, deepspeed)
    if isinstance(wanted, (Config, Plan)):
        return wanted.plan if isinstance(wanted, Config) else wanted
    return plan_job(made)


def _for_release(made: Job, deepspeed: str | None) -> Job:
    """A job as it is, where no other release than its own is asked for."""
    if deepspeed is not None and surface.load(deepspeed).version != made.version:
        raise mistake(
            f"deepspeed is {deepspeed!r}, and the job was assembled for DeepSpeed {made.version}",
            must="a job is for one release",
            todo="Give the layers that the job was made of, or assemble it with job(..., deepspeed=...).",
            code="contradiction",
        )
    return made
