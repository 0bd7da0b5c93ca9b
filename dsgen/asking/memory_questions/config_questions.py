"""A config file to a question: what DeepSpeed makes of its keys, with the options over them and the rest chosen."""

from __future__ import annotations

import copy
import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs

from dsgen import targets
from dsgen.asking.memory_questions.loaders import by_program, stated, under_zero_init
from dsgen.asking.memory_questions.questions import CHOSEN, DEFAULT, EVALUATED, Question, Said, buffers, place, said_of
from dsgen.asking.memory_questions.scenario_questions import (
    FIELDS,
    REFUSED_BATCH,
    ask,
    at_stage,
    closest,
    counted,
    doubts,
    not_counted,
    refuse,
)
from dsgen.asking.refused_configs import read_otherwise
from dsgen.asking.training_arguments import of_naming_file
from dsgen.cost import cost
from dsgen.deepspeed import surface
from dsgen.documents.document import Document, unwritten
from dsgen.jobs.job import Job, narrowed, unsure
from dsgen.jobs.releases import as_switched_on, uncounted_liger_kernels
from dsgen.linting import config_reader, meanings
from dsgen.linting.sources import Source
from dsgen.linting.statements import EVALUATION, OPTIMIZER, ZERO_INIT, Statement
from dsgen.linting.subjects import Facts, Subject
from dsgen.memory import Verdict, estimate
from dsgen.planning.candidates import ENOUGH, sized
from dsgen.shapes.arguments import path_of
from dsgen.shapes.errors import mistake
from dsgen.shapes.layers import Rank, show
from dsgen.shapes.optimizer_names import meant
from dsgen.strategies.constraints import BY_CODE, Keys, Setup, keys
from dsgen.strategies.strategies import Layout, Strategy, best_precision
from dsgen.strategies.wishes import check_wishes

__all__ = ["ask_config", "given", "question"]

_SIZES = (128, 64, 32, 16, 8, 4, 2, 1)  # micro-batches tried where nobody says one
_ALLOWS_ANY = ("hf-trainer", "accelerate")  # who sets zero_allow_untested_optimizer for an optimizer of its own
_STAGE = "zero_optimization.stage"
_WHOLE = 3  # the stage of zero.Init
# What a training file says of a run, as `training_arguments` has it: wishes, and what a config may leave to it.
_WISHES: Mapping[str, Callable[[Any], Any]] = {
    "method": str,
    "lora_rank": int,
    "lora_targets": tuple,
    "lora_dropout": float,
    "lora_train_embeddings": bool,
    "lora_fp32": bool,
    "seq_len": int,
    "packing": bool,
    "padding_free": bool,
    "chunked_loss": bool,
    "activation_offloading": bool,
    "liger_kernels": bool,
    "attention": str,
    "reentrant": bool,
    "double_quantization": bool,
    "kbit_fp32": str,
    "loading": str,
}
_PROGRAM_S: Mapping[str, tuple[tuple[str, ...], Callable[[Any], Any]]] = {
    "micro_batch": (("train_micro_batch_size_per_gpu",), int),
    "accumulation": (("gradient_accumulation_steps", "train_batch_size"), int),
    "checkpointing": ((), lambda said: said == "full"),
}
_BATCH = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
_BATCH_SAYS = "its batch keys, or --micro-batch and --accumulation, say it"
# Wish that no config leaves open -> what does
_IDLE = {
    "training.global_batch": _BATCH_SAYS,
    "training.tokens_per_step": _BATCH_SAYS,
    "training.tokens_per_gpu": _BATCH_SAYS,
    "training.total_steps": "memory does not follow the schedule",
    "training.total_tokens": "memory does not follow the schedule",
    "training.objective": "the config is taken as it is",
}
# Field of a strategy -> the keys of a config that say it
_KEYS = {
    "stage": (_STAGE,),
    "offload_optimizer": ("zero_optimization.offload_optimizer.device", "zero_optimization.cpu_offload"),
    "offload_param": ("zero_optimization.offload_param.device", "zero_optimization.cpu_offload_param"),
    "tp": ("tensor_parallel.autotp_size",),
    "precision": ("bf16.enabled", "fp16.enabled"),
    "micro_batch": ("train_micro_batch_size_per_gpu", "train_batch_size"),
    "accumulation": ("gradient_accumulation_steps", "train_batch_size"),
}


def given(config: Mapping[str, Any]) -> Source:
    """A config that no file holds."""
    return Source(document=unwritten(config), target=targets.guess(config).name)


