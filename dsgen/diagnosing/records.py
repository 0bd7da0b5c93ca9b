"""A log read in one pass into what it says: the signs of causes in order, errors nobody knows, time and memory."""

from __future__ import annotations

import re
from collections.abc import Iterable

import attrs

from dsgen.diagnosing import timings
from dsgen.diagnosing.causes import ABOVE, BY_CODE, CAUSES, CONSEQUENCE, SLOW, UNKNOWN, Cause
from dsgen.diagnosing.marked_lines import marked
from dsgen.diagnosing.numbers_in_logs import Fact, facts_of
from dsgen.diagnosing.phases import FRAMES, MARKS, OFTEN_MARKS, Phase, after_frame, after_mark
from dsgen.diagnosing.speakers import rank_in, spoken

__all__ = ["UNKNOWN_ERROR", "RunRecord", "Symptom", "read"]

UNKNOWN_ERROR = "unknown-error"  # the code of an error that no cause knows
MOST_RANKS = 1 << 16  # whose tracebacks are followed at once
SHOWN_RANKS = 16  # lowest ranks that are kept of a symptom
LONGEST_QUOTE = 300  # letters of a line that are kept
HARMLESS_OVERFLOWS = 40  # steps that a scale of 2**32 skips until it has its size, and a few later
_LOADER = "DataLoader worker"  # a message that says itself when it is
_TRACEBACK = "Traceback (most recent call last)"
_LISTED = re.compile(r"^\s*rank\s*: (\d{1,6}) \(local_rank")  # in the summary of torchrun, a line above the exit code
_LISTED_WORD = "(local_rank: "
_ERROR = re.compile(r"^(?:E +)?((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Failure|Refused)\b)(?::\s*(.*))?$")
# Errors of launchers and of ranks that are ended: they say that another error was there.
_ECHOES = re.compile(
    r"ChildFailedError|CalledProcessError|SignalException|ProcessExitedException|ChildProcessError"
    r"|ProcessRaisedException|DistBackendError|DistStoreError|DistNetworkError|RayTaskError"
)
_FAILED = re.compile(r"exits with return code = (-?[1-9]\d*)|exitcode\s*: (-?[1-9]\d*)|Exited with exit code ([1-9]\d*)"
                     r"|CalledProcessError|ChildFailedError")  # fmt: skip
_FAILED_WORDS = (
    "exits with return code",
    "exitcode",
    "Exited with exit code",
    "CalledProcessError",
    "ChildFailedError",
)
_FINISHED = ("train_steps_per_second", "Training completed", "exits successfully")
_WORLD = re.compile(r"dist_world_size=(\d+)|\bnranks (\d+)|world[_ ]size[:=] ?(\d+)|MEMBER: \d+/(\d+)")
_WORLD_WORDS = ("dist_world_size=", "nranks ", "MEMBER: ")
_PEAK = re.compile(r"Max_MA ([\d.]+) GB.*?Max_CA ([\d.]+) GB|MaxMemAllocated=([\d.]+)GB")
_PEAK_WORDS = ("Max_MA ", "MaxMemAllocated=")
_GIB = 2**30


@attrs.frozen(kw_only=True)
class Symptom:
    """The first sign of one cause, and how many there are.

    Attributes:
        code: The cause, or UNKNOWN_ERROR.
        line, last_line: Where its first and its last sign stand, from 1.
        text: The line, shortened.
        rank: Who says it; None where nobody is named.
        phase: When, as its traceback or else the log tells; None where neither does.
        step: The optimizer step that ran, from 1; None before the first that the log tells of.
        facts: The numbers of the message.
        count: Lines that are signs of it.
        ranks: The ranks that say it, the lowest of them.
        behind: Of a collective that did not end, rank -> the number of the collective it was at.
    """

    code: str
    line: int
    last_line: int
    text: str
    rank: int | None
    phase: Phase | None
    step: int | None
    facts: dict[str, Fact]
    count: int = 1
    ranks: tuple[int, ...] = ()
    behind: dict[int, int] = attrs.field(factory=dict)

    @property
    def cause(self) -> Cause | None:
        """What it is a sign of; None for an error that nobody knows."""
        return BY_CODE.get(self.code)

    @property
    def level(self) -> int:
        """How far from the root it is."""
        return self.cause.level if self.cause is not None else UNKNOWN

    @property
    def harmless(self) -> bool:
        """Whether it is what every run in fp16 says at its beginning."""
        scale = self.facts.get("scale")
        settled = not isinstance(scale, float) or scale > 1
        return self.code == "overflow" and self.count <= HARMLESS_OVERFLOWS and settled


