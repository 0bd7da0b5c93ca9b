"""The options that say a scenario, shared by every command that needs one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dsgen.jobs.assembly import assemble
from dsgen.jobs.job import Job
from dsgen.jobs.scenarios import FIELDS, Scenario, ScenarioValue, layers, merge, parse_set, read
from dsgen.jobs.token_amounts import amount
from dsgen.shapes.errors import mistake
from dsgen.shapes.layers import TOLD, Origin

if TYPE_CHECKING:
    from dsgen.asking.memory_questions import Question
    from dsgen.linting.sources import Source

__all__ = [
    "arguments_option",
    "fields_from",
    "filled_by",
    "gpus_from",
    "idle",
    "job_from",
    "option_of",
    "question_from",
    "run_from",
    "say_left_behind",
    "scenario_from",
    "scenario_options",
    "target_option",
]

_WHOLE = 3  # the stage at which zero.Init makes a model
_NO_PROGRAM = "deepspeed"  # the target of a program of one's own, of which nothing is known

F = TypeVar("F", bound=Callable[..., Any])

_CHOICES = {
    "precision": ("auto", "bf16", "fp16", "fp32"),
    "offload": ("auto", "none", "cpu", "optimizer", "all", "nvme"),
    "checkpointing": ("auto", "none", "full"),
    "objective": ("balanced", "throughput", "memory"),
    "method": ("full", "lora", "qlora"),
    "optimizer": ("AdamW", "Adam", "Lion", "Adagrad", "SGD", "Muon", "AdamW8bit"),
    "attention": ("flash", "sdpa", "eager"),
    "launcher": ("torchrun", "deepspeed", "bound"),
    "kbit_fp32": ("always", "below-3", "never"),
    "loading": ("auto", "mapped", "copied", "fp32", "gpu", "gpu-fp32"),
}
_METAVARS = {
    "lora_targets": "NAME,...",
    "lora_dropout": "SHARE",
    "torch": "VERSION",
    "transformers": "VERSION",
    "liger": "VERSION",
    "gpu_memory": "SIZE",
    "gpu_memory_used": "SIZE",
    "host_memory": "SIZE",
}
_SWITCHES = (
    *("activation_offloading", "chunked_loss", "double_quantization", "expandable_segments", "foreach"),
    *("liger_kernels", "lora_fp32", "lora_train_embeddings", "packing", "padding_free", "reentrant", "zero_init"),
)
_LISTS = ("lora_targets",)
_TEXTS = ("liger", "torch", "transformers")  # 4.50 is no number
_FIELD_HELP = {
    "gpus": "GPUs in all (default: every GPU of the nodes).",
    "nodes": "Nodes (default: as many as the GPUs need).",
    "seq_len": "Tokens per sequence, such as 8192 or 8k (default: 4096, or the model's longest).",
    "target_len": "Tokens per target of a model with an encoder (default: as --seq-len).",
    "mean_len": "Tokens per sample in the mean, where --seq-len is the longest (default: all are as long).",
    "packing": "Samples fill sequences, and attention stops at their borders (default: each is a sequence, padded).",
    "padding_free": "The samples of a micro-batch lie end to end, without padding (default: each is padded).",
    "micro_batch": "Sequences per GPU and forward pass (default: planned).",
    "global_batch": "Sequences per optimizer step (default: by method, GPUs and --seq-len).",
    "total_steps": "Optimizer steps of the whole run: the learning rate falls over them (default: not known).",
    "total_tokens": "The same in tokens, such as 300M or 1.5B.",
    "precision": "Compute dtype (default: by the GPU).",
    "zero_stage": "ZeRO stage 0 to 3 (default: planned).",
    "offload": "What leaves the GPU (default: planned).",
    "tp": "GPUs that share each layer, AutoTP (default: planned).",
    "checkpointing": "Recompute activations in backward (default: planned).",
    "reentrant": "It is torch's reentrant kind (default: for QLoRA at stage 3, and where a release needs it).",
    "activation_offloading": "What backward needs waits in the node's RAM, as TRL moves it (default: on the GPU).",
    "objective": "What to prefer among strategies that fit.",
    "accumulation": "Forward passes per optimizer step (default: planned).",
    "method": "What is trained (default: full).",
    "lora_rank": "Rank of the adapters (default: 16).",
    "lora_targets": "Matrices that get adapters, with commas (default: all-linear).",
    "lora_dropout": "Share of its input that an adapter drops, such as 0.05 (default: 0).",
    "lora_train_embeddings": "Train embedding and output head beside the adapters (default: they are frozen).",
    "optimizer": "Optimizer (default: AdamW).",
    "attention": "Attention kernel (default: flash).",
    "chunked_loss": "The loss never holds all logits, as Liger's (default: it holds them).",
    "expandable_segments": "torch's allocator grows its segments (default: yes, as dsgen launch sets it; beside a "
    "config no).",
    "launcher": "CPU threads of a rank: torchrun and accelerate set OMP_NUM_THREADS=1, deepspeed leaves all to all, "
    "bound is deepspeed --bind_cores_to_rank, a share on cores of its own, as dsgen launch starts it (default: "
    "torchrun).",
    "torch": "Release of torch, such as 2.8: it decides what sdpa runs and NCCL holds (default: the newest known).",
    "transformers": "Release of transformers that loads the model, such as 4.57 (default: the newest known).",
    "liger": "Release of Liger that runs, such as 0.5.10 (default: the newest known).",
    "liger_kernels": "Liger's SwiGLU, norms and RoPE run (default: with --target hf-trainer and --chunked-loss).",
    "loading": "How each rank reads the model where no zero.Init makes it (default: not known, or by --target).",
    "zero_init": "At stage 3 the model is made under zero.Init (default: it is).",
    "foreach": "The program's AdamW is torch's, not fused: each step copies a moment (default: by config and release).",
    "lora_fp32": "peft keeps adapters in fp32 (default: it does; TRL does not at stage 3).",
    "double_quantization": "The scales of a base in 4 bits are in 8 (default: they are; TRL's are not).",
    "kbit_fp32": "peft's prepare_model_for_kbit_training makes fp32 of what is not in 4 bits, until initialize "
    "(default: always, or by --target).",
    "gpu_memory": "Memory of one GPU as sold, such as 24GiB: instead of --hw, or of what it has.",
    "gpu_memory_used": "What other processes hold on every GPU, such as 2GiB (default: nothing).",
    "host_memory": "RAM of one node, such as 512GiB: instead of what the hardware has.",
}


def option_of(field: str) -> Any:
    """The option that sets a field of a scenario."""
    name = field.replace("_", "-")
    if field in _SWITCHES:
        return click.option(f"--{name}/--no-{name}", field, default=None, help=_FIELD_HELP[field])
    metavar = _METAVARS.get(field) or "|".join(_CHOICES.get(field, ("N",)))
    return click.option(f"--{name}", field, help=_FIELD_HELP[field], metavar=metavar)


_OPTIONS: tuple[Any, ...] = (
    click.option(
        "--hw", "hardware", metavar="NAME|FILE", help="Hardware profile: one node of it; auto is this machine."
    ),
    click.option("--model", metavar="NAME|FILE", help="Model profile, or a Hugging Face config.json or its folder."),
    click.option("--network", metavar="NAME|FILE", help="Network profile: what joins the nodes."),
    click.option("--training", metavar="NAME|FILE", multiple=True, help="Training profile; repeatable."),
    *(option_of(field) for field in FIELDS),
    click.option(
        "--deepspeed", metavar="VERSION", help="DeepSpeed release the config is for (default: the newest known)."
    ),
    click.option(
        "-f", "--file", "files", multiple=True, metavar="FILE", help="Override file in YAML; repeatable, in order."
    ),
    click.option("--set", "sets", multiple=True, metavar="PATH=VALUE", help="One override; repeatable. null deletes."),
)


def scenario_options(function: F) -> F:
    """Add the scenario's options to a command."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def fields_from(options: dict[str, Any], names: Iterable[str]) -> dict[str, ScenarioValue]:
    """The fields that options say; those options are taken out of the dictionary."""
    written = {field: options.pop(field) for field in names}
    return {
        field: ScenarioValue(_value(field, value), Origin(f"--{field.replace('_', '-')}"))
        for field, value in written.items()
        if value is not None
    }


