"""Write schema/profile/*.schema.json from dsgen's own shapes: profiles, override files and scenarios in YAML.

    python schema/profile_schema.py [--check]

What a field means, its unit, its bounds and its choices come from the attrs classes of dsgen.shapes.profiles; the keys
of DeepSpeed come from schema/deepspeed/ of the newest release line and are referred to, not copied. No file has a date.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_type_hints

FOLDER = Path(__file__).resolve().parent / "profile"
sys.path.insert(0, str(FOLDER.parent.parent))  # the checkout's dsgen, not an installed one

import attrs  # noqa: E402

from dsgen.asking.calibrating.measurements import NUMBERS, REQUIRED, TEXTS  # noqa: E402
from dsgen.catalog.sheets import KINDS  # noqa: E402
from dsgen.deepspeed.surface import known_versions  # noqa: E402
from dsgen.jobs.scenarios import FIELDS  # noqa: E402
from dsgen.shapes.pins import LARGEST_COUNT  # noqa: E402
from dsgen.shapes.profiles import SECTIONS, yaml_name  # noqa: E402
from dsgen.shapes.units import BANDWIDTH, BYTES, FLOPS, SECONDS, UNITS  # noqa: E402

DIALECT = "https://json-schema.org/draft/2020-12/schema"
SHARED = "sections.schema.json"  # what the other files refer to
OVERRIDE = "override.schema.json"
DEEPSPEED = known_versions()[-1]
DOTTED = {"\\.": True}  # `zero_optimization.stage: 2` is one key to YAML; dsgen itself judges the path
EXAMPLES = {BYTES: "40 GiB", BANDWIDTH: "200 Gb/s", FLOPS: "312 TFLOP/s", SECONDS: "5 us"}
NUMBER = r"[0-9](?:[0-9_,]*[0-9])?(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"  # as dsgen.shapes.units reads it
NONZERO = r"(?!\s*[0_,.]+\s*[A-Za-z])"
TEXT = {"type": "string", "minLength": 1}
NULL = {"type": "null"}  # deletes what a lower layer says
NAMES = {
    "hw": "Hardware profile, by name or file: one node of it.",
    "model": "Model profile, or a Hugging Face config.json or its folder.",
    "network": "Network profile: what joins the nodes.",
    "training": "Training profiles, in order.",
}


def section(name: str) -> dict[str, Any]:
    """The schema of one section: a key for every field of its class, and no other."""
    shape = SECTIONS[name]
    hints = get_type_hints(shape)
    lines = (shape.__doc__ or "").strip().splitlines()
    fields = {yaml_name(field.name): fact(field, str(hints[field.name])) for field in attrs.fields(shape)}
    return {
        "description": lines[0],
        "type": "object",
        "properties": fields,
        "patternProperties": DOTTED,
        "additionalProperties": False,
    }


def required(name: str) -> list[str]:
    """The facts that some layer must give."""
    return [yaml_name(field.name) for field in attrs.fields(SECTIONS[name]) if field.default is attrs.NOTHING]


def fact(field: attrs.Attribute[Any], hint: str) -> dict[str, Any]:
    """The schema of one field; null deletes it."""
    key = yaml_name(field.name)
    unit = field.name[len(key) + 1 :]
    node: dict[str, Any] = {"description": field.metadata["doc"]}
    if field.default not in (attrs.NOTHING, None) and not unit:
        node["default"] = list(field.default) if isinstance(field.default, tuple) else field.default
    if unit:
        return node | quantity(unit, field.metadata)
    if field.metadata["choices"]:
        return node | {"enum": [*field.metadata["choices"], None]}
    if "tuple" in hint:
        return node | {"type": ["array", "null"], "items": TEXT, "minItems": 1}
    kind = next(kind for kind in ("bool", "int", "float", "str") if kind in hint)
    if kind in ("bool", "str"):
        return node | (
            {"type": ["boolean", "null"]} if kind == "bool" else {"type": ["string", "null"], "minLength": 1}
        )
    words = (("minimum", "minimum"), ("above", "exclusiveMinimum"), ("below", "exclusiveMaximum"))
    node |= {word: field.metadata[bound] for bound, word in words if field.metadata[bound] is not None}
    if kind == "int":
        return node | {"type": ["integer", "null"], "maximum": LARGEST_COUNT}
    return node | {"type": ["number", "null"]}


def quantity(unit: str, bounds: Mapping[str, Any]) -> dict[str, Any]:
    """A number with a unit as text; a plain 0 where nothing may be there."""
    spellings = "|".join(UNITS[unit])
    start = NONZERO if bounds["above"] is not None else ""
    text = {
        "type": "string",
        "pattern": rf"^{start}\s*{NUMBER}\s*({spellings})\s*$",
        "patternErrorMessage": f"It must be a number with a unit, such as {EXAMPLES[unit]}.",  # editors say this
    }
    zero = [{"const": 0}] if bounds["above"] is None else []
    return {"anyOf": [text, *zero, {"type": "null"}], "examples": [EXAMPLES[unit]]}


def deepspeed_keys(node: Mapping[str, Any], pointer: str, path: str) -> dict[str, Any]:
    """The keys of one section of the DeepSpeed schema, each referred to; a key may be null, and no other is known."""
    if path in ("optimizer.params", "scheduler.params"):
        return {"description": node["description"], "type": ["object", "null"]}  # named below, by their types
    keys: dict[str, Any] = {}
    for name, below in node["properties"].items():
        here = f"{pointer}/properties/{name}"
        full = f"{path}.{name}" if path else name
        if ("properties" in below and "additionalProperties" not in _open(below)) or full == "scheduler.params":
            keys[name] = deepspeed_keys(below, here, full)
        else:
            keys[name] = {"anyOf": [{"$ref": here}, NULL]}
    for number, choice in enumerate(node.get("allOf", ())):  # the arguments of each optimizer or schedule
        taken = choice["then"]["properties"]["params"]["properties"]
        where = f"{pointer}/allOf/{number}/then/properties/params/properties"
        offered = keys["params"].setdefault("properties", {})
        offered.update({name: {"anyOf": [{"$ref": f"{where}/{name}"}, NULL]} for name in taken if name not in offered})
    found: dict[str, Any] = {"properties": keys, "patternProperties": DOTTED, "additionalProperties": False}
    if not path:
        return found
    others = [kind for kind in _kinds(node) if kind not in ("object", "null", "boolean")]  # dsgen takes no short forms
    return {"description": node["description"], "type": ["object", "null", *others], **found}


def _open(node: Mapping[str, Any]) -> Mapping[str, Any]:
    """The node, when its keys are names that a person makes up."""
    return node if isinstance(node.get("additionalProperties"), Mapping) else {}


def _kinds(node: Mapping[str, Any]) -> list[str]:
    """The JSON types that a key of DeepSpeed takes besides a section."""
    rules = [node, *node.get("anyOf", ())]
    listed = [rule["type"] for rule in rules if "type" in rule]
    return [kind for types in listed for kind in (types if isinstance(types, list) else [types])]


def dotted(node: Mapping[str, Any], before: str = "", pointer: str = "") -> Iterator[tuple[str, str]]:
    """Every key of a tree of sections: its dotted path, and the pointer to its schema."""
    for name, below in node.get("properties", {}).items():
        here = f"{pointer}/properties/{name}"
        yield f"{before}{name}", here
        yield from dotted(below, f"{before}{name}.", here)


def sections() -> dict[str, Any]:
    """What the files share: each section, and DeepSpeed's keys."""
    source = f"../deepspeed/{DEEPSPEED}.schema.json"
    release = json.loads((FOLDER.parent / "deepspeed" / f"{DEEPSPEED}.schema.json").read_text(encoding="utf-8"))
    definitions: dict[str, Any] = {name: section(name) for name in SECTIONS}
    definitions["deepspeed"] = {
        "description": f"Keys of the DeepSpeed config, as DeepSpeed {DEEPSPEED} reads them; null deletes one.",
        "type": "object",
        **deepspeed_keys(release, f"{source}#", ""),
    }
    return {
        "$schema": DIALECT,
        "title": "Sections of dsgen's YAML files",
        "description": "Generated by schema/profile_schema.py; the other files refer to it.",
        "$defs": definitions,
    }


