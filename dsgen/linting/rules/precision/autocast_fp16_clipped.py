"""Gradients clipped before their loss scale is taken off."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.arguments import number
from dsgen.linting.rules.dtypes import DTYPES
from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.values import counts_as_true
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The dtype, where ZeRO clips."""
    path = "torch_autocast.dtype"
    clip = number(subject.value("gradient_clipping"))
    fp16 = DTYPES.get(str(subject.raw(path))) == "fp16" and counts_as_true(subject, "torch_autocast.enabled")
    if not fp16 or not subject.stage or not clip or clip < 0 or subject.on("bf16") or subject.on("fp16"):
        return
    at = f"{clip:g}" if subject.written("gradient_clipping") else f"{clip:g} by default"
    said = f"ZeRO clips at {at} while the gradients still carry autocast's loss scale of 65,536; bfloat16 needs none"
    yield Fault(path, said, Fix("write bfloat16", (Assign(path, "bfloat16"),), safe=False), on="value")


RULE = Rule(
    code="DSG618",
    name="autocast-fp16-clipped",
    severity=Severity.WARNING,
    what="torch_autocast runs in float16 under ZeRO, and gradient_clipping is above 0.",
    why=(
        "ZeRO computes the norm of the scaled gradients and clips by it; only then does the scaler of autocast "
        "divide. With its first scale of 65,536 the gradients are all but clipped to nothing. At stage 0 they are "
        "divided first."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "torch_autocast": {"enabled": true, "dtype": "float16"}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "torch_autocast": {"enabled": true, "dtype": "float16"},
  "gradient_clipping": 0
}""",
    evidence=(
        "deepspeed/runtime/zero/stage_1_and_2.py, stage3.py (0.19.8): torch_autocast_gradscaler",
        "DeepSpeed 0.19.8 run: 25 steps of SGD that change nothing with clipping at 1, and train without it",
    ),
    check=check,
    since="0.17.2",
)
