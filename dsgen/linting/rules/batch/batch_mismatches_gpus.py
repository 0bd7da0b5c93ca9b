"""Batch sizes that do not multiply up with the number of GPUs that is known."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from dsgen.linting.rules.batch_sizes import TRAIN, Sizes, adds_up, divisor, ranks, sizes
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """A train_batch_size that DeepSpeed refuses on so many GPUs and would take on another number."""
    given, count = sizes(subject, exact=True), ranks(subject)
    if given is None or given.train is None or count is None or adds_up(given, count):
        return
    if given.train % given.per_rank and not subject.written("sequence_parallel_size"):
        return  # batch-never-adds-up
    tensor = subject.value("tensor_parallel.autotp_size")
    if isinstance(tensor, int) and tensor > 1 and adds_up(given, count / tensor):
        return  # tensor-parallel-batch
    sequence = Fraction(subject.facts.world_size or 1) / count
    yield Fault(TRAIN, _message(given, count, sequence), _mend(given, count), on="value")


def _message(given: Sizes, count: Fraction, sequence: Fraction) -> str:
    """Args: given: The sizes. count: Ranks that the batch counts. sequence: GPUs that share one sequence."""
    fitting = (given.train or 0) // given.per_rank
    product = f"{divisor(given)} x {count} = {given.per_rank * count}" if divisor(given) else f"{count}"
    at = f" at sequence_parallel_size {sequence}" if sequence > 1 else ""
    said = f"{TRAIN} {given.train} does not fit {_gpus(count * sequence)}{at}, and DeepSpeed stops at the parse: "
    if given.micro is not None and given.accumulation is not None:
        return f"{said}it must be {product}; as it stands it needs {_gpus(fitting * sequence)}"
    share = f" / {sequence}" if sequence > 1 else ""
    return f"{said}it must be a multiple of {product}; as it stands the number of GPUs{share} must divide {fitting}"


def _gpus(count: Fraction | float) -> str:
    return f"{count} GPU{'' if count == 1 else 's'}"


def _mend(given: Sizes, count: Fraction) -> Fix | None:
    if given.micro is not None:
        return Fix(f"remove {TRAIN}: DeepSpeed multiplies it from the others", (Remove(TRAIN),), safe=False)
    unit = given.per_rank * count
    size = unit * max(1, (given.train or 0) // unit)
    return Fix(f"write {TRAIN}: {size}", (Assign(TRAIN, int(size)),), safe=False) if size == int(size) else None


RULE = Rule(
    code="DSG203",
    name="batch-mismatches-gpus",
    severity=Severity.ERROR,
    what="The batch sizes do not multiply up with this number of GPUs.",
    why=(
        "DeepSpeed asserts `train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x GPUs` "
        "with the GPUs it is started on. A batch below the number of GPUs leaves a micro-batch of 0."
    ),
    example='{"train_batch_size": 12, "train_micro_batch_size_per_gpu": 2}',
    instead='{"train_micro_batch_size_per_gpu": 2}',
    evidence=(
        "deepspeed/runtime/config.py (0.19.8): _set_batch_related_parameters, _batch_assertion",
        "probes B_tb3_w2, B_tb_micro_nondiv, B_tb_lt_world, B_tb_gas_nondiv",
    ),
    check=check,
    shows=("has to be greater than 0", "Check batch related parameters"),
    given={"world_size": 8},
)
