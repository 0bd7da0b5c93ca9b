"""What comes between the steps of training, held against a GPU and a node: an evaluation, a save and a resume."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from dsgen.jobs.job import Job
from dsgen.memory.checkpoints import between_steps, resuming, saving
from dsgen.memory.estimates import MEASURED, PhaseMemory, Place, Room, Verdict, ram, room, worst
from dsgen.memory.evaluating import TRAINER_SEQUENCES, Evaluation, evaluation, generation
from dsgen.memory.widened import widened
from dsgen.strategies.strategies import Strategy

__all__ = ["Later", "lacking", "later"]

# First word of a phase -> what a sentence calls it.
_NOUNS = {"evaluate": "evaluation", "generate": "generation", "save": "saving", "resume": "resuming"}
_WHERE = {"gpu": "on the GPU", "host": "in host RAM"}
_SAYS = {  # verdict -> what is said of one, and of several
    Verdict.DOES_NOT_FIT: ("does not fit", "do not fit"),
    Verdict.UNCERTAIN: ("may not fit", "may not fit"),
}


class Later(NamedTuple):
    """One of them, in both places that it can die of.

    Attributes:
        phase: Its highest moment: "evaluate 8 sequences", "generate 8 sequences", "save" or "resume".
        gpu: One GPU then; what torch reserves of it is not told.
        host: One node's RAM then.
    """

    phase: PhaseMemory
    gpu: Place
    host: Place

    @property
    def noun(self) -> str:
        """What a sentence calls it: evaluation, generation, saving, resuming."""
        return _NOUNS[self.phase.phase.partition(" ")[0]]

    @property
    def words(self) -> str:
        """The same, with how large it is: "evaluation of 8 sequences"."""
        _, _, size = self.phase.phase.partition(" ")
        return f"{self.noun} of {size}" if size else self.noun

    @property
    def verdict(self) -> Verdict:
        """The worse of the two places."""
        return worst((self.gpu.verdict, self.host.verdict))


def later(
    job: Job,
    strategy: Strategy,
    evaluated: Evaluation | None = None,
    sequences: int = TRAINER_SEQUENCES,
    generated: int = 0,
) -> tuple[Later, ...]:
    """What a strategy takes beside the steps of training, in the order of a run; no evaluation where none is counted.

    Args:
        job: The job.
        strategy: The strategy that trains it.
        evaluated: An evaluation; without one it is computed.
        sequences: Of that one; the Trainer's default size.
        generated: Tokens of prompt and answer of each of them, where it generates.
    """
    gpu, node = room(job, strategy, strategy.buffers), between_steps(job, strategy)
    uncounted = widened(job, strategy, strategy.buffers)
    one = evaluated or evaluation(job, strategy, sequences)
    made = generation(job, strategy, sequences, generated) if generated else None
    phases = [
        PhaseMemory(f"{what} {each.sequences} sequence{'s' if each.sequences > 1 else ''}", 0, 0, each.parts, there)
        for there in (node.phases["training"],)
        for what, each in (("evaluate", one), ("generate", made))
        if each is not None
    ]
    phases += [saving(job, strategy), resuming(job, strategy)]
    return tuple(
        Later(
            _measured(phase, gpu.ratio),
            _card(phase, gpu, *uncounted),
            ram(job, phase.phase, phase.host, node.beyond),
        )
        for phase in phases
    )


def _measured(phase: PhaseMemory, ratio: float) -> PhaseMemory:
    """A phase with what a measurement of the machine tells of it."""
    more = int(phase.gpu_bytes * (ratio - 1))
    return phase._replace(gpu={**phase.gpu, MEASURED: more}) if more else phase


def _card(phase: PhaseMemory, gpu: Room, less: int, more: int) -> Place:
    """One GPU in one phase; `less` and `more` are what uncounted keys may take from its bytes, and add."""
    parts, peak = _measured(phase, gpu.ratio).gpu, phase.gpu_bytes
    return Place(
        peak_bytes=sum(parts.values()),
        low_bytes=max(0, gpu.low(peak, False, less) - gpu.outside),
        high_bytes=gpu.high(peak, False, more),
        limit_bytes=gpu.limit,
        parts=parts,
        phase=phase.phase,
        overhead=gpu.overhead,
        overhead_more_bytes=gpu.beyond,
        maker=gpu.maker,
    )


def lacking(laters: Iterable[Later]) -> Iterator[str]:
    """What of them does not surely fit, in words: "saving does not fit in host RAM"; nothing where all does."""
    said: dict[tuple[str, Verdict], list[str]] = {}
    for one in laters:
        for name, place in (("gpu", one.gpu), ("host", one.host)):
            if place.verdict is not Verdict.FITS:
                said.setdefault((name, place.verdict), []).append(one.words)
    for (name, verdict), nouns in said.items():
        yield f"{_joined(nouns)} {_SAYS[verdict][len(nouns) > 1]} {_WHERE[name]}"


def _joined(nouns: list[str]) -> str:
    return " and ".join([", ".join(nouns[:-1]), nouns[-1]] if nouns[1:] else nouns)
