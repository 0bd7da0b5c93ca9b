"""TrainingArguments of the Hugging Face Trainer that belong to a config, and the keys that it fills in from them.

Read in transformers 5.23.0: training_args.py, and integrations/deepspeed.py (`HfTrainerDeepSpeedConfig`), which sets
"auto" by an argument and refuses a value that differs from it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from dsgen.deepspeed.keys import lookup
from dsgen.frameworks import recomputation
from dsgen.frameworks.between_steps import evaluated
from dsgen.frameworks.job_files import Argument
from dsgen.memory.evaluating import TRAINER_SEQUENCES
from dsgen.planning.lengths import schedule
from dsgen.rendering import Config
from dsgen.rendering.training import COSINE_FLOOR
from dsgen.shapes.profiles import Training
from dsgen.strategies.buffers import EIGHT_BITS
from dsgen.targets.hf_trainer import HF_TRAINER

__all__ = ["autos", "in_numbers", "resolved", "training_arguments", "with_autos"]

_LIGERS = ("rope", "rms_norm", "swiglu", "geglu")  # arguments of Liger's apply_liger_kernel_to_*; it drops unknown ones
# DeepSpeed's schedule -> lr_scheduler_type that falls alike, and the key of where it ends.
_SCHEDULES: Mapping[str, tuple[str, str]] = {
    "WarmupLR": ("constant_with_warmup", ""),
    "WarmupDecayLR": ("linear", ""),
    "WarmupCosineLR": ("cosine_with_min_lr", "cos_min_ratio"),
}


def training_arguments(config: Config) -> tuple[Argument, ...]:
    """The arguments that say what the config says, and what the plan wants of the Trainer itself."""
    return tuple(_arguments(config))


def _arguments(config: Config) -> Iterator[Argument]:
    tree, job, chosen = config.tree, config.plan.job, config.plan.chosen.strategy

    def said(key: str, default: Any) -> Any:
        value = lookup(tree, key)[1]
        return default if value is None or value == "auto" else value

    wishes = job.training
    micro, steps = "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
    yield Argument("per_device_train_batch_size", said(micro, chosen.micro_batch), "sequences", micro)
    yield Argument(steps, said(steps, chosen.accumulation), "forward passes of an optimizer step", steps)
    yield from _evaluated(config)
    rate = "optimizer.params.lr"
    yield Argument("learning_rate", said(rate, wishes.lr), "peak", _there(config, rate))
    decay, betas, eps = (f"optimizer.params.{name}" for name in ("weight_decay", "betas", "eps"))
    yield Argument("weight_decay", said(decay, wishes.weight_decay), "", _there(config, decay))
    beta1, beta2 = said(betas, (wishes.beta1, wishes.beta2))
    yield Argument("adam_beta1", beta1, "", _there(config, betas))
    yield Argument("adam_beta2", beta2, "", _there(config, betas))
    yield Argument("adam_epsilon", said(eps, wishes.eps), "", _there(config, eps))
    clipping = "gradient_clipping"
    yield Argument("max_grad_norm", said(clipping, wishes.gradient_clipping), "", _there(config, clipping))
    yield from _schedule(config)
    for name in ("bf16", "fp16"):
        key = f"{name}.enabled"
        yield Argument(name, bool(said(key, False)), "", _there(config, key))
    yield Argument(
        "gradient_checkpointing",
        chosen.checkpointing,
        "no DeepSpeed key does it" if chosen.checkpointing else "it fits without, and is faster",
    )
    if chosen.checkpointing:
        kind = recomputation.kind_arguments(config.plan)
        yield Argument("gradient_checkpointing_kwargs", kind, recomputation.reason(config.plan))
    if wishes.optimizer == EIGHT_BITS and not tree.get("optimizer"):
        yield Argument("optim", "adamw_8bit", "its states in 8 bits: pip install bitsandbytes")
    yield from _liger(wishes)
    yield Argument("logging_steps", wishes.steps_per_print, "Accelerate turns off steps_per_print of the config")


def _liger(wishes: Training) -> Iterator[Argument]:
    """Liger's loss, or its other kernels, of which the Trainer takes all where nobody says less."""
    install = "pip install liger-kernel"
    if wishes.chunked_loss:
        yield Argument("use_liger_kernel", True, f"a loss that never holds all logits: {install}")
    elif wishes.liger_kernels:
        yield Argument("use_liger_kernel", True, f"Liger's SwiGLU, norms and RoPE: {install}")
        yield Argument("liger_kernel_config", {"fused_linear_cross_entropy": False}, "the loss holds all logits")
    if wishes.chunked_loss and wishes.liger_kernels is False:
        yield Argument("liger_kernel_config", dict.fromkeys(_LIGERS, False), "Liger's loss alone")


