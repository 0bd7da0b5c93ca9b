"""A step as a log has it beside the one that is predicted, and where the difference may be."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from dsgen.asking.memory_questions import Question
from dsgen.cost.steps import speed_interval
from dsgen.diagnosing.records import RunRecord
from dsgen.planning.candidates import Candidate

__all__ = ["Pace", "of_pace", "paced"]

_NEAR = 1.3  # a measured time within this factor of a micro-batch's is taken for one
_OUTSIDE = 0.2  # share of a step that no timer of DeepSpeed's sees, from which on it is worth a word
_LARGEST = 2  # parts of the predicted step that are named
_LEAST_PART = 0.05  # share of the predicted step below which a part is not worth a word


@attrs.frozen(kw_only=True)
class Pace:
    """A step as the log has it, beside the one that is predicted.

    Attributes:
        measured_seconds: One optimizer step.
        predicted_seconds: The same, as computed.
        low_seconds, high_seconds: Where nine of ten published runs lie.
    """

    measured_seconds: float
    predicted_seconds: float
    low_seconds: float
    high_seconds: float

    @property
    def slow(self) -> bool:
        """Whether it takes longer than is plausible for the job."""
        return self.measured_seconds > self.high_seconds


def paced(record: RunRecord, question: Question | None, now: Candidate | None) -> Pace | None:
    """The steps of a log beside those of a job; None without a job or times.

    Args:
        record: The log.
        question: The job that ran.
        now: Its strategy with its time; None where nobody knows that.
    """
    if question is None or now is None:
        return None
    measured, samples = record.time.step_seconds, record.time.samples_per_second
    if measured is None and samples:
        measured = question.strategy.global_batch / samples
    if measured is None:
        return None
    low, high = speed_interval(question.job, question.strategy)
    seconds = now.cost.seconds
    return Pace(
        measured_seconds=measured, predicted_seconds=seconds, low_seconds=seconds / high, high_seconds=seconds / low
    )


def of_pace(record: RunRecord, pace: Pace | None, question: Question | None, now: Candidate | None) -> Iterator[str]:
    """What a pace that is not as predicted may come from."""
    if pace is None or question is None or now is None:
        return
    steps = question.strategy.accumulation
    if pace.measured_seconds < pace.low_seconds:
        if steps > 1 and 1 / _NEAR < pace.measured_seconds * steps / pace.predicted_seconds < _NEAR:
            yield f"what the log counts is about one of the {steps} micro-batches of a step"
        return
    if not pace.slow:
        return
    parts = record.time.parts
    if parts:
        inside = (parts.get("forward", 0.0) + parts.get("backward", 0.0)) * steps + parts.get("step", 0.0)
        outside = pace.measured_seconds - inside
        if outside > _OUTSIDE * pace.measured_seconds:
            yield (
                f"DeepSpeed's timers see {inside:,.3g} s of a step: the other {outside:,.3g} s go to the data loader, "
                "logging, evaluation or saving"
            )
    whole = now.cost.seconds
    largest = sorted(now.cost.parts.items(), key=lambda part: -part[1])[:_LARGEST]
    told = [f"{name} {seconds / whole:.0%}" for name, seconds in largest if seconds >= _LEAST_PART * whole]
    if told:
        yield f"the predicted step is {', '.join(told)}"
