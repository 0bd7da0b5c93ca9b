"""One page per built-in profile and one index per kind, from the profiles alone."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from dsgen import catalog
from dsgen.deepspeed import surface
from dsgen.report.reference.markdown import cell, code, md_table
from dsgen.report.reference.results import counts, plans
from dsgen.shapes.layers import Override, show
from dsgen.shapes.profiles import SECTIONS, yaml_name

__all__ = ["pages"]

_ABOUT = {
    "hardware": "One kind of node: its accelerators and what surrounds them. `--hw NAME` takes one.",
    "model": "The architecture of one model; the parameters are counted from it. `--model NAME` takes one.",
    "network": "What joins the nodes; bandwidth is per node and direction. `--network NAME` takes one.",
    "training": "What a person wants of a run. `--training NAME` takes one or several.",
}


def pages() -> dict[str, str]:
    """File name below docs/ -> text, of every built-in profile and index.

    A person's own profiles are left out; one that shadows a built-in profile would replace its page, so the caller
    clears DSGEN_PROFILE_PATH.
    """
    return dict(_pages())


def _pages() -> Iterator[tuple[str, str]]:
    for kind in catalog.KINDS:
        profiles = [catalog.find(kind, name) for name in catalog.names(kind)]
        yield f"{kind}/index.md", _index(kind, profiles)
        for profile in profiles:
            yield f"{kind}/{profile.name}.md", _page(profile)


def _index(kind: str, profiles: list[catalog.Profile]) -> str:
    rows = [[f"[{cell(item.name)}]({item.name}.md)", cell(item.title), _names(item.aliases)] for item in profiles]
    return (
        f"# {kind.capitalize()} profiles\n\n{_ABOUT[kind]}\n\n{md_table(['name', 'what it is', 'also called'], rows)}"
    )


def _page(profile: catalog.Profile) -> str:
    parts = [
        f"# {profile.name}\n",
        f"{cell(profile.title)}. A {profile.kind} profile{_parent(profile)}: [{profile.file}](../../{profile.file}).\n",
    ]
    if profile.aliases:
        parts.append(f"Also called {_names(profile.aliases)}.\n")
    parts.append(_facts(profile))
    if profile.kind == "model":
        parts.append(counts(profile))
    if profile.kind == "hardware":
        parts.append(plans(profile))
    sources = "".join(f"{number}. {cell(source)}\n" for source, number in _sources(profile).items())
    return "\n".join([*parts, f"## Sources\n\n{sources}" if sources else ""]).rstrip() + "\n"


def _parent(profile: catalog.Profile) -> str:
    return f", on top of [{profile.extends}]({profile.extends}.md)" if profile.extends else ""


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(code(name) for name in names)


def _facts(profile: catalog.Profile) -> str:
    numbers = _sources(profile)
    rows = []
    for path, override in _in_force(profile).items():
        source = profile.source_of(path.partition(".")[2])
        rows.append(
            [
                code(path),
                cell(show(override.value)),
                cell(_meaning(path)),
                cell(override.reason or ""),
                f"[{numbers[source]}](#sources)" if source else "",
            ]
        )
    return md_table(["key", "value", "meaning", "why this value", "source"], rows)


def _in_force(profile: catalog.Profile) -> dict[str, Override]:
    """The last override of each path: a child's wins over its parent's."""
    return {override.path: override for override in profile.layer.overrides}


def _sources(profile: catalog.Profile) -> dict[str, int]:
    """The sources that a fact in force names, numbered in the order of the facts."""
    named = (profile.source_of(path.partition(".")[2]) for path in _in_force(profile))
    return {source: number for number, source in enumerate(dict.fromkeys(item for item in named if item), 1)}


def _meaning(path: str) -> str:
    """What a key means, from where it is declared: a shape's field, or the surface of DeepSpeed."""
    section, _, name = path.partition(".")
    if section in SECTIONS:
        fields = {yaml_name(field.name): field for field in attrs.fields(SECTIONS[section])}
        return str(fields[name].metadata["doc"])
    key = surface.load().key(name)
    return key.description if key else ""
