# Written by dsgen: TrainingArguments of this config.

from typing import Any

from transformers import TrainingArguments


def training_args(kind: type = TrainingArguments, **others: Any) -> Any:
    """The arguments; make them before the model is loaded, so that ZeRO-3 can share it out as it is read.

    `kind` may be a class that adds arguments of its own, as TRL's SFTConfig; `others` win.
    """
    arguments: dict[str, Any] = {
        "output_dir": "output",
        "deepspeed": "ds_config.json",
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 8,
        "per_device_eval_batch_size": 8,
        "learning_rate": 0.0002,
        "weight_decay": 0.0,
        "adam_beta1": 0.9,
        "adam_beta2": 0.999,
        "adam_epsilon": 1e-08,
        "max_grad_norm": 0.3,
        "lr_scheduler_type": "cosine_with_min_lr",
        "lr_scheduler_kwargs": {"min_lr_rate": 0.1},
        "warmup_steps": 15,
        "max_steps": 500,
        "bf16": True,
        "fp16": False,
        "gradient_checkpointing": True,
        "gradient_checkpointing_kwargs": {"use_reentrant": False},
        "use_liger_kernel": True,
        "logging_steps": 10,
    }
    return kind(**{**arguments, **others})
