"""The programs that load a config and what each does to it before DeepSpeed sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dsgen.deepspeed.keys import lookup
from dsgen.shapes.errors import mistake, nearest
from dsgen.shapes.near_misses import offer
from dsgen.targets.hf_accelerate import ACCELERATE
from dsgen.targets.hf_trainer import HF_TRAINER
from dsgen.targets.plain_deepspeed import PLAIN_DEEPSPEED
from dsgen.targets.pytorch_lightning import LIGHTNING
from dsgen.targets.target import AUTO, OPEN, Target

__all__ = ["AUTO", "OPEN", "TARGETS", "Target", "find", "guess"]

TARGETS = (PLAIN_DEEPSPEED, HF_TRAINER, ACCELERATE, LIGHTNING)


def find(name: str) -> Target:
    """A target by its name.

    Raises:
        DsgenError: No such target.
    """
    for target in TARGETS:
        if target.name == name:
            return target
    names = [target.name for target in TARGETS]
    close = nearest(name, names)
    raise mistake(
        f"no target {name!r}",
        must=f"it must be one of {', '.join(names)}",
        todo=offer(close[:1]),
        code="unknown-name",
    )


def guess(config: Any) -> Target:
    """The target a config was written for: the Trainer where it says "auto" for what the Trainer fills in."""
    said = isinstance(config, Mapping) and any(lookup(config, path)[1] == AUTO for path in sorted(HF_TRAINER.filled))
    return HF_TRAINER if said else PLAIN_DEEPSPEED
