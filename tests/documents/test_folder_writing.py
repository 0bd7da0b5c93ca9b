"""A folder of files: whole or not at all, and nothing of a person's overwritten unasked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dsgen.documents.folder_writing import ensure_free, write_folder
from dsgen.shapes.errors import DsgenError

FILES = {"a.txt": "a\n", "b.sh": "é\n"}


def held(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text("utf-8") for path in folder.iterdir()}


def refused(folder: Path, *, force: bool = False) -> str:
    with pytest.raises(DsgenError) as caught:
        write_folder(str(folder), FILES, force=force)
    return str(caught.value)


def test_a_new_folder_appears_whole_with_the_folders_above_it(tmp_path: Path) -> None:
    write_folder(str(tmp_path / "x" / "y" / "run"), FILES)

    assert held(tmp_path / "x" / "y" / "run") == FILES
    assert [path.name for path in (tmp_path / "x" / "y").iterdir()] == ["run"]


def test_others_may_read_what_the_mask_allows(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        write_folder(str(tmp_path / "run"), FILES)
    finally:
        os.umask(before)

    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "run" / "a.txt").stat().st_mode & 0o777 == 0o644


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    write_folder(str(tmp_path), FILES)

    assert held(tmp_path) == FILES


def test_what_is_there_stays_unless_forced(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("mine")
    (tmp_path / "other").write_text("mine")

    assert refused(tmp_path).endswith("Nothing was written. --force writes over a.txt.")
    assert held(tmp_path) == {"a.txt": "mine", "other": "mine"}
    write_folder(str(tmp_path), FILES, force=True)
    assert held(tmp_path) == {**FILES, "other": "mine"}


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    for name in "cdefg":
        (tmp_path / name).write_text("")

    assert f"{tmp_path}: the folder holds c, d, e, f, ...; a run has a folder of its own" in refused(tmp_path)


def test_a_file_in_the_way_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    assert "it is a file; -o names a folder" in refused(tmp_path / "file", force=True)
    assert "it cannot be written (Not a directory)" in refused(tmp_path / "file" / "run")


def test_a_folder_where_a_file_goes_is_told_even_with_force(tmp_path: Path) -> None:
    (tmp_path / "a.txt").mkdir()

    assert "it is a folder; a file goes there" in refused(tmp_path, force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_nothing_is_left_where_writing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)

    assert "it cannot be written (No space left on device)\n  Nothing was written." in refused(tmp_path / "x" / "run")
    assert list(tmp_path.iterdir()) == []


def test_a_free_folder_is_said_to_be_free(tmp_path: Path) -> None:
    ensure_free(str(tmp_path / "new"), FILES)
    ensure_free(str(tmp_path), FILES)
