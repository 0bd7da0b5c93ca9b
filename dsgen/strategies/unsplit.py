"""What AutoTP does not train, and why: model types that it does not split, and adapters."""

from __future__ import annotations

from dsgen.families import family_of
from dsgen.jobs.job import Job

__all__ = ["unsplit"]


def unsplit(job: Job) -> str | None:
    """Why AutoTP does not run for what a job trains, or gives it nothing; None where it does."""
    model, training = job.model, job.training
    if refused := family_of(model).autotp.refused:
        return refused.format(model.architecture)
    if training.method != "full":
        return "AutoTP splits the layers under peft's adapters, and their weights are lost to the optimizer (0.19.8)"
    return None
