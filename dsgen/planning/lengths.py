"""The steps of a whole run: how many there are, how the learning rate follows them, and what to say of a long one."""

import math
from typing import NamedTuple

from dsgen.jobs.job import Job
from dsgen.jobs.samples import tokens_of_sequence
from dsgen.strategies.strategies import Strategy

__all__ = ["CONSTANT", "LONG_STEP_SECONDS", "UNWRITTEN", "Schedule", "long_step", "run_steps", "schedule", "took"]

CONSTANT = "WarmupLR"  # DeepSpeed's schedule that never falls
UNWRITTEN = ("none", "program")  # no schedule at all, and the one of the program that trains
WARMUP_SHARE = 0.03  # of a run whose length is known (Tulu 2, arXiv 2311.10702; QLoRA's scripts have the same)
WARMUP_MOST = 2000  # optimizer steps: those of Llama 2's pretraining, of some 480,000 (arXiv 2307.09288, 2.2)
# Of a run so short that the wished warm-up would fill it: a tenth, as `warmup_ratio: 0.1` of alignment-handbook's
# recipes (recipes/zephyr-7b-beta/sft/config_full.yaml).
WARMUP_DIVISOR = 10
# Optimizer steps of warm-up where the length of training is not known: what Adam's second moment takes to settle,
# 2 / (1 - beta2) at 0.95 (Ma and Yarats, arXiv 1910.04209); Axolotl's llama-3 examples give adapters 10.
WARMUP_STEPS = {"full": 40, "lora": 10, "qlora": 10}
LONG_STEP_SECONDS = 300.0  # a step over it is said: nobody sees whether the loss falls before an hour has passed
_HOURS = 120  # minutes from which on a time is told in hours


class Schedule(NamedTuple):
    """The learning rate's schedule.

    Attributes:
        kind: DeepSpeed's scheduler, or one of UNWRITTEN.
        warmup_steps: Optimizer steps until the peak.
        total_steps: Optimizer steps of the whole run; None where nobody said its length.
        why: Where the number of warm-up steps comes from; empty where it is as wished.
    """

    kind: str
    warmup_steps: int
    total_steps: int | None
    why: str


def run_steps(job: Job, chosen: Strategy) -> int | None:
    """Optimizer steps of the whole run, as wished or as its tokens make; None where nobody said its length."""
    wishes = job.training
    if wishes.total_steps is not None or wishes.total_tokens is None:
        return wishes.total_steps
    return math.ceil(wishes.total_tokens / (chosen.global_batch * tokens_of_sequence(job)))


def schedule(job: Job, chosen: Strategy) -> Schedule:
    """The schedule of a job under a strategy: what is wished, and the rest by the run's length and the method."""
    wishes, total = job.training, run_steps(job, chosen)
    kind = wishes.scheduler
    if kind == "auto":
        kind = CONSTANT if total is None else "WarmupCosineLR"
    wished = wishes.warmup_steps
    if wished is None and total is not None:
        share = max(1, round(WARMUP_SHARE * total))
        if share > WARMUP_MOST:
            return Schedule(kind, WARMUP_MOST, total, "as Llama 2's pretraining (arXiv 2307.09288, 2.2); 3 % were more")
        return Schedule(kind, share, total, f"{WARMUP_SHARE:.0%} of the run, as in Tulu 2 (arXiv 2311.10702)")
    if wished is None:
        few = "as in Axolotl's examples" if wishes.method != "full" else "about what Adam's averages take to settle"
        return Schedule(kind, WARMUP_STEPS[wishes.method], None, f"{few}; 3 % of a run whose length is known")
    if total is not None and wished >= total:
        why = f"a tenth of the run: {wished} would not leave any"
        return Schedule(kind, max(1, total // WARMUP_DIVISOR), total, why)
    return Schedule(kind, wished, total, "")


def long_step(job: Job, chosen: Strategy, seconds: float) -> str | None:
    """What to say of a step that takes longer than a person waits to see the loss move; None of another."""
    if seconds <= LONG_STEP_SECONDS:
        return None
    said = f"a step of {chosen.global_batch} sequences takes about {took(seconds)}"
    most = int(chosen.global_batch * LONG_STEP_SECONDS / seconds)
    each = chosen.micro_batch * job.world // chosen.tp  # sequences of a pass, so that the strategy can stay
    fewer = most // each * each or most // job.world * job.world
    if not fewer or any(pin.field in ("accumulation", "train_batch") for pin in job.pins):
        return said
    return f"{said}; --global-batch {fewer} would take about {took(seconds * fewer / chosen.global_batch)}"


def took(seconds: float) -> str:
    """A long time in words: 4.5 minutes, 23 minutes, 3.1 hours."""
    minutes = seconds / 60
    value, unit = (minutes / 60, "hours") if minutes >= _HOURS else (minutes, "minutes")
    return f"{value:,.0f} {unit}" if value >= 10 else f"{value:.1f} {unit}"
