"""A scenario whose config keeps an "auto", as one does that was adopted: what the Trainer fills in for its plan."""

from __future__ import annotations

from typing import Any

import attrs

from dsgen.jobs.releases import brings_foreach
from dsgen.rendering import Config
from dsgen.targets.filling import Filled, fill
from dsgen.targets.hf_trainer import HF_TRAINER

__all__ = ["filled_in"]

# Keys that a plan says, where a config of its own has options for them.
_OF_PLAN = ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "bf16.enabled", "fp16.enabled")
_WHY = "as the scenario says, or its plan"


def filled_in(rendered: Config) -> tuple[dict[str, Any], tuple[Filled, ...]]:
    """The config as DeepSpeed gets it, and what was filled in: nothing into one without an "auto"."""
    config = rendered.to_dict()
    if not HF_TRAINER.filled_in(config, {}):
        return config, ()
    job, chosen = rendered.plan.job, rendered.plan.chosen.strategy
    used, filled = fill(
        config,
        target=HF_TRAINER.name,
        world_size=job.world,
        hidden_size=job.model.hidden_size,
        micro_batch=chosen.micro_batch,
        accumulation=chosen.accumulation,
        precision=chosen.precision,
        foreach=brings_foreach(True, job.training),
    )
    return used, tuple(attrs.evolve(one, why=_WHY) if one.key in _OF_PLAN else one for one in filled)
