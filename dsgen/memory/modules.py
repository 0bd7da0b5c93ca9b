"""The modules of a model in the order in which they run, with the tensors of each: what stage 3 gathers by.

Source: the classes of transformers 5.23 (models/*/modeling_*.py); with adapters, peft's layers.
"""

import functools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from dsgen.families import Family, family_of
from dsgen.families.orders import BEHIND, BEHIND_DECODER, HEAD
from dsgen.families.parameters import adapters, in_outer_module, stretches
from dsgen.memory.numbers import partitioned, quantized
from dsgen.memory.trained import AFTER, BEFORE
from dsgen.shapes.profiles import Model

__all__ = ["AUTOGRAD", "BITSANDBYTES", "LENDING", "NOBODY", "GatheredTensor", "Module", "Modules", "modules"]

_ADAPTED = (".base_layer", ".lora_dropout.default", ".lora_A.default", ".lora_B.default")
_INNER = ".base_layer"  # what peft's layer, or its wrapper of a parameter (ParamWrapper), is around
_COPY = ".modules_to_save.default"  # what peft trains in the place of a module
_FUNCTIONS = frozenset(
    {
        *("act", "act_fn", "activation_fn", "attention_dropout", "drop", "dropout", "emb_dropout", "embed_dropout"),
        *("post_attention_dropout", "post_mlp_dropout", "resid_attn_dropout", "resid_dropout", "resid_mlp_dropout"),
        *("gelu_impl", "rotary_emb"),
    }
)
_ATTENTIONS = frozenset({"attention", "attn", "self_attention", "self_attn"})
LENDING = "DenseReluDense"  # a module that is gathered with a weight of one inside
NOBODY, AUTOGRAD, BITSANDBYTES = range(3)  # who refers to the place of a tensor that has been released


class GatheredTensor(NamedTuple):
    """A tensor that stage 3 gathers.

    Attributes:
        place: Its index among all of the model's.
        numel: Its elements.
        keeper: Who keeps what was gathered when it is released.
        frozen: Whether it gets no gradient.
        read: What is around its module reads its type, and so holds it too. Attention is not told that its own backward
            is over, because it is called with names (deepspeed, PostBackwardFunctionModule), and so never lets it go.
        split: AutoTP has split it, so it is cut among other ranks than the rest.
        free: Gathered, it takes nothing: this rank's share is all of it.
    """

    place: int
    numel: int
    keeper: int
    frozen: bool
    read: bool = False
    split: bool = False
    free: bool = False

    def extent(self, wide: bool) -> int:
        """What it takes, in elements of a weight: twice as much as its own if adapters are `wide`."""
        if self.free:
            return 0
        return 2 * self.numel if wide and not self.frozen else self.numel


class Module(NamedTuple):
    """One module.

    Attributes:
        name: Its name below the block or the model; empty for the block itself.
        tensors: Its own.
        product: It multiplies by a matrix, or by those of experts; or it is the embedding.
        second: Experts multiply twice: which of the tensors is the first of the second product; else 0.
        late: peft's wrapper of a parameter, or what is in it: its tensors stay until what is inside is over.
        inside: Elements of all tensors in it and below.
        whole: It is gathered with everything below.
    """

    name: str
    tensors: tuple[GatheredTensor, ...]
    inside: int
    whole: bool = False
    product: bool = False
    second: int = 0
    late: bool = False


class Modules(NamedTuple):
    """What runs, in order.

    Attributes:
        roots: How many modules are around everything; they have no tensor of their own.
        parts: (block: BEFORE, AFTER, or counted from 0; its modules), in order.
        asking: The module of a checkpointed block whose backward runs it again; None for the last one with a tensor.
    """

    roots: int
    parts: tuple[tuple[int, tuple[Module, ...]], ...]
    asking: str | None


_Own = dict[str, list[GatheredTensor]]  # module -> its tensors


