"""How a strict section reads a value: takes it as it is, quietly turns it into something else, or refuses it.

DeepSpeed keeps these sections as pydantic models in lax mode (deepspeed/runtime/config_utils.py): "2" is 2, 5e8 is
500000000, "yes" is true. The suite compares this module with the models themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dsgen.deepspeed.keys import Key, check_value
from dsgen.shapes import lax

__all__ = ["REFUSED", "read_strict", "refused_at"]

REFUSED = object()  # what `read_strict` gives for a value that the release refuses


# Keys with a validator of their own before pydantic's (runtime/precision_config.py, runtime/zero/config.py, 0.19.8).
_NO_TRUTH = ("fp16.loss_scale", "fp16.loss_scale_window", "fp16.min_loss_scale")  # true is not 1
_NO_POINT = ("fp16.loss_scale_window", "fp16.min_loss_scale")  # "2" is 2, "2.0" is refused
_NO_TEXT = ("zero_optimization.zenflow.select_interval", "zero_optimization.zenflow.update_interval")
_TEXTS = "zero_optimization.leaf_module."  # lists of text


def refused_at(key: Key, value: object) -> str | None:
    """When the release refuses a value: at "parse", "init" or "step" (the first one); None when it never does.

    "auto" is never judged: what becomes of it depends on the program that loads the config.
    """
    if value == "auto":
        return None
    if key.strict:
        return "parse" if read_strict(key, value) is REFUSED else None
    kind = _kind(value)
    for phase, refused in key.refuses.items():
        if kind in refused or ("other" in refused and _is_other(key, kind, value)):
            return phase
    return None


def _is_other(key: Key, kind: str, value: object) -> bool:
    """Whether a value is of the right type and none of those that are taken; of a switch, a number but 0 and 1."""
    if key.types == ("boolean",) and kind in ("integer", "number"):
        return value not in (0, 1)
    return kind in key.types and check_value(key, value) is not None


def _kind(value: object) -> str:
    """The JSON type of a value; a whole float is an integer only where a key has no other word for it."""
    names: tuple[tuple[Any, str], ...] = (
        (bool, "boolean"),
        (int, "integer"),
        (float, "number"),
        (str, "string"),
        ((list, tuple), "array"),
        (Mapping, "object"),
    )
    return next((name for kind, name in names if isinstance(value, kind)), "null")


def read_strict(key: Key, value: object) -> Any:
    """What a strict section makes of a value, or REFUSED; "auto" gives the default, for the section drops it.

    Args:
        key: A key whose `strict` is true.
        value: Any JSON value.
    """
    if value == "auto":
        return key.default
    if _has_objection(key.path, value):
        return REFUSED
    for name in key.types or ("any",):
        read = _READERS[name](value)
        if read is not REFUSED and check_value(key, read) is None:
            return read
    return REFUSED


def _has_objection(path: str, value: object) -> bool:
    """Whether the key's own validator refuses a value that its type would allow."""
    if isinstance(value, bool):
        return path in _NO_TRUTH
    if isinstance(value, str):
        return path in _NO_TEXT or (path in _NO_POINT and "." in value)
    return path.startswith(_TEXTS) and isinstance(value, list) and not all(isinstance(item, str) for item in value)


def _lax(read: Callable[[object], Any]) -> Callable[[object], Any]:
    return lambda value: REFUSED if (taken := read(value)) is None else taken


def _of(kind: type | tuple[type, ...]) -> Callable[[object], Any]:
    return lambda value: value if isinstance(value, kind) else REFUSED


_READERS: Mapping[str, Callable[[object], Any]] = {
    "boolean": _lax(lax.boolean),
    "integer": _lax(lax.integer),
    "number": _lax(lax.number),
    "string": _of(str),
    "array": _of((list, tuple)),
    "object": _of(Mapping),
    "null": lambda value: None if value is None else REFUSED,
    "any": lambda value: value,
}