def scenario_from(file: str | None, options: dict[str, Any], running: bool = False) -> Scenario:
    """The scenario that a file and the options say together; the options win, and the file over arguments (--args).

    Args:
        file: A scenario.
        options: The options of the command line; those that are read here are taken out.
        running: Arguments count as they run, and not as a plan may complete them.
    """
    arguments = options.pop("arguments", None)
    fields = fields_from(options, FIELDS)
    said = Scenario(
        profiles={
            "hardware": _named(options.pop("hardware")),
            "model": _named(options.pop("model")),
            "network": _named(options.pop("network")),
            "training": options.pop("training"),
        },
        fields=fields,
        files=options.pop("files"),
        sets=tuple(parse_set(text) for text in options.pop("sets")),
        deepspeed=options.pop("deepspeed"),
    )
    if arguments is None:
        return merge(read(file), said) if file else said
    (model, *_), ended = said.profiles["model"] or (None,), bool({"total_steps", "total_tokens"} & {*fields})
    wanted = _wanted_by(arguments, model, running, ended, {name: one.value for name, one in fields.items()})
    return merge(merge(wanted, read(file)) if file else wanted, said)


def _wanted_by(path: str, model: str | None, running: bool, ended: bool, asked: Mapping[str, Any]) -> Scenario:
    """What a training program's arguments want; what of it is not counted, and a config that runs already, is said.

    Args:
        path: Their file.
        model: The base, where options name it.
        running: As it runs.
        ended: Options say how long it lasts.
        asked: What options say of the run, by the fields of a scenario.
    """
    import attrs

    from dsgen.asking.told_values import launched_on, said_of_device_map
    from dsgen.asking.training_arguments import read_arguments
    from dsgen.linting.sources import named_by

    told = read_arguments(path, model)
    split = asked.get("zero_stage", _WHOLE) == _WHOLE
    at_stage_3 = (told.loads_first, said_of_device_map(told.loads)) if split else ()
    notes = [*told.uncounted, *told.notes(asked), *filter(None, at_stage_3)]
    config = told.values.get("deepspeed")
    if path.endswith(".py") and isinstance(config, str):
        notes.append(_not_looked_at(path, config, f"--config {config} --args {path}", "takes both"))
    if (other := told.other_optimizer) is not None:
        notes.append(f"{path}: {other} is not known: AdamW is counted, or what --optimizer says")
    if named := named_by(path):
        notes.append(_not_looked_at(path, named[0].name, f"--config {path}", "is about that one"))
    for note in notes:
        click.echo(f"warning: {note}", err=True)
    made, there = told.scenario(running, ended), launched_on(path) if {"gpus", "nodes"}.isdisjoint(asked) else {}
    launched = {name: ScenarioValue(number, Origin(path), TOLD) for name, number in there.items()}
    return attrs.evolve(made, fields={**made.fields, **launched})


