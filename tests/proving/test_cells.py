"""The committed configs of the matrix are those of its rows, and cells share a start only where nothing chooses."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest

from dsgen.proving.worlds import WorldStart

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))  # golden/ is a folder of the checkout, not of the installed package

from golden import cells, matrix, starts, targets  # noqa: E402
from golden.structures import structure  # noqa: E402


@pytest.fixture(scope="module")
def configs() -> dict[str, dict[str, Any]]:
    return cells.configs()


def test_every_row_with_a_config_has_it_and_no_config_is_left_over(configs: dict[str, dict[str, Any]]) -> None:
    assert {cell.sha for cell in cells.cells()} == set(configs)


def test_a_text_that_is_not_the_row_s_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    texts = [
        '{"name": "a # b \\" 7", "rate": 1e-05, "list": [1, -2.5]}',
        '{"name": "a # b \\" 7", "rate": 3, "list": [4, 5]}',
    ]
    whole = cells.text({matrix.digest(text): text for text in texts})
    monkeypatch.setattr(cells, "FOLDER", tmp_path)
    (tmp_path / cells.FILE_NAME).write_text(whole, "utf-8")
    assert sorted(config["rate"] for config in cells.configs().values()) == [1e-05, 3]

    (tmp_path / cells.FILE_NAME).write_text(whole.replace("-2.5", "-2.6"), "utf-8")
    with pytest.raises(ValueError, match="is not the hash of its config"):
        cells.configs()


def test_cells_share_a_start_where_structure_world_and_sibling_agree(configs: dict[str, dict[str, Any]]) -> None:
    shares = starts.shares(configs)
    assert len({share.key for share in shares}) == len(shares)
    for share in shares:
        assert len({structure(configs[cell.sha]) for cell in share.cells}) == 1
        assert len({starts.worlds(cell) for cell in share.cells}) == 1
        models = {json.dumps(starts.start_of(cell, configs).model, sort_keys=True) for cell in share.cells}
        assert len(models) == 1


def test_a_cover_has_every_structure_with_each_world_and_each_sibling(configs: dict[str, dict[str, Any]]) -> None:
    def pairs(some: tuple[starts.Share, ...]) -> set[str]:
        firsts = [(structure(configs[one.cells[0].sha]), starts.start_of(one.cells[0], configs)) for one in some]
        return {
            repr(pair)
            for form, one in firsts
            for pair in ((form, one.world, one.local_ranks), (form, sorted(one.model.items())))
        }

    shares = starts.shares(configs)
    chosen = starts.cover(shares, configs)
    assert pairs(chosen) == pairs(shares)
    assert len(chosen) < len(shares) / 2
    firsts = [(structure(configs[one.cells[0].sha]), starts.start_of(one.cells[0], configs)) for one in chosen]
    least = 0  # no cover has fewer: of each structure as many as it has worlds, or siblings where those are more
    for form in {form for form, _ in firsts}:
        of_it = [one for other, one in firsts if other == form]
        worlds = {(one.world, one.local_ranks) for one in of_it}
        least += max(len(worlds), len({json.dumps(one.model, sort_keys=True) for one in of_it}))
    assert least <= len(chosen) < 1.02 * least


def test_a_world_is_what_the_profiles_say() -> None:
    cell = cells.Cell("a100-80g", "7b", "4 nodes ib-hdr-200g", "0")
    assert starts.worlds(cell) == (32, 8)


def test_a_record_knows_what_came_through_and_forgets_it_with_the_versions(tmp_path: Path) -> None:
    one = WorldStart(config={"a": 1}, model={}, world=8, local_ranks=8, rank=3)
    record = starts.Record(tmp_path / "started.txt", {"deepspeed": "0.19.8"})
    assert one not in record
    record.keep(one)

    assert one in starts.Record(tmp_path / "started.txt", {"deepspeed": "0.19.8"})
    assert attrs.evolve(one, rank=4) not in starts.Record(tmp_path / "started.txt", {"deepspeed": "0.19.8"})
    assert one not in starts.Record(tmp_path / "started.txt", {"deepspeed": "0.19.9"})


def test_a_record_forgets_what_was_started_by_other_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every module of ours that the child process loads, and all that judges what it tells."""
    server = "dsgen.engine.proof.world_server"
    program = f"import sys, {server}; print(*(one.__file__ for name, one in sys.modules.items() if 'dsgen' in name))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    packages = {ROOT / "dsgen/__init__.py", ROOT / "dsgen/engine/__init__.py"}
    loaded = {Path(name) for name in done.stdout.split()} - packages
    known = {file for name in starts.SOURCES for file in starts.python_files(ROOT / name)}
    assert len(loaded) > 5
    assert loaded <= known

    for name in starts.SOURCES:
        copy = tmp_path / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, copy)
    monkeypatch.setattr(starts, "ROOT", tmp_path)
    one = WorldStart(config={"a": 1}, model={}, world=8, local_ranks=8, rank=3)
    starts.Record(tmp_path / "started.txt", {}).keep(one)
    assert one in starts.Record(tmp_path / "started.txt", {})
    for name in ("dsgen/engine/children.py", "dsgen/engine/serving.py", "dsgen/proving/checks.py"):
        file = tmp_path / name
        before = file.read_text("utf-8")
        file.write_text(f"{before}# changed\n", "utf-8")
        assert one not in starts.Record(tmp_path / "started.txt", {})
        file.write_text(before, "utf-8")


def test_progress_says_how_many_and_the_time_left() -> None:
    said: list[str] = []
    assert list(starts.progress([1, 2, 3], said.append)) == [1, 2, 3]
    assert "3 of 3, 0 s left" in "".join(said)


def test_the_page_of_what_is_proven_is_made_of_the_record() -> None:
    sys.path.append(str(ROOT / "benchmarks"))
    import every_cell

    record = json.loads((ROOT / "benchmarks" / "every_cell.json").read_text("utf-8"))
    committed = (ROOT / "docs" / "proven.md").read_text("utf-8")
    assert every_cell.page(record) == committed, "If the change is meant: python benchmarks/every_cell.py --page"


def test_what_is_recorded_as_started_is_the_committed_matrix(configs: dict[str, dict[str, Any]]) -> None:
    sys.path.append(str(ROOT / "benchmarks"))
    import every_cell

    record = json.loads((ROOT / "benchmarks" / "every_cell.json").read_text("utf-8"))
    now = json.loads(json.dumps(every_cell.standing(starts.shares(configs), configs)))
    assert {key: record[key] for key in now} == now, "Run: nox -s cells -- update"
    assert record["parsed"] == dict.fromkeys(targets.TARGETS, len(starts.declared()))
