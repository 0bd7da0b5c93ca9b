"""One load of a model by a training program: what it is told, and whether a config is known by then."""

from __future__ import annotations

import attrs

__all__ = ["ModelLoad"]


@attrs.frozen(kw_only=True)
class ModelLoad:
    """A call of from_pretrained.

    Attributes:
        file: The program.
        line: Where it calls that, 1-based.
        known: The line that has made a config known before: TrainingArguments, HfDeepSpeedConfig; None: none has.
        after: Without such a line, the one that makes the arguments later, 1-based; None: none is seen.
        device_map: What it is told as that, as it is written; None where it is told none, or perhaps none.
        sure: Whether the calls run in any case: no condition stands around them.
        quantized: Whether it is a base in 4 or 8 bits, which is made under no zero.Init.
    """

    file: str
    line: int
    known: int | None = None
    after: int | None = None
    device_map: str | None = None
    sure: bool = True
    quantized: bool = False

    def __str__(self) -> str:
        told = f"device_map={self.device_map}" if self.device_map is not None else "no device_map"
        if self.known is not None:
            order = f" and its arguments on line {self.known}"
        else:
            order = f" and its arguments only on line {self.after}" if self.after is not None else ""
        return f"loads its model on line {self.line} with {told}{order}"
