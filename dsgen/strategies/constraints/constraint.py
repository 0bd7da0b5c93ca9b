"""The shape of a constraint: what it is about, when it holds, who refuses, and the one sentence that says so."""

from collections.abc import Callable
from typing import NamedTuple

from dsgen.strategies.constraints.setup import Keys, Setup, numbers

__all__ = ["BY", "Constraint"]

BY = ("deepspeed", "transformers", "peft", "hardware", "dsgen")  # dsgen: it runs, and what it takes is not counted
_OF_KEYS = frozenset(Keys._fields)


class Constraint(NamedTuple):
    """Something that cannot be had of a strategy.

    Attributes:
        code: Its name: "autotp-at-stage-3".
        about: The field of a Setup, of Training or of Keys that it speaks of, and that is to change.
        by: Who refuses: one of BY.
        stops: Whether the run ends with an error. Else it goes on, and does something else than was asked for.
        condition: Whether a way to run is so, whatever the release.
        reason: The sentence, with fields of the Setup as `at`: "{at.world} GPUs ...".
        source: Where it can be checked: a file of DeepSpeed with its release, a probe, a page of ours.
        since: First release that refuses ("0.18.3"); None for all known.
        until: First release that no longer refuses.
        rule: Code of the lint rule that says the same of a config, where there is one.
        todo: What helps, as far as it depends on nobody's place of writing; with fields of the Setup as the reason.
        must: What must be, for an error that has said the key and its value already; without it the reason says it.
    """

    code: str
    about: str
    by: str
    stops: bool
    condition: Callable[[Setup], bool]
    reason: str
    source: str
    since: str | None = None
    until: str | None = None
    rule: str | None = None
    todo: str | None = None
    must: str | None = None

    def refuses(self, at: Setup) -> bool:
        """Whether a way to run is refused, by the release that runs it."""
        return self.condition(at) and self.holds(at.release)

    def says(self, at: Setup) -> str:
        """The sentence for a way to run."""
        return self.reason.format(at=at) if "{" in self.reason else self.reason

    def helps(self, at: Setup) -> str | None:
        """What to do in a way to run; None where the sentence says it."""
        return self.todo.format(at=at) if self.todo is not None else None

    @property
    def of_keys(self) -> bool:
        """Whether it is about a key of DeepSpeed's that no strategy has a field for."""
        return self.about in _OF_KEYS

    @property
    def fatal(self) -> bool:
        """Whether nothing can be said of such a strategy: it does not run, or is not counted."""
        return self.stops or self.by == "dsgen"

    def holds(self, release: tuple[int, ...]) -> bool:
        """Whether a release is among those that refuse."""
        after = self.since is None or release >= numbers(self.since)
        return after and (self.until is None or release < numbers(self.until))
