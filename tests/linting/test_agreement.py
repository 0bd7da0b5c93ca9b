"""The linter against what DeepSpeed 0.19.8 did with the probes; `nox -s corpus` asks the same of public configs."""

from __future__ import annotations

import collections
import importlib
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def agreement() -> Any:
    """benchmarks/agreement.py."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(REPOSITORY / "benchmarks"))
        yield importlib.import_module("agreement")


def test_the_linter_says_of_every_probe_what_deepspeed_did(agreement: Any) -> None:
    counted = [case for case in agreement.probes() if case.expected != agreement.OUTSIDE]

    assert [(case.name, case.label, case.warned) for case in counted if not case.agrees] == []


def test_each_kind_of_verdict_has_as_many_probes_as_the_page_says(agreement: Any) -> None:
    found = collections.Counter(case.expected for case in agreement.probes())

    assert found == {"error": 197, "wrong": 95, "control": 72, "either": 48, "outside": 5}
