"""How a value of many fields is shown, without a function that is written and compiled for its class."""

from __future__ import annotations

from typing import cast

import attrs

__all__ = ["Shown"]


class Shown:
    """The base of an attrs class with `repr=False`: its `repr` is the one attrs would have compiled at import."""

    __slots__ = ()

    def __repr__(self) -> str:
        fields = attrs.fields(cast("type[attrs.AttrsInstance]", type(self)))
        said = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in fields if field.repr)
        return f"{type(self).__qualname__}({said})"
