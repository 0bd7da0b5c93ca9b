"""What the Hugging Face Trainer and Accelerate hand on to `deepspeed.initialize`, by their own classes.

Read in transformers 5.23.0 (training_args.py, integrations/deepspeed.py) and accelerate 1.15.0 (utils/dataclasses.py):
the Trainer fills its "auto" in and compares the rest with its arguments, and gives the config to Accelerate's plugin.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

__all__ = ["handed_on"]

_PRECISIONS = ("bf16", "fp16")
_NO_MODEL = SimpleNamespace(config=SimpleNamespace())  # an "auto" that is made of a hidden_size is an error


def handed_on(config: Mapping[str, Any], target: str, world: int, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A target's file as that target hands it on.

    Args:
        config: As the file has it.
        target: "deepspeed", "accelerate" or "hf-trainer".
        world: Ranks.
        arguments: Of the Trainer, max_steps among them where the config's schedule ends; nothing for the others.

    Raises:
        ValueError: The Trainer or Accelerate refuses it, in its words.
    """
    given = copy.deepcopy(dict(config))
    if target == "deepspeed":
        return given
    from accelerate.utils import DeepSpeedPlugin

    if target == "accelerate":
        plugin = DeepSpeedPlugin(hf_ds_config=given)
    else:
        from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

        said = _arguments()(world, arguments)
        filled = HfTrainerDeepSpeedConfig(given)
        filled.trainer_config_process(said)
        plugin = DeepSpeedPlugin(hf_ds_config=filled)
        plugin.set_mixed_precision(next((name for name in _PRECISIONS if arguments.get(name)), "no"))
        filled.trainer_config_finalize(said, _NO_MODEL, said.max_steps)
    handed: dict[str, Any] = plugin.deepspeed_config
    return handed


@functools.cache
def _arguments() -> Any:
    """TrainingArguments of a declared world: without `__post_init__`, which joins the ranks that there are."""
    from transformers import TrainingArguments

    class DeclaredArguments(TrainingArguments):  # type: ignore[misc, unused-ignore]
        def __init__(self, world: int, arguments: Mapping[str, Any]) -> None:
            names = {field.name for field in dataclasses.fields(TrainingArguments)}
            if unknown := sorted(set(arguments) - names):
                raise ValueError(f"TrainingArguments has no {', '.join(unknown)}")
            super().__init__(**arguments)
            self._world = world

        def __post_init__(self) -> None:
            """Nothing."""

        @property
        def world_size(self) -> int:
            """The declared ranks."""
            return self._world

    return DeclaredArguments
