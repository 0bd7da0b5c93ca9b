"""What a plan counts on that no key of DeepSpeed's does: the person's program must."""

from collections.abc import Iterator
from typing import NamedTuple

from dsgen.jobs.fused_attention import running_attention
from dsgen.jobs.job import Job
from dsgen.jobs.releases import reenters, unknown_leaf
from dsgen.planning.planner import Plan
from dsgen.strategies.buffers import EIGHT_BITS

__all__ = ["Needed", "kernel_of", "needed", "own_optimizer"]

_KERNELS = {"flash": "FlashAttention", "sdpa": "attention by sdpa", "eager": "eager attention"}


class Needed(NamedTuple):
    """One thing that a program must do: its code, and what it is in a few words."""

    code: str
    words: str


def needed(plan: Plan) -> tuple[Needed, ...]:
    """What memory and speed of a plan depend on beside its config, in the order in which a program does it."""
    return tuple(_needed(plan))


def kernel_of(plan: Plan) -> str:
    """The kernel of attention that a program is to ask for: flash, sdpa or eager."""
    job = plan.job
    return running_attention(job.hardware, job.model, job.training, plan.chosen.strategy.precision)


def own_optimizer(job: Job) -> str:
    """What optimizer the program makes, in words: one that is not DeepSpeed's, or any; "" where the config has one."""
    if job.deepspeed.get("optimizer"):
        return ""
    if job.training.optimizer == EIGHT_BITS:
        return "bitsandbytes' AdamW8bit as its optimizer"
    history = job.provenance.history("deepspeed.optimizer")
    deleted = bool(history and history[-1].value is None)
    return "an optimizer of its own" if job.whole or deleted else ""


def _needed(plan: Plan) -> Iterator[Needed]:
    job, chosen, wishes = plan.job, plan.chosen.strategy, plan.job.training
    if wishes.method == "qlora":  # transformers has no zero.Init for weights in 4 bits
        if job.world > 1:
            yield Needed("device", "each rank's own GPU, set before the base is loaded")
        yield Needed("four-bits", "a base in 4 bits (NF4)")
    elif chosen.stage == 3:
        yield Needed("zero-init", "zero.Init around the model's loading")
    yield Needed("attention", _KERNELS[kernel_of(plan)])
    if wishes.chunked_loss:
        yield Needed("chunked-loss", "a chunked loss")
    if job.model.liger_kernels:
        yield Needed("liger-kernels", "Liger's SwiGLU, norms and RoPE")
    if wishes.method != "full":
        yield Needed("adapters", f"LoRA adapters of rank {wishes.lora_rank}")
    if chosen.checkpointing:
        kind = "reentrant " if reenters(wishes, chosen.stage, job.version) else ""
        yield Needed("checkpointing", f"{kind}gradient checkpointing")
        if wishes.activation_offloading:
            yield Needed("activation-offloading", "activation offloading")
    if chosen.stage == 3 and unknown_leaf(job.model, job.version):
        yield Needed("leaf-modules", "each mixture gathered whole (leaf modules)")
    if chosen.tp > 1:
        yield Needed("same-data", f"the same data in each group of {chosen.tp} GPUs")
    length = f"{job.seq_len}{f' and {job.target_len}' if job.model.encoder_layers else ''}"
    if wishes.packing:
        yield Needed("length", f"samples packed into sequences of {length} tokens")
    else:
        row = "samples end to end, each" if wishes.padding_free else "sequences"
        yield Needed("length", f"{row} of at most {length} tokens")
