"""What a framework does between steps and has no room for: an evaluation as its files have it, a save and a resume."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from dsgen.jobs.job import Job
from dsgen.memory.evaluating import TRAINER_SEQUENCES, evaluation, most_sequences
from dsgen.memory.later import Later, lacking, later
from dsgen.planning.planner import Plan
from dsgen.strategies.strategies import Strategy

__all__ = ["BY_THE_TRAINER", "Batch", "cautions", "evaluated", "laters"]

BY_THE_TRAINER = ("hf-trainer", "axolotl", "llama-factory", "ms-swift")  # their files say an evaluation's batch
_SAVES_ALIKE = (*BY_THE_TRAINER, "accelerate")  # Accelerator.get_state_dict; how Lightning does it is not counted


class Batch(NamedTuple):
    """An evaluation's batch: sequences on one GPU, and the most that surely fit."""

    sequences: int
    most: int


def evaluated(job: Job, strategy: Strategy) -> Batch | None:
    """As many sequences as the Trainer takes of itself, if so many surely fit, but at least 1; None: not counted."""
    most = most_sequences(job, strategy)
    return None if most is None else Batch(min(TRAINER_SEQUENCES, 1 << max(0, most.bit_length() - 1)), most)


def laters(plan: Plan, target: str) -> tuple[Later, ...]:
    """What a framework does between the steps of a plan, as far as it is known.

    Args:
        plan: The plan.
        target: The framework, as `--target` takes it.
    """
    if target not in _SAVES_ALIKE:
        return ()
    job, chosen = plan.job, plan.chosen.strategy
    batch = evaluated(job, chosen) if target in BY_THE_TRAINER else None
    held = later(job, chosen, evaluation(job, chosen, batch.sequences) if batch else None)
    return tuple(one for one in held if batch or not _evaluates(one))


def cautions(held: Iterable[Later]) -> Iterator[str]:
    """What of that does not surely fit."""
    for words in lacking(held):
        yield f"the steps fit, but {words}: dsgen memory says by how much"


def _evaluates(one: Later) -> bool:
    return one.noun == "evaluation"
