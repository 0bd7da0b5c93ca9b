"""Files to findings: each is read, asked with the settings of its folder, and judged; one bad file stops no other."""

from __future__ import annotations

import decimal
import functools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from dsgen import targets
from dsgen.deepspeed import surface
from dsgen.documents.document import Document
from dsgen.documents.hjson import reader
from dsgen.jobs.composed import plain_data
from dsgen.linting import linter, sources
from dsgen.linting.facts import facts as facts_of
from dsgen.linting.facts import of_job
from dsgen.linting.grouped import by_cause
from dsgen.linting.setting_files import parameter_names, read, sidecar
from dsgen.linting.settings import Settings
from dsgen.linting.sources import STDIN, Source
from dsgen.linting.subjects import Facts
from dsgen.linting.suppressions import Suppression, in_comments, quiet
from dsgen.shapes.arguments import path_of
from dsgen.shapes.errors import DsgenError, mistake
from dsgen.shapes.findings import Finding, Severity
from dsgen.targets.hf_accelerate import ACCELERATE
from dsgen.targets.hf_trainer import HF_TRAINER

__all__ = ["UNWRITTEN", "Excluded", "Linted", "check", "lint_files", "lint_one"]

UNWRITTEN = "<config>"  # the name of a config that no file holds
_PYTHON = ".py"
_WRITTEN_BITS = 14_000  # of whole numbers that Python surely writes: 4,215 digits (sys.int_info: 4,300)
_OURS = "\ue000"  # of the private use area of Unicode, so in no config


@attrs.frozen(kw_only=True, eq=False)
class Linted:
    """One file after its rules.

    Attributes:
        source: The file as it was read, with the program it was linted for.
        deepspeed: The release it was linted for.
        settings: What held for it.
        findings: At or above the severity shown, in the order of the text.
        hidden: Those below it.
        suppressed: How many a comment or the sidecar answers.
        piped: Whether it is the standard input.
        unused: The suppressions that answer none.
    """

    source: Source = attrs.field(repr=False)
    deepspeed: str
    settings: Settings = attrs.field(repr=False)
    findings: tuple[Finding, ...]
    hidden: tuple[Finding, ...] = attrs.field(default=(), repr=False)
    suppressed: int = 0
    piped: bool = False
    unused: tuple[Suppression, ...] = ()

    @property
    def document(self) -> Document:
        """The file as it was read."""
        return self.source.document

    @property
    def target(self) -> str:
        """The program it was linted for."""
        return self.source.target

    @property
    def fails(self) -> bool:
        """Whether any finding, shown or not, is as grave as the settings fail on: an error unless they say another."""
        least = self.settings.fail_on or Severity.ERROR
        return any(finding.severity >= least for finding in (*self.findings, *self.hidden))

    @property
    def lowest(self) -> Severity:
        """The lowest severity that is shown."""
        return self.settings.severity or Severity.WARNING

    def again(self, document: Document) -> Linted:
        """The same file after its text has changed."""
        changed = check(attrs.evolve(self.source, document=document), self.settings)
        return attrs.evolve(changed, piped=self.piped)


@attrs.frozen
class Excluded:
    """A file that its settings leave out."""

    name: str
    by: Path


def lint_files(
    paths: Sequence[str], said: Settings, stdin_name: str | None = None
) -> Iterator[Linted | Excluded | DsgenError]:
    """Lint files, folders and globs; "-" is the standard input.

    Args:
        paths: What the person named.
        said: What the command line says, over the settings of each file's folder.
        stdin_name: What to call the standard input; its settings are those of that file's folder.

    Yields:
        Each file once, in the order named; an error in the settings of a file in its place.
    """
    known: dict[Path, Settings] = {}
    for source in sources.documents(paths, target=said.target, stdin_name=stdin_name):
        yield _answer(source, said, known, stdin_name)


def _json(config: Mapping[str, Any]) -> str:
    """A config as JSON, with whole numbers of any length, of which Python writes 4,300 digits."""
    try:
        return json.dumps(config, indent=2, ensure_ascii=False)
    except ValueError:
        long: dict[str, str] = {}
        text = json.dumps(_marked(config, long), indent=2, ensure_ascii=False)
        return functools.reduce(lambda said, mark: said.replace(f'"{mark}"', long[mark]), long, text)


def _marked(value: Any, long: dict[str, str]) -> Any:
    """A value with a text of its own in the place of each whole number that Python does not write; `long` gets both."""
    if isinstance(value, Mapping):
        return {name: _marked(item, long) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_marked(item, long) for item in value]
    if isinstance(value, int) and value.bit_length() > _WRITTEN_BITS:
        mark = f"{_OURS}{len(long)}{_OURS}"
        long[mark] = format(decimal.Decimal(value), "f")
        return mark
    return value


