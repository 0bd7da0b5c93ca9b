"""A log and the job that ran to one answer: the cause, what the numbers say of it, and the next changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import attrs

from dsgen.asking.memory_questions import Question
from dsgen.asking.plan_questions.speedups import Speedup, speedups
from dsgen.asking.plan_questions.weighing import weigh
from dsgen.diagnosing import remarks
from dsgen.diagnosing.next_changes import NextChange, bf16, less_memory, smaller_evaluation, torch_attention
from dsgen.diagnosing.paces import Pace, of_pace, paced
from dsgen.diagnosing.records import RunRecord, Symptom, read
from dsgen.memory import MemoryEstimate, estimate
from dsgen.planning.candidates import Candidate
from dsgen.shapes.errors import DsgenError

__all__ = ["SLOW_STEPS", "Diagnosis", "diagnose"]

SLOW_STEPS = "slow-steps"  # the code of a run that fails nowhere and is slower than predicted
MOST_SPEEDUPS = 3  # changes that are shown
# Where an evaluation found the GPU full: nothing of training changes that.
_EVALUATION = (
    "per_device_eval_batch_size=1 (the Trainer's default is 8)",
    "with compute_metrics: preprocess_logits_for_metrics and eval_accumulation_steps=1, or the GPU keeps all logits",
)
# What one rank alone does while the others wait, and at ZeRO-3 needs all of them.
_OF_ALL_RANKS = {
    "save": "save_checkpoint, save_model and state_dict called by every rank, and not below `if rank == 0`: at ZeRO-3 "
    "all give their parts",
    "evaluate": "evaluation and generate() on every rank, with as many batches on each: at ZeRO-3 each forward needs "
    "all ranks (generate: synced_gpus=True)",
}
# Cause -> the one change that it asks for, with its numbers.
_ONE_CHANGE: Mapping[str, Callable[[Question], NextChange | None]] = {
    **dict.fromkeys(("loss-scale-at-minimum", "overflow", "not-a-number"), bf16),
    **dict.fromkeys(("flash-attention-unsupported", "flash-attention-missing"), torch_attention),
}


@attrs.frozen(kw_only=True)
class Diagnosis:
    """What went wrong in a run.

    Attributes:
        record: What the log says.
        root: The first symptom that explains the others; None where there is none.
        question: The job that ran; None where nobody said it.
        predicted: What it was predicted to take; None without a job.
        pace: Its steps beside the predicted one; None without a job or times.
        remarks: What the numbers say, a sentence each.
        changes: The next changes with their numbers for this job; empty without one, or where none has numbers.
        speedups: What would make it faster, where it is slow.
    """

    record: RunRecord
    root: Symptom | None
    question: Question | None = attrs.field(repr=False)
    predicted: MemoryEstimate | None = attrs.field(repr=False)
    pace: Pace | None
    remarks: tuple[str, ...]
    changes: tuple[NextChange, ...]
    speedups: tuple[Speedup, ...] = attrs.field(repr=False)

    @property
    def code(self) -> str | None:
        """A cause, UNKNOWN_ERROR, SLOW_STEPS, or "failed" where nobody says why; None where nothing is wrong."""
        if self.root is not None:
            return self.root.code
        if self.record.failed:
            return "failed"
        return SLOW_STEPS if self.pace is not None and self.pace.slow else None

    @property
    def general(self) -> tuple[str, ...]:
        """What to change whatever the job."""
        cause = self.root.cause if self.root is not None else None
        if self.root is not None and _in_evaluation(self.root):
            return _EVALUATION
        general = cause.changes if cause is not None else ()
        if self.root is not None and self.root.code == "nccl-timeout" and self.root.phase in _OF_ALL_RANKS:
            return (_OF_ALL_RANKS[self.root.phase], *general)
        return general


def diagnose(blocks: Iterable[bytes], question: Question | None = None) -> Diagnosis:
    """Read the log of a run and say what went wrong.

    Args:
        blocks: The log's bytes.
        question: The job that ran.

    Raises:
        DsgenError: The log cannot be read, or the job has no numbers.
    """
    record = read(blocks)
    root = record.root
    predicted = estimate(question.job, question.strategy) if question is not None else None
    now = _weighed(question)
    pace = paced(record, question, now)
    slow = root is None and not record.failed and pace is not None and pace.slow
    return Diagnosis(
        record=record,
        root=root,
        question=question,
        predicted=predicted,
        pace=pace,
        remarks=(*remarks.of(record, root, question, predicted, now), *of_pace(record, pace, question, now)),
        changes=_changes(root, question, predicted),
        speedups=_faster(question) if slow and question is not None else (),
    )


def _in_evaluation(root: Symptom) -> bool:
    return root.code == "gpu-out-of-memory" and root.phase == "evaluate"


def _faster(question: Question) -> tuple[Speedup, ...]:
    """What gains most: each change alone, and where several together gain more, those at the top."""
    asked = speedups(question)
    together = (asked.together,) if asked.together is not None else ()
    return (*together, *asked.changes)[:MOST_SPEEDUPS]


def _weighed(question: Question | None) -> Candidate | None:
    """The strategy with its time; None without a job, or where nobody knows how fast it is."""
    if question is None:
        return None
    try:
        return weigh(question.job, question.strategy)
    except DsgenError:
        return None


def _changes(
    root: Symptom | None, question: Question | None, predicted: MemoryEstimate | None
) -> tuple[NextChange, ...]:
    """The changes that have numbers for a cause."""
    if root is None or question is None or predicted is None:
        return ()
    if (only := _ONE_CHANGE.get(root.code)) is not None:
        change = only(question)
        return (change,) if change is not None else ()
    finder = _FINDERS.get(root.code)
    return finder(root, question, predicted) if finder is not None else ()


def _of_gpu(root: Symptom, question: Question, predicted: MemoryEstimate) -> tuple[NextChange, ...]:
    if _in_evaluation(root):  # what training takes says nothing of it
        change = smaller_evaluation(question)
        return (change,) if change is not None else ()
    return less_memory(question, "gpu", root.phase, remarks.missing_bytes(root, predicted))


def _of_flushes(root: Symptom, question: Question, predicted: MemoryEstimate) -> tuple[NextChange, ...]:
    gpu = predicted.gpu
    holes = gpu.reserved_bytes - gpu.allocated_bytes  # what the allocator keeps between blocks where it has enough
    return less_memory(question, "gpu", None, max(holes, gpu.high_bytes - gpu.limit_bytes))


def _of_host(root: Symptom, question: Question, predicted: MemoryEstimate) -> tuple[NextChange, ...]:
    host = predicted.host
    return less_memory(question, "host", None, max(0, host.high_bytes - host.limit_bytes))


_FINDERS: Mapping[str, Callable[[Symptom, Question, MemoryEstimate], tuple[NextChange, ...]]] = {
    "gpu-out-of-memory": _of_gpu,
    "cache-flushes": _of_flushes,
    "host-out-of-memory": _of_host,
    "process-killed": _of_host,
}
