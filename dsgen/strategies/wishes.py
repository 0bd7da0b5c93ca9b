"""Wishes for a model that are refused whatever the strategy: said before one is looked for."""

from __future__ import annotations

from dsgen.families.parameters import adapts
from dsgen.jobs.job import Job
from dsgen.shapes.errors import DsgenError, mistake
from dsgen.shapes.layers import show
from dsgen.shapes.profiles import Model, Training
from dsgen.strategies.constraints import WISHES, Constraint, Setup, refusals

__all__ = ["allowed", "check_wishes", "refused"]


def check_wishes(job: Job) -> None:
    """Refuse what no layout mends.

    Raises:
        DsgenError: The first wish of `dsgen.strategies.constraints.WISHES` that is refused, and where it was written.
    """
    at = _of_model(job.model, job.training)._replace(version=job.version, hardware=job.hardware)
    if item := next(refusals(at, WISHES), None):
        raise refused(item, at, job.provenance.where(f"training.{item.about}"))


def refused(item: Constraint, at: Setup, where: object = None) -> DsgenError:
    """The mistake that a constraint makes of a way to run: what was said, the sentence, what helps."""
    wished = hasattr(at.training, item.about)
    value = getattr(at.training if wished else at, item.about)
    name = f"training.{item.about}" if wished else item.about
    return mistake(f"{name} is {show(value)}", must=item.says(at), where=where, todo=item.helps(at), code="refused")


def allowed(model: Model, training: Training) -> bool:
    """Whether nobody refuses what somebody wishes for a model; its adapters too, should he train any."""
    adapters = training.method == "full" or adapts(model, training.lora_targets)
    return adapters and next(refusals(_of_model(model, training), WISHES), None) is None


def _of_model(model: Model, training: Training) -> Setup:
    return Setup(training=training, model=model, architecture=model.architecture)
