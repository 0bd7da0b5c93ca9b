"""One key written under two of its names."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """Every alias or old name that stands beside the name it stands for."""
    for alias, name in subject.surface.aliases.items():
        if _counts(subject, alias) and _counts(subject, name):
            yield _fault(subject, alias, name, "takes one of them for an unknown key")
    for path, value in subject.leaves():
        key = subject.surface.key(path)
        if key is None or key.path != path or not key.deprecated or not key.replaced_by or value == "auto":
            continue
        if path.startswith("zero_optimization.") and _counts(subject, key.replaced_by):
            yield _fault(subject, path, key.replaced_by, "refuses an old name beside the new one")


def _counts(subject: Subject, path: str) -> bool:
    """Whether a name is written and stays: a strict section drops "auto" before it looks at the names."""
    return subject.written(path) and (subject.raw(path) != "auto" or subject.target.fills(path))


def _fault(subject: Subject, alias: str, name: str, what: str) -> Fault:
    same = subject.raw(alias) == subject.raw(name)
    fix = Fix(f"remove {alias.rpartition('.')[2]}", (Remove(alias),), safe=same)
    return Fault(alias, f"{alias} and {name} are one key, and DeepSpeed {what}; write {name} alone", fix)


RULE = Rule(
    code="DSG110",
    name="two-names",
    severity=Severity.ERROR,
    what="A key is written twice, under two of its names.",
    why="DeepSpeed stops at the parse: `Extra inputs are not permitted`, or an AssertionError for an old name.",
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 10, "prefetch_bucket_size": 10}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 10}
}""",
    evidence=("DeepSpeed 0.19.8 run with both names", "deepspeed/runtime/config_utils.py: _process_deprecated_field"),
    check=check,
)
