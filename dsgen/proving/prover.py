"""Proof that DeepSpeed takes a config: real ranks initialize, step, save and load, and say what they hold."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from dsgen.proving import sessions
from dsgen.proving.adaptation import REUSE, Adaptation, adapt, rank_count, tensor_parallel_degree
from dsgen.proving.checks import Check, checks
from dsgen.proving.endings import INSTALL, ended_badly, not_built, one_line
from dsgen.proving.expectations import operators, optimizer_place, parameter_place
from dsgen.proving.factories import source_sha256
from dsgen.proving.proven_models import TINY_LLAMA, ProvenModel
from dsgen.proving.readings import as_read
from dsgen.shapes.errors import DsgenError, mistake

__all__ = ["FAILED", "NOT_RUN", "PROVED", "Adaptation", "Check", "Proof", "check_device", "config_hash", "prove",
           "prove_many"]  # fmt: skip

PROVED, FAILED, NOT_RUN = "proved", "failed", "not run"
_DEVICES = ("auto", "cpu", "cuda")
_LAST_PHASE = "checkpoint"
_NEW_ENGINE = "not proven: a resume in a new engine, which gets no moments from NVMe (dsgen rule DSG352)"
_BUFFERS = "not proven: that the whole model's parameters find swap buffers (dsgen lint --model, rule DSG816)"
_CPU_TORCH = "on a machine without a GPU install a CPU build of torch first: see pytorch.org/get-started"


@attrs.frozen
class Foreseen:
    """What lint says of a config that failed: the rule, its code, and its words."""

    rule: str
    code: str
    message: str


@attrs.frozen(kw_only=True)
class Proof:
    """The record that a real `deepspeed.initialize` took a config and stepped, and what it observed."""

    outcome: str  # PROVED, FAILED or NOT_RUN
    phase: str  # the last one entered: load, initialize, step or checkpoint
    error: str | None  # the engine's own words on one line
    site: str | None  # the last place in its traceback
    todo: str | None  # what would let a proof that was not run, run
    adaptations: tuple[Adaptation, ...]
    checks: tuple[Check, ...]
    notes: tuple[str, ...]  # stale locks removed, operators built
    losses: tuple[float, ...]
    ranks: int
    device: str  # "cpu" or "cuda"
    versions: Mapping[str, str]
    seconds: float
    config_sha256: str  # of the config as written: JSON with sorted keys
    target: str = "deepspeed"  # that program
    filled: Mapping[str, object] = attrs.field(factory=dict)  # key that it filled in -> the value
    model: str = TINY_LLAMA  # what was trained, in words
    model_sha256: str = ""  # of it, adapters included (`ProvenModel.sha256`)
    factory: str = ""  # package.module:function that made it, where one did
    source_sha256: str = ""  # of that function's source before it ran; "": it cannot be read
    card: str = ""  # the GPU's name, as torch has it; "" on a CPU
    is_verdict: bool = True  # whether a failure is DeepSpeed's word about the config; a crash or a full disk is not
    phase_seconds: Mapping[str, float] = attrs.field(factory=dict)  # of each phase, on the slowest rank
    foreseen: tuple[Foreseen, ...] | None = None  # what lint says that explains a failure; None: it was not asked
    also: tuple[Foreseen, ...] = ()  # what lint says of something else

    @property
    def failed_checks(self) -> tuple[Check, ...]:
        """The checks that do not hold."""
        return tuple(check for check in self.checks if not check.ok)

    def to_dict(self) -> dict[str, Any]:
        """The record as plain JSON types."""
        record = attrs.asdict(self)
        record |= {name: dict(getattr(self, name)) for name in ("versions", "filled", "phase_seconds")}
        plain: dict[str, Any] = json.loads(json.dumps(record, default=str))
        return plain


def prove(
    config: Mapping[str, object],
    *,
    ranks: int | None = None,
    device: str = "auto",
    steps: int = 3,
    timeout_seconds: float = 600,
    python: str | None = None,
    trained: ProvenModel | None = None,
) -> Proof:
    """Prove that DeepSpeed takes a config, on a tiny model and in child processes.

    Args:
        config: A DeepSpeed config of plain JSON types.
        ranks: Number of ranks; by default 2, or the AutoTP degree where that is larger.
        device: "auto" takes CUDA where there is a GPU for every rank, else "cpu".
        steps: Optimizer steps.
        timeout_seconds: For everything, the building of DeepSpeed's operators included.
        python: Interpreter that has torch, deepspeed and transformers; by default this one.
        trained: The model; by default a tiny Llama.

    Raises:
        DsgenError: A package is missing, or an argument is not what it must be.
    """
    return prove_many(
        [config],
        ranks=ranks,
        device=device,
        steps=steps,
        timeout_seconds=timeout_seconds,
        python=python,
        trained=trained,
    )[0]


def prove_many(
    configs: Iterable[Mapping[str, object]],
    *,
    ranks: int | None = None,
    device: str = "auto",
    steps: int = 3,
    timeout_seconds: float = 600,
    python: str | None = None,
    trained: ProvenModel | Sequence[ProvenModel] | None = None,
    tell: Callable[[int, int], None] | None = None,
    ended: Callable[[int, Proof], None] | None = None,
) -> tuple[Proof, ...]:
    """Prove several configs one after the other; torch and DeepSpeed are imported once.

    Args:
        configs: As in `prove`, as are the other arguments; the timeout is for each.
        trained: One model for all, or as many as there are configs.
        tell: Called before each with how many are done, and how many there are.
        ended: Called after each with its place and its proof.

    Returns:
        One proof per config, in their order.
    """
    jobs = [(dict(config), rank_count(config, ranks)) for config in configs]
    models = [trained or ProvenModel()] * len(jobs) if isinstance(trained, ProvenModel | None) else list(trained)
    _check_arguments(device, steps, timeout_seconds)
    if python is None and (missing := sessions.missing_package()) is not None:
        raise _missing(missing, sys.executable)
    interpreter = sys.executable if python is None else python
    proofs: list[Proof] = []
    most = max((count for _, count in jobs), default=0)
    while len(proofs) < len(jobs):
        with contextlib.ExitStack() as stack:
            try:
                session = stack.enter_context(sessions.start(interpreter, device, most))
                if (absent := session.greeting.get("missing")) is not None:
                    raise _missing(str(absent), interpreter)
                for package in (package for model in models for package in model.packages):
                    if not session.greeting[package]:
                        raise _missing(package, interpreter)
                _check_gpus(session.greeting, most)
            except sessions.SessionLostError as error:
                raise mistake(
                    f"the engine did not start: {error}",
                    must="it must be able to import torch and deepspeed",
                    code="lost",
                ) from None
            while len(proofs) < len(jobs):
                config, count = jobs[len(proofs)]
                if tell is not None:
                    tell(len(proofs), len(jobs))
                lost = False
                try:
                    proofs.append(_prove_one(session, config, count, steps, timeout_seconds, models[len(proofs)]))
                except sessions.SessionLostError as error:
                    proofs.append(_lost(config, count, session, str(error)))
                    lost = True
                if ended is not None:
                    ended(len(proofs) - 1, proofs[-1])
                if lost:  # go on with a fresh one
                    break
    return tuple(proofs)


def check_device(device: str) -> None:
    """Refuse what is no device.

    Raises:
        DsgenError: It is none.
    """
    if device not in _DEVICES:
        raise mistake(f"device is {device!r}", must=f"it must be one of {', '.join(_DEVICES)}")


def _check_arguments(device: str, steps: int, timeout_seconds: float) -> None:
    check_device(device)
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise mistake(f"steps is {steps!r}", must="it must be a whole number of at least 1")
    if not timeout_seconds > 0:
        raise mistake(f"timeout_seconds is {timeout_seconds!r}", must="it must be more than 0")


def _check_gpus(greeting: Mapping[str, Any], ranks: int) -> None:
    """Refuse what was asked to run on GPUs that are not there; "auto" takes them only where they are."""
    gpus = greeting["gpus"]
    if greeting["device"] == "cuda" and gpus < ranks:
        raise mistake(
            f"device is cuda, ranks is {ranks}, and torch sees {gpus or 'no'} GPU{'s' if gpus > 1 else ''}",
            must="each rank needs one",
            todo="Take device auto or cpu, or fewer ranks.",
        )


def _missing(package: str, python: str) -> DsgenError:
    return mistake(
        f"a proof needs {package}, which {python} has not", todo=f"{INSTALL}  ({_CPU_TORCH})", code="missing-package"
    )


def config_hash(config: Mapping[str, Any]) -> str:
    """The hash of a config, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode()).hexdigest()


