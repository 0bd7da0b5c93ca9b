"""How a value of many fields is shown, without a function that is written and compiled for its class."""

from __future__ import annotations

from typing import Any, ClassVar

import attrs

__all__ = ["Shown"]


class Shown:
    """The base of an attrs class with `repr=False`: its `repr` is the one attrs would have compiled at import."""

    __slots__ = ()
    __attrs_attrs__: ClassVar[tuple[attrs.Attribute[Any], ...]]  # set by attrs

    def __repr__(self) -> str:
        fields = (field for field in self.__attrs_attrs__ if field.repr)
        said = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in fields)
        return f"{type(self).__qualname__}({said})"