def _not_looked_at(path: str, config: str, options: str, what: str) -> str:
    """That a file names a config which has no part here, and the options, or the command, that look at it."""
    command = click.get_current_context().command
    here = any(option.name == "config" for option in command.params)
    return f"{path} names {config}, which is not looked at here: {'' if here else 'dsgen plan '}{options} {what}"


def filled_by(arguments: str | None, text: str) -> str:
    """A file for a training program with what a file of arguments says where only a person knows."""
    if arguments is None:
        return text
    from dsgen.asking.told_files import filling
    from dsgen.asking.training_arguments import read_arguments

    return filling(read_arguments(arguments), text)


def say_left_behind(arguments: str | None, name: str, text: str) -> None:
    """Warn of what a file for a training program does not say, and the file of arguments does.

    Args:
        arguments: The file of arguments, where there is one.
        name: The file that is written.
        text: What it says.
    """
    if arguments is None:
        return
    from dsgen.asking.told_files import left_behind
    from dsgen.asking.training_arguments import read_arguments

    if left := left_behind(read_arguments(arguments), text):
        told = f"{name} leaves out what {arguments} also says: {', '.join(left)}; copy what your run needs"
        click.echo(f"warning: {told}", err=True)


def arguments_option(function: F) -> F:
    """Add --args, the file of what a program is told."""
    words = "Arguments of the training program, in YAML, JSON or its Python: what is trained, and how; options win."
    return click.option("--args", "arguments", metavar="FILE", help=words)(function)


