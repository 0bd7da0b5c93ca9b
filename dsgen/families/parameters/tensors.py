"""Every tensor of a model in the order of its class: what comes before the blocks, the blocks, and what comes after."""

import functools
import math
from typing import NamedTuple

from dsgen.families import FAMILIES, family_of
from dsgen.families.config_keys import FOUR_H, HEADS, SPLIT, ConfigKey
from dsgen.families.family import Family
from dsgen.families.rows import TensorRow
from dsgen.shapes.errors import DsgenError, mistake
from dsgen.shapes.profiles import Model

__all__ = ["CACHED_MODELS", "Parameter", "Stretch", "stretches"]

# AutoTP splits the linear layers inside the blocks; embeddings, norms and routers stay whole, and so do the biases of
# layers whose shares are added up.
_SPLIT = ("attention", "mlp")
_ADDED_UP = frozenset({"c_proj", "dense", "dense_4h_to_h", "down_proj", "fc2", "fc_out", "o_proj", "out_proj"})
_OPT_POSITION_OFFSET = 2  # OPT's position table has two rows more than positions (OPTLearnedPositionalEmbedding)
CACHED_MODELS = 4096  # models kept; a plan asks for one model thousands of times, a matrix run for about a hundred


class Parameter(NamedTuple):
    """One tensor of a model, or the same tensor of several blocks.

    Attributes:
        name: Its name in Hugging Face's state dict, the layer index folded to `*`.
        shape: Its shape, in elements.
        repeats: How many such tensors the model has (1, or the number of blocks that have it).
        kind: embedding, position, head, attention, mlp, expert, router, norm or bias. A bias is `bias` in a linear
            layer, and what its module is in a norm, an expert or a router.
        layer: Whether it is inside a transformer block.
        matrix: Whether it is the weight of a linear layer. Experts are not: transformers 5 keeps those of a layer in
            one 3-D tensor.
        split: Whether AutoTP splits it among its ranks.
    """

    name: str
    shape: tuple[int, ...]
    repeats: int
    kind: str
    layer: bool
    matrix: bool
    split: bool = False

    @property
    def numel(self) -> int:
        """Elements of one such tensor."""
        return math.prod(self.shape)

    @property
    def total(self) -> int:
        """Elements of all of them."""
        return self.numel * self.repeats

    @property
    def added_up(self) -> bool:
        """Whether AutoTP's ranks add up what they make with their shares of it, or of the matrix whose bias it is."""
        return self.name.rpartition(".")[0].rpartition(".")[2] in _ADDED_UP

    def sharded(self, tp: int) -> int:
        """Elements of one such tensor on one of AutoTP's ranks."""
        return math.ceil(self.numel / tp) if self.split else self.numel


class Stretch(NamedTuple):
    """A part of a model in the order of its tensors: one block and how often it follows itself, or what is around.

    What lies between an encoder and a decoder counts as a block of its own.
    """

    parameters: tuple[Parameter, ...]
    repeats: int
    blocks: bool