def own_sections() -> dict[str, Any]:
    """Each section, referred to."""
    return {name: {"$ref": f"{SHARED}#/$defs/{name}"} for name in (*SECTIONS, "deepspeed")}


def repositories() -> dict[str, Any]:
    """The schema of a model's list of repositories: names, or what a repository's config.json says otherwise."""
    model = f"{SHARED}#/$defs/model"
    differing = {
        yaml_name(field.name): {"$ref": f"{model}/properties/{yaml_name(field.name)}"}
        for field in attrs.fields(SECTIONS["model"])
    }
    item = {
        "type": "object",
        "properties": {"name": TEXT, **differing},
        "required": ["name"],
        "additionalProperties": False,
    }
    return {
        "type": "array",
        "items": {"anyOf": [TEXT, item]},
        "description": "Repositories on the Hugging Face hub with this architecture; one that differs is a map of its"
        " name and the facts that it has instead.",
    }


def measurements() -> dict[str, Any]:
    """The schema of what dsgen calibrate was told of a machine."""
    numbers = {name: {"type": "number", "exclusiveMinimum": 0} for name in NUMBERS}
    return {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {**dict.fromkeys(TEXTS, TEXT), **numbers},
            "required": list(REQUIRED),
            "additionalProperties": False,
        },
        "description": "Runs that were measured on this machine, as dsgen calibrate writes them.",
    }


