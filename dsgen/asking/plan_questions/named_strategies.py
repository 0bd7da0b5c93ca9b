"""Strategies by name, such as `zero1,tp=4,offload=cpu`: the words, and the pins that they make."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from dsgen.jobs.job import Job
from dsgen.shapes.errors import DsgenError, mistake, nearest
from dsgen.shapes.layers import Origin, Override, Rank, show
from dsgen.shapes.near_misses import offer
from dsgen.shapes.pins import LARGEST_COUNT, Pin

__all__ = ["GRAMMAR", "named", "pinned"]

GRAMMAR = (
    "zero0 to zero3, tp=N, offload=optimizer|all|cpu|nvme|none, param=cpu|nvme|none, mb=N, accum=N, checkpointing, "
    "no-checkpointing, hpz=N"
)
_SOURCE = "compare"
_STAGES = {f"zero{stage}": stage for stage in range(4)}
_SWITCHES = {"checkpointing": True, "no-checkpointing": False}
_COUNTS = {"tp": "tp", "mb": "micro_batch", "accum": "accumulation", "hpz": "secondary"}
_PLACES = {"offload": "offload_optimizer", "param": "offload_param"}
# As --offload says it: optimizer (states on CPU), all (states and parameters on CPU); cpu and nvme are of the states.
_ON_CPU = {"optimizer": ("offload_optimizer",), "all": ("offload_optimizer", "offload_param")}
_WORDS = (*_STAGES, *_SWITCHES, *(f"{word}=" for word in (*_COUNTS, *_PLACES)))
# Field of a strategy -> the path that pins it; what a name leaves out of `_PLAIN` it has not.
_PATHS = {
    "stage": "training.zero_stage",
    "tp": "training.tp",
    "micro_batch": "training.micro_batch",
    "accumulation": "training.accumulation",
    "checkpointing": "training.checkpointing",
    "offload_optimizer": "deepspeed.zero_optimization.offload_optimizer.device",
    "offload_param": "deepspeed.zero_optimization.offload_param.device",
}
_PLAIN: dict[str, Any] = {"tp": 1, "offload_optimizer": "none", "offload_param": "none"}
_HPZ = "zero_hpz_partition_size"


def named(text: str) -> dict[str, Any]:
    """What a name says: field of a strategy -> its value; `secondary` is hpZ's.

    Args:
        text: Words of GRAMMAR with commas or spaces between them.

    Raises:
        DsgenError: No word, an unknown one with the nearest, a value that it cannot have, or a thing said twice.
    """
    said: dict[str, Any] = {}
    words: dict[str, str] = {}
    for word in text.replace(",", " ").split():
        for field, value in _read(word):
            if field in said:
                raise mistake(
                    f"{words[field]} and {word} in one strategy",
                    must="it can have one of them",
                    where=_SOURCE,
                    todo=f"Two strategies are two words: --compare {words[field]} {word}.",
                    code="contradiction",
                )
            said[field], words[field] = value, word
    if not said:
        raise mistake(f"{show(text)} names no strategy", must=f"it must be words of: {GRAMMAR}", where=_SOURCE)
    if "secondary" in said and said.setdefault("stage", 3) != 3:
        raise mistake(f"{words['secondary']} beside {words['stage']}", must="hpZ is a part of zero3", where=_SOURCE)
    return said


def _read(word: str) -> Iterator[tuple[str, Any]]:
    """The fields of a strategy that a word says, with their values."""
    name, _, value = word.partition("=")
    if name == "offload" and value in _ON_CPU:
        yield from ((field, "cpu") for field in _ON_CPU[value])
    else:
        yield _one(word)


def _one(word: str) -> tuple[str, Any]:
    name, equals, value = word.partition("=")
    if (stage := _STAGES.get(word.lower().replace("zero-", "zero"))) is not None:  # a plan prints ZeRO-3
        return "stage", stage
    if word in _SWITCHES:
        return "checkpointing", _SWITCHES[word]
    if equals and name in _COUNTS:
        count = int(value) if value.isascii() and value.isdigit() and len(value) <= len(str(LARGEST_COUNT)) else 0
        if not 1 <= count <= LARGEST_COUNT:
            raise mistake(f"{word} in a strategy", must=f"{name}= takes a whole number of at least 1", where=_SOURCE)
        return _COUNTS[name], count
    if equals and name in _PLACES:
        if value not in ("cpu", "nvme", "none"):
            taken = "optimizer, all, cpu, nvme or none" if name == "offload" else "cpu, nvme or none"
            raise mistake(f"{word} in a strategy", must=f"{name}= takes {taken}", where=_SOURCE)
        return _PLACES[name], value
    raise _unknown(word)


def _unknown(word: str) -> DsgenError:
    return mistake(
        f"unknown word {show(word)} in a strategy",
        must=f"the words are {GRAMMAR}",
        where=_SOURCE,
        todo=offer(_meant(word)),
        code="unknown-name",
    )


def _meant(word: str) -> Iterator[str]:
    """The words that are most like one, with the value that was written."""
    name, equals, value = word.partition("=")
    for close in nearest(f"{name}=" if equals else name, _WORDS):
        yield f"{close}{value or 'N'}" if close.endswith("=") else close


def pinned(job: Job, said: Mapping[str, Any]) -> Job:
    """The job restricted to a named strategy, which wins over the job's own pins.

    What neither the name nor a pin says of offload and AutoTP a named strategy has not; micro-batch, accumulation and
    checkpointing are left to the planner.
    """
    kept = tuple(pin for pin in job.pins if pin.field not in said)
    plain = {field: value for field, value in _PLAIN.items() if all(pin.field != field for pin in kept)}
    fields = {**plain, **{field: value for field, value in said.items() if field in _PATHS}}
    wanted = tuple(
        Pin(field, (value,), Override(_PATHS[field], value, Origin(_SOURCE), Rank.USER))
        for field, value in fields.items()
    )
    deepspeed = job.deepspeed
    if "secondary" in said:
        zero = deepspeed.get("zero_optimization")
        deepspeed = {
            **deepspeed,
            "zero_optimization": {**(zero if isinstance(zero, Mapping) else {}), _HPZ: said["secondary"]},
        }
    return attrs.evolve(job, pins=(*wanted, *kept), deepspeed=deepspeed)
