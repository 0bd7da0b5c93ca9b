"""The order in which stage 3 uses experts with adapters, and what asks for a checkpointed block's forward in 4 bits.

Both are as the coordinator of DeepSpeed 0.19.8 wrote them down in simulations with peft 0.21.2.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dsgen.memory.activations import AGAIN, BACKWARD, FORWARD
from dsgen.memory.events import ModuleEvent, Step, events
from dsgen.memory.gathered import walked

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
LIMITS = 100_000, 50_000_000, 1_000_000_000, 1_000_000_000  # DeepSpeed's own
EXPERTS = ["mlp.experts", "mlp.experts.base_layer", "mlp.experts.base_layer.base_layer"]


@pytest.fixture(scope="module")
def mixture():
    """A model of experts that are stacked in two tensors."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        from memory_cases import of_type
    finally:
        sys.path.remove(str(BENCHMARKS))
    return of_type("olmoe")


def of_experts(made: tuple[ModuleEvent, ...], way: int) -> list[ModuleEvent]:
    return [one for one in made if one.block == 1 and one.way == way and one.module.name in EXPERTS]


@pytest.mark.parametrize("way", [FORWARD, BACKWARD])
def test_wrappers_of_experts_hold_a_parameter_and_its_adapter_each(mixture, way):
    """That of the second product is around that of the first; what is inside of both has no adapter."""
    made = of_experts(events(Step(mixture, "lora", 16, ("all-linear",), 1)), way)
    outer, inner, experts = (one.module for one in made)

    assert [one.module.name for one in made] == EXPERTS
    assert [held.frozen for held in (*outer.tensors, *inner.tensors)] == [True, False, False] * 2
    assert experts.tensors == (inner.tensors[0], outer.tensors[0])
    assert experts.product
    assert not (outer.product or inner.product)


def test_what_wrappers_hold_is_released_with_the_last_module_in_them(mixture):
    """All at once, in forward and in backward, and not before."""
    step = Step(mixture, "lora", 16, ("all-linear",), 1)
    made, released = events(step), walked(step, (0, 0, 10**12, 0)).released
    of_one = [
        (one, gone)
        for one, gone in zip(made, released, strict=True)
        if one.block == 1 and one.module.name.startswith(EXPERTS[0])
    ]

    assert [len(gone) for _, gone in of_one] == [0, 0, 0, 6] * 2


def test_what_a_second_forward_has_gathered_leaves_once(mixture):
    """A parameter is used by its wrapper and by what is inside: it is not counted off twice."""
    step = Step(mixture, "lora", 16, ("all-linear",), 1, checkpointing=True, wide=True)

    assert all(len(one.leaving) == len(set(one.leaving)) for one in events(step))
    assert min(walked(step, LIMITS).rests) >= 0


def test_a_frozen_matrix_in_4_bits_does_not_ask_for_a_second_forward(make_job):
    """It saves nothing: its backward is over before, and what is around it asks, and holds what was gathered."""
    step = Step(make_job(model="llama-3.2-1b").model, "qlora", 16, ("q_proj", "v_proj"), 1, checkpointing=True)
    of_one = [one for one in events(step) if one.block == 1]
    again = next(place for place, one in enumerate(of_one) if one.way == AGAIN)
    behind = next(place for place, one in enumerate(of_one) if place > again and one.way == BACKWARD)
    leaves = next(one for one in of_one if one.leaving)

    assert of_one[again - 1].module.name == "mlp.down_proj"
    assert not of_one[again - 1].stays
    assert of_one[behind - 1].module.name == of_one[behind].module.name == "mlp.up_proj"
    assert leaves.module.name == "mlp.gate_proj"
