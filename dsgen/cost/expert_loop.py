"""What a mixture costs where transformers runs its experts in a loop, each of linear layers of its own.

So did transformers 4 (models/mixtral/modeling_mixtral.py of 4.57.1, MixtralSparseMoeBlock, and its likes): an expert
picks its tokens, multiplies them three times and adds what it made to the others' sum, and the host launches each of
that for itself. A tape has all experts in grouped products, as they have run since transformers 5.

Operators are those that torch 2.13 dispatches for one more expert of MixtralSparseMoeBlock, Qwen2MoeSparseMoeBlock and
Qwen3MoeSparseMoeBlock, which are as many; DeepseekV3MoE's are two fewer forward and one more backward.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import attrs

from dsgen.cost.model_work import PartWork
from dsgen.families.tape.graph import DEQUANTIZATION, STREAM
from dsgen.families.tape.products import QUANTIZED_BLOCK
from dsgen.families.tape.work import MemoryTraffic, Product, Work
from dsgen.shapes.profiles import Model

__all__ = ["looped", "tensors_apart"]

LAYERS = 3  # linear layers of an expert: gate and up, which a tape has as one product, and down
# Operators of an expert beside its products. Forward: its tokens are looked for and picked, the activation, two
# multiplications, the sum; the host asks twice what is there, and such an operator counts as two, for it waits.
FORWARD_OPERATORS, FORWARD_VIEWS = 9 + 2, 8
BACKWARD_OPERATORS, BACKWARD_VIEWS = 14, 7
TRAINED_VIEWS = 4  # more, backward, for each weight with a gradient
# Behind the gradient of what an expert picked, one of all tokens is made, and added to that of the experts before
# (index's backward): times it is moved by either kernel.
WHOLE_GRADIENTS = (1, 3)
_SCALE_BYTES = 4  # of what QUANTIZED_BLOCK elements in 4 bits share
_UNPACKED_OPERATORS = 2  # for a layer in 4 bits, beside its product: of scales, and of weights


def looped(part: PartWork, model: Model, seq_len: int, item: int, packed: bool) -> PartWork:
    """A part whose experts run one after another; one without experts as it is.

    Args:
        part: With grouped products.
        model: The mixture.
        seq_len: Tokens of a sequence.
        item: Bytes of an element.
        packed: Whether experts lie in 4 bits: each layer makes its weight anew in every pass.
    """
    if not any(product.groups > 1 for product, _ in part.forward.products):
        return part
    loop = _Loop(model, seq_len, item, packed)
    again = loop.forward(part.again) if part.again.operators else part.again
    return part._replace(
        forward=loop.forward(part.forward),
        again=again,
        backward=loop.backward(part.backward),
        called=LAYERS * model.experts,
    )


def tensors_apart(model: Model, numels: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Elements of tensors and how many have as many: each expert's own, for those that hold all experts."""
    own, counts = model.expert_ffn_size * model.hidden_size, Counter[int]()
    for numel, often in numels:
        parts = numel // own if numel in (model.experts * own, 2 * model.experts * own) else 1
        counts[numel // parts] += often * parts
    return tuple(sorted(counts.items()))


@attrs.frozen
class _Loop:
    """How the experts of a block run."""

    model: Model
    seq_len: int
    item: int
    packed: bool

    def forward(self, done: Work) -> Work:
        products, launched, _ = self._products(done)
        return self._unpacked(
            done._replace(
                products=products,
                operators=done.operators + launched + self.model.experts * FORWARD_OPERATORS,
                views=done.views + self.model.experts * FORWARD_VIEWS,
            )
        )

    def backward(self, done: Work) -> Work:
        products, launched, trained = self._products(done)
        experts, tokens = self.model.experts, self.seq_len * self.model.hidden_size * self.item
        whole = ((MemoryTraffic(STREAM, (0, times * tokens)), experts) for times in WHOLE_GRADIENTS)
        return self._unpacked(
            done._replace(
                products=products,
                traffic=(*done.traffic, *whole),
                operators=done.operators + launched + experts * BACKWARD_OPERATORS,
                views=done.views + experts * BACKWARD_VIEWS + trained * TRAINED_VIEWS,
            )
        )

    def _products(self, done: Work) -> tuple[tuple[tuple[Product, int], ...], int, int]:
        """Products with each expert's apart; the kernels of those, and how many of them make a weight's gradient."""
        made, launched, trained = Counter[Product](), 0, 0
        for product, often in done.products:
            if product.groups == 1:
                made[product] += often
                continue
            apart, times = self._layers(product)
            made[apart] += times * often
            launched += times * often * product.groups
            trained += times * often * product.groups if product.k[1] else 0
        return tuple(made.items()), launched, trained

    def _layers(self, product: Product) -> tuple[Product, int]:
        """The product of one layer of each expert, and how many layers it is of: gate and up are two."""
        one = self.model.expert_ffn_size, 0
        if one in product[:3]:
            return product._replace(apart=True), 1
        both = 2 * one[0], 0
        if product.n == both:
            return product._replace(n=one, apart=True), 2
        return (product._replace(k=one, apart=True) if product.k == both else product._replace(m=one, apart=True)), 2

    def _unpacked(self, done: Work) -> Work:
        if not self.packed:
            return done
        numel, layers = self.model.expert_ffn_size * self.model.hidden_size, LAYERS * self.model.experts
        scales = _SCALE_BYTES * -(-numel // QUANTIZED_BLOCK)
        made = MemoryTraffic(DEQUANTIZATION, (numel // 2 + scales + self.item * numel, 0))
        return done._replace(
            traffic=(*done.traffic, (MemoryTraffic(STREAM, (scales, 0)), layers), (made, layers)),
            operators=done.operators + _UNPACKED_OPERATORS * layers,
        )
