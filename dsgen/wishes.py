"""DeepSpeed keys that say what a wish says too: the wish follows them, so that the rest of the config agrees."""

from __future__ import annotations

from typing import Any

from dsgen.layers import Provenance, Rank

__all__ = ["follow"]

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
