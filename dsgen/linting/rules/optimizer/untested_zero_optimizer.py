"""An optimizer that ZeRO takes only when told to."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.arguments import built_optimizer
from dsgen.linting.rules.rule import Rule
from dsgen.linting.setups import of_subject, refused, sentence
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]

_CODE = "untested-optimizer"


def check(subject: Subject) -> Iterator[Fault]:
    """The type, where ZeRO refuses it."""
    built = built_optimizer(subject)
    misplaced = subject.raw("zero_optimization.zero_allow_untested_optimizer")  # that is the fault
    if built is None or misplaced or not refused(subject, _CODE):
        return
    fix = Fix("set zero_allow_untested_optimizer", (Assign("zero_allow_untested_optimizer", True),), safe=False)
    said = sentence(subject, _CODE, keys=of_subject(subject).keys._replace(named=built.title))
    yield Fault("optimizer.type", said, fix, on="value")


RULE = Rule(
    code="DSG513",
    name="untested-zero-optimizer",
    severity=Severity.ERROR,
    what="ZeRO is on with an optimizer outside its list, and zero_allow_untested_optimizer is not true.",
    why=(
        "deepspeed.initialize stops. The list has Adam, AdamW, Adagrad, Lion and Muon. ZeRO hands the optimizer "
        "flat slices of parameters, which an optimizer that looks at whole layers, such as Lamb, takes for "
        "layers."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "SGD", "params": {"lr": 0.01}},
  "zero_optimization": {"stage": 2}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "SGD", "params": {"lr": 0.01}},
  "zero_optimization": {"stage": 2},
  "zero_allow_untested_optimizer": true
}""",
    evidence=(
        "deepspeed/runtime/zero/utils.py (0.19.8): ZERO_SUPPORTED_OPTIMIZERS",
        "probes OPT_SGD_z2, OPT_RMSprop_z1, OPT_SGD_allow",
    ),
    check=check,
    shows=("untested ZeRO Optimizer",),
)
