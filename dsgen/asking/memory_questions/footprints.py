"""A question with its answers: what the strategy takes, what every other would, and what would do."""

from __future__ import annotations

import attrs

from dsgen.asking.memory_questions.alternatives import Alternative, alternatives
from dsgen.asking.memory_questions.counterfactuals import Counterfactuals, counterfactuals
from dsgen.asking.memory_questions.questions import Question
from dsgen.memory import MemoryEstimate, Verdict, estimate

__all__ = ["Footprint", "answer"]


@attrs.frozen(kw_only=True)
class Footprint:
    """The memory of one strategy, and of what it could be instead.

    Attributes:
        question: What was asked, and what was chosen.
        memory: What it takes on a GPU, in a node's RAM and on its drives.
        alternatives: Every stage and offload with all else equal.
        counterfactuals: The smallest changes that matter.
    """

    question: Question
    memory: MemoryEstimate
    alternatives: tuple[Alternative, ...] = attrs.field(repr=False)
    counterfactuals: Counterfactuals = attrs.field(repr=False)

    @property
    def verdict(self) -> Verdict:
        """The worst of the three places."""
        return self.memory.verdict


def answer(question: Question, every: bool = False) -> Footprint:
    """Everything that is asked of a strategy's memory.

    Args:
        question: The job and its strategy.
        every: Alternatives with and without activation checkpointing.

    Raises:
        DsgenError: An architecture whose parameters are not known.
    """
    return Footprint(
        question=question,
        memory=estimate(question.job, question.strategy),
        alternatives=alternatives(question, every),
        counterfactuals=counterfactuals(question),
    )
