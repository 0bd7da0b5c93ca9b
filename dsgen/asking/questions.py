"""Answers to `why`: a key's history, its meaning, and what the plan would be with another value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from dsgen import catalog
from dsgen.catalog.wishes import restored
from dsgen.deepspeed import surface
from dsgen.deepspeed.keys import lookup
from dsgen.jobs.job import Job, narrowed
from dsgen.jobs.scenarios import FIELDS
from dsgen.planning.planner import Plan, doubt, plan
from dsgen.rendering import Explanation, render
from dsgen.shapes.errors import DsgenError, mistake, nearest
from dsgen.shapes.layers import Layer, Origin, Override, Provenance, Rank
from dsgen.shapes.near_misses import offer
from dsgen.shapes.pins import collect, deciders
from dsgen.shapes.profiles import SECTIONS, Training, yaml_name
from dsgen.targets.hf_trainer import HF_TRAINER

__all__ = ["Answer", "OtherValue", "ask"]

_STAGES = (0, 1, 2, 3)
_DEVICES = ("none", "cpu")
_LEFT_OPEN = (None, "auto")  # a wish that leaves it to the plan
# Such a wish -> the key that says what the plan takes.
_DECIDED = {
    "global_batch": "train_batch_size",
    "micro_batch": "train_micro_batch_size_per_gpu",
    "accumulation": "gradient_accumulation_steps",
    "zero_stage": "zero_optimization.stage",
    "offload": "zero_optimization.offload_optimizer.device",
    "precision": "{0.precision}.enabled",
    "tp": "tensor_parallel.autotp_size",
    "checkpointing": "",
    "seq_len": "",
}
_OFFLOADED = {("none", "none"): "none", ("cpu", "none"): "optimizer", ("cpu", "cpu"): "all"}
_OPTION, _HARDWARE = "hw", "hardware"  # the one names a profile of the other
_TRIED = Origin("")  # nobody wrote it


@attrs.frozen(kw_only=True)
class OtherValue:
    """What another value of a key would do to the plan.

    Attributes:
        value: The other value.
        strategy: The strategy that the plan would then take.
        gpu_bytes: Change of the GPU's peak.
        speed: Speed relative to now: 0.9 is ten percent slower.
        parts: Part of a step's time -> seconds that it would take longer, for as many tokens.
        seconds: What a step takes now.
        doubt: Why it may not fit, with what it needs; empty where it surely does, as a plan must where anything does.
        refused: Why it cannot be, where it cannot.
    """

    value: Any
    strategy: str = ""
    gpu_bytes: int = 0
    speed: float = 1.0
    parts: Mapping[str, float] = attrs.field(factory=dict)
    seconds: float = 0.0
    doubt: str = ""
    refused: str | None = None


@attrs.frozen(kw_only=True)
class Answer:
    """Why a key is what it is.

    Attributes:
        key: The path as asked.
        value: The value in force; None when nothing writes it.
        overrides: Everyone who wrote it, losers first.
        default: What happens without it.
        default_of: Whose default that is; empty for a fact that must be given.
        description: What the key means.
        source: Where the fact comes from, for a fact of a profile.
        dropped: Why a config leaves it out, where it does.
        alternatives: What other values would do.
        children: The keys below it, for a section.
        calibration: What the measurements of the machine changed; empty where nobody measured.
        planned: What the plan takes where a wish is left to it; empty of everything else.
    """

    key: str
    value: Any
    overrides: tuple[Override, ...]
    default: Any
    default_of: str
    description: str
    source: str | None = None
    dropped: str | None = None
    alternatives: tuple[OtherValue, ...] = ()
    children: tuple[Explanation, ...] = ()
    calibration: str = ""
    planned: str = ""


def ask(job: Job, key: str) -> Answer:
    """The answer for one key.

    Args:
        job: The job it is asked of.
        key: A DeepSpeed key, with or without `deepspeed.`, or its last name where one key of the config has it, or the
            Trainer's argument for it; a fact or wish, by its path or as a scenario's field; or a section of these:
            what is said in it.

    Raises:
        DsgenError: No such key; with the nearest ones.
    """
    known = surface.load(job.version).key(key, job.deepspeed) is not None
    word = "_".join(key.replace("-", "_").split())
    if not known:
        arguments = {argument: written for written, argument in reversed([*HF_TRAINER.matched.items()])}
        key = FIELDS.get(word) or arguments.get(word) or (_HARDWARE if word == _OPTION else key)
    section, _, name = key.partition(".")
    if section in SECTIONS:
        return _fact(job, section, name) if name else _section(job, section)
    current = plan(job)
    config = render(current)
    called = [] if known else [path for path in config.paths() if path.rpartition(".")[2] == word]
    if len(called) != 1 and not known and word in map(yaml_name, attrs.fields_dict(Training)):
        return _fact(job, "training", word)
    explained = config.why(called[0] if len(called) == 1 else key)
    release = ".".join(job.version.split(".")[:2])
    return Answer(
        key=explained.path,
        value=explained.value,
        overrides=_unpinned(job, explained),
        default=explained.default,
        default_of=f"DeepSpeed {release}",
        description=explained.description,
        dropped=explained.dropped,
        alternatives=tuple(_alternatives(job, current, explained.path, explained.value)),
        calibration=_calibration(current),
        children=tuple(config.why(path) for path in config.paths() if path.startswith(f"{explained.path}.")),
    )


def _calibration(current: Plan) -> str:
    if not current.job.hardware.calibrated:
        return ""
    from dsgen.asking.calibrating import effect  # most machines were not measured

    return effect(current).words


def _fact(job: Job, section: str, name: str) -> Answer:
    fields = {yaml_name(field.name): field for field in attrs.fields(SECTIONS[section])}
    if name not in fields:
        close = nearest(name, fields)
        raise mistake(
            f"{section} has no {name}",
            todo=offer(f"{section}.{item}" for item in close),
            code="unknown-name",
        )
    field = fields[name]
    history = job.provenance.history(f"{section}.{name}")
    default = None if field.default is attrs.NOTHING else field.default
    source = _source(job, section, name, history[-1]) if history else None
    value = history[-1].value if history else default
    return Answer(
        planned=_planned(job, name) if section == "training" and value in _LEFT_OPEN else "",
        key=f"{section}.{name}",
        value=value,
        overrides=history,
        default=default,
        default_of="" if field.default is attrs.NOTHING else "dsgen",
        description=field.metadata["doc"],
        source=source,
    )


def _planned(job: Job, name: str) -> str:
    """What the plan takes for a wish that is left to it, and the key that says why; empty where nothing fits."""
    if name not in _DECIDED:
        return ""
    try:
        chosen = plan(job).chosen.strategy
    except DsgenError:
        return ""
    key, where = _DECIDED[name].format(chosen), (chosen.offload_optimizer, chosen.offload_param)
    taken: Mapping[str, Any] = {
        "checkpointing": "full" if chosen.checkpointing else "none",
        "offload": _OFFLOADED.get(where, f"optimizer {where[0]}, parameters {where[1]}"),
        "seq_len": job.seq_len,
        "zero_stage": chosen.stage,
    }
    value = taken[name] if name in taken else getattr(chosen, name)
    return f"Left to the plan, which takes {value}" + (f": dsgen why {key}" if key else ".")


def _section(job: Job, section: str) -> Answer:
    """What is said in a section of facts or wishes."""
    named = f"Of the profile {job.names[section]}." if section in job.names else "No profile is named for it."
    if section == "network" and job.nodes == 1:
        named = "One node: nothing is sent over a network."
    elif section == "network" and not job.provenance.history("network.bandwidth"):
        named = f"{job.names[section]} is assumed, for nobody named one: --network NAME."
    said = [yaml_name(field.name) for field in attrs.fields(SECTIONS[section])]
    asked = (_fact(job, section, name) for name in said if job.provenance.history(f"{section}.{name}"))
    told = tuple(
        Explanation(path=one.key, value=one.value, overrides=one.overrides, default=one.default,
                    description=one.description, dropped=None)
        for one in asked
    )  # fmt: skip
    words = f"{named} Of one of its facts: dsgen why {section}.{said[1]}"
    return Answer(key=section, value=None, overrides=(), default=None, default_of="", description=words, children=told)


def _source(job: Job, section: str, name: str, winner: Override) -> str | None:
    """The source a profile gives for a fact, when the profile is still the one that decides it."""
    if section not in catalog.KINDS or winner.rank != catalog.KINDS[section] or section not in job.names:
        return None
    for known_as in (job.names[section], winner.origin.source):  # of a profile given as a path the job knows the name
        try:
            profile = catalog.find(section, known_as)
        except DsgenError:
            continue
        if any(item.path == winner.path and item.origin == winner.origin for item in profile.layer.overrides):
            return profile.source_of(name)
    return None


def _alternatives(job: Job, current: Plan, path: str, value: Any) -> list[OtherValue]:
    """The plan with other values of a key; only keys that steer memory or speed have any."""
    return [_try(job, current, path, other) for other in _others(path, value)]


def _others(path: str, value: Any) -> tuple[Any, ...]:
    leaf = path.rpartition(".")[2]
    if path == "zero_optimization.stage":
        return tuple(stage for stage in _STAGES if stage != value)
    if path == "zero_optimization.overlap_comm" and value is not None:
        return (not value,)
    if leaf == "device":
        return tuple(device for device in _DEVICES if device != value)
    if path == "train_micro_batch_size_per_gpu":
        return tuple(size for size in (value // 2, value * 2) if size)
    if leaf in ("reduce_bucket_size", "stage3_max_live_parameters") and value:
        return (value // 4 * 2, value * 2)
    if path == "tensor_parallel.autotp_size":
        return tuple(size for size in (1, 2, 4, 8) if size != (value or 1))
    return ()


def _try(job: Job, current: Plan, path: str, value: Any) -> OtherValue:
    try:
        other = plan(_with(job, path, Override(f"deepspeed.{path}", value, _TRIED, Rank.USER)))
    except DsgenError as error:
        return OtherValue(value=value, refused=error.sentence)
    return OtherValue(
        value=value,
        strategy=str(other.chosen.strategy),
        gpu_bytes=other.chosen.memory.gpu.peak_bytes - current.chosen.memory.gpu.peak_bytes,
        speed=other.chosen.speed / current.chosen.speed,
        parts=current.chosen.cost.less_than(other.chosen.cost),
        seconds=current.chosen.cost.seconds,
        doubt="" if other.chosen.sure else doubt(other.chosen).why,
    )


def _unpinned(job: Job, explained: Explanation) -> tuple[Override, ...]:
    """The overrides of a key, the planner's own choice among them: what it would write if nobody had pinned the key."""
    history = explained.overrides
    pinned = {pin.override.path for pin in job.pins} & set(deciders(f"deepspeed.{explained.path}"))
    if not history or (history[-1].rank <= Rank.PLAN and not pinned):
        return history
    above = tuple(item for item in history if item.rank > Rank.PLAN) or history[-1:]
    try:
        free = render(plan(_with(job, explained.path, None))).why(explained.path).overrides
    except DsgenError:  # without the pin nothing fits: then there is no choice to show
        return above
    return (*(item for item in free if item.rank <= Rank.PLAN), *above)


def _with(job: Job, path: str, override: Override | None) -> Job:
    """The job with one DeepSpeed key overridden, or with every override of it taken away."""
    full = f"deepspeed.{path}"
    rivals = deciders(full)
    rest = tuple(
        layer._replace(overrides=tuple(item for item in layer.overrides if item.path not in rivals))
        for layer in job.deepspeed_layers
    )
    tree: dict[str, Any] = {**job.deepspeed}
    node = tree
    *parents, leaf = path.split(".")
    for parent in parents:
        node[parent] = {**node.get(parent, {})}
        node = node[parent]
    node.pop(leaf, None)
    written = {key: history for key, history in job.provenance.overrides.items() if key not in rivals}
    if override is not None:
        node[leaf] = override.value
        written[full] = (override,)
        rest = (*rest, Layer("", Rank.USER, (override,)))
    provenance = Provenance(written)
    wishes = restored(job.training, path, job.provenance) if override is None else job.training
    return attrs.evolve(
        job,
        training=wishes,
        deepspeed=tree,
        deepspeed_layers=rest,
        provenance=provenance,
        pins=collect(provenance),
        narrow=narrowed(lambda path: lookup(tree, path)[1]),
    )
