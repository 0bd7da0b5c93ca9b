"""What would make a strategy faster: each change costed, those that surely fit and gain something kept, best first."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

import attrs

from dsgen.asking.memory_questions.counterfactuals import Change, counterfactuals
from dsgen.asking.memory_questions.questions import Question
from dsgen.asking.plan_questions.ideas import Idea, ideas, laid_out
from dsgen.asking.plan_questions.misread_keys import misread_keys
from dsgen.asking.plan_questions.rewrites import rewrites
from dsgen.asking.plan_questions.weighing import weigh
from dsgen.cost import cost
from dsgen.linting.config_reader import place
from dsgen.memory import MemoryEstimate, Verdict, estimate
from dsgen.planning.candidates import ENOUGH, Candidate, sized
from dsgen.planning.launchers import best_launcher, how_to_start, starting_words, threads_matter
from dsgen.planning.planner import plan
from dsgen.planning.program_changes import program_changes
from dsgen.shapes.errors import DsgenError
from dsgen.shapes.findings import Finding
from dsgen.shapes.layers import Origin, Override, Rank
from dsgen.shapes.pins import Pin
from dsgen.strategies.strategies import Layout, Strategy

__all__ = ["LEAST_GAIN", "Speedup", "Speedups", "speedups"]

STARTED_GAIN = 0.05  # the same of another launcher
PROGRAMMED_GAIN = 0.10  # the same of what a program does otherwise, as beside a plan
_PROGRAMMED = ("attention", "chunked_loss", "transformers")  # of those what leaves the config as it is
LEAST_GAIN = 0.02  # of the speed: a change that gains less is not worth a person's time
MOST_CLIMBED = 8  # changes that are made one after the other


@attrs.frozen(kw_only=True)
class Speedup:
    """One change, or several together, that make it faster and surely fit; or one that was tried, and does not.

    Attributes:
        words: What changes, for a person, a sentence for each difference.
        keys: DeepSpeed's key -> the value to write; None where it is to be left out.
        programs: What the program must do besides.
        where: DeepSpeed's key -> where the config says it now, "ds.json:7"; only those that a file writes.
        names: DeepSpeed's key -> what the file calls it that the config is a part of, or is made from: Accelerate's
            deepspeed_config.zero_stage; None where it has no word for it.
        after: What is run then, with its estimates.
        gain: Speed beside what it is now, less one: 0.25 is a quarter faster.
    """

    words: tuple[str, ...]
    keys: Mapping[str, Any]
    programs: tuple[str, ...]
    where: Mapping[str, str]
    after: Candidate
    gain: float
    names: Mapping[str, str | None] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class Speedups:
    """A strategy as it is, and what would make it faster.

    Attributes:
        question: The job, the strategy, and who said what.
        now: The strategy with its estimates.
        changes: Each alone, the one that gains most first; of one kind the best.
        together: The fastest of several changes at once: the best made one after the other, or what a plan would
            take; None where no number of them gains more than one alone.
        tried: Of each kind that is not among the changes the fastest: it gains less than LEAST_GAIN, or does not surely
            fit; the one that gains most first, and then what a program does otherwise.
    """

    question: Question
    now: Candidate
    changes: tuple[Speedup, ...]
    together: Speedup | None
    tried: tuple[Speedup, ...]

    @property
    def ways(self) -> tuple[Change, ...]:
        """The smallest changes with which it surely fits, whatever they cost; empty where it does."""
        return () if self.verdict is Verdict.FITS else counterfactuals(self.question).changes

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What of the config is not as written."""
        asked = self.question
        loads = asked.arguments.loads if asked.arguments is not None else ()
        return misread_keys(asked.subject, loads) if asked.subject is not None else ()

    @property
    def verdict(self) -> Verdict:
        """Whether it fits as it is."""
        return self.now.memory.verdict


