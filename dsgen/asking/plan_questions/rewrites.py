"""From one strategy to another: the keys to write, in words, and what the program must do besides."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from dsgen.asking.memory_questions.questions import Question, buffers
from dsgen.asking.plan_questions.program_arguments import batch_arguments, is_filled, recomputing_arguments
from dsgen.jobs.releases import reenters
from dsgen.strategies.strategies import Strategy

__all__ = ["Rewrite", "rewrites"]

_ZERO = "zero_optimization"
_MICRO, _STEPS, _TOTAL = "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size"
_OLD = {"optimizer": "cpu_offload", "param": "cpu_offload_param"}  # other names that DeepSpeed still reads
# Field of Buffers -> the key that says it, and what it is
_SIZES = {
    "reduce_bucket": ("reduce_bucket_size", "gradients are reduced in buckets of"),
    "prefetch": ("stage3_prefetch_bucket_size", "what is fetched ahead: up to"),
    "persistence": ("stage3_param_persistence_threshold", "never partitioned: tensors up to"),
    "max_live": ("stage3_max_live_parameters", "what stays gathered: up to"),
    "max_reuse": ("stage3_max_reuse_distance", "what is kept for reuse: within"),
    "sub_group": ("sub_group_size", "updated at once: up to"),
}


class Rewrite(NamedTuple):
    """One difference.

    Attributes:
        words: What changes, for a person.
        keys: DeepSpeed's key -> the value to write; None where it is to be left out. What the config leaves to the
            Trainer is not among them.
        program: What the program must do besides, or be told; "" for nothing.
    """

    words: str
    keys: dict[str, Any]
    program: str = ""


def rewrites(question: Question, before: Strategy, after: Strategy) -> Iterator[Rewrite]:
    """What to write, so that the question's config gives one strategy instead of another."""
    if after.stage != before.stage:
        words = f"ZeRO stage {after.stage} instead of {before.stage}" if after.stage else "no ZeRO: stage 0"
        yield Rewrite(words, {f"{_ZERO}.stage": after.stage})
    for what in ("optimizer", "param"):
        yield from _offload(question, what, before, after)
    if after.tp != before.tp:
        yield _degree(after.tp)
    if after.precision != before.precision:
        words = f"{after.precision} instead of {before.precision}, which changes the numbers"
        yield Rewrite(words, {f"{after.precision}.enabled": True})
    if after.checkpointing != before.checkpointing:
        job = question.job
        again = after.checkpointing and reenters(job.training, after.stage, job.version)
        kind = 'gradient_checkpointing_kwargs={"use_reentrant": True}' if again else ""
        call = f"model.gradient_checkpointing_enable({kind})"
        called = f"call {call}" if after.checkpointing else f"leave out {call}"
        program = recomputing_arguments(question, after.checkpointing, again) or called
        yield Rewrite(f"{'' if after.checkpointing else 'no '}activation checkpointing", {}, program)
    yield from _sizes(question, before, after)
    if (after.micro_batch, after.accumulation) != (before.micro_batch, before.accumulation):
        words = f"micro-batch {after.micro_batch} instead of {before.micro_batch}"
        keys = {_MICRO: after.micro_batch, _STEPS: after.accumulation, **_total(question, after)}
        written = {key: value for key, value in keys.items() if not is_filled(question, key)}
        yield Rewrite(words, written, ", ".join(batch_arguments(question, after.micro_batch, after.accumulation)))


def _offload(question: Question, what: str, before: Strategy, after: Strategy) -> Iterator[Rewrite]:
    was, place = (getattr(strategy, f"offload_{what}") for strategy in (before, after))
    if was == place:
        return
    name, section = {"optimizer": "optimizer", "param": "parameters"}[what], f"{_ZERO}.offload_{what}"
    subject = question.subject
    old = f"{_ZERO}.{_OLD[what]}"
    gone = {old: None} if subject is not None and subject.written(old) else {}
    if place == "none":
        unwritten = gone and subject is not None and not subject.written(section)
        yield Rewrite(f"{name} on the GPU: no offload", {**({} if unwritten else {section: None}), **gone})
    else:
        yield Rewrite(f"{name} in {'CPU memory' if place == 'cpu' else 'NVMe'}", {f"{section}.device": place, **gone})


def _degree(tp: int) -> Rewrite:
    if tp == 1:
        return Rewrite("no tensor parallelism", {"tensor_parallel": None})
    program = f"give the {tp} GPUs of a group the same sequences"
    return Rewrite(f"tensor parallelism over {tp} GPUs", {"tensor_parallel.autotp_size": tp}, program)


def _sizes(question: Question, before: Strategy, after: Strategy) -> Iterator[Rewrite]:
    """Buffers that are not those which the config has for such a strategy anyway."""
    if not after.stage:
        return
    own = buffers(question.job, question.subject, after)._asdict()
    changed = {name: size for name, size in after.buffers._asdict().items() if size != own[name]}
    if "overlap_comm" in changed:
        on = after.buffers.overlap_comm
        what = "communication" if question.job.world > 1 else "copies to and from RAM"
        words = f"{what} {'beside backward' if on else 'after backward, not beside it'}"
        yield Rewrite(words, {f"{_ZERO}.overlap_comm": on})
    if "secondary" in changed:
        words = f"each {after.buffers.secondary} GPUs hold a second copy of the parameters (hpZ)"
        yield Rewrite(words, {f"{_ZERO}.zero_hpz_partition_size": after.buffers.secondary})
    for name, (key, words) in _SIZES.items():
        if name in changed:
            was = getattr(before.buffers, name) if after.stage == before.stage else own[name]
            yield Rewrite(f"{words} {changed[name]:,} elements instead of {was:,}", {f"{_ZERO}.{key}": changed[name]})


def _total(question: Question, after: Strategy) -> dict[str, int]:
    """The product of the batch keys, where the config writes it and it changes: DeepSpeed counts every GPU."""
    subject, total = question.subject, after.micro_batch * after.accumulation * question.job.world
    written = subject is not None and subject.written(_TOTAL) and subject.value(_TOTAL) != total
    return {_TOTAL: total} if written else {}
