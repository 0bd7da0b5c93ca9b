"""ZeRO-1 and 2 on a CPU under releases whose flat weights remember how they were made."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.tensor_parallelism import tensor_parallel
from dsgen.linting.rules.zero_switches import wrapped_for_bf16
from dsgen.linting.setups import sentence
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]

_STAGE = "zero_optimization.stage"


def check(subject: Subject) -> Iterator[Fault]:
    """Stage 1 or 2 of ZeRO's own optimizer on a CPU, where more than one rank has a part of the weights."""
    facts = subject.facts
    on_cpu = facts.accelerator == "cpu" or (facts.hardware is not None and facts.hardware.vendor == "cpu")
    if not on_cpu or facts.world_size == tensor_parallel(subject):
        return
    if subject.stage not in (1, 2) or wrapped_for_bf16(subject):
        return
    yield Fault(_STAGE, sentence(subject, "gradual-stages-on-a-cpu"), on="value")


RULE = Rule(
    code="DSG354",
    name="gradual-stages-on-cpu",
    severity=Severity.ERROR,
    what="ZeRO-1 or 2 runs on a CPU under a release that keeps autograd's history in its flat weights.",
    why=(
        "0.18.7 began to flatten the weights where they are, and did not detach them. On a CPU gloo gathers into parts "
        "of them in the first step: `RuntimeError: Output 0 of Split is a view and is being modified inplace`. NCCL "
        "gathers without autograd's knowing. 0.19.0 detaches them."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 2}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 3}
}""",
    evidence=(
        "deepspeed/runtime/zero/stage_1_and_2.py (0.18.6, 0.18.7, 0.18.9, 0.19.0); each run on two ranks",
        "https://github.com/deepspeedai/DeepSpeed/pull/7948",
    ),
    check=check,
    given={"accelerator": "cpu", "deepspeed": "0.18.9"},
    since="0.18.7",
    until="0.19.0",
)
