"""Which FlashAttention a plan counts, what programs are told of it, and how much faster it is."""

from __future__ import annotations

from typing import Any

import pytest

from dsgen import plan
from dsgen.frameworks import adapters, trainers
from dsgen.frameworks.adapters import attention
from dsgen.jobs.fused_attention import flash_release

LONG = {"training.seq_len": 65536, "training.chunked_loss": True}


def asked(make_job: Any, gpu: str, release: int) -> Any:
    """The plan of an 8B with long sequences, for eight GPUs."""
    return plan(make_job(gpu, "llama-3.1-8b", cluster={"gpus": 8}, **LONG, **{"training.flash_attention": release}))


@pytest.mark.parametrize(
    ("gpu", "wished", "runs"),
    [("b200-180g", 4, 4), ("b200-180g", 3, 2), ("h100-80g", 4, 3), ("h100-80g", 3, 3), ("a100-80g", 4, 2)],
)
def test_a_release_runs_where_it_has_kernels_and_the_one_before_elsewhere(make_job, gpu, wished, runs) -> None:
    found = asked(make_job, gpu, wished)
    assert flash_release(found.job.hardware, found.job.training) == runs
    assert attention(found) == f"flash_attention_{runs}"


def test_release_4_is_much_faster_on_b200(make_job) -> None:
    """Attention is half of a step of 64k tokens there, and release 2 reaches a fifth of what a tensor core does."""
    new, old = (asked(make_job, "b200-180g", release).chosen.speed for release in (4, 2))
    assert new > 1.5 * old


def test_llama_factory_has_a_word_for_each() -> None:
    assert {*adapters._FLASH.values(), "sdpa", "eager"} == set(trainers._FLASH)
