"""Configs that DeepSpeed stops on, or takes otherwise than written: each fails its proof, and lint had said why."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from dsgen.asking.proofs import foreseen
from dsgen.proving import prover

pytestmark = [pytest.mark.proof, pytest.mark.usefixtures("warm")]

ADAMW = {"type": "AdamW", "params": {"lr": 1e-3}}
BASE: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 2,
    "bf16": {"enabled": True},
    "optimizer": ADAMW,
    "zero_optimization": {"stage": 2},
}


def zero(stage: int, **keys: Any) -> dict[str, Any]:
    """The base with another section of ZeRO."""
    return {**BASE, "zero_optimization": {"stage": stage, **keys}}


# name -> the config, and the rule that says why it stops
BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "a section with a slip": ({**BASE, "zero_optimisation": {"stage": 3}}, "unread-key"),
    "a key of ZeRO with a slip": (zero(2, overlap_com=True), "rejected-key"),
    "lr beside params": ({**BASE, "optimizer": {**ADAMW, "lr": 5e-4}}, "optimizer-argument-beside-params"),
    "auto batch": ({**BASE, "train_batch_size": "auto"}, "auto-outside-hugging-face"),
    "auto bucket": (zero(2, reduce_bucket_size="auto"), "auto-outside-hugging-face"),
    "auto learning rate": (
        {**BASE, "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}},
        "auto-outside-hugging-face",
    ),
    "tp_size": ({**BASE, "tensor_parallel": {"tp_size": 2}}, "tensor-parallel-key"),
    "a batch that never multiplies": (
        {**BASE, "train_batch_size": 500, "train_micro_batch_size_per_gpu": 16},
        "batch-never-adds-up",
    ),
    "no batch at all": (
        {"bf16": {"enabled": True}, "optimizer": ADAMW, "zero_optimization": {"stage": 2}},
        "batch-size-missing",
    ),
    "a schedule without its length": (
        {**BASE, "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 10}}},
        "scheduler-argument-missing",
    ),
    "a schedule that is none": ({**BASE, "scheduler": {"type": "Cosine", "params": {}}}, "unknown-scheduler"),
    "a parameter no optimizer has": (
        {**BASE, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "beta": 0.9}}},
        "unknown-optimizer-argument",
    ),
    "clipping as text": ({**BASE, "gradient_clipping": "1.0"}, "rejected-value"),
    "stage 4": (zero(4), "rejected-value"),
    "stage as text": (zero(2) | {"zero_optimization": {"stage": "two"}}, "rejected-value"),
    "parameters offloaded at stage 2": (zero(2, offload_param={"device": "cpu"}), "offload-param-below-stage-3"),
    "optimizer offloaded at stage 0": (zero(0, offload_optimizer={"device": "cpu"}), "offload-optimizer-at-stage-0"),
    "both precisions": ({**BASE, "fp16": {"enabled": True}}, "fp16-and-bf16"),
    "a device that is none": (zero(3, offload_optimizer={"device": "disk"}), "rejected-value"),
    "a loss scale as text": (
        {**BASE, "bf16": {"enabled": False}, "fp16": {"enabled": True, "loss_scale": "big"}},
        "rejected-value",
    ),
    "a section that is a list": ({**BASE, "zero_optimization": [2]}, "section-is-no-map"),
    "offload as true": (zero(2, offload_optimizer=True), "rejected-value"),
}


@functools.cache
def proofs() -> dict[str, prover.Proof]:
    """All of them, in one session."""
    return dict(
        zip(BROKEN, prover.prove_many([config for config, _ in BROKEN.values()], device="cpu", steps=1), strict=True)
    )


@pytest.mark.parametrize("name", BROKEN)
def test_lint_had_said_why_a_start_fails(name: str) -> None:
    """Whoever adds a config that stops and that no rule knows has the linter's hole before him."""
    config, rule = BROKEN[name]
    proof = proofs()[name]

    assert proof.outcome == prover.FAILED
    assert proof.error is not None or proof.failed_checks
    assert proof.phase in ("load", "initialize", "step", "checkpoint")
    assert foreseen(config, proof)[0].rule == rule, proof.error


def test_a_config_that_starts_has_no_error_of_lint() -> None:
    """The other side: what starts is not blamed."""
    (proof,) = prover.prove_many([BASE], device="cpu", steps=1)

    assert proof.outcome == prover.PROVED
    assert foreseen(BASE, proof) == ()
