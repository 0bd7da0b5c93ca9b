"""What a person's program must do beside the config: each thing with its code, and what happens without it."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import attrs

from dsgen.cost import cost
from dsgen.families import family_of
from dsgen.families.parameters import parameter_count
from dsgen.frameworks.code import ON_TRAINER, snippet, whole_in_fp32
from dsgen.frameworks.names import check_name
from dsgen.frameworks.optimizer_starts import otherwise, start, words
from dsgen.frameworks.rank_environment import job_variables
from dsgen.memory import Verdict, estimate
from dsgen.memory.conversions import TO_FP32, UNIVERSAL, conversions, unconverted
from dsgen.planning.assumptions import kernel_of, needed, own_optimizer
from dsgen.planning.planner import TWICE, Plan
from dsgen.shapes.errors import DsgenError
from dsgen.shapes.units import gib
from dsgen.strategies.buffers import EIGHT_BITS, MOMENTS, moments_away

__all__ = ["Need", "needs"]

_WEIGHT, _FP32 = 2, 4  # bytes of an element in 16 bits and in fp32
# Programs that load by no tag, and so what latest_universal names (engine.load_checkpoint); Accelerate and Lightning
# give the tag of what they saved.
_LOADS_UNIVERSAL = ("deepspeed", *ON_TRAINER)
_SLOWER = 0.01  # a difference of speed that is said

_INSTALL = {
    "attention": {"FlashAttention": "pip install flash-attn --no-build-isolation"},
    "chunked-loss": {"": "pip install liger-kernel"},
    "liger-kernels": {"": "pip install liger-kernel"},
    "four-bits": {"": "pip install bitsandbytes"},
    "adapters": {"": "pip install peft"},
    "start": {EIGHT_BITS: "pip install bitsandbytes"},
}


class Need(NamedTuple):
    """One thing that a program must do.

    Attributes:
        code: Its name: "checkpointing".
        words: What it is.
        otherwise: What happens without it, in numbers of this job where there are some.
        snippet: The code, or the lines of the framework's file that do it.
        install: What to install for it; "" for nothing.
    """

    code: str
    words: str
    otherwise: str
    snippet: str
    install: str = ""


def needs(plan: Plan, target: str, launched: bool = False) -> tuple[Need, ...]:
    """What a program must do for a plan, in the order in which it does it.

    Args:
        plan: The plan.
        target: Who hands the config to DeepSpeed, one of dsgen.frameworks.FRAMEWORKS.
        launched: Whether `dsgen launch` starts the program, which gives its arguments as options.

    Raises:
        DsgenError: No such framework.
    """
    check_name(target)
    return tuple(_needs(plan, target, launched))


def _needs(plan: Plan, target: str, launched: bool) -> Iterator[Need]:
    for item in needed(plan):
        install = _INSTALL.get(item.code, {})
        told = install.get(item.words, install.get("", ""))
        yield Need(item.code, item.words, _OTHERWISE[item.code](plan), snippet(item.code, plan, target, launched), told)
    others = {**_environment(plan, target), **_start(plan, target), **_about_checkpoints(plan, target)}
    for code, (what, without) in others.items():
        told = _INSTALL.get(code, {}).get(plan.job.training.optimizer, "")
        yield Need(code, what, without, snippet(code, plan, target, launched), told)


def _environment(plan: Plan, target: str) -> Mapping[str, tuple[str, str]]:
    """The variables that `dsgen launch` writes into env.sh, for those who start it otherwise."""
    told = job_variables(plan, target)
    many = f"{len(told)} variables in the environment" if len(told) > 1 else "a variable in the environment"
    return {"environment": (f"{many} of every rank", "; ".join(one.otherwise for one in told))}


def _start(plan: Plan, target: str) -> Mapping[str, tuple[str, str]]:
    """How an optimizer and a schedule come to run: the config's, or what the program makes where they were deleted."""
    has, makes_own = start(plan), target in ON_TRAINER
    if plan.job.training.optimizer == EIGHT_BITS and not has.optimizer:
        schedule = "the schedule from the config" if has.scheduler else "a schedule of the program's own"
        return {"start": (f"{own_optimizer(plan.job)}, and {schedule}", f"AdamW: {_with(plan, optimizer='AdamW')}")}
    return {"start": (words(has, target, makes_own), otherwise(has, target, makes_own))}


