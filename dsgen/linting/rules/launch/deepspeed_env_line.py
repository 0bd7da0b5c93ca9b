"""A line of .deepspeed_env that the launcher cannot read."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity, Span

__all__ = ["RULE", "check"]

_NAME = ".deepspeed_env"  # the launcher's own file; DS_ENV_FILE may name another


def check(subject: Subject) -> Iterator[Fault]:
    """Lines without "=", and comments: the launcher knows neither."""
    document = subject.document
    if not document.name.endswith(_NAME):
        return
    start = 0
    for line in document.text.splitlines(keepends=True):
        written = line.strip()
        span = Span(start, start + max(1, len(line.rstrip())))
        if "=" not in line:
            what = "an empty line" if not written else "a line without ="
            yield Fault("", f"{what} stops the launcher with a ValueError: every line must be NAME=VALUE", span=span)
        elif written.startswith("#"):
            message = "the launcher knows no comments: it exports this line, and the rest of its command is lost"
            yield Fault("", message, span=span)
        start += len(line)


RULE = Rule(
    code="DSG958",
    name="deepspeed-env-line",
    severity=Severity.ERROR,
    what=".deepspeed_env has a line that is no NAME=VALUE.",
    why=(
        'When it starts several nodes, the launcher splits every line at the first "=" and hands the two parts '
        'on. It skips neither empty lines nor comments: "not enough values to unpack".'
    ),
    example="",  # the fault is in a file of one certain name
    instead="",
    evidence=('deepspeed/launcher/runner.py (0.19.8), main: var.split("=", maxsplit=1)',),
    check=check,
    reads="launch",
)
