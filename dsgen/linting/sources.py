"""What a person names on the command line -> the documents to lint: files, folders, globs, the standard input."""

from __future__ import annotations

import codecs
import glob
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from dsgen import targets
from dsgen.deepspeed import surface
from dsgen.documents.document import Document
from dsgen.documents.hjson import reader
from dsgen.linting import launch_files

if TYPE_CHECKING:
    from dsgen.linting.followed import Told, Use
    from dsgen.linting.model_loads import ModelLoad
    from dsgen.linting.statements import Statement
    from dsgen.linting.wrapped_configs import Wrapped

__all__ = ["STDIN", "Source", "documents", "inside", "named_by"]

STDIN = "<stdin>"

_JSON = (".json", ".hjson")
_YAML = (".yaml", ".yml")
_SKIPPED = frozenset(
    (".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv", "site-packages", ".tox", ".nox")
)
_ENVIRONMENT = "pyvenv.cfg"  # in the folder of every virtual environment
# Words one of which any config has; a file of a folder without them is not read further.
_HINT = re.compile(r"zero_optimization|train_(?:micro_)?batch_size|deepspeed|\b(?:bf16|fp16|optimizer)\b", re.I)
_STRONG = ("zero_optimization", "train_micro_batch_size_per_gpu")
_PARTS = {"bf16": "enabled", "fp16": "enabled", "optimizer": "params", "scheduler": "params"}  # section -> key in it
_LIKE = 0.8  # difflib's ratio from which a name is a misspelt other one: zero_optimisation has 0.94, training 0.56
_A_FILE = re.compile(r"\.(?:json|hjson|ya?ml|config|py)\b", re.I)  # a file that names another one; reading YAML is slow
_DEEPSPEED = re.compile(r"deepspeed", re.I)
_STARTS = re.compile(r"deepspeed|accelerate|torchrun|llamafactory|axolotl|swift|python", re.I)  # starts a training
# What a JSON file of arguments has, the path of a config or the config itself; and what one of Accelerate's has.
_JSON_ARGUMENT = re.compile(r'"deepspeed"\s*:\s*(?:"[^"\n]+\.(?:json|hjson|config)"|\{)|"distributed_type"')
_DESCRIPTORS = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")  # pipes that a shell puts in a file's place


@attrs.frozen(kw_only=True, eq=False)
class Source:
    """One document to lint.

    Attributes:
        document: The file as its reader read it.
        target: The program that loads it: the one asked for, else what the file that names it says, else a guess.
        guessed: Whether it is a guess.
        of: The file that names this one.
        world_size: The number of ranks that the file, or the one that names it, fixes.
        read: Makes such a document of a new text and the document's name.
        told: DeepSpeed's key -> what every training that uses the config fills in where it says "auto".
        beside: What every training that uses it says of zero.Init and of an evaluation, as `statements.beside`.
        loads: How the program loads its model.
    """

    document: Document
    target: str
    guessed: bool = False
    of: str | None = None
    world_size: int | None = None
    read: Callable[[str, str], Document] = reader.read
    told: Mapping[str, Any] = attrs.field(factory=dict)
    beside: Mapping[str, Statement] = attrs.field(factory=dict)
    loads: tuple[ModelLoad, ...] = ()


@attrs.frozen
class _File:
    """A path to read; whether a person named it, and the file and program that do."""

    path: str
    named: bool = True
    of: str | None = None
    target: str | None = None
    world_size: int | None = None


@attrs.frozen(eq=False)
class _Claims:
    """What files say of others, by real path: how each is named, the trainings that use a config, what a file names."""

    files: dict[str, _File] = attrs.field(factory=dict)
    uses: dict[str, list[Use]] = attrs.field(factory=dict)
    told: dict[str, Told] = attrs.field(factory=dict)


