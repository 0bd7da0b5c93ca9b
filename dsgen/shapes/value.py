"""How a value of many fields is shown, compared and hashed, without functions that are compiled for its class."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, cast

import attrs

__all__ = ["Value"]


class Value:
    """The base of an attrs class with `repr=False, eq=False`: what attrs would have compiled for it at import.

    A start of `dsgen render` imports a dozen such classes, and each takes attrs longer than its use does. What is
    remembered of a value is looked up by its hash, hundreds of times in a plan, so that is computed once.
    """

    __slots__ = ("_hash",)
    _hash: int

    def __repr__(self) -> str:
        told = [(field.name, getattr(self, field.name)) for field in _fields(type(self)) if field.repr]
        said = ", ".join(f"{name}={value!r}" for name, value in told if value is not None)  # None: nobody said it
        return f"{type(self).__qualname__}({said})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return bool(_compared(self) == _compared(other))

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            object.__setattr__(self, "_hash", hash(_compared(self)))  # a frozen value refuses plain setting
            return self._hash


def _compared(value: object) -> object:
    """What a value is compared by, and hashed: its fields but those with `eq=False`."""
    kind: type = type(value)
    return _getter(kind)(value)


@functools.cache
def _getter(kind: type) -> Callable[[object], object]:
    return operator.attrgetter(*(field.name for field in _fields(kind) if field.eq))


def _fields(kind: type) -> tuple[attrs.Attribute[Any], ...]:
    return cast("tuple[attrs.Attribute[Any], ...]", attrs.fields(cast("type[attrs.AttrsInstance]", kind)))
