"""`dsgen memory`: what a strategy or a config takes, in every phase and place, whether it fits, and what would."""

from __future__ import annotations

from typing import Any

import click

from dsgen.cli import FOUND, OK
from dsgen.cli.options import arguments_option, gpus_from, question_from, scenario_options, target_option
from dsgen.cli.terminal import emit, width

__all__ = ["command"]


@click.command("memory")
@click.argument("scenario", required=False)
@click.option("--config", metavar="FILE", help="A DeepSpeed config (JSON, HJSON, Accelerate's YAML), taken as it is.")
@arguments_option
@scenario_options
@click.option("--world-size", metavar="N", help="The same as --gpus.")
@target_option
@click.option(
    "--observed",
    metavar="KIND=SIZE",
    multiple=True,
    help="What a run of it took, to compare: allocated, reserved, nvidia-smi, or host of a node's RAM; repeatable.",
)
@click.option(
    "--eval-batch",
    "evaluated",
    type=click.IntRange(0),
    metavar="N",
    help="Sequences of an evaluation on each GPU; 0: there is none (default: as a training file says, or 8).",
)
@click.option(
    "--eval-keep",
    "kept",
    type=click.IntRange(1),
    metavar="N",
    help="Batches of it whose logits stay on the GPU, as the Trainer keeps them for compute_metrics.",
)
@click.option(
    "--generate",
    "generated",
    type=click.IntRange(1),
    metavar="TOKENS",
    help="Prompt and answer of each of its sequences, where it generates (predict_with_generate).",
)
@click.option("--all", "every", is_flag=True, help="Every stage and offload with and without checkpointing.")
@click.option("--format", "form", type=click.Choice(["text", "json", "html"]), default="text", show_default=True)
def command(
    scenario: str | None,
    config: str | None,
    arguments: str | None,
    world_size: str | None,
    target: str | None,
    observed: tuple[str, ...],
    evaluated: int | None,
    kept: int | None,
    generated: int | None,
    every: bool,
    form: str,
    **options: Any,
) -> int:
    """Say how much memory training takes: GPU, host RAM and NVMe, in every phase, and whether it fits.

    What the options, the SCENARIO or the config say is taken exactly, whether it fits or not; what nobody says is
    chosen as dsgen plan would, and named. A config needs --hw (or --gpu-memory) and --model beside it; options win
    over it. Exit code 1 means that training does not fit; where that is not certain, or an evaluation, a save or a
    resume does not fit beside it, a warning says so.
    """
    import json

    from dsgen.asking import memory_questions
    from dsgen.memory import Verdict
    from dsgen.memory.later import lacking
    from dsgen.report import memory as report

    readings = memory_questions.observed(observed)
    asked = question_from(scenario, config, gpus_from(options, world_size), target, arguments)
    for fact, number, option in (
        (memory_questions.EVALUATED, evaluated, "--eval-batch"),
        (memory_questions.KEPT, kept, "--eval-keep"),
        (memory_questions.GENERATED, generated, "--generate"),
    ):
        asked = asked if number is None else asked.saying(fact, number, option)
    answered = memory_questions.answer(asked, every, readings)
    if form == "json":
        emit(json.dumps(report.data(answered), indent=2), "json", nl=True)
    elif form == "html":
        from dsgen.report import memory_page

        emit(memory_page.html(answered), form)
    else:
        emit(report.text(answered, width()), "memory")
    if answered.verdict is not Verdict.DOES_NOT_FIT:
        for words in lacking(answered.later):
            click.echo(f"warning: {words}", err=True)
    if answered.verdict is Verdict.UNCERTAIN:
        click.echo("warning: it is not certain to fit: see the interval of each place", err=True)
    return FOUND if answered.verdict is Verdict.DOES_NOT_FIT else OK
