"""How far the linter agrees with DeepSpeed 0.19.8 itself: 265 public configs and 417 probes, each with its own verdict.

    python benchmarks/agreement.py FOLDER [--check]

FOLDER holds the configs and what DeepSpeed said of them (corpus/); the probes lie in benchmarks/data/. The page
docs/agreement.md is made of both.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from probe_kinds import (  # benchmarks/probe_kinds.py, beside this script
    DEBATABLE,
    NOT_IN_THE_CONFIG,
    SILENTLY_WRONG,
    STOPPED_EARLY,
)
from program_table import judged, section, verdicts

from dsgen.documents.hjson import reader
from dsgen.linting.linter import lint, lint_config
from dsgen.linting.subjects import Facts
from dsgen.shapes.findings import Finding, Move, Remove, Severity

__all__ = ["CONTROL", "ERROR", "WRONG", "Case", "corpus", "page", "probes"]

REPOSITORY = Path(__file__).resolve().parent.parent
PROBES = Path(__file__).resolve().parent / "data" / "deepspeed-0.19.8-probes.json"
PAGE = REPOSITORY / "docs" / "agreement.md"
LABELS = Path("corpus", "labels.json")
DEEPSPEED = "0.19.8"  # the release that gave the verdicts

_TRAINER = "hf-trainer"
_LONGEST = 160  # letters of an error message on the page

# What must be found: an error where DeepSpeed stops, a warning where it does otherwise than written, nothing else.
ERROR, WRONG, CONTROL, EITHER, OUTSIDE = "error", "wrong", "control", "either", "outside"

_PARAMETERS = {"tp": ("up_proj.weight", "down_proj.weight"), "mlp": ("0.weight", "0.bias", "2.weight", "2.bias")}


@attrs.frozen(kw_only=True)
class Case:
    """One config, what DeepSpeed made of it, and what the linter says."""

    name: str
    label: str
    expected: str
    findings: tuple[Finding, ...]
    detail: str = ""
    unread: tuple[str, ...] = ()
    place: str = ""

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings at the level of an error."""
        return tuple(item for item in self.findings if item.severity is Severity.ERROR)

    @property
    def warned(self) -> tuple[Finding, ...]:
        """The findings that a person sees by default: errors and warnings."""
        return tuple(item for item in self.findings if item.severity >= Severity.WARNING)

    @property
    def hears(self) -> bool:
        """Whether every key that DeepSpeed does not read is named, itself or with the section around it.

        What says of itself that it is a comment is a note; and one finding names several keys.
        """
        edits = [edit for item in self.findings if item.fix for edit in item.fix.edits]
        named = {item.path for item in self.findings}
        named |= {edit.path for edit in edits if isinstance(edit, (Move, Remove))}
        return all(any(path == key or key.startswith(f"{path}.") for path in named) for key in self.unread)

    @property
    def agrees(self) -> bool:
        """Whether the linter says what DeepSpeed does, and names every key that nothing reads."""
        heard = self.hears
        if self.expected == ERROR:
            return bool(self.errors) and heard
        if self.expected == WRONG:
            return bool(self.warned) and not self.errors and heard
        if self.expected == CONTROL:
            return not self.warned and heard
        return not self.errors and heard


def _first(text: str) -> str:
    """An error message in one line."""
    return " ".join(text.split("For further information", maxsplit=1)[0].split())[:_LONGEST]


def corpus(folder: Path) -> tuple[Case, ...]:
    """The public configs of a folder, each linted for the program it was written for."""
    labels = json.loads((folder / LABELS).read_text(encoding="utf-8"))
    stops = {
        row["file"]: row["error"] for row in verdicts() if row["program"] == _TRAINER and row["verdict"] == "stops"
    }
    return tuple(_public(label, (folder / LABELS).parent / label["file"], stops) for label in labels)


