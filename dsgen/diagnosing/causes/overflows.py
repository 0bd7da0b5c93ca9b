"""Causes that are about the numbers of training: overflow, NaN, and indices that point nowhere."""

from __future__ import annotations

from dsgen.diagnosing.causes.cause import SLOW, Cause, Sign

__all__ = ["NUMBERS"]

NUMBERS = (
    Cause(
        code="loss-scale-at-minimum",
        words="the loss scale fell to its minimum",
        phase="step",
        signs=(Sign("loss scale already at minimum"),),
        why="Every step overflows in fp16: activations beyond 65,504, most often of a model that was pretrained in "
        "bf16 (Llama, Qwen, Gemma, T5), or a NaN in the data.",
        changes=(
            "bf16 instead of fp16, where the GPU has it (Ampere and later)",
            "a lower learning rate, a longer warm-up, and fp32 for the module that overflows",
        ),
        source="https://github.com/yangjianxin1/Firefly/issues/68",
    ),
    Cause(
        code="index-out-of-range",
        words="an index points past the end of a table",
        phase="forward",
        signs=(
            Sign("srcIndex < srcSelectDimSize"),
            Sign("device-side assert triggered"),
            Sign("index out of range in self"),
            Sign("t >= 0 && t < n_classes"),
            Sign("idx_dim >= 0 && idx_dim < index_size"),
            Sign("index out of bounds"),
        ),
        why="A token id is not smaller than the rows of the embedding (tokens were added and the model not resized), "
        "a position lies past the longest sequence, or a label is neither a class nor -100.",
        changes=(
            "model.resize_token_embeddings(len(tokenizer)), and check max(input_ids) < vocab_size on the CPU",
            "truncate sequences to the model's positions; labels are class numbers or -100",
            "CUDA_LAUNCH_BLOCKING=1 makes the traceback show the place",
        ),
        source="https://pytorch.org/docs/stable/notes/cuda.html#asynchronous-execution",
    ),
    Cause(
        code="not-a-number",
        words="the loss or the gradient's norm is not a number",
        level=SLOW,
        signs=(
            Sign("'loss': nan"),
            Sign("'grad_norm': nan"),
            Sign("'grad_norm': inf"),
            Sign("'grad_norm': 'nan'"),
            Sign("'loss': 'nan'"),
            Sign("grad norm: nan"),
            Sign("nan", r"(?i)(?:\bloss|_loss)\b['\"]?\s*(?:[:=]|is)?\s*['\"]?-?nan\b"),
            Sign("NaN", r"(?i)(?:\bloss|_loss)\b['\"]?\s*(?:[:=]|is)?\s*['\"]?-?nan\b"),
            Sign("Gradients are non-finite"),
            Sign("contains either `inf`, `nan`"),
            Sign("all_grad_norm"),
            Sign("all_groups_norm > 0"),
            Sign("NaN or Inf found in input tensor"),
            Sign("number of nan iterations", r"number of nan iterations:\s*[1-9]"),
        ),
        why="A NaN or infinity entered the weights, or every step will be skipped: an overflow in fp16, a batch "
        "without a single label, a learning rate too high, or gradients read before they were reduced.",
        changes=(
            "bf16 instead of fp16, where the GPU has it",
            "drop samples whose labels are all -100; a tenth of the learning rate with warm-up",
            "overlap_comm=false, and the newest DeepSpeed 0.x: releases before 0.14.3 read gradients too early",
        ),
        source="https://github.com/deepspeedai/DeepSpeed/issues/5242",
    ),
    Cause(
        code="overflow",
        words="steps were skipped because gradients overflowed in fp16",
        level=SLOW,
        phase="step",
        signs=(Sign("OVERFLOW! Rank", r"Skipping step"), Sign("Gradient overflow.", r"Skipping step")),
        why="Dynamic loss scaling starts high and halves the scale until nothing overflows.",
        changes=(
            'a lower start, such as "initial_scale_power": 12, skips fewer steps at the beginning',
            "bf16 instead of fp16, where the GPU has it, needs no loss scale",
        ),
        source="https://github.com/deepspeedai/DeepSpeed/issues/931",
    ),
)
