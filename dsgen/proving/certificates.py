"""The certificate of a proof: a file that says what was proven with what, and whether that still holds here."""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Mapping
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

import attrs

from dsgen.documents.writing import ensure_writable, write_atomically
from dsgen.proving.adaptation import Adaptation
from dsgen.proving.checks import Check
from dsgen.proving.factories import source_sha256
from dsgen.proving.proven_models import ProvenModel
from dsgen.proving.prover import PROVED, Proof, config_hash
from dsgen.shapes.errors import mistake

__all__ = [
    "FORMAT",
    "SCHEMA_VERSION",
    "Certificate",
    "Claims",
    "Deviation",
    "Verified",
    "certify",
    "ensure_new",
    "read",
]

FORMAT = "dsgen-proof"
SCHEMA_VERSION = 1
_MOST_BYTES = 4 << 20  # a certificate has some ten thousand; more is another file
_SHOWN = 12  # letters of a hash in a sentence
_PROVEN = (
    "made",
    "versions",
    "model",
    "target",
    "ranks",
    "device",
    "card",
)  # of a certificate, said beside every answer
# Sizes that follow from the model and from no argument.
_OF_THE_MODEL = frozenset(
    f"zero_optimization.{name}"
    for name in ("reduce_bucket_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold")
)
_SOURCE = "source of"  # a person's own function, in the name of a deviation
_MADE = re.compile(r"\bwhat ([\w.]+:\w+) makes\b")  # `ProvenModel.title` of a function
_MINOR = 2  # parts of Python's version that say what runs; the third mends faults only


@attrs.frozen(kw_only=True)
class Certificate:
    """What one proof asserted, what it observed, and with what.

    Attributes:
        format, schema_version: That it is a certificate, and how it is written.
        made: When, in UTC.
        config_sha256: Of the config as written: JSON with sorted keys.
        target: The program that handed it to DeepSpeed.
        filled: Keys that it filled in -> the value.
        model: What was trained, in words.
        model_sha256: Of it: its config.json or function, and its adapters.
        ranks, device: The world.
        versions: Of dsgen, deepspeed, torch, transformers, python; of peft where it took part.
        outcome, phase: "proved", and the last phase.
        checks: What was asserted: name, expected, observed.
        losses: Of every step, and of one more after the checkpoint.
        adaptations: What the proof changed in the config.
        notes: What happened before the ranks started.
        seconds: Of the whole proof.
        phase_seconds: Of each phase, on the slowest rank.
        card: The GPU's name; "" on a CPU, and in a certificate of an older dsgen.
        factory: package.module:function that made the model, where one did; "" in a certificate of an older dsgen too.
        source_sha256: Of that function's source; "" where it could not be read.
        digest: A checksum of all the rest. It tells an edit or a broken copy; it is no signature.
    """

    format: str = FORMAT
    schema_version: int = SCHEMA_VERSION
    made: str
    config_sha256: str
    target: str
    filled: dict[str, Any]
    model: str
    model_sha256: str
    ranks: int
    device: str
    versions: dict[str, str]
    outcome: str
    phase: str
    checks: tuple[Check, ...]
    losses: tuple[float, ...]
    adaptations: tuple[Adaptation, ...]
    notes: tuple[str, ...]
    seconds: float
    phase_seconds: dict[str, float]
    card: str = ""
    factory: str = ""
    source_sha256: str = ""
    digest: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The certificate as plain JSON types."""
        plain: dict[str, Any] = json.loads(json.dumps(attrs.asdict(self), default=str))
        return plain

    def to_json(self) -> str:
        """The text of its file."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n"

    def write(self, path: str, *, force: bool = False) -> None:
        """Write it whole or not at all.

        Raises:
            DsgenError: A file is there and force was not said, or the path cannot be written.
        """
        ensure_new(path, force=force)
        write_atomically(path, self.to_json(), by="--certificate")

    def verify(
        self,
        config: Mapping[str, Any],
        filled: Mapping[str, Any] | None = None,
        installed: Mapping[str, str | None] | None = None,
        said: Claims | None = None,
    ) -> Verified:
        """Whether it still holds for a config on this machine.

        Args:
            config: As written.
            filled: What its program fills in now, by arguments that are said anew; None: they are not.
            installed: Package -> its version here, None where it is missing; by default what this interpreter has.
            said: What else a person claims of the proof.
        """
        here = installed_versions(self.versions) if installed is None else installed
        differences = []
        if (now := config_hash(config)) != self.config_sha256:
            differences.append(Deviation("config", self.config_sha256[:_SHOWN], now[:_SHOWN]))
        if said is not None:
            differences += said.unlike(self)
        for key in sorted({*self.filled, *(filled or {})} - _OF_THE_MODEL) if filled is not None else ():
            was, value = (json.dumps(one.get(key)) for one in (self.filled, filled or {}))
            if was != value:
                differences.append(Deviation(key, was, value))
        differences += self._source(said)
        seen = [Deviation(name, was, here.get(name)) for name, was in self.versions.items() if was != here.get(name)]
        differences += [item for item in seen if _matters(item)]
        return Verified(
            certificate=self,
            differences=tuple(differences),
            remarks=(*(item for item in seen if not _matters(item)), *self._untold()),
        )

    def _source(self, said: Claims | None) -> list[Deviation]:
        """Whether the function that made the model has another source here, in the working folder or the path."""
        if not self.factory or not self.source_sha256:
            return []
        claimed = said.trained if said is not None else None
        if claimed is not None and claimed.factory != self.factory:
            return []  # which is a difference of its own
        folder = claimed.folder if claimed is not None else str(Path.cwd())
        now = source_sha256(self.factory, folder)
        if now == self.source_sha256:
            return []
        return [Deviation(f"{_SOURCE} {self.factory}", self.source_sha256[:_SHOWN], now[:_SHOWN] or None)]

    def _untold(self) -> list[Deviation]:
        """A function of which nobody wrote down the source."""
        made = self.factory or (told[1] if (told := _MADE.search(self.model)) is not None else "")
        return [Deviation(f"{_SOURCE} {made}", "", None)] if made and not self.source_sha256 else []


