"""Lint held against what four real programs did with each public config: the Trainer, Accelerate, Lightning, DeepSpeed.

benchmarks/data/program-verdicts.json has their verdicts; benchmarks/program_verdicts.py asks them, each program whole.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from dsgen import targets

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
PROGRAMS = [target.name for target in targets.TARGETS]
# (program, file) -> why lint may say otherwise than the program did. None is known.
EXCEPTIONS: Mapping[tuple[str, str], str] = {}
NOT_JUDGED = 7  # records in which the machine spoke


@pytest.fixture(scope="module")
def table() -> Iterator[Any]:
    """benchmarks/program_table.py."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield importlib.import_module("program_table")


@pytest.fixture(scope="module")
def rows(table: Any, publics: Sequence[Any]) -> list[Any]:
    return list(table.judged({public.path.stem: public.path for public in publics}))


def test_the_record_is_of_these_files(table: Any, publics: Sequence[Any]) -> None:
    files = {public.path.stem: hashlib.sha256(public.path.read_bytes()).hexdigest()[:16] for public in publics}
    recorded = table.verdicts()

    assert {(row["program"], row["file"]) for row in recorded} == {(one, file) for one in PROGRAMS for file in files}
    assert {row["file"]: row["sha256"] for row in recorded} == files


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_file_that_trains_has_no_error(rows: Sequence[Any], program: str) -> None:
    trains = [row for row in rows if row.program == program and row.verdict == "runs"]

    assert len(trains) > 30
    assert {row.file: row.rules for row in trains if row.rules and (program, row.file) not in EXCEPTIONS} == {}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_file_that_stops_the_program_is_an_error(rows: Sequence[Any], program: str) -> None:
    stops = [row for row in rows if row.program == program and row.verdict == "stops"]

    assert len(stops) > 70
    assert {row.file: row.error for row in stops if not row.rules and (program, row.file) not in EXCEPTIONS} == {}


def test_little_is_left_to_the_machine(rows: Sequence[Any]) -> None:
    assert sum(row.verdict == "not judged" for row in rows) == NOT_JUDGED
