"""What people type who come from another program: its options, and what says the same here."""

from __future__ import annotations

import re
from collections.abc import Iterable

import click

__all__ = ["command", "missing", "no_such_option"]

# Commands of other programs, and plain words for what is asked -> ours.
_COMMANDS = {
    **dict.fromkeys(("estimate", "estimate-memory", "fit", "fits", "vram"), "memory"),
    **dict.fromkeys(("check", "validate", "verify"), "lint"),
    **dict.fromkeys(("fix", "mend"), "lint --fix"),
    **dict.fromkeys(("generate", "gen", "create", "init", "config", "new"), "render"),
    **dict.fromkeys(("tune", "autotune", "optimize", "search", "speed", "compare"), "plan"),
    **dict.fromkeys(("explain", "describe"), "why"),
    **dict.fromkeys(("debug", "doctor", "log"), "diagnose"),
    **dict.fromkeys(("run", "train", "start"), "launch"),
    **dict.fromkeys(("convert", "import"), "adopt"),
    **dict.fromkeys(("upgrade", "update"), "migrate"),
    **dict.fromkeys(("detect", "env"), "hardware detect"),
    **dict.fromkeys(("models", "profile", "list", "gpus"), "profiles list"),
    "test": "prove",
}

_LENGTH = ("--seq-len N",)
_MICRO = ("--micro-batch N",)
_GLOBAL = ("--global-batch N",)
_GPUS = ("--gpus N", "--world-size N")
_STEPS = ("--total-steps N", "--total-tokens N")
_OTHERS: dict[str, tuple[str, ...]] = {
    "batch-size": (*_MICRO, *_GLOBAL),
    "train-batch-size": _GLOBAL,
    "global-batch-size": _GLOBAL,
    "micro-batch-size": _MICRO,
    "per-device-train-batch-size": _MICRO,
    "train-micro-batch-size-per-gpu": _MICRO,
    "per-device-eval-batch-size": ("--eval-batch N",),
    "gradient-accumulation-steps": ("--accumulation N",),
    "grad-accum": ("--accumulation N",),
    "max-length": _LENGTH,
    "max-seq-len": _LENGTH,
    "max-seq-length": _LENGTH,
    "seq-length": _LENGTH,
    "sequence-len": _LENGTH,
    "sequence-length": _LENGTH,
    "cutoff-len": _LENGTH,
    "context-length": _LENGTH,
    "lr": ("--set training.lr=1e-5",),
    "learning-rate": ("--set training.lr=1e-5",),
    "weight-decay": ("--set training.weight_decay=0.1",),
    "bf16": ("--precision bf16",),
    "fp16": ("--precision fp16",),
    "dtype": ("--precision bf16",),
    "mixed-precision": ("--precision bf16",),
    "json": ("--format json",),
    "html": ("--format html",),
    "zero": ("--zero-stage N",),
    "stage": ("--zero-stage N",),
    "ds-stage": ("--zero-stage N",),
    "lora": ("--method lora",),
    "qlora": ("--method qlora",),
    "load-in-4bit": ("--method qlora",),
    "lora-r": ("--lora-rank N",),
    "gpu": (*_GPUS, "--hw NAME"),
    "device": ("--hw NAME",),
    "hardware": ("--hw NAME",),
    "gpus": _GPUS,
    "num-gpus": _GPUS,
    "num-processes": _GPUS,
    "nproc-per-node": _GPUS,
    "gpus-per-node": _GPUS,
    "world-size": _GPUS,
    "num-nodes": ("--nodes N",),
    "num-machines": ("--nodes N",),
    "nnodes": ("--nodes N",),
    "gradient-checkpointing": ("--checkpointing full",),
    "activation-checkpointing": ("--checkpointing full",),
    "flash-attention": ("--attention flash",),
    "flash-attn": ("--attention flash",),
    "attn-implementation": ("--attention flash",),
    "use-liger-kernel": ("--chunked-loss",),
    "cpu-offload": ("--offload optimizer", "--offload all"),
    "offload-optimizer": ("--offload optimizer",),
    "offload-param": ("--offload all",),
    "epochs": _STEPS,
    "num-epochs": _STEPS,
    "num-train-epochs": _STEPS,
    "max-steps": ("--total-steps N",),
    "tensor-parallel": ("--tp N",),
    "tensor-parallel-size": ("--tp N",),
    "optim": ("--optimizer NAME",),
    "partition": ("--directive=--partition=gpu",),
    "account": ("--directive=--account=NAME",),
    "qos": ("--directive=--qos=NAME",),
    "time": ("--directive=--time=24:00:00",),
    "sbatch": ("--directive=OPTION",),
    "ds-config": ("--config FILE",),
    "deepspeed-config": ("--config FILE",),
    "deepspeed-config-file": ("--config FILE",),
    "vram": ("--gpu-memory SIZE",),
    "gpu-mem": ("--gpu-memory SIZE",),
    "ram": ("--host-memory SIZE",),
    "cpu-memory": ("--host-memory SIZE",),
    "ref-model": ("--gpu-memory-used SIZE",),
    "reference-model": ("--gpu-memory-used SIZE",),
    "tokens-per-second": ("--step-seconds S (the tokens of a step divided by it)",),
    "step-time": ("--step-seconds S",),
    "model-name-or-path": ("--model NAME",),
    "config-file": ("--config FILE",),
    "output-dir": ("-o FILE",),
}
# Options of other commands of ours -> the way round for one that has none such.
_ELSEWHERE = {
    "args": "dsgen adopt ds_config.json --args FILE -o scenario.yaml writes the scenario that it takes",
    "generate": "dsgen memory --generate TOKENS counts it, and no other command does",
    "eval-keep": "dsgen memory and dsgen simulate have it",
    "eval-batch": "dsgen memory and dsgen simulate have it",
    "observed": "dsgen memory --observed KIND=SIZE compares with what a run took",
}
_OUTPUTS = ("o", "out", "output", "output-file")  # of a command that writes no file


