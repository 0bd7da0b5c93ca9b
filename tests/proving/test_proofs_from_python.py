"""`dsgen.prove` and `dsgen.verify`: what is said on purpose counts, the values that Python takes for nothing too."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import dsgen
from dsgen.proving import children, prover
from dsgen.shapes.errors import DsgenError

CONFIG: dict[str, Any] = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}}
pytestmark = pytest.mark.usefixtures("elsewhere")
JOB = {"hw": "a100-40g", "model": "7b", "method": "lora"}


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the prover is asked; it proves everything."""
    asked: list[dict[str, Any]] = []

    def prove(configs: list[Mapping[str, Any]], *, ended: Any, **options: Any) -> tuple[prover.Proof, ...]:
        asked.append(options)
        (model,) = options["trained"]
        proof = prover.Proof(
            outcome=prover.PROVED, phase="checkpoint", error=None, site=None, todo=None, adaptations=(),
            checks=(prover.Check("ZeRO stage", 2, 2, True),), notes=(), losses=(5.5, 5.4), ranks=2, device="cpu",
            versions={}, seconds=1.0, config_sha256=prover.config_hash(configs[0]), model=model.title,
            model_sha256=model.sha256,
        )  # fmt: skip
        ended(0, proof)
        return (proof,)

    monkeypatch.setattr(prover, "prove_many", prove)
    return asked


@pytest.mark.parametrize(
    "said",
    [
        {"lora_dropout": 0.0},
        {"lora_train_embeddings": False},
        {"lora_targets": ()},
        {"method": ""},
        {"target": ""},
        {"arguments": ""},
    ],
)
def test_a_job_refuses_what_it_says_itself_whatever_the_value(said: dict[str, Any], asked: list[Any]) -> None:
    with pytest.raises(DsgenError, match=f"{next(iter(said))} is for a config of your own"):
        dsgen.prove(dsgen.render(JOB), **said)
    assert asked == []
    dsgen.prove(dsgen.render(JOB))
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"target": ""}, "no target ''"),
        ({"method": ""}, "method is ''"),
        ({"lora_dropout": 0.0}, "lora_dropout is said"),
        ({"lora_train_embeddings": False}, "lora_train_embeddings is said"),
        ({"method": "lora", "lora_rank": 0}, "lora_rank is 0"),
    ],
)
def test_a_config_refuses_what_is_none(said: dict[str, Any], words: str) -> None:
    with pytest.raises(DsgenError, match=words):
        dsgen.prove(CONFIG, **said)


def _certificate() -> str:
    """One of CONFIG, in the working folder."""
    dsgen.prove(CONFIG, certificate="proof.json", force=True)
    return "proof.json"


def test_an_interpreter_that_is_said_is_taken(asked: list[dict[str, Any]]) -> None:
    """An empty one too, which the prover then refuses."""
    dsgen.prove(CONFIG, python="")
    assert asked[0]["python"] == ""


@pytest.mark.parametrize(
    ("said", "names"),
    [
        ({}, []),
        ({"target": "deepspeed", "ranks": 2, "device": "cpu", "steps": 1}, []),
        ({"method": "lora", "lora_rank": 4}, ["model"]),
        ({"target": "accelerate", "ranks": 4, "device": "cuda", "steps": 3}, ["target", "ranks", "device", "steps"]),
    ],
)
def test_verify_compares_what_is_said(said: dict[str, Any], names: list[str]) -> None:
    answer = dsgen.verify(_certificate(), CONFIG, **said)

    told = ("model", "target", "ranks", "device", "steps", "config")
    assert [item.name for item in answer.differences if item.name in told] == names


@pytest.mark.parametrize(("said", "words"), [({"device": "tpu"}, "device is 'tpu'"), ({"ranks": 0}, "ranks is 0")])
def test_verify_refuses_what_is_none(said: dict[str, Any], words: str) -> None:
    with pytest.raises(DsgenError, match=words):
        dsgen.verify(_certificate(), CONFIG, **said)


@pytest.mark.parametrize("mine", [None, "/mine/inductor"])
def test_the_cache_of_torch_is_the_persons_where_he_says_one(
    mine: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Else it goes with the child's own folder."""
    name = "TORCHINDUCTOR_CACHE_DIR"
    monkeypatch.delenv(name, raising=False)
    if mine is not None:
        monkeypatch.setenv(name, mine)
    python = tmp_path / "python"
    program = f"import json, os; print(json.dumps({{'cache': os.environ['{name}']}}))"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{program}"\n')
    python.chmod(python.stat().st_mode | stat.S_IXUSR)

    with children.start(str(python), "none", "test") as child:
        told = child.ask({}, 60.0)

    assert told == {"cache": mine or str(child.folder / "inductor")}


def test_a_child_that_is_gone_before_it_is_asked_is_told_with_what_it_said(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho hello\n")
    python.chmod(python.stat().st_mode | stat.S_IXUSR)

    with children.start(str(python), "none", "test") as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(children.LostError, match="ended with code 0: 'hello'"):
            child.ask({}, 60.0, last=True)