def documents(paths: Sequence[str], *, target: str | None = None, stdin_name: str | None = None) -> Iterator[Source]:
    """The documents behind some paths, each file once, a file that another names right behind it.

    A path named by a person is always given, whatever it looks like; one that cannot be read as a document without
    text and with one fault. Of a folder, and the folders in it, those files are given that look like a DeepSpeed
    config, hold or name one, or are launch scripts that speak of DeepSpeed.

    Args:
        paths: Files, folders, glob patterns, or "-" for the standard input.
        target: The program asked for; it wins over what a file says.
        stdin_name: The standard input's as a file, whose ending says how it is read; its document is "<stdin>".
    """
    seen: set[str] = set()
    passed: set[str] = set()  # files of a folder that are none of ours; a person may still name one
    waiting = list(_expanded(paths))[::-1]
    claims = _claimed(waiting)
    while waiting:
        file = waiting.pop()
        place = _real(file.path) if file.path != "-" else file.path
        if place in seen or (place in passed and not file.named):
            continue
        file = claims.files.get(place, file) if file.of is None else file
        opened = _source(file, target, stdin_name)
        (passed if opened is None else seen).add(place)
        if opened is not None:
            source, named = opened
            yield _in_its_job(source, place, claims, target)
            told = claims.told.get(place)
            named = (*named, *told.files, *(use.config for use in told.uses)) if told is not None else named
            asked = None if source.guessed else source.target
            known = _File("", True, source.document.name, asked, source.world_size)
            for one in reversed(named):
                claim = claims.files.get(_real(str(one)), known) if told is not None else known
                waiting.append(attrs.evolve(claim, path=_shown(one), of=source.document.name))


def named_by(path: str) -> tuple[Path, ...]:
    """The DeepSpeed configs that a file names and that are there: a launch script's, a training file's."""
    told = _claimed([_File(path)]).told.get(_real(path))
    return tuple(use.config for use in told.uses) if told is not None else ()


def _claimed(files: Iterable[_File]) -> _Claims:
    """What these files say of others, so that each is linted for its program wherever it stands among them."""
    claims = _Claims()
    waiting = [file.path for file in files]
    for path in waiting:
        place = _real(path)
        text = _text(path, path) if path != "-" and _is_known(path) and place not in claims.told else ""
        if not isinstance(text, str) or not _may_name(path, text):
            continue
        from dsgen.linting import followed  # it may load ruamel, which a JSON config does not need

        told = claims.told[place] = followed.told(text, path, _opened)
        for use in told.uses:
            claims.uses.setdefault(_real(str(use.config)), []).append(use)
            claim = _File(_shown(use.config), True, path, use.target, use.ranks)
            claims.files.setdefault(_real(str(use.config)), claim)
        for file in told.files:
            claims.files.setdefault(_real(str(file)), _File(_shown(file), True, path, None, told.ranks))
            waiting.append(_shown(file))
    for config, uses in claims.uses.items():  # where trainings differ in their GPUs, no number is the config's
        ranks = {use.ranks for use in uses if use.ranks is not None}
        one = ranks.pop() if len(ranks) == 1 else None
        claims.files[config] = attrs.evolve(claims.files[config], world_size=one)
    return claims


def _may_name(path: str, text: str) -> bool:
    """Whether a file can name a DeepSpeed config at all; most cannot, and reading them takes long."""
    if path.lower().endswith(_JSON):
        return _JSON_ARGUMENT.search(text) is not None
    return _A_FILE.search(text) is not None and _STARTS.search(text) is not None


def _opened(path: Path) -> str | None:
    """The text of a file that another one names."""
    text = _text(str(path), str(path))
    return text if isinstance(text, str) else None


def _in_its_job(source: Source, place: str, claims: _Claims, target: str | None) -> Source:
    """A file with what the other files of its job say otherwise; read again, it is compared again."""
    uses, stating = claims.uses.get(place, []), place in claims.told
    if not uses and not stating:
        return source
    from dsgen.linting import disagreements, followed, statements

    def judged(document: Document) -> Document:
        noted = [fault for use in uses for fault in disagreements.in_config(document, use.said, source.target)]
        told = followed.told(document.text, document.name, _opened) if stating else followed.Told()
        noted += [("named-config-missing", fault) for fault in told.missing]
        for use in told.uses:
            config = reader.read(_opened(use.config) or "", _shown(use.config))
            program = target or use.target or source.target
            noted += disagreements.in_statements(use.said, config, program, document.name)
        new = [item for number, item in enumerate(noted) if item not in noted[:number]]
        return attrs.evolve(document, faults=(*document.faults, *new))

    def read(text: str, name: str) -> Document:
        return judged(source.read(text, name))

    every = [use.said for use in uses]
    settled = {**source.told, **statements.settles_all(every)}
    beside = {**statements.beside(every), **source.beside}
    return attrs.evolve(source, document=judged(source.document), read=read, told=settled, beside=beside)


