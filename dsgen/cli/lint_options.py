"""What `dsgen lint`, `migrate` and `survey` share: the options that say what to lint for, and the run."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

from dsgen.cli.options import fields_from, option_of
from dsgen.cli.terminal import is_coloured, width
from dsgen.shapes.errors import DsgenError, mistake, nearest
from dsgen.shapes.near_misses import offer

if TYPE_CHECKING:
    from dsgen.linting.files import Linted
    from dsgen.linting.settings import Settings
    from dsgen.report.findings import Paint
    from dsgen.shapes.findings import Fault

__all__ = [
    "LEVELS",
    "TARGETS",
    "complain",
    "facts_options",
    "for_terminal",
    "lint_all",
    "lint_options",
    "nothing_there",
    "settings_from",
    "spare",
]

F = TypeVar("F", bound=Callable[..., Any])

CLIENT_OPTIMIZERS = ("none", "torch", "deepspeed")  # as lint_settings.CLIENT_OPTIMIZERS
LEVELS = ("info", "warning", "error")
TARGETS = ("deepspeed", "hf-trainer", "accelerate", "lightning")  # as targets.TARGETS; the tests compare them
_UNREADABLE = "unreadable-file"  # the rule of what is no file, or cannot be opened
_ACCELERATORS = "cuda|cpu|..."
_WISHES = (
    *("method", "lora_rank", "lora_targets", "lora_dropout", "lora_train_embeddings"),
    *("chunked_loss", "optimizer", "attention", "checkpointing"),
)  # as said_jobs.WISHES
_RELEASE = click.option(
    "--deepspeed", metavar="VERSION", help="DeepSpeed release that reads it (default: the newest known)."
)
_OPTIONS: tuple[Any, ...] = (
    click.option("--target", type=click.Choice(TARGETS), help="Who loads the config (default: guessed from it)."),
    click.option("--world-size", type=click.IntRange(1), metavar="N", help="GPUs in all."),
    click.option(
        "--hw", "hardware", metavar="NAME|FILE", help="Hardware profile: also say what is slow or does not fit."
    ),
    click.option("--model", metavar="NAME|FILE", help="Model profile, or a Hugging Face config.json or its folder."),
    click.option("--network", metavar="NAME|FILE", help="Network profile."),
    click.option("--seq-len", type=click.IntRange(1), metavar="N", help="Tokens per sequence."),
    click.option("--scenario", metavar="FILE", help="Scenario of the job that the config is for; options win over it."),
    *(option_of(field) for field in _WISHES),
    click.option("--accelerator", metavar=_ACCELERATORS, help="DeepSpeed's name of the device (default: a GPU)."),
    click.option(
        "--client-optimizer",
        type=click.Choice(CLIENT_OPTIMIZERS),
        help="The optimizer that your program hands to deepspeed.initialize.",
    ),
    click.option(
        "--missing", multiple=True, metavar="PACKAGE", help="A package the machine lacks (wandb, libaio); repeatable."
    ),
    click.option(
        "--calls",
        multiple=True,
        metavar="NAME",
        help="What your program calls besides: checkpointing.configure, engine.compile; repeatable.",
    ),
    click.option("--parameters", metavar="FILE", help="Names of the model's parameters, one a line or a JSON list."),
    click.option(
        "--select", multiple=True, metavar="RULES", help="Only these rules: names, codes or DSG3; commas; repeatable."
    ),
    click.option("--ignore", multiple=True, metavar="RULES", help="Not these rules; like --select."),
)


def lint_options(function: F) -> F:
    """Add the options that say what to lint for, and with which rules."""
    return _with(function, (_OPTIONS[0], _RELEASE, *_OPTIONS[1:]))


def facts_options(function: F) -> F:
    """Add the same options without the release."""
    return _with(function, _OPTIONS)


def _with(function: F, options: Sequence[Any]) -> F:
    for option in reversed(options):
        function = option(function)
    return function


def settings_from(options: dict[str, Any], severity: str | None = None, fail_on: str | None = None) -> Settings:
    """What the command line says, as settings; the options are taken out of the dictionary.

    Raises:
        DsgenError: No such rule, release or accelerator.
    """
    from dsgen.linting.settings import Settings, checked
    from dsgen.shapes.findings import Severity

    said = {name: options.pop(name) for name in _NAMES}
    said["arguments"] = options.pop("arguments", None)
    said["wishes"] = {**_told_by(said["arguments"]), **fields_from(options, _WISHES)}
    for name in ("select", "ignore"):
        said[name] = tuple(word.strip() for words in said[name] for word in words.split(",") if word.strip())
    lowest, least = (Severity[word.upper()] if word else None for word in (severity, fail_on))
    return checked(Settings(severity=lowest, fail_on=least, **said), lambda field: f"--{field.replace('_', '-')}")


def _told_by(arguments: str | None) -> dict[str, Any]:
    """What the arguments of a program say that no config holds; nothing where a plan could not follow them."""
    if arguments is None:
        return {}
    from dsgen.asking.training_arguments import read_arguments
    from dsgen.jobs.scenarios import ScenarioValue
    from dsgen.shapes.layers import Origin

    try:
        fields = read_arguments(arguments).fields
    except DsgenError:  # lint says itself what it cannot read
        return {}
    return {name: ScenarioValue(fields[name], Origin(arguments)) for name in _WISHES if name in fields}


def lint_all(paths: Sequence[str], said: Settings, stdin_name: str | None = None) -> tuple[list[Linted], bool]:
    """Lint every file named; what cannot be linted is said on stderr, and the others go on.

    Returns:
        The files, and whether anything was wrong with what was named.
    """
    from dsgen.linting.files import Excluded, Linted, lint_files

    linted: list[Linted] = []
    excluded: list[Excluded] = []
    wrong: set[str] = set()  # one broken settings file is said once, however many files it speaks of
    nothing = False
    for item in lint_files(paths, said, stdin_name):
        if isinstance(item, Linted):
            linted.append(item)
            nothing = nothing or nothing_there(item, paths) is not None
        elif isinstance(item, Excluded):
            excluded.append(item)
        elif str(item) not in wrong:
            wrong.add(str(item))
            complain(item)
    if excluded:
        files = "1 file" if len(excluded) == 1 else f"{len(excluded)} files"
        click.echo(f"note: {files} excluded by {excluded[0].by}", err=True)
    if not (linted or excluded or wrong):
        click.echo(f"note: no config file in {', '.join(paths)}", err=True)
    _say_empty(linted)
    _say_idle(said, linted)
    return linted, bool(wrong) or nothing


def nothing_there(file: Linted, named: Sequence[str]) -> Fault | None:
    """Why a name that a person gave leads to nothing that can be read: their mistake, not a finding alone."""
    faults = [fault for rule, fault in file.document.faults if rule == _UNREADABLE]
    return faults[0] if faults and (file.piped or file.document.name in named) else None


def _say_empty(linted: Sequence[Linted]) -> None:
    """Say of the files that hold no config and name none: that nothing was found wrong says nothing of them."""
    from dsgen.linting.sources import named_by

    naming = {file.source.of for file in linted}
    for file in linted:
        document = file.document
        empty = document.config is None and not document.faults and document.name not in naming
        if empty and not named_by(document.name):  # what several name is linted for one of them
            said = f"{document.name} holds no DeepSpeed config and names none, so nothing is checked"
            click.echo(f"note: {said}", err=True)


def _say_idle(said: Settings, linted: Sequence[Linted]) -> None:
    """Say of the options that no file had a use for."""
    from dsgen.linting.settings import CALLS, PACKAGES

    for option, words, known in (("--missing", said.missing, PACKAGES), ("--calls", said.calls, CALLS)):
        for word in words:
            if word not in known:
                close = nearest(word, known)
                hint = offer(close[:1], f"they ask for {', '.join(known)}")
                click.echo(f"warning: {option} {word} does nothing: no rule asks for it; {hint}", err=True)
    described = any((file.settings.hardware and file.settings.model) or file.settings.scenario for file in linted)
    idle = ["--seq-len"] if said.seq_len is not None else []
    options = (
        f"--{name.replace('_', '-')}" for name, wish in said.wishes.items() if wish.origin.source != said.arguments
    )
    idle += options
    for option in idle if linted and not described else ():
        click.echo(f"warning: {option} does nothing: a run is counted where --hw and --model describe it", err=True)


def spare(linted: Sequence[Linted], output: str) -> None:
    """Refuse to write the report over a config.

    Raises:
        DsgenError: The file is one of those that are linted.
    """
    place = os.path.realpath(output)
    if any(os.path.realpath(file.document.name) == place for file in linted if not file.piped):
        raise mistake(
            f"-o {output} is one of the files that are linted",
            must="the report needs a file of its own",
            code="contradiction",
        )


def complain(error: DsgenError) -> None:
    """Say one mistake on stderr, as `main` does."""
    from dsgen.report.excerpts import printable

    click.echo("\n".join(printable(line) for line in f"error: {error}".split("\n")), err=True)


def for_terminal(stream: TextIO | None) -> tuple[int, Paint]:
    """Columns of the terminal, and the colours that a stream takes: none in a pipe, with NO_COLOR, or on a dumb one."""
    from dsgen.report.findings import coloured, uncoloured

    return width(), coloured if is_coloured(stream) else uncoloured


_NAMES = (
    *("target", "deepspeed", "world_size", "hardware", "model", "network", "seq_len", "accelerator"),
    *("client_optimizer", "missing", "calls", "parameters", "scenario", "select", "ignore"),
)
