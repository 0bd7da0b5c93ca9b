"""All three batch sizes beside tensor parallelism and stage 3."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.batch_sizes import ACCUMULATION, MICRO, TRAIN
from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.tensor_parallelism import tensor_parallel
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """Three sizes that are written, "auto" that the program fills in among them, or that the program adds."""
    if tensor_parallel(subject) == 1 or subject.stage != 3:
        return
    given = (subject.raw(TRAIN), subject.raw(MICRO))
    added = ACCUMULATION in subject.target.brings
    if any(size is None for size in given) or (subject.raw(ACCUMULATION) is None and not added):
        return
    message = (
        "with autotp_size at stage 3 DeepSpeed checks the batch sizes twice, against all GPUs and against GPUs / "
        f"{tensor_parallel(subject)}; all three given can never pass both"
    )
    yield Fault(TRAIN, message, Fix(f"remove {TRAIN}: DeepSpeed multiplies it from the others", (Remove(TRAIN),)))


RULE = Rule(
    code="DSG406",
    name="tensor-parallel-zero-3-batch",
    severity=Severity.ERROR,
    what="train_batch_size, micro-batch and accumulation are all given, with AutoTP and ZeRO-3.",
    why=(
        "Stage 3 parses the config a second time when it partitions the model, now counting only the GPUs of one "
        "data-parallel group. What fits the first parse fails the second: `train_batch_size is not equal to "
        "micro_batch_per_gpu * gradient_acc_step * world_size`. With two sizes DeepSpeed derives the third each time."
    ),
    example="""{
  "train_batch_size": 16,
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 1,
  "tensor_parallel": {"autotp_size": 2},
  "zero_optimization": {"stage": 3}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 1,
  "tensor_parallel": {"autotp_size": 2},
  "zero_optimization": {"stage": 3}
}""",
    evidence=("probes TPZ3_tb2_mb_gas, TPZ3_tb4_mb_gas, TPZ3_tb4_mb; run with a world of 4 on 0.19.8",),
    check=check,
    shows=("Check batch related parameters",),
    given={"world_size": 8},
    since="0.19.4",
)
