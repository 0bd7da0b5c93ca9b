"""Losses that the installed transformers has not: in chunks of tokens, and those of its older releases.

In chunks of tokens it is a stand-in of Liger's fused linear cross entropy, which never holds all logits. Source:
Liger-Kernel 0.8.2, src/liger_kernel/ops/fused_linear_cross_entropy.py (fused_linear_cross_entropy_forward,
LigerFusedLinearCrossEntropyFunction) and src/liger_kernel/transformers/model/ (llama.py, loss_utils.py), and the same
in the wheels of 0.3.1, 0.4.2, 0.5.2, 0.5.5, 0.5.10, 0.6.1 and 0.6.2. What it takes:

- the gradients of the hidden states and of the head are made in forward and kept for backward, each in the type of
  what it is a gradient of (`accum_dtype` is None unless a caller says otherwise), the head's only where it is trained;
- a chunk has next_power_of_2(ceil(tokens / ceil(vocabulary / hidden size))) tokens; its logits are in the head's type,
  and the kernel writes their gradient over them;
- for every chunk the head's gradient is made in the head's type, copied to fp32 and added; before 0.6.2 `addmm` added
  it where it is kept;
- before 0.5.6 the hidden states are copied without the last token's, where there are several sequences;
- before 0.5.3 the logits' gradient is copied, times the chunk's share of the tokens; before 0.5 the kernel had fp32
  logits;
- an fp32 loss of every token; backward scales in place.
"""

from __future__ import annotations

from typing import Any

import torch

from dsgen.engine.simulate.devices import streams
from dsgen.engine.simulate.requests import LIGERS

__all__ = ["chunk_tokens", "chunks", "kept", "older", "replace"]

IGNORED = -100  # label that counts for nothing


