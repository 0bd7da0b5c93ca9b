"""A number that Python cannot hold."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.texts import noted
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """Every number that cannot be read."""
    yield from noted(subject, "number-too-large")


RULE = Rule(
    code="DSG009",
    name="number-too-large",
    severity=Severity.ERROR,
    what="A number has more than 4,300 digits or is beyond 1.8e308.",
    why=(
        "Python refuses to turn so many digits into a whole number, and hjson dies with an OverflowError on a "
        "float that is infinite."
    ),
    example="""{"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 1e400}""",
    instead="""{"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 1.0}""",
    evidence=(
        "hjson 3.1.0: decoder.py, scantfnns",
        "Python: sys.int_info.default_max_str_digits",
    ),
    check=check,
    reads="text",
)