def profile(kind: str) -> dict[str, Any]:
    """The schema of a profile file of one kind."""
    facts = {yaml_name(field.name): TEXT for field in attrs.fields(SECTIONS[kind])}
    header: dict[str, Any] = {
        "name": TEXT | {"description": "What to call it; by default the file's name."},
        "kind": {"const": kind, "description": "What it is about."},
        "title": TEXT | {"description": "What a person calls it."},
        "aliases": {"type": "array", "items": {"type": "string"}, "description": "Other names of it."},
        "extends": TEXT | {"description": "A profile of the same kind, by name or file, that this one starts from."},
        **({"hub": repositories()} if kind == "model" else {}),
        **({"measurements": measurements()} if kind == "hardware" else {}),
        "source": {
            "description": "Where the facts come from: one text for all, or a text for each.",
            "type": ["string", "object"],
            "properties": {"default": TEXT | {"description": "Of every fact without its own."}, **facts},
            "additionalProperties": {"type": "string"},
        },
    }
    keys = sections()["$defs"]["deepspeed"]["properties"]
    bare = [name for name, below in keys.items() if "properties" in below]  # sections of DeepSpeed's, as it writes them
    wanted = required(kind)
    whole = {"required": [kind], "properties": {kind: {"required": wanted}}}
    says = {"not": {"propertyNames": {"enum": list(header)}}}
    return {
        "$schema": DIALECT,
        "title": f"dsgen {kind} profile",
        "description": (SECTIONS[kind].__doc__ or "").strip().splitlines()[0],
        "type": "object",
        "properties": {
            **header,
            **own_sections(),
            **{name: {"$ref": f"{SHARED}#/$defs/deepspeed/properties/{name}"} for name in bare},
        },
        "patternProperties": DOTTED,
        "additionalProperties": False,
        "if": {"required": ["extends"]},
        "else": whole if wanted else says,
    }


