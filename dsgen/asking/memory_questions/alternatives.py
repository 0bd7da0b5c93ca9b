"""The same job with every stage and offload at once, each with what it takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs

from dsgen.asking.memory_questions.questions import Question, strategy_of
from dsgen.memory import MemoryEstimate, Verdict, estimate
from dsgen.memory.estimates import worst
from dsgen.memory.later import later
from dsgen.strategies.constraints import cannot
from dsgen.strategies.strategies import Strategy

__all__ = ["Alternative", "alternatives", "places"]

# stage -> where optimizer and parameters may be; what a stage cannot move is not listed.
_FULL = {
    0: (("none", "none"),),
    1: (("none", "none"), ("cpu", "none")),
    2: (("none", "none"), ("cpu", "none")),
    3: (("none", "none"), ("cpu", "none"), ("cpu", "cpu"), ("nvme", "cpu"), ("nvme", "nvme")),
}
_ADAPTERS_AT_3 = (("none", "none"), ("none", "cpu"), ("none", "nvme"))  # the states of adapters are not worth moving


@attrs.frozen(kw_only=True)
class Alternative:
    """One stage and offload, and what it takes.

    Attributes:
        strategy: The way to run the job.
        memory: What it takes while it trains.
        asked: Whether it is the one that was asked for.
        later: The worst verdict of what comes between steps: an evaluation, a save, a resume.
    """

    strategy: Strategy
    memory: MemoryEstimate
    asked: bool
    later: Verdict


def alternatives(question: Question, every: bool = False) -> tuple[Alternative, ...]:
    """Every stage and offload with all else equal, the one asked for among them.

    Args:
        question: What was asked.
        every: Each with and without activation checkpointing, instead of as asked.
    """
    asked = question.strategy
    ways = [*places(question)]
    mine = (asked.stage, asked.offload_optimizer, asked.offload_param)
    if mine not in ways:
        ways = sorted([*ways, mine], key=lambda way: way[0])
    compared = []
    for checkpointing in (False, True) if every else (asked.checkpointing,):
        for stage, optimizer, parameters in ways:
            same = (stage, optimizer, parameters) == mine and checkpointing == asked.checkpointing
            other = asked if same else _other(question, stage, optimizer, parameters, checkpointing)
            between = worst(one.verdict for one in later(question.job, other, sequences=question.evaluated))
            memory = estimate(question.job, other)
            compared.append(Alternative(strategy=other, memory=memory, asked=same, later=between))
    return tuple(compared)


def places(question: Question) -> Iterator[tuple[int, str, str]]:
    """Stage, and where optimizer and parameters are: every combination worth a row that runs, the plainest first."""
    job = question.job
    for stage, ways in _FULL.items():
        for optimizer, parameters in _ADAPTERS_AT_3 if stage == 3 and job.training.method != "full" else ways:
            where: dict[str, Any] = {"stage": stage, "offload_optimizer": optimizer, "offload_param": parameters}
            if cannot(job, attrs.evolve(question.strategy, **where)) is None:
                yield stage, optimizer, parameters


def _other(question: Question, stage: int, optimizer: str, parameters: str, checkpointing: bool) -> Strategy:
    return strategy_of(
        question, stage=stage, offload_optimizer=optimizer, offload_param=parameters, checkpointing=checkpointing
    )
