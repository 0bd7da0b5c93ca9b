"""The files of a job, followed from the one that starts it: script, program, arguments or YAML, DeepSpeed config.

A Python program that a script starts is read where it makes the Trainer's arguments itself, and is given none of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from dsgen.documents.document import Document
from dsgen.documents.hjson import reader
from dsgen.linting import accelerate_files, launch_files, statements, wrapped_configs
from dsgen.linting.launch_files import Passed, Started
from dsgen.linting.statements import FILLED_FROM, LAUNCHED_DTYPE, WORLD, Statement
from dsgen.shapes.errors import DsgenError
from dsgen.shapes.findings import Fault, Severity

__all__ = ["Told", "Use", "against_job", "is_program_json", "told"]

_YAML = (".yaml", ".yml")
_CONFIG = (".json", ".hjson", ".config")
_FILES = (*_YAML, ".json")  # of arguments
_OWN = ("llamafactory-cli", "lmf", "axolotl")  # what they are given without an option is a file of arguments
_PROGRAM, _NAMING = ".py", "deepspeed"  # a program's ending, and its argument that names a config
_MAKES = re.compile(r"\b(?:\w*TrainingArguments|[A-Z]\w*Config)\(")  # arguments that a program makes itself
_DEEPEST = 3  # files that name one another: script, training file, Accelerate's
# One of these has a JSON file of arguments beside its key `deepspeed`.
_ARGUMENTS = frozenset(("output_dir", "model_name_or_path", "per_device_train_batch_size", "learning_rate", "model"))


@attrs.frozen(kw_only=True, eq=False)
class Use:
    """One training that uses a config.

    Attributes:
        config: The file of the config.
        target: The program that hands it over.
        ranks: GPUs in all, where the launcher is told.
        said: What the file that starts it says of the config.
    """

    config: Path
    target: str | None
    ranks: int | None
    said: tuple[Statement, ...]


@attrs.frozen(kw_only=True, eq=False)
class Told:
    """What one file says of others.

    Attributes:
        uses: The configs it leads to, with what it says of them.
        files: Training files and Accelerate's that it names.
        missing: The names in it that no file has.
        ranks: GPUs in all that its command line says, which those of the files do not change.
        names: It has the name of a config, be that there or not.
    """

    uses: tuple[Use, ...] = ()
    files: tuple[Path, ...] = ()
    missing: tuple[Fault, ...] = ()
    ranks: int | None = None
    names: bool = False


def is_program_json(config: Any) -> bool:
    """Whether a JSON file is Accelerate's, or has a training program's arguments with a config or the name of one."""
    if wrapped_configs.is_accelerates(config):
        return True
    if not isinstance(config, Mapping) or _ARGUMENTS.isdisjoint(config):
        return False
    inner = config.get("deepspeed")
    named = isinstance(inner, str) and inner.lower().endswith(_CONFIG)
    return named or (isinstance(inner, Mapping) and not wrapped_configs.OURS.isdisjoint(inner))


def told(text: str, name: str, open_file: Callable[[Path], str | None]) -> Told:
    """What a file says of others; nothing is raised.

    Args:
        text: The file as text.
        name: Its path.
        open_file: Gives the text of another file; None where it cannot be read.
    """
    return _told(text, name, open_file, _DEEPEST)


def against_job(document: Document, ranks: int | None) -> Iterator[Fault]:
    """Where a launcher is told another number of GPUs than the job is for."""
    if ranks is None:
        return
    whole = document.whole or document
    said: list[Statement] = []
    if document.kind == "launch":
        for start in launch_files.starts(document.text, document.name):
            said += statements.of_program(start, document)
    elif accelerate_files.is_accelerate(whole.config) and (count := accelerate_files.processes(whole.config)):
        said += statements.of_accelerate(whole, count)
    for one in said:
        if one.key == WORLD and one.value != ranks:
            message = f"{one.word} makes {one.value} GPUs, and the scenario is for {ranks}"
            yield Fault(one.path or one.word, message, severity=Severity.WARNING, span=one.span)


def _told(text: str, name: str, open_file: Callable[[Path], str | None], depth: int) -> Told:
    last = name.lower()
    if last.endswith(_YAML):
        wrapped = wrapped_configs.read(text, name)
        return _of_wrapped(wrapped) if wrapped.wraps else Told()
    if last.endswith(_CONFIG):
        document = reader.read(text, name)
        return _of_wrapped(wrapped_configs.of(document)) if is_program_json(document.config) else Told()
    document = launch_files.read(text, name)
    starts = launch_files.starts(text, name)
    told = [_of_program(one, document, open_file, depth) for one in starts]
    ranks = {one.ranks[0] if one.ranks is not None else None for one in starts}
    return Told(
        ranks=ranks.pop() if len(ranks) == 1 else None,
        uses=tuple(use for one in told for use in one.uses),
        files=tuple(dict.fromkeys(file for one in told for file in one.files)),
        missing=tuple(fault for one in told for fault in one.missing),
    )


def _of_wrapped(wrapped: wrapped_configs.Wrapped) -> Told:
    whole = wrapped.document.whole or wrapped.document
    said = statements.of_training_file(whole, wrapped.key) if wrapped.key and wrapped.target is not None else ()
    if not wrapped.key:
        said = wrapped.said
    uses = tuple(Use(config=file, target=wrapped.target, ranks=wrapped.world_size, said=said) for file in wrapped.files)
    return Told(uses=uses, names=bool(wrapped.key))


def _of_program(start: Started, document: Document, open_file: Callable[[Path], str | None], depth: int) -> Told:
    """What one command leads to: its own config, or that of the files it names."""
    said = statements.of_program(start, document)
    ranks = start.ranks[0] if start.ranks is not None else None
    places = tuple(_folders(document))
    uses: list[Use] = []
    files: list[Path] = []
    missing: list[Fault] = []
    own, named, brings = _own_arguments(start, document, open_file, places)
    if named is not None:
        uses.append(Use(config=named, target="hf-trainer", ranks=ranks, said=_joined(said, own)))
    for argument, target in _configs(start):
        file = wrapped_configs.named(argument.value or "", document.name, places)
        if file is not None:
            uses.append(Use(config=file, target=target, ranks=ranks, said=said))
        elif _is_plain(argument, document, places):
            missing.append(_missing(argument))
    other = any(one.name == _NAMING for one in start.arguments)  # comes before what a file of arguments names
    for argument in _files(start):
        file = wrapped_configs.named(argument.value or "", document.name, places)
        if file is None:
            if (argument.name == "config_file" or start.launcher in _OWN) and _is_plain(argument, document, places):
                missing.append(_missing(argument))
            continue
        text = open_file(file) if depth > 1 else None
        inner = _told(text, _shown(file), open_file, depth - 1) if text is not None else Told()
        if brings and argument.name == "config_file":  # which says no more than on how many GPUs
            count = wrapped_configs.read(text, _shown(file)).world_size if text is not None else None
            uses = [attrs.evolve(use, ranks=use.ranks or count) for use in uses]
            continue
        if inner.uses or (inner.names and not other) or argument.name:
            files.append(file)
        if own and text is not None and argument.name == "config_file":  # the Trainer compares what is made of it
            uses.append(Use(config=file, target="hf-trainer", ranks=ranks, said=own))
        for use in inner.uses:
            program = "hf-trainer" if own else use.target
            uses.append(
                attrs.evolve(use, target=program, ranks=ranks or use.ranks, said=_joined(_joined(said, own), use.said))
            )
    return Told(uses=tuple(uses), files=tuple(files), missing=tuple(missing))


def _own_arguments(
    start: Started, document: Document, open_file: Callable[[Path], str | None], places: Iterable[Path]
) -> tuple[tuple[Statement, ...], Path | None, bool]:
    """What a Python program says of a config by the Trainer's arguments that it makes itself, the config that it names,
    and whether it brings one, in whatever way, so that the Trainer takes no other; nothing of one that is given such
    arguments, or a file of them, which it may read."""
    given = any(one.name in (*FILLED_FROM, _NAMING, "config") for one in start.arguments) or start.files
    if given or not start.program.endswith(_PROGRAM):
        return (), None, False
    file = wrapped_configs.named(start.program, document.name, places)
    text = open_file(file) if file is not None else None
    if file is None or text is None or _MAKES.search(text) is None:
        return (), None, False
    from dsgen.linting import python_programs

    try:
        program = python_programs.document(text, _shown(file))
    except DsgenError:  # no Python, or several trainings
        return (), None, False
    config = program.config if isinstance(program.config, Mapping) else {}
    said, name = statements.of_training_file(program, _NAMING), config.get(_NAMING)
    brings = _NAMING in program.places and bool(config.get(_NAMING, True))
    if not isinstance(name, str) or not name.lower().endswith(_CONFIG):
        return said, None, brings
    return said, wrapped_configs.named(name, program.name, places), brings


def _joined(said: Iterable[Statement], others: Iterable[Statement]) -> tuple[Statement, ...]:
    """What a command says, and of what a file says beside it the rest; of a dtype the launcher says the last word."""
    others = tuple(others)
    ours = [one for one in said if not (_is_launched_dtype(one) and _says_dtype(others))]
    own = {one.key for one in ours}
    return (*ours, *(one for one in others if one.key not in own))


def _is_launched_dtype(one: Statement) -> bool:
    return one.word.lstrip("-").replace("-", "_") == LAUNCHED_DTYPE


def _says_dtype(said: Iterable[Statement]) -> bool:
    return any(one.key in ("bf16.enabled", "fp16.enabled") for one in said)


def _configs(start: Started) -> Iterator[tuple[Passed, str | None]]:
    """The arguments that name a DeepSpeed config, and the program that hands it over."""
    for argument in start.arguments:
        if argument.name == "deepspeed" and (argument.value or "").lower().endswith(_CONFIG):
            yield argument, "hf-trainer"
        elif argument.name == "deepspeed_config" and argument.value and "." in Path(argument.value).name:
            yield argument, "deepspeed"
    option = start.options.get("deepspeed_config_file") if start.launcher == "accelerate" else None
    if option is not None and option.value not in (None, "none"):
        yield option, "accelerate"


def _files(start: Started) -> Iterator[Passed]:
    """The arguments that name a file of arguments, or Accelerate's config file."""
    if start.launcher == "accelerate" and (option := start.options.get("config_file")) is not None:
        yield option
    yield from (one for one in start.files if (one.value or "").lower().endswith(_FILES))
    yield from (one for one in start.arguments if one.name == "config" and (one.value or "").lower().endswith(_FILES))