@functools.lru_cache(maxsize=CACHED_MODELS)
def stretches(model: Model) -> tuple[Stretch, ...]:
    """The model from its first tensor to its last: what comes before the blocks, the blocks, and what comes after.

    Raises:
        DsgenError: As for `parameters`.
    """
    family = family_of(model)
    layout = family.layout
    _check(model, family)
    sizes, every = _sizes(model), _facts(model)
    dense = model.dense_layers if model.experts else model.layers
    head: tuple[TensorRow, ...] = ()
    if not model.tied_embeddings:
        head += (TensorRow("lm_head.weight", ("vocab", "embedding"), "head", matrix=True),)
    if layout.head_bias:
        head += (TensorRow("lm_head.bias", ("vocab",), "bias"),)

    def stretch(tensors: tuple[TensorRow, ...], repeats: int, block: str = "", first: bool = False) -> Stretch:
        facts = {**every, "first": first}
        there = (
            Parameter(
                f"{block}.{tensor.name}" if block else tensor.name,
                tuple(sizes[symbol] for symbol in tensor.shape),
                1,
                tensor.kind,
                bool(block),
                tensor.matrix,
            )
            for tensor in tensors
            if not tensor.when or facts[tensor.when]
        )
        split = tuple(item._replace(split=_is_split(item, family, model.tied_embeddings)) for item in there)
        return Stretch(split, repeats, bool(block))

    def stack(tensors: tuple[TensorRow, ...], repeats: int, block: str) -> tuple[Stretch, ...]:
        """Equal blocks, of which the first may have a tensor more."""
        apart = any(tensor.when == "first" for tensor in tensors) and repeats > 0
        first = (stretch(tensors, 1, block, True),) if apart else ()
        return (*first, stretch(tensors, repeats - apart, block))

    return tuple(
        item
        for item in (
            stretch(layout.before, 1),
            *stack(layout.encoder, model.encoder_layers, layout.encoder_block),
            stretch(layout.between, 1)._replace(blocks=True),
            *stack(layout.dense, dense, layout.block),
            stretch(layout.sparse, model.layers - dense, layout.block),
            stretch((*layout.after, *head), 1),
        )
        if item.repeats and item.parameters
    )


def _is_split(item: Parameter, family: Family, tied: bool) -> bool:
    """Whether AutoTP splits a tensor of a family; what makes the logits may be the embedding."""
    if item.layer:
        return item.kind in _SPLIT or (item.kind == "bias" and not item.added_up)
    head = item.kind in ("head", "bias") or (item.kind == "embedding" and tied)  # a bias out here is the head's
    return head and family.autotp.splits_head(tied)


def _check(model: Model, family: Family) -> None:
    """Refuse facts that the architecture's class cannot have."""
    a, layout = family.model_type, family.layout
    if not family.chooses_gate and model.gated_ffn != family.gated:
        raise _impossible(model, "gated_ffn", f"{a} has {'a' if family.gated else 'no'} gate")
    if model.attention_heads % model.kv_heads:
        raise _impossible(model, "kv_heads", f"it must divide attention_heads ({model.attention_heads})")
    for key in family.keys:
        if not key.names:
            _check_unsaid(model, key)
    for bias in ("attention_bias", "mlp_bias"):
        if getattr(model, bias) and not family.says(bias):
            raise _impossible(model, bias, f"{a} leaves no choice; what it has is counted")
    for fact in ("encoder_layers", "relative_buckets"):
        if bool(getattr(model, fact)) != family.encodes:
            none = "no encoder" if fact == "encoder_layers" else "none"
            raise _impossible(model, fact, f"{a} has {'at least 1' if family.encodes else none}")
    tied = family.key("tied_embeddings")
    if tied and not tied.names and not model.tied_embeddings:
        raise _impossible(model, "tied_embeddings", f"{a} always shares them")
    if model.dropout and not family.dropouts:
        raise _impossible(model, "dropout", f"{a} leaves no choice; what it has is counted")
    for fact in ("embedding_size", "post_norm"):
        if getattr(model, fact) and not family.says(fact):
            others = " and ".join(name for name, other in FAMILIES.items() if other.says(fact))
            raise _impossible(model, fact, f"only {others} has this")
    _check_experts(model, family, bool(layout.dense), bool(layout.sparse))


def _check_unsaid(model: Model, key: ConfigKey) -> None:
    """Refuse another value of a fact that no key says."""
    a, heads = model.architecture, model.attention_heads
    if key.fact == "kv_heads" and key.default == HEADS and model.kv_heads != heads:
        raise _impossible(model, "kv_heads", f"{a} has as many as attention_heads ({heads})")
    if key.fact == "kv_heads" and key.default == 1 and model.kv_heads != 1:
        raise _impossible(model, "kv_heads", f"{a} has one")
    if key.default == SPLIT and model.head_size * heads != model.hidden_size:
        raise _impossible(model, "head_size", f"{a} splits hidden_size ({model.hidden_size}) among its heads")
    if key.default == FOUR_H and model.ffn_size != 4 * model.hidden_size:
        raise _impossible(model, "ffn_size", f"{a} has 4 x hidden_size")


