"""What the lines of a job file for Slurm say of the variables that Slurm sets in the job."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dsgen.shapes.findings import Span

__all__ = ["slurm_variables"]

_LINE = re.compile(r"^#SBATCH[ \t]+(?P<name>--[a-z-]+|-[A-Za-z])[ \t=]*(?P<value>[^\s#]*)", re.MULTILINE)
_COUNT = re.compile(r"(?:[\w.-]+:)*(\d{1,6})")  # h100:8 and gpu:h100:8 end in how many
_COMMAND = re.compile(r"^[ \t]*[^\s#]", re.MULTILINE)  # the first one, behind which sbatch reads no line
_AS_WRITTEN = "SLURM_GPUS_PER_NODE"  # which has the text of its option, be that h100:8
# Option of sbatch -> the variables that have its number in a job (man sbatch, OUTPUT ENVIRONMENT VARIABLES).
_VARIABLES = {
    **dict.fromkeys(("--nodes", "-N"), ("SLURM_NNODES", "SLURM_JOB_NUM_NODES")),
    "--gres": ("SLURM_GPUS_ON_NODE",),
    "--gpus-per-node": ("SLURM_GPUS_ON_NODE", _AS_WRITTEN),
    "--ntasks-per-node": ("SLURM_NTASKS_PER_NODE",),
    **dict.fromkeys(("--ntasks", "-n"), ("SLURM_NTASKS", "SLURM_NPROCS")),
}


def slurm_variables(text: str) -> dict[str, tuple[str, Span]]:
    """Variable -> its value and where that stands; of an option that stands twice, or that says no one number, none.

    `sbatch` with options of its own says otherwise: those come before the lines, and lines behind a command are none.
    """
    said: dict[str, list[tuple[str, Span]]] = {}
    for variable, value, span in _said(text):
        said.setdefault(variable, []).append((value, span))
    return {variable: values[0] for variable, values in said.items() if len(values) == 1 and values[0][0]}


def _said(text: str) -> Iterator[tuple[str, str, Span]]:
    command = _COMMAND.search(text)
    for line in _LINE.finditer(text, 0, command.start() if command else len(text)):
        count = _COUNT.fullmatch(line["value"])
        generic = line["name"] == "--gres" and line["value"].partition(":")[0] != "gpu"
        start = line.start("value") + (count.start(1) if count else 0)
        for variable in () if generic else _VARIABLES.get(line["name"], ()):
            plain = count is not None and (variable != _AS_WRITTEN or count[1] == line["value"])
            yield variable, count[1] if count and plain else "", Span(start, line.end("value"))
