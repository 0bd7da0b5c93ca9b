"""Blocks with experts, of a router and grouped products: sizes on a tape.

Source: transformers 5.23, integrations/moe.py, grouped_mm_experts_forward, which from_pretrained chooses on its own,
and models/{mixtral,qwen3_moe,deepseek_v3}/modeling_*.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from dsgen.families.parts.llama import mlp
from dsgen.families.tape import operators as op
from dsgen.families.tape.execution import Execution
from dsgen.families.tape.forwards import Block
from dsgen.families.tape.graph import COPY, EMBEDDING, NORM, STREAM
from dsgen.families.tape.moments import Size
from dsgen.families.tape.products import grouped, linear
from dsgen.families.tape.tape import GRADIENTS, Names, Tape, Tensor, forward

__all__ = [
    "Router",
    "experts",
    "kernel_of",
    "mixture",
    "picked",
    "routed",
    "sigmoid_router",
    "softmax_router",
    "wide_logits",
]

Router = Callable[
    [Tape, Execution, Tensor], tuple[Tensor, Tensor, Tensor]
]  # the experts' weights, their ids, the logits
Experts = Callable[[Tape, Execution, Tensor, Tensor], Tensor]


def _gated(tape: Tape, states: Tensor) -> Tensor:
    """`act(gate) * up` of a fused product."""
    half = states.width // 2
    gate, up = op.split(tape, states, half, half)
    return op.mul(tape, op.silu(tape, gate), up)


def picked(on: Execution) -> Size:
    """Rows of what the experts get: every token once for each of its experts."""
    return 0, on.seq_len * on.model.experts_per_token


def _shared_out(tape: Tape, on: Execution, values: Tensor) -> Tensor:
    """`values /= values.sum(dim=-1)`: the values before are kept in a copy."""
    total = tape.make(on.rows, 1, values.item)
    copy = tape.make(values.rows, 1, values.item)
    tape.moves(NORM, values, total)
    tape.moves(COPY, values, copy)
    tape.moves(STREAM, values, total, values)
    tape.hold(total)
    saved = tape.keep(total, copy)

    def back(gradient: Tensor) -> list[Any]:
        result = tape.like(gradient)
        for _ in range(3):  # divided by the total, for the values' own gradient and twice for the total's
            tape.moves(STREAM, gradient, total, result)
        tape.moves(STREAM, gradient, result)
        tape.moves(STREAM, gradient, gradient, result)
        tape.moves(NORM, gradient, total)
        tape.moves(STREAM, gradient, total, result)
        tape.dispatches(views=1)
        return [result]

    return tape.node(op.view(values), (values,), saved, back)  # type: ignore[no-any-return]


@forward
def softmax_router(
    my: Names, tape: Tape, on: Execution, hidden: Tensor, *, shared: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Qwen3MoeTopKRouter: softmax in fp32, and the best; of Mixtral's the shares (`shared`)."""
    kernel = kernel_of(tape, on, on.model.experts, on.model.hidden_size, "mlp.gate.weight")
    logits = linear(tape, hidden, kernel, on.model.experts, zero3=on.zero3)
    my.scores = op.softmax(tape, op.cast(tape, logits, op.FP32))
    values, ids = op.picked(tape, my.scores, picked(on), 1, op.FP32)
    values = _shared_out(tape, on, values) if shared else values
    if not shared or on.model.experts_apart:  # Mixtral's since transformers 5 stay in fp32
        values = op.cast(tape, values, logits.item)
    return values, ids, logits


def wide_logits(tape: Tape, on: Execution, hidden: Tensor) -> Tensor:
    """`linear(hidden.type(torch.float32), weight.type(torch.float32))`."""
    model = on.model
    wide = op.cast(tape, hidden, op.FP32)
    kernel = op.cast(tape, kernel_of(tape, on, model.experts, model.hidden_size, "mlp.gate.weight"), op.FP32)
    return linear(tape, wide, kernel, model.experts, zero3=on.zero3)


