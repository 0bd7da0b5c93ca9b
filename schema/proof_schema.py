"""Write schema/proof.schema.json, the shape of a certificate, from the class that dsgen itself reads and writes.

python schema/proof_schema.py [--check]
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parent / "proof.schema.json"
sys.path.insert(0, str(FILE.parent.parent))  # the checkout's dsgen, not an installed one

import attrs  # noqa: E402

from dsgen.proving.certificates import FORMAT, SCHEMA_VERSION, Certificate  # noqa: E402

DIALECT = "https://json-schema.org/draft/2020-12/schema"
TEXT = {"type": "string", "minLength": 1}
HASH = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
SECONDS = {"type": "number", "minimum": 0}
SHAPES: dict[str, dict[str, Any]] = {
    "format": {"const": FORMAT},
    "schema_version": {"const": SCHEMA_VERSION},
    "made": {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z$"},
    "config_sha256": HASH,
    "target": TEXT,
    "filled": {"type": "object"},
    "model": TEXT,
    "model_sha256": HASH,
    "ranks": {"type": "integer", "minimum": 1},
    "device": {"enum": ["cpu", "cuda"]},
    "versions": {
        "type": "object",
        "additionalProperties": TEXT,
        "required": ["dsgen", "deepspeed", "torch", "transformers", "python"],
    },
    "outcome": {"const": "proved"},
    "phase": {"const": "checkpoint"},
    "checks": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/check"}},
    "losses": {"type": "array", "items": {"type": "number"}},
    "adaptations": {"type": "array", "items": {"$ref": "#/$defs/adaptation"}},
    "notes": {"type": "array", "items": TEXT},
    "seconds": SECONDS,
    "phase_seconds": {"type": "object", "additionalProperties": SECONDS},
    "digest": HASH,
}
# Any JSON value: what a config says, and what an engine holds.
VALUE: dict[str, Any] = {}
DEFINITIONS = {
    "check": {"name": TEXT, "expected": VALUE, "observed": VALUE, "ok": {"const": True}},
    "adaptation": {"key": TEXT, "written": VALUE, "used": VALUE, "why": TEXT},
}


def described() -> dict[str, str]:
    """What each field is, from the docstring of the class: `name, other: What they are.`"""
    section = (Certificate.__doc__ or "").partition("Attributes:\n")[2]
    told: dict[str, str] = {}
    for names, words in re.findall(r"^ {8}(\w[\w, ]*): (.+(?:\n {12}.+)*)", section, re.MULTILINE):
        told |= dict.fromkeys(names.split(", "), " ".join(words.split()))
    return told


def closed(properties: dict[str, Any]) -> dict[str, Any]:
    """A map with these keys, all of them and no other."""
    return {
        "type": "object", "properties": properties, "required": list(properties), "additionalProperties": False,
    }  # fmt: skip


def schema() -> dict[str, Any]:
    """The schema; every field of the class must have a shape and a description."""
    told = described()
    names = [field.name for field in attrs.fields(Certificate)]
    return {
        "$schema": DIALECT,
        "title": "A certificate of dsgen prove",
        "description": "Written by `dsgen prove --certificate`, read by `dsgen prove --verify`.",
        **closed({name: {"description": told[name], **SHAPES[name]} for name in names}),
        "$defs": {name: closed(shape) for name, shape in DEFINITIONS.items()},
    }


def main() -> None:
    """Write the file, or with --check say whether it is stale."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--check", action="store_true", help="write nothing; exit 1 when the file would change")
    text = json.dumps(schema(), indent=1) + "\n"
    if not options.parse_args().check:
        FILE.write_text(text, encoding="utf-8", newline="\n")
    elif not FILE.is_file() or FILE.read_text("utf-8") != text:
        sys.exit("schema/proof.schema.json is not what the class says. Run: python schema/proof_schema.py")


if __name__ == "__main__":
    main()