def speedups(question: Question) -> Speedups:
    """What would make the strategy of a question faster: computed for each change, not judged by rules of thumb."""
    now = weigh(question.job, question.strategy)
    best = _best(question, now.strategy)
    changes = _ordered(best.values())
    several = _together(question, changes)
    together = _told(question, now, several) if several is not None else None
    alone = [*_alone([_told(question, now, changed) for changed in changes])]
    programmed = list(_programmed(question, now))
    alone += [*_started(question, now), *(one for one in programmed if _surely(one))]
    if together is not None and together.gain <= max((one.gain for one in alone), default=0.0):
        together = None  # another launcher or program alone gains more
    return Speedups(
        question=question,
        now=now,
        changes=tuple(sorted(alone, key=lambda one: -one.gain)),
        together=together,
        tried=(
            *(_told(question, now, other) for other in _tried(question, now.strategy, set(best))),
            *(one for one in programmed if not _surely(one)),
        ),
    )


def _surely(change: Speedup) -> bool:
    return change.after.memory.verdict is Verdict.FITS


def _started(question: Question, now: Candidate) -> Iterator[Speedup]:
    """Another launcher, where Adam on the host waits for cores that a rank does not have."""
    job, launcher = question.job, best_launcher(question.job)
    if job.training.launcher in ("bound", launcher) or not threads_matter(job, now.strategy):
        return
    other = attrs.evolve(job, training=attrs.evolve(job.training, launcher=launcher))
    after = weigh(other, now.strategy)
    gain = after.speed / now.speed - 1
    if gain >= STARTED_GAIN:
        yield Speedup(
            words=(f"Adam on the host: {starting_words(other)}",),
            keys={},
            programs=(f"{how_to_start(other)} (beside dsgen plan: --launcher {launcher})",),
            where={},
            after=after,
            gain=gain,
        )


def _programmed(question: Question, now: Candidate) -> Iterator[Speedup]:
    """What a program could do otherwise with the config as it is, and train the same."""
    for change in program_changes(question.job):
        if change.field not in _PROGRAMMED:
            continue
        after = weigh(change.applied(question.job), now.strategy)
        gain = after.speed / now.speed - 1
        if gain >= PROGRAMMED_GAIN:
            words = (f"{change.option}, {change.words}",)
            yield Speedup(words=words, keys={}, programs=(), where={}, after=after, gain=gain)


def _best(question: Question, start: Strategy) -> dict[str, tuple[float, Strategy]]:
    """Of each kind the change of a start that gains most, with its speed, where it gains enough and surely fits."""
    best: dict[str, tuple[float, Strategy]] = {}
    least = _speed(question, start) * (1 + LEAST_GAIN)
    for idea in ideas(question, start):
        changed = _sized(question, start, idea, max(least, best.get(idea.kind, (0.0,))[0]))
        if changed is not None:
            best[idea.kind] = (_speed(question, changed), changed)
    return best


def _ordered(changes: Iterable[tuple[float, Strategy]]) -> list[Strategy]:
    """Strategies with their speeds, the fastest first."""
    return [changed for _, changed in sorted(changes, key=lambda pair: -pair[0])]


def _tried(question: Question, start: Strategy, offered: Container[str]) -> list[Strategy]:
    """Of each kind of which nothing is offered the fastest change, whether it fits or not."""
    most: dict[str, tuple[float, Strategy]] = {}
    for idea in ideas(question, start):
        if idea.kind in offered:
            continue
        for size in idea.sizes:
            other = _at(question, start, idea.strategy, size)
            speed = _speed(question, other)
            if speed > most.get(idea.kind, (0.0,))[0]:
                most[idea.kind] = (speed, other)
    return _ordered(most.values())


def _alone(told: list[Speedup]) -> Iterator[Speedup]:
    """Those without what another of them gains with less: both places of offload where one of them is all the gain."""
    for one in told:
        less = (other for other in told if set(other.words) < set(one.words))
        if all(one.after.speed >= other.after.speed * (1 + LEAST_GAIN) for other in less):
            yield one


