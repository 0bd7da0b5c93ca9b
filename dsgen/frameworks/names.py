"""The frameworks by name, as `--target` takes them."""

from __future__ import annotations

from dsgen.shapes.errors import mistake, nearest
from dsgen.shapes.near_misses import offer

__all__ = ["NAMES", "check_name"]

NAMES = ("deepspeed", "hf-trainer", "accelerate", "lightning", "axolotl", "llama-factory", "ms-swift")


def check_name(target: str, where: str | None = None) -> None:
    """Refuse what is no framework.

    Args:
        target: The name.
        where: Where a person said it, if that is known.

    Raises:
        DsgenError: With the nearest name.
    """
    if target not in NAMES:
        raise mistake(
            f"no target {target!r}",
            must=f"it must be one of {', '.join(NAMES)}",
            where=where,
            todo=offer(nearest(target, NAMES)[:1]),
            code="unknown-name",
        )
