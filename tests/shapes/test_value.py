"""Values without functions compiled for their class are shown, compared and hashed as attrs does it."""

from __future__ import annotations

import attrs
import pytest

from dsgen.shapes.profiles import Cluster, Hardware, Model, Network, Training
from dsgen.shapes.value import Value


@attrs.frozen(kw_only=True)
class Compiled:
    name: str
    sizes: tuple[int, ...] = (1, 2)
    secret: str = attrs.field(default="x", repr=False)
    note: str = attrs.field(default="", eq=False)
    _memo: float = 0.5


@attrs.frozen(kw_only=True, repr=False, eq=False)
class Generic(Value):
    name: str
    sizes: tuple[int, ...] = (1, 2)
    secret: str = attrs.field(default="x", repr=False)
    note: str = attrs.field(default="", eq=False)
    _memo: float = 0.5


@attrs.frozen(kw_only=True, repr=False, eq=False)
class Narrower(Generic):
    deep: bool = False


def test_a_value_is_shown_as_attrs_shows_it() -> None:
    assert repr(Generic(name="it's")) == repr(Compiled(name="it's")).replace("Compiled", "Generic")


@pytest.mark.parametrize("kind", [Compiled, Generic])
def test_values_are_equal_and_hashed_by_the_fields_that_count(kind: type[Compiled | Generic]) -> None:
    one, same, other = kind(name="a", note="x"), kind(name="a", note="y"), kind(name="a", sizes=(3,))

    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert len({one, same, other}) == 2


def test_a_value_equals_none_of_another_class() -> None:
    assert Generic(name="a") != Compiled(name="a")
    assert Generic(name="a") != Narrower(name="a")
    assert Narrower(name="a") == Narrower(name="a")
    assert Narrower(name="a") != Narrower(name="a", deep=True)


def test_the_shapes_of_a_profile_are_such_values() -> None:
    for shape in (Cluster, Hardware, Model, Network, Training):
        assert shape.__repr__ is Value.__repr__
        assert shape.__eq__ is Value.__eq__
        assert shape.__hash__ is Value.__hash__
        assert "__dict__" not in dir(shape)  # a base without slots would give it one
