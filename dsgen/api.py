"""The library's face: profiles that compose with `|`, and the line from them to a Plan and a Config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

from dsgen import catalog
from dsgen.jobs.assembly import assemble
from dsgen.jobs.job import Job
from dsgen.planning.planner import Plan
from dsgen.planning.planner import plan as plan_job
from dsgen.rendering import Config
from dsgen.rendering import render as render_plan
from dsgen.shapes.errors import mistake
from dsgen.shapes.layers import DEEPEST, Layer, Origin, Override, Rank, leaves

if TYPE_CHECKING:
    from dsgen.asking.memory_questions import Footprint
    from dsgen.shapes.profiles import Hardware
    from dsgen.simulating import Simulation

__all__ = ["Layers", "estimate_memory", "job", "overrides", "plan", "profile", "render", "scenario", "simulate", "site"]

Overrides = Mapping[str, Any]


@attrs.frozen
class Layers:
    """Named sets of overrides, joined with `|`. The order does not decide who wins; the rank of each does.

    `Layers()` is the identity, `|` is associative, and joining a layer twice is joining it once.
    """

    layers: tuple[Layer, ...] = ()

    def __or__(self, other: Layers | Overrides) -> Layers:
        joined = list(self.layers)
        for layer in _layers(other).layers:
            if layer not in joined:
                joined.append(layer)
        return Layers(tuple(joined))

    def __ror__(self, other: Overrides) -> Layers:
        return _layers(other) | self


def profile(name: str) -> Layers:
    """A built-in or own profile by name, alias or path; a Hugging Face config.json is a model.

    Raises:
        DsgenError: No such profile, with the nearest names, or a broken one.
    """
    return Layers((catalog.profile(name).layer,))


def overrides(values: Overrides) -> Layers:
    """Overrides of the highest rank, as `--set` gives them; a plain dict joined with `|` is the same."""
    return _from_mapping(values, Rank.USER, "python")


def site(values: Overrides) -> Layers:
    """Overrides of a site or a repository: above every profile, below what a person says."""
    return _from_mapping(values, Rank.SITE, "python (site)")


def scenario(path: str) -> Layers:
    """A scenario file: the options of the command line, committed.

    Raises:
        DsgenError: Unreadable, or an unknown field; with file and line.
    """
    from dsgen.jobs import scenarios

    return Layers(scenarios.layers(scenarios.read(path)))


def job(composed: Layers, deepspeed: str | None = None) -> Job:
    """Assemble a Job.

    Args:
        composed: At least a hardware and a model.
        deepspeed: The DeepSpeed release the config is for ("0.19"); None is the newest known.

    Raises:
        DsgenError: All that is wrong, each with the place where it was written.
    """
    return assemble(composed.layers, deepspeed)


def plan(wanted: Job | Layers, deepspeed: str | None = None) -> Plan:
    """Choose a strategy.

    Raises:
        DsgenError: A mistake in the layers, contradicting pins, or nothing that fits.
    """
    return plan_job(wanted if isinstance(wanted, Job) else job(wanted, deepspeed))


def render(wanted: Plan | Job | Layers, deepspeed: str | None = None) -> Config:
    """The DeepSpeed config, with a reason for every key.

    Raises:
        DsgenError: As `plan`.
    """
    return render_plan(wanted if isinstance(wanted, Plan) else plan(wanted, deepspeed))


def estimate_memory(
    wanted: Job | Layers, config: str | Mapping[str, Any] | None = None, deepspeed: str | None = None
) -> Footprint:
    """How much memory a training run takes, whether it fits, what every other stage and offload takes, and what fits.

    Nothing is refused because it does not fit. What is said is taken exactly; what nobody says is chosen as `plan`
    would.

    Args:
        wanted: At least a hardware and a model.
        config: A DeepSpeed config, or the file of one, taken as it is; overrides in `wanted` win over it.
        deepspeed: The DeepSpeed release that runs it; None is the newest known.

    Raises:
        DsgenError: A mistake in the layers or the config, or sizes that no run has.
    """
    from dsgen.asking.memory_questions import (  # a script that renders needs none of it
        answer,
        ask,
        ask_config,
        given,
    )
    from dsgen.linting import configs

    asked = wanted if isinstance(wanted, Job) else job(wanted, deepspeed)
    if config is None:
        return answer(ask(asked))
    return answer(ask_config(asked, configs.read(config) if isinstance(config, str) else given(config)))


def simulate(
    wanted: Config | Plan | Job | Layers | Mapping[str, Any],
    *,
    model: str | Mapping[str, Any] | None = None,
    world_size: int | None = None,
    gpus_per_node: int | None = None,
    hardware: Hardware | str | None = None,
    python: str | None = None,
    timeout_seconds: float | None = None,
    **options: Any,
) -> Simulation:
    """Run the real DeepSpeed at full size on a virtual GPU, in a child process: bytes by place and phase.

    Args:
        wanted: What `render` takes, or its Config; or a DeepSpeed config as a dict, which needs what follows.
        model: For a dict: a model profile's name, a config.json or its folder, or what stands in it.
        world_size: For a dict: GPUs in all.
        gpus_per_node: For a dict: GPUs of a node; by default those of the hardware, else 8.
        hardware: For a dict: what there is, or the name of its profile; without it there are no limits.
        python: Interpreter that has torch, deepspeed and transformers; by default this one.
        timeout_seconds: For everything; by default half an hour.
        options: Fields of `dsgen.simulating.Options`: rank, steps, seq_len, attention, checkpointing, method ...

    Raises:
        DsgenError: As `plan`; a package is missing, its version was not tested, or DeepSpeed refuses the config.
    """
    from dsgen import simulating

    run = simulating.Options(**options)
    if isinstance(wanted, Mapping):
        if model is None or world_size is None:
            raise mistake("a config as a dict needs model and world_size", todo='simulate({...}, model="7b", ...)')
        request = simulating.from_config(
            wanted,
            model=model,
            world_size=world_size,
            gpus_per_node=gpus_per_node,
            hardware=simulating.hardware_of(profile(hardware).layers) if isinstance(hardware, str) else hardware,
            options=run,
        )
    else:
        said = {"model": model, "world_size": world_size, "gpus_per_node": gpus_per_node, "hardware": hardware}
        if extra := [name for name, value in said.items() if value is not None]:
            raise mistake(f"{extra[0]} is for a config as a dict", must="a job says it itself")
        request = simulating.from_rendered(wanted if isinstance(wanted, Config) else render(wanted), run)
    seconds = simulating.TIMEOUT_SECONDS if timeout_seconds is None else timeout_seconds
    return simulating.simulate(request, python=python, timeout_seconds=seconds)


def _layers(other: Layers | Overrides) -> Layers:
    if isinstance(other, Layers):
        return other
    if isinstance(other, Mapping):
        return overrides(other)
    raise mistake(
        f"{other!r} cannot be joined with |",
        must="it must be a profile or a dict of overrides",
        todo='Write dsgen.profile("a100-40g"), not its name.',
    )


def _from_mapping(values: Overrides, rank: Rank, source: str) -> Layers:
    if not isinstance(values, Mapping):
        raise mistake(f"{values!r} is no dict", must="overrides are a dict", where=source)
    origin = Origin(source)
    plain = _plain("the dict", values, source, 0)
    found = tuple(Override(path, value, origin, rank) for path, value in leaves(plain))
    return Layers((Layer(source, rank, found),) if found else ())


def _plain(path: str, value: Any, source: str, depth: int) -> Any:
    """A value of plain JSON types, not deeper than any config; a tuple is a list."""
    if depth > DEEPEST:
        raise mistake(
            f"the dict nests deeper than {DEEPEST} levels", where=source, must="a config is a few levels deep"
        )
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(path, item, source, depth + 1) for item in value]
    if isinstance(value, Mapping):
        inner = path if depth else ""
        return {
            _name(key, path, source): _plain(f"{inner}.{key}".lstrip("."), item, source, depth + 1)
            for key, item in value.items()
        }
    raise mistake(
        f"{path} is a {type(value).__name__}",
        where=source,
        must="it must be a plain value: text, number, true, false, list",
    )


def _name(key: Any, path: str, source: str) -> str:
    if type(key) is not str or not key or key.strip(".") != key:
        raise mistake(f"the key {key!r} in {path} is not a name", must="a key must be text", where=source)
    return key