@attrs.frozen(kw_only=True)
class Claims:
    """What a person claims of a proof beside the config; what is None is not, and then the certificate's counts.

    Attributes:
        target: The program that hands the config over.
        trained: The model and its adapters.
        ranks: Processes.
        device: "cpu" or "cuda"; "auto" says nothing.
        steps: Optimizer steps.
    """

    target: str | None = None
    trained: ProvenModel | None = None
    ranks: int | None = None
    device: str | None = None
    steps: int | None = None

    def unlike(self, proven: Certificate) -> list[Deviation]:
        """Where the certificate says something else."""
        pairs: list[tuple[str, object, object]] = [
            ("target", proven.target, self.target),
            ("ranks", proven.ranks, self.ranks),
            ("device", proven.device, None if self.device == "auto" else self.device),
            ("steps", len(proven.losses) - 1, self.steps),
        ]
        if self.trained is not None and proven.model_sha256 not in self.trained.hashes:
            now, was = self.trained.title, proven.model
            if now == was:  # the words are the same: a rank of adapters, a number of the config.json
                now, was = (f"{now} ({sha[:_SHOWN]}...)" for sha in (self.trained.sha256, proven.model_sha256))
            pairs.insert(1, ("model", was, now))
        return [Deviation(name, str(was), str(now)) for name, was, now in pairs if now is not None and now != was]


@attrs.frozen
class Deviation:
    """One thing that is not as it was proven: what it was then, and what it is now (None: it is not there)."""

    name: str
    proven: str
    now: str | None


