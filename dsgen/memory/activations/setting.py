"""How a model runs on one GPU, as far as activations ask, and the weights that this makes."""

from __future__ import annotations

import attrs

from dsgen.memory.activations import operators as op
from dsgen.memory.activations.tape import Size, Tensor
from dsgen.profiles import Model

__all__ = ["Setting"]


@attrs.frozen
class Setting:
    """How a model runs on one GPU.

    Attributes:
        model: The architecture.
        item: Bytes of an element of weights and hidden states.
        attention: flash, sdpa, math or eager.
        tp: AutoTP degree.
        method: full, lora or qlora.
        seq_len: Tokens of a sequence.
    """

    model: Model
    item: int
    attention: str
    tp: int
    method: str
    seq_len: int

    @property
    def rows(self) -> Size:
        """Rows of the hidden states: the tokens of every sequence."""
        return 0, self.seq_len

    def weight(self, elements: int) -> Tensor:
        """A weight of the model itself."""
        return op.weight(elements, self.item, self.method == "full")