def question(job: Job, config: Mapping[str, Any] | str | os.PathLike[str] | None) -> Question:
    """What a config, or the file of one, runs for a job; without one what the job says.

    Raises:
        DsgenError: As `ask`, as `ask_config`, or no config.
    """
    if config is None:
        return ask(job)
    return ask_config(job, given(config) if isinstance(config, Mapping) else config_reader.read(path_of(config)))


def ask_config(job: Job, source: Source) -> Question:
    """The question that a config asks for a job.

    What a person says with options or override files wins over the config; what neither says is chosen.

    Raises:
        DsgenError: A stage that there is not, or sizes that no run has.
    """
    subject = _subject(job, source)
    _check_stage(subject)
    told = of_naming_file(source.of)
    arguments: Mapping[str, Any] = told.runs_on(job.model.architecture) if told is not None else {}
    fixed, by = _fixed(subject, job, arguments, source.of)
    wishes = {name: _WISHES[name](value) for name, value in arguments.items() if name in _WISHES}
    wishes = {name: value for name, value in wishes.items() if not _above(job, f"training.{name}")}
    training = attrs.evolve(job.training, **wishes)
    if (optimizer := meanings.optimizer(subject)) and not _above(job, "training.optimizer"):
        training = attrs.evolve(training, optimizer=optimizer)
    if not _above(job, "training.expandable_segments"):  # who runs a config of their own has torch's default settings
        training = attrs.evolve(training, expandable_segments=False)
    if training.reentrant is None:  # nor does transformers 5 recompute so where nobody says it (modeling_utils.py)
        training = attrs.evolve(training, reentrant=False)
    program = None if subject.optimizer or _above(job, "training.optimizer") else source.beside.get(OPTIMIZER)
    if program is not None and (known := meant(program.value)):
        training = attrs.evolve(training, optimizer=known)
    made: str | None = None
    if fixed["stage"] == _WHOLE and not _above(job, "training.zero_init"):
        under, made = under_zero_init(training, source.beside.get(ZERO_INIT), told)
        training = attrs.evolve(training, zero_init=training.zero_init and under)
    asked = attrs.evolve(
        job,
        model=as_switched_on(job.model, training) if "liger_kernels" in wishes else job.model,
        training=training,
        narrow=narrowed(subject.value),
        unsure=unsure(subject.value),
        foreach=meanings.foreach(subject, training),
    )
    check_wishes(asked)
    chosen = _chosen(asked, subject, fixed)
    refuse(asked, chosen)
    said = {name: Said(getattr(chosen, field), by.get(field, CHOSEN)) for name, field in FIELDS.items()}
    said |= said_of(asked, chosen.precision)
    said |= {name.replace("_", " "): Said(value, str(source.of)) for name, value in wishes.items() if name != "seq_len"}
    if "seq_len" in wishes:
        said["sequence length"] = Said(training.seq_len, str(source.of))
    if optimizer and not _above(job, "training.optimizer"):
        said["optimizer"] = Said(optimizer, _where(subject, "optimizer.type"))
    if asked.foreach and chosen.offload_optimizer == "none":  # else it is DeepSpeed's CPU Adam
        said["AdamW foreach"] = _foreach(subject, job)
    if program is not None and meant(program.value):
        said["optimizer"] = Said(training.optimizer, stated(program))
    if made and not training.zero_init:
        flag = source.beside.get(ZERO_INIT)
        said["zero init"] = Said(False, str(source.of) if flag is None or flag.value else stated(flag))
    batch = source.beside.get(EVALUATION)
    if batch is not None and _whole(batch.value):
        said[EVALUATED] = Said(batch.value, stated(batch))
    elif told is not None and told.evaluated is not None:
        said[EVALUATED] = Said(told.evaluated, told.file)
    notes = (
        *job.warnings,
        *(uncounted_liger_kernels(asked.model, training) if "liger_kernels" in wishes else ()),
        *(told.uncounted if told is not None else ()),
        *([told.loss_of_trl] if told and told.loss_of_trl and not _above(job, "training.chunked_loss") else ()),
        *([made] if made else ()),
        *by_program(program, training),
        *_idle(job, subject),
        *doubts(asked, chosen, _handed_on(subject, program)),
        *_notes(subject, asked, chosen),
    )
    return Question(job=asked, strategy=chosen, said=said, subject=subject, notes=notes, arguments=told)


