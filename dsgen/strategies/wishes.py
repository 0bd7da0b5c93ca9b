"""Wishes for a model that are refused whatever the strategy: said before one is looked for."""

from __future__ import annotations

import attrs

from dsgen.families.parameters import adapters
from dsgen.jobs.job import Job
from dsgen.shapes.errors import DsgenError, mistake
from dsgen.shapes.layers import show
from dsgen.shapes.profiles import Model, Training
from dsgen.strategies.constraints import WISHES, Constraint, Setup, refusals

__all__ = ["adaptable", "check_batch", "check_wishes", "refused"]


def check_wishes(job: Job) -> None:
    """Refuse what no layout mends.

    Raises:
        DsgenError: The first wish of `dsgen.strategies.constraints.WISHES` that is refused, and where it was written.
    """
    at = _of_model(job.model, job.training)._replace(version=job.version)
    if item := next(refusals(at, WISHES), None):
        raise refused(item, at, job.provenance.where(f"training.{item.about}"))


def check_batch(job: Job) -> None:
    """Refuse a wished global batch that the GPUs cannot share; AutoTP could, but nobody asks for it this way.

    Raises:
        DsgenError: With the nearest batches, and a number of GPUs that it divides among.
    """
    total = job.training.global_batch
    if total is None or total % job.world == 0 or any(pin.field in ("tp", "train_batch") for pin in job.pins):
        return
    below = total // job.world * job.world
    near = f"{below} or {below + job.world}" if below else f"{job.world}"
    full = job.hardware.gpus_per_node
    counts = (count for count in range(job.world, 0, -1) if total % count == 0 and (count <= full or count % full == 0))
    fewer = next(counts)
    nodes = f" --nodes {-(-fewer // full)}" if job.nodes > 1 else ""
    raise mistake(
        f"a global batch of {total} does not divide among {job.world} GPUs",
        must=f"it must be a multiple of {job.world}, such as {near}",
        where=job.provenance.where("training.global_batch"),
        todo=f"Or take a number of GPUs that divides it: --gpus {fewer}{nodes}.",
        code="contradiction",
    )


def refused(item: Constraint, at: Setup, where: object = None) -> DsgenError:
    """The mistake that a constraint makes of a way to run: what was said, the sentence, what helps."""
    wished = hasattr(at.training, item.about)
    value = getattr(at.training if wished else at, item.about)
    name = f"training.{item.about}" if wished else item.about
    return mistake(f"{name} is {show(value)}", must=item.says(at), where=where, todo=item.helps(at), code="refused")


def adaptable(model: Model, training: Training) -> bool:
    """Whether peft takes the adapters that somebody wishes, should he train any, and dsgen counts them."""
    try:
        adapters(model, training.lora_rank, training.lora_targets)
    except DsgenError:  # they name no matrix of this model
        return False
    trained = training if training.method != "full" else attrs.evolve(training, method="lora")
    return next(refusals(_of_model(model, trained), WISHES), None) is None


def _of_model(model: Model, training: Training) -> Setup:
    return Setup(training=training, model=model, architecture=model.architecture)
