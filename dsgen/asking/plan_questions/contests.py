"""Named strategies of one job side by side, and the planner's own choice beside them."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from dsgen.asking.memory_questions import ask
from dsgen.asking.plan_questions.named_strategies import named, pinned
from dsgen.asking.plan_questions.weighing import weigh
from dsgen.deepspeed.keys import lookup
from dsgen.jobs.job import Job
from dsgen.memory import Verdict
from dsgen.planning.candidates import Candidate
from dsgen.planning.planner import plan
from dsgen.shapes.errors import DsgenError, mistake
from dsgen.strategies.constraints import keys, of_layout, refusals

__all__ = ["PLANNED", "Contest", "Contestant", "contest"]

PLANNED = "planned"  # the name of the planner's own choice
MOST = 12  # strategies at once; more is no comparison


@attrs.frozen(kw_only=True)
class Contestant:
    """One strategy of a comparison.

    Attributes:
        name: As it was said; PLANNED for the planner's choice.
        candidate: What is run, with its estimates; None where it cannot run.
        refused: Why it cannot run; "" where it can.
        notes: What a person should know of it beside the numbers.
    """

    name: str
    candidate: Candidate | None = None
    refused: str = ""
    notes: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether it runs and surely fits."""
        return self.candidate is not None and self.candidate.memory.verdict is Verdict.FITS


@attrs.frozen(kw_only=True)
class Contest:
    """Strategies side by side.

    Attributes:
        job: What they are strategies of.
        contestants: Those that were named, in their order, and the planner's choice where it is none of them.
        planned: The name of the one that the planner takes; "" where it finds none.
    """

    job: Job = attrs.field(repr=False)
    contestants: tuple[Contestant, ...]
    planned: str

    @property
    def fastest(self) -> Contestant | None:
        """The fastest that surely fits."""
        return max((one for one in self.contestants if one.fits), key=_speed, default=None)

    @property
    def verdict(self) -> Verdict:
        """The best verdict of those that were named."""
        verdicts = {
            one.candidate.memory.verdict
            for one in self.contestants
            if one.candidate is not None and one.name != PLANNED
        }
        return next((one for one in (Verdict.FITS, Verdict.UNCERTAIN) if one in verdicts), Verdict.DOES_NOT_FIT)


def contest(job: Job, names: Sequence[str]) -> Contest:
    """Named strategies of a job side by side.

    Args:
        job: The job; what its pins say holds where a name says nothing else.
        names: Strategies in the words of `named_strategies.GRAMMAR`.

    Raises:
        DsgenError: A name that is none, the same one twice, or none at all.
    """
    if not names:
        raise mistake("no strategy is named", must="a comparison needs one at least", code="missing")
    if len(names) > MOST:
        raise mistake(f"{len(names)} strategies", must=f"at most {MOST} are compared", todo="Leave some out.")
    said = [named(name) for name in names]
    for place, one in enumerate(said):
        if one in said[:place]:
            twin = names[said.index(one)]
            raise mistake(f"{twin} and {names[place]} are one strategy", todo="Drop one.", code="contradiction")
    told = [_contestant(name, pinned(job, one)) for name, one in zip(names, said, strict=True)]
    own = _planned(job)
    twin = next((one.name for one in told if own is not None and one.candidate == own.candidate), "")
    if own is not None and not twin:
        told.append(own)
    return Contest(job=job, contestants=tuple(told), planned=twin or (PLANNED if own is not None else ""))


def _speed(one: Contestant) -> float:
    return one.candidate.speed if one.candidate is not None else 0.0


def _contestant(name: str, job: Job) -> Contestant:
    try:
        question = ask(attrs.evolve(job, warnings=()))
        at = of_layout(job, question.strategy, keys(lambda path: lookup(job.deepspeed, path)[1]))
        stopping = next((item for item in refusals(at) if item.fatal), None)
        if stopping is not None:
            return Contestant(name=name, refused=stopping.says(at))
        return Contestant(name=name, candidate=weigh(job, question.strategy), notes=question.notes)
    except DsgenError as error:
        return Contestant(name=name, refused="; ".join(filter(None, (error.what, error.must))))


def _planned(job: Job) -> Contestant | None:
    try:
        return Contestant(name=PLANNED, candidate=plan(job).chosen)
    except DsgenError:  # nothing fits, or the job itself cannot run: each of the named ones says why
        return None
