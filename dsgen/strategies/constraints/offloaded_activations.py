"""What is not counted of activations that wait in the node's RAM."""

from __future__ import annotations

from dsgen.jobs.releases import reenters
from dsgen.strategies.constraints.constraint import Constraint
from dsgen.strategies.constraints.setup import Setup

__all__ = ["ACTIVATION_OFFLOADING"]

_GATHERS = 3  # the stage that gathers parameters
_SOURCE = "docs/memory-agreement.md: what was held against the simulation"


def _reenters(at: Setup) -> bool:
    wishes = at.training
    if not wishes.activation_offloading or wishes.reentrant or at.stage is None or not at.version:
        return wishes.activation_offloading and wishes.reentrant is True
    return reenters(wishes, at.stage, at.version)


ACTIVATION_OFFLOADING = (
    Constraint(
        code="activation-offloading-reentrant",
        about="activation_offloading",
        by="dsgen",
        stops=False,
        condition=_reenters,
        reason="not counted: activation offloading beside reentrant checkpointing, which moves all that a block keeps"
        " when it runs again to RAM and back",
        source="torch/utils/checkpoint.py (2.13): CheckpointFunction.backward runs forward under the same hooks",
        todo="Recompute by the other kind (use_reentrant: false, --no-reentrant), or keep activations on the GPU.",
    ),
    Constraint(
        code="activation-offloading-of-adapters-at-stage-3",
        about="stage",
        by="dsgen",
        stops=False,
        condition=lambda at: (
            at.training.activation_offloading and at.adapters and at.stage == _GATHERS and not _reenters(at)
        ),
        reason="not counted: activation offloading of adapters at stage 3, where TRL recomputes by the reentrant kind,"
        " which moves all that a block keeps when it runs again to RAM and back",
        source="trl/trainer/sft_trainer.py (1.16): use_reentrant is True for a PeftModel at stage 3",
        todo="Train them at stage 2, or keep activations on the GPU.",
    ),
    Constraint(
        code="activation-offloading-with-autotp",
        about="tp",
        by="dsgen",
        stops=False,
        condition=lambda at: at.training.activation_offloading and at.tp > 1,
        reason="not counted: AutoTP over {at.tp} GPUs beside activation offloading",
        source=_SOURCE,
        todo="Leave one of the two out.",
    ),
    Constraint(
        code="activation-offloading-of-encoder",
        about="activation_offloading",
        by="dsgen",
        stops=False,
        condition=lambda at: at.training.activation_offloading and at.encoder,
        reason="not counted: activation offloading of {at.architecture}, a decoder behind an encoder",
        source=_SOURCE,
        todo="Keep activations on the GPU.",
    ),
)
