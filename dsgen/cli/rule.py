"""`dsgen rule`: what a rule means, or the table of all rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dsgen.cli.terminal import emit, width

if TYPE_CHECKING:
    from dsgen.linting.rules import Rule

__all__ = ["command"]


@click.command("rule")
@click.argument("name", required=False, metavar="[NAME|CODE]")
@click.option("--format", "form", type=click.Choice(["text", "json", "markdown"]), default="text", show_default=True)
def command(name: str | None, form: str) -> None:
    """Explain a rule of `dsgen lint`: what, why, an example, what to write instead, evidence, releases.

    Without a name it lists every rule.
    """
    import json

    from dsgen.linting.rules import RULES
    from dsgen.report import rules as report
    from dsgen.report.reference import rules as pages

    columns = width()
    if name is None:
        shown = {
            "text": lambda: report.listing(RULES, columns),
            "json": lambda: f"{json.dumps([report.data(rule) for rule in RULES], indent=2)}\n",
            "markdown": pages.index,
        }
    else:
        rule = _named(name)
        shown = {
            "text": lambda: report.page(rule, columns),
            "json": lambda: f"{json.dumps(report.data(rule), indent=2)}\n",
            "markdown": lambda: pages.page(rule),
        }
    emit(shown[form](), {"text": "table", "markdown": "page"}.get(form, form))


def _named(name: str) -> Rule:
    from dsgen.linting.rules import RULES
    from dsgen.linting.settings import BROKE
    from dsgen.shapes.errors import mistake, nearest
    from dsgen.shapes.near_misses import offer

    for rule in RULES:
        if name in (rule.name, rule.code) or name.upper() == rule.code:
            return rule
    if name.lower() in (BROKE[1], BROKE[0].lower()):
        raise mistake(
            f"{BROKE[1]} ({BROKE[0]}) has no page",
            must="it says that a rule of the linter itself broke on a config; the others still spoke",
            todo="Please report that config.",
            code="unknown-name",
        )
    close = nearest(name, [key for rule in RULES for key in (rule.name, rule.code)])
    raise mistake(f"no rule {name!r}", todo=offer(close, "`dsgen rule` lists them."), code="unknown-name")
