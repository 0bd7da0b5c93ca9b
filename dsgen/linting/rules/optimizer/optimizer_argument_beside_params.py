"""An argument of the optimizer that stands beside params instead of in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Move, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """Every key beside params that the optimizer would take in it."""
    for name in subject.section("optimizer"):
        if name in ("type", "params", "legacy_fusion", "name"):
            continue
        path, inside = f"optimizer.{name}", f"optimizer.params.{name}"
        if subject.surface.key(inside, subject.config) is None:
            continue
        taken = subject.written(inside) or not isinstance(subject.section("optimizer").get("params", {}), Mapping)
        fix = None if taken else Fix("move into params", (Move(path, inside),))
        yield Fault(path, f"DeepSpeed does not read {path}; it belongs in optimizer.params", fix)


RULE = Rule(
    code="DSG506",
    name="optimizer-argument-beside-params",
    severity=Severity.WARNING,
    what="The section optimizer has arguments of the optimizer next to params.",
    why=(
        "DeepSpeed reads type, params and legacy_fusion there and nothing else, without a word: the optimizer "
        "gets its default instead, for lr 0.001."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {}, "lr": 5e-05},
  "zero_optimization": {"stage": 2}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 5e-05}},
  "zero_optimization": {"stage": 2}
}""",
    evidence=(
        "deepspeed/runtime/config.py (0.19.8): get_optimizer_params",
        "probe A_opt_param_misplaced",
    ),
    check=check,
)
