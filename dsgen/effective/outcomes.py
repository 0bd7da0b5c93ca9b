"""What loading a config says: the refusal, a row for every written key, the answers, the values in force."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import attrs

__all__ = [
    "CHANGED",
    "COERCED",
    "DROPPED",
    "FILLED",
    "GIVEN",
    "KEPT",
    "MOVED",
    "NOT_READ",
    "Answers",
    "Effective",
    "Refusal",
    "WrittenKey",
]

# What happened to a written value.
KEPT = "kept"
COERCED = "converted"  # "2" is read as 2
DROPPED = "dropped"  # "auto" in a strict section: the default is in force
MOVED = "moved"  # a deprecated key's value went to its successor
NOT_READ = "not read"
GIVEN = "filled in"  # "auto" whose value the program, or what it was told, is known to fill in
FILLED = "left open"  # "auto" that the program fills in later
CHANGED = "changed"  # DeepSpeed holds something else


@attrs.frozen(kw_only=True)
class Refusal:
    """Why DeepSpeed does not take a config.

    Attributes:
        phase: "read" (the file), "parse" (DeepSpeedConfig), "initialize" (its optimizer or schedule), or "run": what
            the program, or DeepSpeed later, refuses as `dsgen lint` knows.
        kind: Class of the exception; in the phase "run" the rule.
        message: Its text.
        sentence: The same in one plain sentence.
        site: The place in DeepSpeed that raised it: "deepspeed/runtime/config.py:596".
    """

    phase: str
    kind: str
    message: str
    sentence: str
    site: str | None = None


@attrs.frozen(kw_only=True)
class WrittenKey:
    """One written key; `in_force` is None where nothing of it is in force."""

    path: str
    written: Any
    in_force: Any
    happened: str
    note: str | None = None


@attrs.frozen(kw_only=True)
class Answers:
    """What a person wants to know of a config. None: left open for the program, or nothing there.

    Attributes:
        dtype: "fp32", "fp16" or "bf16".
        autocast: The dtype of torch.autocast where it is on.
        stage: ZeRO stage.
        offload_optimizer, offload_parameters: Where they really go: "none", "cpu" or "nvme".
        gradient_clipping: Largest gradient norm; 0 is no clipping.
        train_batch_size, micro_batch, accumulation: As DeepSpeed resolved them at this number of ranks.
        optimizer: The class that DeepSpeed builds; None where the program must bring one.
        lr: The optimizer's rate.
        schedule: The class of the schedule.
        first_lr: Rate of the first optimizer step.
        highest_lr, highest_lr_step: The largest rate, and the first step (from 1) that has it.
        schedule_ignores_lr: The schedule sets the rate by itself, whatever the optimizer's is.
    """

    dtype: str | None
    autocast: str | None
    stage: int
    offload_optimizer: str
    offload_parameters: str
    gradient_clipping: Any
    train_batch_size: Any
    micro_batch: Any
    accumulation: Any
    optimizer: str | None
    lr: Any
    schedule: str | None
    first_lr: float | None
    highest_lr: float | None
    highest_lr_step: int | None
    schedule_ignores_lr: bool | None


@attrs.frozen(kw_only=True)
class Effective:
    """A config as one DeepSpeed took it.

    Attributes:
        name: The file, or "<config>".
        deepspeed: The release that loaded it.
        target: The program it was loaded for.
        world_size: Number of ranks.
        implied: Whether the config itself said that number: nobody else did.
        refused: Why it was not taken; then what follows is as far as it came.
        rows: Every written key, in the file's order.
        values: Dotted key -> value in force, of every key that DeepSpeed holds; plain JSON types.
        defaults: The keys among them that nobody wrote and that have an effect in this config.
        answers: The summary; None where the config was not parsed.
        warnings: What DeepSpeed logged as warning, in order.
    """

    name: str
    deepspeed: str
    target: str
    world_size: int
    implied: bool
    refused: Refusal | None
    rows: tuple[WrittenKey, ...] = ()
    values: Mapping[str, Any] = attrs.field(factory=dict)
    defaults: Mapping[str, Any] = attrs.field(factory=dict)
    answers: Answers | None = None
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; a number that JSON has not (NaN, Infinity) as its text."""
        said = attrs.asdict(self)
        said.pop("values")
        plain: dict[str, Any] = _plain({**said, "values": dict(self.values)})
        return plain


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
