"""`dsgen render --check`: what is committed against what is rendered, for one scenario or a folder of them."""

from __future__ import annotations

from typing import Any

import click

from dsgen.cli import FOUND, OK
from dsgen.cli.terminal import emit
from dsgen.shapes.errors import mistake

__all__ = ["check_committed"]


def check_committed(
    scenario: str | None, config: str | None, quiet: bool, target: str | None, resolve: bool, options: dict[str, Any]
) -> int:
    """Check what is committed and print what is not as it must be.

    Args:
        scenario: A scenario, or a folder of them.
        config: The committed config of a single scenario; None for the one that belongs to it.
        quiet: Only what is wrong is printed.
        target, resolve: The framework that is given the config; None and False for what the settings say.
        options: The scenario's options, of which none may be given: what is committed is rendered from the file alone.

    Raises:
        DsgenError: No scenario, other options beside it, or a mistake in what is checked.
    """
    from dsgen import checking
    from dsgen.report import checks

    if scenario is None:
        raise mistake("--check names no scenario", must="it takes a scenario file, or a folder of them", code="missing")
    said = [name for name, value in options.items() if value not in (None, (), False)]
    if said:
        raise mistake(
            f"--check and --{_OPTION.get(said[0], said[0].replace('_', '-'))} exclude each other",
            must="what is committed is rendered from the file alone",
            todo="Write it into the scenario.",
            code="contradiction",
        )
    given = None if config == "-" else config
    if given is None:
        pairs = checking.pairs(scenario, target, resolve)
    else:
        pairs = (checking.pair(scenario, given, target, resolve),)
    answers = []
    for pair in pairs:
        answers.append(checking.check(pair))
        if not (quiet and answers[-1].ok):
            emit(checks.text(answers[-1]), "checks")
    if len(answers) > 1:
        click.echo(checks.summary(answers), nl=False)
    return OK if all(answer.ok for answer in answers) else FOUND


_OPTION = {"hardware": "hw", "files": "file", "sets": "set"}  # parameter -> its option
