"""What the program that trains decides of memory where nobody says it: how it loads the model."""

from __future__ import annotations

import attrs

from dsgen.frameworks.names import check_name
from dsgen.jobs.job import Job
from dsgen.memory.loading import LOADINGS_OF
from dsgen.shapes.layers import Rank

__all__ = ["for_program"]

_LOADING = "training.loading"


def for_program(job: Job, target: str | None) -> Job:
    """The job as a program loads its model, where nobody says how.

    Args:
        job: The job.
        target: The program, by the name that `--target` takes; None where it is not known.

    Raises:
        DsgenError: No such program.
    """
    if target is None:
        return job
    check_name(target)
    winner = job.provenance.winner(_LOADING)
    if winner is not None and winner.rank > Rank.DEFAULT:
        return job
    return attrs.evolve(job, training=attrs.evolve(job.training, loading=LOADINGS_OF[target]))
