"""What the arguments of a training program are where they stand: in a file, a Python program or a launch script."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dsgen.frameworks.job_files import yaml_value
from dsgen.linting.launch_files import Started
from dsgen.linting.model_loads import ModelLoad
from dsgen.shapes.errors import DsgenError, mistake

__all__ = [
    "FILES",
    "SCRIPTS",
    "computed_of",
    "keywords_of",
    "launched_on",
    "lines_of",
    "passed",
    "said_of_device_map",
    "said_of_loading",
    "tops_of",
    "values_of",
    "yaml_of",
]

_PLAIN, _PYTHON = (".yaml", ".yml"), ".py"
_YAML = (*_PLAIN, ".json")
FILES, SCRIPTS = (*_YAML, _PYTHON), (".sh", ".bash", ".slurm", ".sbatch")  # endings of their names
_WHOLE, _FRACTION = re.compile(r"-?[0-9]{1,18}"), re.compile(r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?")
# A comment of JavaScript's in JSON, once its strings are taken out; and how JSON begins, or a comment before it.
_COMMENT, _STRINGS, _OPENS = re.compile(r"//|/\*"), re.compile(r'"(?:[^"\\\n]|\\.)*"'), ("{", "//", "/*")
_INLINE = "deepspeed"  # the section of a training file that holds a config
_OF_MODEL = ("attn_implementation",)  # what a program says of its model beside the arguments that it is told
_OF_TRAINER = "per_device_train_batch_size"  # an argument of the Trainer's that nearly every script gives


def passed(path: str, missing: bool = True) -> tuple[dict[str, Any], str]:
    """The arguments of the training that a launch script starts, and the file that has most of them: the script, the
    one it names (run_sft.py recipe.yaml, --config recipe.yaml), or the Python program that it starts, where that makes
    its arguments itself; none where it starts several that differ.

    Args:
        path: The script.
        missing: It may be gone since it was looked at, or be no text: then it says nothing.

    Raises:
        DsgenError: It may not, and is.
    """
    from dsgen.documents.yaml.reader import read_text
    from dsgen.linting import launch_files

    try:
        _check_there(path)
        text = read_text(Path(path))
    except DsgenError:
        if missing:
            return {}, path
        raise
    told = [_of_start(start, path) for start in launch_files.starts(text, path)]
    told = [(values, file) for values, file in told if _OF_TRAINER in values]
    return told[0] if told and all(one == told[0] for one in told) else ({}, path)


def _check_there(path: str) -> None:
    """Refuse what is no file; what else may be wrong with it, its reader says.

    Raises:
        DsgenError: None there, or a folder.
    """
    if not Path(path).is_file():
        raise mistake(
            "it is a folder" if Path(path).is_dir() else "no such file",
            must="arguments are a training program's, in YAML, JSON, its Python or the script that starts it",
            where=path,
            todo="Check the path.",
            code="unreadable",
        )


def _of_start(start: Started, path: str) -> tuple[dict[str, Any], str]:
    """What one command of a script tells its program: the words behind it come before those of a file."""
    from dsgen.linting.wrapped_configs import named

    words = [*start.files, *(one for one in start.arguments if one.name == "config")]
    files = [named(one.value or "", path) for one in words if (one.value or "").endswith(_YAML)]
    file = next((str(one) for one in files if one is not None), None)
    said = {one.name: _typed(one.value) for one in start.arguments}
    if file is not None:
        return {**values_of(file), **said}, file
    program = named(start.program, path) if start.program.endswith(_PYTHON) else None
    try:
        own = values_of(str(program)) if program is not None else {}
    except DsgenError:  # no Python, or several trainings
        own = {}
    if _OF_TRAINER in own and _OF_TRAINER not in said:
        return {**own, **said}, str(program)
    return {**{name: own[name] for name in _OF_MODEL if name in own}, **said}, path


def launched_on(path: str) -> dict[str, int]:
    """The GPUs on which a launch script starts its trainings, and the nodes where it names several, by the fields of a
    scenario; nothing where it leaves them open, or they differ."""
    from dsgen.documents.yaml.reader import read_text
    from dsgen.linting import followed, launch_files

    if not path.endswith(SCRIPTS):
        return {}

    def opened(file: Path) -> str | None:
        try:
            return read_text(file)
        except DsgenError:
            return None

    text = read_text(Path(path))
    told = followed.told(text, path, opened)
    ranks = {told.ranks, *(use.ranks for use in told.uses)} - {None}
    nodes = {start.nodes or 1 for start in launch_files.starts(text, path)}
    if len(ranks) != 1:
        return {}
    gpus, count = ranks.pop() or 1, nodes.pop() if len(nodes) == 1 else 1
    return {"gpus": gpus, **({"nodes": count} if count > 1 and gpus % count == 0 else {})}


def values_of(path: str) -> dict[str, Any]:
    """Every argument of a file by its name, whatever section it stands in."""
    from dsgen.documents.yaml.reader import read_text

    _check_there(path)
    if path.endswith(_PYTHON):
        from dsgen.linting.python_programs import never_evaluates, told_by  # most files are no programs

        text = read_text(Path(path))
        return {**({"eval_strategy": "no"} if never_evaluates(text, path) else {}), **told_by(text, path)}
    told = (entry for entry in _entries(path) if _is_argument(entry.path))
    return {entry.path.rpartition(".")[2]: entry.value for entry in told}


def _entries(path: str) -> list[Any]:
    """The entries of a file.

    Raises:
        DsgenError: No YAML and no JSON; of JSON with comments, which no framework reads, that it has some.
    """
    from dsgen.documents.yaml.reader import entries, read_text

    text = read_text(Path(path))
    try:
        return list(entries(text, path))
    except DsgenError:
        mark = _COMMENT.search(_STRINGS.sub(lambda one: " " * len(one[0]), text))
        if mark is None or not text.lstrip().startswith(_OPENS):
            raise
    raise mistake(
        "it is JSON with comments",
        must="transformers reads arguments with Python's json and with YAML, and neither takes // or /* */",
        where=f"{path}:{text.count(chr(10), 0, mark.start()) + 1}",
        todo="Take the comments out, or begin them with # and name the file .yaml.",
        code="unreadable",
    )


def tops_of(path: str, values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The names at the top of a file -> the arguments that they hold; a program and a script have but those.

    Args:
        path: The file.
        values: Every argument of it.
    """

    if not path.endswith(_YAML):
        return {name: {name: value} for name, value in values.items()}
    tops: dict[str, dict[str, Any]] = {}
    for entry in filter(lambda one: _is_argument(one.path), _entries(path)):
        tops.setdefault(entry.path.partition(".")[0], {})[entry.path.rpartition(".")[2]] = entry.value
    return tops


