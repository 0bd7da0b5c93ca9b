"""How a model runs, for the tape, made of what a person or a strategy says."""

from __future__ import annotations

from dsgen.families import family_of
from dsgen.families.parameters import adapts_head, check_dropout, check_head
from dsgen.families.tape.execution import Execution
from dsgen.memory.numbers import quantized
from dsgen.memory.trained import head_sharded
from dsgen.shapes.profiles import Model

__all__ = ["setting"]

FP32 = 4  # bytes


def setting(
    model: Model,
    precision: str,
    attention: str,
    seq_len: int,
    tp: int,
    method: str,
    checkpointing: bool,
    chunked_loss: bool,
    lora_rank: int,
    lora_targets: tuple[str, ...],
    zero3: bool,
    single: bool,
    drops: bool,
    embeddings: bool,
) -> Execution:
    """The setting; arguments and errors are those of `activations`."""
    if drops and method != "full":
        check_dropout(model, lora_targets)
    if chunked_loss and method != "full":
        check_head(model, lora_targets)
    family = family_of(model)
    targets = tuple(target.rpartition(".")[2] for target in lora_targets)
    return Execution(
        model,
        FP32 if precision == "fp32" else 2,
        family.eager(attention),
        tp,
        method,
        seq_len,
        family.forward.norm,
        rank=lora_rank,
        targets=targets,
        zero3=zero3,
        chunked=chunked_loss,
        asks=checkpointing and method != "full" and not embeddings,
        single=single,
        drops=drops,
        embeddings=embeddings,
        sdpa=attention == "sdpa",
        clamps=family.encodes and precision == "fp16",
        quantized=quantized(model, method),
        direct=family.direct,
        turned=family.transposed,
        leaf=family.leaf,
        parts=tuple(family.parts.items()),
        adapts_head=method != "full" and adapts_head(model, targets),
        splits_head=head_sharded(model),
    )
