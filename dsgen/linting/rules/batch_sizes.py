"""The three batch sizes of a config as DeepSpeed will find them, and the ranks it multiplies them with."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import attrs

from dsgen.deepspeed.keys import lookup, too_large
from dsgen.linting.subjects import OPEN, Subject

__all__ = [
    "ACCUMULATION",
    "MICRO",
    "SEQUENCE_ALONE",
    "TRAIN",
    "Sizes",
    "adds_up",
    "by_autosp",
    "divides",
    "divisor",
    "ranks",
    "said_beside",
    "sizes",
    "whole",
]

_EVALUATED = re.compile(r"(?:^|_)(?:eval|val|valid|validation|test|predict)_")  # of what is not trained on
TRAIN = "train_batch_size"
MICRO = "train_micro_batch_size_per_gpu"
ACCUMULATION = "gradient_accumulation_steps"
_KEYS = (TRAIN, MICRO, ACCUMULATION)
SEQUENCE_ALONE = (0, 17)  # the first release whose parse reads sequence_parallel_size without data_parallel_size
_LARGEST = 2**63  # beyond it a number is no size, and products of two no longer print


@attrs.frozen
class Sizes:
    """Samples per step of all ranks, samples per rank and pass, passes per step; None where nobody gives one."""

    train: float | None
    micro: float | None
    accumulation: float | None

    @property
    def per_rank(self) -> float:
        """Samples of one rank and step, as far as they are given."""
        return (self.micro or 1) * (self.accumulation or 1)


def whole(value: Any) -> int | None:
    """A whole number as such, 2.0 too; None for anything else: a truth value, or what no 64-bit number holds."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < _LARGEST:
        return None
    return int(value) if value == int(value) else None


def sizes(subject: Subject, *, exact: bool = False) -> Sizes | None:
    """The three sizes as DeepSpeed will find them; whole numbers, or with `exact` all that it multiplies.

    None when the program fills one in, when one is no such number above 0 (other rules judge that), and when neither of
    the first two is given.
    """
    three = [_size(subject, key, exact) for key in _KEYS]
    if any(size is OPEN or (size is not None and size <= 0) for size in three) or three[:2] == [None, None]:
        return None
    return Sizes(*three)


def said_beside(subject: Subject) -> bool:
    """Whether the config is a part of another program's file that gives a batch size beside it."""
    whole, place = subject.document.whole, subject.document.paths.get("", "")
    if whole is None or not place or not isinstance(whole.config, Mapping):
        return False
    beside = lookup(whole.config, place.rpartition(".")[0])[1] if "." in place else whole.config
    if not isinstance(beside, Mapping):
        return False
    names = (str(name) for name in beside)
    return any(name.endswith("batch_size") and not _EVALUATED.search(name) for name in names)


def by_autosp(subject: Subject) -> bool:
    """Whether AutoSP, which runs at stage 0 and 1, makes its groups of sequence_parallel_size alone."""
    passes = subject.value("compile.passes")
    compiled = subject.value("compile.deepcompile") is True and isinstance(passes, list)
    return compiled and "autosp" in passes and subject.stage in (0, 1)


def divides(subject: Subject) -> bool:
    """Whether DeepSpeed divides the GPUs of the batch by sequence_parallel_size."""
    alone, both = subject.version >= SEQUENCE_ALONE, subject.written("data_parallel_size")
    both = both and subject.surface.key("data_parallel_size") is not None
    return subject.written("sequence_parallel_size") and (alone or both)


def divisor(given: Sizes) -> str:
    """What must divide train_batch_size, in words: "gradient_accumulation_steps 4"; "" where nothing must."""
    parts = ((MICRO, given.micro), (ACCUMULATION, given.accumulation))
    return " x ".join(f"{key} {size}" for key, size in parts if size is not None)


def ranks(subject: Subject) -> Fraction | None:
    """How many ranks DeepSpeed counts for the batch; None where the number of GPUs is not known or it will not start.

    All of them: tensor parallelism does not lower it. Sequence parallelism does, alone too since 0.17
    (runtime/config.py), and not at all before 0.15.
    """
    world = subject.facts.world_size
    if world is None or not divides(subject):
        return Fraction(world) if world else None
    sequence, data = (whole(subject.raw(f"{kind}_parallel_size")) for kind in ("sequence", "data"))
    if sequence is None or sequence < 1:
        return None
    if not subject.written("data_parallel_size"):
        return Fraction(world, sequence)
    return Fraction(data) if data is not None and data * sequence == world else None


def adds_up(given: Sizes, count: Fraction) -> bool:
    """Whether DeepSpeed accepts the sizes on so many ranks: what is missing it derives by division, rounding down."""
    train, micro, accumulation = given.train, given.micro, given.accumulation
    if train is None:
        return True
    if micro is None:
        micro = train // count // (accumulation or 1)
        accumulation = accumulation or 1
    elif accumulation is None:
        accumulation = train // micro // count
    return micro > 0 and accumulation > 0 and train == micro * accumulation * count


def _size(subject: Subject, key: str, exact: bool) -> Any:
    value = subject.value(key)
    if value is None and key in subject.target.brings:
        # Accelerate writes 1 (utils/dataclasses.py, 1.15); what another program brings is not known.
        known = key == ACCUMULATION and "zero_optimization" in subject.target.needed
        return 1 if known else OPEN
    if value is None or value is OPEN:
        return value
    size = whole(value)
    if exact and size is None and isinstance(value, (int, float)) and too_large(value) is None and value == value:
        return int(value) if isinstance(value, bool) else value
    return OPEN if size is None else size
