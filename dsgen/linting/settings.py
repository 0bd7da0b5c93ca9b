"""What a person asks of the linter: which rules speak, how loud, for which program, release and machine."""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs

from dsgen import targets
from dsgen.deepspeed import surface
from dsgen.linting import rules
from dsgen.shapes.errors import mistake, nearest
from dsgen.shapes.findings import Finding, Severity
from dsgen.shapes.limits import check_gpus
from dsgen.shapes.near_misses import offer

__all__ = [
    "ACCELERATORS",
    "CALLS",
    "CLIENT_OPTIMIZERS",
    "PACKAGES",
    "Settings",
    "alike",
    "checked",
    "knows",
    "rules_named",
    "severity",
]

# SUPPORTED_ACCELERATOR_LIST of accelerator/real_accelerator.py, DeepSpeed 0.19.8
ACCELERATORS = ("cuda", "cpu", "xpu", "npu", "hpu", "mps", "mlu", "sdaa", "supa", "klxpu")
CLIENT_OPTIMIZERS = ("none", "torch", "deepspeed")  # of Facts.client_optimizer
# What the rules ask of Facts.calls and Facts.missing; another name has nobody who listens.
CALLS = (
    "checkpointing.configure",
    "checkpointing.checkpoint",
    "engine.compile",
    "engine.generate",
    "deepspeed --autotuning",
)
PACKAGES = ("tensorboard", "wandb", "comet_ml", "datastates", "mup", "libaio")
BROKE = ("DSG000", "rule-broke")  # the linter's own, when a rule breaks; no Rule stands behind it
_PREFIX = re.compile(r"DSG[0-9]*")


@attrs.frozen(kw_only=True, slots=False)
class Settings:
    """How to lint; None or empty where nothing was said.

    Attributes:
        file: The pyproject.toml they come from.
        select: Names, codes or starts of codes of the only rules that speak.
        ignore: The same, of rules that do not.
        severity: The lowest that is shown.
        fail_on: The lowest that makes `dsgen lint` end with exit code 1.
        target, deepspeed: Who loads the config, and which release reads it.
        world_size, seq_len: GPUs in all; tokens per sequence.
        hardware, model, network: Names or files of profiles.
        accelerator, client_optimizer, missing, calls: As `subjects.Facts` has them.
        parameters: File with the names of the model's parameters, one a line or as a JSON list.
        arguments: File of the Trainer's arguments, which fill in "auto".
        scenario: File of the job that the config is for.
        wishes: Fields of a scenario that decide memory (`said_jobs.WISHES`) -> what was said.
        exclude: Globs of files that are not linted.
        per_file_ignores: Glob -> what to ignore in those files.
        severities: Rule -> another severity than its own; None switches it off.
    """

    file: Path | None = None
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    severity: Severity | None = None
    fail_on: Severity | None = None
    target: str | None = None
    deepspeed: str | None = None
    world_size: int | None = None
    seq_len: int | None = None
    hardware: str | None = None
    model: str | None = None
    network: str | None = None
    accelerator: str | None = None
    client_optimizer: str | None = None
    missing: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    parameters: str | None = None
    arguments: str | None = None
    scenario: str | None = None
    wishes: Mapping[str, Any] = attrs.field(factory=dict)
    exclude: tuple[str, ...] = ()
    per_file_ignores: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)
    severities: Mapping[str, Severity | None] = attrs.field(factory=dict)

    def under(self, said: Settings) -> Settings:
        """These settings with those of the command line on top, which win wherever they say something.

        Both `ignore` count, but a rule that the command line selects is not ignored by the file.
        """
        wins = {name: value for name, value in attrs.asdict(said, recurse=False).items() if value not in (None, (), {})}
        joined = attrs.evolve(self, **{**wins, "wishes": {**self.wishes, **said.wishes}})
        if said.select:
            chosen = _all_named(said.select)
            kept = tuple(sorted(_all_named(self.ignore) - chosen))
            spared = {glob: tuple(sorted(_all_named(words) - chosen)) for glob, words in self.per_file_ignores.items()}
            return attrs.evolve(joined, ignore=(*kept, *said.ignore), per_file_ignores=spared)
        return attrs.evolve(joined, ignore=(*self.ignore, *said.ignore))

    def excludes(self, file: str) -> bool:
        """Whether a file is left out."""
        return any(_matches(file, self.file, glob) for glob in self.exclude)

    def hears(self, word: str, file: str) -> bool:
        """Whether any rule that a word names speaks for a file."""
        return not rules_named(word).isdisjoint(self._speaking - self._silent(file))

    def judge(self, findings: Iterable[Finding], file: str) -> tuple[Finding, ...]:
        """The findings of the rules that speak for a file, each with the severity that was asked for."""
        speaking = self._speaking - self._silent(file)
        heard = (finding for finding in findings if finding.rule in speaking)
        asked = ((finding, self._asked.get(finding.rule, finding.severity)) for finding in heard)
        return tuple(
            finding if severity is finding.severity else attrs.evolve(finding, severity=severity)
            for finding, severity in asked
            if severity is not None
        )

    def _silent(self, file: str) -> frozenset[str]:
        return frozenset(name for glob, words in self._ignores if _matches(file, self.file, glob) for name in words)

    @functools.cached_property
    def _speaking(self) -> frozenset[str]:
        chosen = _all_named(self.select) if self.select else frozenset(_codes())
        return chosen - _all_named(self.ignore)

    @functools.cached_property
    def _ignores(self) -> tuple[tuple[str, frozenset[str]], ...]:
        return tuple((glob, _all_named(words)) for glob, words in self.per_file_ignores.items())

    @functools.cached_property
    def _asked(self) -> Mapping[str, Severity | None]:
        return {name: severity for word, severity in self.severities.items() for name in rules_named(word)}


