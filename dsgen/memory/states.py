"""What a strategy holds for good on one GPU and in host RAM: weights, master weights, optimizer states, gradients."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dsgen.families import family_of
from dsgen.families.parameters import added, stretches
from dsgen.jobs.job import STATES
from dsgen.memory.cuts import cut
from dsgen.memory.numbers import Numbers, count, linear, making, quantized
from dsgen.memory.quantized_base import BITS, lifts, scale_bits
from dsgen.memory.secondary import Secondary, secondary
from dsgen.memory.shares import FP32, partition_numel, split_of
from dsgen.memory.trained import Trained, trained, wide_adapters
from dsgen.shapes.profiles import Model, Training
from dsgen.strategies.buffers import EIGHT_BITS, MOMENTS, SIXTEEN_BIT, Buffers, moments_away
from dsgen.strategies.constraints import MASTERS, Keys, Setup, refusals
from dsgen.strategies.counted import NARROW

__all__ = ["FP32", "States", "flattening", "states", "takes", "widths"]

# At stage 0 their wrapper also flattens the fp32 gradients (fp16/fused_optimizer.py).
FUSED = ("AdamW", "Adam")
ADAGRAD, MUON = "Adagrad", "Muon"
# fp32 copies of what a step updates: torch's own loops take all tensors of a group at once; Adagrad's makes square
# roots and updates (optim/adagrad.py, _multi_tensor_adagrad), AdamW's roots alone (optim/adam.py, _multi_tensor_adam).
_ADAGRAD_COPIES, _ADAMW_COPIES = 2, 1
# Of a state in 8 bits: bytes of an element, elements that share an fp32 scale, and bytes of the two tables by which all
# of a rank's states are read (bitsandbytes 0.50.2, optim/optimizer.py: Optimizer2State.init_state).
STATE_BYTES, STATE_BLOCK, STATE_TABLES = 1, 256, 2 * 256 * FP32


class States(NamedTuple):
    """Element and byte counts of one rank that every phase shares.

    Attributes:
        tensors: The tensors with a gradient.
        cut_up: Those that are cut into shares: stage 3 does so before AutoTP splits them, and a split one is cut again,
            among the replicas, to a share of that size (module_inject/auto_tp.py, _gather_zero3_params).
        among: Ranks that they are cut among: at stage 3 all of them, whatever AutoTP's degree.
        numbers: Element counts of the model.
        size: Bytes of a weight or gradient.
        ranks: Ranks that share weights or states: data-parallel replicas; 1 at stage 0.
        own: Elements of this rank's partition.
        kept: Elements of the whole tensors that reach into it.
        loaded: Bytes of weights until initialize where the base is in 4 bits: it is loaded on the GPU whole, and peft's
            preparation, where it is called, casts what is not in 4 bits to fp32; else 0.
        lifting, casting: Bytes that are there beyond `loaded` at most while tensor by tensor becomes fp32, and 16-bit.
        making: Bytes of the module in the making, and of what is cut before and with it, where stage 3 makes a model.
        tables: Bytes of what is no parameter and stays on the GPU at every stage.
        scales: Bytes of the scales of 4-bit weights where stage 3 leaves them whole on the GPU; else they are weights.
        weights: Bytes of weights that stay: all of them, or this rank's partition.
        wide: Bytes of one master weight, and of one of the gradients that it is stepped with.
        master: Bytes of master weights.
        moments: Bytes of optimizer states.
        early: Bytes of those among them that are there from init on.
        updates: Bytes that Muon's updates take at most.
        staged: Bytes that Muon keeps from its first step on: a second momentum, or what it gathers through.
        listed: Bytes of an element that is stepped which torch's own loop makes meanwhile, on the GPU.
        on_gpu: Whether master weights and states are on the GPU.
        swaps: Whether they are on NVMe.
        secondary: The second copy of the parameters that hpZ keeps, where they wait; None where there is none.
        away: Whether parameters wait in RAM or on NVMe.
    """

    tensors: Trained
    cut_up: Trained
    among: int
    numbers: Numbers
    size: int
    ranks: int
    own: int
    kept: int
    loaded: int
    lifting: int
    casting: int
    making: int
    tables: int
    scales: int
    weights: int
    wide: int
    master: int
    moments: int
    early: int
    updates: int
    staged: int
    listed: int
    on_gpu: bool
    swaps: bool
    secondary: Secondary | None
    away: bool

    @property
    def copies(self) -> Secondary | None:
        """hpZ's second copy where it is on the GPU."""
        return None if self.away else self.secondary

    @property
    def split(self) -> Trained | None:
        """What AutoTP leaves of the tensors that stage 3 cuts; None without it."""
        return self.tensors if self.tensors is not self.cut_up else None