_HELP, _TARGET = "--help", "--target"
_SEQUENCES = "sequences are not cut among GPUs (Ulysses, ALST); --chunked-loss, --checkpointing full and --tp make room"
_STAGES = "layers are not cut into a pipeline, which needs a model written for it; --zero-stage 3 or --tp instead"
_EXPERTS = "experts are not spread, which needs DeepSpeed's own layer of them; --zero-stage 3 cuts them as all weights"
# Kinds of parallelism that no plan has, by what programs call them.
_UNPLANNED = {
    **dict.fromkeys(("sp", "sp-size", "ulysses", "sequence-parallel", "sequence-parallel-size"), _SEQUENCES),
    **dict.fromkeys(("cp", "context-parallel", "context-parallel-size"), _SEQUENCES),
    **dict.fromkeys(("pp", "pp-size", "pipeline-parallel", "pipeline-parallel-size"), _STAGES),
    **dict.fromkeys(("ep", "ep-size", "expert-parallel", "expert-parallel-size"), _EXPERTS),
}


def command(name: str) -> str | None:
    """The command that says what one of another name means; None where nobody knows."""
    ours = _COMMANDS.get(name.casefold())
    return f"here it is dsgen {ours}" if ours is not None else None


def no_such_option(error: click.NoSuchOption) -> str:
    """The message about an option that a command lacks: what it is called here, or click's own guess."""
    if error.ctx is not None and error.ctx.command.name == "launch":
        return f"{_renamed(error)} Arguments of the program's own stand behind --: -- {error.option_name} ..."
    return _renamed(error)


def _renamed(error: click.NoSuchOption) -> str:
    name = error.option_name.lstrip("-").replace("_", "-").lower()
    known = {option for parameter in _parameters(error.ctx) for option in parameter.opts}
    meant = [words for words in _OTHERS.get(name, ()) if re.split(r"[ =]", words)[0] in known]
    if not meant:
        dashes = f"--{name}"
        meant = [dashes] if dashes in known else []
    if not meant and name in _OUTPUTS and not {"-o", "--output"} & known:
        return f"No such option {error.option_name!r}: it prints, and > FILE keeps what it prints."
    if not meant and name in _ELSEWHERE:
        return f"No such option {error.option_name!r}: {_ELSEWHERE[name]}."
    if not meant and name in _UNPLANNED:
        return f"No such option {error.option_name!r}: {_UNPLANNED[name]}."
    if not meant:
        near = [option for option in error.possibilities or () if option != _HELP]  # which is near to any short name
        return click.NoSuchOption(error.option_name, possibilities=near, ctx=error.ctx).format_message()
    return f"No such option {error.option_name!r}: here it is {' or '.join(meant)}."


def bad_value(error: click.BadParameter) -> str:
    """The message about a value that an option does not take; of a framework by another name with ours."""
    said = error.format_message()
    written = re.search(r"'([^']+)' is not one of", error.message)
    if written is None or error.param is None or _TARGET not in error.param.opts:
        return said
    from dsgen.frameworks.names import known_as

    known = known_as(written[1])
    return f"{said} Here it is {known}." if known is not None else said


def missing(error: click.MissingParameter) -> str:
    """The message about what must be said and was not: with the values that it takes, and what it is for."""
    option = error.param
    if not isinstance(option, click.Option) or error.ctx is None:
        return error.format_message()
    return f"Missing option '{option.opts[0]} {option.make_metavar(error.ctx)}'. {option.help or ''}".rstrip()


def _parameters(context: click.Context | None) -> Iterable[click.Parameter]:
    return context.command.params if context is not None else ()
