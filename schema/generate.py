"""Write schema/deepspeed/<minor>.schema.json and <minor>.keys.json from an installed DeepSpeed and annotations.yaml.

    python schema/generate.py --deepspeed 0.19 [--python ENV/bin/python] [--check]

The release is asked in a child process of `--python` (default: this one), which must have it installed. What it cannot
tell stands in annotations.yaml. Both files are sorted, carry no date and name the patch release they were made from.
"""

from __future__ import annotations

import argparse
import fnmatch
import itertools
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from json_schema import json_schema  # schema/json_schema.py, beside this script

FOLDER = Path(__file__).resolve().parent / "deepspeed"
REPOSITORY = FOLDER.parent.parent
Table = dict[str, dict[str, Any]]


def version_tuple(text: str) -> tuple[int, ...]:
    """ "0.19.8" -> (0, 19, 8)."""
    return tuple(int(part) for part in text.split("."))


def same_line(one: str, other: str) -> bool:
    """Whether two releases are of one line: 0.17.1 and 0.17.6."""
    return version_tuple(one)[:2] == version_tuple(other)[:2]


def ask_release(python: str) -> dict[str, Any]:
    """The dump of the DeepSpeed that an interpreter has."""
    done = subprocess.run(
        [python, "-m", "dsgen.engine.surface.dump"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{python} cannot describe its DeepSpeed:\n{done.stderr[-2000:]}")
    dump: dict[str, Any] = json.loads(done.stdout)
    return dump


def matched(patterns: Iterable[str], paths: Iterable[str]) -> list[str]:
    """The paths that any pattern names; `*` is the only wildcard (`[]` and `<name>` stand for themselves)."""
    plain = [pattern.replace("[", "[[]") for pattern in patterns]
    return [path for path in paths if any(fnmatch.fnmatchcase(path, pattern) for pattern in plain)]


def guessed_types(default: Any) -> list[str]:
    """The JSON type a loose key's default shows; nothing for null."""
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return [names[type(default)]] if type(default) in names else []


def collect(dump: Mapping[str, Any], notes: Mapping[str, Any]) -> Table:
    """Every key of the release: what the parse asked for and what the engine reads later."""
    now = version_tuple(dump["deepspeed"])
    table: Table = {path: dict(facts) for path, facts in dump["keys"].items()}
    gone = {path: version for version, paths in notes["removed"].items() for path in paths}
    for path, facts in notes["extra"].items():
        if path not in table and version_tuple(facts.get("since", "0")) <= now:
            table[path] = {"default": None, **facts}
    for path, version in gone.items():
        if version_tuple(version) <= now:
            table[path]["removed"] = version
    told = sorted(path for path, facts in table.items() if "removed" in facts)
    if now >= (0, 19, 8) and told != sorted(dump["removed"]):
        sys.exit(f"annotations.yaml says removed {told}, the release itself {sorted(dump['removed'])}")
    for path, facts in table.items():
        facts.setdefault("types", guessed_types(facts["default"]))
        facts.update(notes["types"].get(path, {}))
        if not facts["types"] and any(other.startswith(f"{path}.") for other in table):
            facts["types"] = ["object"]
    return table


def effects(table: Table, notes: Mapping[str, Any]) -> None:
    """Add `effect`: alternatives of conditions, a reason why never, or what the program must do."""
    for rule in notes["when"]:
        alternatives = rule.get("any", [rule.get("when", {})])
        for path in matched(rule["keys"], table):
            if path in rule.get("except", ()):
                continue
            effect = table[path].setdefault("effect", {})
            pairs = itertools.product(effect.get("when", [{}]), alternatives)
            effect["when"] = [{**one, **other} for one, other in pairs]
    for path, reason in notes["never"].items():
        if path in table:
            table[path]["effect"] = {"never": reason}
    for pattern, needs in notes["needs"].items():
        for path in matched([pattern], table):
            table[path].setdefault("effect", {}).setdefault("needs", needs)


def annotate(table: Table, dump: Mapping[str, Any], notes: Mapping[str, Any]) -> None:
    """Add description, versions, replacements and units to every key."""
    now = version_tuple(dump["deepspeed"])
    own = {path for path, facts in table.items() if "since" in facts}
    for version, patterns in notes["since"].items():
        for path in matched(patterns, table):
            if path not in own and version_tuple(version) <= now:  # a section comes before the keys it got later
                table[path]["since"] = version
    for version, defaults in notes["was"].items():
        for path, default in defaults.items():
            if same_line(version, dump["deepspeed"]):
                table[path]["was"] = [version, default]
    for refusal in notes["refuses"]:
        for path in matched(refusal["keys"], table):
            table[path]["refuses"] = {phase: types for phase, types in refusal.items() if phase != "keys"}
    for path in matched(notes["elements"], table):
        table[path]["elements"] = True
    for path in matched(notes["auto"], table):
        table[path]["auto"] = True
    for path in matched(notes["deprecated"], table):
        table[path]["deprecated"] = True
    for path, facts in table.items():
        about = notes["about"].get(path) or notes["about"].get(path.replace("bfloat16.", "bf16.", 1))
        if about is None:  # a part of a section that a later release removed
            section = notes["about"].get(path.partition(".")[0], "")
            about = section if "removed" in section else None
        if about:
            facts["about"] = about
        if path.startswith("bfloat16."):
            facts["replaced_by"] = path.replace("bfloat16.", "bf16.", 1)
            facts["since"] = table[facts["replaced_by"]].get("since")
        if path in notes["instead"] and (facts.get("removed") or facts.get("deprecated")):
            facts["replaced_by"] = notes["instead"][path]


def params(dump: Mapping[str, Any], notes: Mapping[str, Any]) -> dict[str, Any]:
    """What each optimizer and schedule takes, by type."""
    optimizers: dict[str, Any] = {}
    for name, forms in dump["optimizers"].items():
        if name in notes["foreign"]:
            optimizers[name] = None  # another package's class: any param
            continue
        if name == "muon":
            forms = [{"when": "gpu", "params": dict.fromkeys(dump["muon"]), "required": [], "drops": True}]
        extra = [key for key in notes["params"].get(name, []) if f"optimizer.params.{key}" in dump["known"]]
        optimizers[name] = [{**form, "also": [key for key in extra if key not in form["params"]]} for form in forms]
    classes = {name: dump[name] for name in ("schedulers", "torch_optimizers", "torch_schedulers")}
    shapes: dict[str, Any] = {name: dict(facts) for name, facts in notes["types_params"].items()}
    for name, about in notes["about_params"].items():
        shapes.setdefault(name, {})["about"] = about
    return {"params": dict(sorted(shapes.items())), "optimizers": optimizers, **classes}


def surface(dump: dict[str, Any], notes: Mapping[str, Any]) -> dict[str, Any]:
    """The whole surface of one release as plain JSON, sorted."""
    table = collect(dump, notes)
    effects(table, notes)
    annotate(table, dump, notes)
    parents = {path.rpartition(".")[0] for path in table if "." in path}
    parents |= {"tensor_parallel.partition_config.layer_specs[]"} & parents
    free = set(matched(notes["free"], table)) | {p for p, f in table.items() if f.pop("free", False)}
    kinds = {p: "strict" if dump["models"].get(p) else "free" if p in free else "loose" for p in parents | free}
    also = {f"{p.rpartition('.')[0]}.{facts.pop('also')}": p for p, facts in list(table.items()) if "also" in facts}
    dump["known"] = known = set(table)
    mistaken = {wrong: right for wrong, right in notes["mistaken"].items() if right in known or ".params." in right}
    for facts in table.values():
        for word in ("since", "moved"):
            if facts.get(word) in (None, False):
                facts.pop(word, None)
        if facts["default"] is None:
            del facts["default"]
    here = {version: names for version, names in notes["strict_since"].items() if same_line(version, dump["deepspeed"])}
    return {
        "deepspeed": dump["deepspeed"],
        "torch": dump["torch"],
        "sections": dict(sorted(kinds.items())),
        **({"strict_since": {name: version for version, names in here.items() for name in names}} if here else {}),
        "aliases": dict(sorted(also.items())),
        "mistaken": dict(sorted(mistaken.items())),
        **params(dump, notes),
        "keys": {path: dict(sorted(facts.items())) for path, facts in sorted(table.items())},
    }


def compact(value: Mapping[str, Any]) -> str:
    """JSON with one key of a table per line: small, and a diff shows what changed."""

    def line(item: Any) -> str:
        return json.dumps(item, ensure_ascii=False, sort_keys=True, separators=(",", ":"))

    parts = []
    for name, item in value.items():
        if isinstance(item, dict) and len(item) > 1:
            rows = ",\n".join(f"{line(key)}:{line(row)}" for key, row in item.items())
            parts.append(f"{line(name)}:{{\n{rows}\n}}")
        else:
            parts.append(f"{line(name)}:{line(item)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def generate(python: str) -> dict[str, str]:
    """File name -> text, for the release an interpreter has."""
    from ruamel.yaml import YAML

    notes = YAML(typ="safe").load(FOLDER / "annotations.yaml")
    table = surface(ask_release(python), notes)
    minor = table["deepspeed"].rpartition(".")[0]
    schema = json.dumps(json_schema(table), indent=1, ensure_ascii=False)
    return {f"{minor}.keys.json": compact(table), f"{minor}.schema.json": f"{schema}\n"}


def main() -> None:
    """Write the files, or with --check compare them and exit 1 when they differ."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--deepspeed", required=True, help="release line, such as 0.19")
    options.add_argument("--python", default=sys.executable, help="interpreter that has that DeepSpeed")
    options.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file would change")
    chosen = options.parse_args()
    files = generate(chosen.python)
    if f"{chosen.deepspeed}.keys.json" not in files:
        sys.exit(f"{chosen.python} has DeepSpeed {', '.join(files)}; --deepspeed asks for {chosen.deepspeed}")
    stale = [name for name, text in files.items() if not _same(FOLDER / name, text)]
    if chosen.check and stale:
        sys.exit(f"stale: {', '.join(stale)}; run this without --check and look at the diff")
    for name in [] if chosen.check else stale:
        (FOLDER / name).write_text(files[name], encoding="utf-8")
        print(f"wrote {name}")


def _same(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    main()
