"""Forward of blocks with experts: sizes on a tape.

Source: transformers 5.23, integrations/moe.py, grouped_mm_experts_forward, which from_pretrained chooses on its own,
and models/{mixtral,qwen*_moe,deepseek_v*,glm4_moe,gpt_oss,granitemoe,olmoe}/modeling_*.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dsgen.families import family_of
from dsgen.memory.activations import operators as op
from dsgen.memory.activations.llama import mlp
from dsgen.memory.activations.moments import Size
from dsgen.memory.activations.products import grouped, linear
from dsgen.memory.activations.setting import Setting
from dsgen.memory.activations.tape import GRADIENTS, Leaf, Tape, Tensor

__all__ = ["mixture"]


def mixture(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """The feed-forward part: router, experts, and what every token passes."""
    whole = tape.told and family_of(on.model).leaf
    if whole:  # DeepSpeed gathers it as one, and takes all its gradients together
        hidden = tape.together(hidden)
        tape.fetch()
        tape.whole = 1
    out = (_beside_gated_share if on.model.architecture == "qwen2_moe" else _beside_share)(tape, on, hidden)
    if whole:
        tape.whole = 0
        tape.used()
    return out


def _beside_share(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """Router and experts, and then shared experts, where there are some."""
    model = on.model
    router = _ROUTERS.get(model.architecture, _softmax_router)
    weights, ids, logits = router(tape, on, hidden)
    out = _experts(tape, on, hidden, weights)
    tape.used()
    del ids
    if model.shared_experts:
        shared = mlp(tape, on, hidden, model.shared_width)
        out = op.add(tape, out, shared)
    del logits
    return out


def _beside_gated_share(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """Qwen2MoeSparseMoeBlock: the shared expert runs first, though it is made later; its gate has one column."""
    tape.whole *= 2
    shared = mlp(tape, on, hidden, on.model.shared_width)
    tape.whole //= 2
    weights, ids, logits = _softmax_router(tape, on, hidden)
    out = _experts(tape, on, hidden, weights)
    tape.whole *= 2
    gate = op.relu(tape, on.linear(tape, hidden, 1, "shared_expert_gate"))  # sigmoid saves its result
    shared = op.mul(tape, gate, shared)
    del gate
    out = op.add(tape, out, shared)
    del ids, logits, weights, shared
    return out


def _picked(on: Setting) -> Size:
    """Rows of what the experts get: every token once for each of its experts."""
    return 0, on.seq_len * on.model.experts_per_token


def _shared_out(tape: Tape, on: Setting, values: Tensor) -> Tensor:
    """`values /= values.sum(dim=-1)`: the values before are kept in a copy."""
    total = tape.born(on.rows, 1, values.item)
    copy = tape.born(values.rows, 1, values.item)
    saved = tape.keep(total, copy)
    made = op.view(values)
    return tape.node(made, (values.edge,), saved, lambda _, gradient: [op.like(tape, gradient)])  # type: ignore[no-any-return]


def _softmax_router(tape: Tape, on: Setting, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """MixtralTopKRouter and Qwen3MoeTopKRouter: softmax in fp32, the best, and their shares."""
    kernel = _kernel(tape, on, on.model.experts, on.model.hidden_size, "mlp.gate.weight")
    logits = linear(tape, hidden, kernel, on.model.experts, zero3=on.zero3)
    del kernel
    wide = op.cast(tape, logits, op.FP32)
    scores = op.softmax(tape, wide)
    del wide
    values, ids = op.picked(tape, scores, _picked(on), 1, op.FP32)
    shared = on.model.architecture == "mixtral"
    values = _shared_out(tape, on, values) if shared else op.cast(tape, values, logits.item)
    return values, ids, logits


def _late_softmax_router(tape: Tape, on: Setting, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """GptOssTopKRouter: the best, and a softmax over them."""
    logits = on.linear(tape, hidden, on.model.experts, bias=True)
    values, ids = op.picked(tape, logits, _picked(on), 1, logits.item)
    return op.softmax(tape, values), ids, logits


def _wide_logits(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """`linear(hidden.type(torch.float32), weight.type(torch.float32))`."""
    model = on.model
    wide = op.cast(tape, hidden, op.FP32)
    kernel = op.cast(tape, _kernel(tape, on, model.experts, model.hidden_size, "mlp.gate.weight"), op.FP32)
    return linear(tape, wide, kernel, model.experts, zero3=on.zero3)


def _sigmoid_router(tape: Tape, on: Setting, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """DeepseekV3TopkRouter: in fp32, and from groups of experts; what picks them asks for no gradient."""
    logits = _wide_logits(tape, on, hidden)
    scores = op.relu(tape, logits)
    choice = [op.like(tape, scores) for _ in range(2)]
    values, ids = op.picked(tape, scores, _picked(on), 1, op.FP32)
    values = _shared_out(tape, on, values)
    del choice
    return op.scaled(tape, values), ids, logits


def _wide_router(tape: Tape, on: Setting, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """DeepseekV2TopkRouter: in fp32; experts of groups that are not picked are masked."""
    logits = _wide_logits(tape, on, hidden)
    scores = op.softmax(tape, logits)
    if on.model.expert_groups:
        scores = op.masked(tape, scores)
    values, ids = op.picked(tape, scores, _picked(on), 1, op.FP32)
    return op.scaled(tape, values), ids, logits


def _wide_late_router(tape: Tape, on: Setting, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """GraniteMoeTopKRouter: the best of fp32 logits, and a softmax over them."""
    kernel = _kernel(tape, on, on.model.experts, on.model.hidden_size, "router.weight")
    logits = op.cast(tape, linear(tape, hidden, kernel, on.model.experts, zero3=on.zero3), op.FP32)
    values, ids = op.picked(tape, logits, _picked(on), 1, op.FP32)
    return op.cast(tape, op.softmax(tape, values), hidden.item), ids, logits


_ROUTERS = {
    "deepseek_v2": _wide_router,
    "deepseek_v3": _sigmoid_router,
    "glm4_moe": _sigmoid_router,
    "gpt_oss": _late_softmax_router,
    "granitemoe": _wide_late_router,
}


def _experts(tape: Tape, on: Setting, hidden: Tensor, weights: Tensor) -> Tensor:
    """grouped_mm_experts_forward."""
    tape.fetch()
    model = on.model
    width, picked = model.expert_ffn_size, _picked(on)
    biased = model.architecture == "gpt_oss"
    tape.whole *= 2  # peft's wrapper of the second product is around that of the first
    outer = _factors(tape, on, model.hidden_size, width, "down_proj")
    tape.whole //= 2
    factors = _factors(tape, on, 2 * width, model.hidden_size, "gate_up_proj")
    ids = tape.born(picked, 1, op.INDEX)
    order = tape.born(picked, 1, op.INDEX)
    tokens = tape.born(picked, 1, op.INDEX)
    chosen = op.index(tape, hidden, picked, ids=tokens)
    del tokens
    share = op.index(tape, weights, picked, ids=order)
    counted = tape.born(picked, 1, 4)
    bias = _bias(tape, on, picked, 2 * width, ids) if biased else None
    into, many = model.hidden_size, model.experts
    kernel = _kernel(tape, on, 2 * width, into, "gate_up_proj", many, factors)
    states = grouped(tape, chosen, kernel, 2 * width)
    states = _gated_oss(tape, _plus(tape, states, bias)) if biased else _gated(tape, states)
    bias = _bias(tape, on, picked, model.hidden_size, ids) if biased else None
    tape.between()
    kernel = _kernel(tape, on, into, width, "down_proj", many, outer)
    states = grouped(tape, states, kernel, into)
    states = _plus(tape, states, bias)
    weighted = op.mul(tape, states, share)
    back = tape.born(picked, 1, op.INDEX)
    weighted = op.index(tape, weighted, picked, ids=back)
    final = _over_experts(tape, on, weighted)
    del counted, ids, order, chosen, share, states, bias, kernel, outer, factors
    return op.cast(tape, final, hidden.item)


def _factors(tape: Tape, on: Setting, out: int, into: int, name: str) -> tuple[Tensor, ...]:
    """Both adapters of all experts (ParamWrapper.get_delta_factors), before the experts run; none without adapters.

    What they are seen as for every expert is made here, so their gradients come when the experts' backward is over.
    Where they are of another type, they are copied.
    """
    each = on.fused_rank(name) * on.model.experts
    found = []
    for side, permuted in ((each * into, False), (each * out, True)) if each else ():
        leaf = Leaf(side, on.adapter_item)
        seen = Tensor((1, 0), side, on.adapter_item, None)
        # The gradient of one that is turned is copied back to its layout.
        kind = GRADIENTS if on.adapter_item == on.item and permuted else None
        run = _copied_back(tape, side, on.adapter_item) if kind is not None else lambda _, gradient: [gradient]
        tape.node(seen, (leaf,), None, run)
        found.append(op.cast(tape, seen, on.item))
    return tuple(found)


def _copied_back(tape: Tape, elements: int, item: int) -> Callable[..., list[Any]]:
    return lambda *_: [tape.born((1, 0), elements, item, GRADIENTS)]


def _kernel(
    tape: Tape, on: Setting, out: int, into: int, name: str, experts: int = 1, factors: tuple[Tensor, ...] = ()
) -> Tensor:
    """The weights of experts, or of a router; peft adds its product for all of them to a copy (`torch.baddbmm`)."""
    if factors:
        return _added(tape, on, experts * out * into, factors)
    rank = on.fused_rank(name)
    if not rank:
        return on.weight(experts * out * into)
    sides = experts * rank * out, experts * rank * into
    copies = [tape.born((1, 0), side, on.item) for side in sides] if on.adapter_item != on.item else []
    saved = tape.keep(*copies)
    made = tape.born((1, 0), experts * out * into, on.item)
    del copies
    leaves = tuple(Leaf(side, on.adapter_item) for side in sides)

    def run(*_: Any) -> list[Any]:
        return [tape.born((1, 0), side, on.adapter_item, GRADIENTS) for side in sides]

    return tape.node(made, leaves, saved, run)  # type: ignore[no-any-return]


def _added(tape: Tape, on: Setting, elements: int, factors: tuple[Tensor, ...]) -> Tensor:
    """`torch.baddbmm(weight, high, low, alpha=scaling)`: gradients of the high one and then of the low one."""
    low, high = factors
    item, widths = on.item, (high.width, low.width)
    saved = tape.keep(high, low)
    made = tape.born((1, 0), elements, item)
    last = GRADIENTS if on.adapter_item == item else None  # the low one's is its leaf's

    def run(*_: Any) -> list[Any]:
        found = []
        for width, kind in zip(widths, (None, last), strict=True):
            product = tape.born((1, 0), width, item)
            found.append(tape.born((1, 0), width, item, kind))
            del product
        return found

    return tape.node(made, (high.edge, low.edge), saved, run)  # type: ignore[no-any-return]


def _over_experts(tape: Tape, on: Setting, weighted: Tensor) -> Tensor:
    """`weighted.view(tokens, experts, hidden).sum(dim=1)`; backward repeats the gradient, in a copy."""
    rows, width, item = weighted.rows, weighted.width, weighted.item
    made = tape.born(on.rows, width, item)
    return tape.node(made, (weighted.edge,), None, lambda *_: [tape.born(rows, width, item)])  # type: ignore[no-any-return]


def _gated(tape: Tape, states: Tensor) -> Tensor:
    """`act(gate) * up` of a fused product."""
    half = states.width // 2
    gate, up = op.split(tape, states, half, half)
    curve = op.silu(tape, gate)
    return op.mul(tape, curve, up)


def _bias(tape: Tape, on: Setting, picked: Size, width: int, ids: Tensor) -> Tensor:
    """`bias[expert_ids]`: a row for every row of its expert."""
    experts = on.model.experts
    return op.index(tape, op.view(on.weight(experts * width), (1, 0)), picked, width, ids)


def _plus(tape: Tape, states: Tensor, bias: Tensor | None) -> Tensor:
    """`states.add_(bias)`, in place."""
    return states if bias is None else op.in_place(tape, states, bias)


def _gated_oss(tape: Tape, states: Tensor) -> Tensor:
    """GptOssExperts._apply_gate: clamped halves, `(up + 1) * gate * sigmoid(gate * alpha)`."""
    half = states.width // 2
    gate, up = op.part(tape, states, half), op.part(tape, states, half)
    gate = op.silu(tape, gate)  # clamp saves its input too
    up = op.silu(tape, up)
    bent = op.scaled(tape, gate)
    curve = op.relu(tape, bent)  # sigmoid saves its result
    del bent
    glu = op.mul(tape, gate, curve)
    del curve
    raised = tape.node(op.like(tape, up), (up.edge,), None, lambda _, gradient: [gradient])
    return op.mul(tape, raised, glu)