def lines_of(path: str) -> dict[str, int]:
    """The line of a file in which each argument stands; of a script none, whose commands are cut into several."""
    from dsgen.documents.yaml.reader import read_text

    if path.endswith(SCRIPTS):
        return {}
    if path.endswith(_PYTHON):
        from dsgen.linting import python_programs

        program = python_programs.document(read_text(Path(path)), path)
        return {name: program.position(program.span(name).start)[0] for name in program.places}
    told = (entry for entry in _entries(path) if _is_argument(entry.path))
    return {entry.path.rpartition(".")[2]: entry.line for entry in told}


def computed_of(path: str) -> tuple[str, ...]:
    """The arguments of a Python program that are computed there; of one that a script starts, its attention."""
    from dsgen.documents.yaml.reader import read_text

    if path.endswith(SCRIPTS):
        return _OF_MODEL if any(map(_chooses_a_kernel, _programs(path))) else ()
    if not path.endswith(_PYTHON):
        return ()
    from dsgen.linting.python_programs import computed_in

    return computed_in(read_text(Path(path)), path)


def _programs(path: str) -> Iterator[Path]:
    """The Python programs that a launch script starts, and that are there."""
    from dsgen.documents.yaml.reader import read_text
    from dsgen.linting import launch_files
    from dsgen.linting.wrapped_configs import named

    for start in launch_files.starts(read_text(Path(path)), path):
        program = named(start.program, path) if start.program.endswith(_PYTHON) else None
        if program is not None:
            yield program


def _chooses_a_kernel(program: Path) -> bool:
    from dsgen.documents.yaml.reader import read_text
    from dsgen.linting.program_attention import names_a_kernel

    try:
        return names_a_kernel(read_text(program), str(program))
    except DsgenError:  # no Python
        return False


def keywords_of(path: str) -> tuple[str, ...]:
    """The keywords by which a Python program makes the Trainer's arguments; none of any other file."""
    if not path.endswith(_PYTHON):
        return ()
    from dsgen.documents.yaml.reader import read_text
    from dsgen.linting.python_programs import keywords_in

    return keywords_in(read_text(Path(path)), path)


def said_of_loading(loads: Iterable[ModelLoad]) -> str | None:
    """That a program loads its model before it makes its arguments, and what follows at stage 3; None: it does not."""
    load = next((one for one in loads if one.after is not None and not one.quantized), None)
    if load is None:
        return None
    return (
        f"{load.file} loads its model (line {load.line}) before it makes its arguments (line {load.after}): at stage 3 "
        "no zero.Init makes it then, and each rank loads it whole; make the arguments first"
    )


def said_of_device_map(loads: Iterable[ModelLoad]) -> str | None:
    """That a program tells from_pretrained a device_map, which nothing takes at stage 3; None: it does not."""
    load = next((one for one in loads if one.known is not None and one.device_map is not None), None)
    if load is None:
        return None
    return (
        f"{load.file}:{load.line} tells from_pretrained device_map={load.device_map}: at stage 3 it stops there "
        "(ValueError); leave it away, or stay below stage 3"
    )


def yaml_of(path: str, values: Mapping[str, Any]) -> str:
    """The arguments as YAML, one under the other: a YAML file as it is, of others those that are text or numbers."""
    from dsgen.documents.yaml.reader import read_text

    if path.endswith(_PLAIN):
        return read_text(Path(path))
    plain = {name: value for name, value in values.items() if isinstance(value, (str, int, float))}
    return "".join(f"{name}: {yaml_value(value)}\n" for name, value in plain.items())


def _is_argument(path: str) -> bool:
    """Whether a path of a file is none of the config that stands in it."""
    return _INLINE not in path.split(".")[:-1]


def _typed(text: str | None) -> Any:
    """An argument as argparse or the Trainer's parser reads it: a bare switch is on."""
    if text is None or text.lower() in ("true", "false"):
        return text is None or text.lower() == "true"
    kind = int if _WHOLE.fullmatch(text) else float if _FRACTION.fullmatch(text) else str
    return kind(text)
