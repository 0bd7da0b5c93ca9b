"""Configs into the installed DeepSpeed and back: a child process reads them, and its reports become records."""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import attrs

from dsgen import targets
from dsgen.deepspeed import surface
from dsgen.effective.answers import answers
from dsgen.effective.outcomes import Effective, Refusal
from dsgen.effective.refusals import in_words
from dsgen.effective.written_keys import defaults, in_force, rows
from dsgen.proving import sessions
from dsgen.shapes.errors import DsgenError, mistake
from dsgen.shapes.limits import check_gpus
from dsgen.targets import OPEN, Target

__all__ = ["load", "load_many"]

_INSTALL = 'pip install "dsgen[proof]", or name an interpreter that has it: --python ENV/bin/python'
_SERVER = "effective.loading"
_TRAIN, _MICRO, _STEPS = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
_BATCH = (_TRAIN, _MICRO)
_DTYPES = ("fp16", "bf16")  # sections that a program adds
_STAND_IN = {_MICRO: 1}  # for a batch that the target fills in: any will do

Source = str | Path | Mapping[str, Any]


@attrs.frozen(kw_only=True)
class _Job:
    """One config on its way: the file that DeepSpeed opens itself, or the config that the target would hand over.

    Attributes:
        name: Of the file.
        file: The one that DeepSpeed opens.
        config: The config as written.
        handed: The config as it is handed over: without what nobody knows, with what is filled in, with stand-ins.
        open: Keys that the target fills in, nobody knows with what.
        filled: Keys whose "auto" the target fills in -> the value.
        added: Keys of sections that the target adds -> the value; None where nobody knows it.
        stand_in: Top-level key -> what is put in its place so that the config can be read at all.
        refused: What was wrong with the file.
    """

    name: str
    file: str | None = None
    config: Any = None
    handed: Any = None
    open: tuple[str, ...] = ()
    filled: Mapping[str, Any] = {}
    added: Mapping[str, Any] = {}
    stand_in: Mapping[str, Any] = {}
    refused: Refusal | None = None


def load(
    source: Source,
    *,
    world_size: int | None = None,
    target: str = "deepspeed",
    told: Mapping[str, Any] | None = None,
    python: str | None = None,
    timeout_seconds: float = 120,
) -> Effective:
    """Let the installed DeepSpeed load one config, in a child process, and say what survives.

    Args:
        source: A file, or a config of plain JSON types.
        world_size: Number of ranks; by default what the three batch keys imply, else 1. No rank is started.
        target: The program that hands the config to DeepSpeed; what it fills in is left open.
        told: DeepSpeed's key -> what the program's arguments fill in there.
        python: Interpreter that has torch and deepspeed; by default this one.
        timeout_seconds: For one config; the imports do not count.

    Raises:
        DsgenError: No such file, a package is missing, an argument is wrong, or the child was lost.
    """
    options: dict[str, Any] = {"world_size": world_size, "target": target, "told": told, "python": python}
    return load_many([source], **options, timeout_seconds=timeout_seconds)[0]


def load_many(
    sources: Sequence[Source],
    *,
    world_size: int | None = None,
    target: str = "deepspeed",
    told: Mapping[str, Any] | None = None,
    python: str | None = None,
    timeout_seconds: float = 120,
) -> tuple[Effective, ...]:
    """Several configs, with one start of DeepSpeed; the arguments are those of `load`."""
    program = targets.find(target)
    if world_size is not None and (isinstance(world_size, bool) or world_size < 1):
        raise mistake(f"world_size is {world_size!r}", must="it must be a whole number of at least 1")
    check_gpus(world_size or 1, "world_size")
    if not timeout_seconds > 0:
        raise mistake(f"timeout_seconds is {timeout_seconds!r}", must="it must be more than 0")
    jobs = [_job(source, program, told or {}) for source in sources]
    interpreter = python or sys.executable
    missing = None if python else next((name for name in ("torch", "deepspeed") if find_spec(name) is None), None)
    if missing is not None:
        raise _missing(missing, interpreter)
    try:
        with sessions.start(interpreter, "cpu", 1, _SERVER) as session:
            if (absent := session.greeting.get("missing")) is not None:
                raise _missing(str(absent), interpreter)
            return tuple(_load(session, job, program, world_size, timeout_seconds) for job in jobs)
    except sessions.SessionLostError as error:
        raise mistake(
            f"the process that loads DeepSpeed was lost: {error}",
            must="it must be able to import torch and deepspeed",
            code="lost",
        ) from None


def _missing(package: str, python: str) -> DsgenError:
    return mistake(
        f"this needs {package}, which {python} has not",
        must="the config is loaded by it",
        todo=_INSTALL,
        code="missing-package",
    )


def _job(source: Source, program: Target, told: Mapping[str, Any]) -> _Job:
    if isinstance(source, Mapping):
        return _handed_over("<config>", dict(source), program, told)
    path = Path(source)
    try:
        if path.is_dir():
            raise mistake("it is a folder", must="it must be a DeepSpeed config", where=source, code="unreadable")
        if not path.is_file():
            raise mistake("no such file", must="it must be a DeepSpeed config", where=source, code="unreadable")
        content = path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        raise mistake(
            f"it cannot be read ({getattr(error, 'strerror', None) or error})", where=source, code="unreadable"
        ) from None
    if not program.strict_json:
        return _Job(name=str(source), file=str(path.resolve()))
    try:
        config = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        kind, message = type(error).__name__, str(error)
        said = in_words({"kind": kind, "message": message, "faults": []}, None, 1, surface.load())
        return _Job(name=str(source), refused=Refusal(phase="read", kind=kind, message=message, sentence=said))
    return _handed_over(str(source), config, program, told)


