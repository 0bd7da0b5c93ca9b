"""`dsgen plan`: the choice, its rivals, the rejections, and where the memory goes; and the questions around it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dsgen.cli import FOUND, OK
from dsgen.cli.options import (
    arguments_option,
    idle,
    job_from,
    question_from,
    scenario_from,
    scenario_options,
    target_option,
)
from dsgen.cli.terminal import emit, width
from dsgen.shapes.errors import mistake

__all__ = ["command"]

_CONFIG = "A DeepSpeed config: its speed as it is, and what would make it faster."
_COMPARE = "Strategies side by side, such as zero3 zero1,tp=4; words: zero0 to zero3, tp=, offload=, param=, mb=, \
accum=, hpz=, checkpointing, no-checkpointing."

_WHAT_IF = "The best plan for each value of a field, such as network=ethernet-25g,ib-hdr-200g; and the break-even."

_TOKENS = "Tokens to train on, such as 300B: how long it takes, GPU-hours, and the price if the hardware has one."
_DEADLINE = "The time there is for them, or for --total-steps, such as 7d: whether it is met; with --gpus auto the \
fewest GPUs that meet it."
_AUTO = "auto"
_DRAWN = ("svg", "html")


@click.command("plan")
@click.argument("scenario", nargs=-1, metavar="[SCENARIO]")
@click.option("--config", metavar="FILE", help=_CONFIG)
@arguments_option
@click.option("--compare", multiple=True, metavar="STRATEGY...", help=_COMPARE)
@click.option("--what-if", "what_ifs", metavar="FIELD=VALUE,...", multiple=True, help=_WHAT_IF)
@click.option("--tokens", metavar="N", help=_TOKENS)
@click.option("--deadline", metavar="TIME", help=_DEADLINE)
@scenario_options
@click.option("--format", "form", type=click.Choice(["text", "json", "svg", "html"]), default="text", show_default=True)
@target_option
@click.option("--all", "every", is_flag=True, help="Show every rejection, not only those that a pin did not exclude.")
def command(
    scenario: tuple[str, ...],
    config: str | None,
    arguments: str | None,
    compare: tuple[str, ...],
    what_ifs: tuple[str, ...],
    tokens: str | None,
    deadline: str | None,
    form: str,
    target: str | None,
    every: bool,
    **options: Any,
) -> int:
    """Show the chosen strategy, its rivals and what was rejected, with numbers.

    With --config the speed and memory of a DeepSpeed config as it is, and each change that would make it at least 2 %
    faster and surely fits, with its number. With --compare named strategies side by side: time by parts, memory and
    verdict. With --what-if the best plan for each value of any field, and where the winner changes. With --gpus auto
    --tokens 300B --deadline 7d the fewest GPUs that meet it. --format svg draws memory against speed of all
    strategies, --format html a page with the speed over GPUs, network and length too. Exit code 1 means that the
    config, or each of the strategies, does not fit, or that the deadline is missed.
    """
    auto = options["gpus"] == _AUTO
    timed = "--tokens" if tokens is not None else "--deadline" if deadline is not None else ""
    if form in _DRAWN and (config or compare or auto or timed):
        asked = "--config" if config else "--compare" if compare else "--gpus auto" if auto else timed
        raise mistake(f"--format {form} and {asked}", must="a plan and --what-if are drawn", code="contradiction",
                      todo="Take --format text or json.")  # fmt: skip
    if len(what_ifs) > 1:
        raise mistake(f"--what-if is said {len(what_ifs)} times", must="one field has other values at a time",
                      code="contradiction", todo=f"Ask each by itself: --what-if {what_ifs[0]}.")  # fmt: skip
    what_if = next(iter(what_ifs), None)
    _one_question(
        {
            "--config": config,
            "--compare": compare,
            "--what-if": what_if,
            "--gpus auto": auto or None,
            "--tokens": tokens,
        }
    )
    file, others = _told_apart(scenario, bool(compare))
    tokens, options = _tokens(tokens, options, file)
    if deadline is not None and (config or compare or what_if):
        other = "--config" if config else "--compare" if compare else "--what-if"
        raise mistake(f"--deadline and {other}", must="a deadline is for a plan that trains so many tokens",
                      todo=f"Drop {other} or --deadline.", code="contradiction")  # fmt: skip
    if every and (config or compare or what_if or auto):
        idle("--all", "it shows the rejections of a plan alone")
    if config is not None:
        return _speedups(file, config, arguments, form, target, options)
    options = {**options, "arguments": arguments}
    if compare:
        return _contest(file, (*compare, *others), form, target, options)
    if what_if is not None:
        return _what_if(file, what_if, form, target, options)
    if auto:
        return _budget(file, tokens, deadline, form, target, options)
    if tokens is not None or deadline is not None:
        return _training_time(file, tokens, deadline, form, target, every, options)
    return _plan(file, form, target, every, options)


def _one_question(asked: dict[str, Any]) -> None:
    """Refuse two questions at once; tokens are a part of the one about GPUs."""
    said = [option for option, value in asked.items() if value not in (None, ())]
    if len(said) > 1 and said != ["--gpus auto", "--tokens"]:
        raise mistake(
            f"{' and '.join(said)} are two questions",
            must="one is answered at a time",
            todo=f"Drop {' or '.join(said)}.",
            code="contradiction",
        )


def _tokens(tokens: str | None, options: dict[str, Any], file: str | None) -> tuple[str | None, dict[str, Any]]:
    """The tokens to train on, and the options with them: --total-tokens says the same, for the learning rate."""
    from dsgen.asking.plan_questions.amounts import tokens_of
    from dsgen.jobs.scenarios import read

    if tokens is None:
        return None, options
    total = options["total_tokens"]
    said = read(file).fields.get("total_tokens") if file is not None else None
    written = None if said is None else str(said.value)
    if total is not None and tokens_of(total) != tokens_of(tokens):
        raise mistake(
            f"--tokens {tokens} and --total-tokens {total} mean the same", todo="Drop one.", code="contradiction"
        )
    if (steps := options["total_steps"]) is not None:
        raise mistake(
            f"--tokens {tokens} and --total-steps {steps}",
            must="both say how long training lasts, and one of them must",
            todo="Drop one of the two.",
            code="contradiction",
        )
    if total is None and (written is None or tokens_of(written) != tokens_of(tokens)):
        options = {**options, "total_tokens": str(tokens_of(tokens))}
    return tokens, options


def _told_apart(words: tuple[str, ...], compares: bool) -> tuple[str | None, tuple[str, ...]]:
    """The scenario file among the words behind the options, and the rest, which --compare takes as strategies."""
    files = [word for word in words if not compares or word.endswith((".yaml", ".yml")) or Path(word).is_file()]
    if len(files) > 1:
        raise mistake(
            f"{files[0]} and {files[1]} are two scenarios",
            must="a plan is for one",
            todo="Strategies side by side: --compare zero3 zero1,tp=4.",
            code="contradiction",
        )
    return (files[0] if files else None), tuple(word for word in words if word not in files)


def _plan(scenario: str | None, form: str, target: str | None, every: bool, options: dict[str, Any]) -> int:
    from dsgen.planning.planner import plan
    from dsgen.report import plan as report
    from dsgen.report.wrapping import fit

    planned = plan(job_from(scenario, {**options}, target))
    if form == "json":
        if every:
            idle("--all", "JSON holds every rejection")
        _print_data(report.data(planned, target))
    elif form == "svg":
        from dsgen.report import plan_charts

        emit(plan_charts.svg(planned), form)
    elif form == "html":
        from dsgen.asking.plan_questions.curves import curves
        from dsgen.report import plan_charts

        said = scenario_from(scenario, options)
        emit(plan_charts.html(planned, list(curves(said, planned.job)), target), form)
    else:
        emit(report.text(planned, every, width(), target), "plan")
        for warning in planned.warnings:
            click.echo(fit(f"warning: {warning}"), err=True)
    return OK


def _speedups(
    scenario: str | None, config: str, arguments: str | None, form: str, target: str | None, options: dict[str, Any]
) -> int:
    from dsgen.asking.plan_questions.speedups import speedups
    from dsgen.memory import Verdict
    from dsgen.report import speedups as report

    answer = speedups(question_from(scenario, config, options, target, arguments))
    if form == "json":
        _print_data(report.data(answer))
    else:
        emit(report.text(answer, width()), "speedups")
    return FOUND if answer.verdict is Verdict.DOES_NOT_FIT else OK


def _contest(
    scenario: str | None, names: tuple[str, ...], form: str, target: str | None, options: dict[str, Any]
) -> int:
    from dsgen.asking.plan_questions.contests import contest
    from dsgen.memory import Verdict
    from dsgen.report import contests as report
    from dsgen.report.wrapping import fit

    answer = contest(job_from(scenario, options, target), names)
    if form == "json":
        _print_data(report.data(answer))
    else:
        emit(report.text(answer, width()), "contest")
        for warning in answer.job.warnings:
            click.echo(fit(f"warning: {warning}"), err=True)
    return FOUND if answer.verdict is Verdict.DOES_NOT_FIT else OK


def _what_if(scenario: str | None, text: str, form: str, target: str | None, options: dict[str, Any]) -> int:
    from dsgen.asking.plan_questions import variations
    from dsgen.asking.plan_questions.what_ifs import what_if
    from dsgen.report import what_ifs as report
    from dsgen.report.wrapping import fit

    field, values = variations.read(text)
    answer = what_if(scenario_from(scenario, options), field, values, turning=form not in _DRAWN, target=target)
    if form == "json":
        _print_data(report.data(answer))
    elif form in _DRAWN:
        from dsgen.report import plan_charts

        emit(plan_charts.what_if_html(answer) if form == "html" else plan_charts.what_if_svg(answer), form)
    else:
        emit(report.text(answer, width()), "what-if")
        for warning in answer.warnings:
            click.echo(fit(f"warning: {warning}"), err=True)
    return OK


def _budget(
    scenario: str | None,
    tokens: str | None,
    deadline: str | None,
    form: str,
    target: str | None,
    options: dict[str, Any],
) -> int:
    from dsgen.asking.plan_questions.amounts import seconds_of, tokens_of
    from dsgen.asking.plan_questions.deadlines import fewest_gpus
    from dsgen.report import deadlines as report
    from dsgen.report.wrapping import fit

    if deadline is None:
        raise mistake("--gpus auto", must="it needs --tokens and --deadline", code="missing",
                      todo="Such as --gpus auto --tokens 300B --deadline 7d.")  # fmt: skip
    if options["nodes"] is not None:
        raise mistake("--nodes and --gpus auto", must="auto finds the nodes too", code="contradiction",
                      todo="Drop one of them.")  # fmt: skip
    said = scenario_from(scenario, {**options, "gpus": None})
    wanted = tokens_of(tokens) if tokens is not None else None
    answer = fewest_gpus(said, wanted, seconds_of(deadline), target)
    if form == "json":
        _print_data(report.data(answer))
    else:
        emit(report.text(answer, width()), "budget")
        for warning in answer.fleets[-1].plan.job.warnings:
            click.echo(fit(f"warning: {warning}"), err=True)
    return OK


def _training_time(
    scenario: str | None,
    tokens: str | None,
    deadline: str | None,
    form: str,
    target: str | None,
    every: bool,
    options: dict[str, Any],
) -> int:
    from dsgen.asking.plan_questions.amounts import seconds_of, tokens_of
    from dsgen.asking.plan_questions.deadlines import said_tokens, training_time, what_meets
    from dsgen.planning.planner import plan
    from dsgen.report import deadlines
    from dsgen.report import plan as report
    from dsgen.report.wrapping import fit

    wanted = tokens_of(tokens) if tokens is not None else None
    time = seconds_of(deadline) if deadline is not None else None
    planned = plan(job_from(scenario, {**options}, target))
    wanted = said_tokens(planned.job, planned.chosen.cost.tokens) if wanted is None else wanted
    if wanted is None:
        raise mistake("--deadline is said without --tokens", must="a deadline is for so many tokens, or steps of them",
                      todo="Such as --tokens 300B, or --total-steps 10000.", code="missing")  # fmt: skip
    fleet = training_time(planned, wanted)
    way = None
    if time is not None and fleet.seconds > time:
        way = what_meets(scenario_from(scenario, {**options, "gpus": None, "nodes": None}), wanted, time, target)
    if form == "json":
        if every:
            idle("--all", "JSON holds every rejection")
        _print_data({**report.data(planned, target), "training": deadlines.fleet_data(fleet, time, way)})
    else:
        lines = "\n".join(deadlines.fleet_lines(fleet, time, width(), way))
        emit(f"{report.text(planned, every, width(), target)}\n{lines}\n", "plan")
        for warning in planned.warnings:
            click.echo(fit(f"warning: {warning}"), err=True)
    return OK if way is None else FOUND


def _print_data(data: dict[str, Any]) -> None:
    import json

    emit(json.dumps(data, indent=2), "json", nl=True)
