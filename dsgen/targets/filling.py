"""What a training program fills into a config before DeepSpeed sees it: "auto", and the optimizer it brings."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from dsgen import targets
from dsgen.deepspeed.keys import lookup

__all__ = ["Filled", "fill"]

# Defaults of TrainingArguments, transformers 5.23, training_args.py.
_TRAINER_BATCH = 8  # per_device_train_batch_size
_TRAINER_LR = 5e-5  # learning_rate
_LEAST_WARMUP = 1  # of no warmup_steps: the Trainer and Accelerate fill in max(1, ...) since DeepSpeed refuses 0
_TRAINER_BETAS = (0.9, 0.999)  # adam_beta1, adam_beta2
_TRAINER_EPS = 1e-8  # adam_epsilon
_CLIPPING = 1.0  # max_grad_norm, and Accelerate's own
_SCHEDULE_STEPS = 1000  # stands for the training's length, which no memory depends on

_MICRO, _STEPS, _TRAIN = "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size"
_ZERO = "zero_optimization"
_TORCH = "torch_adam"


@attrs.frozen
class Filled:
    """One key that the program fills in: its value here, and why that one."""

    key: str
    value: Any
    why: str


@attrs.frozen(kw_only=True)
class _Known:
    """What the values hang on."""

    micro_batch: int
    accumulation: int
    world: int
    precision: str
    hidden: int | None
    batch_said: bool
    accumulation_said: bool
    precision_said: bool


def fill(
    config: Mapping[str, Any],
    *,
    target: str,
    world_size: int,
    hidden_size: int | None,
    micro_batch: int | None = None,
    accumulation: int | None = None,
    precision: str | None = None,
    foreach: bool = False,
) -> tuple[dict[str, Any], tuple[Filled, ...]]:
    """The config as the program hands it to DeepSpeed, and what was filled in.

    Args:
        config: As written; not changed.
        target: The program.
        world_size: GPUs in all.
        hidden_size: Of the model; None where its config.json has none.
        micro_batch: Sequences per GPU and forward pass, for "auto"; None is the Trainer's default.
        accumulation: Forward passes per optimizer step, for "auto".
        precision: bf16, fp16 or fp32, for "auto"; None is bf16.
        foreach: The AdamW that the program brings for a config without one is torch's foreach one; on the CPU it is
            DeepSpeed's all the same.
    """
    program = targets.find(target)
    used = copy.deepcopy(dict(config))
    known = _Known(
        micro_batch=micro_batch or _TRAINER_BATCH,
        accumulation=accumulation or 1,
        world=world_size,
        precision=precision or "bf16",
        hidden=hidden_size,
        batch_said=micro_batch is not None,
        accumulation_said=accumulation is not None,
        precision_said=precision is not None,
    )
    done: list[Filled] = []
    for path, settled in program.filled_in(config, {}).items():
        own = settled, f"{program.title}'s default"
        value, why = _value(path, known, used) if settled is targets.OPEN else own
        if why:
            _put(used, path, value)
            done.append(Filled(path, value, why))
    if program.brings_batch and all(used.get(key) is None for key in (_MICRO, _TRAIN)):
        used[_MICRO] = known.micro_batch
        done.append(Filled(_MICRO, known.micro_batch, _source(known.batch_said, "--micro-batch")))
    if "optimizer" not in used:
        of_torch = foreach and lookup(used, f"{_ZERO}.offload_optimizer.device")[1] in (None, "none")
        used["optimizer"] = {"type": "AdamW", "params": {"lr": _TRAINER_LR, **({_TORCH: True} if of_torch else {})}}
        done.append(Filled("optimizer.type", "AdamW", "the config names no optimizer, so the program brings one"))
        if of_torch:
            done.append(Filled(f"optimizer.params.{_TORCH}", True, "it is torch's, in the foreach way (--no-foreach)"))
    return used, tuple(done)


def _source(said: bool, option: str) -> str:
    return option if said else f"the Trainer's default; {option} says another"


def _value(path: str, known: _Known, used: Mapping[str, Any]) -> tuple[Any, str]:
    """A key's value and why; no reason where the word stays, because nothing is known for it."""
    if path.startswith(f"{_ZERO}."):
        return _bucket(path, known)
    table: dict[str, Callable[[], tuple[Any, str]]] = {
        _MICRO: lambda: (known.micro_batch, _source(known.batch_said, "--micro-batch")),
        _STEPS: lambda: (known.accumulation, _source(known.accumulation_said, "--accumulation")),
        _TRAIN: lambda: _train_batch(known, used),
        "bf16.enabled": lambda: (known.precision == "bf16", _precision(known)),
        "fp16.enabled": lambda: (known.precision == "fp16", _precision(known)),
    }
    if path in table:
        return table[path]()
    default: Any = {
        "gradient_clipping": _CLIPPING,
        "optimizer.params.lr": _TRAINER_LR,
        "optimizer.params.betas": list(_TRAINER_BETAS),
        "optimizer.params.eps": _TRAINER_EPS,
        "optimizer.params.weight_decay": 0.0,
        "scheduler.params.warmup_min_lr": 0,
        "scheduler.params.warmup_max_lr": _TRAINER_LR,
        "scheduler.params.warmup_num_steps": _LEAST_WARMUP,
        "scheduler.params.total_num_steps": _SCHEDULE_STEPS,
        "steps_per_print": 2**31,
    }.get(path)
    return default, "" if default is None else "the Trainer's default; no memory depends on it"


def _precision(known: _Known) -> str:
    return "--precision" if known.precision_said else "bf16 unless --precision says another"


def _train_batch(known: _Known, used: Mapping[str, Any]) -> tuple[int, str]:
    """The Trainer's product; AutoTP does not change it."""
    sizes = [used.get(key) for key in (_MICRO, _STEPS)]
    micro = sizes[0] if isinstance(sizes[0], int) else known.micro_batch
    steps = sizes[1] if isinstance(sizes[1], int) else known.accumulation
    return micro * steps * known.world, f"micro-batch {micro} x {steps} x {known.world} GPUs"


def _bucket(path: str, known: _Known) -> tuple[Any, str]:
    """The sizes that transformers and Accelerate take from hidden_size (integrations/deepspeed.py)."""
    hidden = known.hidden
    sizes = {} if hidden is None else {
        "reduce_bucket_size": (hidden * hidden, "hidden_size squared"),
        "stage3_prefetch_bucket_size": (int(0.9 * hidden * hidden), "0.9 x hidden_size squared"),
        "stage3_param_persistence_threshold": (10 * hidden, "10 x hidden_size"),
    }  # fmt: skip
    return sizes.get(path.removeprefix(f"{_ZERO}."), (None, ""))


def _put(config: dict[str, Any], path: str, value: Any) -> None:
    section, _, name = path.rpartition(".")
    there, node = lookup(config, section) if section else (True, config)
    if there and isinstance(node, dict):
        node[name] = value
