"""Batch sizes and precision."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.jobs.job import Job
from dsgen.planning.candidates import ENOUGH, FILLED, rises
from dsgen.planning.planner import Plan
from dsgen.rendering.planned_keys import PlannedKey
from dsgen.shapes.units import gib

__all__ = ["keys"]

INITIAL_SCALE_POWER = 16  # 2^16: the first steps of 2^32, an old template value, all overflow and are skipped
LOSS_SCALE_WINDOW = 1000  # good steps before the scale doubles (DeepSpeed's default)
HYSTERESIS = 2  # overflows before the scale halves (DeepSpeed's default)


def keys(plan: Plan) -> Iterator[PlannedKey]:
    """train_batch_size and its two factors; bf16 or fp16."""
    job, chosen = plan.job, plan.chosen.strategy
    replicas = job.world // chosen.tp
    product = f"{chosen.micro_batch} x {chosen.accumulation} x {job.world}"
    if chosen.tp == 1:
        yield PlannedKey(
            "train_batch_size",
            chosen.micro_batch * chosen.accumulation * job.world,
            f"micro-batch x accumulation x GPUs = {product}; DeepSpeed stops when started on another number of GPUs",
            _decides(job),
        )
    elif chosen.stage < 3:
        yield PlannedKey(
            "train_batch_size",
            chosen.micro_batch * chosen.accumulation * job.world,
            f"{product}: with AutoTP DeepSpeed counts every GPU, though only {replicas} replicas see "
            f"different data ({chosen.global_batch} sequences a step)",
            _decides(job),
        )
    yield PlannedKey("train_micro_batch_size_per_gpu", chosen.micro_batch, _micro_batch(plan), "training.micro_batch")
    yield PlannedKey(
        "gradient_accumulation_steps",
        chosen.accumulation,
        f"{chosen.global_batch} sequences a step / ({chosen.micro_batch} x {replicas} replicas)",
        "training.accumulation",
    )
    if chosen.precision == "bf16":
        yield PlannedKey(
            "bf16.enabled",
            True,
            "the GPU computes bf16 as fast as fp16, and bf16 needs no loss scaling",
            "training.precision",
        )
    elif chosen.precision == "fp16":
        yield PlannedKey("fp16.enabled", True, _fp16(plan), "training.precision")
        yield PlannedKey("fp16.loss_scale", 0, "0 means dynamic: the scale follows the overflows")
        yield PlannedKey(
            "fp16.initial_scale_power",
            INITIAL_SCALE_POWER,
            "start at 2^16; overflows halve it, so a higher start only skips steps",
        )
        yield PlannedKey("fp16.loss_scale_window", LOSS_SCALE_WINDOW, "steps without overflow before the scale doubles")
        if chosen.stage:  # stage 0 never reads it
            yield PlannedKey("fp16.hysteresis", HYSTERESIS, "the scale halves at this many overflows")
        yield PlannedKey(
            "fp16.min_loss_scale", 1, "an overflow at this scale ends the run; a whole number, as DeepSpeed asks"
        )


def _decides(job: Job) -> str:
    """The wish that bounds the sequences of a step; global_batch where somebody counted them."""
    wishes, pinned = job.training, {pin.field for pin in job.pins}
    if wishes.global_batch is not None or "train_batch" in pinned or pinned >= {"micro_batch", "accumulation"}:
        return "training.global_batch"
    per_gpu, per_step = wishes.tokens_per_gpu, wishes.tokens_per_step
    few = per_step is None or (per_gpu is not None and per_gpu * job.world < per_step)
    return f"training.{'tokens_per_gpu' if few else 'tokens_per_step'}"


def _micro_batch(plan: Plan) -> str:
    peak = f"the GPU then takes {gib(plan.chosen.memory.gpu.needed_bytes)} GiB"
    if any(pin.field == "micro_batch" for pin in plan.job.pins):
        return f"as asked: {peak}"
    if plan.job.training.objective == "memory":
        return f"the smallest, because memory is the objective: {peak}"
    gpu = plan.chosen.memory.gpu
    most = f"{peak}, at most {gib(gpu.high_bytes)} of {gib(gpu.limit_bytes)}"  # the most is what the rule asks of
    if not plan.chosen.sure:
        return f"the smallest of this strategy, which may fit: {most}"
    near = f"within {1 - ENOUGH:.0%} of the fastest"
    if gpu.high_bytes <= FILLED * gpu.limit_bytes:
        those = f"divide the step, fit and are {near}" if rises(plan.job) else "divide the step and fit"
        return f"of those that {those}, the largest that leaves a tenth of the GPU: {most}"
    rest = f"the smallest {near}; none of these leaves a tenth of the GPU"
    return f"of those that divide the step and fit, {rest}: {most}"


def _fp16(plan: Plan) -> str:
    if plan.job.hardware.bf16_flops_per_second:
        return "as asked; bf16 would need no loss scaling"
    return "this GPU has no bf16 units; fp16 is its fast 16-bit type"
