"""Stage 3 over a slow network where stage 2 would do."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from dsgen.linting.meanings import batch
from dsgen.linting.rules.described import described, nodes, speed
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]

_HPZ = "zero_optimization.zero_hpz_partition_size"
_WORTH = 1.3  # times faster from which it is said; the cost model is surer of an order than of a number


def check(subject: Subject) -> Iterator[Fault]:
    """Stage 3 on several nodes, against stage 2 and against hpZ."""
    run = described(subject)
    if run is None or subject.stage != 3 or nodes(subject) < 2 or subject.value(_HPZ) != 1:
        return
    from dsgen.memory import Verdict, estimate

    if run.strategy.offload_param != "none" or run.strategy.offload_optimizer == "nvme":
        return
    lower = attrs.evolve(run.strategy, stage=2)
    gain = speed(run, stage=2)
    if gain is None or gain < _WORTH:
        return
    path = "zero_optimization.stage"
    start = f"stage 3 gathers every weight over the network in each pass, about {gain:.1f} times slower than stage 2"
    if subject.facts.seq_len and estimate(run.job, lower).gpu.verdict is Verdict.FITS:
        fix = Fix("use stage 2", (Assign(path, 2),), safe=False)
        if batch(subject, run.job.world)[0]:
            yield Fault(path, f"{start}, which fits", fix)
        else:  # a larger one may need stage 3, and hides more of the gathers
            yield Fault(path, f"{start}, which fits with micro-batch {run.strategy.micro_batch}", fix, Severity.INFO)
    else:
        size = run.job.gpus_per_node
        fix = Fix(f"partition within a node: hpZ {size}", (Assign(_HPZ, size),), safe=False)
        message = f"{start}; zero_hpz_partition_size {size} keeps the gathers of the backward pass within a node"
        yield Fault(path, message, fix, Severity.INFO)


RULE = Rule(
    code="DSG810",
    name="stage-3-on-a-slow-network",
    severity=Severity.WARNING,
    what="Stage 3 spends most of a step on gathering weights over the network.",
    why=(
        "Stage 3 sends the weights twice and the gradients once per micro-batch; stage 2 sends gradients alone, "
        "and weights once per step. On a slow network that decides the speed. Where stage 2 does not fit, hpZ "
        "keeps a second copy of the weights in each node and halves the traffic."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "bf16": {"enabled": true},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
  "zero_optimization": {"stage": 3}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "bf16": {"enabled": true},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
  "zero_optimization": {"stage": 2, "overlap_comm": true}
}""",
    evidence=("dsgen/cost/communication.py; ZeRO++ (arXiv 2306.10209) for hpZ",),
    check=check,
    given={"hardware": "a100-80g", "model": "7b", "network": "ethernet-10g", "world_size": 16, "seq_len": 2048},
)
