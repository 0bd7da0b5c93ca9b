"""Some GPUs of a node that a profile describes whole: a smaller machine that has as many has less RAM."""

from __future__ import annotations

from dsgen.jobs.job import Job
from dsgen.memory import Place
from dsgen.shapes.units import gib

__all__ = ["counts_on_a_whole_node"]

_BUILT_IN = "profiles/"  # where a fact of a built-in profile was written; another profile is of a machine that is there


def counts_on_a_whole_node(job: Job, host: Place) -> str | None:
    """What to say of a run on some GPUs of a node that takes more than their share of its RAM; None of another."""
    full, used = job.hardware.gpus_per_node, job.gpus_per_node
    fact = job.provenance.winner("hardware.host_memory")
    if used >= full or fact is None or not fact.origin.source.startswith(_BUILT_IN):
        return None
    share = host.limit_bytes * used // full
    if host.needed_bytes <= share:
        return None
    there = (
        f"the {gib(host.limit_bytes)} are of a node with {full} GPUs, {gib(share)} for {'one' if used == 1 else used}"
    )
    return f"{gib(host.needed_bytes)} GiB of RAM are counted on: {there}; say yours with --host-memory"
