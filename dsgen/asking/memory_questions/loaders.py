"""What the program that trains decides of memory where nobody says it: how it loads the model, Liger's kernels."""

from __future__ import annotations

import attrs

from dsgen.frameworks.names import check_name
from dsgen.jobs.job import Job
from dsgen.jobs.releases import knows_liger_kernels, with_liger_kernels
from dsgen.memory.loading import LOADINGS_OF
from dsgen.shapes.layers import Rank

__all__ = ["for_program"]

_LOADING, _TRAINER = "training.loading", "hf-trainer"


def for_program(job: Job, target: str | None) -> Job:
    """The job as a program loads its model, where nobody says how; the Trainer patches it with all that Liger has.

    Source: transformers 5.23, integrations/liger.py: `use_liger_kernel` calls `_apply_liger_kernel_to_instance`, whose
    defaults are RoPE, norms, SwiGLU (GeGLU) and the chunked loss.

    Args:
        job: The job.
        target: The program, by the name that `--target` takes; None where it is not known.

    Raises:
        DsgenError: No such program.
    """
    if target is None:
        return job
    check_name(target)
    training = job.training
    patched = target == _TRAINER and training.chunked_loss and training.liger_kernels is None
    if patched and knows_liger_kernels(job.model, training.liger):
        told = attrs.evolve(training, liger_kernels=True)
        job = attrs.evolve(job, model=with_liger_kernels(job.model, training.liger), training=told)
    winner = job.provenance.winner(_LOADING)
    if winner is not None and winner.rank > Rank.DEFAULT:
        return job
    return attrs.evolve(job, training=attrs.evolve(job.training, loading=LOADINGS_OF[target]))
