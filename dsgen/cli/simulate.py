"""`dsgen simulate`: the real engine at true size on a virtual GPU, and what it holds when."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from dsgen.cli import FOUND, OK
from dsgen.cli.lint_options import TARGETS
from dsgen.cli.options import gpus_from, idle, scenario_from, scenario_options
from dsgen.cli.simulated_config import from_file, network_from
from dsgen.cli.terminal import emit
from dsgen.documents.writing import ensure_apart, ensure_writable, write_atomically

if TYPE_CHECKING:
    from dsgen.simulating import Options, Request, Simulation

__all__ = ["command"]

_TICK_SECONDS = 1.0
_OPENED = {"trace": "; open it in ui.perfetto.dev or chrome://tracing", "html": "; open it in a browser"}
_PAINTED = {"text": "simulation", "json": "json"}  # --format -> kind of report; the others are pictures


@click.command("simulate")
@click.argument("scenario", required=False)
@click.option("--config", metavar="FILE", help="A DeepSpeed config to take as it is, instead of a planned one.")
@scenario_options
@click.option("--world-size", type=click.IntRange(1), metavar="N", help="GPUs in all, as --gpus.")
@click.option("--gpus-per-node", type=click.IntRange(1), metavar="N", help="With --config (default: the hardware's).")
@click.option(
    "--target", type=click.Choice(TARGETS), help="With --config: the program that loads it (default: guessed)."
)
@click.option("--rank", type=click.IntRange(0), default=0, show_default=True, metavar="R", help="The rank to simulate.")
@click.option("--steps", type=click.IntRange(1), default=2, show_default=True, metavar="N", help="Optimizer steps.")
@click.option("--dtype", metavar="bf16|fp16|fp32", help="Of the weights before initialize (default: the config's).")
@click.option(
    "--alloc-conf",
    default="",
    metavar="SETTINGS",
    help="PYTORCH_CUDA_ALLOC_CONF of the training (default: as planned).",
)
@click.option("--empty-cache-steps", type=click.IntRange(1), metavar="N", help="The Trainer's torch_empty_cache_steps.")
@click.option(
    "--eval-batch", "evaluation", type=click.IntRange(1), metavar="N", help="Evaluate N sequences after every step."
)
@click.option(
    "--eval-keep", "kept", type=click.IntRange(1), metavar="N", help="Batches of it whose logits stay on the GPU."
)
@click.option("--checkpoint", is_flag=True, help="Save a checkpoint behind the last step, and resume from it.")
@click.option(
    "--force", is_flag=True, help="Run with versions that were not tested, and what DeepSpeed is known to refuse."
)
@click.option("--python", metavar="PROGRAM", help="Interpreter that has torch and deepspeed (default: this one).")
@click.option("--timeout", type=click.FloatRange(min=1), default=1800.0, show_default=True, metavar="SECONDS")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "svg", "html", "trace"]),
    default="text",
    show_default=True,
    help="trace: what runs when, for chrome://tracing or ui.perfetto.dev.",
)
@click.option(
    "--what-if",
    "what_if",
    metavar="network=NAME,...",
    help="Also tell the step's time on these networks; the engine runs once.",
)
@click.option(
    "--all", "every", is_flag=True, help="Text: forty tensors instead of eight, and every step's collectives."
)
@click.option("-o", "--output", metavar="FILE", help="Write there instead of to stdout.")
def command(
    scenario: str | None,
    config: str | None,
    python: str | None,
    timeout: float,
    form: str,
    what_if: str | None,
    every: bool,
    output: str | None,
    **options: Any,
) -> int:
    """Run the real DeepSpeed at full size on a virtual GPU and show the memory of every phase, and the step's time.

    SCENARIO is a file, or the options describe one; it is planned and rendered as by `dsgen render`. --config takes a
    DeepSpeed config as it is, with --model (a profile, or a Hugging Face config.json) and --world-size. Besides none
    and full, --checkpointing takes deepspeed here, and --attention takes math. deepspeed.initialize, forward, backward
    and step of the real model class run in one process without a GPU and without weights. Needs
    `pip install "dsgen[simulate]"`. Exit code 1 means that it does not fit.
    """
    from dsgen import simulating
    from dsgen.memory import Verdict
    from dsgen.shapes.errors import mistake

    output = None if output == "-" else output
    if output is not None:
        ensure_apart(output, (scenario, config, *options.values()))
    others = _networks(what_if, options)
    request = (
        from_file(config, scenario, _options(options), options)
        if config is not None
        else _from_scenario(scenario, options)
    )
    if output is not None:
        ensure_writable(output)
    if every and form != "text":
        idle("--all", f"it is for --format text, not {form}")
    if form == "trace" and request.rates is None:
        raise mistake(
            "--format trace shows times, and what the GPUs or the nodes' network are is not said",
            todo="Say it: --hw a100-40g --network ib-hdr-200g.",
            code="missing",
        )
    if others and form not in _PAINTED:
        idle("--what-if", f"it is for --format text and json, not {form}")
    elif others:
        _check_what_if(request, others)
    with _waiting(f"simulating {request.title}"):
        simulation = simulating.simulate(request, python=python, timeout_seconds=timeout)
    shown = _shown(simulation, form, every, others)
    if output is None and form in _PAINTED:
        emit(shown, _PAINTED[form])
    elif output is None:
        click.echo(shown, nl=False)
    else:
        write_atomically(output, shown)
        click.echo(f"wrote {output}{_OPENED.get(form, '')}", err=True)
    verdict = simulation.estimate.verdict if simulation.limits else Verdict.FITS
    if verdict is Verdict.UNCERTAIN:
        click.echo("warning: it is not certain to fit: see the interval of each place", err=True)
    return FOUND if verdict is Verdict.DOES_NOT_FIT else OK


def _shown(simulation: Simulation, form: str, every: bool, others: dict[str, Any]) -> str:
    import json
    import shutil

    from dsgen import simulating
    from dsgen.report import on_networks
    from dsgen.report import simulation as report

    if form in _PAINTED:
        timed = {name: simulating.on_network(simulation, network) for name, network in others.items()}
        if form == "json":
            told = {**report.data(simulation), **({"what_if": on_networks.data(timed)} if timed else {})}
            return json.dumps(told, indent=2) + "\n"
        width = shutil.get_terminal_size().columns
        compared = f"\n{on_networks.text(simulation, timed, width)}" if timed else ""
        return report.text(simulation, width, every) + compared
    if form == "trace" and simulation.step_time is not None:
        from dsgen.report.trace import trace

        return trace(simulation.step_time, simulation.title)
    from dsgen.report import simulation_page, timeline

    return timeline.svg(simulation) if form == "svg" else simulation_page.html(simulation)


def _networks(said: str | None, options: dict[str, Any]) -> dict[str, Any]:
    """The networks that --what-if names, read before anything runs."""
    from dsgen.shapes.errors import mistake
    from dsgen.shapes.layers import show
    from dsgen.shapes.near_misses import alike, offer

    if said is None:
        return {}
    field, _, names = said.partition("=")
    listed = [name.strip() for name in names.split(",") if name.strip()]
    if field.strip() != "network" or not listed:
        meant = alike(field.strip(), ("network",))
        such = f"network={','.join(listed) or 'ethernet-25g,ib-ndr-400g'}"
        raise mistake(
            f"--what-if is {show(said)}",
            must="it must name networks: memory and kernels of another GPU are another simulation",
            todo=offer(
                (such,) if meant else (),
                "Such as network=ethernet-25g,ib-ndr-400g; of other fields dsgen plan --what-if tells.",
            ),
            code="bad-value",
        )
    return {name: network_from({**options, "network": name}) for name in listed}


def _check_what_if(request: Request, others: dict[str, Any]) -> None:
    """Say before the run where another network tells nothing."""
    from dsgen import simulating
    from dsgen.shapes.errors import mistake

    for network in others.values():
        simulating.check_network(network, request.world_size, request.ranks_per_node)
    if request.rates is None:
        raise mistake(
            "--what-if tells times, and what the GPUs or the nodes' network are is not said",
            todo="Say it: --hw a100-40g --network ib-hdr-200g.",
            code="missing",
        )


def _options(options: dict[str, Any], **more: Any) -> Options:
    """The options that are the run's own, taken out of all."""
    from dsgen.simulating import Options

    names = ("rank", "steps", "dtype", "alloc_conf", "empty_cache_steps", "evaluation", "kept", "checkpoint", "force")
    return Options(**{name: options.pop(name) for name in names}, **more)


