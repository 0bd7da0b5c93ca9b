"""The learning-rate schedule of a training file is the config's where its end is said in steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import run

from dsgen.asking.told_schedules import schedule, unended

CARD = ("--hw", "a100-80g", "--gpus", "8", "--model", "1b")


@pytest.mark.parametrize(
    ("values", "ended", "wishes"),
    [
        ({"lr_scheduler_type": "linear", "max_steps": 500}, False, {"scheduler": "WarmupDecayLR"}),
        ({"lr_scheduler": "cosine", "max_steps": 500}, False, {"scheduler": "WarmupCosineLR"}),
        ({"lr_scheduler_type": "linear"}, True, {"scheduler": "WarmupDecayLR"}),
        ({"lr_scheduler_type": "linear"}, False, {}),
        ({"lr_scheduler_type": "constant_with_warmup"}, False, {"scheduler": "WarmupLR"}),
        ({"lr_scheduler_type": "polynomial", "max_steps": 500}, False, {}),
        ({"warmup_steps": 20}, False, {"warmup_steps": 20}),
        ({"warmup_ratio": 0.03, "max_steps": 501}, False, {"warmup_steps": 16}),
        ({"warmup_steps": 0.1, "max_steps": 500}, False, {"warmup_steps": 50}),
        ({"warmup_ratio": 0.03}, True, {}),
    ],
)
def test_a_schedule_is_the_one_of_deepspeed_that_falls_alike(
    values: dict[str, Any], ended: bool, wishes: dict[str, Any]
) -> None:
    assert {path.removeprefix("training."): value for path, value in schedule(values, ended)} == wishes


def test_one_that_falls_to_an_end_that_nobody_says_is_named() -> None:
    assert unended({"lr_scheduler_type": "cosine", "num_train_epochs": 3}) == "cosine"
    assert unended({"lr_scheduler_type": "cosine", "max_steps": 500}) is None
    assert unended({"lr_scheduler_type": "constant"}) is None


def test_a_render_follows_it_or_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sft.yaml").write_text("per_device_train_batch_size: 1\nbf16: true\nlr_scheduler_type: linear\n")

    open_ended, said = run("render", "--args", "sft.yaml", *CARD), "sft.yaml says no max_steps: a linear schedule"
    assert json.loads(open_ended.out)["scheduler"]["type"] == "WarmupLR"
    assert said in open_ended.err
    ended = run("render", "--args", "sft.yaml", *CARD, "--total-steps", "1000")
    assert json.loads(ended.out)["scheduler"]["type"] == "WarmupDecayLR"
    assert said not in ended.err
    assert said not in run("memory", "--args", "sft.yaml", *CARD).err  # which follows no schedule