def _check_experts(model: Model, family: Family, dense: bool, sparse: bool) -> None:
    a = family.model_type
    if model.qk_norm and not family.says("qk_norm"):
        raise _impossible(model, "qk_norm", f"{a} leaves no choice; what it has is counted")
    if model.experts and not sparse:
        raise _impossible(model, "experts", f"{a} has none")
    if not model.experts and sparse:
        raise _impossible(model, "experts", f"{a} is a mixture of experts, and needs at least 1")
    if model.experts and not 1 <= model.experts_per_token <= model.experts:
        raise _impossible(model, "experts_per_token", f"it must be between 1 and experts ({model.experts})")
    if model.experts and not model.expert_ffn_size:
        raise _impossible(model, "expert_ffn_size", "a mixture of experts needs it")
    if model.dense_layers > (model.layers if dense and model.experts else 0):
        raise _impossible(model, "dense_layers", "only a mixture of experts with dense first blocks has them")
    if bool(model.shared_experts) != family.says("shared_experts"):
        must = f"{a} has {'at least 1' if family.says('shared_experts') else 'none'}"
        raise _impossible(model, "shared_experts", must)
    own = family.says("shared_ffn_size")
    if bool(model.shared_ffn_size) != own:
        raise _impossible(model, "shared_ffn_size", f"{a} has {'it' if own else 'none of its own'}")
    grouped = family.says("expert_groups")
    if model.expert_groups and (not grouped or model.experts % model.expert_groups):
        must = f"it must divide experts ({model.experts})" if grouped else f"{a} leaves no choice"
        raise _impossible(model, "expert_groups", must)
    latent = family.says("kv_lora_rank")
    if bool(model.kv_lora_rank) != latent:
        raise _impossible(model, "kv_lora_rank", f"{a} has {'MLA' if latent else 'no MLA'}")


def _impossible(model: Model, field: str, must: str) -> DsgenError:
    value = getattr(model, field)
    return mistake(f"model.{field} is {str(value).lower()}", must=must)


def _sizes(model: Model) -> dict[str, int]:
    """The number behind every symbol of a layout."""
    heads, kv_heads, head = model.attention_heads, model.kv_heads, model.head_size
    v_head = model.v_head_size or head
    return {
        "one": 1,
        "hidden": model.hidden_size,
        "vocab": model.vocab_size,
        "embedding": model.embedding_size or model.hidden_size,
        "positions": model.max_positions,
        "positions_and_2": model.max_positions + _OPT_POSITION_OFFSET,
        "buckets": model.relative_buckets,
        "heads": heads,
        "head": head,
        "q": heads * head,
        "kv": kv_heads * head,
        "qkv": (heads + 2 * kv_heads) * head,
        "v": heads * v_head,
        "ffn": model.ffn_size,
        "ffn_pair": 2 * model.ffn_size,
        "experts": model.experts,
        "expert_ffn": model.expert_ffn_size,
        "expert_ffn_pair": 2 * model.expert_ffn_size,
        "shared_ffn": model.shared_width,
        "q_rank": model.q_lora_rank,
        "kv_rank": model.kv_lora_rank,
        "kv_rank_rope": model.kv_lora_rank + model.qk_rope_head_size,
        "kv_expanded": heads * (head - model.qk_rope_head_size + v_head),
    }


def _facts(model: Model) -> dict[str, bool]:
    """The truth of every condition of a layout."""
    return {
        "gated": model.gated_ffn,
        "ungated": not model.gated_ffn,
        "attention_bias": model.attention_bias,
        "mlp_bias": model.mlp_bias,
        "qk_norm": model.qk_norm,
        "plain_query": not model.q_lora_rank,
        "query_rank": bool(model.q_lora_rank),
        "query_rank_bias": bool(model.q_lora_rank) and model.attention_bias,
        "projected": model.embedding_size not in (0, model.hidden_size),
        "final_norm": not model.post_norm,
        "one_kv_head": model.kv_heads == 1,
        "many_kv_heads": model.kv_heads > 1,
    }
