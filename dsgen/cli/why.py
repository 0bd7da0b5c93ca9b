"""`dsgen why`: who decided a key, who lost, why, and what another value would do."""

from __future__ import annotations

from typing import Any

import click

from dsgen.cli.options import arguments_option, job_from, scenario_options, target_option
from dsgen.cli.terminal import emit

__all__ = ["command"]


@click.command("why")
@click.argument("key")
@click.argument("scenario", required=False)
@scenario_options
@arguments_option
@target_option
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(key: str, scenario: str | None, form: str, target: str | None, **options: Any) -> None:
    """Say who decided KEY, what lost, and why.

    KEY is a DeepSpeed key (zero_optimization.stage), a fact or wish (hardware.gpu_memory, training.lr, seq_len), or a
    section of these (network).
    """
    import json

    from dsgen.asking import questions
    from dsgen.report import why

    answer = questions.ask(job_from(scenario, options, target), key)
    if form == "text":
        emit(why.text(answer), "why")
    else:
        emit(json.dumps(why.data(answer), indent=2), "json", nl=True)