def _prove_one(
    session: sessions.Session,
    config: dict[str, Any],
    ranks: int,
    steps: int,
    timeout_seconds: float,
    trained: ProvenModel,
) -> Proof:
    """One job of a session, judged."""
    folder = session.job_folder()
    used, adaptations = adapt(config, ranks, str(folder))
    factory = trained.factory or ""
    source = source_sha256(factory, trained.folder) if factory else ""
    tp, read = tensor_parallel_degree(config), as_read(used)
    answer = session.prove(
        {
            "config": used,
            "read": read,
            "ranks": ranks,
            "tp": tp,
            "wide": "nvme" in (optimizer_place(read), parameter_place(read)),
            "model": trained.to_engine(),
            "steps": steps,
            "folder": str(folder),
            "number": session.number(),
            "operators": list(operators(read)),
            "timeout_seconds": timeout_seconds,
        }
    )
    versions = dict(session.greeting["versions"])
    versions |= {package: str(session.greeting[package]) for package in trained.packages}
    reports = [report for report in answer["ranks"] if report]
    named = adaptations + tuple(Adaptation(*note) for report in reports[:1] for note in report["notes"])
    base = Proof(
        outcome=FAILED,
        phase="load",
        error=None,
        site=None,
        todo=None,
        adaptations=named,
        checks=(),
        notes=_notes(answer["build"]),
        losses=(),
        ranks=ranks,
        device=str(session.greeting["device"]),
        versions=versions,
        seconds=answer["seconds"],
        model=trained.title,
        phase_seconds=_phase_seconds(reports),
        config_sha256=config_hash(config),
        model_sha256=trained.sha256,
        factory=factory,
        source_sha256=source,
        card=next((str(card) for report in reports if (card := report["observed"].get("card"))), ""),
    )
    if answer["build"]["failed"]:
        words, todo = not_built(answer["build"]["failed"])
        return attrs.evolve(base, outcome=NOT_RUN, error=words, todo=todo, is_verdict=False)
    if (ended := ended_badly(answer, reports, timeout_seconds)) is not None:
        return attrs.evolve(base, **ended)
    observed = [report["observed"] for report in reports]
    taken = int(observed[0]["steps"])  # more than asked for where a loss scaler let none of those through
    judged = checks(read, ranks, tp, taken, observed, versions["deepspeed"], plain=trained.is_plain)
    if trained.optimizer:
        made = observed[0]["optimizer"]
        judged = (*judged, Check("optimizer of the program", trained.optimizer, made, made == trained.optimizer))
    if trained.checkpointing:
        kind, ran = trained.checkpointing, observed[0]["checkpointing"]
        judged = (*judged, Check("activation checkpointing", kind, ran, ran == kind))
    return attrs.evolve(
        base,
        outcome=PROVED if all(check.ok for check in judged) else FAILED,
        phase=_LAST_PHASE,
        checks=judged,
        notes=(*base.notes, *_unproven(read, adaptations)),
        losses=(*observed[0]["losses"], observed[0]["loss_after"]),
    )


