"""One section of a tree to its frozen class: exact types, units and bounds, nothing coerced.

The only module that imports cattrs. Each field's type goes to it with what the field declares (`shapes.profiles.fact`)
as an annotation; the hooks are registered by predicates of such types, and what is wrong comes back field by field.
"""

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, NamedTuple, TypeVar, cast, get_args

import attrs
import cattrs

from dsgen.shapes.errors import DsgenError, joined, mistake, nearest
from dsgen.shapes.layers import Origin, Provenance, show
from dsgen.shapes.near_misses import NARROWER, offer
from dsgen.shapes.optimizer_names import meant
from dsgen.shapes.pins import LARGEST_COUNT
from dsgen.shapes.profiles import SECTIONS, yaml_name
from dsgen.shapes.units import BYTES, UNITS, gib, parse

__all__ = ["spelled", "structure"]

T = TypeVar("T")
Hook = Callable[[Any, Any], Any]


def structure(shape: type[T], section: str, tree: Mapping[str, Any], provenance: Provenance) -> T:
    """One section of a folded tree as its frozen class.

    Raises:
        DsgenError: Everything wrong in the section, each with the place where it was written.
    """
    raw = tree.get(section, {})
    if not isinstance(raw, Mapping):
        raise mistake(f"{section} is {show(raw)}", must="it must be a map", where=provenance.where(section))
    try:
        return cast(T, _shared(_converter().structure(dict(raw), shape)))
    except cattrs.ClassValidationError as group:
        raise _together(list(_problems(group, section, provenance))) from None


def spelled(section: str, key: str, value: Any) -> Any:
    """A value as its field spells it, where it differs in the case of its letters alone: qlora for QLoRA."""
    if not isinstance(value, str):
        return value
    choices = _choices(section).get(key, ())
    return next((one for one in choices if one.casefold() == value.casefold()), value)


@functools.cache
def _choices(section: str) -> dict[str, tuple[str, ...]]:
    """Key of a section -> the texts that it allows, where it allows only some."""
    fields = attrs.fields(SECTIONS[section])
    return {yaml_name(field.name): field.metadata["choices"] for field in fields if field.metadata["choices"]}


@functools.lru_cache(maxsize=1024)
def _shared(value: object) -> object:
    """The first value that equals this one: what is cached for it is then found by identity."""
    return value


def _problems(
    group: cattrs.ClassValidationError, section: str, provenance: Provenance
) -> Iterator[tuple[Origin | None, DsgenError]]:
    """What cattrs has found, field by field: each mistake, and where it was written."""
    by_field, others = group.group_exceptions()
    for error, note in by_field:
        yield _problem(error, f"{section}.{yaml_name(note.name)}", provenance)
    for error in others:
        if not isinstance(error, cattrs.ForbiddenExtraKeysError):
            raise error
        for key in sorted(error.extra_fields):
            where = provenance.where(f"{section}.{key}")
            yield where, mistake(f"{section} has no {key}", where=where, code="unknown-name")


def _problem(error: Exception, path: str, provenance: Provenance) -> tuple[Origin | None, DsgenError]:
    """The mistake of one field, and where it was written."""
    if isinstance(error, _WrongError):
        where = provenance.where(path)
        return where, mistake(f"{path} is {show(error.value)}", must=error.must, where=where, todo=error.todo)
    if not isinstance(error, KeyError):
        raise error
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
    """A value that its field refuses; cattrs knows the field, and the section its place."""

    def __init__(self, value: Any, must: str, todo: str | None = None) -> None:
        super().__init__(must)
        self.value, self.must, self.todo = value, must, todo


class _Declared(NamedTuple):
    """What a field declares of the values written for it; it annotates the field's type."""

    unit: str | None
    choices: tuple[str, ...]
    minimum: float | None
    above: float | None
    below: float | None


def _declared(field: "attrs.Attribute[Any]") -> Any:
    """A field's type with what it declares: int -> Annotated[int, ...], int | None -> Annotated[int, ...] | None."""
    key = yaml_name(field.name)
    unit = next((unit for unit in UNITS if field.name == f"{key}_{unit}"), None)
    bounds = {name: field.metadata[name] for name in ("choices", "minimum", "above", "below")}
    optional = type(None) in get_args(field.type)
    own = next(kind for kind in get_args(field.type) if kind is not type(None)) if optional else field.type
    annotated: Any = Annotated[own, _Declared(unit, **bounds)]
    return annotated | None if optional else annotated


def _is_declared(kind: Any) -> bool:
    return isinstance(_declaration(kind), _Declared)


def _declaration(kind: Any) -> Any:
    """What is declared of a type that `_declared` made; None of another."""
    return next((item for item in getattr(kind, "__metadata__", ()) if isinstance(item, _Declared)), None)


def _is_of(base: type) -> Callable[[Any], bool]:
    return lambda kind: _is_declared(kind) and get_args(kind)[0] is base


