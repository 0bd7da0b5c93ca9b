"""Qwen1.5, Qwen2 and Qwen2.5: Llama with biases of query, key and value; and the mixture of experts Qwen2-MoE."""

from __future__ import annotations

import functools

from dsgen.families import rows
from dsgen.families.config_keys import SPLIT, keys
from dsgen.families.family import UNKNOWN_STYLE, AutoTP, Facts, Family
from dsgen.families.orders import ATTENTION, FIRST, OUT, SECOND, Order
from dsgen.families.parts import llama
from dsgen.families.parts.mixtures import experts, mixture, softmax_router
from dsgen.families.reading import Reader
from dsgen.families.tape import liger
from dsgen.families.tape import operators as op
from dsgen.families.tape.execution import Execution
from dsgen.families.tape.forwards import Before
from dsgen.families.tape.tape import Names, Tape, Tensor, forward

__all__ = ["QWEN2", "QWEN2_MOE", "late_window", "leading", "read_window", "written_leading", "written_window"]

_FULL = 28  # max_window_layers of the configs of Qwen2, Qwen2.5 and Qwen3
_SHARED = "shared_expert_intermediate_size"


def read_window(reader: Reader, facts: Facts) -> dict[str, object]:
    """The window, which is in force only with use_sliding_window."""
    return {"sliding_window": facts["sliding_window"] if reader.boolean("use_sliding_window", False) else 0}


def late_window(block: int) -> bool:
    """Only the blocks from max_window_layers on have it, by default from the 29th."""
    return block >= _FULL


def written_window(facts: Facts) -> dict[str, object]:
    """The key that `read_window` reads."""
    return {"use_sliding_window": bool(facts["sliding_window"])}


def leading(reader: Reader, facts: Facts) -> dict[str, object]:
    """How many of the first blocks are dense, of Qwen's list of dense blocks."""
    listed = reader.part.get("mlp_only_layers")
    if listed is None:
        return {"dense_layers": 0}
    if not isinstance(listed, list) or not all(type(block) is int and block == i for i, block in enumerate(listed)):
        raise reader.unsupported(f"mlp_only_layers is {listed!r}", "dsgen counts dense blocks only before the others")
    return {"dense_layers": min(len(listed), facts["layers"])}


def written_leading(facts: Facts) -> dict[str, object]:
    """The key that `leading` reads."""
    return {"mlp_only_layers": list(range(facts["dense_layers"]))}


def _read_mixture(reader: Reader, facts: Facts) -> dict[str, object]:
    values = leading(reader, facts)
    if not facts["shared_ffn_size"]:
        raise reader.unsupported(f"{_SHARED} is 0", "dsgen counts this model_type with a shared expert only")
    return values


_ATTENTION_ROWS = rows.attention(qkv_bias=True)


@forward
def _beside_gated_share(my: Names, tape: Tape, on: Execution, hidden: Tensor) -> Tensor:
    """Qwen2MoeSparseMoeBlock: the shared expert runs first, though it is made later; its gate has one column."""
    tape.whole *= 2
    shared = llama.mlp(tape, on, hidden, on.model.shared_width)
    tape.whole //= 2
    my.weights, my.ids, my.logits = softmax_router(tape, on, hidden)
    out = experts(tape, on, hidden, my.weights)
    tape.whole *= 2
    gate = op.relu(tape, on.linear(tape, hidden, 1, "shared_expert_gate"))  # sigmoid saves its result
    return op.add(tape, out, op.mul(tape, gate, shared))


def _before_mixture(tape: Tape, on: Execution) -> Before:
    """Llama's, and a mask of local blocks, of which Qwen2-MoE has none."""
    hidden, tables, read, referred = llama.before(tape, on)
    if on.eager:
        referred.append(tape.make(on.rows, on.seq_len, on.item))
    elif on.sdpa:
        referred.append(tape.make((on.seq_len, 0), on.seq_len, op.MASK))
    return hidden, tables, read, referred


_attention = functools.partial(llama.attention, biased=True)


QWEN2 = Family(
    model_type="qwen2",
    huggingface="Qwen2ForCausalLM",
    keys=keys(32, 4096, 32, 32, SPLIT, 22016, 151936, 32768, tied=False, sliding_window=4096),
    read=read_window,
    write=written_window,
    windowed=late_window,
    layout=rows.llama_frame(dense=(*_ATTENTION_ROWS, *rows.gated_mlp(), *rows.TWO_NORMS)),
    forward=llama.llama_forward(attending=_attention, liger_norm=liger.norm),
    autotp=AutoTP(head=True, tied_head=True),
)
QWEN2_MOE = Family(
    model_type="qwen2_moe",
    huggingface="Qwen2MoeForCausalLM",
    keys=keys(
        *(24, 2048, 16, 16, SPLIT, 5632, 151936, 32768),
        tied=False,
        names={"shared_experts": ()},
        experts=60,
        experts_per_token=4,
        expert_ffn_size=1408,
        shared_experts=1,
        shared_ffn_size=5632,
    ),
    pinned={"decoder_sparse_step": 1, "norm_topk_prob": False, "qkv_bias": True, "use_sliding_window": False},
    read=_read_mixture,
    write=written_leading,
    layout=rows.llama_frame(
        dense=(*_ATTENTION_ROWS, *rows.gated_mlp(), *rows.TWO_NORMS),
        sparse=(
            *_ATTENTION_ROWS,
            *rows.ROUTER,
            *rows.EXPERTS,
            *rows.gated_mlp("mlp.shared_expert", "shared_ffn"),
            *rows.linear("mlp.shared_expert_gate", "one", "hidden", "router"),
            *rows.TWO_NORMS,
        ),
    ),
    forward=llama.llama_forward(
        attending=_attention,
        mixture=functools.partial(mixture, inside=_beside_gated_share),
        before=_before_mixture,
    ),
    order=Order(sparse=f"{FIRST} {ATTENTION} {OUT} {SECOND} mlp"),
    autotp=UNKNOWN_STYLE,
    leaf=True,
    leaf_class="transformers.models.qwen2_moe.modeling_qwen2_moe.Qwen2MoeSparseMoeBlock",
)
