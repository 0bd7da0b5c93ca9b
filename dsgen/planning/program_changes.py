"""What a person's program could do otherwise: no key of DeepSpeed's does it."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import attrs

from dsgen.jobs.job import Job
from dsgen.strategies.wishes import adaptable

__all__ = ["ProgramChange", "program_changes"]

SHORTEST = 256  # tokens; a shorter sequence is not worth offering


class ProgramChange(NamedTuple):
    """One thing that a program can do otherwise.

    Attributes:
        field: The field of a scenario that says it, and of Training.
        value: Its value.
        words: What the program does then.
        same: Whether it trains the same: the same parameters on the same text, but for rounding.
    """

    field: str
    value: Any
    words: str
    same: bool

    @property
    def option(self) -> str:
        """What to say on the command line: `--chunked-loss`, `--method lora`."""
        name = f"--{self.field.replace('_', '-')}"
        return name if self.value is True else f"{name} {self.value}"

    def applied(self, job: Job) -> Job:
        """The job whose program does so."""
        return attrs.evolve(job, training=attrs.evolve(job.training, **{self.field: self.value}))


def program_changes(job: Job) -> Iterator[ProgramChange]:
    """What the program of a job could do otherwise: first what trains the same."""
    wishes = job.training
    if not wishes.chunked_loss:
        yield ProgramChange("chunked_loss", True, "a loss that never holds all logits (Liger's, or another)", True)
    if wishes.attention == "eager":
        yield ProgramChange("attention", "sdpa", "attention that never holds its scores", True)
    for method, words in (("lora", "adapters instead of all weights"), ("qlora", "adapters over weights in 4 bits")):
        if _LESS[wishes.method] < _LESS[method] and adaptable(job.model, attrs.evolve(wishes, method=method)):
            yield ProgramChange("method", method, words, False)
    if (half := job.seq_len // 2) >= SHORTEST:
        yield ProgramChange("seq_len", half, "sequences of half the length", False)


_LESS = {"full": 0, "lora": 1, "qlora": 2}  # how much of the training each method leaves away