def _public(label: Mapping[str, Any], path: Path, stops: Mapping[str, str]) -> Case:
    document = reader.read(path.read_text(encoding="utf-8"), path.name)
    target = _TRAINER if label["has_auto"] else "deepspeed"
    said = str(label["label"])
    refused = stops.get(path.stem) if target == _TRAINER else None
    fails = (
        refused is not None
        or said.startswith("fail:")
        or said == "syntax"
        or (said == "template" and label["outcome"] != "ok")
    )
    error = label.get("error") or {}
    return Case(
        name=f"{label['n']:04d}",
        label=said,
        expected=ERROR if fails else OUTSIDE if said.startswith(("undecided", "foreign")) else EITHER,
        findings=lint(document, target=target, deepspeed=DEEPSPEED),
        detail=_first(refused or str(error.get("msg", "")) or said),
        place=f"{label['repo']}: {label['path']}",
        unread=tuple(label.get("ignored_unknown") or ()) if not said.startswith("foreign") else (),
    )


@functools.cache
def probes() -> tuple[Case, ...]:
    """The probes, each with the facts of the machine and the program it was run on."""
    return tuple(_probe(probe) for probe in json.loads(PROBES.read_text(encoding="utf-8")))


def _probe(probe: Mapping[str, Any]) -> Case:
    name, outcome = probe["id"], probe["outcome"]
    if name in NOT_IN_THE_CONFIG:
        expected = OUTSIDE
    elif outcome.startswith("error") or name in STOPPED_EARLY:
        expected = ERROR
    else:
        expected = WRONG if name in SILENTLY_WRONG else EITHER if name in DEBATABLE else CONTROL
    found = lint_config(probe["config"], target="deepspeed", deepspeed=DEEPSPEED, facts=_facts(probe))
    return Case(name=name, label=outcome, expected=expected, findings=found, detail=probe.get("raised", ""))


def _facts(probe: Mapping[str, Any]) -> Facts:
    """What the probe ran on: a CPU, no monitors installed, the probe's own model and number of ranks."""
    name = probe["id"]
    missing = {"tensorboard", "wandb", "comet_ml", "datastates", "mup", *probe.get("missing", ())}
    patched = name.startswith("F16p_") and name != "F16p_lamb_z0"  # fp16 declared to be supported
    return Facts(
        world_size=probe["world"],
        accelerator="cuda" if patched else "cpu",
        client_optimizer="torch" if name.startswith("O_client") else "none",
        missing=frozenset(missing),
        calls=frozenset(("checkpointing.configure",) if "_conf" in name else ()),
        parameters=_PARAMETERS.get(probe["model"]),
    )


def page(public: Sequence[Case], tried: Sequence[Case], programs: Sequence[str]) -> str:
    """docs/agreement.md: what agrees, what does not, and DeepSpeed's verdict beside ours for every file it refuses."""
    lines = [
        "# How far the linter agrees with DeepSpeed",
        "",
        "DeepSpeed 0.19.8 was asked about 265 public configs and 417 probes by starting it: parse, initialize, steps",
        "on CPU ranks. This page compares what it did with what `dsgen lint` says without starting it. `nox -s corpus`",
        "checks it; the public configs are not part of the project.",
        "",
        "## Public configs",
        "",
        *_table(("", "files", "agree"), _summary(public, _GROUPS)),
        "",
        *_measures(public),
        "",
        *programs,
        "## Probes",
        "",
        *_table(("DeepSpeed", "probes", "agree"), _summary(tried, _PROBE_GROUPS)),
        "",
        "A probe is linted with what it was run on: the number of ranks, a CPU, no monitoring packages, its model.",
        f"{len(NOT_IN_THE_CONFIG)} probes fail because of their data or because ranks had different files, which no",
        f"config shows: {', '.join(sorted(NOT_IN_THE_CONFIG))}. {', '.join(sorted(STOPPED_EARLY))} was recorded after",
        "initialize alone; run again, it stops in its first step, and so it is counted.",
        "",
        "## What disagrees",
        "",
        *(_table(("case", "DeepSpeed", "dsgen"), _misses((*public, *tried))) or ["Nothing."]),
        "",
        "## Every public config that DeepSpeed refuses",
        "",
        *_table(("file", "what DeepSpeed says", "what dsgen says"), _refused(public)),
        "",
    ]
    return "\n".join(lines)


