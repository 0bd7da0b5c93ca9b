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
from dsgen.cli.terminal import emit
from dsgen.documents.writing import ensure_apart, ensure_writable, write_atomically
from dsgen.jobs.contradictions import ADAPTERS

if TYPE_CHECKING:
    from dsgen.linting.sources import Source
    from dsgen.simulating import Options, Request, Simulation

__all__ = ["command"]

_OPTION = {"hardware": "hw", "files": "file", "sets": "set"}  # parameter -> its option
# What a config of one's own leaves to say; the rest describes a scenario, which is planned.
_WITH_CONFIG = ("hardware", "model", "network", "gpus", "nodes", "seq_len", "target_len", "mean_len", "packing",
                "micro_batch", "accumulation", "precision", "checkpointing", "reentrant", "activation_offloading",
                "method",
                "lora_rank", "lora_targets", "lora_dropout", "lora_train_embeddings", "lora_fp32",
                "double_quantization", "kbit_fp32", "zero_init", "foreach", "attention", "chunked_loss", "launcher",
                "liger_kernels", "gpu_memory", "gpu_memory_used", "host_memory")  # fmt: skip
_AS_SAID = ("seq_len", "target_len", "mean_len", "packing", "activation_offloading", "method", "lora_rank",
            "lora_dropout", "lora_train_embeddings", "lora_fp32", "double_quantization", "kbit_fp32", "zero_init",
            "foreach", "attention", "chunked_loss")  # fmt: skip
_MEMORIES = ("gpu_memory", "gpu_memory_used", "host_memory")
_TICK_SECONDS = 1.0
_WHOLE = 3  # the stage of zero.Init
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
    request = _from_file(config, scenario, options) if config is not None else _from_scenario(scenario, options)
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
    return {name: _network({**options, "network": name}) for name in listed}


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

    names = ("rank", "steps", "dtype", "alloc_conf", "empty_cache_steps", "evaluation", "checkpoint", "force")
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


def _from_file(config: str, scenario: str | None, options: dict[str, Any]) -> Request:
    """A config of one's own: the options say what it does not."""
    import attrs

    from dsgen import simulating
    from dsgen.linting import config_reader
    from dsgen.shapes.errors import mistake
    from dsgen.shapes.profiles import Model

    run = _options(options)
    world_size, per_node, target = (options.pop(name) for name in ("world_size", "gpus_per_node", "target"))
    too_many = [name for name, value in options.items() if value not in (None, ()) and name not in _WITH_CONFIG]
    if scenario is not None or too_many:
        option = f"--{_OPTION.get(too_many[0], too_many[0].replace('_', '-'))}" if too_many else scenario
        raise mistake(
            f"--config takes a config as it is, and {option} describes a scenario",
            must="simulate takes one of the two",
            todo="Drop one of them.",
            code="contradiction",
        )
    fields = _fields(gpus_from(options, world_size))
    wished = {name: fields.get(name) for name in _WITH_CONFIG}
    if wished["method"] in (None, "full"):
        for name in ADAPTERS:
            if wished[name] is not None:
                idle(f"--{name.replace('_', '-')}", "without --method lora or qlora there are no adapters")
    if options["model"] is None:
        raise mistake(
            "--config needs a model", todo="Name one: --model 7b, or the path of its config.json.", code="missing"
        )
    source = config_reader.read(config, target=target)
    world = world_size or wished["gpus"] or source.world_size
    if world is None:
        raise mistake("--config needs the number of GPUs", todo="Say it: --world-size 64.", code="missing")
    if wished["nodes"] and isinstance(wished["nodes"], int) and isinstance(world, int):
        per_node = per_node or -(-world // wished["nodes"])
    if wished["zero_init"] is None and (told := _of_zero_init(source)):
        click.echo(f"warning: {told}", err=True)
    hardware = _hardware(options, wished)
    targets = wished["lora_targets"]
    said: dict[str, Any] = {name: wished[name] for name in _AS_SAID}
    request = simulating.from_config(
        dict(source.document.config),
        model=options["model"],
        world_size=world,
        gpus_per_node=per_node,
        hardware=hardware,
        network=_network(options),
        target=source.target,
        micro_batch=wished["micro_batch"],
        accumulation=wished["accumulation"],
        precision=wished["precision"] if wished["precision"] != "auto" else None,
        options=attrs.evolve(
            run,
            **said,
            checkpointing=wished["checkpointing"] if wished["checkpointing"] != "auto" else None,
            reentrant=bool(wished["reentrant"]),
            lora_targets=tuple(targets) if targets else None,
            liger_kernels=attrs.fields_dict(Model)["liger_kernels"].metadata["choices"][-1]
            if wished["liger_kernels"]
            else "",
        ),
        title=config,
    )
    return attrs.evolve(request, launcher=wished["launcher"] or request.launcher)


def _of_zero_init(source: Source) -> str | None:
    """What a person should know of the zero3_init_flag in a file: the engine runs with the newest Accelerate."""
    from dsgen.asking.memory_questions import under_zero_init
    from dsgen.deepspeed.keys import lookup
    from dsgen.linting.statements import ZERO_INIT
    from dsgen.shapes.profiles import Training

    whole = lookup(source.document.config, "zero_optimization.stage")[1] == _WHOLE
    return under_zero_init(Training(), source.beside.get(ZERO_INIT))[1] if whole else None


def _fields(options: dict[str, Any]) -> dict[str, Any]:
    """The options as values, as a scenario reads them."""
    return {name: setting.value for name, setting in scenario_from(None, dict(options)).fields.items()}


def _hardware(options: dict[str, Any], wished: dict[str, Any]) -> Any:
    """What there is, where the options say it."""
    import attrs

    from dsgen import simulating
    from dsgen.jobs.scenarios import layers

    if options["hardware"] is None and wished["gpu_memory"] is None:
        return None
    said = scenario_from(None, dict(options))
    kept = {name: setting for name, setting in said.fields.items() if name in _MEMORIES}
    alone = attrs.evolve(said, profiles={"hardware": said.profiles["hardware"]}, fields=kept, files=(), sets=())
    return simulating.hardware_of(layers(alone))


def _network(options: dict[str, Any]) -> Any:
    """What joins the nodes, where an option says it."""
    import attrs

    from dsgen import simulating
    from dsgen.jobs.scenarios import layers

    if options["network"] is None:
        return None
    said = scenario_from(None, dict(options))
    alone = attrs.evolve(said, profiles={"network": said.profiles["network"]}, fields={}, files=(), sets=())
    return simulating.network_of(layers(alone))


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
