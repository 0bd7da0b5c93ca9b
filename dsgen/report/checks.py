"""What the checks of a scenario say: a line each where they hold, else what differs and what to run."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence

from dsgen.checking import DEEPSPEED, Checked, Pair
from dsgen.linting.files import Linted
from dsgen.memory import MemoryEstimate, Place, Verdict
from dsgen.report import findings
from dsgen.report.findings import plural
from dsgen.shapes.units import gib

__all__ = ["fault_of_findings", "fault_of_memory", "fault_of_tear", "summary", "text"]

WIDTH = 80  # columns, the name of a check before them on the command line
_MOST_LINES = 60  # of a diff; enough to see what changed
_INDENT = "  "
_NAMES = 55  # columns of the names of files; more are counted
_NAME = 10  # columns of a check's name


def text(checked: Checked) -> str:
    """One scenario: its name, then a line or more for each check; with a final newline."""
    lines = [checked.pair.scenario]
    if checked.refused is not None:
        lines += [f"{_INDENT}{line}" for line in f"render  {checked.refused}".splitlines()]
    else:
        lines += _part(
            "config", fault_of_tear(checked.pair, checked.tear), f"{checked.pair.config} is what is rendered"
        )
        if checked.linted:
            names = ", ".join(file.document.name for file in checked.linted)
            names = names if len(names) <= _NAMES else plural(len(checked.linted), "file")
            lines += _part("lint", fault_of_findings(checked.linted, WIDTH - _NAME), f"no findings in {names}")
        if checked.memory is not None:
            cautions = (line for told in checked.cautions for line in textwrap.wrap(told, WIDTH - _NAME))
            held = "\n".join((_place("GPU", checked.memory.gpu), *cautions))
            lines += _part("memory", fault_of_memory(checked.pair, checked.memory), held)
    return "".join(f"{line}\n" for line in lines)


def summary(checked: Sequence[Checked]) -> str:
    """One line about all of them, with a final newline."""
    wrong = sum(not one.ok for one in checked)
    said = f"{wrong} of {plural(len(checked), 'scenario')} not as committed" if wrong else ""
    return f"{said or plural(len(checked), 'scenario') + ' as committed'}\n"


def fault_of_tear(pair: Pair, tear: Sequence[str]) -> str:
    """What differs from the committed config, and what to run; empty where nothing does."""
    if not tear:
        return ""
    scenario, config = (os.path.relpath(path, pair.folder) for path in (pair.scenario, pair.config))
    there = f"cd {pair.folder} && " if pair.folder != "." and pair.target != DEEPSPEED else ""
    if not there:
        scenario, config = pair.scenario, pair.config
    said = f"{there}dsgen render {scenario} -q -o {config}"
    if pair.config.endswith(".hjson"):
        said += " --format hjson"
    if pair.target != DEEPSPEED:
        said += f" --target {pair.target}" + (" --resolve" if pair.resolve else "")
    what = f"{pair.config} is not what is rendered from {pair.scenario}"
    shown = [
        *tear[:_MOST_LINES],
        *([f"... and {len(tear) - _MOST_LINES} more lines"] if len(tear) > _MOST_LINES else []),
    ]
    todo = ["To commit what is rendered:", f"{_INDENT}{said}", f"or{_INDENT}pytest --dsgen-update"]
    return "\n".join([what, *(f"{_INDENT}{line}" for line in shown), *todo])


def fault_of_findings(linted: Sequence[Linted], width: int = WIDTH) -> str:
    """Every finding of the files of a job, and what to run; empty where there is none."""
    shown = findings.text(linted, width)
    if not shown:
        return ""
    named = " ".join(file.document.name for file in linted)
    rule = next(finding.code for file in linted for finding in file.findings)
    return f"{shown}`dsgen rule {rule}` explains.\ndsgen lint {named} --diff shows the fixes."


def fault_of_memory(pair: Pair, memory: MemoryEstimate) -> str:
    """What does not fit, or may not; empty where everything fits."""
    if memory.verdict is Verdict.FITS:
        return ""
    places = {"GPU": memory.gpu, "host": memory.host, "NVMe": memory.nvme}
    lines = [_place(name, place) for name, place in places.items() if place.verdict is not Verdict.FITS]
    said = "does not fit" if memory.verdict is Verdict.DOES_NOT_FIT else "may not fit"
    todo = f"dsgen memory {pair.scenario} --config {pair.config}"
    return "\n".join([f"with {pair.config} it {said}", *lines, f"`{todo}` shows what would."])


def _place(name: str, place: Place) -> str:
    """One place's memory against its limit, in a few words."""
    interval = f"{gib(place.least_bytes)} to {gib(place.high_bytes)}"
    return f"{name} {gib(place.needed_bytes)} of {gib(place.limit_bytes)} GiB: {place.verdict.value} ({interval})"


def _part(name: str, fault: str, held: str) -> list[str]:
    """The lines of one check under its name."""
    lines = (fault or held).splitlines()
    before = " " * _NAME
    return [f"{_INDENT}{name}".ljust(_NAME) + lines[0], *(f"{before}{line}".rstrip() for line in lines[1:])]
