"""Configs at which the linter and DeepSpeed once disagreed: now it says what DeepSpeed does."""

from __future__ import annotations

import pytest
from found_cases import CASES, ONE, Case  # tests/helpers/found_cases.py

from dsgen.linting.linter import lint_config
from dsgen.linting.subjects import Facts
from dsgen.shapes.findings import Severity


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_agrees_with_deepspeed(case: Case) -> None:
    facts = Facts(world_size=case.world, accelerator="cpu", client_optimizer="none")

    found = lint_config(case.config, target=case.target, deepspeed=case.deepspeed, facts=facts)

    loud = [item for item in found if item.severity > Severity.INFO]
    worst = max((item.severity for item in loud), default=None)
    assert worst == case.severity, (case.wrong, loud)
    assert case.severity is None or case.path in {item.path for item in loud if item.severity is worst}


def test_the_names_differ() -> None:
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize("path", ["optimizer.enabled", "enabled", "optimizer.pin_memory"])
def test_a_name_of_many_keys_is_not_moved_for_certain(path: str) -> None:
    section, _, name = path.rpartition(".")
    config = {
        **ONE,
        "comet": {},
        "fp16": {},
        **({section: {**ONE["optimizer"], name: True}} if section else {name: True}),
    }

    found = [item for item in lint_config(config, target="deepspeed") if item.path == path]

    assert found and not any(item.fix is not None and item.fix.safe for item in found)
