"""What a person says of a run besides its config, as the facts that the rules ask for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from dsgen.jobs.job import Job
from dsgen.linting.model_loads import ModelLoad
from dsgen.linting.subjects import Facts
from dsgen.shapes.errors import DsgenError
from dsgen.shapes.profiles import Hardware, Model, Network, Training

__all__ = ["facts", "of_job"]


def facts(
    config: object = None,
    *,
    world_size: int | None = None,
    seq_len: int | None = None,
    hardware: Hardware | str | None = None,
    model: Model | str | None = None,
    network: Network | str | None = None,
    accelerator: str | None = None,
    client_optimizer: str | None = None,
    missing: Iterable[str] = (),
    calls: Iterable[str] = (),
    parameters: tuple[str, ...] | None = None,
    training: Training | None = None,
    job_world: int | None = None,
    told: Mapping[str, Any] | None = None,
    launched: bool = False,
    loads: tuple[ModelLoad, ...] = (),
) -> Facts:
    """The facts of a run.

    Args:
        config: The config; what it says of the run itself is not repeated.
        world_size: GPUs in all.
        seq_len: Tokens per sequence.
        hardware, model, network: Profiles, or names, aliases or files of some.
        accelerator: DeepSpeed's name of the device. Hardware that is a CPU implies "cpu".
        client_optimizer: "none", "torch" or "deepspeed".
        missing: Packages that the training machine lacks.
        calls: What else the program calls.
        parameters: Names of the model's parameters; without them those of the model profile.
        training: What is trained and how; all parameters without it.
        job_world: GPUs of the scenario that the config is for.
        told: DeepSpeed's key -> what the program's arguments fill in where the config says "auto".
        launched: Whether a file of a launcher names the config.
        loads: How the program loads its model.

    Raises:
        DsgenError: An unknown or broken profile.
    """
    facts = Facts(
        world_size=world_size,
        seq_len=seq_len,
        hardware=hardware,
        model=model,
        network=network,
        accelerator=accelerator,
        client_optimizer=client_optimizer,
        missing=frozenset(missing),
        calls=frozenset(calls),
        parameters=parameters,
        training=training,
        job_world=job_world,
        told=told or {},
        launched=launched,
        loads=loads,
    )
    implied = accelerator
    if accelerator is None and facts.hardware is not None and facts.hardware.vendor == "cpu":
        implied = "cpu"
    names = parameters
    if parameters is None and facts.model is not None:
        names = _names(facts.model)
    return attrs.evolve(facts, accelerator=implied, parameters=names)


def of_job(job: Job, **more: Any) -> Facts:
    """What a job knows and no config says; `more` are the other facts, as `facts` takes them."""
    known: dict[str, Any] = {
        "world_size": job.world,
        "hardware": job.hardware,
        "model": job.model,
        "network": job.network if job.nodes > 1 else None,
        "seq_len": job.seq_len,
        "training": job.training,
    }
    return facts(**{**known, **more})


def _names(model: Model) -> tuple[str, ...] | None:
    """The names of a model's parameters, block by block; None for an architecture that is not known."""
    from dsgen.families.parameters import parameters as parameters_of  # it loads every family

    try:
        tensors = parameters_of(model)
    except DsgenError:
        return None
    return tuple(tensor.name.replace("*", str(block)) for tensor in tensors for block in range(tensor.repeats))