def takes(narrow: str, layout: Any, training: Training) -> bool:
    """Whether a layout keeps in 16 bits what a job asks for; else DeepSpeed refuses it, or it is not counted.

    What is refused stands in `dsgen.strategies.constraints.MASTERS`. Beside it there are three that nobody refuses and
    that were not held against a simulation: a model in fp32, Muon's momentum on the GPU, and states in 8 bits.

    Args:
        narrow: As in a job.
        layout: Anything with stage, offload_optimizer and precision.
        training: What is wanted: its optimizer counts.
    """
    if not narrow or layout.precision == "fp32" or training.optimizer == EIGHT_BITS:
        return False
    if training.optimizer == MUON and layout.offload_optimizer == "none":
        return False
    said = Keys(masters=NARROW[0], states=narrow == STATES)
    stage, place = layout.stage, layout.offload_optimizer
    at = Setup(stage=stage, offload_optimizer=place, training=training, narrow=True, keys=said)
    return next(refusals(at, MASTERS), None) is None


def widths(job: Any, layout: Any) -> tuple[int, int]:
    """Bytes of a master weight, as of the gradient that it is stepped with, and of a moment of its.

    Args:
        job: As for `states`; neither model nor world are asked.
        layout: As for `takes`.
    """
    if not takes(job.narrow, layout, job.training):
        return FP32, STATE_BYTES if job.training.optimizer == EIGHT_BITS else FP32
    return SIXTEEN_BIT, SIXTEEN_BIT if job.narrow == STATES else FP32


