"""The named checks of a proof: what the config lets one expect against what the engines of all ranks hold."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from dsgen.proving import expectations
from dsgen.proving.adaptation import resolve_batch
from dsgen.proving.schedule import learning_rate
from dsgen.shapes.near_misses import is_remark

__all__ = ["Check", "checks", "engine_checks", "parse_checks"]

_RATE_TOLERANCE = 1e-6  # relative; both sides are float64 sums of a few terms
# Sections that DeepSpeed hands to pydantic as a whole and where an unknown key is an error of its own; reads inside
# them cannot be seen (keys.json of DeepSpeed 0.19.8, `strict_section`).
_STRICT = (
    "bf16", "comet", "comms_logger", "compile", "csv_monitor", "fp16", "hybrid_engine", "tensor_parallel",
    "tensorboard", "timers", "wandb", "weight_quantization", "zero_optimization",
)  # fmt: skip
_AUTO_IS_A_VALUE = ("autotuning", "zero_optimization.zenflow")  # where DeepSpeed itself knows the word "auto"
# Bytes for each weight: its fp32 master and its fp32 moments, of which Adam has two.
_STATE_BYTES, _MASTER_BYTES = 12, 4
_HEAD_SPLIT_SINCE = (0, 19)  # the line whose AutoTP shares out the head too; 0.16.9 to 0.18.9 leave it whole
_DERIVED = ("wall_clock_breakdown",)  # the flops profiler turns it on
_ADAMS = ("AdamW", "Adam", "FusedAdam", "DeepSpeedCPUAdam")  # keep one `exp_avg` per weight
# What must be the same on every rank.
_SHARED = ("stage", "parameter_dtypes", "optimizer", "wrapper", "scheduler", "learning_rate", "global_steps",
           "skipped_steps", "gradient_norm", "train_batch")  # fmt: skip


@attrs.frozen
class Check:
    """One thing that must hold: what was expected, what was observed, whether they agree."""

    name: str
    expected: object
    observed: object
    ok: bool


def checks(
    config: Mapping[str, Any],
    ranks: int,
    tp: int,
    steps: int,
    observed: Sequence[Mapping[str, Any]],
    version: str,
    *,
    plain: bool = True,
) -> tuple[Check, ...]:
    """Compare a config with what its ranks observed.

    Args:
        config: The config as used.
        ranks: Number of ranks.
        tp: AutoTP degree.
        steps: Optimizer steps taken.
        observed: One record per rank, as `engine.proof.ranks` reports it.
        version: DeepSpeed's.
        plain: Whether the model is the tiny Llama, of which it is known what AutoTP shards.
    """
    return (*engine_checks(config, ranks, tp, steps, observed, version, plain), *_health(config, observed, tp))


def engine_checks(
    config: Mapping[str, Any],
    ranks: int,
    tp: int,
    steps: int,
    observed: Sequence[Mapping[str, Any]],
    version: str,
    plain: bool = True,
    small: bool = False,
) -> tuple[Check, ...]:
    """The part of `checks` that one rank can answer for: all but what ranks share, and the checkpoint.

    Args:
        config: As in `checks`, as are the others.
        ranks: Number of ranks.
        tp: AutoTP degree.
        steps: Optimizer steps taken.
        observed: Records of some ranks, or of one.
        version: DeepSpeed's.
        plain: As in `checks`.
        small: Whether the model is too small to be swapped to NVMe.
    """
    first = observed[0]
    return (
        *_written(config, first),
        *_classes(config, first, version),
        *_batch(config, ranks, first),
        *_schedule(config, steps, first, version),
        *_sizes(config, ranks // tp, tp, observed, version, plain, small),
    )


def parse_checks(config: Mapping[str, Any], ranks: int, held: Mapping[str, Any], version: str) -> tuple[Check, ...]:
    """What a parsed config alone can answer for: every written value is held, and the batch adds up.

    Args:
        config: The config as written.
        ranks: Number of ranks.
        held: What DeepSpeed's parser holds, as `engine.proof.observing.held_config` says it.
        version: DeepSpeed's.
    """
    arrived = {
        "train_batch": held.get("train_batch_size"),
        "micro_batch": held.get("train_micro_batch_size_per_gpu"),
        "accumulation": held.get("gradient_accumulation_steps"),
    }
    clipping = expectations.gradient_clipping(config, version)
    stage = held.get("zero_optimization", {}).get("stage")
    return (
        _none("keys left to 'auto'", list(_autos(config))),
        _none("written values the parser lacks", list(_differing(config, held))),
        *_batch(config, ranks, arrived),
        _equal("gradient clipping", clipping, held.get("gradient_clipping")),
        _equal("ZeRO stage", expectations.stage(config), stage),
    )


def _equal(name: str, expected: object, observed: object) -> Check:
    return Check(name, expected, observed, expected == observed)


def _none(name: str, names: Sequence[str]) -> Check:
    return Check(name, "none", ", ".join(names) if names else "none", not names)


def _at_least(name: str, least: int, observed: Sequence[int]) -> Check:
    return Check(name, f"at least {least}", list(observed), min(observed) >= least)


def _written(config: Mapping[str, Any], first: Mapping[str, Any]) -> Iterator[Check]:
    """Every written key arrives: it is read, it is no placeholder, and the engine holds its value."""
    yield _none("keys left to 'auto'", list(_autos(config)))
    unread = [
        path
        for path in first["unread"]
        if not any(path.startswith(f"{section}.") for section in _STRICT) and not is_remark(path.rpartition(".")[2])
    ]
    yield _none("written keys DeepSpeed never reads", unread)
    yield _none("written values the engine lacks", list(_differing(config, first["held_config"])))


def _autos(value: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, item in value.items():
        path = f"{prefix}{key}"
        if path in _AUTO_IS_A_VALUE:
            continue
        if isinstance(item, Mapping):
            yield from _autos(item, f"{path}.")
        elif item == "auto":
            yield path


def _differing(written: Mapping[str, Any], held: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Written values that differ from those held; a key DeepSpeed keeps under another name is passed over."""
    for key, value in written.items():
        if key not in held or value is None or value == "auto" or f"{prefix}{key}" in _DERIVED:
            continue
        kept = held[key]
        if isinstance(value, Mapping):
            if isinstance(kept, Mapping):
                yield from _differing(value, kept, f"{prefix}{key}.")
        elif not isinstance(kept, Mapping) and kept != value and str(kept).lower() != str(value).lower():
            yield f"{prefix}{key}: {value!r} written, {kept!r} held"


