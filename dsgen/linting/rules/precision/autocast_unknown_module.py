"""A module class for autocast that torch does not have."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.deepspeed.keys import say
from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.torch_modules import TORCH_NN
from dsgen.linting.rules.values import counts_as_true
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity
from dsgen.shapes.near_misses import alike

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """Every name that is no full one, or one of torch.nn that torch 2.13 does not have."""
    path = "torch_autocast.lower_precision_safe_modules"
    names = subject.raw(path)
    if not counts_as_true(subject, "torch_autocast.enabled") or not isinstance(names, list):
        return
    for index, name in enumerate(names):
        if not isinstance(name, str):
            said = f"{say(name)} is no text, and the parse stops; it must be the full name of a class"
            yield Fault(path, said, on="value")
            continue
        package, _, last = name.rpartition(".")
        known = last in TORCH_NN
        if not {"": True, "nn": True, "torch": known, "torch.nn": not known}.get(package, False):
            continue
        meant = last if known else next(iter(alike(last, TORCH_NN)), None)
        full = f"torch.nn.{meant}"
        mended = [*names[:index], full, *names[index + 1 :]]
        fix = Fix(f"write {full}", (Assign(path, mended),), safe=meant == last) if meant else None
        said = f"DeepSpeed cannot import {name} and stops; it must be the full name of a class"
        yield Fault(path, f"{said}, such as {full}" if meant else said, fix, on="value")


RULE = Rule(
    code="DSG619",
    name="autocast-unknown-module",
    severity=Severity.ERROR,
    what="torch_autocast.lower_precision_safe_modules names something that cannot be imported.",
    why=(
        "DeepSpeed imports every name, which must be a full one such as torch.nn.Linear; at an unknown one "
        "deepspeed.initialize stops."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "torch_autocast": {
    "enabled": true,
    "dtype": "bfloat16",
    "lower_precision_safe_modules": ["Linear"]
  }
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "torch_autocast": {
    "enabled": true,
    "dtype": "bfloat16",
    "lower_precision_safe_modules": ["torch.nn.Linear"]
  }
}""",
    evidence=(
        "deepspeed/runtime/torch_autocast.py (0.19.8): init_autocast_params",
        "probe P_autocast_badmodule",
    ),
    check=check,
    shows=("Failed to import lower precision safe module",),
    since="0.17.2",
)