@attrs.frozen(kw_only=True)
class RunRecord:
    """What a log says.

    Attributes:
        lines, size_bytes: Of the log.
        symptoms: Every cause that has a sign, and the first error that nobody knows, in the order of the log.
        failed: The last line by which a launcher says that a rank failed; empty where none does.
        last_error: The last line that names an error; empty where none does.
        last_line: The last line with anything in it.
        finished: Whether the program said that it was done, after every symptom.
        last_progress: The last line that says that a step was done; 0 where none does.
        world: GPUs in all, where the log says it.
        peak_allocated_bytes, peak_reserved_bytes: The largest that DeepSpeed printed; 0 where it printed none.
        time: What steps took.
    """

    lines: int
    size_bytes: int
    symptoms: tuple[Symptom, ...]
    failed: str
    last_error: str
    last_line: str
    finished: bool
    last_progress: int
    world: int | None
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    time: timings.Timings

    @property
    def root(self) -> Symptom | None:
        """The first symptom that explains the others; None where there is none.

        What ends a run by itself comes before what follows from it, wherever it stands: ranks write at their own time.
        """
        follows = min((one.line for one in self.symptoms if one.level == CONSEQUENCE), default=None)
        able = [one for one in self.symptoms if not one.harmless and not self._outlived(one, follows)]
        return min(able, key=lambda one: (one.level, one.line), default=None)

    def _outlived(self, one: Symptom, follows: int | None) -> bool:
        """Whether an error that nobody knows is no cause: ranks were gone already, or the run went on after it."""
        if one.level != UNKNOWN:
            return False
        went_on = self.finished or (one.last_line < self.last_progress and not self.failed)
        return went_on or (follows is not None and one.line > follows)

    @property
    def others(self) -> tuple[Symptom, ...]:
        """The other symptoms, in the order of the log; not the error by which the first one was told."""
        root = self.root
        return tuple(one for one in self.symptoms if root is None or (one.code != root.code and one.text != root.text))


class _Notes:
    """What is written down while a log is read."""

    def __init__(self) -> None:
        self.symptoms: dict[str, Symptom] = {}
        self.tracebacks: dict[int | None, Phase | None] = {}
        self.frames: dict[int | None, tuple[str, ...]] = {}  # the patterns of ABOVE that a rank's traceback has
        self.values: dict[str, timings.Values] = {}
        self.reached: Phase | None = None
        self.step: int | None = None
        self.listed: int | None = None
        self.last_step = 0
        self.failed = self.last_error = ""
        self.finished = False
        self.last_progress = 0
        self.world: int | None = None
        self.allocated = self.reserved = 0

    def take(self, number: int, line: str, window: str) -> None:
        """Write down what one line says."""
        rank, text = spoken(line)
        if _TRACEBACK in text:
            self.tracebacks.pop(rank, None)
            self.frames.pop(rank, None)
        if any(mark in text for mark in FRAMES) and (rank in self.tracebacks or len(self.tracebacks) < MOST_RANKS):
            self.tracebacks[rank] = after_frame(self.tracebacks.get(rank), text)
            if read_by := tuple(below for below, frame in ABOVE.items() if frame.search(_frame(window))):
                self.frames[rank] = read_by
        self.reached = after_mark(self.reached, text)
        if (done := timings.read(text, self.values)) is not None:
            self.step, self.last_step = done + 1, max(self.last_step, done)
            self.last_progress = number if done else self.last_progress
            self.reached = "training" if done else self.reached
        self._size(text)
        if listed := _LISTED.match(text):
            self.listed = int(listed[1])
        if any(word in text for word in _FINISHED):
            self.finished = True
        frames = self.frames.get(rank, ())
        cause = _cause(line, window, frames)
        raised = _said(text, window) if cause is not None else ""
        if cause is not None and raised != _quoted(text) and _cause(raised, raised, frames) is not None:
            cause = None  # the error after this frame, or line of code, tells more, and is read by itself
        error = _ERROR.match(text)
        if cause is not None:
            self._sign(cause.code, number, text, window, rank)
        elif error and not _ECHOES.search(text) and not (error[2] == "" and _cause_below(window)):
            self._sign(UNKNOWN_ERROR, number, text, window, rank)
        if error and not _ECHOES.search(text):
            self.last_error = _quoted(text)
        if _FAILED.search(text):
            self.failed = _quoted(text)

    def _size(self, text: str) -> None:
        if self.world is None and (match := _WORLD.search(text)):
            self.world = int(next(group for group in match.groups() if group)[:7]) or None
        if match := _PEAK.search(text):
            numbers = [
                float(group) if group and group.count(".") < 2 and group != "." else 0.0 for group in match.groups()
            ]
            self.allocated = max(self.allocated, int(max(numbers[0], numbers[2]) * _GIB))
            self.reserved = max(self.reserved, int(numbers[1] * _GIB))

    def _sign(self, code: str, number: int, text: str, window: str, rank: int | None) -> None:
        facts = facts_of(code, window)
        who = rank if rank is not None else rank_in(text)
        who = self.listed if who is None and "exitcode" in text else who
        known = self.symptoms.get(code)
        self.finished = False
        if known is None:
            known = Symptom(
                code=code, line=number, last_line=number, text=_said(text, window), rank=who, facts=facts, count=0,
                step=self.step, phase=self._phase(code, rank, text),
            )  # fmt: skip
        elif code in ("overflow", "cache-flushes"):
            known = attrs.evolve(known, facts={**known.facts, **facts})
        elif number == known.line or not known.facts:
            known = attrs.evolve(known, facts={**facts, **known.facts})
        if known.phase is None and (phase := self._phase(code, rank, text)) is not None:
            known = attrs.evolve(known, phase=phase)
        behind, work = known.behind, facts.get("number")
        if who is not None and isinstance(work, int) and (who in behind or len(behind) < MOST_RANKS):
            behind = {**behind, who: min(work, behind.get(who, work))} if behind.get(who) != work else behind
        ranks = known.ranks
        if who is not None and who not in ranks:
            ranks = tuple(sorted((*ranks, who)))[:SHOWN_RANKS]
        self.symptoms[code] = attrs.evolve(known, count=known.count + 1, last_line=number, ranks=ranks, behind=behind)

    def _phase(self, code: str, rank: int | None, text: str) -> Phase | None:
        """When it was: as the traceback says, else as the cause always is, else as far as the log has come."""
        cause = BY_CODE.get(code)
        told = self.tracebacks.get(rank)
        if code in ("nccl-timeout", "process-killed", "time-limit", "node-failed", "cancelled"):
            return self.reached
        if cause is not None and cause.level == SLOW:
            return cause.phase or self.reached
        if told is None and _LOADER in text:
            return "data"
        return told or (cause.phase if cause is not None else None) or self.reached


