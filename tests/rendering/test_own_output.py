"""What dsgen itself writes, under its own linter: every golden config is clean at the number of GPUs it is for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dsgen.linting.linter import lint_config
from dsgen.linting.subjects import Facts
from dsgen.shapes.findings import Severity

CONFIGS = sorted((Path(__file__).resolve().parents[2] / "golden" / "configs").glob("**/*.json"))
# Scenarios that ask for a debug switch: the linter says what it costs.
ASKED_FOR = {"profiler-and-comms": {"profiler-left-on"}, "wall-clock": {"timers-left-on"}}


def test_there_are_configs() -> None:
    assert len(CONFIGS) > 100


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_golden_config_is_clean(path: Path) -> None:
    config = json.loads(path.read_text("utf-8"))
    sizes = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    whole, micro, steps = (config.get(name) for name in sizes)
    world = whole // (micro * steps) if whole and micro and steps else None
    # A plan with checkpointing says so: the program switches it on, DeepSpeed's own where the block asks for more.
    facts = Facts(world_size=world, calls=frozenset({"checkpointing.configure"}))

    found = lint_config(config, target="deepspeed", facts=facts)

    shown = {item.rule for item in found if item.severity >= Severity.WARNING}
    assert shown == ASKED_FOR.get(path.stem, set())