def _folders(document: Document) -> Iterator[Path]:
    """The folders that a script goes to, as far as its text says them: from its own folder, and from here."""
    for command in launch_files.script_commands(document.text, document.name):
        if command.words[0].text in ("cd", "pushd") and len(command.words) > 1 and "$" not in command.words[1].text:
            yield Path(document.name).absolute().parent / command.words[1].text
            yield Path(command.words[1].text)


def _is_plain(argument: Passed, document: Document, places: Iterable[Path]) -> bool:
    """Whether a name is meant as it stands: no part is filled in, and the script neither makes nor fetches the file."""
    value = argument.value or ""
    if re.search(r"[$`{}<>*]", value) or os.path.isabs(value):  # noqa: PTH117 - a path of another machine
        return False
    text = document.text[: argument.span.start] + document.text[argument.span.end :]
    made = rf"(?:>|\b(?:tee|cp|mv|ln)\b|-[oO])[^\n]*{re.escape(Path(value).name)}"
    return not _goes_elsewhere(document) and re.search(made, text) is None


def _goes_elsewhere(document: Document) -> bool:
    """Whether a script goes to a folder that only its run knows; `cd "$(dirname "$0")"` is its own."""
    return any(
        "$" in command.words[1].text and "dirname" not in command.words[1].text
        for command in launch_files.script_commands(document.text, document.name)
        if command.words[0].text in ("cd", "pushd") and len(command.words) > 1
    )


def _missing(argument: Passed) -> Fault:
    said = f"{argument.value} is not there, seen from here, from this file's folder and from the folders above it"
    return Fault(argument.word, said, span=argument.span)


def _shown(path: Path) -> str:
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
