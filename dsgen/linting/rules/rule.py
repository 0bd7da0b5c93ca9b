"""The shape of a rule: its names, its documentation, and the check itself; and a list of rules that loads late."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, overload

import attrs

from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["OF_ANOTHER_TYPE", "OF_NO_NUMBER", "Rule", "Rules"]

# Python's words on a value of a type that nobody expected.
OF_ANOTHER_TYPE = (
    r"(?:between instances of|operand type\(s\) for) .*'{type}'",
    r"must be [\w ]+, not '?{type}\b",
    r"'{type}' object (?:has no attribute|is not|cannot be interpreted)",
    r"cannot unpack non-iterable {type} object",
    r"unhashable type: '{type}'",
    "could not convert string to float: {value}",
)
# Those on one in a list, and pybind11's: they do not name what they found.
OF_NO_NUMBER = (
    *(r"operand type\(s\) for", "could not convert string to float", "can't multiply sequence by non-int"),
    "incompatible function arguments",
)


@attrs.frozen(kw_only=True)
class Rule:
    """One thing that can be wrong with a config.

    Attributes:
        code: Short and never used again for anything else: "DSG301".
        name: What a person reads and writes; it names the fault: "stage-missing".
        severity: The usual one; a fault may carry its own.
        what: One sentence: what is wrong.
        why: What happens then: what DeepSpeed does, and how that shows.
        example: A config that has the fault, as text; empty where no text has it (a file that is not UTF-8).
        instead: The same config without it.
        evidence: Where it can be checked: a file of DeepSpeed with its release, an issue, a probe.
        given: What the example needs besides: `target`, `deepspeed` and the fields of Facts.
        since: First release the rule holds for ("0.19.7"); None for all known.
        until: First release it no longer holds for.
        reads: What it looks at: a "config", the "text" of any file with keys, a "launch" file, or the "job" that any of
            these belongs to.
        general: Whether it gives way to any other rule that points at the same key.
        added: First release of dsgen that has it.
        about_versions: Whether it speaks of what changed between releases, so that `dsgen migrate` applies its fixes.
        shows: What DeepSpeed says when it stops for this, or the check of `dsgen prove` that does not hold, where those
            words name neither the key nor its value and `why` does not quote them: regular expressions, in which {type}
            is Python's name for the type of the value, and {value} the value as Python writes it.
        check: The faults of one subject.
    """

    code: str
    name: str
    severity: Severity
    what: str
    why: str
    example: str
    instead: str
    evidence: tuple[str, ...]
    check: Callable[[Subject], Iterable[Fault]] = attrs.field(repr=False)
    given: Mapping[str, Any] = attrs.field(factory=dict)
    since: str | None = None
    until: str | None = None
    reads: str = "config"
    general: bool = False
    added: str = "0.1.0"
    about_versions: bool = False
    shows: tuple[str, ...] = ()


class Rules(Sequence[Rule]):
    """Rules in the order of their codes. Their files are imported when the first one is asked for.

    A file holds one `RULE`, a folder `RULES` of its own.
    """

    def __init__(self, package: str, *names: str) -> None:
        self._package = package
        self._names = names

    @functools.cached_property
    def files(self) -> tuple[str, ...]:
        """The file of each rule, as a dotted name from this package on: "precision.clipping_by_default"."""
        return tuple(file for file, _ in self._loaded)

    def __len__(self) -> int:
        return len(self._loaded)

    @overload
    def __getitem__(self, index: int) -> Rule: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Rule, ...]: ...

    def __getitem__(self, index: int | slice) -> Rule | tuple[Rule, ...]:
        return self._rules[index]

    def __iter__(self) -> Iterator[Rule]:
        return iter(self._rules)

    @functools.cached_property
    def _rules(self) -> tuple[Rule, ...]:
        return tuple(rule for _, rule in self._loaded)

    @functools.cached_property
    def _loaded(self) -> tuple[tuple[str, Rule], ...]:
        return tuple(pair for name in self._names for pair in self._of(name))

    def _of(self, name: str) -> Iterator[tuple[str, Rule]]:
        module = import_module(f"{self._package}.{name}")
        if hasattr(module, "RULE"):
            yield name, module.RULE
        else:
            rules: Rules = module.RULES
            yield from ((f"{name}.{file}", rule) for file, rule in rules._loaded)
