"""Configs that a proof can start: what DeepSpeed itself takes, with nothing left for another program to fill in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dsgen.deepspeed import surface
from dsgen.deepspeed.autos import unfilled
from dsgen.linting import configs
from dsgen.linting.sources import Source
from dsgen.shapes.errors import mistake

__all__ = ["provable"]


def provable(source: Mapping[str, Any] | str) -> dict[str, Any]:
    """The config in a dict or in a file as DeepSpeed takes it: nobody stands before it who fills in an auto.

    Raises:
        DsgenError: Unreadable, YAML, or an "auto" that DeepSpeed does not fill in; with its place.
    """
    read: Source | None = None
    if isinstance(source, str):
        read = configs.read(source, bare=True)
        config = configs.for_deepspeed(read)
    else:
        config = dict(source)
    if left := unfilled(config, surface.load()):
        raise mistake(
            f'{", ".join(left)} {"is" if len(left) == 1 else "are"} "auto"',
            must="a proof hands the config to DeepSpeed itself, which does not fill it in",
            where=configs.place(read.document, left[0]) if read is not None else None,
            todo="Write values, or prove what the Hugging Face Trainer or Accelerate makes of it.",
        )
    return config
