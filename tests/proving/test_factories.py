"""A person's own function: a certificate tells its source apart, and nothing but the proof itself imports it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

import dsgen
from dsgen.asking.proofs import trained
from dsgen.proving import certificates, prover
from dsgen.proving.certificates import Certificate, certify
from dsgen.proving.factories import source_sha256
from dsgen.report import certificate as report

ROOT = Path(__file__).resolve().parents[2]
CONFIG: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 2,
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
    "zero_optimization": {"stage": 2},
}
FACTORY = "studio.models.tiny:make"
MODEL = """
import torch


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(8, 8)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.inner(inputs.to(self.inner.weight.dtype)).float().pow(2).mean()


def make():
    return Model(), lambda samples: {"inputs": torch.randn(samples, 8)}
"""
# Whoever imports any of the three modules leaves a file behind.
MARK = "import pathlib; pathlib.Path(__file__).with_suffix('.imported').touch()\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a package, a config, and a certificate of what the package makes."""
    inner = tmp_path / "studio" / "models"
    inner.mkdir(parents=True)
    (tmp_path / "studio" / "__init__.py").write_text(MARK, "utf-8")
    (inner / "__init__.py").write_text(MARK, "utf-8")
    (inner / "tiny.py").write_text(f"{MARK}{MODEL}", "utf-8")
    (tmp_path / "ds.json").write_text(json.dumps(CONFIG), "utf-8")
    monkeypatch.chdir(tmp_path)
    record().write("proof.json")
    return tmp_path


def record(**changes: Any) -> Certificate:
    """A certificate of the working folder's function, with what is installed here."""
    model = trained(FACTORY)
    proof = prover.Proof(
        outcome=prover.PROVED, phase="checkpoint", error=None, site=None, todo=None, adaptations=(), checks=(),
        notes=(), losses=(1.0, 0.9), ranks=2, device="cpu", versions={}, seconds=1.0,
        config_sha256=prover.config_hash(CONFIG), model=model.title, model_sha256=model.sha256, factory=FACTORY,
        source_sha256=source_sha256(FACTORY, model.folder),
    )  # fmt: skip
    return certify(attrs.evolve(proof, **changes))


def imported(folder: Path) -> list[str]:
    """The modules of the package that somebody imported."""
    return sorted(path.stem for path in folder.rglob("*.imported"))


def dsgen_says(folder: Path, *arguments: str) -> tuple[int, str]:
    """Exit code and output of a `dsgen` that may import the package: it lies in the working folder and on the path."""
    done = subprocess.run(
        [sys.executable, "-m", "dsgen", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, " ".join(f"{done.stdout}{done.stderr}".split())


def test_a_certificate_holds_while_the_source_is_the_same(folder: Path) -> None:
    answer = certificates.read("proof.json").verify(CONFIG, installed=dict(record().versions))

    assert answer.holds
    assert answer.remarks == ()
    assert len(record().source_sha256) == 64


@pytest.mark.parametrize("file", ["studio/models/tiny.py", "studio/models/__init__.py", "studio/__init__.py"])
@pytest.mark.parametrize("said", [(), ("--model", FACTORY)], ids=["unsaid", "said"])
def test_a_source_that_changed_is_said(folder: Path, file: str, said: tuple[str, ...]) -> None:
    code, told = dsgen_says(folder, "prove", "--verify", "proof.json", "ds.json", *said)
    assert (code, told.startswith("holds")) == (0, True)

    path = folder / file
    path.write_text(f"{path.read_text('utf-8')}\n# another\n", "utf-8")

    code, told = dsgen_says(folder, "prove", "--verify", "proof.json", "ds.json", *said)
    assert code == 1
    assert f"the source of {FACTORY} changed: its hash is " in told
    assert imported(folder) == []


def test_a_source_that_is_not_here_is_said(folder: Path) -> None:
    (folder / "studio" / "models" / "tiny.py").unlink()

    code, told = dsgen_says(folder, "prove", "--verify", "proof.json", "ds.json")

    assert code == 1
    assert f"the source of {FACTORY} cannot be read here" in told


@pytest.mark.parametrize("changes", [{"source_sha256": ""}, {"source_sha256": "", "factory": ""}], ids=["new", "older"])
def test_a_source_that_was_not_recorded_is_said_and_not_counted(folder: Path, changes: dict[str, str]) -> None:
    """It could not be read, or the certificate is of a dsgen that did not record it."""
    answer = record(**changes).verify(CONFIG, installed=dict(record().versions))

    assert answer.holds
    assert f"not counted: the source of {FACTORY} was not recorded" in " ".join(report.text(answer).split())


@pytest.mark.parametrize("said", ["no_such_package:make", "studio.none:make", "sys:exit", "math:sqrt", "os.path:join"])
def test_what_has_no_source_to_read_has_no_hash(folder: Path, said: str) -> None:
    expected = len(source_sha256(said, str(folder))) if said == "os.path:join" else 0  # os is a file, and no package

    assert len(source_sha256(said, str(folder))) == expected
    assert imported(folder) == []


def verified(folder: Path) -> None:
    dsgen.verify("proof.json", "ds.json", model=FACTORY)


def asked(folder: Path) -> None:
    dsgen.lint("ds.json")
    dsgen.fix("ds.json")


COMMANDS = {
    "verify": ("prove", "--verify", "proof.json", "ds.json"),
    "verify, with the model said": ("prove", "--verify", "proof.json", "ds.json", "--model", FACTORY),
    "lint": ("lint", "ds.json"),
    "lint, with the model said": ("lint", "ds.json", "--model", FACTORY),
    "memory, with the model said": ("memory", "--model", FACTORY, "--gpus", "2"),
    "a proof that is refused": ("prove", "ds.json", "--model", FACTORY, "--ranks", "0"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_but_a_proof_imports_the_package(folder: Path, name: str) -> None:
    _, told = dsgen_says(folder, *COMMANDS[name])

    assert told
    assert "Traceback" not in told
    assert imported(folder) == []


@pytest.mark.parametrize("ask", [verified, asked])
def test_nothing_but_a_proof_imports_the_package_in_python(folder: Path, ask: Callable[[Path], None]) -> None:
    ask(folder)

    assert imported(folder) == []
    assert not [name for name in sys.modules if name.partition(".")[0] == "studio"]


@pytest.mark.proof
def test_the_proof_itself_imports_it_and_records_its_source(folder: Path) -> None:
    """In its child processes; what they leave behind shows that the tests above would see an import."""
    proof = dsgen.prove("ds.json", model=FACTORY, device="cpu", steps=1)

    assert proof.outcome == prover.PROVED, proof.error
    assert imported(folder) == ["__init__", "__init__", "tiny"]
    assert "studio" not in sys.modules
    assert (proof.factory, proof.source_sha256) == (FACTORY, record().source_sha256)
    assert proof.card == ""
