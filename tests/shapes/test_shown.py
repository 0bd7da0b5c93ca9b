"""Values that are shown without a function compiled for their class look as attrs shows them."""

from __future__ import annotations

import attrs

from dsgen.shapes.profiles import Cluster, Hardware, Model, Network, Training
from dsgen.shapes.shown import Shown


@attrs.frozen(kw_only=True)
class Compiled:
    name: str
    sizes: tuple[int, ...] = (1, 2)
    secret: str = attrs.field(default="x", repr=False)
    _memo: float = 0.5


@attrs.frozen(kw_only=True, repr=False)
class Generic(Shown):
    name: str
    sizes: tuple[int, ...] = (1, 2)
    secret: str = attrs.field(default="x", repr=False)
    _memo: float = 0.5


def test_a_value_is_shown_as_attrs_shows_it() -> None:
    assert repr(Generic(name="it's")) == repr(Compiled(name="it's")).replace("Compiled", "Generic")


def test_the_shapes_of_a_profile_are_shown_so() -> None:
    for shape in (Cluster, Hardware, Model, Network, Training):
        assert shape.__repr__ is Shown.__repr__
        assert "__dict__" not in dir(shape)  # a base without slots would give it one
