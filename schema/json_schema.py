"""The surface of one release as a JSON Schema 2020-12, for editors and validators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["json_schema"]

_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_NOTES = ("since", "removed", "replaced_by", "effect", "was")


def _letters(name: str) -> str:
    """A pattern that takes a name in any case of letters: DeepSpeed lowers the names of its own optimizers."""
    return "^" + "".join(f"[{c.upper()}{c}]" if c.isalpha() else c for c in name) + "$"


def _facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    node: dict[str, Any] = {}
    if "about" in facts:
        node["description"] = facts["about"]
    if facts.get("default") is not None:
        node["default"] = facts["default"]
    if facts.get("deprecated") or facts.get("removed"):
        node["deprecated"] = True
    for word in _NOTES:
        if facts.get(word) is not None:
            node[f"x-dsgen-{word.replace('_', '-')}"] = facts[word]
    if facts.get("elements"):
        node["x-dsgen-unit"] = "elements"
    return node


def _rule(facts: Mapping[str, Any], strict: bool) -> dict[str, Any]:
    """The part of a key's schema that a value must satisfy."""
    if facts.get("removed"):
        return {"not": {}}
    rule: dict[str, Any] = {}
    types = facts["types"]
    if types:
        rule["type"] = types[0] if len(types) == 1 else types
    if facts.get("folded"):
        rule["pattern"] = "|".join(_letters(value.lower()) for value in facts["enum"] if value)  # null passes a pattern
    elif "enum" in facts:
        rule = {"enum": facts["enum"]}
    rule |= {word: facts[word] for word in _BOUNDS if word in facts}
    if "items" in facts:
        rule["items"] = {"enum": facts["items"]}
    if "not" in facts:
        rule["not"] = {"const": facts["not"]}
    # A pydantic section drops "auto" and takes the default; elsewhere only Hugging Face fills it in.
    if rule and (strict or facts.get("auto")) and rule != {"type": "string"}:
        return {"anyOf": [rule, {"const": "auto"}]}
    return rule


def _params(surface: Mapping[str, Any], names: Mapping[str, Any], prefix: str, required: list[str]) -> dict[str, Any]:
    keys = surface["keys"]
    properties = {
        name: _property(keys.get(f"{prefix}.{name}") or surface["params"].get(name), default)
        for name, default in sorted(names.items())
    }
    closed: dict[str, Any] = {"properties": properties, "additionalProperties": False}
    return closed | ({"required": required} if required else {})


def _property(facts: Mapping[str, Any] | None, default: Any) -> dict[str, Any]:
    node = _facts(facts) if facts else {}
    if facts and facts.get("types"):
        node |= _rule({"auto": True, **facts}, False)
    return node | ({"default": default} if default is not None else {})


def _by_type(surface: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """`if type is X then params are these`, for optimizers and schedules."""
    rules: dict[str, list[dict[str, Any]]] = {"optimizer": [], "scheduler": []}
    for name, forms in surface["optimizers"].items():
        if not forms or any(form.get("drops") for form in forms):
            continue
        taken: dict[str, Any] = {}
        for form in reversed(forms):
            taken |= dict.fromkeys(form["also"]) | form["params"]
        rules["optimizer"].append(_if_then(_letters(name), _params(surface, taken, "optimizer.params", [])))
    for name, form in surface["schedulers"].items():
        params = _params(surface, form["params"], "scheduler.params", form["required"])
        rules["scheduler"].append(_if_then(f"^{name}$", params))
    return rules


def _if_then(pattern: str, params: dict[str, Any]) -> dict[str, Any]:
    chosen = {"properties": {"type": {"pattern": pattern}}, "required": ["type"]}
    return {"if": chosen, "then": {"properties": {"params": params}}}


def _section(surface: Mapping[str, Any], path: str, children: Mapping[str, list[str]]) -> dict[str, Any]:
    """The schema of what lies under one path."""
    kind = surface["sections"].get(path, "loose")
    node: dict[str, Any] = {"properties": {}}
    for child in children.get(path, ()):
        name = child[len(path) :].lstrip(".")
        if name == "<name>":
            node["additionalProperties"] = _node(surface, child, children)
        elif not name.endswith("[]"):
            node["properties"][name] = _node(surface, child, children)
    pairs = [pair for pair in surface["aliases"].items() if pair[0].rpartition(".")[0] == path]
    for alias, canonical in pairs:
        note = {"description": f"Other name of {canonical.rpartition('.')[2]}; one of the two only."}
        node["properties"][alias.rpartition(".")[2]] = note | _rule(surface["keys"][canonical], kind == "strict")
    both = [[name.rpartition(".")[2] for name in pair] for pair in pairs]
    if both:
        node["not"] = {"anyOf": [{"type": "object", "required": pair} for pair in both]}
    if kind == "strict":
        node["additionalProperties"] = False
    return node


def _node(surface: Mapping[str, Any], path: str, children: Mapping[str, list[str]]) -> dict[str, Any]:
    facts = surface["keys"][path]
    parent = path.rpartition(".")[0]
    node = _facts(facts)
    rule = _rule(facts, surface["sections"].get(parent) == "strict")
    inside = children.get(path)
    items = f"{path}[]"
    if items in children:
        node["items"] = {"type": "object"} | _section(surface, items, children)
    elif inside and not facts.get("removed"):
        node |= _section(surface, path, children)
    return node | rule


def json_schema(surface: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON Schema of a surface."""
    children: dict[str, list[str]] = {}
    for path in surface["keys"]:
        children.setdefault(path.rpartition(".")[0], []).append(path)
    minor = surface["deepspeed"].rpartition(".")[0]
    top = _section(surface, "", children)
    for name, rules in _by_type(surface).items():
        top["properties"][name]["allOf"] = rules
    names = [*surface["optimizers"], *surface["torch_optimizers"]]
    top["properties"]["optimizer"]["properties"]["type"] |= {"examples": sorted(names)}
    top["properties"]["scheduler"]["properties"]["type"] |= {"examples": sorted(surface["schedulers"])}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"DeepSpeed {minor} configuration",
        "description": f"Generated from DeepSpeed {surface['deepspeed']} by dsgen (schema/generate.py).",
        "type": "object",
        **top,
    }
