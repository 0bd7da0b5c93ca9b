"""Models wide enough for a drive: on one to four ranks it is swapped, in several groups, none too small."""

from __future__ import annotations

import functools
import json
import math
import sys
from pathlib import Path

import pytest

from dsgen import catalog
from dsgen.engine.proof import siblings
from dsgen.families.hf_config import model_from_hf
from dsgen.memory.events import Step, events
from dsgen.memory.gathered import uses_of
from dsgen.memory.swapped_parameters import LEAST_BYTES, Swapping, kept_on_drive, walk
from dsgen.proving.adaptation import adapt
from dsgen.shapes.profiles import Model

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))  # golden/ is a folder of the checkout, not of the installed package

from golden import starts  # noqa: E402

DRIVE = {"device": "nvme", "nvme_path": "/drive"}
BUFFERS = 5  # DeepSpeed's default
PERSISTENCE, PREFETCH, LIVE = 100_000, 50_000_000, 1_000_000_000  # elements: DeepSpeed's defaults
SIBLINGS = {starts.model_of(name): name for name in catalog.names("model", whole=True)}


@functools.cache
def step(name: str, ranks: int, *, checkpointing: bool = False) -> Step:
    """A step of the wide sibling of a profile, shared by so many ranks."""
    said = siblings.sibling(json.loads(starts.model_of(name)), wide=True, sharing=ranks)
    return Step(Model(**model_from_hf(said, name)), "full", 0, (), 1, checkpointing=checkpointing)


def shares(name: str, ranks: int) -> dict[int, int]:
    """Place of each tensor -> a rank's elements of it."""
    held = (item for event in events(step(name, ranks)) for item in event.module.tensors)
    return {item.place: math.ceil(item.numel / ranks) for item in held}


def sub_groups(parts: dict[int, int], most: int) -> list[int]:
    """A rank's elements of each group, as DeepSpeed cuts them (runtime/zero/stage3.py, _create_fp16_sub_groups)."""
    sizes, size = [], 0
    for place in sorted(parts):
        size += parts[place]
        if size >= most or place == max(parts):
            sizes.append(size)
            size = 0
    return sizes


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("name", SIBLINGS.values())
def test_a_sibling_is_swapped_in_several_groups_of_which_none_is_forgotten(name: str, ranks: int) -> None:
    used, _ = adapt({"zero_optimization": {"stage": 3, "offload_optimizer": DRIVE}}, ranks, "/proof")
    groups = sub_groups(shares(name, ranks), used["zero_optimization"]["sub_group_size"])

    assert max(shares(name, ranks).values()) * 2 >= LEAST_BYTES  # in 16 bits
    assert len(groups) >= 2
    assert min(groups) * 4 >= LEAST_BYTES  # in fp32


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("name", SIBLINGS.values())
def test_no_sibling_stops_where_its_model_would_not(name: str, checkpointing: bool) -> None:
    sizes = {place: 2 * share for place, share in shares(name, 2).items()}
    drive = kept_on_drive(sizes, Swapping(2, 2, LEAST_BYTES, BUFFERS, 0, 2_250_000))
    uses = uses_of(step(name, 2, checkpointing=checkpointing), PERSISTENCE)

    assert drive
    assert walk(uses, (PREFETCH, LIVE, 0), drive, BUFFERS) is None