def lint_one(source: str | os.PathLike[str] | Mapping[str, Any], said: Settings) -> Linted:
    """Lint one config: a file with the settings of its folder, or a dict.

    Raises:
        DsgenError: No such file, or one that its settings leave out; as `check` does.
    """
    if isinstance(source, Mapping):
        text = _json(plain_data(source, UNWRITTEN))
        document = reader.read(f"{text}\n", UNWRITTEN)
        program = said.target or targets.guess(document.config).name
        given = Source(document=document, target=program, guessed=said.target is None)
        return check(given if said.arguments is None else _told(given, said.arguments, said.target is not None), said)
    path = path_of(source)
    if Path(path).is_dir():
        raise mistake("it is a folder", must="it must be a config", where=path, code="unreadable")
    linted = next(lint_files([path], said))
    if isinstance(linted, Excluded):
        raise mistake("its settings leave it out", where=path, todo=f"See exclude in {linted.by}.", code="refused")
    if not isinstance(linted, Linted):
        raise linted
    missing = [fault.message for rule, fault in linted.document.faults if rule == "unreadable-file"]
    if missing:
        raise mistake(missing[0], where=path, code="unreadable")
    return linted


def check(source: Source, settings: Settings) -> Linted:
    """Lint one document with the settings that hold for it.

    Raises:
        DsgenError: An unknown release, profile or rule, or a broken sidecar.
    """
    document = source.document
    findings = linter.lint(document, target=source.target, deepspeed=settings.deepspeed, facts=_facts(source, settings))
    heard = settings.judge(findings, document.name)
    said = [*sidecar(document.name), *in_comments(document)]
    left = quiet(heard, [one for one in said if one.wrong or settings.hears(one.word, document.name)])
    lowest = settings.severity or Severity.WARNING
    grouped = by_cause(left.findings)
    return Linted(
        source=source,
        deepspeed=surface.load(settings.deepspeed).version,
        settings=settings,
        findings=tuple(finding for finding in grouped if finding.severity >= lowest),
        hidden=tuple(finding for finding in grouped if finding.severity < lowest),
        suppressed=left.suppressed,
        unused=left.unused,
    )


def _answer(
    source: Source, said: Settings, known: dict[Path, Settings], stdin_name: str | None
) -> Linted | Excluded | DsgenError:
    try:
        return _linted(source, said, known, stdin_name)
    except DsgenError as error:
        return error


def _linted(source: Source, said: Settings, known: dict[Path, Settings], stdin_name: str | None) -> Linted | Excluded:
    name = source.document.name
    piped = name == STDIN
    if piped and stdin_name:
        name = stdin_name
        source = attrs.evolve(source, document=attrs.evolve(source.document, name=name))
    folder = Path(name).absolute().parent
    if folder not in known:
        known[folder] = read(folder).under(said)
    settings = known[folder]
    if name.endswith(_PYTHON) and source.document.text:
        raise _no_config(name)
    if settings.file is not None and settings.excludes(name):
        return Excluded(name, settings.file)
    if settings.target is not None:
        source = attrs.evolve(source, target=settings.target, guessed=False)
    if settings.arguments is not None:
        source = _told(source, settings.arguments, settings.target is not None)
    return attrs.evolve(check(source, settings), piped=piped)


def _no_config(name: str) -> DsgenError:
    """The error of a Python program in a config's place."""
    return mistake(
        "it is a Python program",
        must="what is linted is the config that it names, or a file of arguments",
        where=name,
        todo=f"dsgen lint ds_config.json --args {name} compares the program with its config.",
        code="refused",
    )


def _told(source: Source, path: str, asked: bool) -> Source:
    """A config with what the Trainer's arguments of a file settle; without another word the Trainer hands it over.

    One in Accelerate's file too: it fills in, and compares, what `accelerate launch` has made of that file
    (propagate_args_to_deepspeed of transformers 5.23, integrations/deepspeed.py).

    Args:
        source: The config.
        path: The file of arguments.
        asked: Whether a person says which program hands the config over.

    Raises:
        DsgenError: Arguments that cannot be read, or of a config that another program hands over.
    """
    from dsgen.linting.told_arguments import arguments_of, check_program, loads_of, with_arguments

    if not isinstance(source.document.config, Mapping) or source.document.kind == "launch":
        return source
    if source.guessed or (not asked and source.target == ACCELERATE.name):
        source = attrs.evolve(source, target=HF_TRAINER.name, guessed=False)
    check_program(source.target, path)
    return with_arguments(source, arguments_of(path), loads_of(path))


def _facts(source: Source, settings: Settings) -> Facts:
    """What is known of the run besides its config."""
    besides: dict[str, Any] = {
        "accelerator": settings.accelerator,
        "client_optimizer": settings.client_optimizer,
        "missing": settings.missing,
        "calls": settings.calls,
        "parameters": parameter_names(settings.parameters) if settings.parameters else None,
        "told": source.told,
        "loads": source.loads,
        "launched": source.of is not None and settings.target is None,  # a person who names the program knows it
    }
    profiles: dict[str, Any] = {"hardware": settings.hardware, "model": settings.model, "network": settings.network}
    if settings.scenario is not None or settings.wishes:
        from dsgen.linting import said_jobs  # it assembles a job

        fields = {**settings.wishes, "gpus": settings.world_size, "seq_len": settings.seq_len}
        job = said_jobs.job(settings.scenario, profiles=profiles, fields=fields, deepspeed=settings.deepspeed)
        if job is not None:
            if settings.scenario is not None:
                return of_job(job, **besides, job_world=job.world)
            ranks = settings.world_size or source.world_size
            return of_job(job, **besides, **({"world_size": ranks} if ranks else {}))
        besides["training"] = said_jobs.wishes(settings.wishes)
    ranks = settings.world_size or source.world_size
    return facts_of(source.document.config, world_size=ranks, seq_len=settings.seq_len, **profiles, **besides)