def _source(file: _File, target: str | None, stdin_name: str | None) -> tuple[Source, Sequence[Path]] | None:
    """The source of one file and the files it names; None for a file of a folder that is none of ours."""
    name = STDIN if file.path == "-" else file.path
    kind = (stdin_name or STDIN) if file.path == "-" else file.path
    text = _text(file.path, name)
    if isinstance(text, Document):
        return (_given(file, target, document=text), ()) if file.named or _was_to_be_one(text) else None
    if not file.named and _HINT.search(text) is None:
        return None
    if kind.lower().endswith(_YAML):
        return _yaml(file, target, text, name)
    if launch_files.is_launch_file(kind):
        ours = file.named or _DEEPSPEED.search(text)
        return (
            (_given(file, target, document=launch_files.read(text, name), read=launch_files.read), ()) if ours else None
        )
    document = reader.read(text, name)
    if _JSON_ARGUMENT.search(text) is not None:
        from dsgen.linting import followed, wrapped_configs

        if followed.is_program_json(document.config):
            wrapped = wrapped_configs.of(document)
            wrapped = wrapped if wrapped.wraps else wrapped_configs.without_config(wrapped)
            return _of_arguments(
                file, target, wrapped, lambda text, name: wrapped_configs.of(reader.read(text, name)).document
            )
    return (_given(file, target, document=document), ()) if file.named or _is_config(document) else None


def _yaml(file: _File, target: str | None, text: str, name: str) -> tuple[Source, Sequence[Path]] | None:
    from dsgen.linting import wrapped_configs  # it loads ruamel, which a JSON file does not need

    wrapped = wrapped_configs.read(text, name)
    if not wrapped.wraps and not _is_config(wrapped.document):
        launch = launch_files.read(text, name)
        if launch.config and (file.named or _DEEPSPEED.search(text)):
            return _given(file, target, document=launch, read=launch_files.read), ()
        if not file.named:
            return None
        config = wrapped.document.config
        if wrapped_configs.is_training(config) or wrapped_configs.is_accelerates(config) or not _has_our_keys(config):
            wrapped = wrapped_configs.without_config(wrapped)
    return _of_arguments(file, target, wrapped, lambda text, name: wrapped_configs.read(text, name).document)


def _of_arguments(
    file: _File, target: str | None, wrapped: Wrapped, read: Callable[[str, str], Document]
) -> tuple[Source, Sequence[Path]] | None:
    """A file that holds or names a config, and the files it names."""
    if not (file.named or wrapped.files or wrapped.document.config or wrapped.document.faults):
        return None  # a training file that leaves DeepSpeed out
    ranks = file.world_size or wrapped.world_size  # what starts it wins
    known = attrs.evolve(file, target=wrapped.handed_over(file.target), world_size=ranks)
    from dsgen.linting import statements

    told = statements.settles(wrapped.said)
    beside = statements.beside([wrapped.said])
    return _given(known, target, document=wrapped.document, read=read, told=told, beside=beside), wrapped.files


def _given(file: _File, target: str | None, **known: Any) -> Source:
    said = target or file.target
    program = said or targets.guess(known["document"].config).name
    return Source(target=program, guessed=said is None, of=file.of, world_size=file.world_size, **known)


def _is_config(document: Document) -> bool:
    """Whether a file that nobody named is a DeepSpeed config, or was to be one."""
    config = document.config
    if config is None:
        return document.kind != "yaml" and any(f'"{name}"' in document.text for name in _STRONG)
    if not isinstance(config, Mapping):
        return False
    if any(name in config for name in _STRONG):
        return True
    parts = [name for name, inner in _PARTS.items() if isinstance(config.get(name), Mapping) and inner in config[name]]
    return len(parts) > 1 or (bool(parts) and "train_batch_size" in config)


