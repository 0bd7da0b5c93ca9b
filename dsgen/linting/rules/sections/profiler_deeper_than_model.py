"""A profile of more levels of modules than a model has."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]

_PATH = "flops_profiler.module_depth"
_LEVELS = 6  # of Hugging Face's Llama: model, decoder, list of layers, layer, attention, projection


def check(subject: Subject) -> Iterator[Fault]:
    """The depth, where the profiler is on."""
    depth = subject.value(_PATH)
    if not subject.on("flops_profiler") or isinstance(depth, bool) or not isinstance(depth, int) or depth <= _LEVELS:
        return
    message = (
        f"{_PATH} is {depth:.6g}, and a Llama has {_LEVELS} levels of modules: DeepSpeed stops as it prints the "
        "profile of a model with fewer; it must be at most what the model has, or -1 for all"
    )
    yield Fault(_PATH, message, Fix("write -1, for all levels", (Assign(_PATH, -1),), safe=False), on="value")


RULE = Rule(
    code="DSG717",
    name="profiler-deeper-than-model",
    severity=Severity.WARNING,
    what="flops_profiler.module_depth is more than the levels of modules that most models have.",
    why=(
        "The profiler prints the levels from 0 up to the one that is named and does not ask whether the model has "
        "them: the first step that is profiled dies with a KeyError of the first level that is not there. A mixture of "
        "experts has two levels more than a Llama, adapters of peft up to four."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "flops_profiler": {"enabled": true, "module_depth": 20}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "flops_profiler": {"enabled": true, "module_depth": -1}
}""",
    evidence=(
        "deepspeed/profiling/flops_profiler/profiler.py (0.19.8): print_model_aggregated_profile",
        "DeepSpeed 0.19.8 run with 6, 7 and 30 levels of a Llama",
    ),
    check=check,
    shows=(r"KeyError: \d+",),
)
