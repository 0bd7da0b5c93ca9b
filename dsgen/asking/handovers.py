"""Configs as DeepSpeed is given them: by whom, for how many ranks, and with nothing left to fill in for a proof."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dsgen.deepspeed import surface
from dsgen.deepspeed.autos import unfilled
from dsgen.linting import config_reader
from dsgen.linting.sources import Source
from dsgen.shapes.errors import mistake

__all__ = ["loadable", "provable"]

_ALONE = "deepspeed"  # the target where no program stands before DeepSpeed


def loadable(file: str) -> tuple[str | Mapping[str, Any], str, int | None]:
    """What DeepSpeed is given, by whom, and for how many ranks, where that is said.

    It opens a file itself; what another program's file holds or names is handed over.

    Raises:
        DsgenError: Unreadable, or no config.
    """
    if file != "-" and not file.lower().endswith((".yaml", ".yml")):
        return file, _ALONE, None
    source = config_reader.read(file, bare=True)
    if file != "-" and source.document.whole is None and source.of is None:
        return file, _ALONE, None  # DeepSpeed's own words on YAML
    return source.document.config, source.target, source.world_size


def provable(source: Mapping[str, Any] | str) -> dict[str, Any]:
    """The config in a dict or in a file as DeepSpeed takes it: nobody stands before it who fills in an auto.

    Raises:
        DsgenError: Unreadable, YAML, or an "auto" that DeepSpeed does not fill in; with its place.
    """
    read: Source | None = None
    if isinstance(source, str):
        read = config_reader.read(source, bare=True)
        config = config_reader.for_deepspeed(read)
    else:
        config = dict(source)
    if left := unfilled(config, surface.load()):
        raise mistake(
            f'{", ".join(left)} {"is" if len(left) == 1 else "are"} "auto"',
            must="a proof hands the config to DeepSpeed itself, which does not fill it in",
            where=config_reader.place(read.document, left[0]) if read is not None else None,
            todo="Write values, or prove what the Hugging Face Trainer or Accelerate makes of it.",
        )
    return config
