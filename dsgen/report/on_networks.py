"""A simulated step on several networks, as text and as data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dsgen.report import step_time
from dsgen.report.tables import table
from dsgen.simulating import Simulation

__all__ = ["data", "text"]


def text(simulation: Simulation, others: Mapping[str, Simulation], width: int) -> str:
    """The step as it is and with each other network, with a final newline.

    Args:
        simulation: As it was simulated.
        others: Name of a network -> the simulation with it.
        width: Columns of the terminal.
    """
    lines = ["what if the network were another: the same step, timed again"]
    rows = list(_rows({"as simulated": simulation, **others}))
    heads = ["network", "step", "change", "tokens/s/GPU", "MFU", "communication"]
    return "\n".join([*lines, *table(rows, width, heads).splitlines()]) + "\n"


def _rows(simulations: Mapping[str, Simulation]) -> Iterator[list[str]]:
    base: float | None = None
    for name, one in simulations.items():
        told = step_time.data(one)
        if told is None:
            continue
        seconds = told["step_seconds"]
        base = base or seconds
        exposed = told["groups"].get("communication", 0.0)
        yield [
            name,
            f"{seconds:.3g} s",
            f"{seconds / base - 1:+.1%}" if one is not next(iter(simulations.values())) else "",
            f"{told['tokens_per_second_per_gpu']:,.0f}",
            f"{told['mfu']:.1%}",
            f"{exposed / seconds:.1%} exposed",
        ]


def data(others: Mapping[str, Simulation]) -> list[dict[str, Any]]:
    """The same as plain JSON types: as `time`, by network."""
    return [{"network": name, "time": step_time.data(one)} for name, one in others.items()]
