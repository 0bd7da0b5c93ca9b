"""`dsgen diff`: two configs or two scenarios, key by key, with the reason of each difference."""

from __future__ import annotations

import click

from dsgen.cli import FOUND, OK
from dsgen.cli.terminal import emit

__all__ = ["command"]


@click.command("diff")
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(first: str, second: str, form: str) -> int:
    """Compare two configs or two scenarios, key by key, with reasons.

    A and B are DeepSpeed configs or scenario files, in any mixture. Of two scenarios it also says where their programs
    must do different things, which no key tells. Exit code 1 means that they differ.
    """
    import json

    from dsgen.asking import comparisons
    from dsgen.report import diff

    comparison = comparisons.compare(comparisons.side(first), comparisons.side(second))
    if form == "text":
        emit(diff.text(comparison), "diff")
    else:
        emit(json.dumps(diff.data(comparison), indent=2), "json", nl=True)
    return FOUND if comparison.differ else OK
