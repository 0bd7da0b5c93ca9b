"""A key that DeepSpeed reads and that does nothing in this config."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.deepspeed.keys import Key
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import OPEN, Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """Every known key without effect; of a section without effect only the section."""
    skipped: tuple[str, ...] = ()
    for path, value in subject.leaves():
        key = subject.surface.key(path, subject.config)
        if key is None or key.removed or key.deprecated or path.startswith(("optimizer.", "scheduler.", *skipped)):
            continue
        hindered = subject.surface.hindrance(path, subject.config)
        if hindered is None:
            continue
        where, said = hindered
        skipped += (f"{path}.",)
        if _switched_off(subject, path):  # a section that is switched off as a whole, or whose switch is missing
            continue
        name = path.rpartition(".")[2]
        device = where if where.endswith(".device") else f"{path}.device"
        none = subject.raw(device) == "none"  # switched off in so many words, as `accelerate config` writes it
        quiet = value == "auto" or none or _says_nothing(key, value)
        fix = Fix(f"remove {name}", (Remove(path),))
        yield Fault(path, said.rstrip("."), fix, Severity.INFO if quiet else None, because=where)


def _switched_off(subject: Subject, path: str) -> bool:
    section = path.rpartition(".")[0]
    while section:
        switch = subject.surface.key(f"{section}.enabled")
        if switch is not None and switch.path != path:
            value = subject.value(f"{section}.enabled")
            if value is not OPEN and value is not True:
                return True
        section = section.rpartition(".")[0]
    return False


def _says_nothing(key: Key, value: object) -> bool:
    """Whether a key says what is so without it, or switches something off: boilerplate, which promises nothing."""
    return value == key.default or value is False


RULE = Rule(
    code="DSG105",
    name="key-has-no-effect",
    severity=Severity.WARNING,
    what="A key that DeepSpeed knows does nothing beside the others.",
    why=(
        "Most keys count only with others: `stage3_*` at stage 3, `offload_param` at stage 3, an offload's buffers "
        "on NVMe. DeepSpeed checks none of that and says nothing, so the file promises what the run does not do."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 2, "stage3_max_live_parameters": 100000000}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 3, "stage3_max_live_parameters": 100000000}
}""",
    evidence=("the readers of each key in DeepSpeed's source; schema/deepspeed/annotations.yaml lists the conditions",),
    check=check,
    general=True,
)