@functools.lru_cache(maxsize=1024)
def modules(
    model: Model,
    method: str,
    lora_rank: int,
    lora_targets: tuple[str, ...],
    tp: int,
    embeddings: bool = False,
    reads: bool = False,
    free: bool = False,
) -> Modules:
    """The modules of a model.

    Args:
        model: The architecture.
        method: full, lora or qlora.
        lora_rank: Rank of the adapters.
        lora_targets: Names of the matrices that get one.
        tp: AutoTP degree.
        embeddings: Copies of embedding and head are trained beside the adapters, and run in their place.
        reads: Attention reads the type of its first linear layer's weight itself, as FlashAttention makes it in fp32,
            so the weight is gathered with attention too (transformers, integrations/flash_attention.py,
            get_target_dtype; deepspeed, register_external_parameter).
        free: What AutoTP has split is not cut again: there is one replica.
    """
    frozen = method != "full"
    adapting = adapters(model, lora_rank, lora_targets) if frozen else {}
    packed = quantized(model, method)
    family = family_of(model)
    runs = family.order
    around: _Own = {}
    blocks: list[tuple[int, tuple[Module, ...]]] = []
    count = 0
    for stretch in stretches(model):
        sparse = stretch.blocks and any(item.kind == "expert" for item in stretch.parameters)
        whole = "mlp" if sparse and family.leaf else None
        own: _Own = {} if stretch.blocks else around
        products: dict[str, int] = {}  # module -> its `second`
        beside: dict[str, list[list[GatheredTensor]]] = {}  # module -> its adapted parameters, each with its adapter
        size = 0 if stretch.blocks else count
        for item in stretch.parameters:
            parts = item.name.split(".")
            name = item.name.rpartition("*.")[2].rpartition(".")[0] if stretch.blocks else parts[-2]
            name = whole if whole and name.startswith(f"{whole}.") else name
            copied = embeddings and frozen and in_outer_module(item)
            name += _COPY if copied else ""
            linear = item.matrix and item.layer
            direct = (item.kind == "expert" and not family.experts_as_stored and item.name not in adapting) or (
                linear and family.direct
            )
            # AutoTP's layers are no nn.Linear, whose function DeepSpeed takes for its own (module_inject/layers.py).
            split = item.sharded(tp) < item.numel
            direct = direct or (item.matrix and split)
            keeper = BITSANDBYTES if packed and linear else AUTOGRAD if direct else NOBODY
            own_adapter = adapting.get(item.name, ())
            # What is gathered whole has no modules of its own; the adapter of an expert or router none that run.
            wrapped = bool(own_adapter) and item.matrix and name != whole
            layer = f"{name}.base_layer"  # which has the bias of an adapted matrix too
            module = layer if wrapped or layer in own else name
            if item.layer and (item.matrix or item.kind == "expert"):
                second = item.kind == "expert" and item.name.endswith("down_proj")
                products[module] = len(own[module]) if second else products.get(module, 0)
            numel, trained = partitioned(model, item, tp, packed), not frozen or copied
            own.setdefault(module, []).append(
                GatheredTensor(size, numel, keeper, not trained, split=split, free=free and split)
            )
            size += 1
            if own_adapter and not wrapped and name != whole:
                both = [GatheredTensor(size + more, numel, NOBODY, False) for more, numel in enumerate(own_adapter)]
                beside.setdefault(name, []).append([own[module][-1], *both])
                size += len(both)
                continue
            for letter, numel in zip("AB", own_adapter, strict=False):
                lower = f"{name}.lora_{letter}.default" if wrapped else name
                own.setdefault(lower, []).append(GatheredTensor(size, numel, NOBODY, False))
                if wrapped and letter == "A":  # peft's layer reads its type itself, so it is gathered with that too
                    own.setdefault(name, []).append(own[lower][-1])
                elif wrapped:
                    products[lower] = 0
                size += 1
        if reads and stretch.blocks:
            _read(own, family)
        if not stretch.blocks:
            count = size
            continue
        order = runs.sparse if sparse else runs.late if model.post_norm else runs.dense
        if model.encoder_layers:
            stack, inner, _ = stretch.parameters[0].name.partition("*.")
            order = runs.encoder if stack.startswith("encoder") else runs.dense
            if not inner:  # the decoder embeds with the same weight
                order = runs.between
                shared = around["shared"][0]
                own["decoder.embed_tokens"] = [shared._replace(place=shared.place - count)]
                products["decoder.embed_tokens"] = 0
            _lent(own)
        wrappers = _nested(own, products, beside)
        made = _made(["", *_existing(order, own, wrappers)], own, products, whole, wrappers)
        for _ in range(stretch.repeats):
            blocks.append((len(blocks), _moved(made, count)))
            count += size
    if model.tied_embeddings:
        around[HEAD] = [around[runs.ahead.split()[0]][0], *around.get(HEAD, ())]
    before = _existing(runs.ahead, around)
    first = _made(before, around, {next(name for name in before if name in around): 0})
    heads = [HEAD + _ADAPTED[0], HEAD + _ADAPTED[-1]] if HEAD + _ADAPTED[0] in around else []
    last = _made(
        _existing(BEHIND_DECODER if model.encoder_layers else BEHIND, around),
        around,
        dict.fromkeys(heads or [HEAD + _COPY if HEAD + _COPY in around else HEAD], 0),
    )
    roots, run = 2 if method == "full" else 4, ((BEFORE, first), *blocks, (AFTER, last))
    asks = None if model.post_norm or (family.dropouts and not model.dropout) else runs.asks
    return Modules(roots, run, asks)


