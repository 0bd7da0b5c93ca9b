"""Configs as DeepSpeed is given them: by whom, for how many ranks, and with nothing left to fill in for a proof."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from dsgen.deepspeed import surface
from dsgen.deepspeed.autos import unfilled
from dsgen.effective import Effective, Refusal, load
from dsgen.linting import config_reader
from dsgen.linting.sources import STDIN, Source
from dsgen.linting.taken import Handover, taken
from dsgen.shapes.errors import DsgenError, mistake
from dsgen.shapes.findings import Severity

__all__ = ["agreeing", "effective", "known_release", "provable"]

_ALONE = "deepspeed"  # the target where no program stands before DeepSpeed
_ONLY_HERE = "a machine with a GPU may take it"  # it loads on a CPU, which lint does not assume
# Rules of lint that say what a program refuses before DeepSpeed sees the config.
_BEFORE_DEEPSPEED = (
    "section-the-program-needs", "key-the-program-refuses", "auto-not-filled", "argument-disagrees",
    "accelerate-keys-beside-file", "accelerate-precision", "device-map-beside-deepspeed",
)  # fmt: skip


def effective(
    source: str | Mapping[str, Any],
    *,
    target: str | None = None,
    arguments: str | None = None,
    world_size: int | None = None,
    python: str | None = None,
    timeout_seconds: float = 120,
) -> Effective:
    """What the installed DeepSpeed makes of a config, handed over by the program that lint takes it to be for.

    What lint calls an error for that program is a refusal too: the program stops before DeepSpeed, or DeepSpeed later
    than at its parser and its optimizer.

    Args:
        source: A file (- is the standard input), or a config.
        target: The program that hands the config over; by default the one that lint says.
        arguments: File of the Trainer's arguments, which fill in its "auto".
        world_size, python, timeout_seconds: As for `dsgen.effective.load`.

    Raises:
        DsgenError: Unreadable, an argument is wrong, a package is missing, or the child was lost.
    """
    known = taken(source, target=target, world_size=world_size, arguments=arguments)
    if known is None:  # DeepSpeed's own words on the file
        if source == "-":
            config_reader.read("-", bare=True)  # it says what is wrong
        return load(
            source, world_size=world_size, target=target or _ALONE, python=python, timeout_seconds=timeout_seconds
        )
    document = known.source.document
    whole = isinstance(source, str) and document.whole is None and document.name != STDIN
    loaded = load(
        document.name if whole else document.config,
        world_size=world_size or known.source.world_size,
        target=known.source.target,
        told=known.told,
        python=python,
        timeout_seconds=timeout_seconds,
    )
    return agreeing(attrs.evolve(loaded, name=document.name), known)


def agreeing(loaded: Effective, known: Handover) -> Effective:
    """What was loaded, refused where lint knows an error of it, and for the key that lint names.

    What the program itself refuses comes before anything of DeepSpeed's; DeepSpeed's own refusal keeps its words, with
    lint's sentence where its own names none of the keys that lint does.
    """
    refused = loaded.refused
    if refused is not None and (refused.phase == "read" or _ONLY_HERE in refused.sentence):
        return loaded
    errors = [
        item for item in known.judged(known_release(loaded.deepspeed)).findings if item.severity is Severity.ERROR
    ]
    if not errors:
        return loaded
    first = next((item for item in errors if item.rule in _BEFORE_DEEPSPEED), None)
    if first is None and refused is not None:
        named = any(item.path.rpartition(".")[2] in refused.sentence for item in errors)
        return loaded if named else attrs.evolve(loaded, refused=attrs.evolve(refused, sentence=errors[0].message))
    first = first or errors[0]
    rule = f"{first.rule} ({first.code})"
    return attrs.evolve(loaded, refused=Refusal(phase="run", kind=rule, message=first.message, sentence=first.message))


def known_release(release: str) -> str:
    """A release whose surface is known: of one that is not, the newest."""
    try:
        return surface.load(release).version
    except DsgenError:
        return surface.load().version


def provable(source: Mapping[str, Any] | str) -> dict[str, Any]:
    """The config in a dict or in a file as DeepSpeed takes it: nobody stands before it who fills in an auto.

    Raises:
        DsgenError: Unreadable, YAML, or an "auto" that DeepSpeed does not fill in; with its place.
    """
    read: Source | None = None
    if isinstance(source, str):
        read = config_reader.read(source, bare=True)
        config = config_reader.for_deepspeed(read)
    else:
        config = dict(source)
    if left := unfilled(config, surface.load()):
        raise mistake(
            f'{", ".join(left)} {"is" if len(left) == 1 else "are"} "auto"',
            must="a proof hands the config to DeepSpeed itself, which does not fill it in",
            where=config_reader.place(read.document, left[0]) if read is not None else None,
            todo="Write values, or prove what a program makes of it: --target hf-trainer, or accelerate.",
        )
    return config
