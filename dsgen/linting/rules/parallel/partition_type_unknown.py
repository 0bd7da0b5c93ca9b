"""A way of splitting a layer that DeepSpeed does not know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dsgen.deepspeed.keys import say
from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.tensor_parallelism import SECTION, tensor_parallel
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity
from dsgen.shapes.near_misses import alike, offer

__all__ = ["RULE", "check"]

_PATH = f"{SECTION}.partition_config"
_TYPES = ("column", "row", "skip")


def check(subject: Subject) -> Iterator[Fault]:
    """Every partition_type of layer_specs that is another text, while autotp_size is above 1."""
    specs = subject.section(_PATH).get("layer_specs")
    if not isinstance(specs, list) or tensor_parallel(subject) == 1:
        return
    for index, spec in enumerate(specs):
        kind = spec.get("partition_type") if isinstance(spec, Mapping) else None
        if isinstance(kind, str) and kind.lower() not in _TYPES:
            close = alike(kind, _TYPES)[:1]
            meant = f"; {offer(close)}" if close else ""
            message = f"partition_type {say(kind)} is none of {', '.join(_TYPES)}: deepspeed.initialize stops{meant}"
            yield Fault(f"{_PATH}.layer_specs[{index}].partition_type", message, on="value")


RULE = Rule(
    code="DSG412",
    name="partition-type-unknown",
    severity=Severity.ERROR,
    what="A layer is to be split in a way that DeepSpeed does not have.",
    why="`ValueError: 'col' is not a valid PartitionType`. Capitals do not matter.",
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "tensor_parallel": {
    "autotp_size": 2,
    "partition_config": {"layer_specs": [{"patterns": [".*fc1"], "partition_type": "col"}]}
  }
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "tensor_parallel": {
    "autotp_size": 2,
    "partition_config": {"layer_specs": [{"patterns": [".*fc1"], "partition_type": "column"}]}
  }
}""",
    evidence=("deepspeed/module_inject/autotp_config.py (0.19.8): PartitionType", "probe TP_pc_badtype"),
    check=check,
    since="0.18.9",
)
