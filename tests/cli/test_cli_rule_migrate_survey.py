"""`dsgen rule`, `migrate` and `survey` as a person uses them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from lint_samples import GOOD, TYPO, UNKNOWN, put

from dsgen.linting import rules

Run = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.usefixtures("elsewhere")


@pytest.mark.parametrize("name", ["unread-key", "DSG102", "dsg102"])
def test_a_rule_is_explained_by_name_and_code(run: Run, name: str) -> None:
    code, out, _ = run("rule", name)

    assert code == 0
    assert out.startswith("unread-key (DSG102), warning\n")
    for part in ("Example", "Instead:", "Evidence:", "Silence it:"):
        assert part in out


@pytest.mark.parametrize("width", ["80", "200"])
def test_every_rule_is_listed_and_explained_within_the_terminal(
    run: Run, width: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    listing = run("rule")[1]

    assert max(map(len, listing.splitlines())) <= int(width)
    for rule in rules.RULES:
        assert f"{rule.code}  " in listing
        assert rule.name in listing
        page = run("rule", rule.code)[1]
        assert page.startswith(f"{rule.name} ({rule.code})")
        assert max(map(len, page[page.index("Silence it") :].splitlines())) <= int(width)


def test_rules_as_json_and_markdown(run: Run) -> None:
    every = json.loads(run("rule", "--format", "json")[1])

    assert [item["code"] for item in every] == [rule.code for rule in rules.RULES]
    assert json.loads(run("rule", "unread-key", "--format", "json")[1]) in every
    assert run("rule", "unread-key", "--format", "markdown")[1].startswith("# unread-key (DSG102)\n")
    assert "| DSG102 | [unread-key](unread-key.md) |" in run("rule", "--format", "markdown")[1]


@pytest.mark.parametrize(
    ("name", "says"), [("unraed-key", "did you mean unread-key"), ("DSG000", "report that config")]
)
def test_a_rule_that_is_none(run: Run, name: str, says: str) -> None:
    code, _, err = run("rule", name)

    assert code == 2
    assert says in err


# --- migrate

OLD = """{
  "train_micro_batch_size_per_gpu": 1,
  // a comment that stays
  "zero_optimization": {"stage": 2, "cpu_offload": true},
  "our_own_key": 1
}
"""


def test_migrate_prints_the_diff_and_writes_nothing(run: Run) -> None:
    file = put("ds.hjson", OLD)

    code, out, err = run("migrate", "ds.hjson", "--to", "0.19")

    assert code == 0
    assert '-  "zero_optimization": {"stage": 2, "cpu_offload": true},' in out
    assert "offload_optimizer" in out
    assert "-  // a comment" not in out
    assert "our_own_key" not in "".join(line for line in out.splitlines() if line[:1] in "+-")
    assert "DeepSpeed 0.19: 1 to change (--write does), 0 left" in err
    assert file.read_text() == OLD


def test_migrate_writes_and_is_done(run: Run) -> None:
    file = put("ds.hjson", OLD)

    assert run("migrate", "ds.hjson", "--to", "0.19", "--write")[0] == 0
    assert "cpu_offload" not in file.read_text()
    assert "our_own_key" in file.read_text()
    code, out, err = run("migrate", "ds.hjson", "--to", "0.19")
    assert (code, out) == (0, "")
    assert "DeepSpeed 0.19: nothing to change" in err


def test_migrate_says_what_is_left(run: Run) -> None:
    put("ds.json", '{"train_micro_batch_size_per_gpu": 1, "amp": {"enabled": true}}')

    code, out, err = run("migrate", "ds.json", "--to", "0.19")

    assert (code, out) == (1, "")
    assert "removed-key" in err
    assert "DeepSpeed 0.19: nothing changed, 1 left (1 fixable with --unsafe-fixes)" in err


def test_migrate_keeps_its_last_line_within_the_terminal(run: Run) -> None:
    put("ds.json", '{"train_batch_size": 4, "zero_optimization": {"stage": 2, "overlap_com": true}}\n')

    _, _, err = run("migrate", "ds.json", "--to", "0.19")

    assert "1 left (1 fixable with --unsafe-fixes), 1 worth knowing" in " ".join(err.split())
    assert max(map(len, err[err.index("DeepSpeed 0.19: ") :].splitlines())) <= 80


def test_migrate_leaves_what_no_release_reads(run: Run) -> None:
    put("ds.json", UNKNOWN)

    code, out, err = run("migrate", "ds.json", "--to", "0.19")

    assert (code, out) == (0, "")
    assert "DeepSpeed 0.19: nothing to change" in err


def test_migrate_to_an_older_release(run: Run) -> None:
    put(
        "ds.json",
        '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2, "compute_grad_norm": false}}',
    )

    code, _, err = run("migrate", "ds.json", "--to", "0.18")

    assert code == 1
    assert "key-too-new" in err


def test_migrate_needs_a_known_release(run: Run) -> None:
    put("ds.json", TYPO)

    assert run("migrate", "ds.json")[0] == 2
    assert run("migrate", "ds.json", "--to", "1.0")[0] == 2


# --- survey


def test_survey_counts_a_tree(run: Run) -> None:
    put("x/ds_a.json", TYPO)
    put("x/ds_b.json", UNKNOWN)
    put("x/ds_c.json", GOOD)

    code, out, _ = run("survey", "x")
    as_json = json.loads(run("survey", "x", "--format", "json")[1])
    rows = list(csv.DictReader(io.StringIO(run("survey", "x", "--format", "csv")[1])))

    assert code == 0
    assert "1 of 3 files (33%) has an error; 2 have a finding. 1 error, 1 warning." in out
    assert as_json["totals"]["files_with_errors"] == 1
    assert {row["rule"]: row["files"] for row in as_json["by_rule"]} == {"rejected-key": 1, "unread-key": 1}
    assert [(row["file"], row["rule"], row["findings"]) for row in rows] == [
        ("x/ds_a.json", "rejected-key", "1"),
        ("x/ds_b.json", "unread-key", "1"),
        ("x/ds_c.json", "", "0"),
    ]


def test_survey_of_nothing_and_to_a_file(run: Run) -> None:
    Path("x").mkdir()
    code, out, err = run("survey", "x")
    assert (code, out, err) == (0, "no files\n", "note: no config file in x\n")

    put("x/ds_a.json", TYPO)
    assert run("survey", "x", "--format", "csv", "-o", "table.csv") == (0, "", "wrote table.csv\n")
    assert Path("table.csv").read_text().startswith("file,target,")
