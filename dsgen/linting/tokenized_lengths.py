"""At how many tokens a Python program cuts its samples where it tokenizes them itself, read off what its calls say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["cut_at"]

# The words of transformers' tokenizers (tokenization_utils_base.py, TruncationStrategy) that cut; True is the first.
_CUTS = (True, "longest_first", "only_first", "only_second")


def cut_at(calls: Iterable[Mapping[str, Any]]) -> int | None:
    """Tokens that all calls with truncation=True and max_length=N have in common; None where none says a number, one
    says another or hides it.

    Args:
        calls: The keywords of each call of the program; a value that is computed is of a type of its own.
    """
    told = [call["max_length"] for call in calls if call.get("truncation") in _CUTS and "max_length" in call]
    numbers = {value if type(value) is int and value > 0 else None for value in told}
    return numbers.pop() if len(numbers) == 1 else None
