"""What others measured and what DeepSpeed 0.19.8 did with the probes, as benchmarks/data/ holds it.

    python benchmarks/transcribe.py FOLDER [--check]

FOLDER holds the raw records, reference/deepspeed-0.19.8/{probes,keys}.json and measurements/*.json, with the remarks
and messages of others. Facts and figures are taken from them, and a checksum is written of each file.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from transcribe_kernels import RAW as KERNEL_RECORDS  # benchmarks/, beside this script
from transcribe_kernels import rows
from transcribe_published import transcribed

__all__ = [
    "ALLOCATIONS",
    "CHECKSUMS",
    "DATA",
    "GATHERED",
    "KERNELS",
    "KEYS",
    "LATER",
    "PROBES",
    "PROGRAMS",
    "PUBLISHED",
    "checksums",
    "files",
]

DATA = Path(__file__).resolve().parent / "data"
CHECKSUMS = "SHA256SUMS"
PROBES, KEYS, KERNELS = "deepspeed-0.19.8-probes.json", "deepspeed-0.19.8-keys.json", "kernels.json"
PUBLISHED, LATER = "published.json", "published_2.json"
RELEASES = "deepspeed-releases.json"  # what six releases said of each public config: nothing raw lies behind it
PROGRAMS = "program-verdicts.json"  # what four programs did with each; the same
# Runs gathered for this project from their sources: the same.
GATHERED = tuple(f"published_{number}.json" for number in (3, 4, 5, 6, 7, 8, 9, 10, 11))
ALLOCATIONS = "allocations.json"  # histories of torch's allocator, of snapshots: benchmarks/snapshots.py writes it
# Name here -> where the raw records lie.
RAW = {
    PROBES: "reference/deepspeed-0.19.8/probes.json",
    KEYS: "reference/deepspeed-0.19.8/keys.json",
    PUBLISHED: "measurements/published.json",
    LATER: "measurements/published_2.json",
    **{name: f"measurements/{name}.json" for name in KERNEL_RECORDS},
}

_REFUSED = re.compile(r"^(\S+)\n +Extra inputs are not permitted", re.M)  # pydantic: the key, then what is wrong
_LIBAIO = ("libaio", "async_io")
_SCRATCH = "<scratch>"  # where a probe wrote
_WORDED = {"false": False}  # defaults that were noted as words


def files(folder: Path) -> dict[str, str]:
    """The text of every file of benchmarks/data/ that is made of the raw records in a folder."""
    raw = {name: json.loads((folder / path).read_text(encoding="utf-8")) for name, path in RAW.items()}
    made = {
        PROBES: _lines(map(_probe, raw[PROBES])),
        KEYS: _lines(map(_key, raw[KEYS])),
        **{name: _lines(map(transcribed, raw[name]["records"])) for name in (PUBLISHED, LATER)},
        KERNELS: _lines(rows({name: raw[name]["records"] for name in KERNEL_RECORDS})),
    }
    kept = {name: (DATA / name).read_text(encoding="utf-8") for name in (RELEASES, PROGRAMS, *GATHERED, ALLOCATIONS)}
    return {**made, CHECKSUMS: checksums({**made, **kept})}


def checksums(texts: Mapping[str, str]) -> str:
    """One line per file, as `sha256sum --check` reads it."""
    return "".join(f"{hashlib.sha256(text.encode()).hexdigest()}  {name}\n" for name, text in sorted(texts.items()))


def _lines(records: Iterable[Mapping[str, Any]]) -> str:
    """A JSON list, one record a line."""
    return "[\n" + ",\n".join(json.dumps(record) for record in records) + "\n]\n"


def _probe(raw: Mapping[str, Any]) -> dict[str, Any]:
    """What was run, and what came of it: where it stopped, on which keys, or for want of what."""
    error = raw["error"] or ""
    found = {
        "raised": error.partition(":")[0],
        "refused": _REFUSED.findall(error),
        "missing": ["libaio"] if any(word in error for word in _LIBAIO) else [],
    }
    config = json.loads(json.dumps(raw["config"]).replace(_SCRATCH, "/scratch"))
    ran = {"id": raw["id"], "world": raw["world"], "model": raw["model"], "config": config, "outcome": raw["outcome"]}
    return {**ran, **{name: value for name, value in found.items() if value}}


def _key(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A key, its default, whether its section refuses unknown ones, since when it is gone, and where that is read."""
    default = raw["default"]
    found = {
        "path": raw["path"],
        "default": _WORDED.get(default, default) if isinstance(default, str) else default,
        "strict": raw["strict_section"],
        "source": raw["source_file"],
    }
    return {**found, "removed": raw["removed"]} if raw.get("removed") else found


def main() -> None:
    """Write the files, or with --check compare them."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("folder", type=Path, help="where the raw records lie")
    options.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file would change")
    chosen = options.parse_args()
    lacking = [path for path in RAW.values() if not (chosen.folder / path).is_file()]
    if lacking:
        sys.exit(f"{chosen.folder} has no {', '.join(lacking)}: the raw records that benchmarks/data/ is made of")
    made = files(chosen.folder)
    if not chosen.check:
        for name, text in made.items():
            (DATA / name).write_text(text, encoding="utf-8", newline="\n")
        return
    stale = [name for name, text in made.items() if (DATA / name).read_text(encoding="utf-8") != text]
    if stale:
        sys.exit(f"benchmarks/data/ is stale: {', '.join(stale)}. Run: python benchmarks/transcribe.py FOLDER")


if __name__ == "__main__":
    main()
