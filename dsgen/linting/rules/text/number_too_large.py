"""A number that Python cannot hold."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.texts import every_value, noted
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """Every number that cannot be read."""
    yield from noted(subject, "number-too-large")
    for path, value in every_value(subject):
        if isinstance(value, int) and value > 0 and not _is_held(value):
            message = f"a number of {len(str(value))} digits is beyond 1.8e308, and deepspeed.initialize stops"
            yield Fault(path, message, on="value")


def _is_held(value: int) -> bool:
    """Whether a float holds it, as which DeepSpeed prints every whole number of its config."""
    try:
        float(value)
    except OverflowError:
        return False
    return True


RULE = Rule(
    code="DSG009",
    name="number-too-large",
    severity=Severity.ERROR,
    what="A number has more than 4,300 digits or is beyond 1.8e308.",
    why=(
        "Python refuses to turn so many digits into a whole number, and hjson dies with an OverflowError on a "
        "float that is infinite. A whole number beyond it is read, and `int too large to convert to float` stops "
        "deepspeed.initialize, which prints the config with every number as a float."
    ),
    example="""{"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 1e400}""",
    instead="""{"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 1.0}""",
    evidence=(
        "hjson 3.1.0: decoder.py, scantfnns",
        "deepspeed/runtime/config_utils.py (0.19.8): ScientificNotationEncoder",
        "Python: sys.int_info.default_max_str_digits",
    ),
    check=check,
    reads="text",
    shows=(
        "int too (?:large|big) to convert",
        "incompatible function arguments",
        "Overflow when unpacking",
        "Check batch",
    ),
)
