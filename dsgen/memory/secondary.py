"""The second copy of the parameters that hpZ keeps, cut among the ranks of a group: how much of it is there, and when.

Followed from the code of DeepSpeed 0.19.8. A tensor gets its second share whenever it is partitioned and has none
(runtime/zero/partition_parameters.py, _partition_param_sec): first when the model is made, and again in every step
when it is released for the first time. Those of trained tensors go when the optimizer has stepped (runtime/zero/
stage3.py, invalidate_secondary_tensor); a tensor that is never partitioned gets its own just before that. An evaluation
makes those of what it releases, and a save behind it lies beside them. All lie where `offload_param` says, those of
tensors that persist on the GPU too.
"""

from typing import Any, NamedTuple

from dsgen.memory.trained import Trained
from dsgen.strategies.buffers import Buffers

__all__ = ["Secondary", "is_counted", "secondary"]


class Secondary(NamedTuple):
    """Bytes of one rank's second shares.

    Attributes:
        group: Ranks that a tensor is cut among.
        groups: How many of them there are: a second share is as many first ones.
        width: Bytes of an element of a trained tensor.
        whole: Those of all tensors: from load on until the end of the first step, and while any later one steps.
        lasting: Those of frozen tensors, which stay.
        again: Those of trained tensors that are released, and so have one from the first pass of a step on.
    """

    group: int
    groups: int
    width: int
    whole: int
    lasting: int
    again: int


def is_counted(job: Any, layout: Any) -> bool:
    """Whether the copy is counted where a layout has one: as far as it was compared with the simulation.

    Args:
        job: Anything with model, training and world, as a Job has.
        layout: Anything with stage, offload_param and tp.
    """
    if layout.stage != 3:  # there is none
        return True
    return bool(layout.offload_param != "nvme" and layout.tp == 1 and job.world > 1)  # DeepSpeed has none on NVMe


def secondary(
    job: Any, layout: Any, buffers: Buffers, tensors: Trained, own: int, frozen: int, width: int
) -> Secondary | None:
    """The copy of a layout at stage 3; None where there is none, or it is not counted.

    Args:
        job, layout: As for `is_counted`.
        buffers: Those of the layout.
        tensors: The trained tensors.
        own: Bytes of this rank's share of them.
        frozen: Bytes of its share of the others.
        width: Bytes of an element of a trained tensor.
    """
    group, ranks = min(buffers.secondary, job.world), job.world
    if group < 2 or ranks % group or not is_counted(job, layout):
        return None
    groups = ranks // group
    released = sum(-(-numel // ranks) for numel in tensors.numels if numel > buffers.persistence)
    return Secondary(group, groups, width, groups * (own + frozen), groups * frozen, groups * width * released)
