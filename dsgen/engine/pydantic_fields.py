"""The fields of DeepSpeed's pydantic models, of pydantic 2 or of its version 1 interface, as plain JSON."""

from __future__ import annotations

import enum
import math
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["as_json", "fields_of", "is_strict"]

_BOUNDS = {"gt": "exclusiveMinimum", "ge": "minimum", "lt": "exclusiveMaximum", "le": "maximum"}
_SIMPLE = {bool: "boolean", int: "integer", float: "number", str: "string", Path: "string"}
_CONTAINERS: dict[Any, str] = {list: "array", tuple: "array", set: "array", dict: "object"}


def as_json(value: Any) -> Any:
    """A default as JSON can say it; a float that is whole stays a float, an unknown object is None."""
    if isinstance(value, enum.Enum):
        return as_json(value.value)
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, (list, tuple, set)):
        return [as_json(item) for item in value]
    if isinstance(value, dict):
        return {str(key): as_json(item) for key, item in value.items()}
    text = str(value)
    return text if text.startswith("torch.") else None


def is_strict(model: Any) -> bool:
    """Whether the model refuses keys it does not know."""
    config = getattr(model, "model_config", None)
    if isinstance(config, dict):
        return config.get("extra") == "forbid"
    extra = model.__config__.extra
    return str(getattr(extra, "value", extra)) == "forbid"


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and (hasattr(annotation, "model_fields") or hasattr(annotation, "__fields__"))


def _kinds(annotation: Any) -> tuple[list[str], list[Any], Any]:
    """JSON types, the allowed values (empty: any) and the nested model of an annotation."""
    origin = typing.get_origin(annotation)
    if origin is typing.Union or origin is types.UnionType:
        parts = [_kinds(argument) for argument in typing.get_args(annotation)]
        names = list(dict.fromkeys(name for part in parts for name in part[0]))
        return names, [v for part in parts for v in part[1]], next((p[2] for p in parts if p[2]), None)
    if origin is typing.Annotated:
        return _kinds(typing.get_args(annotation)[0])
    if origin is typing.Literal:
        values = list(typing.get_args(annotation))
        return sorted({_SIMPLE[type(v)] for v in values}), values, None
    if origin in (list, set):
        inner = typing.get_args(annotation)
        return ["array"], (_kinds(inner[0])[1] if inner else []), None
    if _is_model(annotation):
        return ["object"], [], annotation
    if annotation is type(None):
        return ["null"], [], None
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        values = list(dict.fromkeys(as_json(v) for v in annotation))
        return sorted({_SIMPLE[type(v)] for v in values}), values, None
    if annotation in _SIMPLE:
        return [_SIMPLE[annotation]], [], None
    container = _CONTAINERS.get(origin or annotation)
    return ([container] if container else []), [], None


def _default(field: Any) -> Any:
    factory = getattr(field, "default_factory", None)
    value = factory() if factory else field.default
    return None if _is_model(type(value)) else as_json(value)


def _details(field: Any) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Annotation, bounds and extra facts of a field of either pydantic."""
    if hasattr(field, "outer_type_"):  # version 1
        info = field.field_info
        bounds = {_BOUNDS[name]: getattr(info, name) for name in _BOUNDS if getattr(info, name, None) is not None}
        annotation = field.outer_type_
        if isinstance(annotation, type) and annotation.__name__.startswith("Constrained"):
            annotation = annotation.__mro__[2]
        return (annotation | None if field.allow_none else annotation), bounds, dict(info.extra)
    bounds = {
        _BOUNDS[name]: getattr(rule, name)
        for rule in field.metadata
        for name in _BOUNDS
        if getattr(rule, name, None) is not None
    }
    extra = field.json_schema_extra
    return field.annotation, bounds, dict(extra) if isinstance(extra, dict) else {}


def fields_of(model: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each field of a model and of the models inside it, by dotted path.

    A section yields `strict`; a field with an alias is named by the alias and carries the other name in `also`.
    """
    fields = getattr(model, "model_fields", None) or model.__fields__
    for name, field in fields.items():
        annotation, bounds, extra = _details(field)
        kinds, values, nested = _kinds(annotation)
        alias = field.alias if field.alias and field.alias != name else None
        known: dict[str, Any] = {
            "types": kinds,
            "default": _default(field),
            **{k: as_json(v) for k, v in bounds.items()},
        }
        if values and "array" in kinds:
            known["items"] = [as_json(v) for v in values]
        elif values:
            known["enum"] = [as_json(v) for v in values] + ([None] if "null" in kinds else [])
        if alias:
            known["also"] = name
        if extra.get("deprecated"):
            known["deprecated"] = True
            known["replaced_by"] = extra.get("new_param")
            known["moved"] = bool(extra.get("new_param")) and extra.get("set_new_param", True)
        here = f"{path}.{alias or name}"
        if nested is not None:
            yield here, known | {"strict": is_strict(nested)}
            yield from fields_of(nested, here)
        else:
            yield here, known
