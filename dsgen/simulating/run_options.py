"""How the engine is run: rank, steps and lengths, what is trained, and what comes between the steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

__all__ = ["Options"]


@attrs.frozen(kw_only=True)
class Options:
    """How the engine is run; None where a config's plan or the model says it.

    Attributes:
        rank, steps: The rank that is simulated, and its optimizer steps.
        seq_len, target_len: Tokens per sequence, and per target sequence of a model with an encoder; None: as many.
        mean_len, packing: As in Training; None: all sequences have `seq_len`, which else is the longest.
        attention, checkpointing: The attention kernel, one of `requests.ATTENTION` and of CHECKPOINTING.
        reentrant: That is torch's reentrant kind; of a plan also where its release needs it.
        activation_offloading: What autograd keeps waits in the node's RAM.
        method, lora_rank, lora_targets, lora_dropout, lora_train_embeddings: What is trained.
        lora_fp32, double_quantization, kbit_fp32: As in Training.
        zero_init: At stage 3 the model is made under zero.Init.
        chunked_loss: The loss never holds all logits.
        foreach: The AdamW that a program brings is torch's foreach one; None: by the target.
        older_loss: What an older release of transformers, or of Liger, does with logits; None: as the installed one.
        liger_kernels: Liger's SwiGLU, norms and RoPE, as Model.liger_kernels; empty: Hugging Face's.
        own_optimizer: One that the program makes: AdamW8bit; "": the config's own.
        dtype: Of the weights before initialize: bf16, fp16 or fp32.
        alloc_conf: PYTORCH_CUDA_ALLOC_CONF of the run; empty: as the plan has it, of a config torch's default settings.
        empty_cache_steps: The Trainer's torch_empty_cache_steps.
        evaluation: Sequences that are evaluated at a time on a GPU after every step; None: none are.
        kept: Batches of it whose logits stay on the GPU, as the Trainer keeps those of all ranks; None: the loss alone.
        checkpoint: Behind the last step a checkpoint is saved, and another engine goes on from it.
        force: Run with versions that were not tested, and what is known to be refused.
    """

    rank: int = 0
    steps: int = 2
    seq_len: int | None = None
    target_len: int | None = None
    mean_len: int | None = None
    packing: bool | None = None
    attention: str | None = None
    checkpointing: str | None = None
    reentrant: bool = False
    activation_offloading: bool | None = None
    method: str | None = None
    lora_rank: int | None = None
    lora_targets: tuple[str, ...] | None = None
    lora_dropout: float | None = None
    lora_train_embeddings: bool | None = None
    lora_fp32: bool | None = None
    double_quantization: bool | None = None
    kbit_fp32: str | None = None
    zero_init: bool | None = None
    chunked_loss: bool | None = None
    foreach: bool | None = None
    older_loss: Mapping[str, Any] | None = None
    liger_kernels: str = ""
    own_optimizer: str = ""
    dtype: str | None = None
    alloc_conf: str = ""
    empty_cache_steps: int | None = None
    evaluation: int | None = None
    kept: int | None = None
    checkpoint: bool = False
    force: bool = False
