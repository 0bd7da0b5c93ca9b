"""An offloaded optimizer of which a part stays on the GPU, where no scheduler and no checkpoint reaches it."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]

_RATIO = "zero_optimization.offload_optimizer.ratio"
_MESSAGE = (
    "what stays on the GPU is stepped at the learning rate of the first group, whatever the scheduler says, and no "
    "checkpoint has its moments"
)


def check(subject: Subject) -> Iterator[Fault]:
    """A ratio below 1 at stage 3 with the optimizer in CPU memory."""
    ratio = subject.value(_RATIO)
    number = isinstance(ratio, (int, float)) and not isinstance(ratio, bool)
    if subject.stage == 3 and subject.offload("optimizer") == "cpu" and number and ratio < 1:
        yield Fault(_RATIO, _MESSAGE, Fix("offload all of it", (Remove(_RATIO),), safe=False), on="value")


RULE = Rule(
    code="DSG355",
    name="part-of-optimizer-on-gpu",
    severity=Severity.WARNING,
    what="A part of the offloaded optimizer stays on the GPU, and is trained and saved wrongly.",
    why=(
        "At stage 3 DeepSpeed steps the sub-groups that a ratio below 1 leaves on the GPU with a second AdamW, of "
        "torch. It is made once, with the rate of the first parameter group: a warm-up or a decay does not reach it, "
        "nor do the rates of other groups. state_dict and load_state_dict do not know it, so that a resumed run begins "
        "with new moments there. Releases 0.14 to 0.19 do so, and say nothing."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
  "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.7}}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
  "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}
}""",
    evidence=(
        "deepspeed/runtime/zero/stage3.py (0.19.8): backup_optimizer",
        "DeepSpeed 0.19.8 run: the groups that stay move while the warm-up's rate is 0, and no checkpoint has them",
    ),
    check=check,
)
