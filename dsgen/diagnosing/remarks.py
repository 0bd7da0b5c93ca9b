"""What the numbers of a log say, beside those that were predicted for the job: sentences for a person."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from dsgen.asking.memory_questions import Question
from dsgen.cost.steps import speed_interval
from dsgen.diagnosing.records import RunRecord, Symptom
from dsgen.memory import MemoryEstimate, Verdict
from dsgen.memory.evaluating import evaluation
from dsgen.planning.candidates import Candidate
from dsgen.shapes.units import gib

__all__ = ["fragmented", "missing_bytes", "of"]

OTHER_CARD = 0.05  # share by which a card's size may differ from what is sold
ANOTHER_PROCESS = 2**30  # bytes beyond a process and the free ones that are somebody else's
BETWEEN_BLOCKS = 0.05  # share of a card between blocks from which on it is worth a change
_TRAINING = (None, "forward", "backward", "step", "training")  # phases whose peak is the one that is predicted


def of(
    record: RunRecord, root: Symptom | None, question: Question | None, predicted: MemoryEstimate | None,
    now: Candidate | None,
) -> Iterator[str]:  # fmt: skip
    """Every sentence, those of the log alone first."""
    if root is not None and (speaker := _OF_LOG.get(root.code)) is not None:
        yield from speaker(root, record)
    if question is None or predicted is None:
        return
    if record.world is not None and record.world != question.job.world:
        yield f"the log is of {record.world} GPUs, the job here of {question.job.world}: say --gpus {record.world}"
    if root is None:
        return
    if root.code == "gpu-out-of-memory":
        yield from _gpu_beside(root, predicted)
        if root.phase == "evaluate" and (one := evaluation(question.job, question.strategy)) is not None:
            yield f"an evaluation of {one.sequences} sequences at a time at {gib(one.peak_bytes)}, {one.verdict.value}"
    if root.code in ("host-out-of-memory", "process-killed"):
        yield from _host_beside(predicted)
    if root.code == "nccl-timeout" and now is not None:
        yield from _timeout_beside(root, now)
    if root.code in ("loss-scale-at-minimum", "overflow", "not-a-number"):
        yield from _precision_beside(question)
    if root.code == "flash-attention-unsupported" and question.job.hardware.bf16_flops_per_second:
        own = question.job.names["hardware"]
        yield f"the job's {own} takes FlashAttention: another GPU ran, nvidia-smi -L shows which"
    if root.code == "dummy-optimizer":
        wishes = question.job.training
        yield f"for this job: DummyOptim(parameters, lr={wishes.lr:g}, weight_decay={wishes.weight_decay:g})"
    if root.code == "quantized-elsewhere":
        weights, gpu = predicted.gpu.parts.get("weights", 0), predicted.gpu
        yield f"its weights take {gib(weights)} of the {gib(gpu.limit_bytes)} GiB of every rank's GPU: whole on each"
    if root.code == "accelerate-batch-unknown":
        yield f"for this job: train_micro_batch_size_per_gpu = {question.strategy.micro_batch}"


def _size(symptom: Symptom, name: str) -> int | None:
    value = symptom.facts.get(f"{name}_bytes")
    return value if isinstance(value, int) else None


def _count(symptom: Symptom, name: str) -> int | None:
    value = symptom.facts.get(name)
    return value if isinstance(value, int) else None


def fragmented(root: Symptom) -> int | None:
    """Bytes between blocks that would have been enough for what was asked; None where they would not, or are few."""
    asked, total, loose = (_size(root, name) for name in ("asked", "total", "unallocated"))
    if loose is None or total is None or loose < BETWEEN_BLOCKS * total:
        return None
    return loose if asked is None or loose + (_size(root, "free") or 0) >= asked else None


def missing_bytes(root: Symptom, predicted: MemoryEstimate) -> int:
    """What was missing at least: what was asked and not free, or what the prediction is over the card."""
    asked = (_size(root, "asked") or 0) - (_size(root, "free") or 0)
    return max(0, asked, predicted.gpu.needed_bytes - predicted.gpu.limit_bytes)


def _gpu(root: Symptom, record: RunRecord) -> Iterator[str]:
    reserved, allocated, loose = (_size(root, name) for name in ("reserved", "allocated", "unallocated"))
    if reserved is not None and allocated is not None and loose is not None:
        told = f"torch had reserved {gib(reserved)} and allocated {gib(allocated)} GiB"
        if fragmented(root) is not None:
            yield f"{told}: {gib(loose)} GiB lie between blocks, which no single tensor could use"
        else:
            yield f"{told}: it was full, and not fragmented"
    if (others := _others(root)) is not None:
        yield f"{gib(others)} GiB of the card are another process's: nvidia-smi shows whose"


def _others(root: Symptom) -> int | None:
    """Bytes of a card that are neither this process's nor free."""
    total, reserved = _size(root, "total"), _size(root, "reserved")
    if (said := _size(root, "others")) is not None and said >= ANOTHER_PROCESS:
        # In a container this process is listed under another number: it and others cannot have more than the card.
        return None if total is not None and said + (reserved or 0) > total else said
    free, mine = _size(root, "free"), _size(root, "process")
    if total is None or free is None or mine is None:
        return None
    return total - free - mine if total - free - mine >= ANOTHER_PROCESS else None


