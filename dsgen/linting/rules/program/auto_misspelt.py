"""A value that is "auto" but for its letters' case, a space, or a slip of the hand."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.deepspeed.keys import say
from dsgen.linting.rules.autos import AUTO
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity
from dsgen.shapes.near_misses import alike

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """Every "Auto", and every "atuo", at a key that wants no free text."""
    for path, value in subject.leaves():
        if not isinstance(value, str) or value == AUTO or not _meant(value.strip().lower()):
            continue
        key = subject.surface.key(path, subject.config)
        if key is None or key.removed or not key.types or ("string" in key.types and (not key.enum or key.folded)):
            continue
        stops = key.strict or bool({"number", "integer", "array"} & set(key.types))
        fix = Fix('write "auto"', (Assign(path, AUTO),), safe=stops) if subject.target.fills(key.path) else None
        made = "DeepSpeed refuses it" if stops else "DeepSpeed does not check it"
        message = f'{path} is {say(value)}; only "auto", written so, is filled in, and {made}'
        yield Fault(path, message, fix, None if stops else Severity.WARNING, on="value")


def _meant(word: str) -> bool:
    """Whether a word is "auto", or so but for a letter more or less, or two that changed places."""
    return sorted(word) == sorted(AUTO) or bool(alike(word, (AUTO,)))


RULE = Rule(
    code="DSG902",
    name="auto-misspelt",
    severity=Severity.ERROR,
    what='A value says "Auto", "AUTO" or "atuo".',
    why=(
        'The Trainer, Accelerate and DeepSpeed compare with "auto" letter by letter. Anything else is a text: a strict '
        "section refuses it at the parse, and a number that is a text stops DeepSpeed where it computes with it."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": "Auto",
  "gradient_clipping": "auto",
  "zero_optimization": {"stage": 2}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": "auto",
  "gradient_clipping": "auto",
  "zero_optimization": {"stage": 2}
}""",
    evidence=(
        "transformers/integrations/deepspeed.py (5.23.0): fill_match",
        "deepspeed/runtime/config_utils.py (0.19.8)",
    ),
    check=check,
    given={"target": "hf-trainer"},
)
