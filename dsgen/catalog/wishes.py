"""DeepSpeed keys that say what a wish says too: the wish follows them, so that the rest of the config agrees."""

from __future__ import annotations

from typing import Any

import attrs

from dsgen.shapes.layers import Override, Provenance, Rank
from dsgen.shapes.profiles import Training

__all__ = ["decider", "follow", "restored"]

# DeepSpeed key -> wish. A type is matched as DeepSpeed matches it: its own optimizers in any case, schedules exactly.
_FOLLOWS = {
    "optimizer.type": "optimizer",
    "optimizer.params.lr": "lr",
    "optimizer.params.weight_decay": "weight_decay",
    "scheduler.type": "scheduler",
    "scheduler.params.total_num_steps": "total_steps",
    "scheduler.params.warmup_num_steps": "warmup_steps",
    "gradient_clipping": "gradient_clipping",
}
_TYPES = {
    "optimizer": {name.lower(): name for name in ("AdamW", "Adam", "Lion", "Adagrad", "SGD", "Muon")},
    "scheduler": {name: name for name in ("WarmupLR", "WarmupDecayLR", "WarmupCosineLR")},
}


def decider(path: str, provenance: Provenance) -> Override | None:
    """The override that decides a wish (`training.lr`): its own, or that of the DeepSpeed key which it follows."""
    key = next((key for key, wish in _FOLLOWS.items() if f"training.{wish}" == path), None)
    overrides = [*provenance.history(path)[-1:], *(provenance.history(f"deepspeed.{key}")[-1:] if key else ())]
    return max(overrides, key=lambda item: item.rank, default=None)


def restored(training: Training, path: str, provenance: Provenance) -> Training:
    """The wishes as they were before a DeepSpeed key (`gradient_clipping`) decided one of them."""
    wish = _FOLLOWS.get(path)
    own = provenance.history(f"training.{wish}")
    return attrs.evolve(training, **{wish: own[-1].value}) if wish and own else training


def follow(wishes: dict[str, Any], provenance: Provenance) -> dict[str, Any]:
    """The training wishes with those changed that a DeepSpeed key of the same or a higher rank decides.

    Args:
        wishes: The `training` section of the folded tree.
        provenance: Who wrote what.
    """
    followed = dict(wishes)
    for key, wish in _FOLLOWS.items():
        history = provenance.history(f"deepspeed.{key}")
        written = provenance.history(f"training.{wish}")
        if not history or history[-1].rank <= Rank.PLAN or (written and written[-1].rank > history[-1].rank):
            continue
        value = history[-1].value
        if wish in _TYPES:
            value = _TYPES[wish].get(str(value).lower() if wish == "optimizer" else str(value))
        if value is not None:
            followed[wish] = value
    scheduler = provenance.history("deepspeed.scheduler")
    if scheduler and scheduler[-1].value is None:
        followed["scheduler"] = "none"
    return followed