def _handed_on(subject: Subject, program: Statement | None) -> Keys:
    """The keys of a config, as the program that hands it on leaves them.

    Where the config has no optimizer the Trainer and Accelerate allow any (deepspeed_optim_sched of transformers 5.23,
    integrations/deepspeed.py; Accelerator._prepare_deepspeed of 1.15).
    """
    said = keys(subject.value)
    allows = program is not None or subject.target.name in _ALLOWS_ANY
    return said._replace(untested=True) if allows and subject.raw("optimizer") is None else said


def _foreach(subject: Subject, job: Job) -> Said:
    """That AdamW is torch's foreach one, and who says so: the config, a person, or what the program has by default."""
    if subject.raw("optimizer") is not None:
        return Said(True, _where(subject, "optimizer.params.torch_adam"))
    return Said(True, place(job, "training.foreach") or DEFAULT)


def _idle(job: Job, subject: Subject) -> Iterator[str]:
    """What a person says that a config leaves nothing to do for."""
    named = {} if subject.raw("optimizer") is None else {"training.foreach": "its optimizer's torch_adam says it"}
    for path, instead in (_IDLE | named).items():
        if _above(job, path):
            yield f"{path} ({job.provenance.where(path)}) does nothing beside a config: {instead}"


def _subject(job: Job, source: Source) -> Subject:
    config = copy.deepcopy(dict(source.document.config))
    for path, history in job.provenance.overrides.items():
        if path.startswith("deepspeed.") and history[-1].rank >= Rank.SITE:
            _set(config, path.partition(".")[2].split("."), history[-1].value)
    return Subject(
        config=config,
        surface=surface.load(job.version),
        target=targets.find(source.target),
        document=source.document,
        facts=Facts(
            world_size=job.world,
            hardware=job.hardware,
            model=job.model,
            network=job.network,
            seq_len=job.seq_len,
        ),
    )


def _set(config: dict[str, Any], path: list[str], value: Any) -> None:
    """Write one key; null deletes it."""
    *parents, last = path
    for parent in parents:
        inner = config.get(parent)
        config[parent] = dict(inner) if isinstance(inner, Mapping) else {}
        config = config[parent]
    if value is None:
        config.pop(last, None)
    else:
        config[last] = value


def _check_stage(subject: Subject) -> None:
    written = subject.value(_STAGE)
    if subject.written(_STAGE) and not subject.is_open(_STAGE) and (written not in (0, 1, 2, 3) or written is True):
        raise mistake(f"{_STAGE} is {show(written)}", must="it must be 0, 1, 2 or 3", where=_where(subject, _STAGE))


def _fixed(
    subject: Subject, job: Job, arguments: Mapping[str, Any], file: str | None
) -> tuple[dict[str, Any], dict[str, str]]:
    """What the options, else the config, else the training file that names it say of a strategy, and where; nothing
    of what none does."""
    fixed: dict[str, Any] = {}
    by: dict[str, str] = {}
    for pin in job.pins:
        if (pin.override.rank >= Rank.SITE or pin.field == "checkpointing") and len(pin.allowed) == 1:
            fixed.setdefault(pin.field, pin.allowed[0])
            by.setdefault(pin.field, str(pin.override.origin))
    for field, (keys_of, value_of) in _PROGRAM_S.items():
        if field in arguments and field not in fixed and all(_left(subject, key) for key in keys_of):
            fixed[field], by[field] = value_of(arguments[field]), str(file)
    dtype = arguments.get("precision")
    if dtype is not None and "precision" not in fixed and subject.is_open(f"{dtype}.enabled"):
        fixed["precision"], by["precision"] = str(dtype), str(file)
    stage = fixed.get("stage", subject.stage)
    degree = fixed.get("tp", meanings.degree(subject))
    micro, steps = meanings.batch(subject, job.world, fixed.get("micro_batch"))
    optimizer, parameters = meanings.offloads(subject, stage)
    meant = {
        "stage": stage,
        "offload_optimizer": optimizer,
        "offload_param": parameters,
        "tp": degree,
        "precision": None if _filled(subject) else meanings.weights(subject),
        "micro_batch": micro,
        "accumulation": steps,
    }
    for field, value in meant.items():
        if value is not None and field not in fixed:
            fixed[field] = value
            key = next((key for key in _KEYS[field] if subject.written(key)), None)
            by[field] = _where(subject, key) if key else "DeepSpeed's default"
    return fixed, by


def _left(subject: Subject, key: str) -> bool:
    """Whether a config leaves a key to the program."""
    return not subject.written(key) or subject.is_open(key)