def _classes(config: Mapping[str, Any], first: Mapping[str, Any], version: str) -> Iterator[Check]:
    yield _equal("ZeRO stage", expectations.stage(config), first["stage"])
    yield _equal("parameter type", [expectations.parameter_dtype(config)], first["parameter_dtypes"])
    yield _equal("master weight type", [expectations.master_dtype(config)], first["master_dtypes"])
    clipping = expectations.gradient_clipping(config, version)
    yield _equal("gradient clipping, engine", clipping, first["gradient_clipping"])
    if first["optimizer_clipping"] is not None:
        yield _equal("gradient clipping, optimizer", clipping, first["optimizer_clipping"])
    optimizer = expectations.optimizer_class(config)
    if optimizer is not None:
        yield _equal("optimizer class", optimizer, first["optimizer"])
    wrapper = expectations.wrapper_class(config, optimizer or str(first["optimizer"]), version)
    if wrapper is not None:
        yield _equal("optimizer wrapper", wrapper, first["wrapper"])
    yield _equal("scheduler class", (_scheduler(config) or {}).get("type"), first["scheduler"])
    yield _equal("optimizer state place", expectations.optimizer_place(config), first["optimizer_place"])
    yield _equal("parameter place", expectations.parameter_place(config), first["parameter_place"])


