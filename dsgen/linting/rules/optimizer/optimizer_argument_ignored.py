"""An argument of the optimizer that DeepSpeed drops or overrules without a word."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.arguments import arguments, built_optimizer, unknown
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity
from dsgen.shapes.near_misses import alike

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """Every argument that is dropped or overruled."""
    built = built_optimizer(subject)
    if built is None:
        return
    params = arguments(subject, "optimizer")
    dropped = list(unknown(subject, "optimizer", built)) if built.drops else []
    for name in dropped:
        meant = next((other for other in alike(name, built.defaults) if other not in params), None)
        yield _fault(name, f"DeepSpeed drops {name}, which Muon does not take{f'; there is {meant}' if meant else ''}")
    if subject.optimizer in ("adam", "adamw"):
        if params.get("fp32_optimizer_states") is False and "CPU" not in built.title:
            yield _fault(
                "fp32_optimizer_states", f"{built.title} has no fp32_optimizer_states; only the CPU optimizers read it"
            )
        if subject.optimizer == "adamw" and params.get("adam_w_mode") is False:
            said = "type AdamW stays AdamW whatever adam_w_mode says; for L2 regularisation the type is Adam"
            yield _fault("adam_w_mode", said)


def _fault(name: str, said: str) -> Fault:
    path = f"optimizer.params.{name}"
    return Fault(path, said, Fix(f"remove {name}", (Remove(path),)))


RULE = Rule(
    code="DSG505",
    name="optimizer-argument-ignored",
    severity=Severity.WARNING,
    what="optimizer.params has an argument that changes nothing.",
    why=(
        "Muon takes only the arguments it knows and drops the others silently, so that a misspelt one trains with "
        "the default. fp32_optimizer_states is read by the CPU optimizers alone, and adam_w_mode only with type "
        "Adam: AdamW is AdamW whatever it says."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "Muon", "params": {"lr": 0.001, "nesterov": true}},
  "zero_optimization": {"stage": 2},
  "bf16": {"enabled": true}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "Muon", "params": {"lr": 0.001, "momentum": 0.95}},
  "zero_optimization": {"stage": 2},
  "bf16": {"enabled": true}
}""",
    evidence=(
        "deepspeed/runtime/engine.py (0.19.8): _muon_param_groups, get_optimizer_configuration",
        "probes OPT_Muon_unkparam, Muon_nesterov_ignored",
    ),
    check=check,
)
