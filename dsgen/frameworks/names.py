"""The frameworks by name, as `--target` takes them."""

from __future__ import annotations

from dsgen.shapes.errors import mistake, nearest
from dsgen.shapes.near_misses import offer

__all__ = ["NAMES", "check_name", "known_as"]

NAMES = ("deepspeed", "hf-trainer", "accelerate", "lightning", "axolotl", "llama-factory", "ms-swift")

# What people call them besides, without - and _; Unsloth's models go to TRL's trainers, and those are the Trainer.
_OTHERS = {
    **dict.fromkeys(
        ("trl", "sft", "sfttrainer", "transformers", "hf", "huggingface", "trainer", "unsloth"), "hf-trainer"
    ),
    **dict.fromkeys(("llamafactory", "lf", "llamafactorycli"), "llama-factory"),
    **dict.fromkeys(("swift", "msswift"), "ms-swift"),
    **dict.fromkeys(("pytorchlightning", "pl"), "lightning"),
    **dict.fromkeys(("ds", "plain", "torch", "pytorch"), "deepspeed"),
}


def known_as(name: str) -> str | None:
    """The framework that another name means; None where nobody knows."""
    return _OTHERS.get(name.casefold().replace("-", "").replace("_", ""))


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
            todo=offer([known] if (known := known_as(target)) is not None else nearest(target, NAMES)[:1]),
            code="unknown-name",
        )