def _gpu_beside(root: Symptom, predicted: MemoryEstimate) -> Iterator[str]:
    gpu = predicted.gpu
    total, allocated, reserved = (_size(root, name) for name in ("total", "allocated", "reserved"))
    if total is not None and abs(total - gpu.limit_bytes) > OTHER_CARD * gpu.limit_bytes:
        yield f"the log's card has {gib(total)} GiB, the job's {gib(gpu.limit_bytes)}: another --hw ran"
        return
    if root.phase not in _TRAINING:
        yield f"training was predicted to peak at {gib(gpu.peak_bytes)} GiB, {gpu.verdict.value}"
        return
    if predicted.verdict is Verdict.DOES_NOT_FIT:
        yield f"this job was predicted not to fit: {gib(gpu.needed_bytes)} of {gib(gpu.limit_bytes)} GiB"
        return
    told = f"this job was predicted to reserve {gib(gpu.reserved_bytes)} GiB, {gib(gpu.peak_bytes)} of it allocated"
    if allocated is None:
        yield told
    elif allocated > gpu.tensors_high_bytes:
        yield (
            f"{told}; the run allocated {gib(allocated - gpu.peak_bytes)} more: it is not the job that is described "
            "here. Longer sequences, no checkpointing, another model or optimizer, or a leak"
        )
    elif reserved is not None and fragmented(root) is not None and reserved > gpu.reserved_bytes:
        yield f"{told}: the difference is fragmentation"
    elif allocated < gpu.low_bytes:
        yield f"{told}: it ran out before its peak"
    else:
        yield f"{told}, as the run did"


def _host_beside(predicted: MemoryEstimate) -> Iterator[str]:
    host = predicted.host
    yield (
        f"this job was predicted to take {gib(host.needed_bytes)} of {gib(host.limit_bytes)} GiB of a node's RAM "
        f"({host.verdict.value}), most in {host.phase}; the largest part: {_largest(host.parts)}"
    )


def _largest(parts: Mapping[str, int]) -> str:
    name = max(parts, key=lambda one: parts[one], default="")
    return f"{name}, {gib(parts[name])} GiB" if name else "none"


def _timeout(root: Symptom, record: RunRecord) -> Iterator[str]:
    kind, timeout, elements = root.facts.get("collective"), _count(root, "timeout_ms"), _count(root, "elements")
    if kind is not None and timeout is not None:
        of = f" of {elements:,} elements" if elements is not None else ""
        yield f"{kind}{of} did not end within {timeout / 1000:,.0f} s"
    at = root.behind
    if len(set(at.values())) > 1:
        last, first = min(at, key=lambda rank: (at[rank], rank)), max(at.values())
        yield (
            f"rank {last} stands at collective {at[last]:,}, others at {first:,}: it is the one that is behind, or "
            "went another way"
        )
    elif record.world is not None and at and len(at) < record.world:
        absent = [rank for rank in range(record.world) if rank not in at]
        few = ", ".join(map(str, absent[:8])) + (", ..." if len(absent) > 8 else "")
        yield f"no time-out is in this log of ranks {few}: look at them first"


