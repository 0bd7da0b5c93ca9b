"""Neither the batch size nor the micro-batch is given."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen import targets
from dsgen.linting.rules.batch_sizes import ACCUMULATION, MICRO, TRAIN, said_beside
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity
from dsgen.targets import Target

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """A config that says neither, where the program does not bring it."""
    target = subject.target
    if _brings(target) or (MICRO not in target.filled and said_beside(subject)):
        return
    if subject.value(TRAIN) is not None or subject.value(MICRO) is not None or _elastic(subject):
        return
    alone = f" {ACCUMULATION} alone is not enough." if subject.raw(ACCUMULATION) is not None else ""
    message = f"{TRAIN} and {MICRO} are both missing, and DeepSpeed stops at the parse; it needs one of them.{alone}"
    others = [other for other in targets.TARGETS if _brings(other)]
    if others:
        message += f" {' and '.join(other.title for other in others)} bring{'s' * (len(others) == 1)} one"
        message += f": if that loads the file, say --target {' or '.join(other.name for other in others)}"
    if MICRO in target.filled:
        fix = Fix(f'write {MICRO}: "auto", which {target.title} fills in', (Assign(MICRO, "auto"),))
    else:
        fix = Fix(f"write {MICRO}: 1", (Assign(MICRO, 1),), safe=False)
    yield Fault(MICRO, message, fix)


def _elastic(subject: Subject) -> bool:
    """Whether the release works the batch sizes out of elasticity, which 0.19.8 has no longer."""
    key = subject.surface.key("elasticity")
    return key is not None and not key.removed and bool(subject.raw("elasticity.enabled"))


def _brings(target: Target) -> bool:
    """Whether the program says a batch size that the config does not."""
    return target.brings_batch or not {TRAIN, MICRO}.isdisjoint(target.brings)


RULE = Rule(
    code="DSG200",
    name="batch-size-missing",
    severity=Severity.ERROR,
    what="The config gives neither train_batch_size nor train_micro_batch_size_per_gpu.",
    why=(
        "DeepSpeed derives the three batch sizes from each other and needs one of these two: `AssertionError: Either "
        "train_batch_size or train_micro_batch_size_per_gpu needs to be provided`. Hugging Face does not add it "
        'either; it only replaces "auto".'
    ),
    example='{"optimizer": {"type": "AdamW"}, "gradient_accumulation_steps": 4}',
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "gradient_accumulation_steps": 4,
  "optimizer": {"type": "AdamW"}
}""",
    evidence=("deepspeed/runtime/config.py (0.19.8): _set_batch_related_parameters", "probes T_empty, T_only_gas"),
    check=check,
)
