"""The kind of activation checkpointing: the reentrant one, with why, for adapters at stage 3 before DeepSpeed 0.19.3.

Seen with torch 2.13, transformers 5.23 and peft on two gloo ranks: the other kind raises a CheckpointError under
0.14.5, 0.15.4, 0.16.9, 0.17.6 and 0.18.9, and none under 0.19.8.
"""

from __future__ import annotations

from typing import Any

import pytest

import dsgen
from dsgen.frameworks import FRAMEWORKS, job_files
from dsgen.frameworks.needs import needs
from dsgen.frameworks.trainers import TRAINERS
from dsgen.jobs.releases import WHY_LETS_GO, WHY_REENTRANT, must_reenter

JOB: dict[str, Any] = {
    "hw": "a100-80g", "gpus": 8, "model": "llama-3.1-8b", "method": "lora", "zero_stage": 3, "checkpointing": "full",
    "micro_batch": 1,
}  # fmt: skip
INPUTS = "model.enable_input_require_grads()"
# release of DeepSpeed, what else is said -> whether it is reentrant
KINDS = {
    "0.14": ("0.14", {}, True),
    "0.16": ("0.16", {}, True),
    "0.18": ("0.18", {}, True),
    "the last without": ("0.19.2", {}, True),
    "the first with": ("0.19.3", {}, False),
    "0.19": ("0.19", {}, False),
    "4 bits": ("0.16", {"method": "qlora"}, True),
    "4 bits, 0.19": ("0.19", {"method": "qlora"}, True),
    "4 bits, 0.19, asked": ("0.19", {"method": "qlora", "reentrant": False}, False),
    "all weights": ("0.16", {"method": "full"}, False),
    "stage 2": ("0.16", {"zero_stage": 2}, False),
    "4 bits, stage 2": ("0.16", {"method": "qlora", "zero_stage": 2}, False),
}


def told(name: str, target: str) -> tuple[dict[str, str], dsgen.Config, bool]:
    """The code of each need, the config, and whether it is reentrant."""
    release, said, reentrant = KINDS[name]
    config = dsgen.render(dsgen.plan({**JOB, **said}, release))
    return {item.code: item.snippet for item in needs(config.plan, target)}, config, reentrant


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("target", FRAMEWORKS)
def test_every_framework_is_told_the_kind_that_its_release_can_run(name: str, target: str) -> None:
    code, config, reentrant = told(name, target)
    written = "".join((*code.values(), *(item.text for item in job_files(config, target).files))).lower()

    assert "reentrant" in written
    wrong = f"{not reentrant}".lower()
    assert f'"use_reentrant": {wrong}' not in written
    assert f"use_reentrant: {wrong}" not in written
    assert f"use_reentrant_gc: {wrong}" not in written
    why = WHY_LETS_GO if KINDS[name][0] == "0.19" else WHY_REENTRANT
    assert (why.lower() in written) == reentrant


@pytest.mark.parametrize("target", FRAMEWORKS)
def test_a_program_of_lora_asks_for_gradients_of_its_inputs_where_no_framework_does(target: str) -> None:
    code = told("0.16", target)[0]

    assert (INPUTS in code["checkpointing"]) == (target not in TRAINERS)
    assert INPUTS not in told("0.19", target)[0]["checkpointing"]


def test_what_quantizes_asks_for_them_by_itself() -> None:
    """peft's prepare_model_for_kbit_training does, where it is told the reentrant kind."""
    code = told("4 bits", "deepspeed")[0]

    assert 'gradient_checkpointing_kwargs={"use_reentrant": True}' in code["adapters"]
    assert INPUTS not in code["adapters"] + code["checkpointing"]


def test_the_arguments_of_the_trainer_say_what_its_program_must_call() -> None:
    older, newer = (job_files(told(name, "hf-trainer")[1], "hf-trainer").files for name in ("0.16", "0.19"))

    assert [INPUTS in item.text for item in older] == [False, True, True]
    assert not [item for item in newer if INPUTS in item.text]


def test_a_plan_says_which_kind_it_counts_on_and_why() -> None:
    config = told("0.16", "deepspeed")[1]
    reason = config.why("activation_checkpointing.partition_activations").reason

    assert WHY_REENTRANT in reason
    assert "use_reentrant=True" in reason
    assert next(item.words for item in needs(config.plan, "deepspeed") if item.code == "checkpointing") == (
        "reentrant gradient checkpointing"
    )


@pytest.mark.parametrize(("version", "reentrant"), [("0.9.5", True), ("0.19.10", False), ("1.0.0", False)])
def test_releases_are_compared_as_numbers(version: str, reentrant: bool) -> None:
    assert must_reenter("lora", 3, version) is reentrant
