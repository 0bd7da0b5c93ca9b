"""ONE table of what DeepSpeed, transformers, peft or the hardware refuse of a strategy, or dsgen does not count.

Plans, rendered configs, questions of memory, simulations and rules all read it: the sentence stands here once, and who
reads it adds where the thing was written and what to do. A way to run becomes a `Setup`: of a layout by `of_layout`,
of a config by `linting.setups.of_subject`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

from dsgen.jobs.job import Job
from dsgen.strategies.constraints.adapters import ADAPTERS, COPIES, EXPERTS
from dsgen.strategies.constraints.constraint import BY, Constraint
from dsgen.strategies.constraints.encoders import ENCODER_WISHES, ENCODERS
from dsgen.strategies.constraints.keys import KEYS
from dsgen.strategies.constraints.offloaded_activations import ACTIVATION_OFFLOADING
from dsgen.strategies.constraints.setup import Keys, Setup, keys, of_layout
from dsgen.strategies.constraints.tensor_parallelism import CHUNKED, DEGREE, TENSOR_PARALLELISM
from dsgen.strategies.constraints.wishes import WISHES
from dsgen.strategies.constraints.zero import PRECISION, ZERO

__all__ = [
    "ADAPTERS",
    "BY",
    "BY_CODE",
    "CONSTRAINTS",
    "DEGREE",
    "EXPERTS",
    "MASTERS",
    "OF_LAYOUTS",
    "UNCOUNTED",
    "WISHES",
    "Constraint",
    "Keys",
    "Setup",
    "cannot",
    "first",
    "keys",
    "of_layout",
    "refusals",
    "unasked",
]

# What a plan rejects a layout for, in the order in which it is asked: of several the first is said.
OF_LAYOUTS: tuple[Constraint, ...] = (
    *PRECISION, *ZERO, *COPIES, *ENCODERS, *TENSOR_PARALLELISM, *ACTIVATION_OFFLOADING,
)  # fmt: skip
# The others hang on keys beside a strategy, or on wishes that no layout mends.
CONSTRAINTS: tuple[Constraint, ...] = (*OF_LAYOUTS, *EXPERTS, *CHUNKED, *KEYS, *WISHES)
# Whatever else is said of a config, its memory is not told with these.
UNCOUNTED: tuple[Constraint, ...] = (*ADAPTERS, *ENCODER_WISHES, *ENCODERS, *ACTIVATION_OFFLOADING)
MASTERS = tuple(item for item in CONSTRAINTS if item.about in ("masters", "states"))  # what is in 16 bits
BY_CODE = MappingProxyType({item.code: item for item in CONSTRAINTS})


def refusals(at: Setup, among: tuple[Constraint, ...] = CONSTRAINTS) -> Iterator[Constraint]:
    """The constraints that a way to run breaks."""
    return (item for item in among if item.condition(at) and item.holds(at.release))


def first(job: Job, layout: Any) -> str | None:
    """Why a plan does not try a layout: the first sentence; None where nothing speaks against it.

    A config that is said whole runs as it is, unless it stops; what else speaks against it the linter says.
    """
    at = of_layout(job, layout)
    refusal = next((item for item in refusals(at, _asked(at)) if item.fatal or not job.whole), None)
    return refusal.says(at) if refusal is not None else None


def unasked(job: Job, layout: Any) -> str | None:
    """Why a plan does not take a layout of itself that runs where a person asks for it; None for nothing."""
    at = of_layout(job, layout)
    item = next(refusals(at, CHUNKED), None)
    return item.says(at) if item is not None else None


def cannot(job: Job, layout: Any) -> str | None:
    """Why a layout has no memory that could be told: it does not run, or is not counted; None where it has one.

    Keys of the job beside the strategy are left out: its memory is told as if they were away.
    """
    at = of_layout(job, layout)
    refused = (item for item in refusals(at, (*_asked(at), *WISHES)) if item.fatal and not item.of_keys)
    return next((item.says(at) for item in refused), None)


def _asked(at: Setup) -> tuple[Constraint, ...]:
    """Those of OF_LAYOUTS that may hold: a search asks them of every layout."""
    wishes = at.training
    copies = at.adapters and wishes.lora_train_embeddings
    return _groups(copies, at.encoder, at.tp > 1, wishes.activation_offloading)


@functools.cache
def _groups(copies: bool, encoder: bool, split: bool, offloads: bool) -> tuple[Constraint, ...]:
    groups = ((PRECISION, True), (ZERO, True), (COPIES, copies), (ENCODERS, encoder), (TENSOR_PARALLELISM, split),
              (ACTIVATION_OFFLOADING, offloads))  # fmt: skip
    return tuple(item for group, there in groups if there for item in group)
