"""What became of the speed of each published record: compared, compared apart, or left out with a reason."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs
from published_cases import REFUSED, gathered, records  # benchmarks/, beside this script
from published_sources import source_of
from published_speed_questions import assumed_network, own_tokens, speed_question
from published_speed_reasons import tokens_of, why_apart, why_left_out

from dsgen.asking.memory_questions import Question
from dsgen.cost import StepCost, cost
from dsgen.cost.steps import speed_interval
from dsgen.jobs.job import Job
from dsgen.kernels.measured_facts import HOST
from dsgen.memory import Verdict, estimate
from dsgen.shapes.errors import DsgenError
from dsgen.strategies.strategies import Strategy

__all__ = [
    "APART",
    "COMPARED",
    "DEEPSPEED",
    "LEFT_OUT",
    "STRATEGY",
    "Prediction",
    "Predictor",
    "SpeedCase",
    "asked",
    "measured_speed",
    "predicted",
    "speed_cases",
    "without_fit",
]

Record = Mapping[str, Any]

COMPARED, APART, LEFT_OUT = "compared", "apart", "left out"
HELD_BACK = 3  # one row in so many is kept from whoever tunes the model


@attrs.frozen
class Prediction:
    """What a model says of one step.

    Attributes:
        speed: Tokens/s/GPU.
        low, high: The interval that is printed with it, tokens/s/GPU.
        seconds: The optimizer step.
        parts: Part -> seconds; they add up to the step.
    """

    speed: float
    low: float
    high: float
    seconds: float
    parts: Mapping[str, float]


Predictor = Callable[[Job, Strategy, bool], Prediction]
DEEPSPEED = "deepspeed"  # system of a record


def predicted(job: Job, strategy: Strategy, deepspeed: bool) -> Prediction:
    """What today's dsgen says: the only place here that knows the shape of its answer."""
    found: StepCost = cost(job, strategy, deepspeed=deepspeed)
    speed = found.tokens_per_second_per_gpu
    low, high = speed_interval(job, strategy, deepspeed=deepspeed)
    return Prediction(speed, speed * low, speed * high, found.seconds, dict(found.parts))


def without_fit(case: SpeedCase) -> float:
    """The error of a case with a host as fast as those of 2024, whatever its GPU."""
    question = asked(case.name)
    hardware = attrs.evolve(question.job.hardware, dispatch_seconds=HOST.dispatch_seconds)
    ours = predicted(attrs.evolve(question.job, hardware=hardware), question.strategy, case.system == DEEPSPEED)
    return ours.speed / case.measured - 1


# What a strategy decides; every other fact of a setup is part of its job.
STRATEGY = ("stage", "offload", "tensor parallelism", "checkpointing", "batch")


@attrs.frozen(kw_only=True)
class SpeedCase:
    """One record, and what became of its speed.

    Attributes:
        name: Id of the record.
        source: Prefix of its source.
        grade: A, B or C, as the records grade themselves: C rests on guesses.
        kind: Compared, apart, or left out.
        reason: Why it was left out or is shown apart; else empty.
        system: What it ran on: deepspeed, fsdp, internevo, or `other`: one GPU or plain torch.
        setup: Fact -> value: all that tells two runs of one source apart.
        assumed: What was assumed though the source does not say it.
        measured: Tokens/s/GPU.
        ours: What dsgen says; None where it was left out.
    """

    name: str
    source: str
    grade: str
    kind: str
    reason: str = ""
    system: str = ""
    setup: Mapping[str, Any] = attrs.field(factory=dict)
    assumed: tuple[str, ...] = ()
    measured: float = 0.0
    ours: Prediction | None = None

    @property
    def speed(self) -> float:
        """Tokens/s/GPU as dsgen says."""
        assert self.ours is not None
        return self.ours.speed

    @property
    def error(self) -> float:
        """The signed error of the speed: above 0 where dsgen says faster than was measured."""
        return self.speed / self.measured - 1

    @property
    def within(self) -> bool:
        """Whether the measured speed lies in the interval that is printed."""
        assert self.ours is not None
        return self.ours.low <= self.measured <= self.ours.high

    @property
    def doubt(self) -> float:
        """0 where dsgen says that it fits, 1 where it is not sure, infinite where a plan never takes it."""
        return _doubt(self.name)

    @property
    def held_back(self) -> bool:
        """Whether the row is kept from whoever tunes the model; by its name alone, so that it never changes."""
        return int.from_bytes(hashlib.sha256(self.name.encode()).digest()[:8], "big") % HELD_BACK == 0


