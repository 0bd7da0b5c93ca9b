"""What a framework is given beside a config: its arguments, the files that hold them, where two files must agree."""

import json
import math
import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, NamedTuple

import attrs

from dsgen.shapes.value import Value

__all__ = [
    "CONFIG_FILE",
    "FILL_IN",
    "HEADER",
    "WIDTH",
    "Argument",
    "JobFile",
    "JobFiles",
    "beside",
    "keep_filled",
    "python_value",
    "unfilled",
    "yaml_text",
    "yaml_value",
]

CONFIG_FILE = "ds_config.json"

HEADER = "# Written by dsgen"  # first words of each file beside a config, by which a later run knows its own
WIDTH = 100  # columns of a written file, comments included where they can be broken
FILL_IN = "FILL_IN"  # stands where only a person knows the value; every framework stops at it


class Argument(NamedTuple):
    """One argument of a framework.

    Attributes:
        name: As the framework's own class spells it: "per_device_train_batch_size".
        value: Plain JSON types.
        reason: Why it is what it is.
        key: The key of the config that must say the same; "" where none does.
    """

    name: str
    value: Any
    reason: str = ""
    key: str = ""


class JobFile(NamedTuple):
    """One file of a job: its name, what it holds, and what it is for."""

    name: str
    text: str
    reason: str


@attrs.frozen(kw_only=True, eq=False, repr=False)
class JobFiles(Value):
    """All that a framework is given for one config.

    Attributes:
        target: The framework's name, as `--target` takes it.
        config: The DeepSpeed config as this framework must have it.
        files: The config's own first, then what lies beside it.
        arguments: What the framework is told beside the config; those with a key are where two files must agree.
        autos: Keys whose value the framework fills in -> what it fills in.
    """

    target: str
    config: Mapping[str, Any]
    files: tuple[JobFile, ...]
    arguments: tuple[Argument, ...] = ()
    autos: Mapping[str, Any] = attrs.field(factory=dict)

    @property
    def agreements(self) -> tuple[Argument, ...]:
        """The arguments that a key of the config must agree with."""
        return tuple(item for item in self.arguments if item.key)


def beside(path: str, name: str) -> str:
    """The name of a file beside a config: short beside ds_config.json, else with the config's own before it.

    Args:
        path: The config's.
        name: The short one: "accelerate.yaml" is lora.accelerate.yaml beside lora.json; a Python file is one that can
            be imported, lora_training_args.py.
    """
    stem = PurePath(path).stem
    if stem == PurePath(CONFIG_FILE).stem:
        return name
    if not name.endswith(".py"):
        return f"{stem}.{name}"
    word = re.sub(r"\W", "_", stem, flags=re.ASCII)
    return f"{'_' if word[:1].isdigit() else ''}{word}_{name}"


def unfilled(text: str) -> tuple[str, ...]:
    """The keys of a YAML file that a person has still to fill in, in order."""
    lines = (line.partition("#")[0] for line in text.splitlines())
    return tuple(line.partition(":")[0] for line in lines if _UNFILLED.match(line))


def keep_filled(there: str, text: str, also: tuple[str, ...] = ()) -> str:
    """A text with what a person has filled in where it says FILL_IN.

    Args:
        there: What lies on disk: an earlier text, in which a person may have filled in.
        text: What is rendered now.
        also: Keys whose value there counts too.
    """
    kept = _blocks(there)
    lines = []
    for line in text.splitlines(keepends=True):
        key = line.partition(":")[0]
        block = kept.get(key, "") if key in also or _UNFILLED.match(line.partition("#")[0]) else ""
        lines.append(line if not block or _UNFILLED.match(block.partition("#")[0]) else block)
    whole = "".join(lines)
    return whole if unfilled(whole) else re.sub(rf"^# .*\b{FILL_IN}\b.*\n", "", whole, flags=re.MULTILINE)


_UNFILLED = re.compile(rf"\w+:.*\b{FILL_IN}\b")


def _blocks(text: str) -> dict[str, str]:
    """Key -> its lines in a YAML file: its own and those below it that are indented or items of a list."""
    blocks: dict[str, str] = {}
    key = ""
    for line in text.splitlines(keepends=True):
        if re.match(r"\w+:", line):
            key = line.partition(":")[0]
            blocks[key] = line
        elif key and line.startswith((" ", "-")):
            blocks[key] += line
        else:
            key = ""
    return blocks


def yaml_text(title: str, arguments: tuple[Argument, ...], notes: tuple[str, ...] = ()) -> str:
    """Arguments as YAML, one to a line, each with its reason behind it; maps in flow style.

    Args:
        title: What the file is, one sentence.
        arguments: In order.
        notes: Comments that stand above them, one a line.
    """
    lines = [f"{HEADER}: {title}", *(f"# {note}" for note in notes)]
    for item in arguments:
        said = f"{item.name}: {yaml_value(item.value)}"
        words = _words(item)
        lines.append(f"{said}  # {words}" if words else said)
    return "\n".join(lines) + "\n"


def _words(item: Argument) -> str:
    same = f"= {item.key} of the config" if item.key else ""
    return "; ".join(part for part in (same, item.reason) if part)


def yaml_value(value: Any) -> str:
    """A value as every YAML reader takes it: 1.1, which wants a point in 1.0e-08, and 1.2."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {yaml_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(yaml_value(item) for item in value) + "]"
    return value if isinstance(value, str) and _is_plain(value) else json.dumps(value, ensure_ascii=False)


def _float(value: float) -> str:
    if not math.isfinite(value):
        return {math.inf: ".inf", -math.inf: "-.inf"}.get(value, ".nan")
    text = repr(value)
    mantissa, exponent, power = text.partition("e")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}{exponent}{power}"


_RESERVED = frozenset(("true", "false", "yes", "no", "on", "off", "null", "y", "n"))


def _is_plain(text: str) -> bool:
    """Whether a text needs no quotes: a name, or a path of names, that no reader takes for something else."""
    letters = text.replace("_", "").replace("-", "").replace("/", "").replace(".", "")
    return letters.isalnum() and letters.isascii() and text[0].isalpha() and text.lower() not in _RESERVED


def python_value(value: Any) -> str:
    """A value as Python writes it, texts in double quotes."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{python_value(key)}: {python_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(python_value(item) for item in value) + "]"
    return repr(value) if not isinstance(value, float) or math.isfinite(value) else f'float("{value}")'