def checked(said: Settings, by: Callable[[str], str] = str) -> Settings:
    """Settings as a person said them, whose names are all known.

    Args:
        said: What was said.
        by: Field -> what it was said by, for errors: "--select".

    Raises:
        DsgenError: No such rule, release, program, accelerator or kind of optimizer.
    """
    for field in ("select", "ignore"):
        for word in getattr(said, field):
            rules_named(word, by(field))
    if said.deepspeed is not None:
        surface.load(said.deepspeed)
    for field in ("world_size", "seq_len"):
        count = getattr(said, field)
        if count is not None and (type(count) is not int or count < 1):
            raise mistake(f"{by(field)} is {count!r}", must="it must be a whole number of at least 1")
    check_gpus(said.world_size or 1, by("world_size"))
    if said.target is not None:
        targets.find(said.target)
    for field, choices in (("accelerator", ACCELERATORS), ("client_optimizer", CLIENT_OPTIMIZERS)):
        word = getattr(said, field)
        if word is not None and word not in choices:
            close = nearest(str(word), choices)
            raise mistake(
                f"no {field.replace('_', ' ')} {word!r}",
                must=f"{'DeepSpeed knows' if field == 'accelerator' else 'it must be one of'} {', '.join(choices)}",
                where=by(field),
                todo=offer(close[:1]),
                code="unknown-name",
            )
    return said


def severity(word: str) -> Severity:
    """A severity by its name.

    Raises:
        DsgenError: No such severity.
    """
    for known in Severity:
        if word == str(known):
            return known
    raise mistake(
        f"no severity {word!r}", must=f"it must be one of {', '.join(map(str, Severity))}", code="unknown-name"
    )


def rules_named(word: str, where: object = None) -> frozenset[str]:
    """The names of the rules that a word means: a name, a code, or the start of codes such as DSG3.

    Raises:
        DsgenError: No rule has that name, or a code that starts so.
    """
    if rules := _rules(word):
        return rules
    raise mistake(
        f"no rule {word!r}",
        must="a rule is named by its name (rejected-key), its code (DSG101) or the start of codes (DSG1)",
        where=where,
        todo=offer(alike(word), "`dsgen rule` lists them."),
        code="unknown-name",
    )


def knows(word: str) -> bool:
    """Whether a word names a rule, or several."""
    return bool(_rules(word))


def alike(word: str) -> tuple[str, ...]:
    """The names and codes of rules that are most like a word, best first."""
    codes = _codes()
    return nearest(word, [*codes, *codes.values()])


def _rules(word: str) -> frozenset[str]:
    codes = _codes()
    if word in codes:
        return frozenset({word})
    names = frozenset(name for name, code in codes.items() if code.startswith(word.upper()))
    return names if _PREFIX.fullmatch(word.upper()) else frozenset()


def _codes() -> dict[str, str]:
    """Name of each rule -> its code."""
    return {BROKE[1]: BROKE[0], **{rule.name: rule.code for rule in rules.RULES}}


def _all_named(words: Iterable[str]) -> frozenset[str]:
    return frozenset(name for word in words for name in rules_named(word))


def _matches(file: str, settings: Path | None, glob: str) -> bool:
    """Whether a file, a folder around it or its bare name is what a glob says, seen from the folder of the settings."""
    path = Path(file).absolute()
    inside = settings is not None and path.is_relative_to(settings.parent)
    seen = path.relative_to(settings.parent) if settings is not None and inside else path
    names = [seen.as_posix(), *(parent.as_posix() for parent in seen.parents), seen.name]
    return any(fnmatch.fnmatchcase(name, glob.rstrip("/")) for name in names)
