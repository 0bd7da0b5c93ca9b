"""The next changes for a job, each with its numbers: what it saves where it was full, and what it costs in speed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs

from dsgen.asking.memory_questions import Question
from dsgen.asking.memory_questions.questions import strategy_of
from dsgen.asking.plan_questions.weighing import weigh
from dsgen.jobs.job import Job
from dsgen.memory import MemoryEstimate, Verdict, estimate
from dsgen.memory.evaluating import TRAINER_SEQUENCES, evaluation, most_sequences
from dsgen.shapes.errors import DsgenError
from dsgen.strategies.constraints import cannot
from dsgen.strategies.strategies import Strategy, best_precision

__all__ = ["NextChange", "bf16", "less_memory", "phase_bytes", "smaller_evaluation", "torch_attention"]

MOST = 4  # changes that are shown; a person tries one or two
ENOUGH_CHOICES = 2  # changes that train the same and are enough, beside which no others are offered
LEAST_SAVED = 2**28  # bytes; what saves less is no remedy
MOST_TOGETHER = 4  # changes that are made one after the other where no single one is enough
_WHOLE = 3  # the stage at which parameters can be offloaded
_SHORTEST = 512  # tokens; a shorter sequence is not worth offering
_HALF = 2

_PLACES = ("gpu", "host", "nvme")  # of a MemoryEstimate


@attrs.frozen(kw_only=True)
class NextChange:
    """One change, or several together.

    Attributes:
        options: What to say to dsgen instead: option -> value.
        words: The same as a person types it: "--micro-batch 2 --accumulation 32".
        program: The same for the Hugging Face Trainer, or what else the program does; empty where the config says it.
        saved_bytes: What it saves on the place that was full.
        slower: Time for a token by what it is now, less one; below 0 where it is faster; None where nobody knows.
        enough: Whether it saves what was missing, and fits as predicted.
        same: Whether it trains the same: the same tokens a step.
        overfills: Whether another place, which had enough, does not hold what it then must.
    """

    options: dict[str, Any]
    words: str
    program: str
    saved_bytes: int
    slower: float | None
    enough: bool
    same: bool = True
    overfills: bool = False


@attrs.frozen(kw_only=True)
class Way:
    """A job and strategy that a change makes."""

    job: Job
    strategy: Strategy
    options: dict[str, Any]
    program: str
    same: bool = True


def phase_bytes(memory: MemoryEstimate, place: str, phase: str | None) -> int:
    """What a place holds in a phase of training; at the peak where the phase is not one that is computed."""
    of_phase = (one for one in memory.phases if one.phase == phase)
    most = max((one.gpu_bytes if place == "gpu" else one.host_bytes for one in of_phase), default=0)
    return most or int(getattr(memory, place).peak_bytes)


def less_memory(question: Question, place: str, phase: str | None, missing_bytes: int) -> tuple[NextChange, ...]:
    """Changes that need less of a place, those that are enough first and of them the fastest first.

    Args:
        question: The job that ran.
        place: What was full: "gpu" or "host".
        phase: When it was full.
        missing_bytes: What was missing at least.
    """
    start = Way(job=question.job, strategy=question.strategy, options={}, program="")
    before = estimate(start.job, start.strategy)
    every = [_told(question, start, way, before, place, phase, missing_bytes) for way in _ways(question, start)]
    kept = [one for one in every if one.saved_bytes >= LEAST_SAVED and not one.overfills]
    if len([one for one in kept if one.enough and one.same]) >= ENOUGH_CHOICES:
        kept = [one for one in kept if one.enough and one.same]
    if not any(one.enough and one.same for one in kept):
        together = _together(question, start, before, place, phase, missing_bytes)
        kept += [together] if together is not None else []
    kept.sort(key=lambda one: (not one.enough, not one.same, one.slower if one.slower is not None else 1.0))
    return tuple(kept[:MOST])


def bf16(question: Question) -> NextChange | None:
    """Training in bf16 instead of fp16; None where it is not fp16, or the GPU has no bf16."""
    asked, job = question.strategy, question.job
    if asked.precision != "fp16" or not job.hardware.bf16_flops_per_second:
        return None
    other = attrs.evolve(asked, precision=best_precision(job))
    way = Way(job=job, strategy=other, options={"precision": "bf16"}, program="bf16=True, fp16=False")
    start = Way(job=job, strategy=asked, options={}, program="")
    return _told(question, start, way, estimate(job, asked), "gpu", None, 0)


def smaller_evaluation(question: Question) -> NextChange | None:
    """Fewer sequences in an evaluation's batch; None where as many as the Trainer takes fit, or not even one does."""
    job, asked = question.job, question.strategy
    most = most_sequences(job, asked)
    if not most or most >= TRAINER_SEQUENCES:
        return None
    sequences = 1 << (most.bit_length() - 1)
    before, after = evaluation(job, asked), evaluation(job, asked, sequences)
    if before is None or after is None:
        return None
    words = f"per_device_eval_batch_size={sequences}"
    saved = before.peak_bytes - after.peak_bytes
    return NextChange(options={}, words=words, program="", saved_bytes=saved, slower=None, enough=True)


def torch_attention(question: Question) -> NextChange | None:
    """Torch's own attention kernel instead of flash-attn; None where the job is not said to take flash-attn."""
    asked, job = question.strategy, question.job
    if job.training.attention != "flash":
        return None
    start = Way(job=job, strategy=asked, options={}, program="")
    other = attrs.evolve(job, training=attrs.evolve(job.training, attention="sdpa"))
    way = Way(job=other, strategy=asked, options={"attention": "sdpa"}, program='attn_implementation="sdpa"')
    return _told(question, start, way, estimate(job, asked), "gpu", None, 0)