def _timeout_beside(root: Symptom, now: Candidate) -> Iterator[str]:
    timeout = _count(root, "timeout_ms")
    if timeout is None:
        return
    low, _ = speed_interval(now.job, now.strategy)
    longest = now.cost.seconds / low
    steps = timeout / 1000 / now.cost.seconds
    if timeout / 1000 > longest:
        step = f"a step was predicted to take {now.cost.seconds:,.3g} s"
        yield f"{step}; the time-out is {steps:,.0f} of them: stuck, not slow"
    else:
        yield f"a step was predicted to take up to {longest:,.0f} s: the time-out is too short (ddp_timeout)"


def _batch(root: Symptom, record: RunRecord) -> Iterator[str]:
    names = ("train_batch_size", "micro_batch", "accumulation", "world_size")
    total, micro, steps, world = (_count(root, name) for name in names)
    if total is None or micro is None or steps is None or world is None:
        return
    yield f"{total:,} is written, and {micro} x {steps} x {world} ranks are {micro * steps * world:,}"
    if micro and world and total % (micro * world) == 0 and total // (micro * world) != steps:
        ranks = f"{world} rank{'s' if world > 1 else ''}"
        yield f"with gradient_accumulation_steps {total // (micro * world)} it is right on {ranks}"
    if micro and steps and total % (micro * steps) == 0 and total // (micro * steps) != world:
        needed = total // (micro * steps)
        yield f"with these keys it needs {needed} rank{'' if needed == 1 else 's'}; {world} started"


def _scale(root: Symptom, record: RunRecord) -> Iterator[str]:
    scale = root.facts.get("scale")
    if isinstance(scale, float):
        yield f"{root.count:,} steps were skipped; the scale stands at {scale:,.0f}"


def _flushes(root: Symptom, record: RunRecord) -> Iterator[str]:
    warnings = f"{root.count:,} such warnings, the last" if root.count > 1 else "one such warning,"
    yield f"{warnings} of {root.facts.get('flushes', 'some')} flushes in a step"


def _precision_beside(question: Question) -> Iterator[str]:
    if question.strategy.precision == "bf16":
        yield "this job trains in bf16, without a loss scale: the run did not, or its data or learning rate is to blame"
    elif not question.job.hardware.bf16_flops_per_second:
        yield "this GPU has no bf16: fp32 for what overflows, or a lower learning rate"


def _pair(first: str, second: str, words: str) -> Callable[[Symptom, RunRecord], Iterator[str]]:
    """A speaker for two facts."""

    def speak(root: Symptom, record: RunRecord) -> Iterator[str]:
        if first in root.facts and second in root.facts:
            yield words.format(root.facts[first], root.facts[second])

    return speak


def _mismatch(root: Symptom, record: RunRecord) -> Iterator[str]:
    facts = root.facts
    for end in ("", *(f"_{number}" for number in range(2, len(facts)))):
        if f"key{end}" in facts:
            said, program = facts[f"config{end}"], facts[f"program{end}"]
            yield f"{facts[f'key{end}']} is {said} in the config, and {program} in TrainingArguments"


def _asked(root: Symptom, record: RunRecord) -> Iterator[str]:
    if (asked := _size(root, "asked")) is not None:
        yield f"one tensor of {gib(asked)} GiB was asked for"


_OF_LOG: Mapping[str, Callable[[Symptom, RunRecord], Iterator[str]]] = {
    "gpu-out-of-memory": _gpu,
    "host-out-of-memory": _asked,
    "nccl-timeout": _timeout,
    "batch-mismatch": _batch,
    "overflow": _scale,
    "cache-flushes": _flushes,
    "config-mismatch": _mismatch,
    "cuda-mismatch": _pair("toolkit", "torch", "the toolkit is CUDA {}, torch was built with {}"),
    "world-size-changed": _pair("saved", "now", "saved by {} ranks, loaded by {}"),
}
