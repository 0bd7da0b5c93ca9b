"""A made-up program of a step with everything that a report shows, and its simulation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from simulated import ANSWER, CONFIG, MODEL, answering

import dsgen
from dsgen.simulating import Simulation, Timeline, from_config, hardware_of, network_of, simulate

PASSES = 12
_MILLISECOND = 1_754_000_000  # bytes that an element-wise kernel of an A100 moves in one
_PASS: list[tuple[Any, ...]] = [
    ("phase", "input", 1),
    ("phase", "forward", 1),
    ("module", "model.layers.0.mlp"),
    ("collective", 0, 1, "python", "all-gather", 10**8, 16, 8),
    ("product", 0, "python", False, 4096, 4096, 4096, 1, "bf16"),
    ("module", "model.layers.1.mlp"),
    ("join", 0, 0),
    ("attention", 0, "python", False, "forward", 1, 32, 32, 2048, 2048, 128, True, 0, "bf16"),
    ("phase", "backward", 1),
    ("product", 0, "engine", False, 4096, 4096, 8192, 1, "bf16"),
    ("traffic", 1, "python", False, "cat", "stream", _MILLISECOND),
    ("traffic", 0, "python", False, "mul <&>", "stream", 2 * _MILLISECOND),
    ("item", 0),
    ("phase", "step", 1),
]
_STEP: list[tuple[Any, ...]] = [
    ("phase", "step", 1),
    ("traffic", 0, "python", False, "adam", "adam", _MILLISECOND),
    ("copy", 0, "python", "to_host", 2**26, True, True),
    ("adam", 10**6, 28 * 10**6),
]


def program(passes: int = PASSES) -> dict[str, Any]:
    """The step: two passes as they are, one that stands for the others, and the optimizer."""
    listed = _PASS * 2 + _STEP
    table = list(dict.fromkeys(listed))
    length = len(_PASS)
    held = [
        [place, size * 2**30] for place, size in ((0, 10), (5, 20), (length, 12), (length + 5, 21), (2 * length, 8))
    ]
    return {
        "entries": [list(one) for one in table],
        "order": [table.index(one) for one in listed],
        "loops": [[length, 2 * length, passes - 2]] if passes > 2 else [],
        "held": held,
    }


def simulation(folder: Path, passes: int = PASSES) -> Simulation:
    """On 16 A100 of two nodes."""
    hardware = hardware_of(dsgen.profile("a100-80g").layers)
    network = network_of(dsgen.profile("ib-hdr-200g").layers)
    # Stage 2, at which collectives run beside kernels.
    answer = {**ANSWER, "program": program(passes), "engine": {**ANSWER["engine"], "stage": 2}}
    request = from_config(CONFIG, model=MODEL, world_size=16, hardware=hardware, network=network)
    return simulate(request, python=answering(folder, answer))


def time_of(told: Simulation) -> Timeline:
    """The step's time, which is there."""
    assert told.step_time is not None
    return told.step_time
