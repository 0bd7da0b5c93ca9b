"""gpt-oss: every block a mixture of experts, a learned sink for every head."""

from __future__ import annotations

import functools

from dsgen.families import rows
from dsgen.families.config_keys import LOCAL_EXPERTS, keys
from dsgen.families.family import AutoTP, Family, OlderExperts
from dsgen.families.orders import ATTENTION, FIRST, OUT, SECOND, Order
from dsgen.families.parts import llama
from dsgen.families.parts.llama import project
from dsgen.families.parts.mixtures import experts, picked, routed
from dsgen.families.parts.rotary import turned_pair
from dsgen.families.reading import expert_width
from dsgen.families.rows import TensorRow
from dsgen.families.tape import operators as op
from dsgen.families.tape.attending import attend
from dsgen.families.tape.execution import Execution
from dsgen.families.tape.norms import wide_rms_norm
from dsgen.families.tape.tape import Names, Tape, Tensor, forward

__all__ = ["GPT_OSS"]


@forward
def _attention(my: Names, tape: Tape, on: Execution, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
    """GptOssAttention."""
    project(my, tape, on, hidden, bias=True)
    table = on.table(on.model.head_size // 2)
    my.query, my.key = _turned(tape, my.query, table), _turned(tape, my.key, table)
    out, weights = attend(tape, on, my.query, my.key, my.value, heads_first=True, sinks=True)
    return on.linear(tape, out, on.hidden, "o_proj", bias=True), weights


def _turned(tape: Tape, tensor: Tensor, table: Tensor) -> Tensor:
    """Both halves are turned by themselves and joined."""
    half = tensor.width // 2
    first, second = op.split(tape, tensor, half, half)
    return turned_pair(tape, first, second, table, table)


def _router(tape: Tape, on: Execution, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """GptOssTopKRouter: the best, and a softmax over them."""
    logits = on.linear(tape, hidden, on.model.experts, bias=True)
    values, ids = op.picked(tape, logits, picked(on), 1, logits.item)
    return op.softmax(tape, values), ids, logits


@forward
def _gated(my: Names, tape: Tape, states: Tensor) -> Tensor:
    """GptOssExperts._apply_gate: clamped halves, `(up + 1) * gate * sigmoid(gate * alpha)`."""
    half = states.width // 2
    gate, up = op.part(tape, states, half), op.part(tape, states, half)
    my.gate = op.silu(tape, gate)  # clamp saves its input too
    my.up = op.silu(tape, up)
    curve = op.relu(tape, op.scaled(tape, my.gate))  # sigmoid saves its result
    glu = op.mul(tape, my.gate, curve)
    return op.mul(tape, op.one_plus(tape, my.up), glu)


GPT_OSS = Family(
    model_type="gpt_oss",
    huggingface="GptOssForCausalLM",
    keys=keys(
        *(36, 2880, 64, 8, 64, 2880, 201088, 131072),
        tied=False,
        names=LOCAL_EXPERTS,
        sliding_window=128,
        experts=128,
        experts_per_token=4,
    ),
    pinned={"attention_bias": True},
    read=expert_width,
    layout=rows.llama_frame(
        sparse=(
            TensorRow("self_attn.sinks", ("heads",), "attention"),
            *rows.attention(qkv_bias=True, o_bias=True),
            TensorRow("mlp.router.weight", ("experts", "hidden"), "router"),
            TensorRow("mlp.router.bias", ("experts",), "router"),
            TensorRow("mlp.experts.gate_up_proj", ("experts", "hidden", "expert_ffn_pair"), "expert"),
            TensorRow("mlp.experts.gate_up_proj_bias", ("experts", "expert_ffn_pair"), "expert"),
            TensorRow("mlp.experts.down_proj", ("experts", "expert_ffn", "hidden"), "expert"),
            TensorRow("mlp.experts.down_proj_bias", ("experts", "hidden"), "expert"),
            *rows.TWO_NORMS,
        )
    ),
    forward=llama.llama_forward(
        attending=_attention,
        mixture=routed(_router, functools.partial(experts, gated=_gated, biased=True, turned=True)),
        norm=wide_rms_norm,
        before=functools.partial(llama.before, masks=2, part=2),
    ),
    order=Order(sparse=f"{FIRST} {ATTENTION} {OUT} {SECOND} mlp mlp.router mlp.experts"),
    kernels=("flash",),
    flash_releases=(3, 4),  # those that know sinks (transformers 5.23, _compatible_flash_implementations)
    windowed=lambda block: block % 2 == 0,
    experts_as_stored=True,
    older_experts=OlderExperts(stacked=True, forward=(22 + 8, 12), backward=(29, 5), weight=(5, 2)),
    autotp=AutoTP(
        refused="AutoTP of {} splits the output head alone: attention and experts stay whole on every GPU", runs=True
    ),
)
