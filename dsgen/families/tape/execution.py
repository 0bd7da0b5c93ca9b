"""How a model runs on one GPU, as far as activations ask, and the weights and layers that this makes."""

from collections.abc import Callable
from typing import NamedTuple

from dsgen.families.peft import ALL_LINEAR
from dsgen.families.tape import operators as op
from dsgen.families.tape.chunked import LIGERS, chunked_loss
from dsgen.families.tape.graph import Storage
from dsgen.families.tape.moments import Size
from dsgen.families.tape.products import (
    cross_entropy,
    dequantized_linear,
    layer_norm,
    linear,
    pieces,
    sharded_cross_entropy,
    without_last,
)
from dsgen.families.tape.tape import Node, Tape, Tensor
from dsgen.shapes.profiles import Model

__all__ = ["Execution"]


class Execution(NamedTuple):
    """How a model runs on one GPU.

    Attributes:
        model: The architecture.
        item: Bytes of an element of weights and hidden states.
        eager: Attention keeps the matrix of scores; else a fused kernel does not.
        tp: AutoTP degree.
        method: full, lora or qlora.
        seq_len: Tokens of a sequence.
        norm: The norm of the family.
        rank: Rank of the adapters.
        targets: Names of the modules that get one, without what comes before their last point.
        zero3: The model was made under zero.Init (stage 3), whose linear layers always keep their input, and after
            which adapters stay in fp32.
        chunked: The loss never holds all logits.
        asks: Checkpointing lets the output of frozen embeddings ask for a gradient.
        single: The micro-batch is one sequence.
        drops: Adapters drop elements of their input.
        embeddings: Copies of embedding and head are trained beside adapters.
        narrow: Adapters are in 16 bits whatever made the model: peft was told so, or DeepSpeed cast them.
        sdpa: The fused kernel is torch's, which is told of a mask that is not the causal one.
        masked: It gets a mask.
        grouped: No fused kernel takes grouped queries, and all scores are computed where it gets none.
        windowed: It gets one in blocks with a window alone, which the sequence reaches.
        clamps: What goes between the parts of a block is cut to the range of fp16 (T5).
        source_len: Tokens of the sequence whose encoding a decoder attends to.
        quantized: Linear layers of blocks hold 4-bit weights.
        direct: Blocks multiply by their weights without torch's linear function, which zero.Init replaces.
        turned: Linear layers of blocks hold their weight as (inputs, outputs), Conv1D.
        leaf: DeepSpeed gathers a mixture whole.
        parts: Names that peft takes for a part of experts or router, each with its tensor.
        adapts_head: The output head gets an adapter.
        splits_head: AutoTP splits the output head.
        no_grad: No parameter asks for a gradient, as under torch.no_grad: forward keeps nothing.
        head_norm: The norm over a head, where that is another.
    """

    model: Model
    item: int
    eager: bool
    tp: int
    method: str
    seq_len: int
    norm: Callable[..., Tensor]
    rank: int = 16
    targets: tuple[str, ...] = (ALL_LINEAR,)
    zero3: bool = False
    chunked: bool = False
    asks: bool = False
    single: bool = False
    drops: bool = False
    embeddings: bool = False
    narrow: bool = False
    sdpa: bool = False
    masked: bool = False
    grouped: bool = False
    windowed: bool = False
    clamps: bool = False
    source_len: int = 0
    quantized: bool = False
    direct: bool = False
    turned: bool = False
    leaf: bool = False
    parts: tuple[tuple[str, str], ...] = ()
    adapts_head: bool = False
    splits_head: bool = False
    no_grad: bool = False
    head_norm: Callable[..., Tensor] | None = None

    def ask(self, tape: Tape, embedded: Tensor) -> None:
        """Let the embedding's output be a leaf of autograd if it asks for a gradient and has no other reason to."""
        if self.asks:
            embedded.edge = (Node(tape.next(), (), None, lambda _: []), 0)

    @property
    def adapter_item(self) -> int:
        """Bytes of an element of an adapter: peft makes fp32, which stays where the base was made under zero.Init."""
        wide = self.zero3 and self.method == "lora" and not (self.embeddings or self.narrow)
        return op.FP32 if wide else self.item

    def fused_rank(self, name: str) -> int:
        """Rank of the adapter that the experts' tensor of a name gets, 0 for none."""
        parts = [old for old, tensor in self.parts if tensor.endswith(name)]
        adapted = self.method != "full" and (ALL_LINEAR in self.targets or any(part in self.targets for part in parts))
        return self.rank * len(parts) if adapted else 0

    @property
    def joins(self) -> bool:
        """Query, key and value are one product with one adapter, as LitGPT has them."""
        return bool(self.model.litgpt) and self.method == "lora" and not (self.quantized or self.zero3)

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
        return op.weight(elements, self.item, self.method == "full" and not self.no_grad)

    def outer(self, elements: int) -> Tensor:
        """A weight of the input embedding or of the output head."""
        return op.weight(elements, self.item, (self.method == "full" or self.embeddings) and not self.no_grad)

    def adapter(self, elements: int) -> Tensor:
        """A matrix of an adapter."""
        return op.weight(elements, self.adapter_item, not self.no_grad)

    def linear(
        self, tape: Tape, hidden: Tensor, out: int, name: str = "", *, bias: bool = False, head: bool = False
    ) -> Tensor:
        """nn.Linear, or what AutoTP, bitsandbytes and peft put in its place.

        Args:
            tape: The tape.
            hidden: The input.
            out: Width of the output.
            name: The module's name, which an adapter's target may be; empty outside the blocks.
            bias: Whether it has one.
            head: It is the output head.
        """
        if name:
            tape.fetch()
        weight = self.outer if head else self.weight
        kernel, offset = weight(hidden.width * out), weight(out) if bias else None
        if self.quantized and name:
            made = dequantized_linear(tape, hidden, out)
        elif offset is not None and self.tp > 1 and name:  # the bias is added after the all-reduce
            made = op.add(tape, linear(tape, hidden, kernel, out, zero3=self.zero3), offset)
            tape.hold(hidden)
        else:
            zero3, turned = self.zero3 and not (name and self.direct), self.turned and bool(name)
            made = linear(tape, hidden, kernel, out, offset, zero3, turned=turned)
        if name:
            tape.used()
        targeted = ALL_LINEAR in self.targets or name in self.targets
        adapted = self.method != "full" and name and targeted and all(name != old for old, _ in self.parts)
        if not adapted:
            return made
        if self.quantized:
            made = op.clone(tape, made)  # bitsandbytes' layers hand their result on in a copy
        return self._adapted(tape, hidden, made, self.quantized)

    def _adapted(self, tape: Tape, hidden: Tensor, made: Tensor, packed: bool) -> Tensor:
        """peft: `result + lora_B(lora_A(dropout(x))) * scaling`, each adapter with a dropout of its own."""
        item = self.adapter_item
        states = op.cast(tape, hidden, item)
        dropped = op.dropout(tape, states, self.drops)
        low = linear(tape, dropped, self.adapter(hidden.width * self.rank), self.rank)
        tape.fetch()
        high = linear(tape, low, self.adapter(self.rank * made.width), made.width)
        tape.used()
        product = op.scaled(tape, high)
        if packed:
            product = op.cast(tape, product, made.item)
        total = op.add(tape, made, product)
        tape.hold(states)
        total = op.cast(tape, total, made.item)
        tape.left()
        tape.hold(hidden, made)
        return total

    def together(self, tape: Tape, hidden: Tensor, widths: tuple[int, int, int], *, bias: bool = False) -> Tensor:
        """LitGPT's query, key and value of one product, with one adapter of one dropout; a part of them is padded.

        Source: litgpt/lora.py of 0.3.1 to 0.4.13, LoRAQKVLinear (forward, zero_pad).
        """
        out, adapted = sum(widths), self.model.litgpt
        kernel, offset = self.weight(hidden.width * out), self.weight(out) if bias else None
        made = linear(tape, hidden, kernel, out, offset)
        dropped = op.dropout(tape, hidden, self.drops)
        part = out if adapted == "qkv" else widths[0] + widths[2]
        low = linear(tape, dropped, self.adapter(hidden.width * self.rank * len(adapted)), self.rank * len(adapted))
        product = linear(tape, low, self.adapter(self.rank * part), part)
        if part < out:
            product = self._padded(tape, product, out)
        total = op.add(tape, made, op.scaled(tape, product))
        tape.hold(hidden, made)
        return total

    @staticmethod
    def _padded(tape: Tape, part: Tensor, out: int) -> Tensor:
        """`new_zeros(...).index_copy_(...)`, which keeps what it copies."""
        made = tape.make(part.rows, out, part.item)
        return tape.node(made, (part,), tape.keep(part), lambda _: [tape.like(part)])  # type: ignore[no-any-return]

    def logits(self, tape: Tape, hidden: Tensor, *, bias: bool = False) -> Tensor:
        """The output head; AutoTP gathers what every rank makes of it, and joins that in order, if it is not tied."""
        vocabulary = self.model.vocab_size
        if self.tp == 1 or not self.splits_head:
            tape.fetch()
            tape.stays = True
            made = self.linear(tape, hidden, vocabulary, bias=bias, head=True)
            tape.stays = False
            tape.used()
            return self._adapted(tape, hidden, made, False) if self.adapts_head else made
        tape.fetch()
        share = linear(tape, hidden, self.weight(hidden.width * vocabulary // self.tp), vocabulary // self.tp)
        if bias:
            share = op.add(tape, share, self.weight(vocabulary // self.tp))
        tape.used()
        if self.model.tied_embeddings:
            return share
        gathered = tape.make(hidden.rows, vocabulary, hidden.item)
        made = tape.make(hidden.rows, vocabulary, hidden.item)
        tape.hold(gathered)
        return tape.node(made, (share,), None, lambda _: [tape.like(share)])  # type: ignore[no-any-return]

    def upcast(self, tape: Tape, logits: Tensor) -> Tensor:
        """The logits as the model's forward keeps them, which in older releases of transformers makes them fp32."""
        return op.cast(tape, logits, op.FP32) if self.model.logits_upcast == "model" else logits

    def loss(self, tape: Tape, logits: Tensor) -> Tensor:
        """ForCausalLMLoss: an fp32 copy of the logits, and cross entropy; of shards, DeepSpeed's loss."""
        if logits.width < self.model.vocab_size:
            return sharded_cross_entropy(tape, logits, self.single)
        wide = op.cast(tape, logits, op.FP32) if self.model.logits_upcast == "loss" else logits
        if not self.model.logits_shifted:
            return cross_entropy(tape, wide)
        loss = cross_entropy(tape, without_last(tape, wide, self.single))
        tape.hold(wide)
        return loss

    def scored(self, tape: Tape, states: Tensor, made: Callable[[Tape, Tensor], Tensor]) -> Tensor:
        """The loss of states, whose logits `made` makes: at once, or of some tokens at a time (Model.head_chunk)."""
        if self.model.head_chunk:
            return self._scored_in_chunks(tape, states, made)
        logits = self.upcast(tape, made(tape, states))
        loss = self.loss(tape, logits)
        tape.hold(states, logits)
        return loss

    def _scored_in_chunks(self, tape: Tape, states: Tensor, made: Callable[[Tape, Tensor], Tensor]) -> Tensor:
        """LitGPT: a list of logits, which Lightning makes fp32, and a loss of each; the list lives on in the loop.

        Source: litgpt/lora.py (GPT.forward), utils.py (chunked_cross_entropy) and finetune/lora.py (fit) of 0.3.1 to
        0.4.13; lightning/fabric/plugins/precision/half.py (convert_output).
        """
        kept: list[Storage] = []
        logits = [made(tape, one) for one in pieces(tape, states, self.model.head_chunk, kept)]
        tape.hold(states)
        wide = [self.upcast(tape, one) for one in logits]
        tape.hold(*logits)
        if self.model.logits_shifted:
            wide[-1] = without_last(tape, wide[-1], True)
        losses = [cross_entropy(tape, one if one.item == op.FP32 else self._narrow(tape, one)) for one in wide]
        total = tape.make((1, 0), 1, op.FP32)
        tape.hold(*wide)
        kept += tape.keep(*wide) or ()
        return tape.node(total, losses, None, lambda gradient: [gradient] * len(losses))  # type: ignore[no-any-return]

    def _narrow(self, tape: Tape, logits: Tensor) -> Tensor:
        """16-bit logits as the loss takes them."""
        return op.cast(tape, logits, op.FP32) if self.model.logits_upcast == "loss" else logits

    def chunked_loss(self, tape: Tape, hidden: Tensor) -> Tensor:
        """Head and loss in one."""
        vocabulary, liger = self.model.vocab_size, LIGERS[self.model.liger]
        return chunked_loss(tape, hidden, self.outer(hidden.width * vocabulary), vocabulary, liger, self.single)

    def layer_norm(self, tape: Tape, hidden: Tensor) -> Tensor:
        """nn.LayerNorm."""
        return layer_norm(tape, hidden, self.weight(hidden.width), self.weight(hidden.width))