def chunk_tokens(tokens: int, vocabulary: int, hidden: int) -> int:
    """Tokens of one chunk."""
    factor = -(-vocabulary // hidden)
    return int(1 << (-(-tokens // factor) - 1).bit_length())


class _FusedLoss(torch.autograd.Function):  # type: ignore[misc]
    """Head and cross entropy as one operator, chunk by chunk; nothing is computed in the kernel's place."""

    @staticmethod
    def forward(ctx: Any, hidden: Any, weight: Any, target: Any, bias: Any, liger: str) -> Any:
        loss, *gradients = chunks(hidden, weight, target, bias, liger)
        ctx.save_for_backward(*gradients)
        return loss

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        hidden_gradient, weight_gradient, bias_gradient = ctx.saved_tensors
        return hidden_gradient, weight_gradient, None, bias_gradient, None


def chunks(hidden: Any, weight: Any, target: Any, bias: Any, liger: str = LIGERS[-1]) -> tuple[Any, Any, Any, Any]:
    """The loss, and the gradients of hidden states, weight and bias, as a release of Liger makes them, or None."""
    since = LIGERS.index(liger)
    wide, scaled, product = since < LIGERS.index("0.5.0"), since < LIGERS.index("0.5.3"), liger == LIGERS[-1]
    tokens, vocabulary = hidden.shape[0], weight.shape[0]
    size = chunk_tokens(tokens, vocabulary, hidden.shape[1])
    wanted = hidden.requires_grad  # as the source asks: a head that is trained alone gets no gradient
    hidden_gradient = torch.zeros_like(hidden)
    weight_gradient = kept(weight) if wanted and weight.requires_grad else None
    bias_gradient = kept(bias) if wanted and bias is not None else None
    losses = torch.zeros(tokens, dtype=torch.float32, device=hidden.device)
    counted = target != IGNORED
    counted.sum().item()
    for begin in range(0, tokens, size):
        part = hidden[begin : begin + size]
        logits = part @ weight.t()
        if bias is not None:
            logits = logits + bias
        if streams.program is not None:  # the kernel reads the logits twice and writes their gradient over them
            moved = 3 * logits.numel() * logits.element_size()
            streams.program.kernel(streams.current.number, "cross_entropy", "reduction", moved)
        if wide:
            logits = logits.float()
            logits = logits.to(hidden.dtype)
        gradient = logits * 1.0 if scaled else logits
        if wanted:
            hidden_gradient[begin : begin + size] = gradient @ weight
        if weight_gradient is not None and product:
            weight_gradient += torch.mm(logits.t(), part).float()
        elif weight_gradient is not None:
            torch.addmm(weight_gradient, logits.t(), part, out=weight_gradient)
        if bias_gradient is not None:
            torch.add(bias_gradient, logits.sum(dim=0), out=bias_gradient)
    return torch.sum(losses), hidden_gradient, weight_gradient, bias_gradient


def kept(parameter: Any) -> Any:
    """The gradient of a parameter, from forward to backward."""
    return torch.zeros_like(parameter)


def replace(model: Any, liger: str = LIGERS[-1]) -> None:
    """Let a Hugging Face model compute head and loss in chunks, as a release of Liger does.

    The head gives back logits without a last dimension, so that whatever the model's class does with them takes
    nothing, and the loss takes the hidden states. As with Liger the head is not called as a module: at stage 3
    DeepSpeed gathers its weight when the loss reads it, and keeps it until the model's forward ends.

    Raises:
        ValueError: The class has no output head, or a loss of its own.
    """
    head = model.get_output_embeddings()
    if head is None or not isinstance(getattr(head, "weight", None), torch.Tensor):
        raise ValueError(f"chunked_loss is true, and {type(model).__name__} has no output head to chunk")
    text = model.config.get_text_config()
    if getattr(text, "final_logit_softcapping", None) is not None:
        text.final_logit_softcapping = None  # the kernel does it in place
    states: list[Any] = []

    class Head(type(head)):  # type: ignore[misc]
        """The head; `__call__` runs no hooks."""

        def __call__(self, hidden: Any) -> Any:
            states.append(hidden)
            return hidden.new_empty((*hidden.shape[:-1], 0))

    def loss(logits: Any = None, labels: Any = None, *_: Any, **__: Any) -> Any:
        hidden = states.pop()
        if liger in LIGERS[: LIGERS.index("0.5.6")]:
            hidden = hidden[..., :-1, :].contiguous()
        else:
            labels = torch.nn.functional.pad(labels, (0, 1), value=IGNORED)
        target = labels[..., 1:].contiguous().view(-1)
        hidden = hidden.view(-1, hidden.shape[-1])
        last = model.get_output_embeddings()
        last = last.modules_to_save.default if hasattr(last, "modules_to_save") else last  # peft trains a copy
        return _FusedLoss.apply(hidden, last.weight, target, last.bias, liger)

    head.__class__ = Head
    model.loss_function = loss


def older(model: Any, upcast: str, shifted: bool, liger: str = "") -> None:
    """Let a Hugging Face model take its loss as older releases of transformers did.

    Args:
        model: The model, whose class calls `loss_function` with the logits.
        upcast: Who makes the logits fp32: loss, model (in the place of its own) or none.
        shifted: The logits are copied without the last token's; else the labels are shifted.
        liger: Not asked here: the release that chunks a loss.

    Source: transformers 4.48.3, loss/loss_utils.py (ForCausalLMLoss); 4.40.0, models/llama/modeling_llama.py and
    models/gpt2/modeling_gpt2.py, the ends of their forwards.
    """

    def older_loss(logits: Any = None, labels: Any = None, *_: Any, **__: Any) -> Any:
        wide = logits if upcast == "none" else logits.float()
        if upcast == "model" and wide is not logits:
            logits.data = logits.new_empty(0)  # its forward had one name for both
        if shifted:
            labels = labels[..., 1:].contiguous()
            cut = wide[..., :-1, :].contiguous()
        else:
            labels = torch.nn.functional.pad(labels, (0, 1), value=IGNORED)[..., 1:].contiguous()
            cut = wide
        return torch.nn.functional.cross_entropy(cut.view(-1, cut.shape[-1]), labels.view(-1), ignore_index=IGNORED)

    model.loss_function = older_loss