_GROUPS = {
    "refused by DeepSpeed: an error must be found": ERROR,
    "taken by DeepSpeed: no error may be found, every unread key named": EITHER,
    "needs the model or the data to be judged: not counted": OUTSIDE,
}
_PROBE_GROUPS = {
    "stops at parse, initialize or step: an error must be found": ERROR,
    "does otherwise than written: a warning must be found, no error": WRONG,
    "does what it says: nothing may be found": CONTROL,
    "a matter of taste: no error may be found": EITHER,
    "fails by its data, not its config: not counted": OUTSIDE,
}


def _summary(cases: Iterable[Case], groups: Mapping[str, str]) -> list[tuple[str, ...]]:
    rows = []
    for title, expected in groups.items():
        those = [case for case in cases if case.expected == expected]
        agree = "-" if expected == OUTSIDE else str(sum(case.agrees for case in those))
        rows.append((title, str(len(those)), agree))
    return rows


def _measures(cases: Iterable[Case]) -> list[str]:
    counted = [case for case in cases if case.expected != OUTSIDE]
    refused = [case for case in counted if case.expected == ERROR]
    flagged = [case for case in counted if case.errors]
    right = sum(case.expected == ERROR for case in flagged)
    unread = sum(len(case.unread) for case in counted)
    named = sum(len(case.unread) for case in counted if case.hears)
    return [
        f"Recall {right}/{len(refused)}, precision {right}/{len(flagged)}.",
        f"Of {unread} keys that nothing reads, {named} are named.",
    ]


def _misses(cases: Iterable[Case]) -> list[tuple[str, ...]]:
    return [
        (case.name, f"{case.label} {_cell(case.detail)}", _said(case.warned) or "nothing")
        for case in cases
        if case.expected != OUTSIDE and not case.agrees
    ]


def _refused(cases: Iterable[Case]) -> list[tuple[str, ...]]:
    return [(_cell(case.place), _cell(case.detail), _said(case.errors)) for case in cases if case.expected == ERROR]


def _said(findings: Iterable[Finding]) -> str:
    return "; ".join(f"{item.rule} at {item.path or 'the file'}" for item in findings)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    if not rows:
        return []
    return [f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows)]


def main() -> None:
    """Write the page, or with --check compare it; list what disagrees."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("folder", type=Path, help="where the public configs lie")
    options.add_argument("--check", action="store_true", help="write nothing; exit 1 when the page would change")
    chosen = options.parse_args()
    if not (chosen.folder / LABELS).is_file():
        sys.exit(f"{chosen.folder} has no {LABELS}: what DeepSpeed said of the public configs stands there")
    public, tried = corpus(chosen.folder), probes()
    for kind, cases in (("public configs", public), ("probes", tried)):
        counted = [case for case in cases if case.expected != OUTSIDE]
        print(f"{kind}: {sum(case.agrees for case in counted)} of {len(counted)} agree")
        for name, label, said in _misses(cases):
            print(f"  {name} [{label}]: {said}")
    labels = json.loads((chosen.folder / LABELS).read_text(encoding="utf-8"))
    paths = [(chosen.folder / LABELS).parent / label["file"] for label in labels]
    text = page(public, tried, section(list(judged({path.stem: path for path in paths}))))
    if chosen.check and (not PAGE.is_file() or PAGE.read_text("utf-8") != text):
        sys.exit(f"docs/agreement.md is stale. Run: nox -s corpus -- {chosen.folder} update")
    if not chosen.check:
        PAGE.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
