"""What no run exceeds: the bounds beyond which a number of GPUs or tokens is a slip of the hand."""

from __future__ import annotations

from dsgen.shapes.errors import mistake

__all__ = ["MOST_GPUS", "MOST_NODES", "MOST_TOKENS", "check_gpus"]

# A limit of plausibility and no fact: ten times the 100,000 Hopper GPUs of xAI's Colossus, which NVIDIA called the
# world's largest AI supercomputer (press release of 28 October 2024). Clusters grow; what they grow to is not followed.
MOST_GPUS = 1_000_000

# Where a search for enough nodes ends: above the 420 DGX A100 on which DeepSpeed trained Megatron-Turing NLG 530B
# (arXiv 2201.11990).
MOST_NODES = 1024

# As plausible: 250 times the 40 trillion tokens on which Llama 4 Scout was trained (its model card of 5 April 2025).
MOST_TOKENS = 1e16


def check_gpus(count: int, where: object = None) -> None:
    """Refuse more GPUs than a job plausibly has.

    Raises:
        DsgenError: There are more.
    """
    if count > MOST_GPUS:
        raise mistake(
            f"{count:,} GPUs",
            must=f"at most {MOST_GPUS:,} are counted; more is taken for a slip",
            where=where,
        )
