"""Proofs with the models that people train: siblings of their families, adapters, a function of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from chosen import chosen

import dsgen
from dsgen.asking.proofs import of_rendered as trained_by
from dsgen.asking.proofs import trained
from dsgen.proving import prover
from dsgen.proving.proven_models import ProvenModel

pytestmark = [pytest.mark.proof, pytest.mark.usefixtures("warm")]

CPU = {"device": "cpu"}
NVME = {"device": "nvme", "nvme_path": "/local_nvme", "buffer_count": 5}
DRIVE = {"offload_optimizer": NVME, "offload_param": NVME, "stage3_max_reuse_distance": 0}


def config(stage: int, **keys: Any) -> dict[str, Any]:
    """A small config in bf16."""
    return {
        "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2, "bf16": {"enabled": True},
        "gradient_clipping": 1.0, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
        "zero_optimization": {"stage": stage, **keys},
    }  # fmt: skip


# name -> config, model; stage 3 is the hardest: models are born partitioned, and gathered layer by layer
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "llama, stage 2": (config(2), {"model": "llama-3.2-1b"}),
    "llama, stage 3": (config(3), {"model": "llama-3.2-1b"}),
    "qwen, stage 3": (config(3), {"model": "qwen2.5-7b"}),
    "mistral, stage 3": (config(3), {"model": "mistral-7b"}),
    "gemma, stage 3": (config(3), {"model": "gemma-2-9b"}),
    "experts, stage 3": (config(3), {"model": "mixtral-8x7b"}),
    "llama, on a drive": (config(3, **DRIVE), {"model": "llama-3.1-8b"}),
    "experts, on a drive": (config(3, **DRIVE), {"model": "gpt-oss-20b"}),
    "many experts, on a drive": (config(3, **DRIVE), {"model": "qwen3-30b-a3b"}),
    "mistral over two ranks": ({**config(1), "tensor_parallel": {"autotp_size": 2}}, {"model": "mistral-7b"}),
    "lora, stage 2 and offload": (
        config(2, offload_optimizer=CPU), {"model": "llama-3.2-1b", "method": "lora", "lora_rank": 4},
    ),
    "lora, stage 3": (config(3), {"model": "qwen2.5-7b", "method": "lora", "lora_targets": ["q_proj", "v_proj"]}),
    "qlora, stage 0": (config(0), {"model": "llama-3.2-1b", "method": "qlora"}),
    "qlora, stage 2": (config(2), {"model": "mistral-7b", "method": "qlora"}),
    "qlora, stage 3": (config(3), {"model": "llama-3.2-1b", "method": "qlora"}),
    "qlora, stage 3 as text": (
        {**config(3), "bf16": {"enabled": "true"}, "zero_optimization": {"stage": "3"}},
        {"model": "llama-3.2-1b", "method": "qlora"},
    ),
    "qlora, stage 3 and offload": (
        config(3, offload_optimizer=CPU, offload_param=CPU), {"model": "llama-3.2-1b", "method": "qlora"},
    ),
}  # fmt: skip


# with each other
COMPARED = (
    "llama, stage 2", "llama, stage 3", "qlora, stage 0", "qlora, stage 2", "qlora, stage 3", "qlora, stage 3 as text",
    "qlora, stage 3 and offload",
)  # fmt: skip


@pytest.fixture(scope="module")
def proofs(request: pytest.FixtureRequest) -> dict[str, prover.Proof]:
    """All that are asked about, in one session."""
    names = dict.fromkeys([*chosen(request), *COMPARED])
    models: list[ProvenModel] = [trained(**CASES[name][1]) for name in names]
    configs = [CASES[name][0] for name in names]
    return dict(zip(names, prover.prove_many(configs, trained=models, device="cpu"), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_it_is_proved(name: str, proofs: dict[str, prover.Proof]) -> None:
    proof = proofs[name]
    failed = "; ".join(f"{item.name}: not {item.expected} but {item.observed}" for item in proof.failed_checks)

    assert proof.outcome == prover.PROVED, f"{proof.phase}: {proof.error or failed} {proof.site or ''}"
    assert proof.losses[-1] < proof.losses[0]


def test_stage_3_trains_as_stage_2_does(proofs: dict[str, prover.Proof]) -> None:
    """The same sibling with the same weights: experts too are what transformers makes them (bf16 rounds)."""
    assert proofs["llama, stage 3"].losses == pytest.approx(proofs["llama, stage 2"].losses, abs=2e-3)


def test_weights_in_4_bits_are_the_same_at_stage_3(proofs: dict[str, prover.Proof]) -> None:
    """There they are kept as 16-bit numbers, two bytes each: none is lost, and none is what lay in memory."""
    whole, parts = proofs["qlora, stage 0"].losses, proofs["qlora, stage 3 and offload"].losses

    assert parts[0] == whole[0]
    assert parts == pytest.approx(whole, abs=5e-3)


def test_adapters_are_put_on_the_model_as_deepspeed_reads_the_config(proofs: dict[str, prover.Proof]) -> None:
    """The 4-bit weights compute in bf16 too where its switch is text."""
    assert proofs["qlora, stage 3 as text"].losses == proofs["qlora, stage 3"].losses


def test_only_adapters_are_trained(proofs: dict[str, prover.Proof]) -> None:
    """A tenth of the sibling at most is in the optimizer, and peft is named among the versions."""
    held = {
        name: next(check.observed for check in proofs[name].checks if check.name == "master weight elements per rank")
        for name in ("qlora, stage 2", "llama, stage 2")
    }

    assert 0 < held["qlora, stage 2"][0] < held["llama, stage 2"][0] / 2  # type: ignore[index]
    assert "peft" in proofs["qlora, stage 2"].versions
    assert "peft" not in proofs["llama, stage 2"].versions


@pytest.mark.parametrize(("model", "ranks"), [({}, 4), ({"model": "bloom-560m"}, 2), ({"model": "gemma-3-1b"}, 3)])
def test_a_drive_is_proved_on_more_ranks_and_with_large_embeddings(model: dict[str, Any], ranks: int) -> None:
    named = trained(**model) if model else ProvenModel()
    (proof,) = prover.prove_many([config(3, **DRIVE)], trained=[named], ranks=ranks, device="cpu")

    assert proof.outcome == prover.PROVED, f"{proof.phase}: {proof.error or proof.failed_checks}"


MINE = """
import torch

