"""A scenario with another value of one field: any field of a scenario, or a path as --set takes it."""

from __future__ import annotations

import re
from typing import Any

import attrs

from dsgen.jobs.assembly import assemble
from dsgen.jobs.fabrics import ASSUMED_NETWORK
from dsgen.jobs.job import Job
from dsgen.jobs.scenarios import FIELDS, NAMES, Scenario, ScenarioValue, layers, parse_set
from dsgen.jobs.token_amounts import amount
from dsgen.shapes import units
from dsgen.shapes.errors import DsgenError, mistake, nearest
from dsgen.shapes.layers import Origin, show
from dsgen.shapes.near_misses import offer
from dsgen.shapes.profiles import SECTIONS, yaml_name

__all__ = ["KINDS", "SOURCE", "field_named", "job_with", "number", "parsed", "read", "spelled", "varied"]

SOURCE = "what-if"
KINDS = {"hw": "hardware", "model": "model", "network": "network", "training": "training"}
_ALIASES = {"hardware": "hw", **{path: field for field, path in FIELDS.items()}}
_NOT_ONE = ("file", "set")  # fields of a scenario that hold many things
_TOGETHER = "+"  # between the names of a value that is a list
_LISTS = ("lora_targets",)
_TEXTS = ("deepspeed", "torch", "transformers", "liger")  # 2.10 is no number
_FIELD = re.compile(r"([A-Za-z][\w.-]*) *=")  # a second one among the values
_COUNTS = ("gpus", "nodes")  # fields that decide whether there is a network


def read(text: str) -> tuple[str, tuple[Any, ...]]:
    """The field and the values of `field=value,value`; a value is JSON, or else text.

    Raises:
        DsgenError: No field, no value, or an empty one.
    """
    name, equals, values = text.partition("=")
    words = [word.strip() for word in values.split(",")]
    field = field_named(name.strip()) if name.strip() else ""
    if field and (second := _FIELD.search(values)) is not None:
        raise mistake(
            f"{field} and {second[1]} are two fields",
            must="one field has other values at a time",
            where=SOURCE,
            todo=f"Ask each by itself: --what-if {field}={values[: second.start()].strip(' ,;')}.",
            code="contradiction",
        )
    if not equals or not field or not all(words):
        raise mistake(
            f"{show(text)} names no field"
            if not field
            else f"{field} has no value"
            if not equals or not any(words)
            else f"{show(text)} has an empty value",
            must="it must be field=value,value, such as network=ethernet-25g,ib-hdr-200g",
            where=SOURCE,
        )
    return field, tuple(parsed(field, word) for word in words)


def field_named(name: str) -> str:
    """The field that a person means: `--seq-len` and `seq_len` are one; a path stays a path.

    Raises:
        DsgenError: No such field, with the nearest.
    """
    field = name.lstrip("-").replace("-", "_")
    field = _ALIASES.get(field, field)
    if field in NAMES and field not in _NOT_ONE:
        return field
    if "." in name and field not in _NOT_ONE:
        return name  # the assembly knows every path, and the nearest to one that is none
    known = [name for name in NAMES if name not in _NOT_ONE]
    raise mistake(
        f"unknown field {show(name)}",
        must=f"it must be one of {', '.join(known)}, or a path as --set takes it",
        where=SOURCE,
        todo=offer(_paths(field) or nearest(field, known)),
        code="unknown-name",
    )


def _paths(name: str) -> tuple[str, ...]:
    """The facts and wishes of a name that no field has, by their paths: lr is training.lr."""
    return tuple(
        f"{section}.{name}"
        for section, kind in SECTIONS.items()
        if name in {yaml_name(field.name) for field in attrs.fields(kind)}
    )


def parsed(field: str, word: str) -> Any:
    """A value as it was typed: names of profiles and releases are text, and so is what is no JSON."""
    if field in (*KINDS, *_TEXTS):
        return word
    if field in _LISTS:
        return word.split(_TOGETHER)
    return amount(field, parse_set(f"{field}={word}", SOURCE)[1].value)


def job_with(scenario: Scenario, field: str, value: Any) -> Job:
    """The job of a scenario in which one field has another value, whoever said what it was.

    A network that is named for the many GPUs of a row joins nothing where another row has one node.

    Raises:
        DsgenError: A value that the field cannot have, or that contradicts the rest.
    """
    other = varied(scenario, field, value)
    try:
        return assemble(layers(other), other.deepspeed)
    except DsgenError:
        if field not in _COUNTS or not _names_network(other):
            raise
        lonely = _without_network(other)
        job = assemble(layers(lonely), lonely.deepspeed)
        if job.nodes > 1:
            raise
        return job


def varied(scenario: Scenario, field: str, value: Any) -> Scenario:
    """A scenario in which one field has another value.

    Raises:
        DsgenError: A name or a release that is no text.
    """
    said = ScenarioValue(value, Origin(SOURCE))
    if field in KINDS:
        if not isinstance(value, str):
            raise mistake(f"{field} is {show(value)}", must="it must be the name of a profile", where=SOURCE)
        return attrs.evolve(scenario, profiles={**scenario.profiles, KINDS[field]: (value,)})
    if field == "deepspeed":
        if not isinstance(value, str):
            raise mistake(f"deepspeed is {show(value)}", must='it must be a release, such as "0.19"', where=SOURCE)
        return attrs.evolve(scenario, deepspeed=value)
    path = FIELDS.get(field, field)
    sets = tuple(pair for pair in scenario.sets if pair[0] != path)
    if field in FIELDS:
        return attrs.evolve(scenario, fields={**scenario.fields, field: said}, sets=sets)
    if path.startswith("network.") and not _network(scenario):  # what a plan assumes where nobody names one
        scenario = attrs.evolve(scenario, profiles={**scenario.profiles, "network": (ASSUMED_NETWORK,)})
    fields = {name: other for name, other in scenario.fields.items() if FIELDS[name] != path}
    return attrs.evolve(scenario, fields=fields, sets=(*sets, (path, said)))


def _network(scenario: Scenario) -> bool:
    """Whether a scenario, or the file below it, says anything of the network."""
    said = bool(scenario.profiles.get("network")) or any(path.startswith("network.") for path, _ in scenario.sets)
    return said or bool(scenario.files) or (scenario.below is not None and _network(scenario.below))


def _names_network(scenario: Scenario) -> bool:
    named = bool(scenario.profiles.get("network"))
    return named or (scenario.below is not None and _names_network(scenario.below))


def _without_network(scenario: Scenario) -> Scenario:
    profiles = {kind: names for kind, names in scenario.profiles.items() if kind != "network"}
    below = _without_network(scenario.below) if scenario.below is not None else None
    return attrs.evolve(scenario, profiles=profiles, below=below)


def number(value: Any) -> float | None:
    """A value as a number, a quantity in its inner unit; None where it is neither."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    quantities = (_quantity(value, unit) for unit in units.UNITS)
    return next((one for one in quantities if one is not None), None)


def _quantity(value: Any, unit: str) -> float | None:
    try:
        return units.parse(value, unit)
    except ValueError:
        return None


def spelled(value: float, like: Any) -> str:
    """A number as a person would write it beside a value: with the unit of a quantity, with the digits that matter."""
    for spellings in units.UNITS.values():
        unit = str(like).lstrip(" 0123456789.,_eE+-")
        if isinstance(like, str) and unit in spellings:
            return f"{float(f'{value / spellings[unit]:.4g}'):,.10g} {unit}"  # without an exponent
    return f"{value:,.0f}" if value == int(value) else f"{value:.4g}"
