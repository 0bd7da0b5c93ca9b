"""A config as lint takes it: who hands it over, with which settings, and what the files of its job fill into it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from dsgen.linting import sources, statements
from dsgen.linting.files import Excluded, Linted, check, lint_files, lint_one
from dsgen.linting.settings import Settings, checked
from dsgen.linting.sources import Source
from dsgen.linting.statements import Statement
from dsgen.linting.told_arguments import arguments_of, check_program, loads_of, with_arguments
from dsgen.shapes.errors import DsgenError
from dsgen.shapes.findings import Severity
from dsgen.targets.hf_trainer import HF_TRAINER

__all__ = ["Handover", "taken"]


@attrs.frozen(kw_only=True, eq=False)
class Handover:
    """One config, and what lint knows of how it is run.

    Attributes:
        source: The document, its program and its number of ranks.
        settings: What holds for it.
        told: DeepSpeed's key -> what the arguments of its program fill in where it says "auto".
    """

    source: Source
    settings: Settings
    told: Mapping[str, Any] = attrs.field(factory=dict)

    def judged(self, deepspeed: str) -> Linted:
        """The same config, linted for a release."""
        return check(self.source, attrs.evolve(self.settings, deepspeed=deepspeed, severity=Severity.INFO))


def taken(
    source: str | Mapping[str, Any],
    *,
    target: str | None = None,
    world_size: int | None = None,
    arguments: str | None = None,
) -> Handover | None:
    """A config as lint takes it; None where the file holds none that can be read as a map.

    Args:
        source: A file (- is the standard input), or a config.
        target: The program asked for; by default what lint says: the settings, the file that names it, or a guess.
        world_size: GPUs in all.
        arguments: File of the Trainer's arguments.

    Raises:
        DsgenError: Broken settings; arguments that cannot be read, or of a config that the Trainer does not load.
    """
    told = arguments_of(arguments) if arguments is not None else ()
    said = checked(Settings(target=target or (HF_TRAINER.name if told else None), world_size=world_size))
    linted = _linted(source, said)
    if linted is None:
        return None
    one = linted.source
    if arguments is not None:
        check_program(one.target, arguments)
        one = with_arguments(one, told, loads_of(arguments))
    settled = {**one.told, **statements.settles([*_of_job(one), *told])}
    return Handover(source=attrs.evolve(one, told=settled), settings=linted.settings, told=settled)


def _linted(source: str | Mapping[str, Any], said: Settings) -> Linted | None:
    """The first config that a file is or leads to, linted."""
    if isinstance(source, Mapping):
        return lint_one(source, said)
    if source != "-" and (Path(source).is_dir() or not Path(source).exists()):
        return None
    for item in lint_files([source], said):
        if isinstance(item, DsgenError):
            raise item
        if isinstance(item, Excluded):  # it is linted by nobody, and asked of here all the same
            item = next(
                check(one, said) for one in sources.documents([source], target=said.target) if one.document.text
            )
        if isinstance(item.document.config, Mapping) and item.document.kind != "launch":
            return item
    return None


def _of_job(source: Source) -> tuple[Statement, ...]:
    """What the file that named a config says of it."""
    if source.of is None:
        return ()
    from dsgen.linting import followed

    def opened(path: Path) -> str | None:
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, ValueError):
            return None

    text = opened(Path(source.of))
    if text is None:
        return ()
    here = Path(source.document.name).resolve()
    uses = followed.told(text, source.of, opened).uses
    return tuple(one for use in uses if use.config.resolve() == here for one in use.said)