def _speed(question: Question, strategy: Strategy) -> float:
    return cost(question.job, strategy).tokens_per_second_per_gpu


def _sized(question: Question, start: Strategy, idea: Idea, least: float) -> Strategy | None:
    """The change at a micro-batch that surely fits and reaches a speed; None where there is none."""
    at = (_at(question, start, idea.strategy, size) for size in idea.sizes)
    quick = [(speed, other) for other in at if (speed := _speed(question, other)) >= least]
    if not idea.fastest:
        return next((other for _, other in quick if _fits(question, other)), None)
    fitting: list[tuple[Strategy, MemoryEstimate]] = []
    best = 0.0
    for speed, other in sorted(quick, key=lambda pair: -pair[0]):
        if fitting and speed < ENOUGH * best:
            break
        memory = estimate(question.job, other)
        if memory.verdict is Verdict.FITS:
            fitting.append((other, memory))
            best = best or speed
    return sized(fitting) if fitting else None


def _at(question: Question, start: Strategy, other: Strategy, size: int) -> Strategy:
    sequences = start.global_batch * other.tp // question.job.world
    return attrs.evolve(other, micro_batch=size, accumulation=sequences // size)


def _fits(question: Question, strategy: Strategy) -> bool:
    return estimate(question.job, strategy).verdict is Verdict.FITS


def _together(question: Question, changes: list[Strategy]) -> Strategy | None:
    """The fastest that several changes lead to, where it gains more than one of them alone."""
    ends = [_climbed(question, start) for start in (question.strategy, *_planned(question))]
    best = max(ends, key=lambda end: _speed(question, end))
    least = _speed(question, changes[0] if changes else question.strategy) * (1 + LEAST_GAIN)
    return best if _speed(question, best) >= least else None


def _climbed(question: Question, start: Strategy) -> Strategy:
    """The change that gains most, then of what that leaves the one that gains most, until none gains enough."""
    for _ in range(MOST_CLIMBED):
        offered = _ordered(_best(question, start).values())
        if not offered:
            break
        start = offered[0]
    return start


def _planned(question: Question) -> Iterator[Strategy]:
    """What a plan would take for the same sequences a step, with the sizes that the config writes, where that fits."""
    asked, job = question.strategy, question.job
    pins: tuple[Pin, ...] = ()
    if asked.precision == "fp16":  # a plan would rather have bf16, which is no faster
        pins = (Pin("precision", ("fp16",), Override("fp16.enabled", True, Origin("the config"), Rank.USER)),)
    wishes = attrs.evolve(job.training, global_batch=asked.global_batch)
    try:
        chosen = plan(attrs.evolve(job, training=wishes, pins=pins, deepspeed={})).chosen.strategy
    except DsgenError:
        return
    layout = {field.name: getattr(chosen, field.name) for field in attrs.fields(Layout)}
    other = laid_out(question, asked, **layout)
    other = attrs.evolve(other, micro_batch=chosen.micro_batch, accumulation=chosen.accumulation)
    if _fits(question, other):
        yield other


def _told(question: Question, now: Candidate, changed: Strategy) -> Speedup:
    after = weigh(question.job, changed)
    differences = list(rewrites(question, now.strategy, changed))
    keys = {key: value for one in differences for key, value in one.keys.items()}
    return Speedup(
        words=tuple(one.words for one in differences),
        keys=keys,
        programs=tuple(one.program for one in differences if one.program),
        where=dict(_where(question, keys)),
        after=after,
        gain=after.speed / now.speed - 1,
        names=dict(_names(question, keys)),
    )


def _where(question: Question, keys: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    subject = question.subject
    if subject is not None and subject.document.text:
        yield from ((key, place(subject.document, key)) for key in keys if subject.written(key))


def _names(question: Question, keys: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    document = question.subject.document if question.subject is not None else None
    if document is not None and document.whole is not None:
        yield from ((key, document.in_file(key)) for key in keys)
