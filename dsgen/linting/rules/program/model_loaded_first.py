"""A program that loads its model before anything tells transformers of stage 3."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.model_loads import ModelLoad
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]

_STAGE, _PARTITIONED = "zero_optimization.stage", 3


def check(subject: Subject) -> Iterator[Fault]:
    """Every load before the arguments, but of a base in 4 or 8 bits, which is made under no zero.Init anyway."""
    if not subject.facts.loads or subject.stage != _PARTITIONED:
        return
    for load in subject.facts.loads:
        if load.after is not None and not load.quantized:
            message = (
                f"{_STAGE} is {_PARTITIONED}, and {load.file} loads its model (line {load.line}) before it makes its "
                f"arguments (line {load.after}): no zero.Init makes it, and each rank loads it whole; make the "
                "arguments first"
            )
            yield Fault(_STAGE, message, on="value")


RULE = Rule(
    code="DSG928",
    name="model-loaded-first",
    severity=Severity.WARNING,
    what="The program loads its model before its arguments make stage 3 known.",
    why=(
        "from_pretrained makes a model under zero.Init where a config of stage 3 is known: after TrainingArguments, or "
        "an HfDeepSpeedConfig that is kept. Before them each rank reads all weights, and DeepSpeed moves the whole "
        "model to every GPU before it cuts it: a model that is larger than a GPU fails there. `dsgen memory --args` "
        "counts that. Only a Python program that --args names is read."
    ),
    example='{"zero_optimization": {"stage": 3}}',
    instead='{"zero_optimization": {"stage": 2}}',
    evidence=(
        "transformers/modeling_utils.py (5.23.0): PreTrainedModel.get_init_context",
        "transformers/training_args.py (5.23.0): TrainingArguments.__post_init__ makes HfTrainerDeepSpeedConfig",
        "the real from_pretrained of transformers 5.23.0 run so: tests/asking/test_load_before_arguments.py",
    ),
    check=check,
    given={"target": "hf-trainer", "loads": (ModelLoad(file="train.py", line=1, after=2),)},
    reads="job",
)