def _chosen(job: Job, subject: Subject, fixed: Mapping[str, Any]) -> Strategy:
    """The strategy that is said; of several the fastest that fits, else the one nearest to fitting."""
    at, uneven = Setup(tp=fixed["tp"], world=job.world), BY_CODE["autotp-and-gpus"]
    if uneven.refuses(at):  # no strategy can be made of it that could be asked for the others
        where = _where(subject, _KEYS["tp"][0])
        raise mistake(f"tensor parallelism over {at.tp} GPUs", must=uneven.says(at), where=where)
    offered = list(_open(job, subject, fixed))
    memories = {item: estimate(job, item) for item in offered} if len(offered) > 1 else {}
    fitting = [item for item, memory in memories.items() if memory.verdict is Verdict.FITS]
    if not fitting:
        return closest(job, offered[::-1])
    timed = _timed(job, fitting[0].precision)
    speeds = {item: cost(job, attrs.evolve(item, precision=timed)).tokens_per_second_per_gpu for item in fitting}
    near = [item for item in fitting if speeds[item] >= ENOUGH * max(speeds.values())]
    kept = min(item.checkpointing for item in near)
    return sized((item, memories[item]) for item in near if item.checkpointing == kept)


def _filled(subject: Subject) -> bool:
    """Whether the program fills in the dtype: it says bf16 where the GPU has it."""
    return any(subject.is_open(f"{dtype}.enabled") for dtype in ("bf16", "fp16"))


def _timed(job: Job, precision: str) -> str:
    """The dtype whose speed is compared: torch emulates one that the GPU lacks, nobody knows how fast."""
    has = {"bf16": job.hardware.bf16_flops_per_second, "fp16": job.hardware.fp16_flops_per_second}
    return precision if has.get(precision, True) else best_precision(job)


def _open(job: Job, subject: Subject, fixed: Mapping[str, Any]) -> Iterator[Strategy]:
    """Every strategy that what is said leaves open, the largest first."""
    recomputes = [fixed["checkpointing"]] if "checkpointing" in fixed else [False, True]
    sizes = [fixed["micro_batch"]] if "micro_batch" in fixed else _SIZES
    steps = fixed.get("accumulation", 1)
    for checkpointing, micro in itertools.product(recomputes, sizes):
        layout = at_stage(
            Layout(
                stage=fixed["stage"],
                offload_optimizer=fixed["offload_optimizer"],
                offload_param=fixed["offload_param"],
                tp=fixed["tp"],
                checkpointing=checkpointing,
                precision=fixed.get("precision", best_precision(job)),
            )
        )
        yield Strategy(
            **attrs.asdict(layout),
            micro_batch=micro,
            accumulation=steps,
            global_batch=micro * steps * (job.world // fixed["tp"]),
            buffers=buffers(job, subject, layout),
        )


def _notes(subject: Subject, job: Job, chosen: Strategy) -> Iterator[str]:
    yield from read_otherwise(subject)
    yield from not_counted(job, chosen, meanings.uncounted(subject.config, subject.surface, counted(job, chosen)))
    if subject.optimizer and meanings.optimizer(subject) is None:
        yield f"optimizer.type {show(subject.raw('optimizer.type'))}: counted as {job.training.optimizer}"
    for key in _BATCH:
        if subject.written(key) and not subject.is_open(key) and not _whole(subject.value(key)):
            yield f"{key} is {show(subject.raw(key))}: DeepSpeed refuses what is no whole number of at least 1"
    total = subject.value("train_batch_size")
    sequences = chosen.micro_batch * chosen.accumulation * (job.world // chosen.tp)
    shared = subject.written("sequence_parallel_size")  # lint counts those ranks, and says whether it starts
    if _whole(total) and total not in (sequences, sequences * chosen.tp) and not shared:
        yield (
            f"train_batch_size is {total}, not {chosen.micro_batch} x {chosen.accumulation} x "
            f"{job.world // chosen.tp} GPUs: {REFUSED_BATCH}"
        )


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _where(subject: Subject, path: str) -> str:
    document: Document = subject.document
    if not document.text:
        return "the config"
    return f"{document.name}:{document.position(document.span(path, 'value').start)[0]}"


def _above(job: Job, path: str) -> bool:
    """Whether a person says a wish themselves, not a profile."""
    winner = job.provenance.winner(path)
    return winner is not None and winner.rank >= Rank.SITE
