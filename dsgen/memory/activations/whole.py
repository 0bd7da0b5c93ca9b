"""Activations of a whole model: each of its stretches runs on a tape once, put together for any number of blocks."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dsgen.families import family_of
from dsgen.families.parameters import parameters
from dsgen.families.tape.execution import Execution
from dsgen.families.tape.forwards import Block, Stacks
from dsgen.families.tape.lifetimes import Record, opening, size
from dsgen.families.tape.moments import Activity, Size
from dsgen.families.tape.tape import Tape, Tensor
from dsgen.memory.activations import course
from dsgen.memory.activations.blocks_in_order import blocks_in_order
from dsgen.memory.activations.course import NOTHING, plus
from dsgen.memory.activations.executions import execution
from dsgen.memory.activations.offloaded import Offloaded, leaving, moved
from dsgen.memory.activations.recording import Recording, record
from dsgen.shapes.profiles import Model

__all__ = ["Activations", "BlockRun", "Recorded", "activations", "recorded"]

INDEX = 8  # bytes of an int64 token id or label
_CACHED = 4096  # models times ways to run them; a plan asks for a few dozen


class BlockRun(NamedTuple):
    """Equal blocks that follow each other.

    Attributes:
        name: dense, sparse (a mixture of experts) or other.
        repeats: How many.
        kept: What each keeps from forward to its backward.
        gradients: Bytes of the weight gradients of one, in the type of the weights.
        arrivals: What one holds, what it kept included, whenever a weight gradient of it is handed over.
    """

    name: str
    repeats: int
    kept: Size
    gradients: int
    arrivals: tuple[Activity, ...]


class Activations(NamedTuple):
    """Bytes on one GPU, each size as (bytes, bytes per sequence of the micro-batch).

    Attributes:
        inputs: Token ids, which are their own labels.
        asked: The embedding's output where checkpointing alone asks for its gradient: a leaf of autograd, which holds
            it and its gradient as long as anything refers to the loss.
        kept: Activations alive when forward has ended.
        kept_logits: What has the vocabulary's width and is alive then.
        kept_gradients: Bytes of weight gradients that forward has made by then (a chunked loss makes its own).
        outside: The part of `kept` that no block keeps.
        tables: The part of `outside` that lives until the first block's backward: rope tables and masks.
        blocks: The blocks, in order.
        forward: Moments of forward that can be its highest, whatever the micro-batch and the ZeRO stage.
        backward: The same for backward.
        first: When DeepSpeed gets the first gradient, which is fresh still.
        offloaded: Tensors that a pass copies to the node's RAM.
    """

    inputs: Size
    asked: Size
    kept: Size
    kept_logits: Size
    kept_gradients: int
    outside: Size
    tables: Size
    blocks: tuple[BlockRun, ...]
    forward: tuple[Activity, ...]
    backward: tuple[Activity, ...]
    first: Activity
    offloaded: tuple[Offloaded, ...] = ()


def activations(
    model: Model,
    *,
    precision: str,
    attention: str,
    seq_len: int,
    tp: int = 1,
    method: str = "full",
    checkpointing: bool = False,
    chunked_loss: bool = False,
    lora_rank: int = 16,
    lora_targets: tuple[str, ...] = ("all-linear",),
    zero3: bool = False,
    told: bool = False,
    single: bool = False,
    drops: bool = False,
    embeddings: bool = False,
    target_len: int | None = None,
    narrow: bool = False,
    reentrant: bool = False,
    offloads: bool = False,
) -> Activations:
    """What a model's forward and backward hold.

    Args:
        model: The architecture.
        precision: bf16, fp16 or fp32.
        attention: flash, sdpa or eager.
        seq_len: Tokens of a sequence.
        tp: AutoTP degree; heads and feed-forward shrink with it, the residual stream does not.
        method: full, lora or qlora.
        checkpointing: Every block keeps its input only, and runs again in backward.
        chunked_loss: The loss never holds all logits.
        lora_rank: Rank of the adapters.
        lora_targets: Names of the matrices that get one.
        zero3: The model was made under zero.Init (stage 3): its linear layers keep their input whether their weight is
            trained or not, and adapters are in fp32.
        told: Moments of blocks tell the way and the matrix at which they are.
        single: The micro-batch is one sequence: what is sliced or joined from it needs no copy.
        drops: Adapters drop elements of their input.
        embeddings: Copies of embedding and head are trained beside adapters.
        target_len: Tokens of a target, of a model with an encoder; as many as those of a sequence where it is None.
        narrow: Adapters are in 16 bits whatever made the model.
        reentrant: Blocks run again as torch's reentrant checkpointing does it; not followed behind an encoder.
        offloads: What autograd keeps waits in the node's RAM; blocks run again, and there is no encoder.

    Raises:
        DsgenError: Targets that name no matrix; adapters that peft refuses or that a chunked loss does not train.
    """
    settings = (tp, method, checkpointing, chunked_loss, lora_rank, lora_targets, zero3, told, single, drops)
    targets = target_len or seq_len
    trains = embeddings and method != "full"
    again = reentrant and checkpointing
    thin = narrow or not zero3 or method != "lora"  # no other adapters are ever wide
    return _activations(model, precision, attention, seq_len, *settings, trains, targets, thin, again, offloads)


@functools.lru_cache(maxsize=_CACHED)
def _activations(
    model: Model,
    precision: str,
    attention: str,
    seq_len: int,
    tp: int,
    method: str,
    checkpointing: bool,
    chunked_loss: bool,
    lora_rank: int,
    lora_targets: tuple[str, ...],
    zero3: bool,
    told: bool,
    single: bool,
    drops: bool,
    embeddings: bool,
    target_len: int,
    narrow: bool,
    reentrant: bool,
    offloads: bool,
) -> Activations:
    """As `activations`, whose arguments may be left out."""
    ways = (tp, method, checkpointing, chunked_loss, lora_rank, lora_targets, zero3, single, drops, embeddings, narrow)
    on = execution(model, precision, attention, seq_len, *ways)
    family = family_of(model)
    if isinstance(family.forward, Stacks):
        return _encoded(family.forward, on, target_len, checkpointing, told)
    first, forward = Tape(), family.forward
    hidden, saved, read, referred = forward.before(first, on)
    before, graph = opening(first, hidden, *saved, *read, *referred)
    # Frozen embeddings ask for no gradient, unless checkpointing does.
    starts = hidden.edge is not None or checkpointing
    whole = size([hidden.storage])
    variables = [one.storage for one in (hidden, *saved, *read, *referred)]
    during = plus(size([*variables, *graph]), whole, -1)  # tables, masks and variables while forward runs
    staying = [*saved, *read] if checkpointing else saved  # what blocks only read is free when the model's forward ends
    # Checkpointing asks for a gradient of the embedding's output: where nothing before does, the graph refers to it.
    if on.asks and referred[0].storage is not hidden.storage:
        staying = [*staying, referred[0]]
    rest = size([*graph, *(one.storage for one in staying)])
    if checkpointing and on.eager and forward.carries_weights:
        during = plus(during, (0, on.seq_len * on.heads * on.seq_len * on.item))
    order = blocks_in_order(on)
    records = {one.kind: _record(forward.body(one.name), one.on, hidden, True, told) for one in order}
    entering = whole if offloads else NOTHING  # of each block, on its way
    ways_again: dict[str, Any] = {"again": checkpointing, "reentrant": reentrant, "behind": entering}
    made = {kind: Recording.of(one, **ways_again) for kind, one in records.items()}
    runs = [(one.name, one.repeats, made[one.kind]) for one in order]
    if offloads:  # the inputs of blocks wait elsewhere
        runs = [(name, count, stretch._replace(kept=NOTHING)) for name, count, stretch in runs]
    if not starts:
        runs = _first_apart(runs, [_record(forward.body(one.name), one.on, hidden, False, told) for one in order])
    behind = forward.head, on, hidden.rows, hidden.width, hidden.item, told, runs[-1][2].asks, offloads
    head, last = _recorded_head(*behind), _head(*behind)
    end = None
    if offloads and head.saves:  # what the first node behind it has kept came back last
        end = Recording.of(records[order[-1].kind], **{**ways_again, "behind": size(head.saves[:1])})
    blocks = NOTHING
    for _, count, stretch in runs:
        blocks = plus(blocks, stretch.kept, count)
    # Hugging Face's forward refers to the embedding's output until its end; a first block that keeps it counts it.
    extra = whole if hidden in referred and (offloads or not runs[0][2].keeps_input) else NOTHING
    if offloads and on.asks and referred[0].storage is hidden.storage:  # autograd refers to its leaf
        rest = plus(rest, whole)
    trains = method == "full" or embeddings
    leaf = model.vocab_size * (model.embedding_size or model.hidden_size) * on.item if trains else 0
    if model.tied_embeddings and on.splits_head:
        leaf //= tp
    # The positions' gradient is made before that of the embedding.
    positions = 0
    if method == "full":
        positions = sum(item.numel for item in parameters(model) if item.kind == "position") * on.item
    # Autograd adds up the two gradients of a shared weight before anything else sees them.
    waiting = leaf if model.tied_embeddings else 0
    ends = [Activity(NOTHING, NOTHING, whole, positions, leaf)]
    if waiting:
        ends.append(Activity(NOTHING, NOTHING, NOTHING, positions, 2 * leaf))
    ahead = course.forward(before, runs, last, during, plus(during, rest, -1), extra, under_way=entering)
    left = whole if offloads and on.asks else NOTHING  # of the last pass: what moves activations refers to its graph
    return Activations(
        inputs=(0, INDEX * seq_len),
        asked=(0, seq_len * (model.embedding_size or model.hidden_size) * on.item) if on.asks else NOTHING,
        kept=plus(plus(rest, last.kept), blocks),
        kept_logits=last.kept_logits,
        kept_gradients=last.kept_gradients,
        outside=plus(rest, last.kept),
        tables=rest,
        blocks=_block_runs(runs),
        forward=tuple(_beside(one, left) for one in ahead),
        backward=course.backward(last, runs, plus(rest, blocks), ends, waiting, leaf if embeddings else 0, end=end),
        first=course.first(last, runs[-1][2], plus(rest, blocks), waiting),
        offloaded=moved(whole, on, head) if offloads else (),
    )


class Recorded(NamedTuple):
    """A decoder's forward and backward, stretch by stretch.

    Attributes:
        hidden: Bytes of what the embedding makes, which goes into the first block.
        beside: Bytes of each table, mask or variable that is there beside it while forward runs.
        blocks: The record of each block, and whether its forward runs again in backward.
        head: That of what comes behind the blocks.
        asked: Whether checkpointing alone asks for a gradient of what the embedding makes, which stays with it.
    """

    hidden: Size
    beside: tuple[Size, ...]
    blocks: tuple[tuple[Record, bool], ...]
    head: Record
    asked: bool


def recorded(on: Execution, checkpointing: bool, told: bool, offloads: bool = False) -> Recorded | None:
    """The stretches of a model as they are recorded; None of one with an encoder.

    Args:
        on: How it runs.
        checkpointing, told, offloads: As for `activations`.
    """
    forward, first = family_of(on.model).forward, Tape()
    if isinstance(forward, Stacks):
        return None
    hidden, saved, read, referred = forward.before(first, on)
    opening(first, hidden, *saved, *read, *referred)
    order = [one for one in blocks_in_order(on) for _ in range(one.repeats)]
    blocks = [(_record(forward.body(one.name), one.on, hidden, True, told), checkpointing) for one in order]
    if hidden.edge is None and not checkpointing:  # those before the first adapter have no backward
        for place, one in enumerate(order):
            plain = _record(forward.body(one.name), one.on, hidden, False, told)
            blocks[place] = plain, False
            if len(plain.steps) > plain.forward:
                break
    head = _recorded_head(forward.head, on, hidden.rows, hidden.width, hidden.item, told, True, offloads)
    storages = dict.fromkeys(one.storage for one in (*saved, *read, *referred) if one.storage is not hidden.storage)
    beside = tuple(size([one]) for one in storages)
    return Recorded(size([hidden.storage]), beside, tuple(blocks), head, on.asks)


def _encoded(stacks: Stacks, on: Execution, target_len: int, checkpointing: bool, told: bool) -> Activations:
    """Activations of a decoder behind an encoder."""
    from dsgen.memory.activations.encoded import encoded

    values = encoded(stacks, on, target_len, checkpointing=checkpointing, told=told)
    return Activations(**{**values, "blocks": _block_runs(values["blocks"])})


def _beside(moment: Activity, leaf: Size) -> Activity:
    """A moment beside a leaf of autograd and its gradient."""
    activations, temporaries = plus(moment.activations, leaf), plus(moment.temporaries, leaf)
    return moment._replace(activations=activations, temporaries=temporaries) if leaf != NOTHING else moment


def _block_runs(runs: list[tuple[str, int, Recording]]) -> tuple[BlockRun, ...]:
    return tuple(
        BlockRun(name, count, stretch.kept, stretch.gradients, stretch.arrivals) for name, count, stretch in runs
    )


@functools.lru_cache(maxsize=64)
def _head(
    head: Block, on: Execution, rows: Size, width: int, item: int, told: bool, asks: bool, offloads: bool
) -> Recording:
    """What comes behind the blocks, which is the same with checkpointing and without."""
    return Recording.of(_recorded_head(head, on, rows, width, item, told, asks, offloads), again=False)


@functools.lru_cache(maxsize=64)
def _recorded_head(
    head: Block, on: Execution, rows: Size, width: int, item: int, told: bool, asks: bool, offloads: bool
) -> Record:
    vocabulary = (on.model.vocab_size, on.model.vocab_size // on.tp)
    shape = Tensor(rows, width, item, None, (True, 0) if asks else None)
    made = record(_ready(head, on), shape, vocabulary=vocabulary, told=told)
    return leaving(made, on.chunked) if offloads else made


def _record(block: Block, on: Execution, hidden: Tensor, asks: bool, told: bool) -> Record:
    """A block run forward and backward, behind hidden states that ask for a gradient or not."""
    return _recorded(block, on._replace(asks=False, chunked=False), hidden.rows, hidden.width, hidden.item, asks, told)


@functools.lru_cache(maxsize=64)
def _recorded(block: Block, on: Execution, rows: Size, width: int, item: int, asks: bool, told: bool) -> Record:
    """One record serves a model with checkpointing and without, and whatever the loss behind all blocks holds."""
    shape = Tensor(rows, width, item, None, (True, 0) if asks else None)
    return record(_ready(block, on), shape, told=told)


def _first_apart(runs: list[tuple[str, int, Recording]], plain: Sequence[Record]) -> list[tuple[str, int, Recording]]:
    """The runs where the very first block gets hidden states that ask for no gradient, as they do behind an adapter."""
    before: list[tuple[str, int, Recording]] = []
    for place, (name, count, stretch) in enumerate(runs):
        first = Recording.of(plain[place], again=False)
        if first.asks:
            others = [(name, count - 1, stretch)] if count > 1 else []
            return [*before, (name, 1, first), *others, *runs[place + 1 :]]
        before.append((name, count, first))
    return before


def _ready(part: Callable[[Tape, Execution, Any], Tensor], on: Execution) -> Callable[[Tape, Any], Tensor]:
    """A part of a model's forward, ready to run."""
    return lambda tape, hidden: part(tape, on, hidden)
