"""What a mixture costs where transformers runs its experts in a loop, as releases before 5 do.

An expert takes its tokens, multiplies them with weights of its own and adds what it made to the others' sum, and the
host launches each of that for itself. A tape has all experts in grouped products, as they have run since 5. How the
loop of a class goes: OlderExperts of dsgen.families.family.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import attrs

from dsgen.cost.model_work import PartWork
from dsgen.families import family_of
from dsgen.families.family import OlderExperts
from dsgen.families.tape.graph import DEQUANTIZATION, STREAM
from dsgen.families.tape.products import QUANTIZED_BLOCK
from dsgen.families.tape.work import MemoryTraffic, Product, Work
from dsgen.shapes.profiles import Model

__all__ = ["looped", "tensors_apart"]

LAYERS = 3  # linear layers of an expert that has its own: gate and up, which a tape has as one product, and down
# A gradient that a kernel makes of zeros, and that of another is added to: how often each moves it.
ADDED = (1, 3)
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
    how = family_of(model).older_experts
    loop = _Loop(model, how, seq_len, item, packed)
    again = loop.forward(part.again) if part.again.operators else part.again
    return part._replace(
        forward=loop.forward(part.forward),
        again=again,
        backward=loop.backward(part.backward),
        called=0 if how.stacked else LAYERS * model.experts,
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
    how: OlderExperts
    seq_len: int
    item: int
    packed: bool

    def forward(self, done: Work) -> Work:
        products, launched = self._products(done)
        return self._unpacked(_launching(done, launched, self.how.forward, self.model.experts, products))

    def backward(self, done: Work) -> Work:
        products, launched = self._products(done)
        experts, model = self.model.experts, self.model
        done = _launching(done, launched, self.how.backward, experts, products)
        traffic: Counter[MemoryTraffic] = Counter(dict(done.traffic))
        if self.how.picks:
            tokens = self.seq_len * model.hidden_size * self.item
            traffic.update({MemoryTraffic(STREAM, (0, times * tokens)): experts for times in ADDED})
        operators = views = 0
        for product, often in products:
            if not product.apart or not product.k[1]:  # of a weight's gradient the sum is over tokens
                continue
            operators += often * experts * self.how.weight[0]
            views += often * experts * self.how.weight[1]
            if self.how.stacked:
                whole = experts * product.m[0] * product.n[0] * self.item
                traffic.update({MemoryTraffic(STREAM, (times * whole, 0)): often * experts for times in ADDED})
        told = done._replace(traffic=tuple(traffic.items()), operators=done.operators + operators)
        return self._unpacked(told._replace(views=done.views + views))

    def _products(self, done: Work) -> tuple[tuple[tuple[Product, int], ...], int]:
        """Products with each expert's apart, and the kernels of those."""
        made, launched = Counter[Product](), 0
        for product, often in done.products:
            if product.groups == 1:
                made[product] += often
                continue
            apart, times = self._layers(product)
            made[apart] += times * often
            launched += times * often * product.groups
        return tuple(made.items()), launched

    def _layers(self, product: Product) -> tuple[Product, int]:
        """The product of one layer of each expert, and how many layers it is of: gate and up are two."""
        one = self.model.expert_ffn_size, 0
        if self.how.stacked or one in product[:3]:
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


def _launching(
    done: Work, launched: int, calls: tuple[int, int], experts: int, products: tuple[tuple[Product, int], ...]
) -> Work:
    """Work with its products apart, so many kernels launched for them, and of each expert its operators and views."""
    operators, views = calls
    return done._replace(
        products=products,
        operators=done.operators + launched + experts * operators,
        views=done.views + experts * views,
    )
