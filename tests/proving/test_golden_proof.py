"""Every golden config that is distinct in structure, started, stepped, saved and loaded by the real DeepSpeed 0.19."""

from __future__ import annotations

import functools
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from chosen import chosen

from dsgen.proving import expectations
from dsgen.proving.expectations import optimizer_place
from dsgen.proving.proven_models import ProvenModel
from dsgen.proving.prover import NOT_RUN, PROVED, Proof, prove_many

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))  # golden/ is a folder of the checkout, not of the installed package

from golden import structures, trained_scenes  # noqa: E402
from golden.trained_scenes import NEEDS_GPU, adapted, configs  # noqa: E402

pytestmark = pytest.mark.proof

# Scenarios whose program makes the optimizer, and which.
OWN = {"optimizer-8-bit-34b": "AdamW8bit", "optimizer-8-bit-one-gpu": "AdamW8bit"}


@functools.cache
def groups() -> dict[str, tuple[str, ...]]:
    """One scenario for each structure, and those it stands for; adapters and NEEDS_GPU always stand for themselves."""
    own: dict[str, tuple[str, ...]] = dict.fromkeys((*NEEDS_GPU, *adapted()), ())
    return {**structures.distinct({name: config for name, config in configs().items() if name not in own}), **own}


def recomputed(name: str) -> str:
    """How the program of a scenario checkpoints, which its config says and no key of DeepSpeed's does."""
    return "non-reentrant" if "activation_checkpointing" in configs()[name] else ""


@functools.cache
def of_operators() -> frozenset[str]:
    """One structure for each set of operators, their dtype and where their tensors lie, for `nox -s operators`."""
    kinds: dict[Any, str] = {}
    for name in groups():
        config = configs()[name]
        places = (optimizer_place(config), expectations.parameter_place(config))
        kind = (expectations.operators(config), expectations.parameter_dtype(config), *places, split(config))
        if any(kind[0]) or split(config):  # ranks of AutoTP sum in the operator of shared memory
            kinds.setdefault(kind, name)
    return frozenset(kinds.values())


def split(config: dict[str, Any]) -> bool:
    """Whether AutoTP splits the layers."""
    return bool(config.get("tensor_parallel", {}).get("autotp_size", 1) > 1)


def parameter(name: str) -> Any:
    """One structure, marked where `nox -s operators` proves it too."""
    return pytest.param(name, marks=[pytest.mark.operators] if name in of_operators() else [])


@pytest.fixture(scope="module")
def proofs(request: pytest.FixtureRequest) -> dict[str, Proof]:
    """All proofs that are asked about, in one session: torch and DeepSpeed are imported once."""
    names = chosen(request)
    models = [model_of(name) for name in names]
    return dict(zip(names, prove_many([configs()[name] for name in names], trained=models), strict=True))


def model_of(name: str) -> ProvenModel:
    """What a scenario trains: its own model with its own adapters, or the tiny Llama."""
    if name in adapted():
        return trained_scenes.proven_model(name)
    return ProvenModel(optimizer=OWN.get(name, ""), checkpointing=recomputed(name))


@pytest.mark.parametrize("name", [parameter(name) for name in groups() if name not in NEEDS_GPU])
def test_a_structure_is_proved(name: str, proofs: dict[str, Proof]) -> None:
    proof = proofs[name]
    failed = "; ".join(f"{item.name}: not {item.expected} but {item.observed}" for item in proof.failed_checks)
    assert proof.outcome == PROVED, f"{proof.phase}: {proof.error or failed} {proof.site or ''} {proof.todo or ''}"
    assert proof.checks
    ran = [check.observed for check in proof.checks if check.name == "activation checkpointing"]
    assert ran == ([recomputed(name)] if recomputed(name) else [])
    skipped = [check.observed for check in proof.checks if check.name == "forced overflows that were skipped"]
    assert [number > 0 for number in skipped] == [True] * (expectations.parameter_dtype(configs()[name]) == "float16")
    changed = {one.key for one in proof.adaptations}
    assert ("torch.compile" in changed) == (name.startswith("optimizer-muon") and proof.device == "cpu")
    swapped = optimizer_place(configs()[name]) == "nvme"
    assert any("DSG352" in note for note in proof.notes) == swapped  # it loads in the engine that saved


@pytest.mark.parametrize("name", NEEDS_GPU)
def test_what_only_a_gpu_can_prove_is_proved_there_and_refused_here_by_name(
    name: str, proofs: dict[str, Proof]
) -> None:
    proof = proofs[name]
    if proof.device == "cuda":
        assert proof.outcome == PROVED
    else:
        assert proof.outcome == NOT_RUN
        assert "had not been implemented on CPU" in (proof.error or "")
        assert NEEDS_GPU[name] in (proof.error or "")


def test_lora_and_qlora_are_proved_as_adapters_of_their_own_rank_and_targets() -> None:
    for name in adapted():
        wishes, adapters = trained_scenes.jobs()[name].training, model_of(name).adapters
        assert adapters is not None
        assert (adapters.method, adapters.rank, adapters.targets) == (
            wishes.method, wishes.lora_rank, tuple(wishes.lora_targets))  # fmt: skip
        assert name in groups()


def test_every_golden_config_of_the_release_is_proved_or_stood_for() -> None:
    covered = {*groups(), *(other for others in groups().values() for other in others)}
    assert covered == set(configs())


def test_the_packages_that_monitors_need_are_there() -> None:
    missing = [package for package in ("tensorboard", "wandb") if find_spec(package) is None]
    assert not missing, f"the proof of a monitor needs it: pip install {' '.join(missing)}"
