"""What `import dsgen` offers of the linter: one config or a tree of them to findings, and mended."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from dsgen.linting.files import Excluded, Linted, check, lint_files, lint_one
from dsgen.linting.mending import Mended, mended
from dsgen.linting.migrations import migrated
from dsgen.linting.settings import Settings, checked
from dsgen.linting.settings import severity as named_severity
from dsgen.shapes.arguments import names_arguments, path_of
from dsgen.shapes.errors import DsgenError, joined, mistake

__all__ = ["Source", "fix", "lint", "migrate", "survey"]

Source = Mapping[str, Any] | str | os.PathLike[str]
"""A config: a dict of DeepSpeed's keys, a rendered Config, or the path of a file."""


@names_arguments()
def lint(
    source: Source | Linted,
    *,
    target: str | None = None,
    deepspeed: str | None = None,
    world_size: int | None = None,
    hardware: str | None = None,
    model: str | None = None,
    network: str | None = None,
    seq_len: int | None = None,
    accelerator: str | None = None,
    client_optimizer: str | None = None,
    missing: Sequence[str] = (),
    calls: Sequence[str] = (),
    parameters: str | None = None,
    arguments: str | os.PathLike[str] | None = None,
    scenario: str | os.PathLike[str] | None = None,
    method: str | None = None,
    lora_rank: int | None = None,
    lora_targets: Sequence[str] | None = None,
    lora_dropout: float | None = None,
    lora_train_embeddings: bool | None = None,
    chunked_loss: bool | None = None,
    optimizer: str | None = None,
    attention: str | None = None,
    checkpointing: str | None = None,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    severity: str | None = None,
) -> Linted:
    """What is wrong with a config, where, why, and how to mend it: `.findings` of what is returned.

    Args:
        source: A config: a dict, a `Config` or a file, with the settings of its folder.
        target: The program that loads it: deepspeed, hf-trainer, accelerate or lightning; by default guessed.
        deepspeed: The release that reads it; None is the newest known.
        world_size: GPUs in all.
        hardware, model, network: Names or files of profiles: then what is slow or does not fit is said too.
        seq_len: Tokens per sequence.
        accelerator: DeepSpeed's name of the device.
        client_optimizer: What your program hands to deepspeed.initialize: none, torch or deepspeed.
        missing: Packages that the machine lacks.
        calls: What your program calls besides: checkpointing.configure, engine.compile.
        parameters: File with the names of the model's parameters.
        arguments: File of the Trainer's arguments, which fill in "auto".
        scenario: File of the job that the config is for; what else is said wins over it.
        method, lora_rank, lora_targets, lora_dropout, lora_train_embeddings: What is trained.
        chunked_loss, optimizer, attention, checkpointing: How, where the config does not say it.
        select, ignore: Names or codes of the only rules that speak, and of rules that do not.
        severity: The lowest that is shown: info, warning (the default) or error.

    Raises:
        DsgenError: No such file, rule, release or profile, or broken settings.
    """
    _refuse_one_word(missing=missing, calls=calls, select=select, ignore=ignore, lora_targets=lora_targets or ())
    said = Settings(
        target=target, deepspeed=deepspeed, world_size=world_size, hardware=hardware, model=model, network=network,
        seq_len=seq_len, accelerator=accelerator, client_optimizer=client_optimizer, missing=tuple(missing),
        calls=tuple(calls), parameters=parameters, arguments=None if arguments is None else path_of(arguments),
        select=tuple(select), ignore=tuple(ignore),
        severity=named_severity(severity) if severity else None,
        scenario=None if scenario is None else path_of(scenario),
        wishes=_said(
            method=method, lora_rank=lora_rank, lora_targets=None if lora_targets is None else list(lora_targets),
            lora_dropout=lora_dropout, lora_train_embeddings=lora_train_embeddings, chunked_loss=chunked_loss,
            optimizer=optimizer, attention=attention, checkpointing=checkpointing,
        ),
    )  # fmt: skip
    if isinstance(source, Linted):
        return check(source.source, source.settings.under(checked(said)))
    return lint_one(source, checked(said))


@names_arguments()
def fix(
    source: Source | Linted,
    *,
    unsafe: bool = False,
    target: str | None = None,
    deepspeed: str | None = None,
    world_size: int | None = None,
) -> Mended:
    """Mend what `lint` finds; nothing is written before `.write()` of what is returned is called.

    Args:
        source: What `lint` takes, or its answer: `fix(lint("ds_config.json", select=["DSG1"]))`.
        unsafe: Also fixes that change what is trained.
        target, deepspeed, world_size: As in `lint`.

    Raises:
        DsgenError: As `lint`.
    """
    return mended(lint(source, target=target, deepspeed=deepspeed, world_size=world_size), unsafe=unsafe)


@names_arguments()
def migrate(
    source: Source | Linted,
    to: str,
    *,
    unsafe: bool = False,
    target: str | None = None,
    world_size: int | None = None,
) -> Mended:
    """Change a config to what another DeepSpeed release reads; only what differs between releases is touched.

    Args:
        source: What `lint` takes, or its answer.
        to: The release to move to.
        unsafe: Also fixes that change what is trained.
        target, world_size: As in `lint`.

    Raises:
        DsgenError: As `lint`.
    """
    linted = lint(source, target=target, deepspeed=to, world_size=world_size, severity="info")
    return migrated(linted, unsafe=unsafe)


@names_arguments()
def survey(
    *paths: str | os.PathLike[str],
    target: str | None = None,
    deepspeed: str | None = None,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    severity: str | None = None,
) -> tuple[Linted, ...]:
    """Lint files, folders and globs; files that their settings leave out are left out.

    Args:
        paths: What to lint, in order; a file that another names comes right behind it.
        target, deepspeed, select, ignore, severity: As in `lint`.

    Raises:
        DsgenError: Everything wrong in the settings of the files.
    """
    _refuse_one_word(select=select, ignore=ignore)
    said = Settings(
        target=target,
        deepspeed=deepspeed,
        select=tuple(select),
        ignore=tuple(ignore),
        severity=named_severity(severity) if severity else None,
    )
    linted: list[Linted] = []
    wrong: list[DsgenError] = []
    for item in lint_files(
        [path_of(path, "it must be the path of a file or a folder, or a glob") for path in paths], checked(said)
    ):
        if isinstance(item, Linted):
            linted.append(item)
        elif not isinstance(item, Excluded):
            wrong.append(item)
    if wrong:
        raise joined(list({str(error): error for error in wrong}.values()))
    return tuple(linted)


def _refuse_one_word(**lists: Sequence[str]) -> None:
    """A text is a sequence of letters too, and none of them is a rule."""
    for name, words in lists.items():
        if isinstance(words, str):
            raise mistake(f"{name} is {words!r}", must="it must be a list", todo=f"Write {name}=[{words!r}].")


def _said(**wishes: Any) -> dict[str, Any]:
    """The wishes that were said, once each is what its field can be.

    Raises:
        DsgenError: One is not.
    """
    from dsgen.linting import said_jobs  # it assembles jobs, which most lints do not need

    said = {name: value for name, value in wishes.items() if value is not None}
    said_jobs.wishes(said)
    return said