@forward
def sigmoid_router(my: Names, tape: Tape, on: Execution, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """DeepseekV3TopkRouter: in fp32, and from groups of experts; what picks them asks for no gradient."""
    logits = wide_logits(tape, on, hidden)
    my.scores = op.relu(tape, logits)
    choice = [tape.like(my.scores) for _ in range(2)]
    values, ids = op.picked(tape, my.scores, picked(on), 1, op.FP32)
    values = _shared_out(tape, on, values)
    tape.hold(*choice)
    return op.scaled(tape, values), ids, logits


@forward
def experts(
    my: Names,
    tape: Tape,
    on: Execution,
    hidden: Tensor,
    weights: Tensor,
    *,
    gated: Callable[[Tape, Tensor], Tensor] = _gated,
    biased: bool = False,
    turned: bool = False,
) -> Tensor:
    """grouped_mm_experts_forward.

    Args:
        my: Its names.
        tape: The tape.
        on: The setting.
        hidden: What goes in.
        weights: Of the experts of each token.
        gated: What is made of gate and up, which are one product.
        biased: Both products have biases.
        turned: Weights lie as (inputs, outputs).
    """
    tape.fetch()
    model = on.model
    width, rows = model.expert_ffn_size, picked(on)
    tape.whole *= 2  # peft's wrapper of the second product is around that of the first
    outer = _factors(tape, on, model.hidden_size, width, "down_proj")
    tape.whole //= 2
    factors = _factors(tape, on, 2 * width, model.hidden_size, "gate_up_proj")
    ids = tape.make(rows, 1, op.INDEX)
    order = tape.make(rows, 1, op.INDEX)
    tokens = tape.make(rows, 1, op.INDEX)
    tape.moves(NORM, ids, ids, order)  # sorted by expert
    tape.moves(STREAM, order, tokens)
    tape.dispatches(views=3)
    chosen = op.index(tape, hidden, rows, ids=tokens)
    share = op.index(tape, weights, rows, ids=order)
    counted = tape.make(rows, 1, 4)
    tape.moves(STREAM, ids, counted)
    tape.moves(NORM, counted)  # rows of every expert, and where they end
    tape.moves(NORM, Tensor((2 * model.experts, 0), 1, 4, None))
    bias = _bias(tape, on, rows, 2 * width, ids) if biased else None
    into, many = model.hidden_size, model.experts
    kernel = kernel_of(tape, on, 2 * width, into, "gate_up_proj", many, factors)
    states = grouped(tape, chosen, kernel, 2 * width, many, turned)
    states = gated(tape, _plus(tape, states, bias))
    before, bias = bias, _bias(tape, on, rows, model.hidden_size, ids) if biased else None
    tape.hold(before)
    tape.between()
    before, kernel = kernel, kernel_of(tape, on, into, width, "down_proj", many, outer)
    tape.hold(before)
    states = grouped(tape, states, kernel, into, many, turned)
    states = _plus(tape, states, bias)
    weighted = op.mul(tape, states, share)
    my.back = tape.make(rows, 1, op.INDEX)
    tape.dispatches(operators=1)
    tape.moves(COPY, my.back)
    tape.moves(EMBEDDING, my.back, my.back)
    my.weighted = op.index(tape, weighted, rows, ids=my.back)
    final = _over_experts(tape, on, my.weighted)
    tape.hold(counted, ids, order, chosen, share, states, bias, kernel, *outer, *factors)
    return op.cast(tape, final, hidden.item)


def _factors(tape: Tape, on: Execution, out: int, into: int, name: str) -> tuple[Tensor, ...]:
    """Both adapters of all experts (ParamWrapper.get_delta_factors), before the experts run; none without adapters.

    What they are seen as for every expert is made here, so their gradients come when the experts' backward is over.
    Where they are of another type, they are copied.
    """
    each = on.fused_rank(name) * on.model.experts
    factors = []
    for side, permuted in ((each * into, False), (each * out, True)) if each else ():
        adapter = on.adapter(side)
        seen = Tensor((1, 0), side, on.adapter_item, None)
        # The gradient of one that is turned is copied back to its layout.
        copied = on.adapter_item == on.item and permuted
        tape.node(seen, (adapter,), None, _copied_back(tape, adapter) if copied else lambda gradient: [gradient])
        factors.append(op.cast(tape, seen, on.item))
    return tuple(factors)


def _copied_back(tape: Tape, adapter: Tensor) -> Callable[..., list[Any]]:
    def back(gradient: Tensor) -> list[Any]:
        result = op.gradient_of(tape, adapter)
        tape.moves(COPY, gradient, result)
        return [result]

    return back


def kernel_of(
    tape: Tape, on: Execution, out: int, into: int, name: str, experts: int = 1, factors: tuple[Tensor, ...] = ()
) -> Tensor:
    """The weights of experts, or of a router; peft adds its product for all of them to a copy (`torch.baddbmm`)."""
    if factors:
        return _added(tape, on, (out, into, experts), factors)
    rank = on.fused_rank(name)
    if not rank:
        return on.weight(experts * out * into)
    sides = experts * rank * out, experts * rank * into
    copies = [tape.make((1, 0), side, on.item) for side in sides] if on.adapter_item != on.item else []
    saved = tape.keep(*copies)
    made = tape.make((1, 0), experts * out * into, on.item)
    tape.multiplies((out, 0), (into, 0), (rank, 0), on.item, views=2)
    for tensors in ((made, made), (made, made, made), (made, made, made)):  # scaled, and added as peft asks for it
        tape.moves(STREAM, *tensors)
    tape.hold(*copies)
    adapters = [on.adapter(side) for side in sides]

    def back(gradient: Tensor) -> list[Any]:
        tape.moves(STREAM, gradient, gradient)
        tape.multiplies((rank, 0), (into, 0), (out, 0), on.item, views=3)
        tape.multiplies((out, 0), (rank, 0), (into, 0), on.item, views=3)
        return [op.gradient_of(tape, one) for one in adapters]

    return tape.node(made, adapters, saved, back)  # type: ignore[no-any-return]


def _added(tape: Tape, on: Execution, shape: tuple[int, int, int], factors: tuple[Tensor, ...]) -> Tensor:
    """`torch.baddbmm(weight, high, low, alpha=scaling)`: gradients of the high one and then of the low one.

    `shape` is a weight's: outputs, inputs, experts. peft makes the sum when it registers it, and when it is read.
    """
    low, high = factors
    item = on.item
    out, into, batch = (shape[0], 0), (shape[1], 0), (shape[2], 0)
    rank = (low.width // (shape[1] * shape[2]), 0)
    saved = tape.keep(high, low)
    for _ in range(2):
        tape.multiplies(out, into, rank, item, batch=batch, views=1)
    made = tape.make((1, 0), shape[0] * shape[1] * shape[2], item)
    last = GRADIENTS if on.adapter_item == item else None  # the low one's is its leaf's

    def back(_: Tensor) -> list[Any]:
        gradients = []
        for width, kind, dims in ((high.width, None, (out, rank, into)), (low.width, last, (rank, into, out))):
            product = tape.make((1, 0), width, item)
            tape.multiplies(*dims, item, batch=batch, views=2)
            gradients.append(tape.make((1, 0), width, item, kind))
            tape.moves(STREAM, product, gradients[-1])  # times the scale
            tape.hold(product)
        return gradients

    return tape.node(made, (high, low), saved, back)  # type: ignore[no-any-return]


def _over_experts(tape: Tape, on: Execution, weighted: Tensor) -> Tensor:
    """`weighted.view(tokens, experts, hidden).sum(dim=1)`; backward repeats the gradient, in a copy.

    Experts that are apart are added one by one, and `index_add_` keeps what it adds (derivatives.yaml, of torch 2.13).
    """
    made = tape.make(on.rows, weighted.width, weighted.item)
    tape.moves(NORM, weighted, made)
    tape.dispatches(views=2)

    def back(gradient: Tensor) -> list[Any]:
        result = tape.like(weighted)
        tape.moves(COPY, gradient, result)
        tape.dispatches(views=6)
        return [result]

    saved = tape.keep(weighted) if on.model.experts_apart else None
    return tape.node(made, (weighted,), saved, back)  # type: ignore[no-any-return]


def _bias(tape: Tape, on: Execution, picked: Size, width: int, ids: Tensor) -> Tensor:
    """`bias[expert_ids]`: a row for every row of its expert."""
    experts = on.model.experts
    return op.index(tape, op.view(on.weight(experts * width), (1, 0)), picked, width, ids)


def _plus(tape: Tape, states: Tensor, bias: Tensor | None) -> Tensor:
    """`states.add_(bias)`, in place."""
    return states if bias is None else op.in_place(tape, states, bias)


@forward
def _beside_share(
    my: Names,
    tape: Tape,
    on: Execution,
    hidden: Tensor,
    *,
    router: Router,
    experts: Experts,
) -> Tensor:
    """Router and experts, and then shared experts, where there are some."""
    my.weights, ids, my.logits = router(tape, on, hidden)
    out = experts(tape, on, hidden, my.weights)
    tape.used()
    tape.hold(ids)
    if on.model.shared_experts:
        out = op.add(tape, out, mlp(tape, on, hidden, on.model.shared_width))
    return out


def mixture(tape: Tape, on: Execution, hidden: Tensor, *, inside: Block) -> Tensor:
    """A feed-forward part that DeepSpeed may gather as one: what is `inside` is router, experts, and what every token
    passes."""
    whole = tape.told and on.leaf
    if whole:  # and whose gradients it takes together
        hidden = tape.together(hidden)
        tape.fetch()
        tape.whole = 1
    out = inside(tape, on, hidden)
    if whole:
        tape.whole = 0
        tape.used()
    return out


def routed(router: Router = softmax_router, experts: Experts = experts) -> Block:
    """A feed-forward part with experts, and shared ones beside them where a model has some."""
    return functools.partial(mixture, inside=functools.partial(_beside_share, router=router, experts=experts))
