"""What is refused of the wishes for a model, whatever the strategy: no layout mends it."""

from __future__ import annotations

from dsgen.families import family_of
from dsgen.strategies.buffers import EIGHT_BITS
from dsgen.strategies.constraints.adapters import ADAPTERS
from dsgen.strategies.constraints.constraint import Constraint
from dsgen.strategies.constraints.encoders import ENCODER_WISHES
from dsgen.strategies.constraints.setup import Setup

__all__ = ["WISHES"]


def _too_long(at: Setup) -> bool:
    model = at.model
    return model is not None and family_of(model).learned_positions and (at.training.seq_len or 0) > model.max_positions


WISHES = (
    Constraint(
        code="no-muon",
        about="optimizer",
        by="deepspeed",
        stops=True,
        condition=lambda at: at.training.optimizer == "Muon",
        reason="DeepSpeed {at.version} has no Muon; 0.17.6 is the first release that has it",
        source="DeepSpeed releases: Muon came with 0.17.6; the schema of line 0.17 does not tell 0.17.5 apart",
        until="0.17.6",
    ),
    Constraint(
        code="8-bit-states-elsewhere",
        about="optimizer",
        by="hardware",
        stops=True,
        condition=lambda at: (
            at.training.optimizer == EIGHT_BITS and at.hardware is not None and at.hardware.vendor == "intel"
        ),
        reason="bitsandbytes has no optimizers in 8 bits for Gaudi",
        source="bitsandbytes 0.50.2: backends/hpu/ops.py has 4-bit weights alone",
    ),
    Constraint(
        code="learned-positions",
        about="seq_len",
        by="transformers",
        stops=True,
        condition=_too_long,
        reason="{at.architecture} has learned positions for {at.model.max_positions} tokens and no more",
        source="transformers 5.23, models/gpt2/modeling_gpt2.py: wpe; a run on a CPU ends with IndexError",
    ),
    *ADAPTERS,
    *ENCODER_WISHES,
)
