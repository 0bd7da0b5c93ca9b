"""How a model runs on one GPU, as far as activations ask, and the weights and layers that this makes."""

from __future__ import annotations

import attrs

from dsgen.memory.activations import operators as op
from dsgen.memory.activations.products import layer_norm, linear
from dsgen.memory.activations.tape import Size, Tape, Tensor
from dsgen.profiles import Model

__all__ = ["Setting"]


@attrs.frozen
class Setting:
    """How a model runs on one GPU.

    Attributes:
        model: The architecture.
        item: Bytes of an element of weights and hidden states.
        eager: Attention keeps the matrix of scores; else a fused kernel does not.
        tp: AutoTP degree.
        method: full, lora or qlora.
        seq_len: Tokens of a sequence.
    """

    model: Model
    item: int
    eager: bool
    tp: int
    method: str
    seq_len: int

    @property
    def rows(self) -> Size:
        """Rows of the hidden states: the tokens of every sequence."""
        return 0, self.seq_len

    @property
    def hidden(self) -> int:
        """Width of the residual stream."""
        return self.model.hidden_size

    @property
    def heads(self) -> int:
        """Query heads on this GPU."""
        return max(1, self.model.attention_heads // self.tp)

    @property
    def kv_heads(self) -> int:
        """Key and value heads on this GPU."""
        return max(1, self.model.kv_heads // self.tp)

    @property
    def ffn(self) -> int:
        """Inner width of the dense feed-forward part on this GPU."""
        return self.model.ffn_size // self.tp

    def table(self, width: int, item: int | None = None) -> Tensor:
        """A table with a row for every position, made once for all blocks and counted there."""
        return Tensor((self.seq_len, 0), width, item or self.item, None)

    def weight(self, elements: int) -> Tensor:
        """A weight of the model itself."""
        return op.weight(elements, self.item, self.method == "full")

    def linear(self, tape: Tape, hidden: Tensor, out: int, *, bias: bool = False) -> Tensor:
        """nn.Linear."""
        return linear(tape, hidden, self.weight(hidden.width * out), out, self.weight(out) if bias else None)

    def layer_norm(self, tape: Tape, hidden: Tensor) -> Tensor:
        """nn.LayerNorm."""
        return layer_norm(tape, hidden, self.weight(hidden.width), self.weight(hidden.width))
