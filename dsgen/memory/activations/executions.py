"""How a model runs, for the tape, made of what a person or a strategy says."""

from __future__ import annotations

from dsgen.families import family_of
from dsgen.families.parameters import adapters, adapts_head
from dsgen.families.tape.execution import Execution
from dsgen.families.tape.liger import ALL_NORMS
from dsgen.memory.numbers import quantized
from dsgen.shapes.attention_kinds import GROUPED, MASKED
from dsgen.shapes.errors import mistake
from dsgen.shapes.profiles import Model, Training
from dsgen.strategies.constraints import ADAPTERS, Setup, refusals

__all__ = ["execution"]

FP32 = 4  # bytes


def execution(
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
    narrow: bool = False,
) -> Execution:
    """The execution; arguments and errors are those of `activations`."""
    if method != "full":
        adapters(model, lora_rank, lora_targets)  # that they name a matrix is asked first
        _check_adapters(
            model,
            Training(
                method=method,
                lora_targets=lora_targets,
                lora_dropout=float(drops),  # any above 0 is refused alike
                lora_train_embeddings=embeddings,
                chunked_loss=chunked_loss,
            ),
        )
    family = family_of(model)
    own = family.forward.norm
    fused = getattr(family.forward, "liger_norm", None) if model.liger_kernels else None
    of_heads = getattr(family.forward, "liger_head_norm", None) if fused else None
    of_heads = of_heads or (own if fused and model.liger_kernels != ALL_NORMS else None)
    targets = tuple(target.rpartition(".")[2] for target in lora_targets)
    return Execution(
        model,
        FP32 if precision == "fp32" else 2,
        family.eager(attention),
        tp,
        method,
        seq_len,
        fused or own,
        rank=lora_rank,
        targets=targets,
        zero3=zero3,
        chunked=chunked_loss,
        asks=checkpointing and method != "full" and not embeddings,
        single=single,
        drops=drops,
        embeddings=embeddings,
        sdpa=attention in ("sdpa", MASKED, GROUPED),
        masked=attention == MASKED,
        grouped=attention == GROUPED,
        windowed=attention in ("sdpa", GROUPED) and _reaches_windows(model, seq_len),
        clamps=family.encodes and precision == "fp16",
        quantized=quantized(model, method),
        direct=family.direct,
        turned=family.transposed,
        leaf=family.leaf,
        parts=tuple(family.parts.items()),
        adapts_head=method != "full" and adapts_head(model, targets),
        narrow=narrow,
        splits_head=family.autotp.splits_head(model.tied_embeddings),
        head_norm=of_heads,
    )


def _reaches_windows(model: Model, seq_len: int) -> bool:
    """Whether blocks have a window that a sequence reaches: sdpa gets a mask by then (transformers 5.23,
    masking_utils.py, _ignore_causal_mask_sdpa)."""
    family, window = family_of(model), model.sliding_window
    return 0 < window <= seq_len and not family.eager("sdpa") and any(map(family.windowed, range(model.layers)))


def _check_adapters(model: Model, wished: Training) -> None:
    """Refuse adapters that peft does not make, and those that would learn nothing."""
    at = Setup(training=wished, model=model, architecture=model.architecture)
    if item := next(refusals(at, ADAPTERS), None):
        targets = ", ".join(wished.lora_targets)
        what = f"{item.about} beside adapters of {targets}"
        raise mistake(what, must=item.says(at), todo=item.helps(at), code="refused")
