"""The one reader of a config that a person names: JSON, HJSON, or YAML of Accelerate and of training programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from dsgen.deepspeed import surface
from dsgen.documents.document import Document
from dsgen.documents.misreadings import misread
from dsgen.linting import sources, wrapped_configs
from dsgen.linting.sources import STDIN, Source
from dsgen.shapes.errors import DsgenError, mistake
from dsgen.shapes.findings import Fault

__all__ = ["for_deepspeed", "place", "read"]

_PYTHON = ".py"


def read(path: str, *, target: str | None = None, bare: bool = False) -> Source:
    """The config that a file is, or that it names, with the place of every key.

    Args:
        path: The file; - is the standard input.
        target: The program that loads it; by default what a file that names it says, else a guess.
        bare: Whether a map without any key of DeepSpeed's is taken too.

    Raises:
        DsgenError: Unreadable, broken, a key twice, or no config; with line and column.
    """
    if path != "-" and Path(path).is_dir():
        raise mistake("it is a folder", must="a config is a file", where=path)
    if path.endswith(_PYTHON):
        raise mistake(
            "it is a Python program",
            must="a config is JSON, HJSON or YAML",
            where=path,
            todo="Name the config that it gives its trainer; beside one, dsgen memory, plan, lint, effective and prove "
            f"take --args {path}.",
        )
    listed = list(sources.documents([path], target=target))
    held = [item for item in listed if isinstance(item.document.config, Mapping) and item.document.kind != "launch"]
    if held and (bare or _has_ours(held[0].document.config)):
        for rule, fault in held[0].document.faults:
            if rule == "duplicate-key":
                raise _at(held[0].document, fault, must="a key stands once: DeepSpeed refuses duplicates")
        return _with_arguments(held[0])
    for item, fault in _fatal(listed) if not held else ():
        raise _at(item.document, fault)
    raise _none(path, listed, held)


def _with_arguments(source: Source) -> Source:
    """A config that stands in a file of its program's arguments, with that file as the one that names it."""
    whole = source.document.whole
    inside = whole is not None and source.of is None and wrapped_configs.is_training(whole.config)
    return attrs.evolve(source, of=source.document.name) if inside else source


def for_deepspeed(source: Source) -> dict[str, Any]:
    """The config as DeepSpeed itself takes it from the file.

    Raises:
        DsgenError: The file is YAML, which DeepSpeed reads as something else.
    """
    document = source.document
    if (said := misread(document)) is not None:
        raise mistake(
            "it is YAML, which DeepSpeed does not read",
            must=said,
            where=document.name,
            todo="Write it as JSON or HJSON: dsgen render --format hjson keeps the comments.",
        )
    return dict(document.config)


def place(document: Document, path: str) -> str:
    """Where a key stands in its file: ds.json:7."""
    return f"{document.name}:{document.position(document.span(path).start)[0]}"


def _has_ours(config: Mapping[str, Any]) -> bool:
    """Whether at least one key is DeepSpeed's."""
    known = surface.load()
    return any(known.key(str(name)) is not None or name in known.sections for name in config)


def _fatal(sources: list[Source]) -> Iterator[tuple[Source, Fault]]:
    """What is wrong with the text of those that are no map."""
    broken = (item for item in sources if not isinstance(item.document.config, Mapping))
    return ((item, fault) for item in broken for _, fault in item.document.faults)


def _at(document: Document, fault: Fault, must: str | None = None) -> DsgenError:
    """The error of a fault in the text; of a file that cannot be opened it has no place."""
    if not document.text:
        return mistake(fault.message, must=must, where=document.name)
    span = fault.span or document.span(fault.path, fault.on)
    line, column = document.position(span.start)
    return mistake(fault.message, must=must, where=f"{document.name}:{line}:{column}")


def _none(path: str, sources: list[Source], held: list[Source]) -> DsgenError:
    if held and "{" in held[0].document.text and not held[0].document.config:
        return mistake(
            "it is empty: {}",
            must="DeepSpeed takes its defaults for all other keys, and stops where there is no batch size: it needs "
            "train_batch_size or train_micro_batch_size_per_gpu",
            where=STDIN if path == "-" else path,
            todo='Write such as {"train_micro_batch_size_per_gpu": 1}.',
        )
    whole = next((item.document.whole.config for item in sources if item.document.whole is not None), None)
    if not held and (known := _of_a_program(path, whole)) is not None:
        return known
    if not held and sources and sources[0].document.kind == "launch" and sources[0].document.text.strip():
        return mistake(
            "it is a script, and names no DeepSpeed config that is there",
            must="a command in it must start a program with one, such as --deepspeed ds_config.json",
            where=path,
            todo="Of a program that makes its own config say the run by options: --zero-stage 2 --micro-batch 1.",
            code="missing",
        )
    empty = not (sources and sources[0].document.text.strip()) or bool(held and not held[0].document.config)
    model = bool(held and "model_type" in held[0].document.config)
    return mistake(
        "it is empty" if empty else "it has no key that DeepSpeed reads",
        must="it must be or name a map of DeepSpeed's keys",
        where=STDIN if path == "-" else path,
        todo="It looks like a model's config.json: name that with --model." if model else None,
    )


def _of_a_program(path: str, config: Any) -> DsgenError | None:
    """The error of a file that another program reads, and that neither holds a DeepSpeed config nor names one."""
    from dsgen.linting import wrapped_configs  # it loads ruamel, which a JSON file does not need

    if wrapped_configs.is_training(config):
        return mistake(
            "it is a training program's file, and names no DeepSpeed config",
            must="it must be or name a map of DeepSpeed's keys",
            where=path,
            todo=f"dsgen plan and memory take --args {path} alone; with a config: --config ds.json --args {path}.",
            code="missing",
        )
    if isinstance(config, Mapping) and isinstance(kind := config.get("distributed_type"), str):
        return mistake(
            f"it is Accelerate's file for {kind}, and has no DeepSpeed config",
            must="its distributed_type must be DEEPSPEED",
            where=path,
            todo="dsgen render --target accelerate -o ds_config.json writes both anew, for --hw and --model.",
            code="missing",
        )
    return None