def _with(plan: Plan, **wishes: Any) -> str:
    """What memory and speed are when the program does otherwise than the plan counts on."""
    job = attrs.evolve(plan.job, training=attrs.evolve(plan.job.training, **wishes))
    return _weighed(plan, attrs.evolve(plan, job=job))


def _weighed(plan: Plan, other: Plan) -> str:
    try:
        memory = estimate(other.job, other.chosen.strategy)
        speed = cost(other.job, other.chosen.strategy).tokens_per_second_per_gpu
    except DsgenError as error:
        return error.what
    gpu = memory.gpu
    said = f"{gib(gpu.needed_bytes)} of {gib(gpu.limit_bytes)} GiB"
    fits = {Verdict.FITS: "", Verdict.UNCERTAIN: " may not fit"}.get(gpu.verdict, " does not fit")
    return f"{said}{fits}{_slower(plan, speed) if gpu.verdict is not Verdict.DOES_NOT_FIT else ''}"


def _slower(plan: Plan, speed: float) -> str:
    """How much slower a token is, in the words of `dsgen plan`; nothing where it is hardly so."""
    ratio = plan.chosen.cost.tokens_per_second_per_gpu / speed
    if ratio > TWICE:
        return f", {ratio:.1f}x slower"
    return f", {1 - 1 / ratio:.0%} slower" if ratio > 1 + _SLOWER else ""


def _without_checkpointing(plan: Plan) -> str:
    strategy = attrs.evolve(plan.chosen.strategy, checkpointing=False)
    return _weighed(plan, attrs.evolve(plan, chosen=attrs.evolve(plan.chosen, strategy=strategy)))


def _without_liger(plan: Plan) -> str:
    model = attrs.evolve(plan.job.model, liger_kernels="")
    return f"Hugging Face's: {_weighed(plan, attrs.evolve(plan, job=attrs.evolve(plan.job, model=model)))}"


def _loaded_whole(plan: Plan) -> str:
    job = plan.job
    size = parameter_count(job.model) * _WEIGHT * job.gpus_per_node
    own = gib(parameter_count(job.model) * _WEIGHT)
    return f"each rank loads the whole model: {gib(size)} GiB of RAM a node, and {own} GiB of each GPU at first"


def _unasked(plan: Plan) -> str:
    """What transformers takes where nobody asks for a kernel: sdpa where the model's class has it, else eager."""
    kernel = kernel_of(plan)
    if kernel == "eager":
        return "a kernel that was not asked for, or that this model's class does not have"
    if family_of(plan.job.model).eager("sdpa"):
        return f"eager attention: {_with(plan, attention='eager')}"
    if kernel == "sdpa":
        return "the same, for transformers takes it by itself; with another kernel other numbers"
    return f"torch's (sdpa), which transformers takes by itself: {_with(plan, attention='sdpa')}"


def _longer(plan: Plan) -> str:
    shared = [name for name in ("packing", "padding_free") if getattr(plan.job.training, name)]
    if shared:
        return f"samples that are padded: {_with(plan, **dict.fromkeys(shared, False))}"
    return f"twice the length: {_with(plan, seq_len=2 * plan.job.seq_len)}"