def gpus_from(options: dict[str, Any], world_size: int | str | None) -> dict[str, Any]:
    """The options with the GPUs that --gpus or --world-size says, which mean the same.

    Raises:
        DsgenError: They say different numbers.
    """
    if world_size is None:
        return options
    if options["gpus"] not in (None, str(world_size)):
        raise mistake(
            f"--gpus {options['gpus']} and --world-size {world_size} mean the same",
            todo="Drop one of them.",
            code="contradiction",
        )
    return {**options, "gpus": str(world_size)}


def target_option(function: F) -> F:
    """The option --target of a command that writes no files for the program."""
    said = "The program that trains, as of dsgen render: it decides how the model is loaded, and its kernels."
    return click.option("--target", metavar="PROGRAM", help=said)(function)


def idle(option: str, why: str) -> None:
    """Say on stderr that an option does nothing where it stands."""
    click.echo(f"warning: {option} does nothing: {why}", err=True)


def job_from(file: str | None, options: dict[str, Any], target: str | None = None) -> Job:
    """The Job that a scenario file and the options make, as a program loads its model and brings its kernels."""
    scenario = scenario_from(file, options)
    made = assemble(layers(scenario), scenario.deepspeed)
    if target in (None, _NO_PROGRAM):
        return made
    from dsgen.asking.memory_questions import for_program  # a render for no program asks nothing
    from dsgen.frameworks.names import check_name

    check_name(target, "--target")
    return for_program(made, target)


def question_from(
    file: str | None,
    config: str | None,
    options: dict[str, Any],
    target: str | None = None,
    arguments: str | None = None,
) -> Question:
    """What a DeepSpeed config runs for the job that a scenario file and the options make; without one what they say.

    Args:
        file: A scenario.
        config: A DeepSpeed config.
        options: The options of the command line.
        target: The program that trains, where it is known.
        arguments: The file of that program's arguments, beside a config.
    """
    from dsgen.asking.memory_questions import ask, ask_config, evaluating_as_rendered, for_program

    job, source = _job_and_config(file, config, options, arguments)
    job = for_program(job, target)
    if source is not None:
        return ask_config(job, source)
    return evaluating_as_rendered(_evaluating_as_told(ask(job), arguments), target)


def _evaluating_as_told(question: Question, arguments: str | None) -> Question:
    """The question with the evaluation of a file of arguments that is the job."""
    from dsgen.asking.training_arguments import read_arguments

    told = read_arguments(arguments).evaluated if arguments is not None else None
    return question if told is None or arguments is None else question.evaluating(told, arguments)


def run_from(file: str | None, config: str | None, options: dict[str, Any], arguments: str | None = None) -> Question:
    """What ran for sure: as `question_from`, but without a config what a plan takes and nothing that does not fit."""
    from dsgen.asking.calibrating import run_of

    return run_of(*_job_and_config(file, config, options, arguments))


def _job_and_config(
    file: str | None, config: str | None, options: dict[str, Any], arguments: str | None = None
) -> tuple[Job, Source | None]:
    """The job that a scenario file and the options make, on as many GPUs as the config beside it says; and that."""
    said = scenario_from(file, {**options, "arguments": arguments if config is None else None}, running=True)
    if config is None:
        return assemble(layers(said), said.deepspeed), None
    import attrs

    from dsgen.asking.training_arguments import beside
    from dsgen.linting import config_reader

    source = config_reader.read(config)
    if source.world_size is not None and not {"gpus", "nodes"} & {*said.fields, *(said.below or said).fields}:
        ranks = ScenarioValue(source.world_size, Origin(source.of or source.document.name))
        said = attrs.evolve(said, fields={**said.fields, "gpus": ranks})
    source, told = beside(source, arguments)
    if told is not None and told.model is not None and not said.profiles["model"]:
        said = attrs.evolve(said, profiles={**said.profiles, "model": (told.model,)})
    return assemble(layers(said), said.deepspeed), source


def _named(name: str | None) -> tuple[str, ...]:
    return (name,) if name is not None else ()


def _value(field: str, written: Any) -> Any:
    """What an option says: a switch as it is, a list of names, or a number or text."""
    if field in (*_SWITCHES, *_TEXTS):
        return written
    if field in _LISTS:
        return [name.strip() for name in written.split(",")]
    return amount(field, _number(written))


def _number(text: str) -> Any:
    """A number as one, anything else as the text that was typed; the assembly judges it."""
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if text.isascii() and (kind is int or math.isfinite(value)):
            return value
    return text