def _evaluated(config: Config) -> Iterator[Argument]:
    """As many sequences an evaluation's batch as the Trainer takes of itself, if so many surely fit."""
    batch = evaluated(config.plan.job, config.plan.chosen.strategy)
    if batch is None:
        return
    reason = "sequences; it fits beside the states"
    if batch.sequences < TRAINER_SEQUENCES:
        rounded = f"a power of two; beside the states of training {batch.most} surely fit"
        alone = "beside the states of training no more surely fit"
        reason = f"sequences; {rounded if batch.most > batch.sequences else alone}"
    if not batch.most:
        reason = "sequences; beside the states of training not even one surely fits"
    yield Argument("per_device_eval_batch_size", batch.sequences, reason)


def _there(config: Config, key: str) -> str:
    """The key, where the config has it."""
    return key if lookup(config.tree, key)[0] else ""


def _schedule(config: Config) -> Iterator[Argument]:
    """The schedule's arguments. DeepSpeed's runs where the config has one; they say the same where it has none."""
    scheduler = config.tree.get("scheduler") or {}
    params = {key: value for key, value in scheduler.get("params", {}).items() if value != "auto"}
    planned = schedule(config.plan.job, config.plan.chosen.strategy)
    kind, floor = _SCHEDULES.get(scheduler.get("type", ""), ("constant", ""))
    if scheduler or planned.kind != "program":  # its own is not written over
        yield Argument("lr_scheduler_type", kind, f"{scheduler['type']} of the config runs" if scheduler else "")
        if floor:
            yield Argument("lr_scheduler_kwargs", {"min_lr_rate": params.get(floor, COSINE_FLOOR)})
        warmup = "scheduler.params.warmup_num_steps"
        steps = params.get("warmup_num_steps", planned.warmup_steps if scheduler else 0)
        yield Argument("warmup_steps", steps, "optimizer steps", _there(config, warmup))
    total = params.get("total_num_steps", planned.total_steps)
    if total is not None:
        key = _there(config, "scheduler.params.total_num_steps")
        yield Argument("max_steps", total, "optimizer steps of the whole run", key)


def autos(config: Config) -> dict[str, Any]:
    """Keys that the Trainer fills in from its arguments -> the value that it fills in, which is the config's own.

    Where its value would be another the config keeps its number: so it does for the buckets, which the Trainer makes of
    hidden_size alone and a plan of the links and the memory that is left.
    """
    filled = _filled(config)
    return {
        key: filled[key]
        for key in sorted(HF_TRAINER.filled & filled.keys())
        if lookup(config.tree, key)[0] and lookup(config.tree, key)[1] in ("auto", filled[key])
    }


def _filled(config: Config) -> dict[str, Any]:
    """What the Trainer computes for a key from `training_arguments` and the GPUs of the job."""
    said = {item.name: item.value for item in training_arguments(config)}
    micro, steps = said["per_device_train_batch_size"], said["gradient_accumulation_steps"]
    values = {
        "train_micro_batch_size_per_gpu": micro,
        "gradient_accumulation_steps": steps,
        "train_batch_size": micro * steps * config.plan.job.world,
        "gradient_clipping": said["max_grad_norm"],
        "optimizer.params.lr": said["learning_rate"],
        "optimizer.params.betas": [said["adam_beta1"], said["adam_beta2"]],
        "optimizer.params.eps": said["adam_epsilon"],
        "optimizer.params.weight_decay": said.get("weight_decay", 0.0),
        "scheduler.params.warmup_min_lr": 0,
        "scheduler.params.warmup_max_lr": said["learning_rate"],
        "scheduler.params.warmup_num_steps": max(1, said.get("warmup_steps", 0)),
        "fp16.enabled": said["fp16"],
        "bf16.enabled": said["bf16"],
    }
    if "max_steps" in said:
        values["scheduler.params.total_num_steps"] = said["max_steps"]
    return values


def in_numbers(config: Config) -> dict[str, Any]:
    """The config with a number also where a person wrote an "auto" that the Trainer fills in."""
    tree = copy.deepcopy(config.tree)
    for key, value in _filled(config).items():
        if lookup(tree, key)[1] == "auto":
            _put(tree, key, value)
    return tree


def resolved(config: Config) -> dict[str, Any]:
    """The config in numbers as Accelerate takes it, under the Trainer too.

    It lacks keys that are overwritten whatever they say, and has the section without which there is a ValueError.
    """
    return HF_TRAINER.as_taken(in_numbers(config))


def _put(tree: dict[str, Any], key: str, value: Any) -> None:
    *parents, name = key.split(".")
    for parent in parents:
        tree = tree[parent]
    tree[name] = value


def with_autos(config: Config) -> dict[str, Any]:
    """The same with "auto" exactly where the Trainer fills in what stands there."""
    tree = resolved(config)
    for key in autos(config):
        _put(tree, key, "auto")
    return tree
