"""What a plan counts on that no key of DeepSpeed's does: the person's program must."""

from collections.abc import Iterator
from typing import NamedTuple

from dsgen.families import family_of
from dsgen.planning.planner import Plan

__all__ = ["Needed", "needed"]

_KERNELS = {"flash": "FlashAttention", "sdpa": "attention by sdpa", "eager": "eager attention"}


class Needed(NamedTuple):
    """One thing that a program must do: its code, and what it is in a few words."""

    code: str
    words: str


def needed(plan: Plan) -> tuple[Needed, ...]:
    """What memory and speed of a plan depend on beside its config, in the order in which a program does it."""
    return tuple(_needed(plan))


def _needed(plan: Plan) -> Iterator[Needed]:
    job, chosen, wishes = plan.job, plan.chosen.strategy, plan.job.training
    family = family_of(job.model)
    if chosen.stage == 3:
        yield Needed("zero-init", "zero.Init around the model's loading")
    if wishes.method == "qlora":
        yield Needed("four-bits", "a base in 4 bits (NF4)")
    yield Needed("attention", _KERNELS["eager" if family.eager(wishes.attention) else wishes.attention])
    if wishes.method != "full":
        yield Needed("adapters", f"LoRA adapters of rank {wishes.lora_rank}")
    if chosen.checkpointing:
        yield Needed("checkpointing", "gradient checkpointing")
    if wishes.chunked_loss:
        yield Needed("chunked-loss", "a chunked loss")
    if chosen.stage == 3 and family.leaf_class:
        yield Needed("leaf-modules", "each mixture gathered whole (leaf modules)")
    if chosen.tp > 1:
        yield Needed("same-data", f"the same data in each group of {chosen.tp} GPUs")
    length = f"{job.seq_len}{f' and {job.target_len}' if job.model.encoder_layers else ''}"
    yield Needed("length", f"sequences of at most {length} tokens")
