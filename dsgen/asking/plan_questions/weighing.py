"""An exact strategy with its estimates of time and memory, whether it fits or not."""

from __future__ import annotations

from dsgen.asking.memory_questions.scenario_questions import ask
from dsgen.cost import cost
from dsgen.jobs.job import Job
from dsgen.memory import parts
from dsgen.planning.candidates import Candidate
from dsgen.planning.planner import Plan, plan
from dsgen.shapes.errors import DsgenError, mistake
from dsgen.strategies.strategies import Strategy, best_precision

__all__ = ["plan_all_the_same", "weigh"]


def plan_all_the_same(job: Job) -> tuple[Plan, DsgenError | None]:
    """A job's plan; where nothing has room, that of what comes nearest, as `dsgen memory` counts it, and the error."""
    try:
        return plan(job), None
    except DsgenError as error:
        if error.code != "does-not-fit":
            raise
        try:
            nearest = ask(job).strategy
        except DsgenError:
            raise error from None
        return Plan(job=job, chosen=weigh(job, nearest), reason="what comes nearest: nothing fits"), error


def weigh(job: Job, strategy: Strategy) -> Candidate:
    """A strategy of a job as a plan's candidates are, though no search came upon it.

    Raises:
        DsgenError: A dtype that the GPU has no units for: torch emulates it, and nobody knows how fast.
    """
    hardware = job.hardware
    has = {"bf16": hardware.bf16_flops_per_second, "fp16": hardware.fp16_flops_per_second}
    if not has.get(strategy.precision, 1.0):
        raise mistake(
            f"{strategy.precision} on {job.names.get('hardware', 'this GPU')}",
            must="it has no units for it: torch emulates it, and nobody knows how fast",
            todo=f"For the speed in another dtype say --precision {best_precision(job)} beside it.",
            code="refused",
        )
    counted = parts(job, strategy, strategy.buffers, strategy.accumulation)
    return Candidate(strategy=strategy, spent=cost(job, strategy), job=job, parts=counted)
