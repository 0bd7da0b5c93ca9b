"""One section of a tree to its frozen class: exact types, units and bounds, nothing coerced.

The only module that imports cattrs.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast, get_type_hints

import attrs
import cattrs
from cattrs.gen import make_dict_structure_fn, override

from dsgen.shapes.errors import DsgenError, mistake, nearest
from dsgen.shapes.layers import Origin, Provenance, show
from dsgen.shapes.near_misses import offer
from dsgen.shapes.pins import LARGEST_COUNT
from dsgen.shapes.profiles import yaml_name
from dsgen.shapes.units import UNITS, parse

__all__ = ["structure"]

T = TypeVar("T")

MOST_ERRORS = 10  # mistakes shown at once; a file with more was not meant as a profile


def structure(shape: type[T], section: str, tree: Mapping[str, Any], provenance: Provenance) -> T:
    """One section of a folded tree as its frozen class.

    Raises:
        DsgenError: Everything wrong in the section, each with the place where it was written.
    """
    raw = tree.get(section, {})
    if not isinstance(raw, Mapping):
        raise mistake(f"{section} is {show(raw)}", must="it must be a map", where=provenance.where(section))
    try:
        return cast(T, _shared(_converter(cast(Any, shape)).structure(dict(raw), shape)))
    except cattrs.ClassValidationError as group:
        raise _together([_problem(error, section, provenance) for error in group.exceptions]) from None


@functools.lru_cache(maxsize=1024)
def _shared(value: object) -> object:
    """The first value that equals this one: what is cached for it is then found by identity."""
    return value


def _problem(error: BaseException, section: str, provenance: Provenance) -> tuple[Origin | None, str]:
    """The message of one mistake, and where it was written."""
    if isinstance(error, _WrongError):
        path = f"{section}.{error.key}"
        where = provenance.where(path)
        return where, str(mistake(f"{path} is {show(error.value)}", must=error.must, where=where, todo=error.todo))
    if isinstance(error, KeyError):
        key = yaml_name(str(error.args[0]))
        deleted = provenance.winner(f"{section}.{key}")
        if deleted is not None:
            what = f"{section}.{key} is deleted by {deleted.path}: null"
            return deleted.origin, str(mistake(what, must="it must be given", where=deleted.origin))
        return None, str(
            mistake(
                f"{section}.{key} is missing",
                must="it must be given",
                where=_any_origin(section, provenance),
                todo=f"Add {key}: to the {section}.",
            )
        )
    return None, str(error)


def _any_origin(section: str, provenance: Provenance) -> str | None:
    for path, history in provenance.overrides.items():
        if path.startswith(f"{section}."):
            return history[-1].origin.source
    return None


def _together(problems: list[tuple[Origin | None, str]]) -> DsgenError:
    """All mistakes as one error, in the order of the files' lines."""
    placed = sorted(problems, key=lambda item: (item[0].source, item[0].line or 0) if item[0] else ("", 0))
    shown = [text for _, text in placed[:MOST_ERRORS]]
    more = len(problems) - len(shown)
    return DsgenError("\nerror: ".join(shown) + (f"\n  and {more} more" if more else ""))


class _WrongError(Exception):
    """A value that its field refuses; the place is added once the section is known."""

    def __init__(self, key: str, value: Any, must: str, todo: str | None = None) -> None:
        super().__init__(key)
        self.key, self.value, self.must, self.todo = key, value, must, todo


@functools.cache
def _converter(shape: Any) -> cattrs.Converter:
    """A converter of one section; a job may need four of the five, and each takes its time."""
    converter = _plain_converter()
    hints = get_type_hints(shape)
    fields = {
        field.name: override(rename=yaml_name(field.name), struct_hook=_reader(field, str(hints[field.name])))
        for field in attrs.fields(shape)
    }
    hook: Callable[[Any, Any], Any] = make_dict_structure_fn(
        shape,
        converter,
        _cattrs_forbid_extra_keys=True,
        _cattrs_use_linecache=False,
        **fields,  # type: ignore[arg-type]
    )
    converter.register_structure_hook(shape, hook)
    return converter


