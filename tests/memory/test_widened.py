"""What keys that are not counted may take from a peak and add to it, by hand for Llama 2 7B on eight GPUs."""

from __future__ import annotations

import attrs
import pytest

from dsgen.families.parameters import parameter_count
from dsgen.jobs.job import Unsure
from dsgen.memory import widened
from dsgen.strategies.buffers import Buffers
from dsgen.strategies.strategies import Layout

BUFFERS = Buffers(
    reduce_bucket=50_000_000,
    prefetch=2_000_000,
    persistence=0,
    max_live=30_000_000,
    max_reuse=2,
    sub_group=1_000_000,
    swap_buffers=12,
    overlap_comm=False,
)
LARGEST = 32000 * 4096  # the embedding, and the head
ALL = 6_738_415_616
OWN = ALL // 8


@pytest.fixture
def bounds(make_job):
    """Bytes less and more, of a stage with one uncounted key."""

    def found(stage, precision="bf16", offload="none", bucket=BUFFERS.reduce_bucket, **keys):
        job = attrs.evolve(make_job(), unsure=Unsure(**keys))
        assert parameter_count(job.model) == ALL
        layout = Layout(
            stage=stage,
            offload_optimizer=offload,
            offload_param="none",
            tp=1,
            checkpointing=True,
            precision=precision,
        )
        return widened(job, layout, BUFFERS._replace(reduce_bucket=bucket))

    return found


def test_counted_keys_widen_nothing(bounds):
    assert [bounds(stage) for stage in (0, 1, 2, 3)] == [(0, 0)] * 4


def test_sums_in_fp32_wait_beside_gradients_in_16_bits(bounds):
    """Below stage 2 all, from there on a rank's own; the sum of the largest at stage 2 is apart from its gradient."""
    found = [bounds(stage, gradients=True) for stage in (0, 1, 2, 3)]

    assert found == [(0, 6 * ALL), (0, 6 * ALL), (2 * LARGEST, 6 * OWN), (0, 6 * OWN)]
    assert bounds(2, precision="fp32", gradients=True) == (0, 0)


@pytest.mark.parametrize(("bucket", "copied"), [(50_000_000, LARGEST), (200_000_000, 200_000_000)])
def test_gradients_that_travel_in_fp32_are_copied_by_the_bucket_or_the_largest(bounds, bucket, copied):
    assert bounds(1, bucket=bucket, reduced=True) == (0, 6 * copied)
    assert bounds(1, precision="fp32", bucket=bucket, reduced=True) == (0, 0)


def test_what_stage_3_gathers_in_8_bits_takes_half_and_then_three_bytes_an_element(bounds):
    assert bounds(3, fetched=True) == (32_000_000, 3 * LARGEST)
    assert bounds(2, fetched=True) == (0, 0)


@pytest.mark.parametrize(("bucket", "flat"), [(50_000_000, LARGEST), (200_000_000, 200_000_000)])
def test_gradients_that_stage_3_sends_in_4_bits_need_no_flat_copy(bounds, bucket, flat):
    assert bounds(3, bucket=bucket, sent=True) == (2 * flat, LARGEST)
    assert bounds(2, bucket=bucket, sent=True) == (0, 0)


def test_of_an_offloaded_optimizer_whole_groups_stay_up_to_all(bounds):
    """Weight, gradient and two moments in fp32; the last group may lie half within its share."""
    assert bounds(3, offload="cpu", kept=0.25) == (0, 16 * (int(0.25 * OWN) + 1_000_000))
    assert bounds(3, offload="cpu", kept=1.0) == (0, 16 * OWN)
    assert bounds(3, kept=0.25) == bounds(2, offload="cpu", kept=0.25) == (0, 0)


def test_older_releases_share_out_the_moments_that_there_are_at_stage_0(make_job):
    """BF16_Optimizer of DeepSpeed before 0.17.6: 8 ranks have a share of master weights and moments, 12 or 6 bytes."""
    found = {}
    for optimizer in ("AdamW", "AdamW8bit"):
        job = attrs.evolve(make_job(**{"training.optimizer": optimizer}), version="0.16")
        layout = Layout(
            stage=0, offload_optimizer="none", offload_param="none", tp=1, checkpointing=True, precision="bf16"
        )
        found[optimizer] = widened(job, layout, BUFFERS)
        ranks = job.world

    for optimizer, element in (("AdamW", 12), ("AdamW8bit", 6)):
        away = element * ALL - element * ALL // ranks
        assert found[optimizer] == (away + 6 * ALL, max(0, 4 * ALL - away))