def speed_cases(predictor: Predictor = predicted, names: Iterable[str] | None = None) -> tuple[SpeedCase, ...]:
    """Every record with what became of its speed.

    Args:
        predictor: What says how fast a job runs under a strategy.
        names: Ids of records; None means all but those gathered later.
    """
    named = _named()
    asked_for = [record["id"] for record in records()] if names is None else names
    return tuple(_case_of(named[name], predictor) for name in asked_for)


@functools.cache
def _named() -> Mapping[str, Record]:
    return {record["id"]: record for record in (*records(), *gathered())}


def _case_of(record: Record, predictor: Predictor) -> SpeedCase:
    why = why_left_out(record)
    case = SpeedCase(
        name=record["id"],
        source=source_of(record).prefix,
        grade=record["grade"],
        kind=LEFT_OUT,
        reason=why or "",
        system=record["system"],
    )
    if why is not None:
        return case
    question = _asked(record["id"])
    if isinstance(question, str):
        return attrs.evolve(case, reason=question)
    apart = why_apart(record)
    return attrs.evolve(
        case,
        kind=COMPARED if apart is None else APART,
        reason=apart or "",
        setup=_setup(record, question),
        assumed=("network",) if assumed_network(record) else (),
        measured=measured_speed(record),
        ours=predictor(question.job, question.strategy, record["system"] == DEEPSPEED),
    )


_DOUBTS = {Verdict.FITS: 0.0, Verdict.UNCERTAIN: 1.0, Verdict.DOES_NOT_FIT: math.inf}


@functools.cache
def _doubt(name: str) -> float:
    question = asked(name)
    training, ways = question.job.training, {"expandable_segments": True}  # as a plan has it, and dsgen launch sets it
    if training.mean_len:  # the memory of its sequences as they were, for nobody knows the longest
        ways |= {"seq_len": tokens_of(_named()[name]), "mean_len": None, "padding_free": False}
    planned = attrs.evolve(training, **ways)
    return _DOUBTS[estimate(attrs.evolve(question.job, training=planned), question.strategy).verdict]


def asked(name: str) -> Question:
    """The question of a record of which dsgen says something."""
    question = _asked(name)
    assert not isinstance(question, str)
    return question


@functools.cache
def _asked(name: str) -> Question | str:
    """The question of a record, or why dsgen refuses it; it outlives a predictor."""
    try:
        return speed_question(_named()[name])
    except DsgenError as refusal:
        return f"{REFUSED}: {str(refusal).splitlines()[0]}"


def measured_speed(record: Record) -> float:
    """Tokens/s/GPU of a record, its samples' own: all whose length is known have it."""
    measured, own = record["measured"], own_tokens(record)
    if own:
        return float(measured["samples_per_second"] * own / record["hardware"]["gpus"])
    return float(measured["tokens_per_second_per_gpu"])


def _setup(record: Record, question: Question) -> dict[str, Any]:
    """All that tells two runs of one source apart; `group` holds rows of several tables apart that are not one."""
    job, strategy, config = question.job, question.strategy, record["config"]
    training = job.training
    adapters = (training.lora_rank, training.lora_targets) if training.method != "full" else ()
    return {
        "group": _table_of(record),
        "model": record["model"]["name"],
        "GPU": record["hardware"].get("gpu") or record["hardware"]["card"],
        "GPUs": job.world,
        "length": tokens_of(record),
        "method": training.method,
        "adapters": adapters,
        "base": config.get("quantization", ""),
        "precision": config["precision"],
        "optimizer": config.get("optimizer", ""),
        "attention": (training.attention, config.get("flash_version", 2)),
        "loss": training.chunked_loss,
        "kernels": tuple(config.get(name) for name in ("compile", "passes", "fused_kernels", "plugins")),
        "padding": (config.get("padding_free", False), "mean_tokens" in record["model"]),
        "stage": strategy.stage,
        "offload": (strategy.offload_optimizer, strategy.offload_param),
        "tensor parallelism": strategy.tp,
        "checkpointing": strategy.checkpointing,
        "batch": (strategy.micro_batch, strategy.accumulation),
    }


_FMS = "fms"


def _table_of(record: Record) -> str:
    """What a source measured at one time in one way: fms-acceleration's files are of several years and programs."""
    parts = record["id"].split("-")
    odd = [caveat for caveat in record.get("caveats", ()) if caveat in ("sum of timings", "one-off")]
    return " ".join([*(parts[:2] if parts[0] == _FMS else parts[:1]), record["system"], *odd])
