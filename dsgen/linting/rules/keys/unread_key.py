"""A key that DeepSpeed never reads, where it says nothing about it."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.unknown import Unknown, is_comment, lifting, renaming, unknown_keys
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]

# Keys of the deepspeed_config section of Accelerate's YAML (accelerate/utils/dataclasses.py, 1.x).
_ACCELERATE = (
    *("deepspeed_config_file", "deepspeed_hostfile", "deepspeed_multinode_launcher", "zero_stage"),
    *("offload_optimizer_device", "offload_optimizer_nvme_path", "offload_param_device"),
    *("offload_param_nvme_path", "zero3_init_flag", "zero3_save_16bit_model"),
)


def check(subject: Subject) -> Iterator[Fault]:
    """Every unknown key outside the strict sections."""
    for unknown in unknown_keys(subject):
        if not unknown.strict and unknown.later is None:
            said = _said(subject, unknown) + _meant(subject, unknown)
            yield Fault(unknown.path, said, _mend(subject, unknown), Severity.INFO if is_comment(unknown) else None)


def _said(subject: Subject, unknown: Unknown) -> str:
    name = unknown.path.rpartition(".")[2]
    if is_comment(unknown):
        return f"DeepSpeed never reads {unknown.path}; as a comment it does no harm"
    kind = "a key of Accelerate's YAML, which" if name in _ACCELERATE else "a key that"
    return f"{unknown.path} is {kind} DeepSpeed {subject.surface.version} never reads: it does nothing here"


def _meant(subject: Subject, unknown: Unknown) -> str:
    if not unknown.meant or is_comment(unknown):
        return ""
    first = unknown.meant[0]
    section, _, last = first.rpartition(".")
    place = f"in {section}" if section else "at the top"
    if unknown.sure:
        return f"; {first} is meant" if unknown.here else f"; it belongs {place}"
    if last == unknown.path.rpartition(".")[2] and (subject.written(first) or (len(unknown.meant) == 1 and section)):
        return f"; what counts stands {place}" if subject.written(first) else f"; {section} has a key of that name"
    return f"; there is {' and '.join(unknown.meant[:2])}"


def _mend(subject: Subject, unknown: Unknown) -> Fix:
    removal = Fix(f"remove {unknown.path.rpartition('.')[2]}", (Remove(unknown.path),), safe=False)
    return renaming(unknown) or lifting(subject, unknown) or removal


RULE = Rule(
    code="DSG102",
    name="unread-key",
    severity=Severity.WARNING,
    what="A key stands where this release reads nothing of that name.",
    why=(
        "Outside the strict sections DeepSpeed ignores what it does not know, without a word: a misspelt "
        "`zero_optimization` trains at stage 0, a misspelt `gradient_clipping` clips at 1.0, and a key one level too "
        "high or too low does nothing. A program of your own may read such a key; then suppress the rule there."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimisation": {"stage": 3}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 3}
}""",
    evidence=(
        "DeepSpeed 0.19.8 run with the key: it trains at stage 0",
        "https://github.com/deepspeedai/DeepSpeed/issues/653",
    ),
    check=check,
    general=True,
)
