"""Settings of pipeline parallelism that nothing reads."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]

_SECTION = "pipeline"
_NEVER = ("stages", "partition", "seed_layers")  # arguments of PipelineModule, taken from the config by nobody


def check(subject: Subject) -> Iterator[Fault]:
    """The section, where the program cannot hand over a PipelineModule; else the keys that even its engine leaves."""
    section = subject.section(_SECTION)
    if section and "zero_optimization" in subject.target.needed:
        message = f"pipeline does nothing: {subject.target.title} never makes a PipelineModule, which alone reads it"
        yield Fault(_SECTION, message, Fix("remove pipeline", (Remove(_SECTION),)))
        return
    for name in (key for key in _NEVER if key in section):
        message = f"nothing reads pipeline.{name}: a program gives it to PipelineModule; without one nothing is split"
        yield Fault(f"{_SECTION}.{name}", message, Fix(f"remove {name}", (Remove(f"{_SECTION}.{name}"),)))


RULE = Rule(
    code="DSG440",
    name="pipeline-unread",
    severity=Severity.WARNING,
    what="The config sizes a pipeline, which only the program can do.",
    why=(
        "Pipeline parallelism begins with deepspeed.pipe.PipelineModule(layers, num_stages=...). Its engine takes "
        "activation_checkpoint_interval, use_reentrant, pipe_partitioned and grad_partitioned from the config, not "
        "stages, partition or seed_layers; the plain engine reads none of the section."
    ),
    example='{"train_micro_batch_size_per_gpu": 1, "pipeline": {"stages": 2}}',
    instead='{"train_micro_batch_size_per_gpu": 1, "pipeline": {"activation_checkpoint_interval": 1}}',
    evidence=("deepspeed/runtime/pipe/engine.py (0.19.8): readers of config.pipeline", "probe Pipe_nothing"),
    check=check,
)
