"""Optimizer, schedule, clipping, activation checkpointing, and what is logged."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.jobs.releases import why_reenters
from dsgen.planning.lengths import CONSTANT, UNWRITTEN, schedule
from dsgen.planning.planner import Plan
from dsgen.rendering.planned_keys import PlannedKey
from dsgen.shapes.errors import mistake
from dsgen.strategies.buffers import EIGHT_BITS
from dsgen.strategies.constraints import BY_CODE, Keys, of_layout

__all__ = ["keys"]

# What each optimizer's constructor takes besides lr (deepspeed/ops, torch.optim).
_PARAMS = {
    "AdamW": ("betas", "eps", "weight_decay"),
    "Adam": ("betas", "eps", "weight_decay"),
    "Lion": ("betas", "weight_decay"),
    "Adagrad": ("eps", "weight_decay"),
    "SGD": ("weight_decay",),
    "Muon": ("weight_decay",),
}
COSINE_FLOOR = 0.1  # of the peak: where the schedule ends (Llama 2, arXiv 2307.09288, 2.2)
CHECKPOINTING = (
    "the planner counts on every block being recomputed, and NO DeepSpeed key does that: call "
    "model.gradient_checkpointing_enable() (or gradient_checkpointing=True in TrainingArguments). This block is read "
    "only by programs that call deepspeed.checkpointing.configure()"
)
_REENTRANT = ". With use_reentrant=True and model.enable_input_require_grads(): "


def keys(plan: Plan) -> Iterator[PlannedKey]:
    """Everything of training itself."""
    job = plan.job
    training = job.training
    yield from _optimizer(plan)
    yield from _scheduler(plan)
    yield PlannedKey(
        "gradient_clipping",
        training.gradient_clipping,
        "largest global gradient norm"
        if training.gradient_clipping
        else "0 turns clipping off, whatever the release's default",
        "training.gradient_clipping",
    )
    if plan.chosen.strategy.checkpointing:
        why = why_reenters(training, plan.chosen.strategy.stage, job.version)
        reason = f"{CHECKPOINTING}{_REENTRANT if why else ''}{why}"
        yield PlannedKey("activation_checkpointing.partition_activations", False, reason, "training.checkpointing")
        yield PlannedKey(
            "activation_checkpointing.cpu_checkpointing",
            False,
            "block inputs stay on the GPU; true moves them to the CPU, for very long sequences",
        )
    yield PlannedKey(
        "steps_per_print",
        training.steps_per_print,
        "optimizer steps between progress lines",
        "training.steps_per_print",
    )
    if not training.flops_profiler:  # it switches the breakdown on, whatever the config says
        yield PlannedKey(
            "wall_clock_breakdown", False, "true prints the time of each phase, but waits for the GPU at each"
        )
    yield from _monitors(plan)


def _optimizer(plan: Plan) -> Iterator[PlannedKey]:
    training, chosen = plan.job.training, plan.chosen.strategy
    kind = training.optimizer
    if kind == EIGHT_BITS:
        if chosen.stage:
            why = "the program makes bitsandbytes' AdamW8bit, which ZeRO has not tested: DeepSpeed stops without this"
            yield PlannedKey("zero_allow_untested_optimizer", True, why, "training.optimizer")
        return
    place = "DeepSpeedCPUAdam" if chosen.offload_optimizer != "none" else "FusedAdam"
    made = f"DeepSpeed builds {place} from it" if kind in ("AdamW", "Adam") else "built by DeepSpeed"
    yield PlannedKey("optimizer.type", kind, made, "training.optimizer")
    pinned = plan.job.deepspeed.get("optimizer")
    named = pinned.get("type") if isinstance(pinned, dict) else None
    yield PlannedKey("optimizer.params.lr", training.lr, "peak learning rate", "training.lr")
    values = {"betas": [training.beta1, training.beta2], "eps": training.eps, "weight_decay": training.weight_decay}
    wishes = {"betas": "training.beta2", "eps": "training.eps", "weight_decay": "training.weight_decay"}
    notes = {
        "betas": "decay of the two moments",
        "eps": "guards the division by the second moment",
        "weight_decay": "decoupled from the gradient"
        if kind in ("AdamW", "Adam", "Lion", "Muon")
        else "added to the gradient",
    }
    for name in _PARAMS[kind]:
        yield PlannedKey(f"optimizer.params.{name}", values[name], notes[name], wishes[name])
    at = of_layout(plan.job, chosen, Keys(named=str(named or kind), untested=False))
    if BY_CODE["untested-optimizer"].refuses(at):
        yield PlannedKey(
            "zero_allow_untested_optimizer",
            True,
            f"DeepSpeed has not tested ZeRO with {named or kind}, and stops without this",
        )


def _scheduler(plan: Plan) -> Iterator[PlannedKey]:
    training = plan.job.training
    planned = schedule(plan.job, plan.chosen.strategy)
    kind, total = planned.kind, planned.total_steps
    if kind in UNWRITTEN or (plan.job.whole and total is None):
        return
    if kind != CONSTANT and total is None:
        raise mistake(
            f"scheduler {kind} falls over the whole run, and its length is not given",
            must="training.total_steps must be a whole number of optimizer steps, or total_tokens of tokens",
            where=plan.job.provenance.where("training.scheduler"),
            todo="Say --total-steps N or --total-tokens N, or take WarmupLR, which needs neither.",
            code="missing",
        )
    why = {
        "WarmupLR": "warms up, then stays: without training.total_steps or total_tokens a decay would be a guess",
        "WarmupCosineLR": "warms up, then falls along a cosine over the whole run",
        "WarmupDecayLR": "warms up, then falls linearly over the whole run",
    }[kind]
    yield PlannedKey("scheduler.type", kind, why, "training.scheduler")
    base = "scheduler.params"
    if kind != CONSTANT and training.total_steps is None:
        tokens = f"{training.total_tokens:,.0f} tokens / {plan.chosen.cost.tokens:,} of a step"
        yield PlannedKey(f"{base}.total_num_steps", total, tokens, "training.total_tokens")
    elif kind != CONSTANT:
        yield PlannedKey(f"{base}.total_num_steps", total, "optimizer steps of the whole run", "training.total_steps")
    if kind == "WarmupCosineLR":
        yield PlannedKey(f"{base}.warmup_min_ratio", 0.0, "the first step starts from zero")
        yield PlannedKey(f"{base}.cos_min_ratio", COSINE_FLOOR, "of the peak, where the cosine ends")
    else:
        yield PlannedKey(f"{base}.warmup_min_lr", 0.0, "the first step starts from zero")
        yield PlannedKey(
            f"{base}.warmup_max_lr",
            training.lr,
            "the optimizer's lr; left out, WarmupDecayLR would use 0.001 whatever the optimizer says",
            "training.lr",
        )
    yield PlannedKey(
        f"{base}.warmup_num_steps",
        planned.warmup_steps,
        planned.why or "optimizer steps of warm-up",
        None if planned.why else "training.warmup_steps",
    )
    yield PlannedKey(
        f"{base}.warmup_type", "linear", "DeepSpeed's default, log, takes most of the rise in the first steps"
    )


def _monitors(plan: Plan) -> Iterator[PlannedKey]:
    training = plan.job.training
    section = {"tensorboard": "tensorboard", "csv": "csv_monitor", "wandb": "wandb"}.get(training.monitor)
    if section:
        yield PlannedKey(
            f"{section}.enabled",
            True,
            "DeepSpeed writes the learning rate, and with fp16 the loss scale, from rank 0; not the loss",
            "training.monitor",
        )
        if section == "wandb":
            yield PlannedKey("wandb.project", "dsgen", "the project the run appears in")
        else:
            yield PlannedKey(f"{section}.output_path", "logs/", "folder of the log files")
            yield PlannedKey(f"{section}.job_name", "dsgen", "folder of this run below it")
    if training.flops_profiler:
        yield PlannedKey(
            "flops_profiler.enabled", True, "prints FLOPs and time of every module once", "training.flops_profiler"
        )
        yield PlannedKey("flops_profiler.profile_step", 5, "the first steps still compile and allocate")
    if training.comms_logger:
        yield PlannedKey(
            "comms_logger.enabled",
            True,
            "times each collective, waiting for it; deepspeed.comm.log_summary() prints the totals",
            "training.comms_logger",
        )
