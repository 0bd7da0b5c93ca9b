"""A file of the Trainer's arguments: what it says of a config, which it fills in where the config says "auto"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from dsgen.documents.document import Document
from dsgen.documents.hjson import reader
from dsgen.linting import disagreements, statements
from dsgen.linting.model_loads import ModelLoad
from dsgen.linting.sources import Source
from dsgen.linting.statements import FILLED_FROM, Statement
from dsgen.shapes.errors import DsgenError, mistake
from dsgen.targets.hf_trainer import HF_TRAINER

__all__ = ["arguments_of", "check_program", "loads_of", "with_arguments"]

_YAML, _PYTHON = (".yaml", ".yml"), ".py"
_KEY = "deepspeed"  # of a training file, beside its arguments


def arguments_of(path: str) -> tuple[Statement, ...]:
    """What a file of the Trainer's arguments, YAML, JSON or a Python program, says of a DeepSpeed config.

    Raises:
        DsgenError: Unreadable, broken, or without an argument that the Trainer fills in or compares.
    """
    from dsgen.linting import wrapped_configs

    document = _read(path)
    if not isinstance(document.config, Mapping):
        line, what = _broken(document)
        raise mistake(what, must="it must be a map of arguments", where=f"{path}:{line}" if line else path)
    wrapped = wrapped_configs.of(document)
    said = statements.of_training_file(document, wrapped.key or _KEY)
    if not said:
        if (computed := _computed(document)) is not None:
            raise computed
        raise mistake(
            "it has no argument that the Trainer fills into a config, or compares with it",
            must="such as per_device_train_batch_size, learning_rate, bf16 or max_grad_norm",
            where=path,
            code="missing",
        )
    return said


def loads_of(path: str) -> tuple[ModelLoad, ...]:
    """How a Python program loads its model; nothing of another file.

    Raises:
        DsgenError: Unreadable, or no Python.
    """
    if not path.endswith(_PYTHON):
        return ()
    from dsgen.documents.yaml.reader import read_text
    from dsgen.linting.loading_order import loads

    return loads(read_text(Path(path)), path)


def _computed(document: Document) -> DsgenError | None:
    """The error of a program whose arguments are there, but no value of them; None for anything else."""
    if document.kind != "python":
        return None
    from dsgen.linting import python_programs
    from dsgen.linting.rules.texts import listed

    names = [name for name in python_programs.computed_in(document.text, document.name) if name in FILLED_FROM]
    if not names:
        return None
    them = listed(names) if len(names) > 1 else names[0]
    return mistake(
        f"it computes {them} while it runs, and no program is run here",
        must="their values must stand in the text",
        where=document.name,
        todo="Write what the run is told into a YAML file, and name that.",
        code="missing",
    )


def _read(path: str) -> Document:
    from dsgen.documents.yaml.reader import read_text

    text = read_text(Path(path))
    if path.endswith(_PYTHON):
        from dsgen.linting import python_programs

        return python_programs.document(text, path)
    if path.lower().endswith(_YAML):
        from dsgen.documents.yaml import documents

        return documents.read(text, path)
    return reader.read(text, path)


def check_program(target: str, path: str) -> None:
    """Refuse arguments of the Trainer for a config that another program hands over.

    Raises:
        DsgenError: Another program.
    """
    if target != HF_TRAINER.name:
        raise mistake(
            f"the config is handed over by {target}",
            must=f"the arguments of a file are those of {HF_TRAINER.title}",
            where=path,
            todo=f"Say --target {HF_TRAINER.name}, or leave --args away.",
            code="contradiction",
        )


def with_arguments(source: Source, said: Sequence[Statement], loads: tuple[ModelLoad, ...] = ()) -> Source:
    """A config that arguments settle: its autos have their values, and what differs is a fault; read again, too.

    Args:
        source: The config.
        said: What the arguments say of it.
        loads: How their program loads its model.
    """

    def judged(document: Document) -> Document:
        faults = tuple(disagreements.in_config(document, said, source.target))
        return attrs.evolve(document, faults=(*document.faults, *faults))

    def read(text: str, name: str) -> Document:
        return judged(source.read(text, name))

    told = {**source.told, **statements.settles(said)}
    return attrs.evolve(source, document=judged(source.document), read=read, told=told, loads=loads)


def _broken(document: Document) -> tuple[int | None, str]:
    """Line and cause of what cannot be read as a map."""
    for _, fault in document.faults:
        return (document.position(fault.span.start)[0] if fault.span else None), fault.message
    return None, "it is no map"
