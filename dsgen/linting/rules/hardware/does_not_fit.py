"""A config whose tensors are more than the GPU holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dsgen.linting.rules.described import described, least
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity
from dsgen.shapes.units import gib

if TYPE_CHECKING:
    from dsgen.memory import Place

__all__ = ["RULE", "check"]

_SHOWN = 3  # largest parts named
_TRAINED = {"full": "all its parameters", "lora": "adapters", "qlora": "adapters of a model in 4 bits"}  # by method


def check(subject: Subject) -> Iterator[Fault]:
    """The predicted peak against the GPU: an error where even the least is too much."""
    run = described(subject)
    if run is None:
        return
    from dsgen.memory import Verdict

    if (gpu := run.memory.gpu).verdict is Verdict.FITS:
        return
    lean, limit = least(subject, run), gib(gpu.limit_bytes)
    path = "zero_optimization" if subject.written("zero_optimization") else "train_micro_batch_size_per_gpu"
    if lean is not None and lean.gpu.verdict is Verdict.DOES_NOT_FIT:
        trained = _TRAINED[run.job.training.method] + ("" if run.strategy.checkpointing else " without checkpointing")
        message = f"training {trained} takes at least {gib(lean.gpu.low_bytes)} GiB of a GPU with {limit}"
        unsaid = subject.facts.training is None and subject.target.brings_optimizer
        maybe = Severity.WARNING if unsaid else None  # it may train adapters only
        yield Fault(path, f"{message}: {_parts(lean.gpu)}", severity=maybe)
    else:
        where = f"{run.job.seq_len} tokens and micro-batch {run.strategy.micro_batch}"
        takes = f"{gib(gpu.low_bytes)} to {gib(gpu.high_bytes)} GiB of a GPU with {limit}"
        recomputed = ", and activation checkpointing," if run.strategy.checkpointing else ", without checkpointing,"
        message = f"with {where}{recomputed} training takes {takes}: {_parts(gpu)}"
        yield Fault(path, message, severity=Severity.WARNING)


def _parts(place: Place) -> str:
    largest = sorted(place.parts.items(), key=lambda part: -part[1])[:_SHOWN]
    return ", ".join(f"{name} {gib(size)}" for name, size in largest)


RULE = Rule(
    code="DSG800",
    name="does-not-fit",
    severity=Severity.ERROR,
    what="The model does not fit on the GPU as the config trains it.",
    why=(
        "The prediction counts weights, gradients, optimizer states, buffers and activations with checkpointing, "
        "for training of all parameters unless --method or --scenario says otherwise. An error means that even the low "
        "end of the interval is more than the GPU has, with no activations to speak of; a warning, that it is more at "
        "the sequence length and micro-batch named or assumed. A run that trains adapters takes far less."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "bf16": {"enabled": true},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
  "zero_optimization": {"stage": 0}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "bf16": {"enabled": true},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
  "zero_optimization": {"stage": 3}
}""",
    evidence=("dsgen/memory: within 2 % of the real engine's tensors on a virtual GPU (tests/memory)",),
    check=check,
    given={"hardware": "a100-40g", "model": "7b", "world_size": 8, "seq_len": 2048},
)
