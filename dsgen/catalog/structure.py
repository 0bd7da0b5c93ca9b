"""One section of a tree to its frozen class: exact types, units and bounds, nothing coerced.

Each field is read by its type and what it declares (`shapes.profiles.fact`); what is wrong comes back field by field.
"""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar, cast, get_args

import attrs

from dsgen.shapes.errors import DsgenError, joined, mistake, nearest
from dsgen.shapes.layers import Origin, Provenance, show
from dsgen.shapes.near_misses import offer
from dsgen.shapes.optimizer_names import meant
from dsgen.shapes.pins import LARGEST_COUNT
from dsgen.shapes.profiles import yaml_name
from dsgen.shapes.units import UNITS, parse

__all__ = ["structure"]

T = TypeVar("T")
Hook = Callable[[Any], Any]


def structure(shape: type[T], section: str, tree: Mapping[str, Any], provenance: Provenance) -> T:
    """One section of a folded tree as its frozen class.

    Raises:
        DsgenError: Everything wrong in the section, each with the place where it was written.
    """
    raw = tree.get(section, {})
    if not isinstance(raw, Mapping):
        raise mistake(f"{section} is {show(raw)}", must="it must be a map", where=provenance.where(section))
    fields = _fields(cast(type, shape))
    given: dict[str, Any] = {}
    problems: list[tuple[Origin | None, DsgenError]] = []
    for key, (name, needed, read) in fields.items():
        path = f"{section}.{key}"
        if key not in raw:
            if needed:
                problems.append(_missing(path, provenance))
            continue
        try:
            given[name] = read(raw[key])
        except _WrongError as error:
            where = provenance.where(path)
            told = mistake(f"{path} is {show(error.value)}", must=error.must, where=where, todo=error.todo)
            problems.append((where, told))
    for key in sorted(raw.keys() - fields):
        where = provenance.where(f"{section}.{key}")
        problems.append((where, mistake(f"{section} has no {key}", where=where, code="unknown-name")))
    if problems:
        raise _together(problems)
    return cast(T, _shared(shape(**given)))


@functools.lru_cache(maxsize=1024)
def _shared(value: object) -> object:
    """The first value that equals this one: what is cached for it is then found by identity."""
    return value


def _missing(path: str, provenance: Provenance) -> tuple[Origin | None, DsgenError]:
    """The mistake of a field that is not given, and where it was deleted."""
    if (deleted := provenance.winner(path)) is not None:
        what = f"{path} is deleted by {deleted.path}: null"
        return deleted.origin, mistake(what, must="it must be given", where=deleted.origin, code="missing")
    section, _, key = path.partition(".")
    return None, mistake(
        f"{path} is missing",
        must="it must be given",
        where=_any_origin(section, provenance),
        todo=f"Add {key}: to the {section}.",
        code="missing",
    )


def _any_origin(section: str, provenance: Provenance) -> str | None:
    for path, history in provenance.overrides.items():
        if path.startswith(f"{section}."):
            return history[-1].origin.source
    return None


def _together(problems: list[tuple[Origin | None, DsgenError]]) -> DsgenError:
    """All mistakes as one error, in the order of the files' lines."""
    placed = sorted(problems, key=lambda item: (item[0].source, item[0].line or 0) if item[0] else ("", 0))
    return joined([error for _, error in placed])


class _WrongError(Exception):
    """A value that its field refuses."""

    def __init__(self, value: Any, must: str, todo: str | None = None) -> None:
        super().__init__(must)
        self.value, self.must, self.todo = value, must, todo


class _Declared(NamedTuple):
    """What a field declares of the values written for it."""

    unit: str | None
    choices: tuple[str, ...]
    minimum: float | None
    above: float | None
    below: float | None


@functools.cache
def _fields(shape: type) -> dict[str, tuple[str, bool, Hook]]:
    """Keys of a class, without the units of its fields: the field's name, whether it must be given, how it is read."""
    fields = attrs.fields(cast("type[attrs.AttrsInstance]", shape))
    return {yaml_name(one.name): (one.name, one.default is attrs.NOTHING, _hook(one)) for one in fields}


