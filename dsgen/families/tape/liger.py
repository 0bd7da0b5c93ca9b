"""Liger's SwiGLU and GeGLU, norms and RoPE on a tape: one node each, which backward mostly turns into its gradients.

From 0.4.1 on they hold the same, but for what 0.8.5 changed in norms: a frozen weight's gradient is not made, and norms
over the heads of Qwen3 are Liger's too, which stayed Hugging Face's where a model that is there is patched, as the
Trainer does. Those of Gemma 3 are Liger's since 0.5.7, which knows it. Source: liger_kernel/ops/{swiglu,geglu,rms_norm,
rope}.py and transformers/monkey_patch.py of the wheels of liger-kernel 0.4.1 to 0.8.5.
"""

from __future__ import annotations

from typing import Any

from dsgen.families.tape import operators as op
from dsgen.families.tape.execution import Execution
from dsgen.families.tape.graph import COPY, NORM, STREAM
from dsgen.families.tape.tape import Tape, Tensor

__all__ = ["ALL_NORMS", "PROCESSORS", "gated", "norm", "norm_apart", "norm_by_head", "rotated"]

ALL_NORMS = "0.8.5"  # the release from which on norms are as the module says
# Rows of the fp32 sums of a norm's weight gradient, one for each multiprocessor: those of an H100 SXM (NVIDIA H100
# white paper). An A100 has 108, which is 0.4 MB less at a width of 4,096.
PROCESSORS = 132


def norm(tape: Tape, on: Execution, hidden: Tensor) -> Tensor:
    """LigerRMSNorm: saves its input and an fp32 number for every row; its gradient takes the place of the one given."""
    return _normed(tape, on, hidden, True)


def norm_apart(tape: Tape, on: Execution, hidden: Tensor) -> Tensor:
    """The same with in_place=False, as Gemma 2 has it: behind its norms a gradient goes on to what is added too."""
    return _normed(tape, on, hidden, False)


def norm_by_head(tape: Tape, on: Execution, hidden: Tensor) -> Tensor:
    """The same over heads behind a transposition, as Gemma 3 has it: they are laid out anew, and so a gradient."""
    laid = tape.like(hidden)
    tape.moves(COPY, hidden, laid)
    return _normed(tape, on, tape.node(laid, (hidden,), None, lambda gradient: [gradient]), False, True)


def _normed(tape: Tape, on: Execution, hidden: Tensor, in_place: bool, laid_out: bool = False) -> Tensor:
    weight = on.weight(hidden.width)
    made, roots = tape.like(hidden), tape.make(hidden.rows, 1, op.FP32)
    tape.hold(roots)
    tape.moves(NORM, hidden, weight, made, roots)
    wanted = weight.edge is not None or on.model.liger_kernels != ALL_NORMS

    def back(gradient: Tensor) -> list[Any]:
        if laid_out:
            gradient, given = tape.like(hidden), gradient
            tape.moves(COPY, given, gradient)
        sums = tape.make((PROCESSORS, 0), hidden.width, op.FP32) if wanted else None
        result = gradient if in_place else tape.like(hidden)
        if not in_place:
            tape.moves(COPY, result)  # zeros
        tape.moves(NORM, gradient, hidden, weight, roots, result, sums)
        if sums is None:
            return [result, None]
        total = tape.make((1, 0), hidden.width, op.FP32) if weight.item != op.FP32 else None
        of_weight = op.gradient_of(tape, weight)
        tape.moves(NORM, sums, total or of_weight)
        if total is not None:
            tape.moves(STREAM, total, of_weight)
        tape.hold(sums, total)
        return [result, of_weight if weight.edge else None]

    return tape.node(made, (hidden, weight), tape.keep(hidden, roots), back)  # type: ignore[no-any-return]


def gated(tape: Tape, gate: Tensor, up: Tensor) -> Tensor:
    """LigerSiLUMul and LigerGELUMul: both inputs are saved, and their gradients are written over them."""
    made = tape.like(gate)
    tape.moves(STREAM, gate, up, made)
    saved = tape.keep(gate, up)

    def back(gradient: Tensor) -> list[Any]:
        now = len(tape.steps)
        for storage in saved or ():  # it goes on as a gradient: here another of its size, made as it goes
            storage.again = storage.kept = now
        if saved:
            saved.clear()
        results = [tape.like(gate), tape.like(up)]
        tape.moves(STREAM, gradient, *results, *results)
        return results

    return tape.node(made, (gate, up), saved, back)  # type: ignore[no-any-return]


def rotated(
    tape: Tape, query: Tensor, key: Tensor, cosine: Tensor, sine: Tensor, again: bool, by_head: bool = False
) -> list[Tensor]:
    """LigerRope: queries and keys in place, in one kernel, and so their gradients.

    `again` says that gradients come laid out head by head, and so are copied: those of eager attention; `by_head` that
    queries and keys do.
    """
    if by_head:
        made = [tape.like(one) for one in (query, key)]
        for one, copy in zip((query, key), made, strict=True):
            tape.moves(COPY, one, copy)
    else:
        made = [Tensor(one.rows, one.width, one.item, one.storage) for one in (query, key)]
    tape.moves(STREAM, query, key, cosine, sine, *made)
    tape.dispatches(views=4)

    def back(*gradients: Tensor) -> list[Any]:
        results = [tape.like(one) for one in gradients] if again else list(gradients)
        if again:
            for one, result in zip(gradients, results, strict=True):
                tape.moves(COPY, one, result)
        tape.moves(STREAM, *results, cosine, sine, *results)
        tape.dispatches(views=4)
        return results

    return tape.node(made, (query, key), tape.keep(cosine, sine), back)  # type: ignore[no-any-return]
