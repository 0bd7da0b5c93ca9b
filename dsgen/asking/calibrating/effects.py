"""What the measurements of a machine change: what a plan would be without them."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from dsgen.jobs.job import Job
from dsgen.planning.planner import Plan, plan
from dsgen.shapes.errors import DsgenError

__all__ = ["Consequence", "basis", "effect"]

_FACTS = {"step_time_ratio": "step time", "peak_memory_ratio": "peak memory"}


@attrs.frozen(kw_only=True)
class Consequence:
    """What the measurements of a machine do to a plan.

    Attributes:
        step_time_ratio, peak_memory_ratio: What is multiplied by; None where nobody measured.
        basis: What they rest on, for a person, with the files that say it.
        now: The strategy with them.
        without: The strategy without them; None where nothing would fit.
    """

    step_time_ratio: float | None
    peak_memory_ratio: float | None
    basis: str
    now: str
    without: str | None

    @property
    def changed(self) -> bool:
        """Whether the plan is another one."""
        return self.now != self.without

    @property
    def words(self) -> str:
        """One sentence for a person."""
        if not self.changed:
            return f"{self.basis}; plan not changed"
        if self.without is None:
            return f"{self.basis}; without it nothing fits"
        return f"{self.basis}; plan changed from {self.without} to {self.now}"


def basis(job: Job) -> str:
    """What the ratios of a job's hardware rest on, with the file and line that say it: "calibrated: measured ..."."""
    return f"calibrated: {', '.join(_said(job))}"


def _said(job: Job) -> Iterator[str]:
    for fact, words in _FACTS.items():
        ratio = getattr(job.hardware, fact)
        if ratio is None:
            continue
        winner = job.provenance.winner(f"hardware.{fact}")
        why = winner.reason if winner is not None and winner.reason else words
        where = f" ({winner.origin})" if winner is not None else ""
        yield f"{why}, x {ratio:.3g}{where}"


def effect(planned: Plan) -> Consequence:
    """What a plan would be without the measurements of its machine.

    One ratio of time makes every strategy as much slower, so that it changes no choice; memory may.
    """
    job, hardware = planned.job, planned.job.hardware
    now = str(planned.chosen.strategy)
    without: str | None = now
    if hardware.peak_memory_ratio is not None:
        bare = attrs.evolve(job, hardware=attrs.evolve(hardware, peak_memory_ratio=None))
        try:
            without = str(plan(bare).chosen.strategy)
        except DsgenError:
            without = None
    return Consequence(
        step_time_ratio=hardware.step_time_ratio,
        peak_memory_ratio=hardware.peak_memory_ratio,
        basis=basis(job),
        now=now,
        without=without,
    )