def _from_scenario(file: str | None, options: dict[str, Any]) -> Request:
    """A planned and rendered config; what only the engine knows is planned as its nearest."""
    from dsgen import simulating
    from dsgen.asking.plan_questions.weighing import plan_all_the_same
    from dsgen.jobs.assembly import assemble
    from dsgen.jobs.scenarios import is_scenario, layers
    from dsgen.rendering import render
    from dsgen.shapes.errors import mistake

    if file is not None and not is_scenario(file):
        raise mistake(
            f"{file} is no scenario", todo=f"To simulate a DeepSpeed config: --config {file}.", code="unreadable"
        )
    for name in ("gpus_per_node", "target"):
        if options.pop(name) is not None:
            raise mistake(
                f"--{name.replace('_', '-')} is for --config",
                must="a scenario's hardware says it"
                if name == "gpus_per_node"
                else "a scenario is loaded by DeepSpeed",
                code="contradiction",
            )
    options = gpus_from(options, options.pop("world_size"))
    own: dict[str, Any] = {}
    if options["checkpointing"] == "deepspeed":
        own["checkpointing"], options["checkpointing"] = "deepspeed", "full"
    if options["attention"] == "math":
        own["attention"], options["attention"] = "math", "eager"
    run = _options(options, **own)
    said = scenario_from(file, options)
    planned, short = plan_all_the_same(assemble(layers(said), said.deepspeed))
    if short is not None:
        todo = f"\n  {short.todo}" if short.todo else ""
        click.echo(f"warning: {short.what}; simulated all the same{todo}", err=True)
    return simulating.from_rendered(render(planned), run)


@contextlib.contextmanager
def _waiting(words: str) -> Iterator[None]:
    """A line on stderr that counts the seconds, where somebody looks; it is gone in the end."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    over, began = threading.Event(), time.monotonic()

    def tick() -> None:
        while True:  # at once: a person sees what runs
            click.echo(f"\r{words[:60]} ... {time.monotonic() - began:.0f} s\033[K", err=True, nl=False)
            if over.wait(_TICK_SECONDS):
                break

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        click.echo("\r\033[K", err=True, nl=False)
