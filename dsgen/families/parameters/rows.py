"""What a layout is made of: one row a tensor, with symbols for sizes, and the modules that recur in many models."""

from __future__ import annotations

import attrs

__all__ = ["Layout", "Tensor", "attention", "conv1d", "gated_mlp", "layer_norm", "linear", "norm"]


@attrs.frozen
class Tensor:
    """One row of a layout: name below the block (or the model), symbolic shape, kind, and when it exists.

    `when` names a yes-or-no fact of the model ("attention_bias", "projected" ...); empty means always.
    """

    name: str
    shape: tuple[str, ...]
    kind: str
    when: str = ""
    matrix: bool = False


@attrs.frozen(kw_only=True)
class Layout:
    """All tensors of one model_type, in order, and what the architecture leaves no choice in."""

    huggingface: str  # the class that is the source of this row
    before: tuple[Tensor, ...]  # embeddings, up to the first block
    block: str  # name of one block, layer index folded: "model.layers.*"
    encoder_block: str = ""  # the same of an encoder, where there is one
    encoder: tuple[Tensor, ...] = ()  # a block of the encoder
    between: tuple[Tensor, ...] = ()  # from the encoder's last block to the decoder's first
    dense: tuple[Tensor, ...] = ()  # a block with a plain feed-forward part
    sparse: tuple[Tensor, ...] = ()  # a block with experts
    after: tuple[Tensor, ...]  # from the last block to the head
    head_bias: bool = False
    gated: bool | None  # whether the feed-forward part has a gate; None: a config chooses
    same_heads: bool = False  # every head has its own key and value (no GQA)
    one_key_head: bool = False  # all heads share one key and value
    split_heads: bool = False  # the heads split hidden_size; head_size is no choice
    ffn_factor: int = 0  # ffn_size is this multiple of hidden_size; 0: free
    biases: bool = False  # a config may turn on attention_bias
    mlp_biases: bool = False  # a config may turn on mlp_bias
    tied: bool = False  # the output head is always the embedding
    dropouts: bool = False  # a config may turn on dropout
    shared: bool = False  # has shared experts


def linear(
    name: str, out: str, into: str, kind: str, *, bias: bool = False, bias_when: str = "", when: str = ""
) -> tuple[Tensor, ...]:
    """A torch.nn.Linear: weight (out, in), and its bias where it has one."""
    weight = Tensor(f"{name}.weight", (out, into), kind, when, matrix=True)
    if not bias and not bias_when:
        return (weight,)
    return (weight, Tensor(f"{name}.bias", (out,), "bias", bias_when or when))


def conv1d(name: str, into: str, out: str, kind: str) -> tuple[Tensor, ...]:
    """GPT-2's transposed linear: weight (in, out), always with a bias."""
    return (Tensor(f"{name}.weight", (into, out), kind, matrix=True), Tensor(f"{name}.bias", (out,), "bias"))


def norm(name: str, size: str = "hidden", *, when: str = "") -> tuple[Tensor, ...]:
    """An RMSNorm: a weight and nothing else."""
    return (Tensor(f"{name}.weight", (size,), "norm", when),)


def layer_norm(name: str, size: str = "hidden", *, when: str = "") -> tuple[Tensor, ...]:
    """A LayerNorm: weight and bias."""
    return (Tensor(f"{name}.weight", (size,), "norm", when), Tensor(f"{name}.bias", (size,), "norm", when))


def attention(
    *, bias: str = "", qkv_bias: bool = False, o_bias: bool = False, qk_norm: bool = False
) -> tuple[Tensor, ...]:
    """Llama's four projections; `bias` names the fact that gives all four one."""
    return (
        *linear("self_attn.q_proj", "q", "hidden", "attention", bias=qkv_bias, bias_when=bias),
        *linear("self_attn.k_proj", "kv", "hidden", "attention", bias=qkv_bias, bias_when=bias),
        *linear("self_attn.v_proj", "kv", "hidden", "attention", bias=qkv_bias, bias_when=bias),
        *linear("self_attn.o_proj", "hidden", "q", "attention", bias=o_bias, bias_when=bias),
        *((*norm("self_attn.q_norm", "head"), *norm("self_attn.k_norm", "head")) if qk_norm else ()),
    )


def gated_mlp(name: str = "mlp", size: str = "ffn", *, bias: str = "") -> tuple[Tensor, ...]:
    """Llama's gate, up and down projections."""
    return (
        *linear(f"{name}.gate_proj", size, "hidden", "mlp", bias_when=bias),
        *linear(f"{name}.up_proj", size, "hidden", "mlp", bias_when=bias),
        *linear(f"{name}.down_proj", "hidden", size, "mlp", bias_when=bias),
    )
