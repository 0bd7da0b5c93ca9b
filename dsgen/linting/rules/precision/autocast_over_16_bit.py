"""torch_autocast together with fp16 or bf16."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.dtypes import DTYPES
from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.values import counts_as_true
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The switch of autocast, where another mode is on."""
    mode = next((name for name in ("fp16", "bf16") if subject.on(name)), None)
    if mode is not None and counts_as_true(subject, "torch_autocast.enabled"):
        fix = Fix("switch torch_autocast off", (Assign("torch_autocast.enabled", False),), safe=False)
        if subject.stage == 0 and DTYPES.get(str(subject.raw("torch_autocast.dtype"))) == "fp16":
            said = f"at stage 0 autocast's float16 brings a gradient scaler that {mode} defeats: the first step stops"
            yield Fault("torch_autocast.enabled", said, fix, Severity.ERROR)
            return
        if _nothing_is_fp32(subject, mode):
            return
        said = f"torch_autocast is meant for weights in fp32, and {mode} casts them; only one of the two should be on"
        yield Fault("torch_autocast.enabled", said, fix)


def _nothing_is_fp32(subject: Subject, mode: str) -> bool:
    """Whether no copy of the weights is to be in fp32, so that autocast is what computes norms and losses in it."""
    dtype = DTYPES.get(str(subject.raw("torch_autocast.dtype")))
    return mode == "bf16" == dtype and subject.value("bf16.bf16_master_weights_and_grads") is True


RULE = Rule(
    code="DSG615",
    name="autocast-over-16-bit",
    severity=Severity.WARNING,
    what="torch_autocast and a 16-bit mode are both on.",
    why=(
        "The 16-bit mode casts the weights themselves; autocast is made for weights in fp32 and casts what passes "
        "between operations. Together they hold weights in one dtype and compute in another, and with dtype "
        "float16 the gradients carry a second loss scale, which clipping sees. DeepSpeed accepts it without a "
        "word, except float16 at stage 0: `No inf checks were recorded for this optimizer`. Beside "
        "`bf16_master_weights_and_grads` nothing is said of bfloat16: no copy in fp32 is wanted there, and autocast "
        "still computes norms and the loss in it."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "bf16": {"enabled": true},
  "torch_autocast": {"enabled": true, "dtype": "bfloat16"}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "torch_autocast": {"enabled": true, "dtype": "bfloat16"}
}""",
    evidence=(
        "deepspeed/runtime/torch_autocast.py (0.19.8)",
        "probes P_bf16_autocast_bf16, Autocast_fp16dtype_bf16model, F16p_autocast_z2",
    ),
    check=check,
    since="0.17.2",
)
