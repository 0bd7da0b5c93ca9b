"""What DeepSpeed would refuse or quietly turn into something else, once everybody's keys are in one config."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dsgen.deepspeed import surface
from dsgen.deepspeed.keys import lookup
from dsgen.memory.estimates import GATHERS
from dsgen.memory.secondary import is_counted
from dsgen.memory.states import takes
from dsgen.planning.planner import Plan
from dsgen.shapes.errors import mistake, nearest
from dsgen.shapes.layers import Provenance, Rank, show
from dsgen.shapes.near_misses import offer
from dsgen.strategies.constraints import keys, of_layout, refusals
from dsgen.strategies.counted import BOUNDED, NARROW, SECOND_COPY

__all__ = ["cautions", "refuse_combinations"]

_RATIO = "zero_optimization.offload_optimizer.ratio"
_QUANTIZED = "zero_optimization.zero_quantized_weights"
# Keys that change memory or speed, of which an estimate may not know all.
_UNCOUNTED = (
    *NARROW,
    "communication_data_type",
    "data_types.grad_accum_dtype",
    "torch_autocast.enabled",
    _RATIO,
    "zero_optimization.offload_optimizer.super_offload",
    "zero_optimization.zenflow",
    SECOND_COPY,
    "zero_optimization.zero_quantized_gradients",
    _QUANTIZED,
)
_TIMED = (SECOND_COPY, _QUANTIZED)  # those whose speed is counted (dsgen.cost.communication)
_OWN_RATES = {"Muon": "Muon's usual rate is about 0.02", "Lion": "Lion's usual rate is a third to a tenth of AdamW's"}

_ON_CPU = ("adam", "adamw", "adagrad", "lion", "muon")  # deepspeed/ops: CPU versions; Muon runs in torch
_WITHOUT = "Remove compute_grad_norm; dsgen rule DSG333 explains."
# Constraint on a key -> what to do
_REMEDIES = {
    "masters-on-the-gpu": "Add --offload optimizer, or with bf16 --set bf16.bf16_optimizer_states=true.",
    "no-norm-in-bf16": _WITHOUT,
    "no-norm-with-offload": _WITHOUT,
    "own-optimizer-offloaded": "Add --offload none, or --set zero_force_ds_cpu_optimizer=false.",
    "states-without-masters": "Add --set bf16.bf16_master_weights_and_grads=true.",
    "untested-optimizer": "Leave it out, and dsgen sets it; dsgen rule DSG513 explains.",
}


def refuse_combinations(plan: Plan, values: Mapping[str, Any], known: surface.Surface, provenance: Provenance) -> None:
    """Stop at the first key that cannot be.

    Raises:
        DsgenError: What is, what must be, and where it was written.
    """
    if plan.job.whole:  # it is as it is: what DeepSpeed refuses the linter says, and `cautions` the rest
        return
    for path, must, todo in _wrong(plan, values, known):
        _, value = lookup(values, path)
        raise mistake(f"{path} = {show(value)}", must=must, where=provenance.where(f"deepspeed.{path}"), todo=todo)


def cautions(plan: Plan, values: Mapping[str, Any]) -> Iterator[str]:
    """What a person should know of a config that DeepSpeed takes."""
    chosen = plan.chosen.strategy
    counted = NARROW if takes(plan.job.narrow, chosen, plan.job.training) else ()
    for path in _UNCOUNTED:
        there, value = lookup(values, path)
        if not there or path in counted or (path == _RATIO and value == 1):
            continue
        if path in _TIMED:
            said = _of_timed(plan, path)
        elif path in BOUNDED:
            said = "changes memory and speed; the estimates count it in the interval of memory alone"
        else:
            said = "changes memory or speed in a way that the estimates do not count"
        if said:
            yield f"{path} {said}"
    if plan.job.whole:
        for path, must, _ in _wrong(plan, values, surface.load(plan.job.version)):
            there, value = lookup(values, path)
            if there:  # what stands nowhere the program before DeepSpeed brings
                yield f"{path} is {show(value)}; {must}"
    training, provenance = plan.job.training, plan.job.provenance
    rates = (*provenance.history("training.lr"), *provenance.history("deepspeed.optimizer.params.lr"))
    if training.optimizer in _OWN_RATES and not any(item.rank >= Rank.SITE for item in rates):
        yield f"lr {training.lr:g} is meant for AdamW; {_OWN_RATES[training.optimizer]}: --set training.lr=RATE"


def _of_timed(plan: Plan, path: str) -> str:
    """What the estimates leave open of a key whose speed they count; "" for nothing."""
    chosen = plan.chosen.strategy
    if path == SECOND_COPY:
        counted = is_counted(plan.job, chosen)
        return "" if counted else "changes memory in a way that the estimates do not count"
    return "changes memory; the estimates count it in the interval" if chosen.stage == GATHERS else ""


def _wrong(plan: Plan, values: Mapping[str, Any], known: surface.Surface) -> Iterator[tuple[str, str, str | None]]:
    """Path, what it must be, and what to do, for each key that cannot stand beside the others."""
    yield from _classes(values, known)
    yield from _offloaded(plan, values)
    yield from _partly(plan, values)
    yield from _sequence(values)
    yield from _constrained(plan, values)


def _classes(values: Mapping[str, Any], known: surface.Surface) -> Iterator[tuple[str, str, str | None]]:
    for section in ("optimizer", "scheduler"):
        there, name = lookup(values, f"{section}.type")
        if not there:
            continue
        required = known.required(section, str(name))
        if required is None:
            names = known.classes(section)
            close = nearest(str(name), names)
            todo = offer(close)
            yield f"{section}.type", f"DeepSpeed {known.version} has {', '.join(names)}", todo
            continue
        _, params = lookup(values, f"{section}.params")
        missing = [item for item in required if item not in (params or {}) and item not in ("optimizer", "params")]
        if missing:
            yield f"{section}.type", f"it needs {section}.params.{missing[0]}", "Write its params too."


def _offloaded(plan: Plan, values: Mapping[str, Any]) -> Iterator[tuple[str, str, str | None]]:
    """What is not planned on the CPU: DeepSpeed has its own CPU versions of a few optimizers only.

    No constraint: of the others it says nothing (runtime/engine.py of 0.19.8 asks for a program's own optimizer alone).
    """
    if plan.chosen.strategy.offload_optimizer == "none":
        return
    there, name = lookup(values, "optimizer.type")
    if there and str(name).lower() not in _ON_CPU:
        yield "optimizer.type", f"offloaded, it must be one of {', '.join(_ON_CPU)}", "Add --offload none to keep it."


def _partly(plan: Plan, values: Mapping[str, Any]) -> Iterator[tuple[str, str, str | None]]:
    """A part of an offloaded optimizer that stays on the GPU: DeepSpeed 0.14 to 0.19.8 trains and saves it wrongly.

    A second optimizer of torch's steps it, made once with the rate of the first group; no scheduler reaches it, and
    neither `state_dict` nor `load_state_dict` knows it (runtime/zero/stage3.py: backup_optimizer). No constraint: it
    runs, and its memory is in the interval. Looked at in tests/engine/test_part_offloaded.py.
    """
    chosen = plan.chosen.strategy
    there, ratio = lookup(values, _RATIO)
    number = there and isinstance(ratio, (int, float)) and not isinstance(ratio, bool)
    if number and ratio < 1 and chosen.stage == 3 and chosen.offload_optimizer != "none":
        release = f"DeepSpeed {plan.job.version}"
        must = f"what stays on the GPU {release} steps at one rate, whatever the scheduler says, and does not save"
        yield _RATIO, must, "Remove it, and all is offloaded."


def _sequence(values: Mapping[str, Any]) -> Iterator[tuple[str, str, str | None]]:
    """What DeepSpeed takes and no plan of ours has: no constraint."""
    if values.get("sequence_parallel_size", 1) not in (1, None):
        yield "sequence_parallel_size", "dsgen plans no sequence parallelism: the batch would not be what it says", None


def _constrained(plan: Plan, values: Mapping[str, Any]) -> Iterator[tuple[str, str, str | None]]:
    """The keys that the strategy cannot have, as `dsgen.strategies.constraints` says."""
    said = keys(lambda path: lookup(values, path)[1])._replace(own=not lookup(values, "optimizer.type")[0])
    at = of_layout(plan.job, plan.chosen.strategy, said)
    for item in refusals(at):
        if item.of_keys:
            yield at.path(item.about), item.must or item.says(at), _REMEDIES.get(item.code) or item.helps(at)