_OTHERWISE: Mapping[str, Callable[[Plan], str]] = {
    "zero-init": _loaded_whole,
    "attention": _unasked,
    "device": lambda plan: "every rank loads its base on the first GPU, and Accelerate refuses those of the others",
    "four-bits": lambda plan: f"a base in 16 bits: {_with(plan, method='lora')}",
    "adapters": lambda plan: f"all weights are trained: {_with(plan, method='full')}",
    "checkpointing": _without_checkpointing,
    "activation-offloading": lambda plan: _with(plan, activation_offloading=False),
    "chunked-loss": lambda plan: _with(plan, chunked_loss=False),
    "liger-kernels": _without_liger,
    "leaf-modules": lambda plan: "ranks that route to different experts wait for each other without end",
    "same-data": lambda plan: 'DeepSpeed stops: "Data inconsistency within the TP group"',
    "length": _longer,
}


def _whole(plan: Plan) -> bool:
    """Whether a checkpoint has all states in one file, which any number of GPUs loads."""
    return not plan.chosen.strategy.stage and bool(unconverted(plan.job, plan.chosen.strategy))


def _elsewhere(plan: Plan, universal: bool) -> str:
    """What another number of GPUs loads."""
    stops = {one.name for one in unconverted(plan.job, plan.chosen.strategy)}
    if not universal and UNIVERSAL in stops:
        return "on another number it does not load, and ds_to_universal stops at it"
    return "on another number only a universal checkpoint loads"


def _about_checkpoints(plan: Plan, target: str) -> Mapping[str, tuple[str, str]]:
    """What belongs to a run's end: saving, resuming, generating, and turning what was saved into one file."""
    job, chosen = plan.job, plan.chosen.strategy
    total = parameter_count(job.model)
    made = {one.name: one for one in conversions(job, chosen)}
    told = {}
    if chosen.stage == 3:
        told["generation"] = (
            "evaluation and generation on all ranks at once",
            "stage 3 gathers each layer from all ranks: one that stops early leaves the others waiting",
        )
    apart = "one rank alone waits for the others for ever"
    if job.training.method == "full":
        away, optimizer = chosen.offload_optimizer != "none", job.training.optimizer
        states = (moments_away(optimizer) if away else MOMENTS[optimizer]) * (1 if optimizer == EIGHT_BITS else _FP32)
        size = gib(total * (_WEIGHT + _FP32 + states))  # the 16-bit weight, the master one, and the moments
        told["save"] = (f"checkpoints of {size} GiB, saved by every rank", apart)
        whole = f"{gib(total * _WEIGHT)} GiB of RAM and as much of disk in 16 bits"
        if whole_in_fp32(plan, target):
            one = made.get(TO_FP32)
            ram, disk = (one.ram_bytes, one.one_bytes) if one else (total * _FP32, total * _FP32)
            whole = f"{gib(ram)} GiB of RAM and {gib(disk)} of disk in fp32"
        told["one-file"] = (f"one set of weights at the end: {whole}", "a checkpoint is one file a rank")
    else:
        told["save"] = ("checkpoints, saved by every rank", apart)
        told["one-file"] = ("the adapters at the end, by themselves", "they lie in a checkpoint of DeepSpeed's alone")
    if target in _LOADS_UNIVERSAL and UNIVERSAL in made:
        taken = made[UNIVERSAL]
        told["universal"] = (
            f"to resume on another number of GPUs, a universal checkpoint: {gib(taken.ram_bytes)} GiB of RAM and "
            f"{gib(taken.disk_bytes)} of disk while it is made, {gib(taken.left_bytes)} after",
            "ZeRO's states lie in a file for each rank, and load on as many ranks alone",
        )
    told["resume"] = ("the same number of GPUs when it resumes", _elsewhere(plan, UNIVERSAL in made))
    if _whole(plan):
        told["resume"] = ("to resume, the folder of its last checkpoint", "it begins anew")
    if chosen.stage == 3 and chosen.offload_optimizer == "nvme":
        told["resume"] = (
            "the same number of GPUs when it resumes, and this model made first in its process",
            "of an optimizer on NVMe no moments are loaded, in another order no weights (dsgen rule DSG352)",
        )
    return told