def _read(own: _Own, family: Family) -> None:
    """Add the weight of attention's first linear layer to attention itself."""
    parts = [name for name in own if name.partition(".")[0] in _ATTENTIONS and "lora_" not in name]
    first = next((name for name in parts if name.partition(".")[2].startswith(family.order.registered)), None)
    if first and not family.transposed:  # those are no linear layers
        own[first][0] = own[first][0]._replace(read=True)
        own.setdefault(first.partition(".")[0], []).append(own[first][0])


def _lent(own: _Own) -> None:
    """Add the weight of T5's last linear layer to the feed-forward part, which reads its type (T5DenseActDense)."""
    for name in [name for name in own if name.endswith((f"{LENDING}.wo", f"{LENDING}.wo.base_layer"))]:
        own[name][0] = own[name][0]._replace(read=True)
        own[name.partition(".wo")[0]] = [own[name][0]]


def _nested(
    own: _Own, products: dict[str, int], beside: Mapping[str, Sequence[list[GatheredTensor]]]
) -> dict[str, list[str]]:
    """Put adapted parameters into peft's wrappers, one around the other: that of the last parameter is the outermost.

    A wrapper reads its parameter and both adapters itself, so they are gathered with it (register_external_parameter).
    While it runs, what is inside has no parameter of its own, but the order of use, written down behind it, has
    (peft, ParamWrapper._activate_lora; construct_parameter_trace_from_module_trace).

    Returns:
        Module -> its wrappers, and at last what is inside of all.
    """
    wrappers: dict[str, list[str]] = {}
    for name, groups in beside.items():
        wrappers[name] = [name + _INNER * depth for depth in range(len(groups) + 1)]
        inner = wrappers[name][-1]
        own[inner] = own.pop(name)
        own.update(zip(wrappers[name], reversed(groups), strict=False))
        if name in products:
            products[inner] = products.pop(name)
    return wrappers


def _existing(
    order: str, own: Mapping[str, Sequence[object]], wrappers: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> list[str]:
    """Of all modules that a class may have those that the model has, adapters and their wrappers among them."""
    names: list[str] = []
    for name in order.split():
        outer, _, last = name.rpartition(".")
        if name in wrappers:
            names += wrappers[name]
        elif outer in wrappers:
            names.append(f"{wrappers[outer][-1]}.{last}")
        elif f"{name}.base_layer" in own:
            names += [name, *(name + more for more in _ADAPTED)]
        elif f"{name}{_COPY}" in own:
            names += [name, f"{name}{_COPY}"]
        elif name in own or last in _FUNCTIONS or any(other.startswith(f"{name}.") for other in own):
            names.append(name)
    return names


def _made(
    order: Sequence[str],
    own: _Own,
    products: Mapping[str, int],
    whole: str | None = None,
    wrappers: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> tuple[Module, ...]:
    late = {name for names in wrappers.values() for name in names}
    sizes = {name: sum(held.numel for held in held_by) for name, held_by in own.items()}
    made = []
    for name in order:
        inside = sum(size for other, size in sizes.items() if not name or f"{other}.".startswith(f"{name}."))
        tensors, second = tuple(own.get(name, ())), products.get(name, 0)
        made.append(Module(name, tensors, inside, name == whole, name in products, second, name in late))
    return tuple(made)


def _moved(modules: Sequence[Module], count: int) -> tuple[Module, ...]:
    """The modules of a block with its tensors' indices."""
    return tuple(
        module._replace(tensors=tuple(GatheredTensor(count + held.place, *held[1:]) for held in module.tensors))
        if module.tensors
        else module
        for module in modules
    )