def _scheduler(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    section = config.get("scheduler")
    return section if isinstance(section, Mapping) else None


def _batch(config: Mapping[str, Any], ranks: int, first: Mapping[str, Any]) -> Iterator[Check]:
    resolved = resolve_batch(config, ranks)
    if resolved is None:
        return
    train, micro, accumulation = resolved
    yield _equal("micro-batch per rank", micro, first["micro_batch"])
    yield _equal("accumulation steps", accumulation, first["accumulation"])
    yield _equal("train batch", train, first["train_batch"])


def _schedule(config: Mapping[str, Any], steps: int, first: Mapping[str, Any], version: str) -> Iterator[Check]:
    yield _equal("optimizer steps", steps, first["global_steps"])
    applied = first["global_steps"] - first["skipped_steps"]
    if expectations.parameter_dtype(config) == "float16":
        yield Check("steps that the loss scaler let through", "at least 1", applied, applied >= 1)
    scheduler = _scheduler(config)
    base = expectations.base_learning_rate(config)
    for name, count, key in (
        ("learning rate at the start", 0, "learning_rate_start"),
        (f"learning rate after {applied} applied steps", applied, "learning_rate"),
    ):
        rate = learning_rate(scheduler, base, count, version)
        if rate is not None:
            yield Check(name, rate, first[key], math.isclose(rate, first[key], rel_tol=_RATE_TOLERANCE))
    if applied:
        rates = [learning_rate(scheduler, base, n, version) for n in range(applied)]
        moves = None in rates or any(rates)
        yield _equal("weights moved by the optimizer", moves, first["moved"])


def _sizes(
    config: Mapping[str, Any],
    data_parallel: int,
    tp: int,
    observed: Sequence[Mapping[str, Any]],
    version: str,
    plain: bool,
    small: bool,
) -> Iterator[Check]:
    """What each rank holds, in elements."""
    yield _equal("data-parallel ranks", data_parallel, observed[0]["data_parallel"])
    whole, linear = observed[0]["model_elements"], observed[0]["linear_elements"]
    if expectations.release(version) < _HEAD_SPLIT_SINCE:
        linear -= observed[0]["head_elements"]
    local = sorted({sum(record["parameter_sizes"]) for record in observed})
    section = config.get("tensor_parallel")
    known = plain and isinstance(section, Mapping) and not set(section) & {"partition_config", "preset_model", "tp"}
    if tp > 1 and known:
        yield _equal("parameter elements per tensor-parallel rank", [whole - linear + linear // tp], local)
    elif tp > 1:
        yield Check("parameter elements per tensor-parallel rank", f"fewer than {whole}", local, local[-1] < whole)
    share = [sum(math.ceil(size / data_parallel) for size in record["parameter_sizes"]) for record in observed]
    if expectations.stage(config) == 3:
        yield _equal("parameter elements kept per rank", share, [record["parameters_held"] for record in observed])
        if expectations.parameter_place(config) == "nvme" and not small:
            yield _at_least("parameter bytes on NVMe per rank", 1, [r["parameter_swap_bytes"] for r in observed])
    if expectations.optimizer_place(config) == "nvme":
        least = (_STATE_BYTES if observed[0]["optimizer"] in _ADAMS else _MASTER_BYTES) * min(share)
        if not small:
            yield _at_least("optimizer bytes on NVMe per rank", least, [r["optimizer_swap_bytes"] for r in observed])
        return  # what is swapped out is in memory only while it is used
    for name, key in (("master weight elements", "master_held"), ("optimizer moment elements", "moment_held")):
        held = [record[key] for record in observed]
        if key == "moment_held" and observed[0]["optimizer"] not in _ADAMS:
            continue
        bounds = [
            expectations.master_elements(
                config, record["parameter_sizes"], data_parallel, record["master_groups"], version
            )
            for record in observed
        ]
        ok = all(low <= value <= high for (low, high), value in zip(bounds, held, strict=True))
        low, high = bounds[0]
        yield Check(f"{name} per rank", low if low == high else f"{low} to {high}", held, ok)


def _health(config: Mapping[str, Any], observed: Sequence[Mapping[str, Any]], tp: int) -> Iterator[Check]:
    """The run itself: finite, the same on every rank, and brought back by its checkpoint."""
    first = observed[0]
    losses = [*first["losses"], first["loss_after"]]
    trace = " ".join(f"{loss:.4f}" for loss in losses)
    finite = all(record["finite"] for record in observed) and all(map(math.isfinite, losses))
    yield Check("losses and weights are finite", "finite", trace if finite else f"not finite: {trace}", finite)
    unlike = [key for key in _SHARED if any(record[key] != first[key] for record in observed)]
    yield _none("facts that differ between ranks", unlike)
    digests = [{record["weights_sha256"] for record in observed if record["rank"] % tp == part} for part in range(tp)]
    same = all(len(group) == 1 for group in digests)
    yield Check("weights on data-parallel ranks", "the same", "the same" if same else "different", same)
    lost = sorted({item for record in observed for item in record["checkpoint_differences"]})
    if expectations.optimizer_place(config) == "nvme":
        # DeepSpeed copies the swap files only; the rate follows from the loaded schedule at the next step.
        lost = [item for item in lost if not item.startswith("learning_rate")]
    if not expectations.masters_come_back(config):
        lost = [item for item in lost if not item.endswith("weights")]
    loaded = all(record["checkpoint_loaded"] for record in observed)
    yield _none("lost by checkpoint save and load", lost if loaded else ["everything: nothing was loaded"])
    if first.get("overflow") is not None:
        yield from _overflow(config, first["overflow"])


def _overflow(config: Mapping[str, Any], told: Mapping[str, Any]) -> Iterator[Check]:
    """fp16's loss scaler at work: each forced overflow was skipped, the scale fell, and the run went on."""
    yield _equal("forced overflows that were skipped", told["forced"], told["skipped"])
    yield _equal("weights after them", "as before", "as before" if told["kept"] else "changed")
    before, after = told["scales"]
    static = bool(config["fp16"].get("loss_scale"))
    expected = f"{before:g}" if static else f"less than {before:g}"
    yield Check("loss scale after them", expected, after, after == before if static else after < before)
    finite = "finite weights" if told["finite"] else "weights that are not finite"
    if told["rate"] > 0:
        yield _equal("the step after them", "moves finite weights", f"{'moves' if told['moved'] else 'keeps'} {finite}")
    else:  # such as of a schedule that has come to its end
        yield _equal("the step after them", "finite weights", finite)
