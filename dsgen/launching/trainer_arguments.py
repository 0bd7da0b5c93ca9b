"""What the Hugging Face Trainer must be told for its arguments to agree with the config, as options of its script."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.deepspeed.keys import lookup
from dsgen.planning.lengths import schedule
from dsgen.rendering import Config

__all__ = ["trainer_arguments"]

# Key of the config -> the option of TrainingArguments that must say the same (dsgen.targets.hf_trainer, `matched`).
_OPTIONS = {
    "train_micro_batch_size_per_gpu": "--per_device_train_batch_size",
    "gradient_accumulation_steps": "--gradient_accumulation_steps",
    "gradient_clipping": "--max_grad_norm",
    "optimizer.params.lr": "--learning_rate",
    "optimizer.params.eps": "--adam_epsilon",
    "optimizer.params.weight_decay": "--weight_decay",
    "scheduler.params.warmup_num_steps": "--warmup_steps",
}
_PRECISIONS = ("bf16", "fp16")


def trainer_arguments(config: Config) -> tuple[str, ...]:
    """The options, in the order of TrainingArguments."""
    return tuple(_arguments(config))


def _arguments(config: Config) -> Iterator[str]:
    tree, plan = config.tree, config.plan
    for path, option in _OPTIONS.items():
        value = lookup(tree, path)[1]
        if value not in (None, "auto"):
            yield from (option, str(value))
    betas = lookup(tree, "optimizer.params.betas")[1]
    if isinstance(betas, list):
        yield from ("--adam_beta1", str(betas[0]), "--adam_beta2", str(betas[1]))
    for precision in _PRECISIONS:
        if lookup(tree, f"{precision}.enabled")[1] is True:
            yield from (f"--{precision}", "True")
    if plan.chosen.strategy.checkpointing:
        yield from ("--gradient_checkpointing", "True")
    steps = schedule(plan.job, plan.chosen.strategy).total_steps
    if steps:
        yield from ("--max_steps", str(steps))
