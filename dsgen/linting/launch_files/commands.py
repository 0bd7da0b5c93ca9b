"""What commands set in the environment, and which options they give to the `deepspeed` launcher."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator

import attrs

from dsgen.deepspeed.environment import Option, launcher_options
from dsgen.linting.launch_files.words import Command, Word, split
from dsgen.shapes.findings import Span

__all__ = ["Assignment", "Given", "Launch", "option_named", "understand"]

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\+?=")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED = frozenset(("then", "do", "else", "elif", "if", "while", "until", "!", "{", "time", "nohup", "exec", "sudo"))
_EXPORTS = frozenset(("export", "declare", "typeset", "readonly", "local"))
_HANDS_ON = frozenset(("-e", "-x", "--env", "-env", "-genv"))  # docker, mpirun: the next word is a variable
_LAUNCHERS = frozenset(("deepspeed", "deepspeed.pt"))
_MPI = ("srun", "mpirun", "mpiexec")
_CONTAINERS = ("singularity", "apptainer", "docker", "podman", "conda", "mamba", "poetry", "uv", "pipenv")
_TUNERS = ("numactl", "taskset", "nsys", "ncu", "stdbuf", "timeout", "nice", "ionice", "setsid", "env")
_RUNS_ANOTHER = frozenset((*_MPI, *_CONTAINERS, *_TUNERS))
_NOT_THE_LAUNCHER = frozenset(("pip", "pip3", "install", "-m", "which", "uninstall", "remove", "add", "update", "list"))


@attrs.frozen(kw_only=True)
class Assignment:
    """One place that gives a variable a value.

    Attributes:
        name: The variable.
        value: Its text without quotes; what a `$` in it stands for is not known.
        key: Where the name stands.
        at: Where the value stands, with its quotes.
        whole: What to take away with the setting: the assignment, or the command that consists of it alone.
        exported: Whether the programs that the file starts see it.
    """

    name: str
    value: str
    key: Span
    at: Span
    whole: Span
    exported: bool


@attrs.frozen(kw_only=True)
class Given:
    """An option given to the `deepspeed` launcher, with the value after it."""

    name: str
    value: str | None
    span: Span


@attrs.frozen(kw_only=True)
class Launch:
    """What a launch file says: settings and options in the order of the text, comments, names exported elsewhere."""

    settings: tuple[Assignment, ...] = ()
    options: tuple[Given, ...] = ()
    comments: tuple[Span, ...] = ()


def understand(commands: Iterable[Command], text: str) -> tuple[tuple[Assignment, ...], tuple[Given, ...]]:
    """The settings and launcher options of a script's commands. `text` is what their places count in."""
    settings: list[Assignment] = []
    options: list[Given] = []
    exported: set[str] = set()
    everything = False  # after `set -a` every assignment is exported
    for command in commands:
        words = list(command.words)
        while words and words[0].text in _RESERVED:
            words.pop(0)
        if words and words[0].text == "set":
            flags = {word.text for word in words[1:]}
            everything = everything or bool(flags & {"-a", "allexport", "-ae", "-ea"})
        leading, named, rest = _leading(words)
        exported |= named
        settings += [attrs.evolve(item, exported=item.exported or everything) for item in leading]
        options += _launched(rest)
        for word in words:
            options += _launched(list(word.items or ()))  # CMD=(deepspeed --num_gpus 8 train.py)
        for item in leading:
            inner = Span(item.at.start + 1, item.at.end - 1)
            if text[item.at.start : item.at.start + 1] in ('"', "'") and item.value.startswith(tuple(_LAUNCHERS)):
                for held in split(text, inner.start, inner.end)[0]:  # CMD="deepspeed --num_gpus 8 train.py"
                    options += _launched(list(held.words))
    return tuple(attrs.evolve(item, exported=item.exported or item.name in exported) for item in settings), tuple(
        options
    )


def _leading(words: list[Word]) -> tuple[list[Assignment], set[str], list[Word]]:
    """The settings of one command, the names it exports without a value, and what it runs."""
    settings: list[Assignment] = []
    names: set[str] = set()
    first = words[0].text if words else ""
    if first in _EXPORTS or first == "env":
        exports = first in ("export", "env") or any(re.fullmatch(r"-\w*x\w*", word.text) for word in words)
        place = 1
        while place < len(words) and (words[place].text.startswith("-") or _is_assignment(words[place])):
            place += 1
            if first != "env":
                continue
        rest = words[place:] if first == "env" else []
        taken = words[1:place] if first == "env" else words[1:]
        settings = [_setting(word, exports) for word in taken if _is_assignment(word)]
        names = {word.text for word in taken if exports and _NAME.fullmatch(word.text)}
        alone = not rest and len(settings) == 1 and len(taken) == 1
    else:
        place = 0
        while place < len(words) and _is_assignment(words[place]):
            place += 1
        rest = words[place:]
        settings = [_setting(word, bool(rest)) for word in words[:place]]
        alone = not rest and len(settings) == 1
    for option, word in itertools.pairwise(rest):
        if option.text in _HANDS_ON and _is_assignment(word):
            settings.append(attrs.evolve(_setting(word, True), whole=Span(option.span.start, word.span.end)))
        elif option.text in _HANDS_ON and _NAME.fullmatch(word.text) and word.text.isupper():
            names.add(word.text)
    if alone:
        settings = [attrs.evolve(settings[0], whole=Command(tuple(words)).span)]
    return settings, names, rest


def _is_assignment(word: Word) -> bool:
    return not word.escaped and _ASSIGNMENT.match(word.text) is not None


def _setting(word: Word, exported: bool) -> Assignment:
    match = _ASSIGNMENT.match(word.text)
    name = match[1] if match else word.text
    start = word.span.start + word.lead
    begins = start + (match.end() if match else 0)
    return Assignment(
        name=name,
        value=word.text[match.end() :] if match else "",
        key=Span(start, start + len(name)),
        at=Span(min(begins, word.span.end), word.span.end),
        whole=word.span,
        exported=exported,
    )


def _launched(words: list[Word]) -> Iterator[Given]:
    """The options before the script, when a command is `deepspeed` or something that runs it."""
    place = next((i for i, word in enumerate(words) if word.text.rpartition("/")[2] in _LAUNCHERS), None)
    before = {word.text for word in words[:place]}
    if place is None or (before and (before & _NOT_THE_LAUNCHER or not before & _RUNS_ANOTHER)):
        return
    rest = iter(words[place + 1 :])
    for word in rest:
        name, equals, value = word.text.partition("=")
        if not name.startswith("-") or name == "-":
            return
        option = option_named(name)
        if option is not None and option.value and not equals:
            follows = next(rest, None)
            value = follows.text if follows is not None else ""
        span = Span(word.span.start, word.span.start + len(name)) if not word.quoted else word.span
        yield Given(name=name, value=value or None, span=span)


def option_named(name: str) -> Option | None:
    """The launcher's option of a name; an unambiguous beginning of a long one counts, as argparse has it."""
    known = launcher_options()
    if name in known or not name.startswith("--"):
        return known.get(name)
    begun = [option for option in known.values() if option.name.startswith(name)]
    return begun[0] if len(begun) == 1 else None
