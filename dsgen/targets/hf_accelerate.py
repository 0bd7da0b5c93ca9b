"""Hugging Face Accelerate: its DeepSpeedPlugin and `prepare()` stand before DeepSpeed, in the Trainer's case too.

Read in accelerate 1.15.0: utils/deepspeed.py (`HfDeepSpeedConfig`: json.load, else JSON text, else base64 of JSON),
utils/dataclasses.py (`DeepSpeedPlugin`), accelerator.py (`_prepare_deepspeed`).

- The plugin refuses a config without `zero_optimization`, adds `gradient_accumulation_steps: 1`, sets
  `steps_per_print` to infinity, adds the sections `fp16` and `bf16`, and replaces "auto" for the keys that its launcher
  has options for; without such an option by the values of SETTLED.
- `prepare()` takes the micro-batch from the data loader it is given (and refuses "auto" without one), the learning rate
  and weight decay from DummyOptim, the schedule from DummyScheduler, the buckets from the model's hidden_size (at every
  stage; it refuses their "auto" for a model without one), and 1.0 for `gradient_clipping`.
- Any other "auto" in a map is refused there ("not found in kwargs"), the words that DeepSpeed itself knows among them.
- An optimizer of torch beside `optimizer` in the config, DummyOptim without it, and the same of schedules are refused:
  that is the program's matter, no config shows it.
"""

from __future__ import annotations

import math

from dsgen.targets.target import Target

__all__ = ["ACCELERATE", "BUCKETS", "ENDLESS", "FLAT", "SETTLED"]

BUCKETS = frozenset(
    f"zero_optimization.{name}"
    for name in ("reduce_bucket_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold")
)
# DeepSpeedPlugin's defaults where no environment variable of `accelerate launch` says otherwise.
SETTLED = {
    "zero_optimization.stage": 2,
    "zero_optimization.offload_optimizer.device": "none",
    "zero_optimization.offload_param.device": "none",
    "zero_optimization.offload_optimizer.nvme_path": "none",
    "zero_optimization.offload_param.nvme_path": "none",
    "zero_optimization.stage3_gather_16bit_weights_on_model_save": False,
}
FLAT = {"scheduler.params.warmup_min_lr": 0}  # where a warm-up begins: no argument says it
ENDLESS = {"steps_per_print": math.inf}

ACCELERATE = Target(
    name="accelerate",
    title="Accelerate",
    strict_json=True,
    brings_optimizer=True,
    brings=frozenset(("gradient_accumulation_steps", "fp16", "bf16")),
    filled=BUCKETS
    | {
        "train_batch_size",
        "train_micro_batch_size_per_gpu",
        "gradient_accumulation_steps",
        "gradient_clipping",
        "optimizer.params.lr",
        "optimizer.params.weight_decay",
        "scheduler.params.warmup_min_lr",
        "scheduler.params.warmup_max_lr",
        "scheduler.params.warmup_num_steps",
        "scheduler.params.total_num_steps",
        "fp16.enabled",
        "bf16.enabled",
    },
    settled={**SETTLED, **FLAT},
    shared=frozenset(("optimizer.params.betas", "optimizer.params.eps")),
    overwritten=ENDLESS,
    needed=("zero_optimization",),
    takes_every_auto=False,
)
