"""The edges of a proof: who reads a config, who holds a lock, what a person is told."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from dsgen.engine.proof import locks
from dsgen.engine.witness import Witness
from dsgen.proving import prover, sessions
from dsgen.proving.proven_models import Lora, ProvenModel
from dsgen.report import proof as report
from dsgen.shapes.errors import DsgenError

CONFIG: dict[str, Any] = {"train_micro_batch_size_per_gpu": 1}


def test_the_witness_sees_every_way_to_read() -> None:
    """Item, get, in, pop, ** and copies; what is not asked for stays unseen."""
    witness = Witness({"a": {"x": 1, "y": 2}, "b": 1, "c": 1, "d": {"z": 1}, "e": 1, "f": 1})

    copied = witness.copy()
    assert copied["a"].get("x") == 1
    assert "b" in copied
    copied.pop("c")
    dict(**witness["d"])

    assert witness.seen == {"a", "a.x", "b", "c", "d", "d.z"}


def test_errors_name_a_witness_as_the_dict_that_it_stands_for() -> None:
    """DeepSpeed's own words are those of a start without a proof; what is pickled stays a plain dict."""
    witness: Any = Witness({"a": {"x": 1}})

    with pytest.raises(TypeError, match="'>' not supported between instances of 'dict' and 'int'"):
        _ = witness["a"] > 1
    assert repr(type(witness["a"])) == "<class 'dict'>"
    assert type(pickle.loads(pickle.dumps(witness))) is dict  # our own bytes


def test_a_lock_is_removed_only_when_nobody_holds_it(tmp_path: Path) -> None:
    """A planted lock goes; one that a living process has open stays; one that a compiler works beside stays."""
    for name in ("planted", "held", "compiling"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "lock").touch()
    sleep = [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)"]
    compiler = subprocess.Popen(sleep, cwd=tmp_path / "compiling", stdout=subprocess.PIPE)
    try:
        assert compiler.stdout is not None
        compiler.stdout.readline()
        with (tmp_path / "held" / "lock").open():
            removed = locks.clear_stale(tmp_path)
    finally:
        compiler.kill()
        compiler.communicate()

    if Path("/proc/self/fd").is_dir():
        assert removed == ["planted"]
        assert sorted(locks.clear_stale(tmp_path)) == ["compiling", "held"]
    else:  # nobody can be asked: only old ones are stale
        assert removed == []


def test_without_proc_only_an_old_lock_is_stale(tmp_path: Path) -> None:
    """An hour is longer than any build."""
    for name, age_seconds in (("old", 4000.0), ("new", 10.0)):
        (tmp_path / name).mkdir()
        lock = tmp_path / name / "lock"
        lock.touch()
        os.utime(lock, (time.time() - age_seconds, time.time() - age_seconds))

    assert locks.clear_stale(tmp_path, proc=tmp_path / "no-proc") == ["old"]


def test_one_dsgen_builds_at_a_time(tmp_path: Path) -> None:
    """The second waits, and says so when it gives up; the lock goes with its holder."""
    with locks.build_lock(tmp_path, 1), pytest.raises(TimeoutError, match="another dsgen"):  # noqa: SIM117
        with locks.build_lock(tmp_path, 0.1):
            pass
    with locks.build_lock(tmp_path, 0.1):
        pass


def test_a_missing_package_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing, where, and the command that installs it; nothing is started."""
    monkeypatch.setattr(sessions, "missing_package", lambda: "torch")
    with pytest.raises(DsgenError) as caught:
        prover.prove(CONFIG)
    assert f"a proof needs torch, which {sys.executable} has not" in str(caught.value)
    assert 'pip install "dsgen[proof]"' in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"device": "tpu"}, "device is 'tpu'; it must be one of auto, cpu, cuda"),
        ({"steps": 0}, "steps is 0; it must be a whole number of at least 1"),
        ({"timeout_seconds": 0}, "timeout_seconds is 0; it must be more than 0"),
        ({"python": "/no/such/python"}, "cannot run the interpreter /no/such/python"),
    ],
)
def test_wrong_arguments_are_errors(arguments: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each says what is and what must be."""
    monkeypatch.setattr(sessions, "missing_package", lambda: None)
    with pytest.raises(DsgenError, match=words):
        prover.prove(CONFIG, **arguments)