def _phase_seconds(reports: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The seconds of each phase that was left, on the rank that took longest."""
    phases = [phase for report in reports[:1] for phase in report.get("seconds", ())]
    return {phase: max(float(report.get("seconds", {}).get(phase, 0.0)) for report in reports) for phase in phases}


def _unproven(config: Mapping[str, Any], adaptations: Sequence[Adaptation]) -> Iterator[str]:
    """What a proof does not show: it loads the checkpoint in the engine that saved it, and its model is tiny."""
    if any(item.key.endswith(REUSE) for item in adaptations):
        yield _BUFFERS
    if optimizer_place(config) == "nvme":
        yield _NEW_ENGINE


def _notes(build: Mapping[str, Any]) -> tuple[str, ...]:
    """What happened before the ranks started."""
    cleared = tuple(f"removed the stale lock of a killed build: {name}" for name in build["cleared"])
    # Loading a built operator takes well under a second or two; a compiler takes twenty.
    built = tuple(f"built {name} in {seconds:.0f} s" for name, seconds in build["seconds"].items() if seconds > 5)
    return cleared + built


def _lost(config: Mapping[str, Any], ranks: int, session: sessions.Session, words: str) -> Proof:
    return Proof(
        outcome=NOT_RUN,
        phase="load",
        error=one_line(words),
        site=None,
        todo="run it again; if it stays, the memory of this machine may be too small",
        adaptations=(),
        checks=(),
        notes=(),
        losses=(),
        ranks=ranks,
        device=str(session.greeting["device"]),
        versions=dict(session.greeting["versions"]),
        seconds=0.0,
        config_sha256=config_hash(config),
        is_verdict=False,
    )
