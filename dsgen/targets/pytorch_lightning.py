"""Lightning: DeepSpeedStrategy(config=...) of lightning.pytorch; it replaces no "auto".

Read in lightning 2.6.6: pytorch/strategies/deepspeed.py and fabric/strategies/deepspeed.py (`_load_config`: json.load).

- `gradient_accumulation_steps` in the config raises MisconfigurationException; accumulate_grad_batches says it.
- Where absent it adds `train_micro_batch_size_per_gpu` (from the data loader, else 1), `gradient_clipping`
  (gradient_clip_val, else 0.0: no clipping) and the section of the Trainer's precision.
- With `optimizer` in the config, `configure_optimizers` is not asked; without it the module's optimizer goes along.
- It calls `checkpointing.configure` itself when the config has `activation_checkpointing`.
- Lightning Fabric neither refuses the accumulation nor fills in clipping.
"""

from __future__ import annotations

from dsgen.targets.target import Target

__all__ = ["LIGHTNING"]

LIGHTNING = Target(
    name="lightning",
    title="Lightning",
    strict_json=True,
    brings_optimizer=True,
    brings_batch=True,
    brings=frozenset(
        ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping", "fp16", "bf16")
    ),
    refused={"gradient_accumulation_steps": "accumulate_grad_batches of the Lightning Trainer"},
)