def test_an_interpreter_without_torch_says_so(tmp_path: Path) -> None:
    """The child is asked, and answers without a traceback."""
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')  # -S: no site-packages
    bare.chmod(0o755)
    with pytest.raises(DsgenError, match="a proof needs torch"):
        prover.prove(CONFIG, python=str(bare))


@pytest.mark.parametrize(("gpus", "ranks"), [(0, 1), (1, 2)])
def test_gpus_that_are_not_there_are_no_failed_proof(gpus: int, ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for by name, they are a mistake of who asked; the config is not to blame."""
    session = SimpleNamespace(greeting={"device": "cuda", "gpus": gpus, "versions": {}})
    monkeypatch.setattr(sessions, "missing_package", lambda: None)
    monkeypatch.setattr(sessions, "start", lambda *_: contextlib.nullcontext(session))

    with pytest.raises(
        DsgenError, match=f"^device is cuda, ranks is {ranks}, and torch sees {gpus or 'no'} GPU; each rank"
    ):
        prover.prove(CONFIG, device="cuda", ranks=ranks)


def test_as_many_gpus_as_ranks_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job is then handed over."""
    session = SimpleNamespace(greeting={"device": "cuda", "gpus": 2, "versions": {}})
    monkeypatch.setattr(sessions, "missing_package", lambda: None)
    monkeypatch.setattr(sessions, "start", lambda *_: contextlib.nullcontext(session))
    monkeypatch.setattr(prover, "_prove_one", lambda *_: proof(device="cuda"))

    assert prover.prove(CONFIG, device="cuda", ranks=2).device == "cuda"


class Engine:
    """A session of the child process whose answers are made up; an error in their place is raised."""

    greeting: ClassVar[dict[str, Any]] = {
        "device": "cpu", "gpus": 0, "peft": None, "versions": {"deepspeed": "0.19.8"},
    }  # fmt: skip

    def __init__(self, folder: Path, *answers: Any) -> None:
        self.folder = folder
        self.answers = list(answers)
        self.started = 0

    def start(self, *_: Any) -> contextlib.nullcontext[Engine]:
        """A fresh child process."""
        self.started += 1
        return contextlib.nullcontext(self)

    def job_folder(self) -> Path:
        """One for all jobs: nothing is written."""
        return self.folder

    def number(self) -> int:
        """Of no meaning here."""
        return 1

    def prove(self, _: Any) -> Any:
        """The next answer."""
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def ended(**more: Any) -> dict[str, Any]:
    """What the child tells of two ranks that came as far as their first step."""
    build = {"cleared": [], "failed": {}, "seconds": {}}
    ranks = [{"phase": "step", "notes": [], "error": None, "observed": {}} for _ in range(2)]
    return {"build": build, "ranks": ranks, "exits": [0, 0], "tails": ["", ""], "timed_out": False, "stopped": [],
            "seconds": 1.0, **more}  # fmt: skip


@pytest.fixture
def proved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., tuple[int, tuple[prover.Proof, ...]]]:
    """Proves a config for each answer; gives how many processes were started, and the proofs."""

    def prove(*answers: Any) -> tuple[int, tuple[prover.Proof, ...]]:
        engine = Engine(tmp_path, *answers)
        monkeypatch.setattr(sessions, "missing_package", lambda: None)
        monkeypatch.setattr(sessions, "start", engine.start)
        proofs = prover.prove_many([CONFIG] * len(answers), timeout_seconds=60)
        return engine.started, proofs

    return prove


def test_a_lost_engine_is_no_verdict_and_the_next_config_has_a_fresh_one(proved: Any) -> None:
    """Out of memory, for example: what follows is proved all the same."""
    started, proofs = proved(ended(exits=[0, 3]), sessions.SessionLostError("gone"), ended(exits=[3, 0]))

    assert started == 2
    assert [item.outcome for item in proofs] == [prover.FAILED, prover.NOT_RUN, prover.FAILED]
    assert proofs[1].error == "gone"
    assert "memory of this machine" in str(proofs[1].todo)


