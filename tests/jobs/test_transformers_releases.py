"""What a release of transformers makes of a mixture: experts apart before 5, whatever is no release refused."""

from __future__ import annotations

from typing import Any

import pytest

import dsgen
from dsgen.families.parameters import parameter_count
from dsgen.memory.numbers import count
from dsgen.shapes.errors import DsgenError

ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
QLORA = {"hw": "a100-80g", "gpus": 1, "method": "qlora", "lora_targets": ATTENTION, "zero_stage": 0, "micro_batch": 1}


def job(model: str = "mixtral-8x7b", **said: Any) -> Any:
    return dsgen.job({**QLORA, "model": model, **said})


@pytest.mark.parametrize(("release", "apart"), [("4.48.1", True), ("4.57", True), ("5.0", False), ("5.23.0", False)])
def test_experts_are_apart_before_transformers_5(release: str, apart: bool) -> None:
    assert job(transformers=release).model.experts_apart is apart


@pytest.mark.parametrize("model", ["llama-3.1-8b", "gpt-oss-20b"])
def test_what_has_no_list_of_experts_is_as_it_was(model: str) -> None:
    assert job(model, transformers="4.57").model == job(model).model


def test_experts_apart_are_in_4_bits_and_as_many() -> None:
    old, new = job(transformers="4.48").model, job().model
    packed, whole = (count(one, "qlora", 16, tuple(ATTENTION), 1, False, 0) for one in (old, new))

    assert parameter_count(old) == parameter_count(new)
    assert packed.total == whole.total
    assert packed.frozen_linear - whole.frozen_linear == 32 * 8 * 3 * 4096 * 14336


def test_published_runs_of_mixtral_in_4_bits_are_near() -> None:
    """fms-acceleration, transformers 4.48.1: 34.21 and 45.42 GiB allocated with micro-batches of 4 and 8."""
    for micro_batch, measured in ((4, 34.209), (8, 45.42)):
        found = dsgen.memory({**QLORA, "model": "mixtral-8x7b", "transformers": "4.48.1", "micro_batch": micro_batch,
                              "checkpointing": "full", "seq_len": 4096, "lora_dropout": 0.1})  # fmt: skip
        assert found.memory.gpu.allocated_bytes / 2**30 == pytest.approx(measured, rel=0.02)


def test_adapters_of_experts_apart_are_refused() -> None:
    with pytest.raises(DsgenError, match="adapters of them are not counted") as caught:
        job(transformers="4.57", lora_targets=["all-linear"])
    assert "--lora-targets q_proj,k_proj,v_proj,o_proj" in str(caught.value)


@pytest.mark.parametrize("release", ["new", "3.5", "4.x"])
def test_what_is_no_release_is_said_so(release: str) -> None:
    with pytest.raises(DsgenError, match="it must be a release from 4 on"):
        job(transformers=release)


def test_a_mixture_of_transformers_4_is_less_sure_at_stage_3() -> None:
    said = dsgen.memory({**QLORA, "model": "mixtral-8x7b", "transformers": "4.57", "zero_stage": 3, "gpus": 8})
    assert any("a mixture of transformers 4 at stage 3" in note for note in said.question.notes)
