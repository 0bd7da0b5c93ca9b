"""Of parameters on NVMe those that DeepSpeed keeps in RAM, as far as the model is known."""

from __future__ import annotations

from dsgen.linting.subjects import Subject
from dsgen.shapes.errors import DsgenError
from dsgen.shapes.profiles import Training

__all__ = ["kept_in_ram"]


def kept_in_ram(subject: Subject, room: object) -> bool:
    """Whether a rank's share of all that is trained lies within max_in_cpu; False where the model is not known.

    Frozen parameters are in no sub-group: their share counts nowhere (stage3.py, _create_fp16_partitions_with_
    defragmentation).

    Args:
        subject: The config and the facts of its run.
        room: Elements of a rank, as the config says.
    """
    facts = subject.facts
    if facts.model is None or isinstance(room, bool) or not isinstance(room, (int, float)):
        return False
    from dsgen.memory.shares import partition_numel  # most lints ask for nothing of a model
    from dsgen.memory.trained import trained

    training = facts.training or Training()
    how = training.method, training.lora_rank, training.lora_targets, 1, training.lora_train_embeddings
    try:
        return partition_numel(trained(facts.model, *how), facts.world_size or 1) <= room
    except DsgenError:  # an architecture that is not known, or that has no such matrix
        return False