GONE = [{"phase": "step", "notes": [], "observed": {}, "error": error} for error in (
    {"type": "RuntimeError", "message": "Connection closed by peer", "site": "torch/x.py:1 in f", "time": 5.0}, None,
)]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"exits": [0, -9], "tails": ["", "last  words"]}, "rank 1 was ended by SIGKILL: last words"),
        ({"exits": [-15, -9], "stopped": [0], "tails": ["", "last"]}, "rank 1 was ended by SIGKILL: last"),
        ({"exits": [-9, -11], "stopped": [0]}, "rank 1 was ended by SIGSEGV: it wrote nothing"),
        ({"exits": [-15, 0]}, "rank 0 was ended by SIGTERM: it wrote nothing"),  # by somebody else than us
        ({"exits": [-15, 3], "stopped": [0], "tails": ["", "no"]}, "rank 1 ended with code 3: no"),
        ({"exits": [-15, -6], "stopped": [0]}, "rank 1 ended with signal SIGABRT: it wrote nothing"),
        ({"exits": [1, 7], "ranks": GONE, "tails": ["", "bye"]}, "rank 1 ended with code 7: bye"),
        ({"exits": [-6, 0]}, "rank 0 ended with signal SIGABRT: it wrote nothing"),  # it may have lost the others
        ({"exits": [3, 0], "tails": ["no room", ""]}, "rank 0 ended with code 3: no room"),
        ({"exits": [-15, -15], "stopped": [0, 1], "timed_out": True}, "no end within 60 s; the ranks were stopped"),
        ({}, "unfinished"),
    ],
)
def test_a_crash_is_named_and_is_no_verdict(proved: Any, changes: Any, words: str) -> None:
    """Whom we stopped because of it is not blamed; and lint, which judges configs, has nothing to foresee."""
    _, (found,) = proved(ended(**changes))

    assert (found.outcome, found.phase, found.error) == (prover.FAILED, "step", words)
    assert not found.is_verdict
    shown = report.text(found)
    assert "this is no verdict of DeepSpeed about the config" in shown
    assert "it has a hole" not in shown


def test_what_deepspeed_says_is_a_verdict_also_where_another_rank_aborts(proved: Any) -> None:
    """The rank that lost it is aborted by its library, and is not the cause."""
    error = {"type": "ValueError", "message": "no such stage", "site": "deepspeed/x.py:1 in f", "time": 5.0}
    ranks = [{"phase": "step", "notes": [], "error": one, "observed": {}} for one in (None, error)]

    _, (found,) = proved(ended(ranks=ranks, exits=[-6, 1]))

    assert (found.error, found.is_verdict) == ("ValueError: no such stage", True)


@pytest.mark.parametrize(
    ("words", "todo"),
    [
        ("[Errno 28] No space left on device", "TMPDIR"),
        ("PytorchStreamWriter failed writing file data/3", "TMPDIR"),
        ("CUDA error", None),
    ],
)
def test_a_full_disk_says_what_to_do(proved: Any, words: str, todo: str | None) -> None:
    error = {"type": "RuntimeError", "message": words, "site": "deepspeed/x.py:1 in f", "time": 5.0}
    later = {**error, "message": "Connection closed by peer", "time": 6.0}
    ranks = [{"phase": "checkpoint", "notes": [], "error": one, "observed": {}} for one in (later, error)]

    _, (found,) = proved(ended(ranks=ranks, exits=[1, 1]))

    assert (found.outcome, found.error) == (prover.FAILED, f"RuntimeError: {words}")
    assert (found.todo is None) == (todo is None)
    assert todo is None or todo in str(found.todo)


def test_who_waits_is_told_before_and_after_each_config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    engine = Engine(tmp_path, *[ended()] * 3)
    monkeypatch.setattr(sessions, "missing_package", lambda: None)
    monkeypatch.setattr(sessions, "start", engine.start)
    told: list[tuple[int, Any]] = []

    first, second, third = prover.prove_many(
        [CONFIG] * 3,
        tell=lambda done, count: told.append((done, count)),
        ended=lambda place, proof: told.append((place, proof)),
    )

    assert told == [(0, 3), (0, first), (1, 3), (1, second), (2, 3), (2, third)]


def test_adapters_need_peft(monkeypatch: pytest.MonkeyPatch) -> None:
    """Said before a rank starts; a model without adapters does not ask for it."""
    session = SimpleNamespace(greeting={"device": "cpu", "gpus": 0, "versions": {}, "peft": None})
    monkeypatch.setattr(sessions, "missing_package", lambda: None)
    monkeypatch.setattr(sessions, "start", lambda *_: contextlib.nullcontext(session))
    monkeypatch.setattr(prover, "_prove_one", lambda *_: proof())

    with pytest.raises(DsgenError, match="a proof needs peft"):
        prover.prove(CONFIG, trained=ProvenModel(adapters=Lora(method="lora")))
    assert prover.prove(CONFIG).outcome == prover.PROVED


