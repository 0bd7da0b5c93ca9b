"""Real proofs: DeepSpeed itself takes configs on two CPU ranks, and refuses or fails those that are wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from chosen import chosen

from dsgen.asking.foresight import foresight
from dsgen.proving import prover

pytestmark = [pytest.mark.proof, pytest.mark.operators, pytest.mark.usefixtures("warm")]

BF16 = {"bf16": {"enabled": True}}
FP16 = {"fp16": {"enabled": True, "loss_scale": 0, "initial_scale_power": 16}}
CPU = {"device": "cpu", "pin_memory": True}
BASE: dict[str, Any] = {
    "train_batch_size": 512,
    "train_micro_batch_size_per_gpu": 16,
    "gradient_accumulation_steps": 8,
    "gradient_clipping": 0.7,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}},
    "scheduler": {
        "type": "WarmupDecayLR",
        "params": {
            "total_num_steps": 100, "warmup_min_lr": 0, "warmup_max_lr": 1e-3, "warmup_num_steps": 10,
            "warmup_type": "linear",
        },
    },
}  # fmt: skip


def zero(stage: int, **keys: Any) -> dict[str, Any]:
    """The section with a stage and more keys."""
    return {"zero_optimization": {"stage": stage, **keys}}


def without(config: dict[str, Any], *keys: str) -> dict[str, Any]:
    """A config without some keys."""
    return {key: value for key, value in config.items() if key not in keys}


RIGHT: dict[str, dict[str, Any]] = {
    "stage 0 bf16": {**BASE, **BF16, **zero(0)},
    "stage 0 fp32": {**BASE, **zero(0)},
    "stage 1 bf16": {**BASE, **BF16, **zero(1)},
    "stage 1 bf16, fp32 accumulation": {**BASE, **BF16, **zero(1), "data_types": {"grad_accum_dtype": "fp32"}},
    "stage 2 bf16": {**BASE, **BF16, **zero(2, overlap_comm=True, reduce_bucket_size=500_000_000)},
    "stage 3 bf16": {**BASE, **BF16, **zero(3, stage3_prefetch_bucket_size=50_000_000)},
    "stage 1 fp16": {**BASE, **FP16, **zero(1)},
    "stage 3 fp16": {**BASE, **FP16, **zero(3)},
    "stage 2 fp16 from 2 ** 32": {**BASE, "fp16": {"enabled": True, "initial_scale_power": 32}, **zero(2)},
    "stage 2 offload": {**BASE, **BF16, **zero(2, offload_optimizer=CPU)},
    "stage 3 offload both": {**BASE, **BF16, **zero(3, offload_optimizer=CPU, offload_param=CPU)},
    "AutoTP 2, stage 1": {**BASE, **BF16, **zero(1), "tensor_parallel": {"autotp_size": 2}},
    "AutoTP 2, stage 3": {
        **without(BASE, "train_batch_size"), **BF16, **zero(3), "tensor_parallel": {"autotp_size": 2},
    },
    "cosine": {
        **BASE, **BF16,
        "scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 100, "warmup_num_steps": 2}},
    },
}  # fmt: skip

# name -> config, the phase that refuses it (None: all phases pass, a check fails), words of the error or the check, and
# the rule of lint that foresees it
WRONG: dict[str, tuple[dict[str, Any], str | None, str, str]] = {
    "misspelt section": (
        {**BASE, **BF16, "zero_optimisation": {"stage": 3}}, None, "written keys DeepSpeed never reads", "unread-key",
    ),
    "misplaced lr": (
        {**BASE, **BF16, "optimizer": {**BASE["optimizer"], "lr": 5e-4}}, None, "written keys DeepSpeed never reads",
        "optimizer-argument-beside-params",
    ),
    "auto batch": (
        {**BASE, **BF16, "train_batch_size": "auto"}, "load", "'>' not supported", "auto-outside-hugging-face",
    ),
    "auto bucket": (
        {**BASE, **BF16, **zero(2, reduce_bucket_size="auto")}, None, "keys left to 'auto'",
        "auto-outside-hugging-face",
    ),
    "tp_size": (
        {**BASE, **BF16, "tensor_parallel": {"tp_size": 2}}, "load", "Extra inputs are not permitted",
        "tensor-parallel-key",
    ),
    "batch that never multiplies": (
        {**BASE, **BF16, "train_batch_size": 500}, "load", "train_batch_size", "batch-never-adds-up",
    ),
    "schedule without its length": (
        {**BASE, **BF16, "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 10}}},
        "initialize", "total_num_steps", "scheduler-argument-missing",
    ),
    "unknown optimizer parameter": (
        {**BASE, **BF16, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "beta": 0.9}}}, "initialize", "beta",
        "unknown-optimizer-argument",
    ),
    "clipping as text": (
        {**BASE, **BF16, "gradient_clipping": "1.0"}, "step", "not supported between", "rejected-value",
    ),
    "parameter offload at stage 2": (
        {**BASE, **BF16, **zero(2, offload_param=CPU)}, None, "parameter place", "offload-param-below-stage-3",
    ),
    "optimizer offload at stage 0": (
        {**BASE, **BF16, **zero(0, offload_optimizer=CPU)}, None, "optimizer state place",
        "offload-optimizer-at-stage-0",
    ),
    "AutoTP, stage 3 and three batch keys": (
        {**BASE, **BF16, **zero(3), "tensor_parallel": {"autotp_size": 2}}, "initialize", "train_batch_size",
        "tensor-parallel-zero-3-batch",
    ),
}  # fmt: skip


COMPARED = ("stage 0 bf16", "stage 1 bf16", "stage 1 fp16", "stage 2 offload")  # by what is no case of its own


@pytest.fixture(scope="module")
def proofs(request: pytest.FixtureRequest) -> dict[str, prover.Proof]:
    """All that are asked about, in one session."""
    every = {**RIGHT, **{name: config for name, (config, *_) in WRONG.items()}}
    configs = {name: every[name] for name in dict.fromkeys([*chosen(request), *COMPARED])}
    return dict(zip(configs, prover.prove_many(configs.values(), device="cpu", timeout_seconds=400), strict=True))


@pytest.mark.parametrize("name", RIGHT)
def test_deepspeed_takes_the_right_ones(name: str, proofs: dict[str, prover.Proof]) -> None:
    """Every check holds, and there are enough of them to mean something."""
    proof = proofs[name]
    assert (proof.outcome, proof.error, proof.failed_checks) == (prover.PROVED, None, ())
    assert len(proof.checks) > 20


@pytest.mark.parametrize("name", WRONG)
def test_deepspeed_fails_the_wrong_ones(name: str, proofs: dict[str, prover.Proof]) -> None:
    """In the phase and for the reason that surface.md records, or in the check that sees it."""
    _, phase, words, _ = WRONG[name]
    proof = proofs[name]
    assert proof.outcome == prover.FAILED
    if phase is None:
        assert proof.error is None
        assert [check.name for check in proof.failed_checks] == [words]
    else:
        assert proof.phase == phase
        assert words in str(proof.error)
        assert str(proof.site).startswith("deepspeed/")


@pytest.mark.parametrize("name", WRONG)
def test_a_rule_of_lint_foresees_each(name: str, proofs: dict[str, prover.Proof]) -> None:
    """By its name, and as the only cause."""
    config, _, _, rule = WRONG[name]

    said = foresight(config, proofs[name])

    assert [item.rule for item in said.causes] == [rule]
    assert said.lacking == ""


def test_observations_are_the_engines(proofs: dict[str, prover.Proof]) -> None:
    """Two values that only a real run knows: a share of the masters, and the rate in the third step of a warm-up."""
    checks = {check.name: check.observed for check in proofs["stage 2 offload"].checks}
    whole = {check.name: check.observed for check in proofs["stage 0 bf16"].checks}["master weight elements per rank"]
    assert isinstance(whole, list)
    assert checks["master weight elements per rank"] == [whole[0] // 2] * 2
    assert checks["learning rate after 3 applied steps"] == pytest.approx(2e-4)
    assert checks["optimizer class"] == "DeepSpeedCPUAdam"


@pytest.mark.parametrize("name", ["stage 1 fp16", "stage 3 fp16"])
def test_an_overflow_is_forced_and_survived(name: str, proofs: dict[str, prover.Proof]) -> None:
    told = {check.name: check.observed for check in proofs[name].checks}
    assert told["forced overflows that were skipped"] == 2  # the hysteresis of the scaler
    assert told["loss scale after them"] == 2**15
    assert told["the step after them"] == "moves finite weights"
    assert "forced overflows that were skipped" not in [check.name for check in proofs["stage 1 bf16"].checks]


def test_a_step_of_no_rate_is_not_the_one_behind_an_overflow() -> None:
    """The first two steps of a warm-up from 0 move nothing, whatever the scaler did before them."""
    (proof,) = prover.prove_many([{**BASE, **FP16, **zero(1)}], device="cpu", steps=1, timeout_seconds=400)

    assert (proof.outcome, proof.failed_checks) == (prover.PROVED, ())
    assert "the step after them" in [check.name for check in proof.checks]


def test_fp16_on_a_cpu_names_its_patch(proofs: dict[str, prover.Proof]) -> None:
    """The one thing about the machine that a proof bends, where this CPU refuses fp16."""
    keys = {item.key for item in proofs["stage 1 fp16"].adaptations}
    assert keys - {"accelerator.is_fp16_supported"} == {
        "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps",
    }  # fmt: skip


def test_an_operator_that_a_cpu_lacks_is_not_run() -> None:
    """It is no fault of the config."""
    lamb = {**BASE, **FP16, "optimizer": {"type": "Lamb", "params": {"lr": 1e-3}}}

    proof = prover.prove(lamb, device="cpu", timeout_seconds=300)

    assert proof.outcome == prover.NOT_RUN
    assert "GPU" in str(proof.todo)


PROVE = """
import json, sys
from dsgen.proving import prover
prover.prove(json.loads(sys.argv[1]), device="cpu")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who holds a lock")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_a_killed_proof_leaves_no_lock(number: signal.Signals, tmp_path: Path) -> None:
    """Killed in the middle of a build; a stale lock that lay there before is gone too."""
    import json

    stale = tmp_path / "deepspeed_shm_comm" / "lock"
    stale.parent.mkdir()
    stale.touch()
    environment = {**os.environ, "TORCH_EXTENSIONS_DIR": str(tmp_path)}
    command = [sys.executable, "-c", PROVE, json.dumps(RIGHT["stage 1 bf16"])]
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, start_new_session=True) as process:
        building = tmp_path / "fused_adam" / "lock"
        wait_until(building.exists, 120)
        assert not stale.exists()
        process.send_signal(number)

    wait_until(lambda: not any(tmp_path.glob("*/lock")), 20)


def wait_until(condition: Any, seconds: float) -> None:
    """Poll until it holds; fail when it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_timeout_is_not_a_verdict_on_the_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator that is not built in time: not run, and no lock."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))

    proof = prover.prove(RIGHT["stage 1 bf16"], device="cpu", timeout_seconds=2)

    assert (proof.outcome, list(tmp_path.glob("*/lock"))) == (prover.NOT_RUN, [])
    assert "not built within 2 s" in str(proof.error)


def test_what_a_monitor_leaves_in_the_temporary_folder_goes_with_the_proof(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """wandb makes folders that it removes at the end of Python, which a rank does not come to."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # of the child; this process has chosen its own already
    proof = prover.prove({**BASE, **BF16, **zero(1), "wandb": {"enabled": True}}, device="cpu", steps=1)

    assert proof.outcome == prover.PROVED, proof.error
    assert list(tmp_path.iterdir()) == []
