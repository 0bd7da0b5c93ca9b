"""What a layout is made of: one row a tensor, with symbols for sizes, and the modules that recur in many models.

Symbols ("hidden", "q", "ffn" ...) are resolved for one model in parameters/tensors.py.
"""

from typing import NamedTuple

__all__ = [
    "BIASED_QKV",
    "EXPERTS",
    "FOUR_NORMS",
    "NORMED_ATTENTION",
    "ROUTER",
    "TWO_NORMS",
    "TensorLayout",
    "TensorRow",
    "attention",
    "conv1d",
    "embedding",
    "gated_mlp",
    "layer_norm",
    "linear",
    "llama_frame",
    "megatron_attention",
    "megatron_mlp",
    "norm",
]


class TensorRow(NamedTuple):
    """One tensor of a layout: name below the block (or the model), symbolic shape, kind, and when it exists.

    `when` names a yes-or-no fact of the model ("attention_bias", "projected" ...); empty means always.
    """

    name: str
    shape: tuple[str, ...]
    kind: str
    when: str = ""
    matrix: bool = False


class TensorLayout(NamedTuple):
    """All tensors of one model_type, in the order in which Hugging Face's class names them.

    Attributes:
        before: Embeddings, up to the first block.
        block: Name of one block, layer index folded: "model.layers.*".
        after: From the last block to the head.
        encoder_block: The same of an encoder, where there is one.
        encoder: A block of the encoder.
        between: From the encoder's last block to the decoder's first.
        dense: A block with a plain feed-forward part.
        sparse: A block with experts.
        head_bias: The output head has a bias.
    """

    before: tuple[TensorRow, ...]
    block: str
    after: tuple[TensorRow, ...]
    encoder_block: str = ""
    encoder: tuple[TensorRow, ...] = ()
    between: tuple[TensorRow, ...] = ()
    dense: tuple[TensorRow, ...] = ()
    sparse: tuple[TensorRow, ...] = ()
    head_bias: bool = False


def linear(
    name: str, out: str, into: str, kind: str, *, bias: bool = False, bias_when: str = "", when: str = ""
) -> tuple[TensorRow, ...]:
    """A torch.nn.Linear: weight (out, in), and its bias where it has one."""
    weight = TensorRow(f"{name}.weight", (out, into), kind, when, matrix=True)
    if not bias and not bias_when:
        return (weight,)
    return (weight, TensorRow(f"{name}.bias", (out,), "bias", bias_when or when))


def conv1d(name: str, into: str, out: str, kind: str) -> tuple[TensorRow, ...]:
    """GPT-2's transposed linear: weight (in, out), always with a bias."""
    return (TensorRow(f"{name}.weight", (into, out), kind, matrix=True), TensorRow(f"{name}.bias", (out,), "bias"))


def norm(name: str, size: str = "hidden", *, when: str = "") -> tuple[TensorRow, ...]:
    """An RMSNorm: a weight and nothing else."""
    return (TensorRow(f"{name}.weight", (size,), "norm", when),)


def layer_norm(name: str, size: str = "hidden", *, when: str = "") -> tuple[TensorRow, ...]:
    """A LayerNorm: weight and bias."""
    return (TensorRow(f"{name}.weight", (size,), "norm", when), TensorRow(f"{name}.bias", (size,), "norm", when))


def attention(
    *, bias: str = "", qkv_bias: bool = False, o_bias: bool = False, qk_norm: bool = False
) -> tuple[TensorRow, ...]:
    """Llama's four projections; `bias` names the fact that gives all four one."""
    return (
        *linear("self_attn.q_proj", "q", "hidden", "attention", bias=qkv_bias, bias_when=bias),
        *linear("self_attn.k_proj", "kv", "hidden", "attention", bias=qkv_bias, bias_when=bias),
        *linear("self_attn.v_proj", "kv", "hidden", "attention", bias=qkv_bias, bias_when=bias),
        *linear("self_attn.o_proj", "hidden", "q", "attention", bias=o_bias, bias_when=bias),
        *((*norm("self_attn.q_norm", "head"), *norm("self_attn.k_norm", "head")) if qk_norm else ()),
    )


def gated_mlp(name: str = "mlp", size: str = "ffn", *, bias: str = "") -> tuple[TensorRow, ...]:
    """Llama's gate, up and down projections."""
    return (
        *linear(f"{name}.gate_proj", size, "hidden", "mlp", bias_when=bias),
        *linear(f"{name}.up_proj", size, "hidden", "mlp", bias_when=bias),
        *linear(f"{name}.down_proj", "hidden", size, "mlp", bias_when=bias),
    )


def embedding(name: str) -> tuple[TensorRow, ...]:
    """A table with a row for every token."""
    return (TensorRow(name, ("vocab", "hidden"), "embedding"),)


def llama_frame(
    *,
    dense: tuple[TensorRow, ...] = (),
    sparse: tuple[TensorRow, ...] = (),
    after: tuple[TensorRow, ...] = norm("model.norm"),
    head_bias: bool = False,
) -> TensorLayout:
    """What is around the blocks of Llama's descendants: embed_tokens, layers, norm."""
    return TensorLayout(
        before=embedding("model.embed_tokens.weight"),
        block="model.layers.*",
        dense=dense,
        sparse=sparse,
        after=after,
        head_bias=head_bias,
    )


def megatron_attention(name: str, *, bias: bool = True) -> tuple[TensorRow, ...]:
    """Megatron's fused query, key and value, and the output matrix."""
    return (
        *linear(f"{name}.query_key_value", "qkv", "hidden", "attention", bias=bias),
        *linear(f"{name}.dense", "hidden", "q", "attention", bias=bias),
    )


def megatron_mlp(*, bias: bool = True) -> tuple[TensorRow, ...]:
    """Megatron's names of the two feed-forward matrices."""
    return (
        *linear("mlp.dense_h_to_4h", "ffn", "hidden", "mlp", bias=bias),
        *linear("mlp.dense_4h_to_h", "hidden", "ffn", "mlp", bias=bias),
    )


TWO_NORMS = (*norm("input_layernorm"), *norm("post_attention_layernorm"))
FOUR_NORMS = (*TWO_NORMS, *norm("pre_feedforward_layernorm"), *norm("post_feedforward_layernorm"))
# transformers 5 keeps the experts of a layer in two 3-D tensors; releases before 5 had three matrices an expert.
EXPERTS = (
    TensorRow("mlp.experts.gate_up_proj", ("experts", "expert_ffn_pair", "hidden"), "expert"),
    TensorRow("mlp.experts.down_proj", ("experts", "hidden", "expert_ffn"), "expert"),
)
ROUTER = (TensorRow("mlp.gate.weight", ("experts", "hidden"), "router"),)
BIASED_QKV = (
    *linear("self_attn.q_proj", "q", "hidden", "attention", bias_when="attention_bias"),
    *linear("self_attn.k_proj", "kv", "hidden", "attention", bias_when="attention_bias"),
    *linear("self_attn.v_proj", "kv", "hidden", "attention", bias_when="attention_bias"),
    *linear("self_attn.o_proj", "hidden", "q", "attention"),
)
NORMED_ATTENTION = (
    *attention(bias="attention_bias"),
    *norm("self_attn.q_norm", "q"),  # over all heads together
    *norm("self_attn.k_norm", "kv"),
)
