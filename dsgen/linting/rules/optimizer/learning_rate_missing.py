"""An optimizer without a learning rate, which gets the default of its class."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dsgen.deepspeed.keys import say
from dsgen.linting.rules.arguments import arguments, built_optimizer, peak, unknown
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]

_MUON = "trains with Muon's defaults, 0.02 for matrices and 0.0003 for the rest"  # original_muon.py (0.19.8)


def check(subject: Subject) -> Iterator[Fault]:
    """The missing lr, where the schedule does not set it either."""
    built = built_optimizer(subject)
    params = arguments(subject, "optimizer")
    if built is None or not isinstance(subject.raw("optimizer.params") or {}, Mapping):
        return
    if "lr" in params or subject.written("optimizer.lr") or ("muon_lr" in params and "adam_lr" in params):
        return
    if any(unknown(subject, "optimizer", built)) and not built.drops:
        return  # the unknown argument, which stops DeepSpeed, may well be the learning rate
    schedule_peak = peak(subject)
    if schedule_peak is None or not subject.written(schedule_peak[0]):
        rate = f"trains with {built.title}'s default {say(built.defaults['lr'])}" if built.defaults.get("lr") else _MUON
        yield Fault("optimizer.params.lr", f"the config sets no learning rate, and DeepSpeed {rate}")


RULE = Rule(
    code="DSG523",
    name="learning-rate-missing",
    severity=Severity.WARNING,
    what="Nothing in the config sets a learning rate.",
    why=(
        "DeepSpeed builds the optimizer with the default of its class, 0.001 for Adam and Lion, 0.01 for Adagrad, "
        "without a word. For fine-tuning that is far too high."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW"},
  "zero_optimization": {"stage": 2}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2}
}""",
    evidence=(
        "deepspeed/runtime/engine.py (0.19.8): _configure_basic_optimizer",
        "probes OPT_nolr, OPT_noparams",
    ),
    check=check,
)
