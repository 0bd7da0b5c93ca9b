"""A batch size that counts the copies of the model, not the GPUs, beside tensor parallelism."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.batch_sizes import TRAIN, adds_up, ranks, sizes
from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.tensor_parallelism import tensor_parallel
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """A train_batch_size that fits the GPUs divided by autotp_size and not the GPUs."""
    degree, given, count = tensor_parallel(subject), sizes(subject), ranks(subject)
    if degree == 1 or given is None or given.train is None or count is None:
        return
    if adds_up(given, count) or not adds_up(given, count / degree):
        return
    if subject.stage == 3 and given.micro is not None and given.accumulation is not None:
        return  # tensor-parallel-zero-3-batch: no value would do
    message = (
        f"{TRAIN} {given.train} counts one micro-batch for the {degree} GPUs that share a layer; DeepSpeed counts all "
        f"{count} GPUs and stops at the parse: it must be {given.train * degree}"
    )
    fix = Fix(f"write {given.train * degree}", (Assign(TRAIN, given.train * degree),))
    if given.micro is not None:
        fix = Fix(f"remove {TRAIN}: DeepSpeed multiplies it from the others", (Remove(TRAIN),))
    yield Fault(TRAIN, message, fix, on="value")


RULE = Rule(
    code="DSG405",
    name="tensor-parallel-batch",
    severity=Severity.ERROR,
    what="train_batch_size is the number of samples that differ, which DeepSpeed does not want with AutoTP.",
    why=(
        "GPUs that share a layer work on the same samples, so a step has `micro-batch x accumulation x GPUs / "
        "autotp_size` different ones. DeepSpeed checks train_batch_size against all GPUs nevertheless, and reports "
        "that many samples."
    ),
    example="""{
  "train_batch_size": 8,
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 1,
  "tensor_parallel": {"autotp_size": 2}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 1,
  "tensor_parallel": {"autotp_size": 2}
}""",
    evidence=(
        "deepspeed/runtime/config.py (0.19.8): world_size; probes TP_tb_dp_w2, TP_w4_dp2_z1_tb4 and TP_w4_dp2_z1",
    ),
    check=check,
    shows=("has to be greater than 0", "Check batch related parameters"),
    given={"world_size": 8},
    since="0.16.4",
)
