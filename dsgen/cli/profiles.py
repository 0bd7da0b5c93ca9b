"""`dsgen profiles`: list them, show one with its sources, or write the template of a new one."""

from __future__ import annotations

import click

from dsgen.catalog.sheets import KINDS
from dsgen.cli.terminal import emit, width
from dsgen.documents.writing import write_new_yaml

__all__ = ["command"]

_KIND = click.Choice(list(KINDS))


@click.group("profiles")
def command() -> None:
    """List, show and create profiles."""


@command.command("list")
@click.argument("kind", type=_KIND, required=False)
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def list_(kind: str | None, form: str) -> None:
    """List the profiles, of one KIND or of all, your own included."""
    import json

    from dsgen.report import profiles

    kinds = (kind,) if kind else tuple(KINDS)
    if form == "text":
        emit(profiles.listing(kinds, width()), "table")
    else:
        emit(json.dumps(profiles.listing_data(kinds), indent=2), "json", nl=True)


@command.command("show")
@click.argument("name")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def show_(name: str, form: str) -> None:
    """Show the facts of profile NAME, where each was written, and its source."""
    import json

    from dsgen import catalog
    from dsgen.report import profiles

    profile = catalog.profile(name)
    if form == "text":
        emit(profiles.sheet(profile, width()), "table")
    else:
        emit(json.dumps(profiles.sheet_data(profile), indent=2), "json", nl=True)


@command.command("new")
@click.argument("kind", type=_KIND)
@click.argument("name")
@click.option("-o", "--output", metavar="FILE", help="Where to write it (default: stdout).")
@click.option("--extends", metavar="NAME", help="A profile of the same kind to start from: only changes are written.")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
def new(kind: str, name: str, output: str | None, extends: str | None, force: bool) -> None:
    """Write a commented template of a new profile of KIND named NAME."""
    from dsgen import catalog
    from dsgen.report import templates

    if extends is not None:
        catalog.find(kind, extends)  # a name that does not exist is said now, not when the profile is used
    text = templates.template(kind, name, extends)
    if output is None or output == "-":
        click.echo(text, nl=False)
    else:
        write_new_yaml(output, lambda _: text, "a profile", force=force)
        click.echo(f"wrote {output}; fill it in, then use --{'hw' if kind == 'hardware' else kind} {output}", err=True)