@functools.lru_cache(maxsize=1)
def _converter() -> cattrs.BaseConverter:
    """The converter of every section; what is registered last is asked first."""
    converter = cattrs.BaseConverter()
    for predicate, factory in (
        (attrs.has, _section_hook),
        (_is_of(bool), _bool_hook),
        (_is_of(str), _text_hook),
        (_is_of(int), _count_hook),
        (_is_of(float), _number_hook),
        (lambda kind: _is_declared(kind) and get_args(kind)[0] == tuple[str, ...], _names_hook),
        (lambda kind: _is_declared(kind) and bool(_declaration(kind).choices), _choice_hook),
        (lambda kind: _is_declared(kind) and _declaration(kind).unit is not None, _quantity_hook),
        (lambda kind: any(map(_is_declared, get_args(kind))), _optional_hook),
    ):
        converter.register_structure_hook_factory(predicate, factory)
    return converter


def _section_hook(shape: Any, converter: cattrs.BaseConverter) -> Hook:
    """A map to its class: keys without the units of the fields, each value by the hook of its field's type.

    cattrs would write and compile a function for each class, which takes a hundred times as long as to call it once.
    """
    fields = {
        yaml_name(field.name): (field, converter.get_structure_hook(_declared(field))) for field in attrs.fields(shape)
    }

    def read(tree: Mapping[str, Any], _: Any) -> Any:
        given: dict[str, Any] = {}
        wrong: list[Exception] = []
        for key, (field, hook) in fields.items():
            try:
                if key in tree or field.default is attrs.NOTHING:
                    given[field.name] = hook(tree[key], None)
            except (_WrongError, KeyError) as error:  # noqa: PERF203 - every field of it
                error.__notes__ = [cattrs.AttributeValidationNote(key, field.name, field.type)]  # type: ignore[union-attr]
                wrong.append(error)
        if unknown := tree.keys() - fields:
            wrong.append(cattrs.ForbiddenExtraKeysError(None, shape, unknown))
        if wrong:
            raise cattrs.ClassValidationError(f"reading {shape.__name__}", wrong, shape)
        return shape(**given)

    return read


def _optional_hook(kind: Any, converter: cattrs.BaseConverter) -> Hook:
    """null, or what the other type of the two reads."""
    inner = converter.get_structure_hook(next(filter(_is_declared, get_args(kind))))
    return lambda value, _: None if value is None else inner(value, _)


def _quantity_hook(kind: Any) -> Hook:
    """A number with a unit, as bytes, seconds or FLOP/s; 0 needs no unit."""
    declared, whole = _declaration(kind), get_args(kind)[0] is int

    def read(value: Any, _: Any) -> Any:
        if value == 0 and type(value) is int and declared.above is None:
            return 0
        try:
            amount = parse(value, declared.unit)
        except ValueError as error:
            raise _WrongError(value, str(error)) from None
        _keep_bounds(value, amount, declared, whole=False)
        return round(amount) if whole else amount

    return read


def _choice_hook(kind: Any) -> Hook:
    choices = _declaration(kind).choices

    def read(value: Any, _: Any) -> str:
        if isinstance(value, str) and value in choices:
            return value
        if (known := meant(value)) in choices:  # an optimizer has many names
            return str(known)
        close = nearest(str(value), choices)
        hint = f"; {offer(close[:1])}" if close else ""
        if "bf16" in choices and (instead := NARROWER.get(str(value).casefold())):  # near in letters alone
            hint = f"; {instead}"
        raise _WrongError(value, f"it must be one of {', '.join(choices)}{hint}")

    return read


def _count_hook(kind: Any) -> Hook:
    """A whole number, written as one: 8.0 is none, and neither is true."""
    declared = _declaration(kind)

    def read(value: Any, _: Any) -> int:
        if type(value) is not int:
            whole = type(value) is float and value.is_integer() and abs(value) <= LARGEST_COUNT
            least = f"at least {declared.minimum:g}" if declared.minimum is not None else ""
            raise _WrongError(value, _must(True, least), f"Write {int(value)}." if whole else None)
        _keep_bounds(value, value, declared, whole=True)
        if value > LARGEST_COUNT:
            raise _WrongError(value, f"it must be at most {LARGEST_COUNT:,}")
        return value

    return read


def _number_hook(kind: Any) -> Hook:
    declared = _declaration(kind)

    def read(value: Any, _: Any) -> float:
        if type(value) not in (int, float) or not math.isfinite(value):
            raise _WrongError(value, "it must be a finite number")
        _keep_bounds(value, value, declared, whole=False)
        return float(value)

    return read


def _bool_hook(_: Any) -> Hook:
    def read(value: Any, _: Any) -> bool:
        if type(value) is not bool:
            raise _WrongError(value, "it must be true or false")
        return value

    return read


def _text_hook(_: Any) -> Hook:
    def read(value: Any, _: Any) -> str:
        if not isinstance(value, str) or not value:
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            todo = "Put it in quotes." if number else None
            raise _WrongError(value, "it must be text", todo)
        return value

    return read


def _names_hook(_: Any) -> Hook:
    def read(value: Any, _: Any) -> tuple[str, ...]:
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
        bound = f"{gib(declared.below)} GiB" if declared.unit == BYTES else f"{declared.below:g}"
        raise _WrongError(value, _must(whole, f"below {bound}"))


def _must(whole: bool, bound: str) -> str:
    of = "of " if bound.startswith("at") else ""
    return f"it must be a whole number {of}{bound}".rstrip() if whole else f"it must be {bound}"