def _hook(field: "attrs.Attribute[Any]") -> Hook:
    """How the value of a field is read: by its type and what it declares."""
    key = yaml_name(field.name)
    unit = next((unit for unit in UNITS if field.name == f"{key}_{unit}"), None)
    declared = _Declared(unit, **{name: field.metadata[name] for name in ("choices", "minimum", "above", "below")})
    optional = type(None) in get_args(field.type)
    own: Any = next(kind for kind in get_args(field.type) if kind is not type(None)) if optional else field.type
    read = _of_type(own, declared)
    return (lambda value: None if value is None else read(value)) if optional else read


def _of_type(kind: Any, declared: _Declared) -> Hook:
    """How a value of a type is read that is given."""
    if declared.unit is not None:
        return _quantity_hook(kind, declared.unit, declared)
    if declared.choices:
        return _choice_hook(declared)
    plain: dict[Any, Callable[[_Declared], Hook]] = {
        bool: _bool_hook,
        str: _text_hook,
        int: _count_hook,
        float: _number_hook,
        tuple[str, ...]: _names_hook,
    }
    return plain[kind](declared)


def _quantity_hook(kind: type, unit: str, declared: _Declared) -> Hook:
    """A number with a unit, as bytes, seconds or FLOP/s; 0 needs no unit."""
    whole = kind is int

    def read(value: Any) -> Any:
        if value == 0 and type(value) is int and declared.above is None:
            return 0
        try:
            amount = parse(value, unit)
        except ValueError as error:
            raise _WrongError(value, str(error)) from None
        _keep_bounds(value, amount, declared, whole=False)
        return round(amount) if whole else amount

    return read


def _choice_hook(declared: _Declared) -> Hook:
    choices = declared.choices

    def read(value: Any) -> str:
        if isinstance(value, str) and value in choices:
            return value
        if (known := meant(value)) in choices:  # an optimizer has many names
            return str(known)
        close = nearest(str(value), choices)
        hint = f"; {offer(close[:1])}" if close else ""
        raise _WrongError(value, f"it must be one of {', '.join(choices)}{hint}")

    return read


def _count_hook(declared: _Declared) -> Hook:
    """A whole number, written as one: 8.0 is none, and neither is true."""

    def read(value: Any) -> int:
        if type(value) is not int:
            whole = type(value) is float and value.is_integer() and abs(value) <= LARGEST_COUNT
            least = f"at least {declared.minimum:g}" if declared.minimum is not None else ""
            raise _WrongError(value, _must(True, least), f"Write {int(value)}." if whole else None)
        _keep_bounds(value, value, declared, whole=True)
        if value > LARGEST_COUNT:
            raise _WrongError(value, f"it must be at most {LARGEST_COUNT:,}")
        return value

    return read


def _number_hook(declared: _Declared) -> Hook:
    def read(value: Any) -> float:
        if type(value) not in (int, float) or not math.isfinite(value):
            raise _WrongError(value, "it must be a finite number")
        _keep_bounds(value, value, declared, whole=False)
        return float(value)

    return read


def _bool_hook(_: _Declared) -> Hook:
    def read(value: Any) -> bool:
        if type(value) is not bool:
            raise _WrongError(value, "it must be true or false")
        return value

    return read


def _text_hook(_: _Declared) -> Hook:
    def read(value: Any) -> str:
        if not isinstance(value, str) or not value:
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            todo = "Put it in quotes." if number else None
            raise _WrongError(value, "it must be text", todo)
        return value

    return read


def _names_hook(_: _Declared) -> Hook:
    def read(value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or not value or not all(isinstance(item, str) and item for item in value):
            raise _WrongError(value, 'it must be a list of names, such as ["q_proj", "v_proj"]')
        return tuple(value)

    return read


def _keep_bounds(value: Any, number: float, declared: _Declared, *, whole: bool) -> None:
    """Refuse a number outside its bounds; `value` is as it was written."""
    if declared.minimum is not None and number < declared.minimum:
        raise _WrongError(value, _must(whole, f"at least {declared.minimum:g}"))
    if declared.above is not None and number <= declared.above:
        raise _WrongError(value, _must(whole, f"above {declared.above:g}"))
    if declared.below is not None and number >= declared.below:
        raise _WrongError(value, _must(whole, f"below {declared.below:g}"))


def _must(whole: bool, bound: str) -> str:
    of = "of " if bound.startswith("at") else ""
    return f"it must be a whole number {of}{bound}".rstrip() if whole else f"it must be {bound}"