@attrs.frozen(kw_only=True)
class Verified:
    """What came of asking a certificate about a config.

    Attributes:
        certificate: The one asked.
        differences: What keeps it from holding.
        remarks: What differs and keeps nothing: dsgen itself, a patch of Python, a build of torch. A function whose
            source was not recorded is among them.
    """

    certificate: Certificate
    differences: tuple[Deviation, ...]
    remarks: tuple[Deviation, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether the same config is still run by what it was proven with."""
        return not self.differences

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain JSON types, with what was proven."""
        record = self.certificate
        return {
            "holds": self.holds,
            "differences": [attrs.asdict(item) for item in self.differences],
            "remarks": [attrs.asdict(item) for item in self.remarks],
            "proven": {key: record.to_dict()[key] for key in _PROVEN},
        }


def _matters(item: Deviation) -> bool:
    """Whether a version's difference lets another code run the config: not dsgen, Python's patch, a build's letter."""
    if item.name == "dsgen" or item.now is None:
        return item.name != "dsgen"
    if item.name == "python":
        return item.proven.split(".")[:_MINOR] != item.now.split(".")[:_MINOR]
    return item.proven.partition("+")[0] != item.now.partition("+")[0]


def installed_versions(names: Mapping[str, str]) -> dict[str, str | None]:
    """The version of each package in this interpreter; nothing is imported."""
    return {name: _installed(name) for name in names}


def _installed(name: str) -> str | None:
    if name == "python":
        return platform.python_version()
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def certify(proof: Proof) -> Certificate:
    """The certificate of a proof that was proved.

    Raises:
        DsgenError: It was not.
    """
    if proof.outcome != PROVED:
        raise mistake(
            f"the proof's outcome is {proof.outcome!r}",
            must="only what was proved has a certificate",
            todo="Its to_dict() says all of it.",
            code="contradiction",
        )
    versions = {"dsgen": metadata.version("dsgen"), **proof.versions}
    bare = Certificate(
        made=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        versions=dict(sorted(versions.items())),
        filled=dict(proof.filled),
        phase_seconds=dict(proof.phase_seconds),
        **{
            name: getattr(proof, name)
            for name in ("config_sha256", "target", "model", "model_sha256", "ranks", "device", "outcome", "phase",
                         "card", "factory", "source_sha256", "checks", "losses", "adaptations", "notes", "seconds")
        },
    )  # fmt: skip
    return attrs.evolve(bare, digest=_digest(bare.to_dict()))


def _digest(record: Mapping[str, Any]) -> str:
    """A checksum of everything but itself."""
    rest = {key: value for key, value in record.items() if key != "digest"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def ensure_new(path: str, *, force: bool = False) -> None:
    """Say before a proof runs what writing its certificate would say after it.

    Raises:
        DsgenError: A file is there and force was not said, or the path cannot be written.
    """
    if Path(path).expanduser().is_file() and not force:
        raise mistake("it is there already", where=path, todo="To lose what it says: --force.", code="unwritable")
    ensure_writable(path, by="--certificate")


def read(path: str) -> Certificate:
    """The certificate in a file.

    Raises:
        DsgenError: Unreadable, no JSON, no certificate, one of another schema version, or one that was changed.
    """
    record = _record(path)
    if record.get("format") != FORMAT:
        raise _other(path, "it is no certificate")
    version = record.get("schema_version")
    if version != SCHEMA_VERSION:
        raise mistake(
            f"its schema_version is {version!r}",
            must=f"this dsgen reads {SCHEMA_VERSION}",
            where=path,
            todo="Prove the config again, or use the dsgen that wrote it.",
        )
    if record.get("digest") != _digest(record):
        raise mistake(
            "it was changed after it was written: its digest is that of another content",
            must="a certificate stays as dsgen wrote it",
            where=path,
            todo="Prove the config again: dsgen prove CONFIG --certificate FILE --force.",
            code="refused",
        )
    try:
        return Certificate(
            **{
                **record,
                "checks": tuple(Check(**item) for item in record["checks"]),
                "adaptations": tuple(Adaptation(**item) for item in record["adaptations"]),
                "losses": tuple(record["losses"]),
                "notes": tuple(record["notes"]),
            }
        )
    except (KeyError, TypeError):  # its digest fits all the same: whoever made it knows how
        raise _other(path, "it lacks what a certificate has, or has more") from None


def _record(path: str) -> dict[str, Any]:
    """The JSON map in a file."""
    try:
        file = Path(path).expanduser()
        if file.is_file() and file.stat().st_size > _MOST_BYTES:
            raise _other(path, "it is too large for a certificate")
        record = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise mistake(f"it cannot be read ({error.strerror})", where=path, code="unreadable") from None
    except (ValueError, RecursionError):  # broken text, broken JSON
        raise _other(path, "it is no JSON", code="unreadable") from None
    if not isinstance(record, dict):
        raise _other(path, "it is no certificate")
    return record


def _other(path: str, what: str, **more: Any) -> Exception:
    return mistake(
        what,
        must="it must be a file that dsgen prove --certificate wrote",
        where=path,
        **more,
    )
