"""The model types that AutoTP does not split, and why."""

from __future__ import annotations

__all__ = ["UNSPLIT", "unsplit"]

_UNKNOWN_STYLE = "DeepSpeed refuses AutoTP for {}: Hugging Face's plan has a style it does not know"
# Model types that AutoTP does not train, and why: tiny models on 2 ranks with DeepSpeed 0.19.8 and transformers 5.23.
# The loss and the gradient norm of every other type without experts were those of one rank, at stage 1.
UNSPLIT = {
    **dict.fromkeys(("glm4", "olmo2", "phi3"), _UNKNOWN_STYLE),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "glm4_moe", "granitemoe", "mixtral"), _UNKNOWN_STYLE),
    **dict.fromkeys(("olmoe", "qwen2_moe", "qwen3_moe"), _UNKNOWN_STYLE),
    "bloom": "AutoTP of {} stops in forward: its position biases (ALiBi) keep all heads",
    "falcon": "AutoTP of {} stops in forward: its blocks add in place to what a split layer gives (a view)",
    "gpt2": "DeepSpeed refuses AutoTP for {}: no rule of its own says how to split it",
    "gpt_bigcode": "AutoTP of {} stops in forward: query, key and value are one matrix, cut across",
    "gpt_oss": "AutoTP of {} splits the output head alone: attention and experts stay whole on every GPU",
}


def unsplit(architecture: str) -> str | None:
    """Why AutoTP does not run for a model type, or gives it nothing; None where it does."""
    why = UNSPLIT.get(architecture)
    return why and why.format(architecture)
