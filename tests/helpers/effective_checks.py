"""What DeepSpeed holds of a config beside what dsgen's tables say: the same but where a reason is known."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from dsgen import targets
from dsgen.asking import handovers
from dsgen.deepspeed import surface
from dsgen.documents.document import unwritten
from dsgen.effective import Effective
from dsgen.linting import meanings
from dsgen.linting.subjects import OPEN, Subject
from dsgen.linting.taken import Handover
from dsgen.shapes.findings import Finding, Severity

__all__ = ["compare", "contradictions"]

_DEVICES = {f"zero_optimization.offload_{what}.device": what for what in ("optimizer", "param")}
_DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "float16": "float16", "bfloat16": "bfloat16"}
_THE_MACHINE = "a machine with a GPU may take it"  # it loads on a CPU, which lint does not assume
_KEY = re.compile(r"[a-z_0-9]+(?:\.[a-z_0-9]+)+|train_\w+|gradient_\w+")  # in a sentence
_BATCH = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")


def compare(found: Effective, target: str) -> tuple[int, list[tuple[Any, ...]]]:
    """How many values were compared, and those that differ: config, path, ours, DeepSpeed's."""
    known = surface.load("0.19")
    subject = _subject(found, known, target)
    compared, wrong = 0, []
    for path, theirs in found.values.items():
        ours = subject.value(path)
        if known.key(path, subject.config) is None or ours is OPEN or theirs == {}:
            continue
        compared += 1
        same = ours == theirs and isinstance(ours, bool) == isinstance(theirs, bool)
        moved = any(item.happened == "moved" and item.note == f"to {path}" for item in found.rows)
        if not same and not moved and not _derived(path, subject, ours, theirs):
            wrong.append((found.name, path, ours, theirs))
    return compared, wrong


def _derived(path: str, subject: Subject, ours: Any, theirs: Any) -> bool:
    """Whether there is a reason for DeepSpeed to hold something else than the key alone says."""
    if path in subject.target.overwritten:
        return bool(theirs == subject.target.overwritten[path])  # whatever the config says
    if path in _BATCH:
        return ours is None  # worked out from the others and from the number of ranks
    if path == "optimizer.type":
        return bool(str(ours).lower() == theirs)  # `subject.optimizer` is what rules read
    if path.startswith(("optimizer.params.", "scheduler.params.")):
        return not subject.written(path)  # a default of the class, which Surface.key knows
    if path == "zero_optimization.overlap_comm":
        return ours is None and theirs is (subject.stage == 3)
    if path in _DEVICES:
        return bool(subject.offload(_DEVICES[path]) == theirs)  # by the deprecated cpu_offload and cpu_offload_param
    if path == "wall_clock_breakdown":
        return subject.on("flops_profiler")
    if path.endswith(("communication_data_type", "torch_autocast.dtype")):
        return theirs == f"torch.{_DTYPES.get(str(ours))}"
    if path.endswith(".nvme_path"):
        return theirs == "<PosixPath>"
    if path == "checkpoint.writer.type":
        return str(ours).upper() == theirs
    return path.startswith("expert_parallel.") and ours == "unset"  # a sentinel of DeepSpeed's own


def _subject(found: Effective, known: surface.Surface, target: str) -> Subject:
    config: dict[str, Any] = {}
    for item in found.rows:
        *sections, key = item.path.split(".")
        node = config
        for section in sections:
            node = node.setdefault(section, {})
        node[key] = item.written
    return Subject(config=config, surface=known, target=targets.find(target), document=unwritten(config))


def contradictions(config: Handover, loaded: Effective) -> list[tuple[str, ...]]:
    """Where a config as DeepSpeed loaded it is not what lint says of it: the file, and both sides."""
    name, subject = loaded.name, _as_linted(config)
    judged = config.judged(loaded.deepspeed)
    stops = [item for item in judged.findings if item.severity is Severity.ERROR]
    errors = {item.path for item in stops}
    told = handovers.agreeing(loaded, config)
    wrong: list[tuple[str, ...]] = []
    if loaded.refused is not None and _THE_MACHINE in loaded.refused.sentence:
        return []
    if (told.refused is not None) != bool(errors):
        wrong.append((name, "refused", str(told.refused), str(errors)))
    if told.refused is not None and errors and (blamed := _blamed(told.refused.sentence, subject, errors)):
        wrong.append((name, "blames", blamed, str(errors)))
    if loaded.refused is not None or loaded.answers is None:
        return wrong
    said = loaded.answers
    offloads = meanings.offloads(subject, subject.stage)
    pairs = [
        ("stage", said.stage, subject.stage),
        ("optimizer on", said.offload_optimizer, offloads[0]),
        ("parameters on", said.offload_parameters, offloads[1]),
        ("optimizer named", bool(said.optimizer), bool(subject.optimizer)),
    ]
    hidden = not subject.target.takes_every_auto and subject.written("bfloat16")  # the rule bfloat16-hidden
    if not hidden and all(subject.value(f"{dtype}.enabled") is not OPEN for dtype in ("fp16", "bf16")):
        pairs.append(("dtype", said.dtype, meanings.precision(subject) or said.dtype))
    pairs += [
        (row.path, row.happened == "left open", subject.is_open(row.path))
        for row in loaded.rows
        if row.written == "auto"
    ]
    wrong += [(name, "reads", *pair) for pair in _read_by_one(loaded, judged.findings)]
    return wrong + [(name, what, str(theirs), str(ours)) for what, theirs, ours in pairs if theirs != ours]


def _blamed(sentence: str, subject: Subject, errors: Collection[str]) -> str | None:
    """The written key that a sentence names before any key that lint has an error of."""
    named = {path.rpartition(".")[2] for path in errors}
    for match in re.finditer(r"[\w.]+", sentence):
        word = match[0].rstrip(".")
        if word.rpartition(".")[2] in named or any(_related(word, path) for path in errors if subject.written(word)):
            return None
        if _KEY.fullmatch(word) and subject.written(word):
            return word
    return None


def _related(one: str, other: str) -> bool:
    """Whether two keys are the same, or one the section of the other."""
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")


def _read_by_one(loaded: Effective, findings: Sequence[Finding]) -> Iterator[tuple[str, str]]:
    """The keys that DeepSpeed did not look at and lint says nothing of, and those that lint alone calls unread."""
    for row in loaded.rows:
        unread, last = row.happened == "not read", row.path.rpartition(".")[2]
        if unread and not any(
            _related(row.path, item.path) or last in item.message or row.path in _edited(item) for item in findings
        ):
            yield row.path, "no finding"
        if not unread and any(item.rule == "unread-key" and item.path == row.path for item in findings):
            yield row.path, row.happened


def _edited(finding: Finding) -> set[str]:
    """The keys that a finding would have mended: one of several keys names six of them, and mends all."""
    return {edit.path for edit in finding.fix.edits} if finding.fix is not None else set()


def _as_linted(config: Handover) -> Subject:
    source = config.source
    return Subject(
        config=source.document.config if isinstance(source.document.config, Mapping) else {},
        surface=surface.load("0.19"),
        target=targets.find(source.target),
        document=source.document,
    )
