"""What a plan would take of strategies that somebody measured: its own rule, asked of them alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from published_speed_cases import DEEPSPEED, STRATEGY, SpeedCase, asked  # benchmarks/, beside this script

from dsgen.cost import cost
from dsgen.memory import parts
from dsgen.planning.candidates import ENOUGH, Candidate, Search, sized
from dsgen.planning.planner import decide

__all__ = ["decided"]

_BATCH = "batch"


def decided(those: Sequence[SpeedCase]) -> SpeedCase:
    """Of each layout a micro-batch that comes near its fastest, and of these what the planner takes."""
    layouts: dict[tuple[Any, ...], list[SpeedCase]] = {}
    for case in those:
        layouts.setdefault(tuple(case.setup[fact] for fact in STRATEGY if fact != _BATCH), []).append(case)
    rivals = [_near(those) for those in layouts.values()]
    job = rivals[0][1].job
    chosen = decide(job, Search(tuple(candidate for _, candidate in rivals), (), ())).chosen
    return next(case for case, candidate in rivals if candidate is chosen)


def _near(those: Sequence[SpeedCase]) -> tuple[SpeedCase, Candidate]:
    """Of micro-batches near the fastest the largest that leaves room, else the smallest; of equal ones the slowest."""
    enough = ENOUGH * max(case.speed for case in those)
    slowest: dict[int, SpeedCase] = {}
    for case in sorted(those, key=lambda case: (case.setup[_BATCH], case.measured)):
        if case.speed >= enough:
            slowest.setdefault(case.setup[_BATCH][0], case)
    near = [(case, _candidate(case)) for case in slowest.values()]
    chosen = sized((one.strategy, one.memory) for _, one in near)
    return next((case, one) for case, one in near if one.strategy is chosen)


def _candidate(case: SpeedCase) -> Candidate:
    question = asked(case.name)
    job, strategy = question.job, question.strategy
    spent = cost(job, strategy, deepspeed=case.system == DEEPSPEED)
    counted = parts(job, strategy, strategy.buffers, strategy.accumulation)
    return Candidate(strategy=strategy, spent=spent, job=job, parts=counted)