def _cause(line: str, window: str, frames: tuple[str, ...] = ()) -> Cause | None:
    """The first cause that a line tells; None where it tells none."""
    return next((one for one in CAUSES if any(sign.tells(line, window, frames) for sign in one.signs)), None)


def _frame(window: str) -> str:
    """A frame and its line of code."""
    return "\n".join(window.split("\n", 2)[:2])


def _cause_below(window: str) -> bool:
    """Whether the line below, where one is written, tells a cause: messages may begin there."""
    below = next((line for line in window.split("\n")[1:4] if line.strip()), "")
    return _cause(below, below) is not None


def _code(text: str) -> bool:
    """Whether a line is a frame, or the line of code that raised an error: both may quote its message."""
    return FRAMES[0] in text or text.lstrip().startswith("raise ")


def _said(text: str, window: str) -> str:
    """What a line says; of a frame, or a line of code, the error that follows it."""
    if _code(text):
        following = (spoken(line)[1] for line in window.split("\n")[1:6])
        text = next((line for line in following if _ERROR.match(line)), text)
    return _quoted(text)


def _quoted(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= LONGEST_QUOTE else plain[: LONGEST_QUOTE - 3] + "..."


def _words() -> tuple[bytes, ...]:
    """Every word whose line is read."""
    signs = {sign.word for cause in CAUSES for sign in cause.signs}
    others = (_TRACEBACK, _LISTED_WORD, *FRAMES, *MARKS, *timings.WORDS, *_FAILED_WORDS, *_FINISHED, *_WORLD_WORDS,
              *_PEAK_WORDS, "Error", "Exception", "Failure", "Refused")  # fmt: skip
    every = sorted(signs.union(others), key=len)
    least = [word for place, word in enumerate(every) if not any(other in word for other in every[:place])]
    return tuple(word.encode() for word in least)


_WORDS = _words()
_OFTEN = tuple(word.encode() for word in (*timings.OFTEN, *OFTEN_MARKS))


def read(blocks: Iterable[bytes]) -> RunRecord:
    """Read a log.

    Args:
        blocks: Its bytes, in pieces of any size.
    """
    notes, counts = _Notes(), _Counts()
    for line in marked(counts.through(blocks), _WORDS, _OFTEN):
        notes.take(*line)
    return RunRecord(
        lines=counts.lines,
        size_bytes=counts.bytes,
        symptoms=tuple(sorted(notes.symptoms.values(), key=lambda one: one.line)),
        failed=notes.failed,
        last_error=notes.last_error,
        last_line=counts.last_line,
        finished=notes.finished,
        last_progress=notes.last_progress,
        world=notes.world,
        peak_allocated_bytes=notes.allocated,
        peak_reserved_bytes=notes.reserved,
        time=timings.timings(notes.values, notes.last_step),
    )


class _Counts:
    """Lines and bytes that pass by, and the end of them."""

    def __init__(self) -> None:
        self.lines = self.bytes = 0
        self.tail = b""

    def through(self, blocks: Iterable[bytes]) -> Iterable[bytes]:
        """The blocks as they are."""
        for block in blocks:
            self.lines += block.count(b"\n")
            self.bytes += len(block)
            self.tail = (self.tail + block)[-4 * LONGEST_QUOTE :]
            yield block
        if self.tail and not self.tail.endswith(b"\n"):
            self.lines += 1

    @property
    def last_line(self) -> str:
        """The last line with anything in it."""
        lines = self.tail.decode("utf-8", "replace").replace("\r", "\n").split("\n")
        return _quoted(next((line for line in reversed(lines) if line.strip()), ""))