class Mine(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(32, 1)

    def forward(self, x, y):
        return {"loss": (self.line(x) - y).square().mean()}

def make():
    return Mine(), lambda samples: {"x": torch.ones(samples, 32).bfloat16(), "y": torch.zeros(samples, 1).bfloat16()}

def alone():
    return Mine()
"""


def test_a_function_of_ones_own_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked for in the working folder; one that lacks its data says what to return, and lint is not blamed."""
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    proof = dsgen.prove(config(2), model="mine:make", device="cpu", certificate=tmp_path / "proof.json")
    without = dsgen.prove(config(2), model="mine:alone", device="cpu")

    assert proof.outcome == prover.PROVED, proof.error
    assert proof.model == "what mine:make makes"
    assert dsgen.verify(tmp_path / "proof.json", config(2)).holds
    assert not dsgen.verify(tmp_path / "proof.json", config(3)).holds
    assert "return (model, batch)" in str(without.error)
    assert without.foreseen is None


def test_a_scenario_is_proven_with_its_own_model() -> None:
    """QLoRA of a Llama on one GPU, as people run it."""
    rendered = dsgen.render({"hw": "rtx3090-24g", "gpus": 1, "model": "llama-3.1-8b", "method": "qlora"})

    proof = dsgen.prove(rendered, device="cpu")

    assert proof.outcome == prover.PROVED, proof.error
    assert proof.model == (
        "LoRA adapters on a tiny sibling of llama-3.1-8b (llama), its weights in 4 bits, with activation checkpointing"
    )


@pytest.mark.parametrize("release", ["0.18", "0.19"])
@pytest.mark.parametrize("method", ["lora", "qlora"])
def test_a_scenario_is_proven_with_the_checkpointing_of_its_program(method: str, release: str) -> None:
    """Of the kind that its release can run; the newest, which is installed, runs both, and QLoRA the one at stage 3."""
    job = {"hw": "a100-80g", "gpus": 8, "model": "llama-3.1-8b", "zero_stage": 3, "checkpointing": "full"}
    rendered = dsgen.render(dsgen.plan({**job, "method": method}, release))

    proof = dsgen.prove(rendered, device="cpu")

    assert proof.outcome == prover.PROVED, proof.error
    ran = [check.observed for check in proof.checks if check.name == "activation checkpointing"]
    assert ran == ["reentrant" if release == "0.18" or method == "qlora" else "non-reentrant"]


def test_a_program_that_does_not_prepare_its_base_is_proven() -> None:
    """LLaMA-Factory and ms-swift call no prepare_model_for_kbit_training."""
    job = {"hw": "a100-80g", "gpus": 8, "model": "llama-3.1-8b", "zero_stage": 2, "method": "qlora"}
    models = [trained_by(dsgen.render({**job, "kbit_fp32": said})).trained for said in ("always", "never")]
    proof = dsgen.prove(dsgen.render({**job, "kbit_fp32": "never"}), device="cpu")

    assert proof.outcome == prover.PROVED, proof.error
    assert [model.adapters is not None and "kbit_fp32" in model.adapters.to_engine() for model in models] == [
        False,
        True,
    ]
