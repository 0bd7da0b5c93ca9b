"""The commented template of a new profile, made from the shapes themselves."""

from __future__ import annotations

import textwrap
from typing import Any

import attrs

from dsgen.shapes.profiles import SECTIONS, type_name, yaml_name
from dsgen.shapes.units import BANDWIDTH, BYTES, FLOPS, SECONDS

__all__ = ["template"]

WIDTH = 100
_UNIT_EXAMPLES = {BYTES: "40 GiB", BANDWIDTH: "200 GB/s", FLOPS: "312 TFLOP/s", SECONDS: "2 us"}


def template(kind: str, name: str, extends: str | None) -> str:
    """A profile file with every key of its kind, its meaning above it, ready to be filled in.

    Args:
        kind: hardware, model, network or training.
        name: The profile's name.
        extends: A parent; then every key is commented out, because it has a value already.
    """
    lines = [
        f"name: {name}",
        f"kind: {kind}",
        f'title: "{name}"',
        *([f"extends: {extends}"] if extends else []),
        "source:",
        "  default: where the facts below come from (a datasheet, a measurement)",
        f"{kind}:",
    ]
    for field in attrs.fields(SECTIONS[kind]):
        lines.extend(_field(field, commented=extends is not None))
    if extends:
        lines[lines.index(f"{kind}:")] = f"# {kind}:"
    return "\n".join(lines) + "\n"


def _field(field: attrs.Attribute[Any], commented: bool) -> list[str]:
    key = yaml_name(field.name)
    choices = field.metadata["choices"]
    words = field.metadata["doc"] + (f" One of {', '.join(choices)}." if choices else "")
    doc = textwrap.wrap(words, WIDTH, initial_indent="  # ", subsequent_indent="  # ")
    optional = field.default is not attrs.NOTHING
    example = _example(field, key)
    return [*doc, f"  {'# ' if commented or optional else ''}{key}: {example}"]


def _example(field: attrs.Attribute[Any], key: str) -> str:
    unit = field.name[len(key) + 1 :]
    if unit:
        return "0" if field.default == 0 else _UNIT_EXAMPLES[unit]
    if field.metadata["choices"]:
        return str(field.default if field.default is not attrs.NOTHING else field.metadata["choices"][0])
    if field.default is attrs.NOTHING:
        return {"int": "1", "bool": "false", "str": "llama"}.get(type_name(field), "1")
    if isinstance(field.default, bool):
        return "true" if field.default else "false"
    if isinstance(field.default, tuple):
        return f"[{', '.join(field.default)}]"
    return "null" if field.default is None else str(field.default)
