"""The hybrid engine without a GPU."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.families import FAMILIES
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]

_PATH = "hybrid_engine.enabled"


def check(subject: Subject) -> Iterator[Fault]:
    """The switch on a CPU; an error where the model is known to be of a family whose blocks it replaces."""
    if subject.facts.accelerator != "cpu" or not subject.on("hybrid_engine"):
        return
    model = subject.facts.model
    family = FAMILIES.get(model.architecture) if model is not None else None
    if model is not None and (family is None or not family.hybrid):
        return
    which = "" if model is not None else " where the model is a Llama, GPT-2 or GPT-J"
    message = (
        f"{_PATH} needs DeepSpeed's inference kernels, which the CPU backend lacks: deepspeed.initialize stops{which}"
    )
    fix = Fix("switch hybrid_engine off", (Assign(_PATH, False),), safe=False)
    yield Fault(_PATH, message, fix, None if model is not None else Severity.WARNING)


RULE = Rule(
    code="DSG716",
    name="hybrid-engine-needs-gpu",
    severity=Severity.ERROR,
    what="The hybrid engine is on where DeepSpeed runs on the CPU.",
    why=(
        "It replaces the blocks of Llama, GPT-2 and GPT-J by inference kernels, which exist for GPUs only: "
        "`ValueError: This op had not been implemented on CPU backend`. Other models train on as with the plain "
        "engine. It is an error where the model is known."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "hybrid_engine": {"enabled": true}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1
}""",
    evidence=(
        "deepspeed/runtime/hybrid_engine.py (0.19.8): populate_all_inference_policies",
        "deepspeed/ops/transformer/inference/op_binding/base.py (0.19.8)",
        "run on a CPU with tiny models of 13 families, transformers 5.23.0",
    ),
    check=check,
    given={"accelerator": "cpu"},
)
