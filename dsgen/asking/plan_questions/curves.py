"""What people would rather look at: the best plan over GPUs, network and length around what was asked."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from dsgen.asking.plan_questions.what_ifs import WhatIf, what_if
from dsgen.jobs.job import Job
from dsgen.jobs.scenarios import Scenario
from dsgen.shapes.errors import DsgenError

__all__ = ["curves"]

AROUND = (0.25, 0.5, 1, 2, 4)  # times what was asked
SHORTEST, MOST_GPUS = 256, 4096  # tokens; GPUs
NETWORKS = (
    "ethernet-10g", "ethernet-25g", "ethernet-100g", "ib-hdr-200g", "ib-ndr-400g", "ib-hdr-1600g", "ib-ndr-3200g",
)  # fmt: skip


def curves(scenario: Scenario, job: Job) -> Iterator[WhatIf]:
    """The best plans over each field that has others; what has a plan for one value alone is left out.

    Args:
        scenario: What was said.
        job: The job of it.
    """
    gpus = [round(job.world * share) for share in AROUND if 1 <= job.world * share <= MOST_GPUS]
    longest = max(job.model.max_positions, job.seq_len)
    lengths = [round(job.seq_len * share) for share in AROUND if SHORTEST <= job.seq_len * share <= longest]
    networks = NETWORKS if job.nodes > 1 else ()
    for field, values in (("gpus", gpus), ("network", networks), ("seq_len", lengths)):
        if len(values) > 1:
            try:
                answer = what_if(_free(scenario) if field == "gpus" else scenario, field, values, turning=False)
            except DsgenError:  # no value has a plan
                continue
            if sum(case.plan is not None for case in answer.cases) > 1:
                yield answer


def _free(scenario: Scenario) -> Scenario:
    """The scenario with as many nodes as its GPUs need, whatever was said of them."""
    below = _free(scenario.below) if scenario.below is not None else None
    fields = {name: value for name, value in scenario.fields.items() if name != "nodes"}
    return attrs.evolve(scenario, fields=fields, below=below)