def states(job: Any, layout: Any, buffers: Buffers) -> States:
    """The states of a layout.

    Args:
        job: Anything with model, training, world, narrow and foreach, as a Job has.
        layout: Anything with stage, offload_optimizer, offload_param, tp and precision.
        buffers: Element counts of the communication buffers.
    """
    training, model, stage = job.training, job.model, layout.stage
    size = FP32 if layout.precision == "fp32" else 2
    rest = (training.method, training.lora_rank, training.lora_targets, layout.tp, training.lora_train_embeddings)
    numbers = count(model, *rest, buffers.persistence)
    muon = stage if training.optimizer == MUON else None
    tensors = cut_up = trained(model, *rest, muon)
    ranks = job.world // layout.tp if stage else 1
    packed = quantized(model, training.method)
    scaled = scale_bits(training) if packed else 0  # they are no parameters: stage 3 leaves them whole
    layers = int(numbers.frozen_linear * (BITS + scaled) / 8) if packed else numbers.frozen_linear * size
    scales = int(numbers.frozen_linear * scaled / 8)
    frozen = layers + numbers.frozen_other * size
    elements = tensors.elements
    second = None
    if stage == 3:
        cut_up = tensors if layout.tp == 1 else trained(model, *rest[:3], 1, rest[4], muon)
        own = partition_numel(cut_up, job.world)
        width = FP32 if wide_adapters(training) else size
        others = -(-(frozen - scales) // job.world)
        weights = own * width + others
        if buffers.secondary:
            second = secondary(job, layout, buffers, tensors, own * width, others, width)
    elif stage:
        own = sum(one.share for one in cut(tensors, ranks))
        weights = own * ranks * size + frozen
    else:
        own = elements
        weights = own * size + frozen
    wide, state = widths(job, layout)
    master = 0 if size == FP32 and stage == 0 else wide * own
    on_gpu = layout.offload_optimizer == "none" or stage == 0
    # torch's Adagrad makes its states for the weights it is given, before DeepSpeed gives it its own, and keeps them.
    given = split_of(tensors, cut_up) if stage == 3 else elements
    early = size * given if training.optimizer == ADAGRAD and on_gpu and master else 0
    kept = sum(one.kept for one in cut(tensors, ranks)) if stage < 3 else own
    updates = staged = 0
    if training.optimizer == MUON:
        moments, early, staged, updates = _of_muon(tensors, ranks, own, layout, buffers, size)
    else:
        each = MOMENTS[training.optimizer] if on_gpu else moments_away(training.optimizer)
        moments = early + state * each * own
        if training.optimizer == EIGHT_BITS:
            moments += FP32 * MOMENTS[training.optimizer] * -(-own // STATE_BLOCK) + STATE_TABLES
    return States(
        tensors=tensors,
        cut_up=cut_up,
        among=job.world if stage == 3 else ranks,
        numbers=numbers,
        size=size,
        ranks=ranks,
        own=own,
        kept=kept,
        **_quantized(model, training, numbers, layers, packed, elements, size, stage),
        making=making(
            model,
            layout,
            job.world,
            size,
            tensors.head and tensors.elements + tensors.head,
            frozen,
            second and second.group,
        )
        if stage == 3
        else 0,
        tables=family_of(model).buffers(model),
        scales=scales if stage == 3 else 0,
        weights=weights,
        wide=wide,
        master=master,
        moments=moments,
        early=early,
        updates=updates,
        staged=staged,
        listed=_listed(job, wide) if on_gpu else 0,
        on_gpu=on_gpu,
        swaps=layout.offload_optimizer == "nvme" and stage == 3,
        secondary=second,
        away=layout.offload_param != "none",
    )


def _listed(job: Any, wide: int) -> int:
    """Bytes of an element that torch's own loop makes while it steps."""
    if job.training.optimizer == ADAGRAD:
        return _ADAGRAD_COPIES * wide
    return _ADAMW_COPIES * wide if job.foreach and job.training.optimizer in FUSED else 0


def flattening(states: States, stage: int) -> tuple[int, int]:
    """Bytes of the flat copy of a group, and of the master weights of those before it, where that is most."""
    if stage not in (1, 2) or not states.tensors.split:
        return states.size * states.tensors.elements, 0
    most = before = 0, 0
    for one in cut(states.tensors, states.ranks):
        before = states.size * one.share * states.ranks, before[1]
        most = max(most, before, key=sum)
        before = 0, before[1] + (states.wide * one.share if states.on_gpu else 0)
    return most


def _of_muon(
    tensors: Trained, ranks: int, own: int, layout: Any, buffers: Buffers, size: int
) -> tuple[int, int, int, int]:
    """Bytes of Muon's states, of those of them that are there from init on, of what it stages, and of its updates."""
    from dsgen.memory import muon, muon_matrices  # few jobs ask for them

    on_gpu = layout.offload_optimizer == "none"
    if layout.stage == 3:
        at_once = buffers.reduce_bucket, buffers.sub_group
        return muon_matrices.states_at_stage_3(tensors, ranks, own, *at_once, size, layout.precision, on_gpu)
    if not layout.stage:
        moments, updates = muon.single(tensors)
        return moments, 0, 0, updates
    sizes = muon.states(tensors, ranks, size, layout.precision) if on_gpu else muon_matrices.offloaded(tensors, ranks)
    return sizes[0], 0, *sizes[1:]


def _quantized(
    model: Model, training: Training, numbers: Numbers, layers: int, packed: bool, adapters: int, size: int, stage: int
) -> dict[str, int]:
    """`loaded`, `lifting` and `casting` of States: peft makes adapters fp32 whatever it does to the rest."""
    if training.method != "qlora":
        return {"loaded": 0, "lifting": 0, "casting": 0}
    rest = numbers.frozen_other + (0 if packed else numbers.frozen_linear)
    base = layers if packed else 0
    if lifts(training, stage):
        loaded = FP32 * (rest + adapters) + base
        return {
            "loaded": loaded,
            "lifting": _lifting(model, adapters, packed, size),
            "casting": _casting(model, training, packed, size),
        }
    beside = _adapted(model, training)
    alone = [(one.repeats, [numel for item in one.parameters for numel in beside.get(item.name, ())])
             for one in stretches(model)]  # fmt: skip
    return {"loaded": size * rest + FP32 * adapters + base, "lifting": 0, "casting": _most(alone, size)}


def _lifting(model: Model, adapters: int, packed: bool, size: int) -> int:
    """As `_casting`, before the adapters are there: those behind the tensor in the making are not fp32 yet."""
    behind = [(repeats, numels[::-1]) for repeats, numels in reversed(_unpacked(model, packed, {}))]
    return max(0, _most(behind, size) - FP32 * adapters)


def _casting(model: Model, training: Any, packed: bool, size: int) -> int:
    """Bytes of the tensor in the making, less what those before it have given back, where that is most."""
    return _most(_unpacked(model, packed, _adapted(model, training)), size)


def _adapted(model: Model, training: Any) -> Mapping[str, tuple[int, ...]]:
    """Tensor of the model -> elements of what is trained beside it."""
    return added(model, training.lora_rank, training.lora_targets, training.lora_train_embeddings)


def _unpacked(model: Model, packed: bool, adapted: Mapping[str, tuple[int, ...]]) -> list[tuple[int, list[int]]]:
    """How often each stretch of the model repeats, and elements of its tensors that are not in 4 bits."""
    unpacked = []
    for stretch in stretches(model):
        numels: list[int] = []
        for item in stretch.parameters:
            numels += () if packed and linear(model, item) else (item.numel,)
            numels += adapted.get(item.name, ())
        unpacked.append((stretch.repeats, numels))
    return unpacked


def _most(stretches: Sequence[tuple[int, Sequence[int]]], size: int) -> int:
    """A tensor in its smaller type, less what those before it gave back when they left fp32, where that is most."""
    most = done = 0
    for repeats, numels in stretches:
        before = done
        for numel in numels:
            most = max(most, size * numel - (FP32 - size) * done)
            done += numel
        done = before + repeats * (done - before)
    return most
