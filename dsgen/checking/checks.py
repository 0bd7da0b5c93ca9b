"""The checks themselves: render, compare byte for byte, lint with the files of the job, ask for the memory."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path

import attrs

from dsgen.asking import memory_questions
from dsgen.checking.pairs import DEEPSPEED, Pair
from dsgen.documents.writing import write_atomically
from dsgen.frameworks import between_steps, job_files, keep_filled
from dsgen.jobs.job import Job
from dsgen.linting.files import Linted, lint_files
from dsgen.linting.settings import Settings
from dsgen.memory import MemoryEstimate, Verdict, estimate
from dsgen.rendering import Config
from dsgen.rendering import render as render_plan
from dsgen.rendering.wanted import job, plan, scenario
from dsgen.shapes.errors import DsgenError, mistake

__all__ = ["Checked", "check", "committed", "linted", "memory", "rendered", "tear", "update"]

_COMMENTED = ".hjson"  # a config of this name holds the reasons as comments


@attrs.frozen(kw_only=True, eq=False)
class Checked:
    """What the checks say of one scenario.

    Attributes:
        pair: The scenario and the files that belong to it.
        tear: Where the committed config and the rendered one differ, line by line; empty where they are the same.
        linted: The committed config and the files of the job, with their findings.
        memory: What a run with the committed config takes.
        cautions: What does not surely fit of what the framework does between the steps of what is rendered.
        refused: Why no config could be rendered: nothing fits, or a combination that DeepSpeed does not take.
    """

    pair: Pair
    tear: tuple[str, ...]
    linted: tuple[Linted, ...] = attrs.field(repr=False)
    memory: MemoryEstimate | None = attrs.field(repr=False)
    refused: DsgenError | None = None
    cautions: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """Whether nothing is shown of any file."""
        return not any(file.findings for file in self.linted)

    @property
    def fits(self) -> bool:
        """Whether it fits for sure."""
        return self.memory is not None and self.memory.verdict is Verdict.FITS

    @property
    def ok(self) -> bool:
        """Whether every check holds."""
        return self.refused is None and not self.tear and self.clean and self.fits


def check(asked: Pair) -> Checked:
    """Everything that can be said of a scenario without starting it.

    Raises:
        DsgenError: A mistake in the scenario or the settings, or a config that is no config.
    """
    try:
        config, texts = rendered(asked)
    except DsgenError as error:
        if error.code not in ("does-not-fit", "refused"):
            raise
        return Checked(pair=asked, tear=(), linted=(), memory=None, refused=error)
    there = Path(asked.config).is_file()
    return Checked(
        pair=asked,
        tear=tear(asked, texts),
        linted=linted(asked) if there else (),
        memory=memory(asked) if there else estimate_of(asked),
        cautions=tuple(between_steps.cautions(between_steps.laters(config.plan, asked.target))),
    )


def rendered(asked: Pair) -> tuple[Config, Mapping[str, str]]:
    """The config of a scenario, and the text of each file that is to be committed by its path: the config's first.

    Raises:
        DsgenError: As `dsgen render`.
    """
    config = render_plan(plan(_job(asked)))
    if asked.target == DEEPSPEED:
        return config, {asked.config: config.to_hjson() if asked.config.endswith(_COMMENTED) else config.to_json()}
    path = os.path.relpath(asked.config, asked.folder)  # whatever folder the check is run in, the files are the same
    made = job_files(config, asked.target, resolve=asked.resolve, path=path)
    first, *rest = made.files
    folder = Path(asked.config).parent
    texts = {str(folder / item.name): item.text for item in rest}
    return config, {
        asked.config: first.text,
        **{path: keep_filled(committed(path) or "", text) for path, text in texts.items()},
    }


def committed(path: str) -> str | None:
    """The text of a committed file, its line ends as they are; None where there is none.

    Raises:
        DsgenError: It cannot be read.
    """
    try:
        return Path(path).read_bytes().decode("utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return None
    except OSError as error:
        what = f"it cannot be read ({error.strerror or error})"
        raise mistake(what, where=path, code="unreadable") from None


def tear(asked: Pair, texts: Mapping[str, str]) -> tuple[str, ...]:
    """Where what is committed differs from texts: lines of a diff, or the reason where no line shows it.

    Raises:
        DsgenError: A committed file cannot be read.
    """
    return tuple(line for path, text in texts.items() for line in _torn(asked, path, text))


def _torn(asked: Pair, path: str, text: str) -> tuple[str, ...]:
    """The same of one file."""
    now = committed(path)
    if now == text:
        return ()
    if now is None:
        return (f"{path} is not there",)
    lines = difflib.unified_diff(
        now.splitlines(), text.splitlines(), f"{path} (committed)", f"{asked.scenario} (rendered)", lineterm=""
    )
    return tuple(line.encode("utf-8", "replace").decode("utf-8") for line in lines) or (
        f"{path} has the same lines and other line ends: git may have changed them (core.autocrlf)",
    )


def update(texts: Mapping[str, str]) -> bool:
    """Write texts as the committed files where they are not what is there; whether anything was written.

    Raises:
        DsgenError: One cannot be written.
    """
    stale = {path: text for path, text in texts.items() if committed(path) != text}
    for path, text in stale.items():
        write_atomically(path, text)
    return bool(stale)


def linted(asked: Pair) -> tuple[Linted, ...]:
    """The committed config and the other files of the job, linted for the job of the scenario.

    Raises:
        DsgenError: Broken settings, or a file that is not there.
    """
    named = [asked.config, *asked.files]
    answers = []
    for item in lint_files([*asked.files, asked.config], Settings(scenario=asked.scenario)):
        if isinstance(item, DsgenError):
            raise item
        if isinstance(item, Linted):
            answers.append(item)
    order = {name: place for place, name in enumerate(named)}
    return tuple(sorted(answers, key=lambda item: order.get(item.document.name, len(order))))


def memory(asked: Pair) -> MemoryEstimate:
    """What a run with the committed config takes, for the job of the scenario.

    Raises:
        DsgenError: It is no config.
    """
    question = memory_questions.question(_job(asked), asked.config)
    return estimate(question.job, question.strategy)


def estimate_of(asked: Pair) -> MemoryEstimate:
    """What a run as the scenario says it takes, where no config is committed."""
    return plan(_job(asked)).chosen.memory


def _job(asked: Pair) -> Job:
    """The job of a scenario, as its framework loads the model and brings its kernels."""
    said = job(scenario(asked.scenario))
    return said if asked.target == DEEPSPEED else memory_questions.for_program(said, asked.target)
