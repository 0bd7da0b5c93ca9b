"""The Hugging Face Trainer: TrainingArguments fill in "auto" and must agree with what the config fixes.

Read in transformers 5.23.0: integrations/deepspeed.py (`HfTrainerDeepSpeedConfig`, `deepspeed_optim_sched`) and
training_args.py; what follows goes through Accelerate (`hf_accelerate`), since transformers 4.30.

- `trainer_config_process` replaces "auto" of the batch, clipping, optimizer, schedule and precision keys, and collects
  every other value that differs from its argument; `trainer_config_finalize`, once the model is there, those of the
  buckets (from hidden_size; at stage 3 all three, below it Accelerate does the rest) and of the schedule's steps, and
  then raises one ValueError for all differences.
- A key that is absent stays absent: the batch size is not added.
- Without `optimizer` it makes its own (AdamW) and sets `zero_allow_untested_optimizer`; its own schedule likewise.
"""

from __future__ import annotations

from dsgen.targets.hf_accelerate import ACCELERATE, BUCKETS, ENDLESS, FLAT, SETTLED
from dsgen.targets.target import Target

__all__ = ["HF_TRAINER"]

_MATCHED = {
    "train_micro_batch_size_per_gpu": "per_device_train_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "train_batch_size": "per_device_train_batch_size x gradient_accumulation_steps x GPUs",
    "gradient_clipping": "max_grad_norm",
    "optimizer.params.lr": "learning_rate",
    "optimizer.params.betas": "adam_beta1 and adam_beta2",
    "optimizer.params.eps": "adam_epsilon",
    "optimizer.params.weight_decay": "weight_decay",
    "scheduler.params.warmup_max_lr": "learning_rate",
    "scheduler.params.warmup_num_steps": "warmup_steps",
    "scheduler.params.total_num_steps": "the number of training steps",
    "fp16.enabled": "fp16",
    "bf16.enabled": "bf16",
}

HF_TRAINER = Target(
    name="hf-trainer",
    title="the Hugging Face Trainer",
    strict_json=True,
    brings_optimizer=True,
    brings=ACCELERATE.brings,
    filled=BUCKETS | set(_MATCHED) | {"scheduler.params.warmup_min_lr"},
    settled={**SETTLED, **FLAT},
    overwritten=ENDLESS,
    matched=_MATCHED,
    needed=ACCELERATE.needed,
    takes_every_auto=False,
)
