"""A checkpoint of DeepSpeed made universal, or one set of weights: the RAM and the disk that it takes.

Read in DeepSpeed 0.19.8: checkpoint/ds_to_universal.py and utils/zero_to_fp32.py. A rank's file of optimizer states
holds 12 bytes of each of its elements: the fp32 weight and two moments.
"""

from typing import NamedTuple

__all__ = ["Taken", "as_one_file", "as_universal"]

STATES = 12  # bytes of a trained element: fp32 weight, exp_avg, exp_avg_sq
WEIGHT, FP32 = 2, 4  # bytes of an element in 16 bits, and in fp32
WORKERS = 4  # --num_extract_workers: each holds the file of one rank
SHARD_BYTES = 5 * 10**9  # --max_shard_size, "5GB": what is in memory at once at stage 3
WHOLE = 3  # the stage that cuts the weights too


class Taken(NamedTuple):
    """What a conversion takes.

    Attributes:
        ram_bytes: Beside what Python with torch takes: some 0.2 GiB for each process.
        disk_bytes: At most while it runs, beside the checkpoint itself.
        left_bytes: What stays of it.
    """

    ram_bytes: int
    disk_bytes: int
    left_bytes: int


def as_universal(trained: int, ranks: int, stage: int) -> Taken:
    """What ds_to_universal takes: workers hold a rank's file each; fragments lie beside what is made of them.

    Args:
        trained: Elements with optimizer states.
        ranks: Data-parallel ranks that saved it.
        stage: ZeRO's stage.
    """
    file = STATES * trained // ranks
    ram = min(WORKERS, ranks) * file
    if stage == WHOLE:  # rank 0's states are copied beside the merged ones
        return Taken(ram, 2 * STATES * trained + file, STATES * trained + file)
    return Taken(ram, 2 * STATES * trained, (STATES + WEIGHT) * trained)  # the weights are copied at the end


def as_one_file(trained: int, stage: int) -> Taken:
    """What zero_to_fp32 takes: below stage 3 all weights are put together at once, at stage 3 shard by shard.

    The ranks' files are mapped into memory, which the kernel gives back as it likes, and are not counted.

    Args:
        trained: Elements with optimizer states.
        stage: ZeRO's stage.
    """
    whole = FP32 * trained
    return Taken(min(whole, SHARD_BYTES) if stage == WHOLE else whole, whole, whole)