def _ways(question: Question, start: Way) -> Iterator[Way]:
    """Every single change that DeepSpeed runs."""
    for way in (*_of_strategy(question, start), *_of_program(start)):
        if cannot(way.job, way.strategy) is None:
            yield way


def _of_strategy(question: Question, start: Way) -> Iterator[Way]:
    now, options = start.strategy, start.options

    def way(said: dict[str, Any], program: str, **changed: Any) -> Way:
        other = strategy_of(question, **{**_fields(now), **changed})
        return attrs.evolve(start, strategy=other, options={**options, **said}, program=program)

    sequences = now.micro_batch * now.accumulation
    smaller = [size for size in range(now.micro_batch - 1, 0, -1) if sequences % size == 0]
    for size in dict.fromkeys([*smaller[:1], *smaller[-1:]]):
        steps = sequences // size
        said: dict[str, Any] = {"micro_batch": size, "accumulation": steps}
        yield way(said, f"per_device_train_batch_size={size}, gradient_accumulation_steps={steps}",
                  micro_batch=size, accumulation=steps)  # fmt: skip
    if not now.checkpointing:
        yield way({"checkpointing": "full"}, "gradient_checkpointing=True", checkpointing=True)
    for stage in range(now.stage + 1, _WHOLE + 1):
        if now.tp == 1 or stage < _WHOLE:
            yield way({"zero_stage": stage}, "", stage=stage)
    if now.offload_optimizer == "none" and now.stage:
        yield way({"offload": "optimizer"}, "", offload_optimizer="cpu")
    if now.offload_param == "none" and now.stage == _WHOLE:
        optimizer = "none" if question.job.training.method != "full" else "cpu"
        said = {"offload": "all"} if optimizer == "cpu" else {"set": ["zero_optimization.offload_param.device=cpu"]}
        yield way(said, "", offload_optimizer=optimizer, offload_param="cpu")
    if "none" not in (now.offload_param, now.offload_optimizer):
        yield way({"offload": "optimizer"}, "", offload_param="none")
    if now.offload_optimizer != "none" and now.offload_param == "none":
        yield way({"offload": "none"}, "", offload_optimizer="none")


def _fields(now: Strategy) -> dict[str, Any]:
    names = ("stage", "offload_optimizer", "offload_param", "tp", "checkpointing", "precision", "micro_batch",
             "accumulation")  # fmt: skip
    return {name: getattr(now, name) for name in names}


def _of_program(start: Way) -> Iterator[Way]:
    training = start.job.training

    def way(same: bool, program: str, **changed: Any) -> Way:
        job = attrs.evolve(start.job, training=attrs.evolve(training, **changed))
        return attrs.evolve(start, job=job, options={**start.options, **changed}, program=program, same=same)

    if not training.chunked_loss:
        yield way(True, "use_liger_kernel=True", chunked_loss=True)
    if training.attention != "flash":
        yield way(True, 'attn_implementation="flash_attention_2"', attention="flash")
    if start.strategy.checkpointing and not training.activation_offloading:
        yield way(True, "activation_offloading=True of TRL's SFTConfig", activation_offloading=True)
    if training.activation_offloading:
        yield way(True, "activation_offloading=False", activation_offloading=False)
    if start.job.seq_len >= _HALF * max(_SHORTEST, training.mean_len or 0):
        yield way(False, "", seq_len=start.job.seq_len // _HALF)


def _together(
    question: Question, start: Way, before: MemoryEstimate, place: str, phase: str | None, missing_bytes: int
) -> NextChange | None:
    """The changes that save most, one after the other, until they are enough; None where they never are."""
    way, programs = start, []
    for _ in range(MOST_TOGETHER):
        open_ways = [
            other for other in _ways(question, way) if other.same and not set(other.options) <= set(way.options)
        ]
        if not open_ways:
            return None
        told = [(_told(question, start, other, before, place, phase, missing_bytes), other) for other in open_ways]
        best, following = max(told, key=lambda pair: pair[0].saved_bytes)
        if following.program:
            programs.append(following.program)
        way = following
        if best.enough and best.saved_bytes >= LEAST_SAVED:
            return attrs.evolve(best, program=", ".join(programs))
    return None


def _told(
    question: Question, start: Way, way: Way, before: MemoryEstimate, place: str, phase: str | None, missing_bytes: int
) -> NextChange:
    after = estimate(way.job, way.strategy)
    saved = phase_bytes(before, place, phase) - phase_bytes(after, place, phase)
    return NextChange(
        options=way.options,
        words=" ".join(_typed(way.options)),
        program=way.program,
        saved_bytes=saved,
        slower=_slower(start, way),
        enough=saved >= missing_bytes and after.verdict is not Verdict.DOES_NOT_FIT,
        same=way.same,
        overfills=any(_full(after, other) and not _full(before, other) for other in _PLACES if other != place),
    )


def _full(memory: MemoryEstimate, place: str) -> bool:
    return bool(getattr(memory, place).verdict is Verdict.DOES_NOT_FIT)


def _typed(options: dict[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        for one in value if isinstance(value, list) else [value]:
            yield option if one is True else f"--no-{option[2:]}" if one is False else f"{option} {one}"


def _slower(start: Way, way: Way) -> float | None:
    try:
        return weigh(start.job, start.strategy).speed / weigh(way.job, way.strategy).speed - 1
    except DsgenError:  # a dtype that the GPU lacks: nobody knows how fast it is
        return None
