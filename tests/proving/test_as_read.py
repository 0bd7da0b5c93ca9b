"""Configs as DeepSpeed reads them: what it coerces, old keys and remarks make no start fail; what programs fill in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from chosen import chosen

from dsgen.asking.proofs import ToProve, asked, proven
from dsgen.proving import prover
from dsgen.proving.adaptation import rank_count
from dsgen.proving.readings import as_read
from dsgen.proving.worlds import open_world
from dsgen.shapes.errors import DsgenError

ADAMW = {"type": "AdamW", "params": {"lr": 1e-3}}
BASE: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 4,
    "bf16": {"enabled": True},
    "optimizer": ADAMW,
    "zero_optimization": {"stage": 2},
}
CPU = {"device": "cpu"}
READ = [
    ({"zero_optimization": {"stage": "2"}}, {"zero_optimization": {"stage": 2}}),
    ({"zero_optimization": {"stage": 3.0}}, {"zero_optimization": {"stage": 3}}),
    ({"zero_optimization": {"stage": "two"}}, {"zero_optimization": {"stage": "two"}}),
    ({"zero_optimization": True}, {"zero_optimization": {"stage": 1}}),
    ({"zero_optimization": False}, {"zero_optimization": {"stage": 0}}),
    ({"zero_optimization": [2]}, {"zero_optimization": [2]}),
    ({"bf16": {"enabled": "yes"}}, {"bf16": {"enabled": True}}),
    ({"fp16": {"enabled": 1, "loss_scale": 0}}, {"fp16": {"enabled": True, "loss_scale": 0}}),
    ({"fp16": {"enabled": "off"}}, {"fp16": {"enabled": False}}),
    ({"bf16": {"enabled": "auto"}}, {"bf16": {"enabled": "auto"}}),
    (
        {"zero_optimization": {"stage": 3, "cpu_offload": True, "cpu_offload_param": "true"}},
        {"zero_optimization": {"stage": 3, "offload_optimizer": CPU, "offload_param": CPU}},
    ),
    ({"zero_optimization": {"stage": 2, "cpu_offload": False}}, {"zero_optimization": {"stage": 2}}),
    ({"tensor_parallel": {"autotp_size": 2.0}}, {"tensor_parallel": {"autotp_size": 2}}),
    ({"tensor_parallel": {"autotp_size": "2"}}, {"tensor_parallel": {"autotp_size": "2"}}),
]
# What runs as it is read, and was taken for a failure where it is judged as it is written.
STARTS: dict[str, dict[str, Any]] = {
    "stage as text": {**BASE, "zero_optimization": {"stage": "3"}},
    "stage as a number with a point": {**BASE, "zero_optimization": {"stage": 2.0}},
    "ZeRO as a switch": {**BASE, "zero_optimization": True},
    "bf16 as text": {**BASE, "bf16": {"enabled": "true"}},
    "fp16 as a number": {**BASE, "bf16": {"enabled": False}, "fp16": {"enabled": 1, "initial_scale_power": 8}},
    "cpu_offload of old": {**BASE, "zero_optimization": {"stage": 2, "cpu_offload": True}},
    "AutoTP with a point": {**BASE, "zero_optimization": {"stage": 1}, "tensor_parallel": {"autotp_size": 2.0}},
    "remarks": {**BASE, "_comment": "from the docs", "//": ["of two"], "comment": "and more"},
    "masters made anew": {**BASE, "zero_optimization": {"stage": 1, "load_from_fp32_weights": False}},
    "a rate of Muon's own": {**BASE, "optimizer": {"type": "Muon", "params": {"lr": 1e-3, "muon_lr": 1e-2}}},
}
DRIVE = {"device": "nvme", "nvme_path": "/local_nvme"}
# As the Trainer's documentation has ZeRO-Infinity: tensors are kept for reuse, and a tiny model's would all stay.
INFINITY = {
    **BASE,
    "zero_optimization": {
        "stage": 3,
        "offload_optimizer": {**DRIVE, "pin_memory": True, "buffer_count": 4},
        "offload_param": {**DRIVE, "pin_memory": True, "buffer_count": 5, "buffer_size": 1e8, "max_in_cpu": 1e9},
        "stage3_max_live_parameters": 1e9,
        "stage3_max_reuse_distance": 1e9,
    },
}
# The config of the Trainer's own documentation, all "auto".
OF_THE_DOCS: dict[str, Any] = {
    "fp16": {"enabled": "auto", "loss_scale": 0, "initial_scale_power": 16, "hysteresis": 2, "min_loss_scale": 1},
    "optimizer": {"type": "AdamW", "params": dict.fromkeys(("lr", "betas", "eps", "weight_decay"), "auto")},
    "scheduler": {
        "type": "WarmupDecayLR",
        "params": dict.fromkeys(("total_num_steps", "warmup_min_lr", "warmup_max_lr", "warmup_num_steps"), "auto"),
    },
    "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": True}},
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
}
WARMUPS = [
    ({}, 1),
    ({"warmup_steps": 0}, 1),
    ({"warmup_steps": 7}, 7),
    ({"warmup_steps": 0.03, "max_steps": 100}, 3),
    ({"warmup_steps": 0.031, "max_steps": 100}, 4),
]


@pytest.mark.parametrize(("written", "read"), READ)
def test_what_decides_the_course_is_what_deepspeed_has_after_its_parse(
    written: dict[str, Any], read: dict[str, Any]
) -> None:
    before = json.dumps(written)
    assert as_read(written) == read
    assert json.dumps(written) == before


def test_a_degree_with_a_point_gets_its_ranks() -> None:
    assert rank_count({"tensor_parallel": {"autotp_size": 4.0}}, None) == 4


def filled(folder: Path, arguments: dict[str, Any], target: str = "hf-trainer") -> ToProve:
    """The documentation's config with some arguments."""
    file = folder / "arguments.json"
    file.write_text(json.dumps({"per_device_train_batch_size": 2, **arguments}), encoding="utf-8")
    return asked(OF_THE_DOCS, target=target, arguments=str(file) if target == "hf-trainer" else None)


