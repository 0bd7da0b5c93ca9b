"""Names of an optimizer, as programs have them: in any case of letters, and those of the Trainer's `optim`.

Read in transformers 5.23 (training_args.py, OptimizerNames, and trainer_optimizer.py) and bitsandbytes 0.50.2
(optim/optimizer.py, get_state_buffer): a paged optimizer has its states of 100,000 elements and more in CUDA's managed
memory, which stays on the GPU as long as there is room.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["is_paged", "meant"]

_PAGED = "paged_"
_PAGEABLE = ("adamw", "adamw_32bit", "adamw_8bit", "lion_32bit")
_OURS = ("AdamW", "Adam", "Lion", "Adagrad", "SGD", "Muon", "AdamW8bit")
_NAMES: Mapping[str, str] = {
    **{name.lower(): name for name in _OURS},
    **dict.fromkeys(("adamw_torch", "adamw_torch_fused", "adamw_hf", "adamw_32bit"), "AdamW"),
    **dict.fromkeys(("adamw_8bit", "adamw_bnb_8bit"), "AdamW8bit"),
    "lion_32bit": "Lion",
}


def meant(name: Any) -> str | None:
    """The optimizer that a name means, by the name that a wish has; None where it means none of them."""
    if not isinstance(name, str):
        return None
    plain = _plain(name)
    own = plain.removeprefix(_PAGED)
    return _NAMES.get(own) if own == plain or own in _PAGEABLE else None


def is_paged(name: Any) -> bool:
    """Whether a name is of a paged optimizer that is known."""
    return meant(name) is not None and _plain(name).startswith(_PAGED)


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")