def _handed_over(name: str, config: Any, program: Target, told: Mapping[str, Any]) -> _Job:
    """The config as the target hands it over, but without what nobody knows of what it fills in."""
    if not isinstance(config, dict):
        return _Job(name=name, config=config, handed=config)
    autos = program.filled_in(config, told)
    filled = {path: value for path, value in autos.items() if value is not OPEN}
    open_ = tuple(path for path, value in autos.items() if value is OPEN)
    # DeepSpeedPlugin.set_mixed_precision of Accelerate adds both, Lightning the one of its precision.
    adds = [name for name in _DTYPES if name in program.brings and name not in config]
    added = {f"{name}.enabled": told.get(f"{name}.enabled") for name in adds}
    if "gradient_clipping" in program.brings and config.get("gradient_clipping") is None:
        added["gradient_clipping"] = told.get("gradient_clipping")
    hides = not program.takes_every_auto  # Accelerate's lie in DeepSpeed's way to the old bfloat16
    stand_in: dict[str, Any] = {name: {"enabled": added[f"{name}.enabled"] is True} for name in adds if hides}
    batch = [key for key in _BATCH if config.get(key) is not None and key not in open_]
    brings = program.brings_batch or any(key in open_ for key in _BATCH)
    if brings and not batch:
        stand_in |= _STAND_IN
    if _TRAIN in open_ and {_MICRO, _STEPS} <= config.keys() - set(open_):
        open_ = tuple(path for path in open_ if path != _TRAIN)
        filled[_TRAIN] = None  # DeepSpeed works the same out of the other two
    handed = {**_with_values(config, autos), **stand_in, **program.overwritten}
    return _Job(name=name, config=config, handed=handed, open=open_, filled=filled, added=added, stand_in=stand_in)


def _with_values(config: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a config with other values at some dotted keys of it, and without those that are OPEN."""
    copied = copy.deepcopy(dict(config))
    for path, value in values.items():
        *sections, key = path.split(".")
        node = copied
        for section in sections:
            node = node[section]
        if value is OPEN:
            del node[key]
        else:
            node[key] = value
    return copied


def _load(
    session: sessions.Session, job: _Job, program: Target, ranks: int | None, timeout_seconds: float
) -> Effective:
    """One config through the child."""
    version = str(session.greeting["versions"]["deepspeed"]).partition("+")[0].strip()
    base = Effective(
        name=job.name, deepspeed=version, target=program.name, world_size=ranks or 1, implied=False, refused=job.refused
    )
    if job.refused is not None:
        return base
    question = {
        "file": job.file,
        "config": job.handed,
        "world_size": ranks,
        "open": list(job.open),
        "timeout_seconds": timeout_seconds,
        "folder": str(session.job_folder()),
    }
    report = session.prove(question)
    if (died := report.get("died")) is not None:
        raise _lost(job.name, died, timeout_seconds)
    return _effective(base, report, job, program)


def _lost(name: str, died: Mapping[str, Any], timeout_seconds: float) -> DsgenError:
    if died["timed_out"]:
        return mistake(
            f"DeepSpeed had not loaded it within {timeout_seconds:g} s",
            where=name,
            todo="Allow more with --timeout; most configs take a tenth of a second.",
            code="lost",
        )
    words = " ".join(str(died["tail"]).split())
    return mistake(f"the process that loaded it ended with code {died['code']}: {words}", where=name, code="lost")


def _effective(base: Effective, report: Mapping[str, Any], job: _Job, program: Target) -> Effective:
    known = _surface(base.deepspeed)
    handed = report.get("config")
    written = handed if job.file is not None else job.config
    base = attrs.evolve(
        base,
        world_size=report["world_size"],
        implied=bool(report.get("implied")),
        warnings=tuple(report["warnings"]),
    )
    if (refused := report["refused"]) is not None:
        base = attrs.evolve(
            base,
            refused=Refusal(
                phase=refused["phase"],
                kind=refused["kind"],
                message=refused["message"],
                sentence=in_words(refused, handed, base.world_size, known),
                site=refused["site"],
            ),
        )
    if "held" not in report or not isinstance(written, dict):
        return base
    unknown = tuple(path for path, value in job.added.items() if value is None)
    values = {path: value for path, value in in_force(report, job.stand_in).items() if path not in unknown}
    return attrs.evolve(
        base,
        values=values,
        rows=rows(written, report, values, job.open, program, known, job.filled),
        defaults=defaults(written, report, values, job.open, known),
        answers=answers(report, values, {*job.open, *unknown}, written),
    )


def _surface(version: str) -> surface.Surface:
    """What is known of a release; of one that is not known, the newest."""
    try:
        return surface.load(version)
    except DsgenError:
        return surface.load()