def warmup(question: ToProve) -> object:
    return question.given["scheduler"]["params"]["warmup_num_steps"]


@pytest.mark.parametrize(("arguments", "steps"), WARMUPS)
def test_the_warm_up_is_what_the_trainer_fills_in(tmp_path: Path, arguments: dict[str, Any], steps: int) -> None:
    assert warmup(filled(tmp_path, arguments)) == steps


def test_a_warm_up_of_older_transformers_is_a_share_too(tmp_path: Path) -> None:
    assert warmup(filled(tmp_path, {"warmup_ratio": 0.03, "max_steps": 100})) == 3
    assert warmup(filled(tmp_path, {"warmup_ratio": 0.03, "warmup_steps": 5, "max_steps": 100})) == 5
    assert warmup(filled(tmp_path, {"warmup_ratio": 0.03})) == 1  # of a length that nobody says


def test_accelerate_fills_in_a_warm_up_that_deepspeed_takes(tmp_path: Path) -> None:
    assert warmup(filled(tmp_path, {}, "accelerate")) == 1


@pytest.mark.proof
def test_the_trainer_itself_fills_in_that_warm_up(tmp_path: Path) -> None:
    said = [arguments for arguments, _ in WARMUPS]
    given = [{"per_device_train_batch_size": 2, "max_steps": 100, **arguments} for arguments in said]
    with open_world() as world:
        told = list(world.parse([(OF_THE_DOCS, 2)] * len(said), "hf-trainer", given))
    assert [one.error for one in told] == [None] * len(said)
    assert [one.given["scheduler"]["params"]["warmup_num_steps"] for one in told] == [steps for _, steps in WARMUPS]


@pytest.fixture(scope="module")
def proofs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, prover.Proof]:
    """All that are asked about, in one session."""
    names = chosen(request)
    questions = {name: ToProve(written=config, given=config) for name, config in STARTS.items()}
    questions["ZeRO-Infinity"] = ToProve(written=INFINITY, given=INFINITY)
    questions["the documentation's"] = filled(tmp_path_factory.mktemp("arguments"), {})
    return dict(zip(names, proven([questions[name] for name in names], device="cpu", steps=1), strict=True))


@pytest.mark.proof
@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize("name", [*STARTS, "ZeRO-Infinity", "the documentation's"])
def test_what_runs_is_proved(name: str, proofs: dict[str, prover.Proof]) -> None:
    proof = proofs[name]
    assert (proof.outcome, proof.error, proof.failed_checks) == (prover.PROVED, None, ())
    told = [note for note in proof.notes if "DSG816" in note]
    assert bool(told) is (name == "ZeRO-Infinity")


def test_a_config_that_its_arguments_contradict_is_not_proven(tmp_path: Path) -> None:
    file = tmp_path / "arguments.json"
    file.write_text(json.dumps({"per_device_train_batch_size": 2, "max_grad_norm": 1.0}), encoding="utf-8")
    config = {"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": "auto"}, "gradient_accumulation_steps": 1}

    with pytest.raises(DsgenError, match="train_micro_batch_size_per_gpu is 4, and per_device_train_batch_size is 2"):
        asked(config, arguments=str(file))

    agreeing = asked({**config, "train_micro_batch_size_per_gpu": 2}, arguments=str(file))
    assert agreeing.given["train_micro_batch_size_per_gpu"] == 2
