"""`dsgen schema`: the JSON Schema of a DeepSpeed release, or of one of dsgen's own YAML files, for an editor."""

from __future__ import annotations

import click

from dsgen.cli import OK
from dsgen.cli.terminal import emit
from dsgen.documents.writing import write_atomically

__all__ = ["command"]


@click.command("schema")
@click.argument("name", required=False)
@click.option("--deepspeed", metavar="VERSION", help="DeepSpeed release of the config (default: the newest known).")
@click.option("--list", "listed", is_flag=True, help="List the schemas there are.")
@click.option("-o", "--output", metavar="FILE", help="Where to write it (default: stdout).")
def command(name: str | None, deepspeed: str | None, listed: bool, output: str | None) -> int:
    """Print a JSON Schema, by which an editor completes and checks a file.

    Without NAME it is that of a DeepSpeed config. NAME is a kind of dsgen's own YAML files: hardware, model, network,
    training, override (for -f) or scenario.
    """
    from dsgen.report import schemas
    from dsgen.shapes.errors import mistake

    output = None if output == "-" else output
    if listed and (name or deepspeed or output):
        raise mistake("--list is given with something else", must="--list stands alone", code="contradiction")
    if listed:
        click.echo(schemas.listing())
        return OK
    if name and deepspeed:
        raise mistake(
            f"{name} is a file of dsgen's own, and --deepspeed {deepspeed} asks for a DeepSpeed config",
            must="schema prints one of the two",
            todo="Drop one of them.",
            code="contradiction",
        )
    text = schemas.own(name) if name else schemas.deepspeed(deepspeed)
    if output is None:
        emit(text, "json")
    else:
        write_atomically(output, text)
        click.echo(f"wrote {output}", err=True)
    return OK
