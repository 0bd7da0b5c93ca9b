"""`dsgen adopt`: an existing config becomes a scenario that renders back to it."""

from __future__ import annotations

import json
from typing import Any

import click

from dsgen.cli.options import scenario_from, scenario_options, target_option
from dsgen.cli.terminal import emit, width

__all__ = ["command"]


@click.command("adopt")
@click.argument("config")
@click.option(
    "--args", "arguments", metavar="FILE", help="Arguments of the training program, in YAML, JSON or its Python."
)
@scenario_options
@target_option
@click.option("-o", "--output", metavar="FILE", help="Write the scenario to a file, whole or not at all.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="json: scenario, config and numbers on stdout.",
)
@click.option("--force", is_flag=True, help="Write over a file that is there.")
def command(
    config: str,
    arguments: str | None,
    target: str | None,
    output: str | None,
    form: str,
    force: bool,
    **options: Any,
) -> None:
    """Turn a DeepSpeed CONFIG that exists into a scenario that renders back to the same config.

    Say the job around it as dsgen plan takes it, --hw and --model at least; --args names the file of the
    TrainingArguments that fill in its "auto". CONFIG may be that file, if it names the config (deepspeed: FILE): then
    its model is taken too. Every key stays what it is: "auto", null, and what DeepSpeed ignores,
    too. A config that DeepSpeed refuses, or that does not fit, is not adopted. Then what it runs is shown, and what
    dsgen would do otherwise, with what that gains.
    """
    from dsgen.asking.adopting import adopt, of_naming_file, read_arguments
    from dsgen.documents.writing import ensure_apart, ensure_writable
    from dsgen.linting import config_reader
    from dsgen.report import adopted
    from dsgen.report.wrapping import fit

    output = None if output == "-" else output
    if output is not None:
        ensure_apart(output, (config, arguments, *options.values()))
        ensure_writable(output)
    source = config_reader.read(config)
    told = read_arguments(arguments) if arguments is not None else of_naming_file(source.of)
    if told is not None and options["model"] is None:
        options["model"] = told.model
    made = adopt(scenario_from(None, options), source, told, output or "scenario.yaml", target)
    if output is not None:
        made.write(output, force=force)
    if form == "json":
        emit(json.dumps(adopted.data(made, output), indent=2, ensure_ascii=False) + "\n", "json")
        return
    if output is None:
        click.echo(made.text, nl=False)
    emit(adopted.text(made, source.document.name, width(), output), "speedups", err=True)
    for warning in made.warnings:
        click.echo(fit(f"warning: {warning}"), err=True)