def _has_our_keys(config: Any) -> bool:
    """Whether a YAML file that a person named can be meant as a config: a key of it is DeepSpeed's, or nearly.

    Training files are YAML too, and DeepSpeed itself reads none; what has no key of its own is no broken config.
    """
    import difflib

    if not isinstance(config, Mapping) or not config:
        return True
    known = [path for path in surface.load().paths if "." not in path]
    return any(name in known or difflib.get_close_matches(name, known, 1, _LIKE) for name in config)


def _expanded(paths: Iterable[str]) -> Iterator[_File]:
    """The files behind the paths; a path that is nothing stays, so that its reading can say so."""
    for path in paths:
        if path == "-" or not glob.has_magic(path) or os.path.lexists(path):
            matches = [path]
        else:
            matches = sorted(glob.glob(path, recursive=True)) or [path]  # noqa: PTH207 - a pattern may be absolute
        for one in matches:
            if one != "-" and os.path.isdir(one):  # noqa: PTH112 - Path.is_dir raises for a name that is too long
                yield from (_File(inner, named=False) for inner in inside(one))
            else:
                yield _File(one)


def inside(folder: str) -> Iterator[str]:
    """The files of a folder that a reader could know, in order; links to folders are not followed."""
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(
            name for name in folders if name not in _SKIPPED and not Path(here, name, _ENVIRONMENT).exists()
        )
        for name in sorted(files):
            if _is_known(name):
                yield os.path.normpath(Path(here, name))


def _is_known(name: str) -> bool:
    """Whether a reader could know a file of a name."""
    return name.lower().endswith((*_JSON, *_YAML)) or launch_files.is_launch_file(name)


def _real(path: str) -> str:
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):  # a null character; the reading will say so
        return path


def _shown(path: Path) -> str:
    """A path as a person would name it: from here, where it lies below."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _text(path: str, name: str) -> str | Document:
    """The text of a file, its byte order mark included; a document with one fault where there is none."""
    try:
        if path == "-":
            if sys.stdin is None:
                return _unreadable(name, "the standard input is closed")
            data = sys.stdin.buffer.read(reader.MAX_BYTES + 1)
        else:
            mode = os.stat(path).st_mode  # noqa: PTH116 - Path("") is the working directory
            if not stat.S_ISREG(mode) and not path.startswith(_DESCRIPTORS):
                return _unreadable(name, "it is no regular file")
            with Path(path).open("rb") as file:
                data = file.read(reader.MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        return _unreadable(name, _why(error, path))
    if len(data) > reader.MAX_BYTES:
        message = f"the file is larger than {reader.MAX_BYTES:,} bytes; a config has a few thousand"
        return reader.unreadable(name, "too-large", message)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        return reader.unreadable(name, "not-utf8", _encoding(data, error))


def _encoding(data: bytes, error: UnicodeDecodeError) -> str:
    if data.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "the file is UTF-32; DeepSpeed reads UTF-8"
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\x00" in data[:2]:
        return "the file is UTF-16; DeepSpeed reads UTF-8"
    line = data.count(b"\n", 0, error.start) + 1
    return f"the byte 0x{data[error.start]:02x} in line {line} is no UTF-8, as which DeepSpeed reads the file"


def _was_to_be_one(document: Document) -> bool:
    """Whether a file of a folder that is no UTF-8 is a config all the same: PowerShell 5 writes UTF-16."""
    if [rule for rule, _ in document.faults] != ["not-utf8"]:
        return False
    try:
        letters = Path(document.name).read_bytes().replace(b"\x00", b"")
    except OSError:  # gone since
        return False
    return any(f'"{word}"'.encode() in letters for word in _STRONG)


def _why(error: Exception, path: str) -> str:
    if not path:
        return "the name is empty"
    if isinstance(error, FileNotFoundError):
        if Path(path).is_symlink():
            return "it is a link to nothing"
        return "no file matches the pattern" if glob.has_magic(path) else "there is no such file"
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"it cannot be read: {said.lower()}"


def _unreadable(name: str, why: str) -> Document:
    return reader.unreadable(name, "unreadable-file", why)
