"""A question with its answers: what the strategy takes, what every other would, and what would do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import attrs

from dsgen.asking.memory_questions.alternatives import Alternative, alternatives
from dsgen.asking.memory_questions.counterfactuals import Counterfactuals, counterfactuals
from dsgen.asking.memory_questions.differences import ReadPiece
from dsgen.asking.memory_questions.observations import Observation, compare
from dsgen.asking.memory_questions.questions import Question
from dsgen.asking.memory_questions.scenario_questions import REFUSED_BATCH
from dsgen.memory import MemoryEstimate, Verdict, estimate
from dsgen.memory.activations import evaluates
from dsgen.memory.conversions import Conversion, Unconverted, afterwards
from dsgen.memory.evaluating import Evaluation, cached_bytes, evaluation, most_sequences
from dsgen.memory.first_failure import Failure, first_to_fail
from dsgen.memory.later import Later, later
from dsgen.memory.placed import placed
from dsgen.shapes.findings import Finding

__all__ = ["Footprint", "answer"]

_BATCH = "train_batch_size"


@attrs.frozen(kw_only=True)
class Footprint:
    """The memory of one strategy, and of what it could be instead.

    Attributes:
        question: What was asked, and what was chosen.
        memory: What it takes on a GPU, in a node's RAM and on its drives.
        alternatives: Every stage and offload with all else equal.
        counterfactuals: The smallest changes that matter.
        observations: What a person read of such a run, each beside what is predicted.
        differences: The pieces between these readings, each beside its predicted parts.
        evaluation: A batch of the size that is said, or the Trainer's default; None where it is not counted.
        most_evaluated: The most sequences of such a batch that surely fit; None where it is not counted.
        later: What comes between the steps, against a GPU and a node: that evaluation, a save, and going on from it.
        written: Part -> bytes on disk of one save; none where they are not counted.
        conversions: What each script takes behind training that turns a checkpoint into something else.
        unconverted: The scripts that stop at its checkpoint.
    """

    question: Question
    memory: MemoryEstimate
    alternatives: tuple[Alternative, ...] = attrs.field(repr=False)
    counterfactuals: Counterfactuals = attrs.field(repr=False)
    observations: tuple[Observation, ...] = attrs.field(default=(), repr=False)
    differences: tuple[ReadPiece, ...] = attrs.field(default=(), repr=False)
    evaluation: Evaluation | None = attrs.field(default=None, repr=False)
    most_evaluated: int | None = None
    later: tuple[Later, ...] = attrs.field(default=(), repr=False)
    written: Mapping[str, int] = attrs.field(factory=dict, repr=False)
    conversions: tuple[Conversion, ...] = attrs.field(default=(), repr=False)
    unconverted: tuple[Unconverted, ...] = attrs.field(default=(), repr=False)

    @property
    def first_to_fail(self) -> Failure | None:
        """The phase and the place that a run dies of first, or comes nearest to."""
        return first_to_fail(self.memory, self.later)

    @property
    def verdict(self) -> Verdict:
        """The worst of the three places while it trains; `later` has a verdict for each thing that comes between."""
        return self.memory.verdict


def answer(
    question: Question, every: bool = False, observed: Mapping[str, int | str] = MappingProxyType({})
) -> Footprint:
    """Everything that is asked of a strategy's memory.

    Args:
        question: The job and its strategy.
        every: Alternatives with and without activation checkpointing.
        observed: allocated, reserved or nvidia-smi -> bytes that a person read of the fullest GPU, host -> those of a
            node's RAM; or "61.2GiB".

    Raises:
        DsgenError: An architecture whose parameters are not known, or a reading that no such GPU has.
    """
    evaluated = evaluation(question.job, question.strategy, question.evaluated, question.kept)
    observations, pieces = compare(question, observed)
    question = attrs.evolve(question, notes=(*_with_refusal(question), *_uncounted(question)))
    return Footprint(
        question=question,
        memory=placed(estimate(question.job, question.strategy)),
        alternatives=alternatives(question, every),
        counterfactuals=counterfactuals(question),
        observations=observations,
        differences=pieces,
        evaluation=evaluated,
        most_evaluated=most_sequences(question.job, question.strategy),
        later=later(question.job, question.strategy, evaluated, question.evaluated, question.generated),
        **afterwards(question.job, question.strategy)._asdict(),
    )


def _uncounted(question: Question) -> Iterator[str]:
    """What of an evaluation is asked for and in no number."""
    if question.generated and not cached_bytes(question.job, question.strategy):
        yield "generation is not counted of multi-head latent attention, whose keys and values are compressed"
    elif (question.generated or question.kept) and not (question.evaluated and evaluates(question.job.model)):
        yield "no evaluation is counted here, and so neither what it keeps nor what it generates"


def _with_refusal(question: Question) -> Iterator[str]:
    """The notes of a question, and that DeepSpeed, or the program before it, does not start with the config."""
    first = _refusal(question)
    yield from (note for note in question.notes if first is None or first.path != _BATCH or REFUSED_BATCH not in note)
    if first is not None and question.subject is not None:
        document = question.subject.document
        at = f"{document.name}:{first.line}" if document.text else document.name
        yield f"{at}: it does not start: {first.message}; dsgen lint shows it, dsgen rule {first.code} explains"


def _refusal(question: Question) -> Finding | None:
    if question.subject is None:
        return None
    from dsgen.asking.refused_configs import refusals  # memory without a config asks no rule

    loads = question.arguments.loads if question.arguments is not None else ()
    return next(iter(refusals(question.job, question.subject.document, question.subject.target.name, loads)), None)
