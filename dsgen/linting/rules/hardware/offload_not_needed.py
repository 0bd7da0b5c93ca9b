"""Offload of what would fit on the GPU."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from dsgen.linting.meanings import batch
from dsgen.linting.rules.described import described
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity
from dsgen.shapes.units import gib

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """Optimizer or parameters offloaded where the same strategy fits without."""
    run = described(subject)
    if run is None or not subject.facts.seq_len:
        return
    from dsgen.memory import Verdict, estimate

    for what in ("optimizer", "param"):
        path = f"zero_optimization.offload_{what}"
        if getattr(run.strategy, f"offload_{what}") == "none" or not subject.written(path):
            continue
        optimizer = "none" if what == "optimizer" else run.strategy.offload_optimizer
        kept = attrs.evolve(run.strategy, offload_optimizer=optimizer, offload_param="none")
        gpu = estimate(run.job, kept).gpu
        if gpu.verdict is Verdict.FITS:
            fix = Fix(f"remove offload_{what}", (Remove(path),), safe=False)
            message = f"it fits without offload_{what}: up to {gib(gpu.high_bytes)} of {gib(gpu.limit_bytes)} GiB"
            assumed = "" if batch(subject, run.job.world)[0] else f" and micro-batch {run.strategy.micro_batch}"
            yield Fault(path, f"{message}, with activation checkpointing{assumed}", fix)
            return


RULE = Rule(
    code="DSG809",
    name="offload-not-needed",
    severity=Severity.INFO,
    what="Something is offloaded that the GPU has room for.",
    why=(
        "Offloaded states travel over PCIe and are updated by the CPU in every step. Where they fit on the GPU, "
        "the step is faster without."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "bf16": {"enabled": true},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "bf16": {"enabled": true},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
  "zero_optimization": {"stage": 2}
}""",
    evidence=("dsgen/memory for the sizes",),
    check=check,
    given={"hardware": "a100-80g", "model": "7b", "world_size": 8, "seq_len": 2048},
)
