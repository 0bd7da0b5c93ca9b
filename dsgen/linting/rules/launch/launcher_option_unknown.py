"""An option that the deepspeed launcher does not have."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.deepspeed.environment import launcher_options, slip
from dsgen.linting.launch_files import Given
from dsgen.linting.launch_files.commands import option_named
from dsgen.linting.rules.launch_settings import launch
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Move, Remove, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """Every option before the script that argparse refuses."""
    for given in launch(subject).options:
        option = option_named(given.name)
        path = f"deepspeed {given.name}"
        if option is None:
            yield _unknown(given, path)
        elif option.until is not None and subject.version > _numbers(option.until):
            message = f"the deepspeed launcher has no {given.name} since {option.until}, and stops before anything runs"
            yield Fault(path, message, Fix(f"remove {given.name}", (Remove(path),), safe=False), span=given.span)
        elif option.choices and given.value and "$" not in given.value and given.value not in option.choices:
            choices = " or ".join(option.choices)
            yield Fault(path, f"{given.name} is {given.value}; the deepspeed launcher takes {choices}", span=given.span)


def _unknown(given: Given, path: str) -> Fault:
    known = [name for name, option in launcher_options().items() if option.until is None and name.startswith("--")]
    same = [name for name in known if name.replace("_", "-") == given.name.replace("_", "-")]
    close = same or [name for name in (slip(given.name, known),) if name]
    fix = Fix(f"rename to {same[0]}", (Move(path, f"deepspeed {same[0]}"),)) if same else None
    message = f"the deepspeed launcher has no option {given.name} and stops before anything runs"
    return Fault(path, f"{message}; there is {close[0]}" if close else message, fix, span=given.span)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


RULE = Rule(
    code="DSG955",
    name="launcher-option-unknown",
    severity=Severity.ERROR,
    what="`deepspeed` is started with an option that it does not have.",
    why=(
        "The launcher reads its own options up to the name of the script and leaves at the first it does not "
        'know: "unrecognized arguments". Options of the script go behind its name. There is no --profile: the '
        "FLOPS profiler is a section of the config."
    ),
    example="""deepspeed --profile train.py --deepspeed ds_config.json""",
    instead="""deepspeed train.py --deepspeed ds_config.json""",
    evidence=(
        "deepspeed/launcher/runner.py (0.19.8), parse_args",
        "seen on 0.19.8: error: unrecognized arguments: --profile",
    ),
    check=check,
    reads="launch",
)
