"""What no run exceeds: the bound beyond which a number of GPUs is a slip of the hand."""

from __future__ import annotations

from dsgen.shapes.errors import mistake

__all__ = ["MOST_GPUS", "check_gpus"]

# Twice the largest machine announced for training one model: AWS's Project Rainier with nearly 500,000 Trainium2
# (aboutamazon.com, 29 October 2025); xAI's Colossus stood at 200,000 GPUs then (x.ai/colossus).
MOST_GPUS = 1_000_000


def check_gpus(count: int, where: object = None) -> None:
    """Refuse more GPUs than any machine has.

    Raises:
        DsgenError: There are more.
    """
    if count > MOST_GPUS:
        raise mistake(
            f"{count:,} GPUs",
            must=f"at most {MOST_GPUS:,} are counted, twice the largest machine there is",
            where=where,
        )
