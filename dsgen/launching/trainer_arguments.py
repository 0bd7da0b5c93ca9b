"""What the Hugging Face Trainer must be told for its arguments to agree with the config, as options of its script."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from dsgen.frameworks.training_arguments import training_arguments
from dsgen.rendering import Config

__all__ = ["trainer_arguments"]


def trainer_arguments(config: Config) -> tuple[str, ...]:
    """The options, in the order of TrainingArguments."""
    return tuple(_arguments(config))


def _arguments(config: Config) -> Iterator[str]:
    for item in training_arguments(config):
        value = json.dumps(item.value) if isinstance(item.value, Mapping) else str(item.value)
        yield from (f"--{item.name}", value)
