"""Gradients reduced after the backward pass where the link is slow."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.described import Described, described, nodes, speed
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity
from dsgen.strategies.buffers import Buffers

__all__ = ["RULE", "check"]

_PATH = "zero_optimization.overlap_comm"
_WORTH = 1.05  # times faster with overlap: below it the cost model cannot tell
_FAST = ("nvlink", "xgmi")


def check(subject: Subject) -> Iterator[Fault]:
    """overlap_comm off, by default below stage 3, where more than NVLink joins the GPUs."""
    hardware, stage = subject.facts.hardware, subject.stage
    overlap = subject.value(_PATH)
    if hardware is None or hardware.vendor == "cpu" or not stage or overlap is True or (overlap is None and stage == 3):
        return
    between = nodes(subject) > 1
    if (subject.facts.world_size or hardware.gpus_per_node) == 1 or not (between or _slow(subject)):
        return
    run = described(subject)
    gain = speed(run, buffers=_overlapping(run)) if run is not None else None
    if gain is not None and gain < _WORTH:
        return
    link = "several nodes" if between else f"GPUs joined by {hardware.intra_node_link}"
    worth = f", about {gain:.2f} times slower than with it" if gain is not None else ""
    written = "off" if overlap is False else "not set, which means off at this stage"
    yield Fault(
        _PATH,
        f"overlap_comm is {written}: on {link} the gradients are sent after the backward pass{worth}",
        Fix("set overlap_comm to true", (Assign(_PATH, True),), safe=False),
    )


def _slow(subject: Subject) -> bool:
    hardware = subject.facts.hardware
    return hardware is not None and hardware.gpus_per_node > 1 and hardware.intra_node_link not in _FAST


def _overlapping(described: Described) -> Buffers:
    return described.strategy.buffers._replace(overlap_comm=True)


RULE = Rule(
    code="DSG806",
    name="no-overlap-on-a-slow-link",
    severity=Severity.WARNING,
    what="overlap_comm is off and the GPUs are joined by something slower than NVLink.",
    why=(
        "With overlap_comm the buckets of gradients go out while the backward pass still computes; it costs a "
        "second bucket of memory. Its default is true at stage 3 only."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "bf16": {"enabled": true},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
  "zero_optimization": {"stage": 2}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "bf16": {"enabled": true},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
  "zero_optimization": {"stage": 2, "overlap_comm": true}
}""",
    evidence=("deepspeed/runtime/zero/config.py (0.19.8), overlap_comm_valid; dsgen/cost for the times",),
    check=check,
    given={"hardware": "a100-40g", "world_size": 16},
)
