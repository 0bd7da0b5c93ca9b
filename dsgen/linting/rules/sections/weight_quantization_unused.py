"""weight_quantization in a training config."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]

_SECTION = "weight_quantization"


def check(subject: Subject) -> Iterator[Fault]:
    """The section where it asks for anything but what zero.Init reads at stage 3."""
    section = subject.section(_SECTION)
    initialization = bool(section.get("quantized_initialization")) and subject.stage == 3
    asks = section.get("enabled") is True or bool(section.get("post_init_quant"))
    if asks and not initialization:
        yield Fault(
            _SECTION,
            f"{_SECTION} quantizes nothing in training: it belongs to ZeRO-Inference, and DeepSpeed's training engine "
            f"does not read it",
            Fix(f"remove {_SECTION}", (Remove(_SECTION),), safe=False),
        )


RULE = Rule(
    code="DSG710",
    name="weight-quantization-unused",
    severity=Severity.WARNING,
    what="weight_quantization stands in a training config, where nothing reads it.",
    why=(
        "Only inference reads the section. The one key with an effect beside it is `quantized_initialization`, "
        "for zero.Init at stage 3."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "weight_quantization": {"enabled": true}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1
}""",
    evidence=(("deepspeed/runtime/zero/partition_parameters.py (0.19.8) is the only reader under deepspeed/runtime"),),
    check=check,
)