@functools.lru_cache(maxsize=1)
def _plain_converter() -> cattrs.Converter:
    return cattrs.Converter(detailed_validation=True)


def _reader(field: attrs.Attribute[Any], hint: str) -> Callable[[Any, Any], Any]:
    """How one field reads a written value: its type exactly, its unit, its bounds."""
    key, optional = yaml_name(field.name), "None" in hint
    unit = next((unit for unit in UNITS if field.name == f"{key}_{unit}"), None)
    minimum, above, below = (field.metadata[name] for name in ("minimum", "above", "below"))
    choices = field.metadata["choices"]
    whole = "int" in hint

    def bounded(value: Any, number: float) -> None:
        if minimum is not None and number < minimum:
            raise _WrongError(key, value, _must(whole and unit is None, f"at least {minimum:g}"))
        if above is not None and number <= above:
            raise _WrongError(key, value, _must(whole and unit is None, f"above {above:g}"))
        if below is not None and number >= below:
            raise _WrongError(key, value, _must(whole and unit is None, f"below {below:g}"))

    def read(value: Any, _: Any) -> Any:
        if value is None and optional:
            return None
        if unit is not None:
            if value == 0 and type(value) is int and above is None:
                return 0
            try:
                amount = parse(value, unit)
            except ValueError as error:
                raise _WrongError(key, value, str(error)) from None
            bounded(value, amount)
            return round(amount) if whole else amount
        if choices:
            if value not in choices or not isinstance(value, str):
                close = nearest(str(value), choices)
                hint_ = f"; {offer(close[:1])}" if close else ""
                raise _WrongError(key, value, f"it must be one of {', '.join(choices)}{hint_}")
            return value
        return _READERS[hint_kind](key, value, bounded, minimum)

    hint_kind = (
        "tuple"
        if "tuple" in hint
        else "bool"
        if "bool" in hint
        else "int"
        if whole
        else ("float" if "float" in hint else "str")
    )
    return read


def _must(whole: bool, bound: str) -> str:
    of = "of " if bound.startswith("at") else ""
    return f"it must be a whole number {of}{bound}".rstrip() if whole else f"it must be {bound}"


def _read_int(key: str, value: Any, bounded: Callable[[Any, float], None], minimum: float | None) -> int:
    if type(value) is not int:
        whole = type(value) is float and value.is_integer() and abs(value) <= LARGEST_COUNT
        raise _WrongError(
            key,
            value,
            _must(True, f"at least {minimum:g}" if minimum is not None else ""),
            f"Write {int(value)}." if whole else None,
        )
    bounded(value, value)
    if value > LARGEST_COUNT:
        raise _WrongError(key, value, f"it must be at most {LARGEST_COUNT:,}")
    return value


def _read_float(key: str, value: Any, bounded: Callable[[Any, float], None], minimum: float | None) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise _WrongError(key, value, "it must be a finite number")
    bounded(value, value)
    return float(value)


def _read_bool(key: str, value: Any, bounded: Callable[[Any, float], None], minimum: float | None) -> bool:
    if type(value) is not bool:
        raise _WrongError(key, value, "it must be true or false")
    return value


def _read_str(key: str, value: Any, bounded: Callable[[Any, float], None], minimum: float | None) -> str:
    if not isinstance(value, str) or not value:
        raise _WrongError(key, value, "it must be text")
    return value


def _read_tuple(key: str, value: Any, bounded: Callable[[Any, float], None], minimum: float | None) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(item, str) and item for item in value):
        raise _WrongError(key, value, 'it must be a list of names, such as ["q_proj", "v_proj"]')
    return tuple(value)


_READERS: dict[str, Callable[[str, Any, Callable[[Any, float], None], float | None], Any]] = {
    "int": _read_int,
    "float": _read_float,
    "bool": _read_bool,
    "str": _read_str,
    "tuple": _read_tuple,
}
