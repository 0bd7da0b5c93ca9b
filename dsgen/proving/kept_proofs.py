"""Proofs in a file, a line for each as soon as it ends, so that a run that was cut off goes on where it stopped."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import attrs

from dsgen.proving.adaptation import Adaptation
from dsgen.proving.certificates import installed_versions
from dsgen.proving.checks import Check
from dsgen.proving.prover import PROVED, Proof
from dsgen.shapes.errors import mistake

__all__ = ["Identity", "Kept", "Records"]

_MARK = '{"format": "dsgen-proofs", "schema_version": 1, '  # what every line begins with
_NVIDIA = "nvidia[0-9]*"  # devices of GPUs
_OPTION = "--record"


def _gpus() -> str:
    """The devices of GPUs in /dev, and which of them a run may see."""
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return f"{sum(1 for _ in Path('/dev').glob(_NVIDIA))}, visible {'all' if seen is None else seen or 'none'}"


@attrs.frozen(kw_only=True)
class Identity:
    """What must be the same for a proof to stand for another start.

    Attributes:
        config_sha256: Of the config as written.
        given_sha256: Of the config as its program hands it over.
        target: That program.
        model: What is trained, in words.
        model_sha256: Of it, adapters included.
        ranks, device, steps: As said; what is not said of the ranks follows from the config.
        gpus: What decides whether "auto" is a GPU: those that this machine has, and those that a run may see.
    """

    config_sha256: str
    given_sha256: str
    target: str
    model: str
    model_sha256: str
    ranks: int
    device: str
    steps: int
    gpus: str = attrs.field(factory=_gpus)

    @property
    def key(self) -> str:
        """One word for all of it."""
        return hashlib.sha256(json.dumps(attrs.asdict(self), sort_keys=True).encode()).hexdigest()


@attrs.frozen(kw_only=True)
class Kept:
    """A proof that was kept, and when it was made, in UTC."""

    proof: Proof
    made: str


class Records:
    """A file of proofs. It only grows: of two lines about the same start the later counts."""

    def __init__(self, path: str) -> None:
        """Read what is there; a file that is not there is made by the first proof.

        Raises:
            DsgenError: The file is another one, or cannot be read or written.
        """
        self.path = path
        self.broken = 0  # lines that are no whole record: a kill amid writing, an edit
        self._file = Path(path).expanduser()
        self._lines: dict[str, dict[str, Any]] = {}
        for line in self._read():
            record = _whole(line)
            if record is None:
                self.broken += 1
            else:
                self._lines[record["key"]] = record

    def find(self, identity: Identity) -> Kept | None:
        """The proof of the same start, by the versions that this interpreter has too; None where there is none."""
        record = self._lines.get(identity.key)
        if record is None or installed_versions(record["versions"]) != record["versions"]:
            return None
        return Kept(proof=_proof(record["proof"]), made=record["made"])

    def keep(self, identity: Identity, proof: Proof) -> None:
        """Add a proof; when this returns, it lies on the disk. One that was not proved is not kept: it runs again.

        Raises:
            DsgenError: It cannot be written.
        """
        if proof.outcome != PROVED:
            return
        record = {
            "key": identity.key,
            "made": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "versions": {**proof.versions, "dsgen": str(installed_versions({"dsgen": ""})["dsgen"])},
            "proof": proof.to_dict(),
        }
        line = f'{_MARK}"digest": "{_digest(record)}", {json.dumps(record)[1:]}\n'
        try:
            with self._file.open("ab", buffering=0) as file:
                if self._is_cut():
                    line = f"\n{line}"
                file.write(line.encode())
                os.fsync(file.fileno())
        except OSError as error:
            raise self._unusable("written", error) from None
        self._lines[identity.key] = record

    def _read(self) -> list[str]:
        """The lines of the file, which must be one of ours that can be written to."""
        if not str(self._file) or self._file.is_dir():
            raise mistake("it is a folder", must=f"{_OPTION} names a file", where=self.path, code="unwritable")
        new = not self._file.exists()
        try:
            with self._file.open("a+b") as file:
                file.seek(0)
                text = file.read().decode(errors="replace")
        except OSError as error:
            raise self._unusable("written", error) from None
        if new:
            self._file.unlink()
        if not text.startswith(_MARK[: len(text)]):
            raise mistake(
                "it is no record of proofs",
                must=f"{_OPTION} names a file that dsgen prove wrote, or none that is there",
                where=self.path,
                code="unwritable",
            )
        return [line for line in text.split("\n") if line]

    def _is_cut(self) -> bool:
        """Whether the last line has no end: its writer was killed."""
        with self._file.open("rb") as file:
            if not file.seek(0, os.SEEK_END):
                return False
            file.seek(-1, os.SEEK_END)
            return file.read() != b"\n"

    def _unusable(self, how: str, error: OSError) -> Exception:
        return mistake(
            f"it cannot be {how} ({error.strerror or error})",
            where=self.path,
            todo=f"{_OPTION} names a file in a folder that exists and is yours.",
            code="unwritable",
        )


def _digest(record: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in record.items() if key not in ("format", "schema_version", "digest")}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _whole(line: str) -> dict[str, Any] | None:
    """The record in a line; None where it is none, or half of one, or another than was written."""
    if not line.startswith(_MARK):
        return None
    try:
        record: dict[str, Any] = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if record.get("digest") != _digest(record):
        return None
    try:
        return record if _proof(record["proof"]).outcome == PROVED else None
    except (KeyError, TypeError):  # its digest fits all the same: an other dsgen wrote it
        return None


def _proof(said: Mapping[str, Any]) -> Proof:
    """A proof as it was before `Proof.to_dict`."""
    lists = {name: tuple(said[name]) for name in ("notes", "losses")}
    checks, adaptations = (
        tuple(kind(**item) for item in said[name]) for name, kind in (("checks", Check), ("adaptations", Adaptation))
    )
    return Proof(**{**said, **lists, "checks": checks, "adaptations": adaptations})
