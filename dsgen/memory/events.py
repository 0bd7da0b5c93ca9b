"""The order in which the modules of a model start in one step: forward, forward again under checkpointing, backward.

Seen with every model type that is known, in the order of PyTorch's autograd and torch.utils.checkpoint.
"""

import functools
from typing import NamedTuple

from dsgen.families import family_of
from dsgen.families.orders import HEAD
from dsgen.memory.activations import AGAIN, BACKWARD, FORWARD
from dsgen.memory.modules import BITSANDBYTES, LENDING, GatheredTensor, Module, Modules, modules
from dsgen.memory.trained import AFTER, BEFORE
from dsgen.shapes.profiles import Model

__all__ = ["ModuleEvent", "Step", "events", "first_asked", "graphless", "lingering", "narrow", "unasked"]

# Matrices whose input is the block's, normalized. In some families that of the feed-forward part is so too.
_FIRST = (
    *("attn.c_attn", "attn.q_proj", "attn.k_proj", "attn.v_proj", "attention.query_key_value"),
    *("self_attention.query_key_value", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    *("self_attn.qkv_proj", "self_attn.q_a_proj", "self_attn.kv_a_proj_with_mqa"),
)
_POSITIONS = frozenset({"embed_positions", "wpe"})  # tables that ask for no gradient unless they are trained


class ModuleEvent(NamedTuple):
    """A module starts.

    Attributes:
        block: BEFORE, AFTER, or counted from 0.
        module: The module.
        way: FORWARD, AGAIN or BACKWARD.
        stays: Its tensors are not released after it.
        holds: Nor are its frozen ones: those that a block gathers when it runs forward again are released with the
            module whose backward asked for that (fetch_sub_module, update_recompute_parameters).
        leaving: The tensors that are released after it because of that.
        ends: It does not start, it is over, and so are its tensors, which a module inside has too.
        over: Tensors of modules around it, and its own, that are over with it: peft's wrappers of parameters.
        closes: The graph of a reentrant second forward is gone with it, and what that alone refers to.
    """

    block: int
    module: Module
    way: int
    stays: bool = False
    holds: bool = False
    leaving: tuple[GatheredTensor, ...] = ()
    ends: bool = False
    over: tuple[GatheredTensor, ...] = ()
    closes: bool = False


class Step(NamedTuple):
    """What the order of use depends on.

    Attributes:
        model: The architecture.
        method: full, lora or qlora.
        lora_rank: Rank of the adapters.
        lora_targets: Names of the matrices that get one.
        tp: AutoTP degree.
        embeddings: Copies of embedding and head are trained beside the adapters.
        checkpointing: Each block runs forward again before its backward.
        chunked: The loss takes the head's weight in its own hands: it is gathered with the model, not with a head.
        wide: An element of an adapter takes twice what an element of a weight takes.
        reads: Attention reads the type of a weight of its own.
        free: What AutoTP has split is not cut again.
        lingers: What has ids for its input is not released behind its backward, but in the next pass of the same step
            (dsgen.memory.older_releases); there is one.
        reentrant: A block runs forward again as torch's reentrant checkpointing does it: all of it, before anything of
            it has its backward, and in a graph of its own. Its first forward makes no graph.
        returns: What is frozen is released behind the second forward of its module and gathered once more
            (dsgen.jobs.releases).
    """

    model: Model
    method: str
    lora_rank: int
    lora_targets: tuple[str, ...]
    tp: int
    embeddings: bool = False
    checkpointing: bool = False
    chunked: bool = False
    wide: bool = False
    reads: bool = False
    free: bool = False
    lingers: bool = False
    reentrant: bool = False
    returns: bool = False

    @property
    def modules(self) -> Modules:
        """The modules of the model."""
        return modules(*self[:6], self.reads, self.free)


def graphless(step: Step, event: ModuleEvent) -> bool:
    """Whether nobody refers to what is released behind an event because it makes no graph, or its graph is gone."""
    return step.reentrant and (event.closes or (event.way == FORWARD and BEFORE < event.block < AFTER))


def first_asked(step: Step) -> int:
    """The first block that has a backward: all of them where the embedding asks for a gradient, else that with the
    first adapter; AFTER where none has one."""
    if step.checkpointing or step.embeddings or step.method == "full":
        return 0
    parts = step.modules.parts[1:-1]
    trained = (block for block, part in parts if any(not held.frozen for module in part for held in module.tensors))
    return next(trained, AFTER)


def unasked(step: Step) -> frozenset[str]:
    """Names of matrices in the first block with a backward whose input asks for no gradient, as it does with
    checkpointing.

    They save no weight for backward, and have none.
    """
    if step.checkpointing or step.embeddings or step.method == "full":
        return frozenset()
    names = (*_FIRST, *(family_of(step.model).order.parallel or ("",)))
    return frozenset(f"{name}{more}" for name in names for more in ("", ".base_layer"))


def narrow(step: Step) -> Step:
    """The step but for what an adapter's elements take, on which no order depends."""
    return step._replace(wide=False) if step.wide else step


def events(step: Step) -> tuple[ModuleEvent, ...]:
    """The modules in order of use in one step."""
    return _events(narrow(step))


@functools.lru_cache(maxsize=256)
def _events(step: Step) -> tuple[ModuleEvent, ...]:
    method, checkpointing, chunked = step.method, step.checkpointing, step.chunked
    modules = step.modules
    everything = sum(held.numel for _, part in modules.parts for module in part for held in module.tensors)
    root = Module("", (), everything)
    after = tuple(module for module in modules.parts[-1][1] if module.name.partition(".")[0] != HEAD)
    head = modules.parts[-1][1][len(after) :]
    made = [ModuleEvent(BEFORE, root, FORWARD)] * modules.roots
    outer = [ModuleEvent(AFTER, root, BACKWARD)] * (modules.roots - 1)
    if chunked:  # nothing that goes into the model asks for a gradient: what it has gathered stays until the end
        whole, head = root._replace(tensors=head[-1].tensors), ()
        made[0], outer[0] = ModuleEvent(BEFORE, whole, FORWARD, True), ModuleEvent(AFTER, whole, BACKWARD, True)
    kept = made[0].module.tensors if chunked else ()  # a tied head is the embedding too
    made += [
        ModuleEvent(block, module, FORWARD, bool(kept) and any(held in kept for held in module.tensors))
        for block, part in modules.parts[:-1]
        for module in part
    ]
    made += [ModuleEvent(AFTER, module, FORWARD) for module in (*after, *head)]
    without = unasked(step)
    between = step.model.encoder_layers or AFTER  # what lies behind the encoder is never run again
    begin = first_asked(step)
    turned = [module for module in _reversed(head) if begin < AFTER or module.name != f"{HEAD}.base_layer"]
    made += [*outer, *(ModuleEvent(AFTER, module, BACKWARD) for module in turned), ModuleEvent(AFTER, root, BACKWARD)]
    if begin < AFTER:
        made += [ModuleEvent(AFTER, module, BACKWARD) for module in after[::-1]]
    for block, part in modules.parts[-2:0:-1]:
        if block < begin:
            break
        back = _reversed(part)
        if not checkpointing or block == between:
            made += [
                ModuleEvent(block, module, BACKWARD) for module in back if block > begin or module.name not in without
            ]
            continue
        asking = "" if step.reentrant else modules.asking
        waking = ""
        if asking is None:  # T5's block ends in a dropout
            ends = step.model.encoder_layers and step.model.dropout
            asking = next(module.name for module in reversed(part) if module.tensors or ends)
            asking, waking = _awake(part, asking)
        # A module asks for what was not saved: the block runs forward until that is made, and backward goes on. The
        # module's tensors stay in between.
        first = [module.name for module in back].index(asking)
        last = [module.name for module in part].index(asking) if asking else len(part)
        made += [ModuleEvent(block, module, BACKWARD, not _silent(module)) for module in back[: first + 1]]
        made += [ModuleEvent(block, module, AGAIN, holds=not step.returns) for module in part[1:last]]
        leaving = tuple(dict.fromkeys(held for module in part[1:last] for held in module.tensors if held.frozen))
        # What asks is over with the last module inside of it: that of the block itself is the last of all.
        again = () if waking else part[last : last + 1]
        rest = [ModuleEvent(block, module, BACKWARD) for module in (*again, *back[first + 1 :])]
        if asking and part[last].late:
            waking = asking
        behind = len(rest) - 1 if not asking else _inside(rest, waking) if waking else 0
        if behind and not step.returns:
            rest[: behind + 1] = [event._replace(holds=True) for event in rest[: behind + 1]]
        rest[behind] = rest[behind]._replace(leaving=() if step.returns else leaving, closes=step.reentrant)
        made += rest
    if method == "full" or checkpointing or step.embeddings:  # else embeddings have no backward; frozen positions never
        still = [module for module in modules.parts[0][1][::-1] if method == "full" or module.name not in _POSITIONS]
        # What has ids for its input is not told that its backward is over.
        made += [
            ModuleEvent(BEFORE, module, BACKWARD, step.lingers or module.name in _POSITIONS)
            for module in still
            if module.tensors
        ]
    return tuple(_lent(made) if step.model.encoder_layers else _closed(made))


def _awake(part: tuple[Module, ...], last: str) -> tuple[str, str]:
    """What asks in the place of the last matrix of a block where that is frozen in 4 bits, which saves nothing for its
    backward (bitsandbytes, MatMul4Bit): the activation function before it, or else what is around both.

    Returns:
        (the module up to which the block runs again, what is around it where that asks).
    """
    place = next(place for place, module in enumerate(part) if module.name == last)
    matrix, before = part[place], part[place - 1]
    if not _silent(matrix):
        return last, ""
    around = last.rpartition(".")[0]
    return (last, around) if before.tensors or before.name == around else (before.name, "")


def _silent(module: Module) -> bool:
    return any(held.keeper == BITSANDBYTES for held in module.tensors) and all(held.frozen for held in module.tensors)


def _inside(events: list[ModuleEvent], name: str) -> int:
    """The last of events in a module."""
    return max((at for at, event in enumerate(events) if f"{event.module.name}.".startswith(f"{name}.")), default=0)


def _closed(made: list[ModuleEvent]) -> list[ModuleEvent]:
    """Events with the tensors of modules that are over with the last one inside of them."""
    for place, event in enumerate(made):
        if event.module.late and not event.stays:  # what asks for the second forward is not over before it
            last = place
            while last + 1 < len(made) and made[last + 1].module.name.startswith(f"{event.module.name}."):
                last += 1
            made[last] = made[last]._replace(over=(*made[last].over, *event.module.tensors))
    return made


def lingering(step: Step) -> frozenset[int]:
    """Places of the tensors that a pass before has left gathered: of what has ids for its input, as the root has too.

    A chunked loss takes the head's weight from the root.
    """
    if not step.lingers:
        return frozenset()
    ends = (event.module for event in events(step) if event.way == BACKWARD and _has_ids(event))
    return frozenset(held.place for module in ends for held in module.tensors)


def _has_ids(event: ModuleEvent) -> bool:
    return event.block == BEFORE or (event.block == AFTER and not event.module.name)


def _lent(made: list[ModuleEvent]) -> list[ModuleEvent]:
    """Events where a module has a tensor of one inside too, which stays until both are over.

    Forward they end together. In backward the inner one is the first.
    """
    events: list[ModuleEvent] = []
    lending = Module("", (), 0)
    for event, behind in zip(made, (*made[1:], made[0]), strict=True):
        name = event.module.name
        mine = name.endswith(LENDING)
        lending = event.module if mine else lending
        events.append(event._replace(stays=True) if mine else event)
        last = event.way == behind.way == BACKWARD and not behind.module.name.startswith(lending.name)
        if last and not mine and f".{LENDING}." in name:
            own = tuple(held._replace(read=False) for held in lending.tensors)
            events.append(ModuleEvent(event.block, lending._replace(tensors=own), BACKWARD, ends=True))
    return events


def _reversed(part: tuple[Module, ...]) -> list[Module]:
    """A block's modules in order of backward: what contains others still comes before them."""
    return [part[place] for place in _turned(tuple(module.name for module in part))]


@functools.lru_cache(maxsize=256)
def _turned(names: tuple[str, ...]) -> tuple[int, ...]:
    made: list[int] = []
    for place in range(len(names) - 1, -1, -1):
        inside = f"{names[place]}." if names[place] else ""
        first = next((at for at, other in enumerate(made) if names[other].startswith(inside)), None)
        made.insert(len(made) if first is None else first, place)
    return tuple(made)
