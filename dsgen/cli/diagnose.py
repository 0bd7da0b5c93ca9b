"""`dsgen diagnose`: the log of a failed or slow run to its cause and the next change, with the numbers of the job."""

from __future__ import annotations

from typing import Any

import click

from dsgen.cli import FOUND, OK
from dsgen.cli.options import arguments_option, gpus_from, idle, question_from, scenario_options, target_option
from dsgen.cli.terminal import emit, width

__all__ = ["command"]


@click.command("diagnose")
@click.argument("log")
@click.argument("scenario", required=False)
@click.option("--config", metavar="FILE", help="The DeepSpeed config that ran (JSON, HJSON, Accelerate's YAML).")
@arguments_option
@scenario_options
@click.option("--world-size", metavar="N", help="The same as --gpus.")
@target_option
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(
    log: str,
    scenario: str | None,
    config: str | None,
    arguments: str | None,
    world_size: str | None,
    target: str | None,
    form: str,
    **options: Any,
) -> int:
    """Say why a run failed or is slow, from its LOG: the phase, the cause, and the next change.

    LOG is what the run printed, of any size and of any number of ranks (DeepSpeed, torch, NCCL, transformers, Slurm),
    or - for stdin. With what ran, a SCENARIO or options as dsgen memory takes them, the numbers of the log are compared
    with the predicted ones, and each change says what it saves and costs for this job. Exit code 1 means that a cause
    was named, or that the run failed and nothing in the log says why; 0 that nothing wrong is known of.
    """
    import json

    from dsgen.diagnosing import blocks, diagnose
    from dsgen.report import diagnosis as report

    _refuse_scenario(log)
    said = any(one is not None for one in (scenario, config, arguments)) or _says(options, world_size)
    question = question_from(scenario, config, gpus_from(options, world_size), target, arguments) if said else None
    if target is not None and not said:
        idle("--target", "nothing is said of the job")
    answer = diagnose(blocks(log), question)
    if form == "json":
        emit(json.dumps(report.data(answer), indent=2), "json", nl=True)
    else:
        emit(report.text(answer, width()), "diagnosis")
    return OK if answer.code is None else FOUND


def _refuse_scenario(log: str) -> None:
    """Refuse a scenario in the place of the log: of it nothing wrong would be known."""
    from dsgen.jobs.scenarios import is_scenario
    from dsgen.shapes.errors import DsgenError, mistake

    try:
        if not is_scenario(log):
            return
    except DsgenError:  # not there, or no YAML: it is read as a log
        return
    raise mistake(
        "it is a scenario", must="the log comes first", where=log, todo=f"Such as dsgen diagnose train.log {log}."
    )


def _says(options: dict[str, Any], world_size: str | None) -> bool:
    """Whether an option says anything of the job."""
    return world_size is not None or any(value not in (None, (), False) for value in options.values())