@pytest.mark.parametrize(
    ("name", "said", "todo"),
    [
        ("AsyncIOBuilder", "not compatible with this system", "apt-get install libaio-dev"),
        ("CPUAdamBuilder", "Ninja is required: ninja not found", "brings ninja"),
        ("FusedLionBuilder", "had not been implemented on CPU", "needs a GPU"),
        ("CPUAdamBuilder", "c++: not found", "install a C++ compiler"),
        ("CPUAdamBuilder", "['ninja', '-v'] returned 1: c++: not found", "install a C++ compiler"),
        ("CPUAdamBuilder", "OSError: [Errno 30] Read-only file system: '/home/me/.cache'", "TORCH_EXTENSIONS_DIR"),
    ],
)
def test_an_operator_that_is_not_built_says_what_to_install(proved: Any, name: str, said: str, todo: str) -> None:
    build = {"cleared": ["fused_adam"], "failed": {name: said}, "seconds": {}}

    _, (found,) = proved(ended(build=build))

    assert (found.outcome, found.error) == (prover.NOT_RUN, f"DeepSpeed's {name} could not be built: {said}")
    assert todo in str(found.todo)
    assert found.notes == ("removed the stale lock of a killed build: fused_adam",)


def proof(**changes: Any) -> prover.Proof:
    """A proof as `prove` returns it."""
    fields: dict[str, Any] = {
        "outcome": prover.PROVED, "phase": "checkpoint", "error": None, "site": None, "todo": None,
        "adaptations": (prover.Adaptation("train_batch_size", 256, 16, "micro-batch 4 x 2 ranks x 2 micro-steps"),),
        "checks": (
            prover.Check("ZeRO stage", 2, 2, True),
            prover.Check("master weight elements per rank", 52, [52, 52], True),
        ),
        "notes": (), "losses": (5.5,), "ranks": 2, "device": "cpu", "seconds": 1.25, "config_sha256": "0",
        "versions": {"deepspeed": "0.19.8", "torch": "2.13.0"},
    }  # fmt: skip
    return prover.Proof(**{**fields, **changes})


def test_a_proof_is_plain_json() -> None:
    """`to_dict` survives a round trip."""
    record = proof().to_dict()
    assert json.loads(json.dumps(record)) == record
    assert record["checks"][0] == {"name": "ZeRO stage", "expected": 2, "observed": 2, "ok": True}


def test_the_text_of_a_proof() -> None:
    """Outcome, changes, checks; the exact screen."""
    assert report.text(proof()) == (
        "proved: initialized, stepped, saved and loaded\n"
        "  2 CPU ranks, DeepSpeed 0.19.8, torch 2.13.0, 1.2 s\n"
        "changed for the proof\n"
        "  train_batch_size: 256 -> 16\n"
        "      micro-batch 4 x 2 ranks x 2 micro-steps\n"
        "observed (2 of 2 checks hold)\n"
        "  ok  ZeRO stage                             2\n"
        "  ok  master weight elements per rank        52 on each rank"
    )


def test_the_text_of_a_failure() -> None:
    """What failed comes first: a check with both sides, or the engine's words and their place."""
    failed = proof(outcome=prover.FAILED, checks=(prover.Check("ZeRO stage", 3, 0, False),), adaptations=())
    assert report.text(failed).splitlines()[0] == "failed: 1 check does not hold"
    assert report.text(failed).splitlines()[-3:] == ["  NOT ZeRO stage", "        expected 3", "        observed 0"]
    crashed = proof(
        outcome=prover.FAILED, phase="load", error="TypeError: " + "word " * 30, site="deepspeed/x.py:1 in f", checks=()
    )
    lines = report.text(crashed).splitlines()
    assert lines[0] == "failed: in phase load"
    assert "  at deepspeed/x.py:1 in f" in lines
    assert max(map(len, lines)) <= 80


def test_the_text_of_a_proof_not_run() -> None:
    """Why, and what to install."""
    lines = report.text(proof(outcome=prover.NOT_RUN, error="no libaio", todo="apt-get install libaio-dev", checks=()))
    assert "not run" in lines
    assert "  to do: apt-get install libaio-dev" in lines
