"""`dsgen prove`: real ranks start the config, step, save and load, and what they observed is checked."""

from __future__ import annotations

from typing import Any

import click

from dsgen.cli import FOUND, OK
from dsgen.cli.options import scenario_from, scenario_options
from dsgen.cli.terminal import emit

__all__ = ["command"]

_OPTION = {"hardware": "hw", "files": "file", "sets": "set"}  # parameter -> its option


@click.command("prove")
@click.argument("file", required=False)
@scenario_options
@click.option(
    "--ranks", type=click.IntRange(1), metavar="N", help="Processes to start (default: 2, or the AutoTP degree)."
)
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
@click.option("--steps", type=click.IntRange(1), default=3, show_default=True, metavar="N", help="Optimizer steps.")
@click.option("--timeout", type=click.FloatRange(min=1), default=600.0, show_default=True, metavar="SECONDS")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(
    file: str | None, ranks: int | None, device: str, steps: int, timeout: float, form: str, **options: Any
) -> int:
    """Start a real deepspeed.initialize with a config and check what it observed.

    FILE is a DeepSpeed config or a scenario; without it the options name one. A tiny model takes three optimizer
    steps on 2 ranks, and a checkpoint is saved and loaded. Only batch sizes are rescaled to the ranks. Needs
    `pip install "dsgen[proof]"`. Exit code 1 means that the proof failed.
    """
    import json

    from dsgen.asking.handovers import provable
    from dsgen.jobs.assembly import assemble
    from dsgen.jobs.scenarios import is_scenario, layers
    from dsgen.planning.planner import plan
    from dsgen.proving import prover
    from dsgen.rendering import render
    from dsgen.report import proof as report
    from dsgen.shapes.errors import mistake

    if file is not None and not is_scenario(file):
        said = [name for name, value in options.items() if value not in (None, ())]
        if said:
            option = _OPTION.get(said[0], said[0].replace("_", "-"))
            raise mistake(
                f"{file} is a DeepSpeed config, and --{option} describes a scenario",
                must="prove takes one of the two",
                todo="Drop the options, or name a scenario file.",
                code="contradiction",
            )
        config = provable(file)
    else:
        scenario = scenario_from(file, options)
        config = render(plan(assemble(layers(scenario), scenario.deepspeed))).to_dict()
    proof = prover.prove(config, ranks=ranks, device=device, steps=steps, timeout_seconds=timeout)
    if form == "text":
        emit(report.text(proof), "proof", nl=True)
    else:
        emit(json.dumps(proof.to_dict(), indent=2), "json", nl=True)
    return OK if proof.outcome == prover.PROVED else FOUND
