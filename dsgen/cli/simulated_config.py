"""The request that `dsgen simulate --config` makes of a DeepSpeed config and the options beside it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import click

from dsgen.cli.options import gpus_from, idle, scenario_from
from dsgen.jobs.contradictions import ADAPTERS

if TYPE_CHECKING:
    from dsgen.linting.sources import Source
    from dsgen.simulating import Options, Request

__all__ = ["from_file", "network_from"]

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
# Option -> the key that says it where the program has filled in what is open.
_RUNS = {"micro_batch": "train_micro_batch_size_per_gpu", "accumulation": "gradient_accumulation_steps"}
_WHOLE = 3  # the stage of zero.Init


def from_file(config: str, scenario: str | None, run: Options, options: dict[str, Any]) -> Request:
    """The request of a config of one's own: the options say what it does not.

    Args:
        config: Its file.
        scenario: A scenario, which none takes.
        run: How the engine is run.
        options: The other options of the command line.

    Raises:
        DsgenError: An option that describes a scenario, or what a config needs and nobody says.
    """
    import attrs

    from dsgen import simulating
    from dsgen.linting import config_reader
    from dsgen.shapes.errors import mistake
    from dsgen.shapes.profiles import Model

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
    run = attrs.evolve(
        run,
        **said,
        reentrant=bool(wished["reentrant"]),
        lora_targets=tuple(targets) if targets else None,
        liger_kernels=attrs.fields_dict(Model)["liger_kernels"].metadata["choices"][-1]
        if wished["liger_kernels"]
        else "",
    )
    make = functools.partial(
        simulating.from_config,
        dict(source.document.config),
        model=options["model"],
        world_size=world,
        gpus_per_node=per_node,
        hardware=hardware,
        network=network_from(options),
        target=source.target,
        micro_batch=wished["micro_batch"],
        accumulation=wished["accumulation"],
        precision=wished["precision"] if wished["precision"] != "auto" else None,
        title=config,
    )
    why: tuple[str, ...] = ()
    if wished["checkpointing"] in (None, "auto"):
        filled = make(options=run)  # with the batch that runs
        checkpointing, words = _checkpointing(source, filled, options)
        run, why = attrs.evolve(run, checkpointing=checkpointing), (words,)
    else:
        run = attrs.evolve(run, checkpointing=wished["checkpointing"])
    request = make(options=run)
    return attrs.evolve(request, launcher=wished["launcher"] or request.launcher, notes=(*why, *request.notes))


def _checkpointing(source: Source, request: Request, options: dict[str, Any]) -> tuple[str, str]:
    """Whether it checkpoints, as `dsgen memory` chooses for the same batch, and why."""
    from dsgen.asking.unsaid import UNKNOWN, checkpointing_of
    from dsgen.jobs.assembly import assemble
    from dsgen.jobs.scenarios import layers
    from dsgen.shapes.errors import DsgenError

    if request.hardware is None:
        return "none", UNKNOWN
    asked = {**options, "gpus": str(request.world_size)}
    if options["attention"] == "math":  # which only the engine knows
        asked["attention"] = "eager"
    for field, key in (
        ("micro_batch", "train_micro_batch_size_per_gpu"),
        ("accumulation", "gradient_accumulation_steps"),
    ):
        if asked[field] is None and isinstance(said := request.config.get(key), int):
            asked[field] = str(said)
    if request.gpus_per_node != request.hardware.gpus_per_node:
        asked["sets"] = (*asked["sets"], f"hardware.gpus_per_node={request.gpus_per_node}")
    try:
        scenario = scenario_from(None, asked)
        job = assemble(layers(scenario), scenario.deepspeed)
    except DsgenError:  # what a plan refuses may run all the same
        return "none", UNKNOWN
    return checkpointing_of(job, source)


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


def network_from(options: dict[str, Any]) -> Any:
    """What joins the nodes, where an option says it."""
    import attrs

    from dsgen import simulating
    from dsgen.jobs.scenarios import layers

    if options["network"] is None:
        return None
    said = scenario_from(None, dict(options))
    alone = attrs.evolve(said, profiles={"network": said.profiles["network"]}, fields={}, files=(), sets=())
    return simulating.network_of(layers(alone))
