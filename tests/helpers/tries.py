"""How many examples a property tries that takes long for each: all of them at night, and a third on every change."""

from __future__ import annotations

import os

__all__ = ["all_of_them", "tries"]

_SHARE = 3  # of the examples, one in so many is tried on every change
_ALL = "DSGEN_EXAMPLES"  # "all" in `nox -s whole`, which `nox -s thorough` runs


def all_of_them() -> bool:
    """Whether everything is tried, as at night."""
    return os.environ.get(_ALL) == "all"


def tries(most: int) -> int:
    """The number for `settings(max_examples=...)`.

    For laws that dozens of examples never broke: the one of memory that was wrong held on 60, and a search through
    9,000 broke it, as 1 in 400 did.
    """
    return most if all_of_them() else -(-most // _SHARE)