def override() -> dict[str, Any]:
    """The schema of a file for -f: sections, or DeepSpeed's keys as DeepSpeed writes them, nested or dotted."""
    definitions = sections()["$defs"]
    paths = {
        path: {"$ref": f"{SHARED}#/$defs/{name}{pointer}"}
        for name in (*SECTIONS, "deepspeed")
        for path, pointer in dotted(definitions[name], "" if name == "deepspeed" else f"{name}.")
    }
    own = own_sections()
    own["deepspeed"] = {
        "description": "Keys of DeepSpeed's. null: none that a plan would write, so that those said here are all.",
        "anyOf": [own["deepspeed"], NULL],
    }
    return {
        "$schema": DIALECT,
        "title": "dsgen override file (-f)",
        "description": "Sections of a profile, or DeepSpeed keys as DeepSpeed writes them; later files win.",
        "type": "object",
        "minProperties": 1,
        "properties": {**own, **paths},
        "patternProperties": {"^deepspeed\\..": True, "^[^.]+\\..*\\[": True},
        "additionalProperties": False,
    }


SHORT = {"seq_len": "kK", "target_len": "kK", "mean_len": "kK", "total_tokens": "kKmMbBtT"}  # 32k, 300B


def scenario() -> dict[str, Any]:
    """The schema of a scenario file: the options of the command line as data."""
    names = {"anyOf": [TEXT, {"type": "array", "items": TEXT, "minItems": 1}]}
    fields: dict[str, Any] = {}
    for field, path in FIELDS.items():
        where, _, key = path.partition(".")
        for spelling in dict.fromkeys((field, field.replace("_", "-"))):
            fields[spelling] = {"$ref": f"{SHARED}#/$defs/{where}/properties/{key}"}
            if field in SHORT:  # dsgen.jobs.token_amounts reads it
                short = {"type": "string", "pattern": f"^[0-9]+(\\.[0-9]+)? ?[{SHORT[field]}]$"}
                fields[spelling] = {"anyOf": [fields[spelling], short]}
    pair = {"type": "string", "pattern": "^\\s*[^=\\s.][^=]*=\\s*\\S"}
    return {
        "$schema": DIALECT,
        "title": "dsgen scenario",
        "description": "What to plan for, as the options of dsgen render say it.",
        "type": "object",
        "minProperties": 1,
        "properties": {
            **{name: {"description": words, **names} for name, words in NAMES.items()},
            **fields,
            "deepspeed": {
                "description": f'The DeepSpeed release the config is for, quoted: "{DEEPSPEED}".',
                "type": "string",
                "pattern": "^[0-9]{1,4}\\.[0-9]{1,4}(\\.[0-9]{1,4})?$",
                "examples": list(known_versions()),
            },
            "file": {"description": "Override files, in order; paths start at this file's folder.", **names},
            "set": {
                "description": "Single overrides: a map of dotted paths, or a list of path=value.",
                "anyOf": [{"$ref": OVERRIDE}, {"type": "array", "items": pair}],
            },
        },
        "additionalProperties": False,
    }


def schemas() -> dict[str, dict[str, Any]]:
    """File name -> schema."""
    profiles = {f"{kind}.schema.json": profile(kind) for kind in KINDS}
    return {SHARED: sections(), **profiles, OVERRIDE: override(), "scenario.schema.json": scenario()}


def main() -> None:
    """Write the files, or with --check compare them and exit 1 when they differ."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file would change")
    check = options.parse_args().check
    texts = {FOLDER / name: f"{json.dumps(tree, indent=1, ensure_ascii=False)}\n" for name, tree in schemas().items()}
    extra = sorted(set(FOLDER.glob("*")) - set(texts))
    stale = [path for path, text in texts.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    if check and (stale or extra):
        sys.exit(f"stale: {', '.join(path.name for path in (*stale, *extra))}; run this without --check, see the diff")
    FOLDER.mkdir(exist_ok=True)
    for path in () if check else extra:
        path.unlink()
    for path in () if check else stale:
        path.write_text(texts[path], encoding="utf-8")
        print(f"wrote {path.name}")


if __name__ == "__main__":
    main()
