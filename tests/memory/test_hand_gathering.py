"""What stage 3 gathers over a whole model's step, and who cuts what among whom: facts that hold for any model."""

from __future__ import annotations

import pytest
from test_memory import BUFFERS, highest, strategy

from dsgen.families.parameters import parameter_count
from dsgen.memory import parts
from dsgen.memory.activations import AGAIN, FORWARD
from dsgen.memory.events import Step, events
from dsgen.memory.gathered import gathered
from dsgen.memory.modules import modules
from dsgen.memory.trained import AFTER, BEFORE

FAR = 10**12  # elements: more than the model has


def test_where_everything_may_stay_the_whole_model_is_there_between_forward_and_backward(make_job):
    """The embedding too, whose next use is the last of all."""
    model = make_job(model="125m").model

    there = gathered(Step(model, "full", 0, (), 1), (0, 0, FAR, FAR)).places

    assert max(there.values()) == parameter_count(model)
    assert {block for block, way, *_ in there if way == FORWARD} == {BEFORE, *range(model.layers), AFTER}


def test_a_checkpointed_block_runs_its_modules_again_from_the_first_on(make_job):
    """In the order of forward; the block itself is around them."""
    made = events(Step(make_job(model="125m").model, "full", 0, (), 1, checkpointing=True))

    forward, again = ([one.module.name for one in made if (one.block, one.way) == (3, way)] for way in (FORWARD, AGAIN))

    assert len(again) > 5
    assert forward[1 : 1 + len(again)] == again


def test_nothing_is_split_among_other_ranks_without_autotp(make_job):
    """Adapters neither."""
    made = modules(make_job(model="125m").model, "lora", 8, ("all-linear",), 1)

    assert not any(held.split for _, part in made.parts for one in part for held in one.tensors)


def test_stage_3_cuts_before_autotp_splits(make_job):
    """A rank's share has as many elements whatever the degree."""
    job = make_job(training={"seq_len": 128})

    for tp in (1, 2, 4):
        master = highest(job, strategy(3, tp=tp), "step")["fp32 master weights"]
        assert master == pytest.approx(4 * parameter_count(job.model) / 8, rel=1e-3)


def test_a_rank_that_is_alone_copies_each_tensor_by_itself(make_job):
    """Two gather together what is fetched ahead, into a flat buffer, as eight do."""

    def most(gpus):
        job = make_job(model="125m", cluster={"gpus": gpus}, training={"seq_len": 128})
        buffers = BUFFERS._replace(prefetch=10**7, max_live=FAR)
        chosen = strategy(3, offload_optimizer="cpu", offload_param="cpu", buffers=buffers)
        moments = parts(job, chosen, buffers, 1).moments
        return max(one.parts["gathered parameters"][0] for one in moments if one.phase == "forward")

    assert most(1) < most(2) == most(8)
