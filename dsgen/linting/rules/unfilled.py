"""The word "auto" where Accelerate, and the Trainer through it, puts nothing in its place: the faults of one rule."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.deepspeed.keys import Key, say
from dsgen.linting.rules.autos import AUTO, outcome, removal
from dsgen.linting.rules.unknown import renaming, unknown_keys
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Move, Remove, Severity
from dsgen.targets.hf_accelerate import ACCELERATE

__all__ = ["grave", "lacks_micro", "refused", "settled", "unread", "without_micro"]

_BATCH, _MICRO = "train_batch_size", "train_micro_batch_size_per_gpu"
_CLASSES = ("optimizer.params.", "scheduler.params.")  # an unknown argument has rules of its own
# Settled as one would guess, or with a rule of its own about the value.
_PLAIN = (".stage", ".stage3_gather_16bit_weights_on_model_save")


def lacks_micro(subject: Subject) -> bool:
    """Whether Accelerate has no micro-batch to work the whole batch out of; the Trainer fills both in itself."""
    return subject.target.name == ACCELERATE.name and not subject.written(_MICRO)


def grave(subject: Subject) -> Severity:
    """Accelerate's own loop stops for certain; a file of a launcher may start a Trainer, which fills it in."""
    return Severity.WARNING if subject.facts.launched else Severity.ERROR


def without_micro(subject: Subject, name: str) -> Fault:
    """The whole batch that nothing says."""
    message = f"{name}, which Accelerate works out from {_MICRO}; that is missing, and prepare() stops (ValueError)"
    fix = Fix(f'add {_MICRO}: "auto"', (Assign(_MICRO, "auto"),))
    return Fault(_BATCH, message, fix, grave(subject), on="value")


def settled(subject: Subject, path: str, name: str) -> Fault:
    """What Accelerate settles without asking."""
    value = subject.target.settled[path]
    quiet = path.endswith(_PLAIN) or subject.surface.has_effect(path, subject.config) is not None
    message = f"{name}; unless accelerate launch is told otherwise, {subject.target.title} makes it {say(value)}"
    return Fault(path, message, None, Severity.INFO if quiet else None, on="value")


def refused(subject: Subject, path: str, key: Key, name: str) -> Fault:
    """What Accelerate's prepare() stops with."""
    filled = outcome(subject, path, key)
    message = f"{name}, which {subject.target.title} does not fill in; Accelerate's prepare() refuses it (ValueError)"
    fix = filled.fix if filled else removal(path)
    if key.path != path and subject.target.fills(key.path):
        fix = Fix(f"rename to {key.path.rpartition('.')[2]}", (Move(path, key.path),))
    return Fault(path, message, fix, Severity.ERROR, on="value")


def unread(subject: Subject) -> Iterator[Fault]:
    """The word at keys that nothing reads: prepare() goes through every map, whatever it is called."""
    meant = {unknown.path: renaming(unknown) for unknown in unknown_keys(subject)}
    autos = (path for path, value in subject.leaves() if value == AUTO and "[" not in path and subject.written(path))
    for path in autos:
        if subject.surface.key(path, subject.config) is None and not path.startswith(_CLASSES):
            message = f'{path} is "auto", and nothing reads it; Accelerate\'s prepare() refuses it (ValueError)'
            fix = meant.get(path) or Fix(f"remove {path.rpartition('.')[2]}", (Remove(path),))
            yield Fault(path, message, fix, Severity.ERROR, on="value")
