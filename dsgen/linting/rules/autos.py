"""The word "auto" in a config: where it stands, and what DeepSpeed itself makes of it there.

Each place was tried with the real DeepSpeed 0.19.8 (parse, initialize, two steps). Most places of one kind are
alike; the tables hold the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from dsgen.deepspeed.keys import Key, say
from dsgen.linting.rules.arguments import TORCH_NUMBERS, schedule_hides_lr
from dsgen.linting.rules.values import counts_as_true
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fix, Remove, Severity

__all__ = ["AUTO", "Outcome", "autos", "outcome", "removal"]

AUTO = "auto"

_PARSE, _INIT, _STEP = "at the parse", "in deepspeed.initialize", "in the first optimizer step"
_SAMPLING = "data_efficiency.data_sampling.dynamic_batching"
_EXPERTS = (
    *("async_split_plan", "autoep_size", "comm_backend", "comm_max_tokens_per_rank", "comm_num_sm", "comm_qp_margin"),
    *("expert_activation", "expert_tensor_parallel_size", "gate_up_impl", "has_shared_experts", "moe_layer_pattern"),
    *("num_expert_groups", "num_limited_groups", "preset_model", "validate_folding_routing"),
)
# Keys outside the strict sections at which the word stops DeepSpeed, and when.
_STOPS: Mapping[str, str] = {
    "train_batch_size": _PARSE,
    "train_micro_batch_size_per_gpu": _PARSE,
    "gradient_accumulation_steps": _PARSE,
    "communication_data_type": _PARSE,
    "seq_parallel_communication_data_type": _PARSE,
    "gradient_allreduce_op": _PARSE,
    "sequence_parallel_size": _PARSE,
    "vocabulary_size": _PARSE,
    "wall_clock_breakdown": _PARSE,
    "flops_profiler.enabled": _PARSE,
    "torch_autocast.dtype": _PARSE,
    "checkpoint.tag_validation": _PARSE,
    "checkpoint.parallel_write.pipeline_stage": _PARSE,
    "checkpoint.writer.type": _PARSE,
    "checkpoint.writer.data_parallel": _PARSE,
    "expert_parallel.load_balance_coeff": _PARSE,
    "tensor_parallel.autotp_size": _INIT,
    "data_types.param_dtype": _INIT,
    "data_types.buffer_dtype": _INIT,
    "data_types.grad_accum_dtype": _INIT,
    "log_level": _INIT,
    "optimizer.params.ns_method": _INIT,
    "gradient_clipping": _STEP,
    "steps_per_print": _STEP,
}
# The same, where a switch is on.
_STOPS_WITH: Mapping[str, Mapping[str, str]] = {
    "flops_profiler.enabled": dict.fromkeys(
        (f"flops_profiler.{n}" for n in ("module_depth", "profile_step", "recompute_fwd_factor", "top_modules")), _STEP
    ),
    "torch_autocast.enabled": {"torch_autocast.lower_precision_safe_modules": _INIT},
    "expert_parallel.enabled": {f"expert_parallel.{name}": _INIT for name in _EXPERTS},
    f"{_SAMPLING}.enabled": {f"{_SAMPLING}.{n}": _PARSE for n in ("max_batch_size", "max_tokens", "min_batch_size")},
}
# Sections that are read without a look at what they are.
_PASSED_OVER = ("comet", "csv_monitor", "tensorboard", "wandb", "timers")
_FREE = ("datastates_ckpt", "autotuning.arg_mappings")
# Numbers of an optimizer or schedule that nothing computes with in the first steps, if ever.
_LATE = ("last_batch_iteration", "cos_min_ratio", "cycle_second_stair_count", "dampening")
_OTHERS = ("optimizer.type", "scheduler.type", "optimizer.params.max_grad_norm")  # refused whatever they say
_NO_GUESS = ("lr", "train_batch_size", "train_micro_batch_size_per_gpu", "warmup_num_steps", "total_num_steps")


@attrs.frozen
class Outcome:
    """What DeepSpeed does with the word at one place: the severity, a clause that says it, and how to mend it."""

    severity: Severity
    made: str
    fix: Fix | None = None


def autos(subject: Subject) -> Iterator[tuple[str, Key]]:
    """Path and key of every "auto" that may be a mistake: not at a key that takes the word itself or is unknown."""
    for path, value in subject.leaves():
        if value == AUTO and isinstance(value, str):
            key = subject.surface.key(path, subject.config)
            if key is not None and not key.removed and path not in _OTHERS:
                yield path, key


def outcome(subject: Subject, path: str, key: Key) -> Outcome | None:
    """What DeepSpeed makes of "auto" at a path; None where it knows the word or does not look."""
    if key.default == AUTO or AUTO in key.enum or (path.startswith("bfloat16") and subject.written("bf16")):
        return None
    if (phase := _stops(subject, path, key)) is not None:
        return Outcome(Severity.ERROR, f"with it DeepSpeed stops {phase}", _leaving_out(path, key, safe=False))
    parent = path.rpartition(".")[0]
    if subject.surface.sections.get(parent) == "strict" or path in _PASSED_OVER:
        return Outcome(_loud(subject, path), _dropped(subject, path, key), _instead_of_dropped(subject, path, key))
    if path in subject.surface.sections and path not in _FREE and not _is_metrics(path):
        return Outcome(Severity.ERROR, "DeepSpeed cannot start with it; it must be a map")
    if "boolean" in key.types:
        said = "DeepSpeed does not check it and takes it for true"
        return Outcome(_loud(subject, path), said, Fix("write true", (Assign(path, True),)))
    said = "DeepSpeed does not check it and keeps the word as the value"
    return Outcome(_loud(subject, path), said, _leaving_out(path, key, safe=False))


def removal(path: str) -> Fix:
    """The fix for a key whose default is what "auto" means."""
    return Fix(f"remove {path.rpartition('.')[2]}, its default is what is meant", (Remove(path),))


def _stops(subject: Subject, path: str, key: Key) -> str | None:
    """When DeepSpeed stops at the word, where it does for certain."""
    if path in _STOPS:
        return _STOPS[path]
    for switch, keys in _STOPS_WITH.items():
        if path in keys and counts_as_true(subject, switch):
            return keys[path]
    if path in ("prescale_gradients", "gradient_predivide_factor"):
        return _scaling(subject, path)
    if path.startswith(("optimizer.params.", "scheduler.params.")):
        ours = path.startswith("scheduler.") or subject.facts.client_optimizer in (None, "none")
        name = path.rpartition(".")[2]
        number = {"number", "integer", "array"} & set(key.types) and "boolean" not in key.types
        late = name in _LATE or (name == "lr" and schedule_hides_lr(subject))
        return _STEP if ours and (number or name in TORCH_NUMBERS) and not late else None
    return None


def _scaling(subject: Subject, path: str) -> str | None:
    scatters = subject.value("zero_optimization.reduce_scatter") is True
    if subject.stage >= 2 and scatters:
        return _INIT
    counted = path == "gradient_predivide_factor" and not (subject.stage == 1 and scatters)
    return _STEP if counted else None


def _is_metrics(path: str) -> bool:
    return path.endswith(".curriculum_metrics")


def _loud(subject: Subject, path: str) -> Severity:
    """A key that does nothing in this config is not worth more than a note."""
    return Severity.WARNING if subject.surface.has_effect(path, subject.config) is None else Severity.INFO


def _dropped(subject: Subject, path: str, key: Key) -> str:
    if path in subject.surface.sections:
        return "DeepSpeed drops it, as if the section were not there"
    if path in ("fp16.enabled", "bf16.enabled", "bfloat16.enabled"):
        return f"DeepSpeed drops it and leaves {path.partition('.')[0]} off, which means fp32 unless another is on"
    if path.endswith((".offload_optimizer.device", ".offload_param.device")):
        return "DeepSpeed drops it and offloads nothing"
    if path == "zero_optimization.stage":
        return "DeepSpeed drops it and runs stage 0, without ZeRO"
    return f"DeepSpeed drops it and uses its default, {_number(key.default)}"


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else say(value)


def _instead_of_dropped(subject: Subject, path: str, key: Key) -> Fix | None:
    """Removing what is dropped changes nothing; of a precision that was to be on, the person decides."""
    section = path.partition(".")[0]
    if path in ("fp16.enabled", "bf16.enabled", "bfloat16.enabled"):
        if section == "fp16" and subject.raw("bf16.enabled") in (AUTO, True):
            return Fix("write false", (Assign(path, False),))
        return Fix("write true", (Assign(path, True),), safe=False)
    if path == "zero_optimization.stage":
        return None
    return _leaving_out(path, key, safe=True)


def _leaving_out(path: str, key: Key, *, safe: bool) -> Fix | None:
    name = path.rpartition(".")[2]
    if not safe and (key.default is None or name in _NO_GUESS):
        return None
    return Fix(f"remove {name}", (Remove(path),), safe=safe)
