"""The kinds of launch file: shell script, environment file, Dockerfile, and YAML with maps of variables."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

import attrs

from dsgen.documents.document import Document, TextPlace
from dsgen.linting.launch_files.commands import Assignment, Launch, understand
from dsgen.linting.launch_files.words import Command, Word, split
from dsgen.shapes.findings import Span

__all__ = ["is_launch_file", "read", "scan", "script_commands"]

_SCRIPTS = (".sh", ".bash", ".zsh", ".ksh", ".slurm", ".sbatch", ".pbs", ".lsf")
_VALUE = r"(\"[^\"\n]*\"|'[^'\n]*'|[^\n]*?)[ \t]*(?:(?<![^ \t])#[^\n]*)?$"
_LINE = re.compile(r"^[ \t]*(?:export[ \t]+)?([A-Za-z_]\w*)[ \t]*=[ \t]*" + _VALUE, re.M)
_COMMENT = re.compile(r"(?:^|(?<=[ \t]))#[^\n]*", re.M)
_INSTRUCTION = re.compile(r"^[ \t]*(ENV|CMD|ENTRYPOINT)[ \t]+((?:[^\n\\]|\\.|\\\r?\n)*)", re.M | re.I)
_JSON_TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"')
_BLOCK = re.compile(r"^([ \t]*)(?:- )?(?:env|envs|environment|env_vars?|environment_variables)[ \t]*:[ \t]*$", re.M)
_PAIR = re.compile(r"^[ \t]*(?:- +)?[\"']?([A-Za-z_][A-Za-z0-9_]*)[\"']?(?:[ \t]*:[ \t]+|=)" + _VALUE, re.M)
_NAMED = re.compile(r"^[ \t]*- +name:[ \t]+[\"']?([A-Za-z_]\w*)[\"']?[ \t]*\n[ \t]+value:[ \t]+" + _VALUE, re.M)


def is_launch_file(name: str) -> bool:
    """Whether a file of this name is a script, an environment file or a Dockerfile; YAML may be anything."""
    return _kind(name) in ("script", "environment", "docker")


def read(text: str, name: str) -> Document:
    """A launch file as a document of kind "launch".

    Args:
        text: Its text, without a byte order mark.
        name: Its path; it decides how the text is read, a script when it says nothing.

    Returns:
        A document whose `config` maps each variable that is set to its text, and each option given to the launcher
        (`deepspeed --num_gpus`) to its value, with the place of the last of each.
    """
    launch = scan(text, name)
    config: dict[str, str | None] = {}
    places: dict[str, TextPlace] = {}
    for setting in launch.settings:
        config[setting.name] = setting.value
        places[setting.name] = TextPlace(setting.key, setting.at)
    for option in launch.options:
        path = f"deepspeed {option.name}"
        config[path] = option.value
        places[path] = TextPlace(option.span, option.span)
    return Document(name=name, text=text, kind="launch", config=config, places=places, comments=launch.comments)


@functools.lru_cache(maxsize=16)
def scan(text: str, name: str) -> Launch:
    """Every setting and launcher option of a launch file, in the order of the text; see `read`."""
    kind = _kind(name)
    if kind == "environment":
        return Launch(settings=tuple(_lines(text)), comments=_comments(text))
    if kind == "yaml":
        return Launch(settings=tuple(_maps(text)), comments=_comments(text))
    if kind == "docker":
        return _docker(text)
    commands, comments = split(text)
    settings, options = understand(commands, text)
    return Launch(settings=settings, options=options, comments=comments)


def script_commands(text: str, name: str) -> tuple[Command, ...]:
    """The simple commands of a shell script, in order; none of a file of another kind."""
    return split(text)[0] if _kind(name) in ("script", "") else ()


def _kind(name: str) -> str:
    last = re.split(r"[/\\]", name)[-1].lower()
    if last.endswith(_SCRIPTS):
        return "script"
    if last.startswith(".env") or last.endswith((".env", "deepspeed_env")):
        return "environment"
    if last.startswith(("dockerfile", "containerfile")) or last.endswith((".dockerfile", ".containerfile")):
        return "docker"
    return "yaml" if last.endswith((".yaml", ".yml")) else ""


def _comments(text: str) -> tuple[Span, ...]:
    return tuple(Span(*match.span()) for match in _COMMENT.finditer(text))


def _lines(text: str) -> Iterator[Assignment]:
    """NAME=VALUE, one a line; quotes and `export` are allowed."""
    for match in _LINE.finditer(text):
        yield _assignment(match, 1, 2, match.span())


def _assignment(match: re.Match[str], name: int, value: int, whole: tuple[int, int]) -> Assignment:
    return Assignment(
        name=match[name],
        value=_bare(match[value].strip()),
        key=Span(*match.span(name)),
        at=Span(*match.span(value)),
        whole=Span(*whole),
        exported=True,
    )


def _bare(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value


def _maps(text: str) -> Iterator[Assignment]:
    """`NAME: value`, `- NAME=value` and `- name: NAME` with `value:` below a key such as `env:`."""
    for block in _BLOCK.finditer(text):
        end = block.end()
        for line in re.finditer(r"\n([ \t]*)(- )?([^\n]*)", text[block.end() :]):
            deeper = len(line[1]) > len(block[1]) or (line[2] and len(line[1]) == len(block[1]))
            if line[3].strip() and not deeper:
                break
            end = block.end() + line.end()
        for match in _NAMED.finditer(text, block.end(), end):
            yield _assignment(match, 1, 2, match.span())
        for match in _PAIR.finditer(text, block.end(), end):
            if match[1] not in ("name", "value"):
                yield _assignment(match, 1, 2, match.span())


def _docker(text: str) -> Launch:
    """ENV in both its forms, and what CMD and ENTRYPOINT start."""
    settings: list[Assignment] = []
    launch = Launch()
    for match in _INSTRUCTION.finditer(text):
        start, end = match.span(2)
        listed = match[2].lstrip().startswith("[")
        commands = _listed(match) if listed else split(text, start, end)[0]
        set_there, options = understand(commands, text)
        if match[1].upper() != "ENV":
            launch = Launch(options=(*launch.options, *options))
        elif set_there and commands[0].words[0].span.start == set_there[0].key.start:
            whole = Span(*match.span())  # a single one goes with the instruction
            settings += [
                attrs.evolve(item, exported=True, whole=whole if len(set_there) == 1 else item.whole)
                for item in set_there
            ]
        else:
            words = re.match(r"([A-Za-z_]\w*)[ \t]+(.*)", match[2], re.S)  # ENV NAME the rest of the line
            if words:
                key, at = Span(start, start + words.end(1)), Span(start + words.start(2), end)
                value = _bare(words[2].strip())
                settings.append(
                    Assignment(name=words[1], value=value, key=key, at=at, whole=Span(*match.span()), exported=True)
                )
    return Launch(settings=tuple(settings), options=launch.options, comments=_comments(text))


def _listed(match: re.Match[str]) -> tuple[Command, ...]:
    """CMD ["deepspeed", "train.py"]."""
    start = match.start(2)
    words = tuple(
        Word(text[1], Span(start + text.start(1), start + text.end(1))) for text in _JSON_TEXT.finditer(match[2])
    )
    return (Command(words),) if words else ()
