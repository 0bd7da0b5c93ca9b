"""What the lines of a job file for Slurm say of the variables that Slurm sets in the job."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dsgen.shapes.findings import Span

__all__ = ["slurm_variables"]

_LINE = re.compile(r"^#SBATCH[ \t]+(?P<name>--[a-z-]+|-[A-Z])[ \t=]*(?P<value>[^\s#]*)", re.MULTILINE)
_COUNT = re.compile(r"(?:[\w.-]+:)*(\d{1,6})")  # h100:8 and gpu:h100:8 end in how many
# Option of sbatch -> the variables that have its number in a job (man sbatch, OUTPUT ENVIRONMENT VARIABLES).
_VARIABLES = {
    **dict.fromkeys(("--nodes", "-N"), ("SLURM_NNODES", "SLURM_JOB_NUM_NODES")),
    **dict.fromkeys(("--gpus-per-node", "--gres"), ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE")),
    "--ntasks-per-node": ("SLURM_NTASKS_PER_NODE",),
    **dict.fromkeys(("--ntasks", "-n"), ("SLURM_NTASKS", "SLURM_NPROCS")),
}


def slurm_variables(text: str) -> dict[str, tuple[str, Span]]:
    """Variable -> its value and where that stands; of an option that stands twice, or that says no one number, none.

    `sbatch` with options of its own says otherwise: those come before the lines.
    """
    said: dict[str, list[tuple[str, Span]]] = {}
    for variable, value, span in _said(text):
        said.setdefault(variable, []).append((value, span))
    return {variable: values[0] for variable, values in said.items() if len(values) == 1 and values[0][0]}


def _said(text: str) -> Iterator[tuple[str, str, Span]]:
    for line in _LINE.finditer(text):
        count = _COUNT.fullmatch(line["value"])
        generic = line["name"] == "--gres" and not line["value"].startswith("gpu")
        start = line.start("value") + (count.start(1) if count else 0)
        for variable in () if generic else _VARIABLES.get(line["name"], ()):
            yield variable, count[1] if count else "", Span(start, line.end("value"))
