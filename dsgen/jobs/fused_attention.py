"""Which attention runs where one is asked for: FlashAttention where a GPU, a class and a precision have it."""

from __future__ import annotations

from dsgen.jobs.said_releases import before
from dsgen.shapes.profiles import Hardware, Model, Training

__all__ = ["computes_scores", "flash_release", "fused_in_torch", "running_attention", "why_scores"]

# Since when transformers leaves keys of grouped queries to torch's sdpa, and torch takes them (4.54.0, integrations/
# sdpa_attention.py, use_gqa_in_sdpa; 4.53.3 repeats them, and so does every release beside an older torch).
_ASKS_FOR_GROUPS, _TAKES_GROUPS = (4, 54), (2, 5)


def running_attention(hardware: Hardware, model: Model, training: Training, precision: str) -> str:
    """The attention that runs where a training asks for one: flash, sdpa or eager.

    FlashAttention runs where `dsgen.kernels` counts it, on GPUs from Ampere on, and in 16 bits (transformers 5.23,
    modeling_utils.py); elsewhere sdpa has a kernel that holds no scores either, and time is counted for that one.
    """
    from dsgen.families import family_of  # it loads the operators of every family

    if family_of(model).eager(training.attention):
        return "eager"
    runs = hardware.bf16_flops_per_second > 0 and precision != "fp32" and hardware.vendor != "cpu"
    runs = runs and flash_release(hardware, training) > 0
    return training.attention if runs or training.attention != "flash" else "sdpa"


def computes_scores(hardware: Hardware, model: Model, training: Training, precision: str) -> bool:
    """Whether torch's sdpa computes all scores where it gets no mask: of grouped queries, beside no kernel that takes
    them (GROUPED of dsgen.shapes.attention_kinds)."""
    from dsgen.families import family_of  # it loads the operators of every family

    grouped = 0 < model.kv_heads < model.attention_heads
    if not grouped or hardware.vendor != "nvidia" or fused_in_torch(hardware, precision != "fp32"):
        return False
    if before(training.transformers, _ASKS_FOR_GROUPS) or before(training.torch, _TAKES_GROUPS):
        return False
    family = family_of(model)
    return not (family.eager("sdpa") or family.repeats_keys or model.encoder_layers)


def fused_in_torch(hardware: Hardware, half: bool) -> bool:
    """Whether an NVIDIA GPU has FlashAttention in torch's sdpa: since Ampere, and in 16 bits (`half`)."""
    return half and hardware.bf16_flops_per_second > 0


def why_scores(hardware: Hardware, model: Model, training: Training) -> str:
    """Why eager attention runs where FlashAttention is asked for; "" where it does not.

    Before Ampere that has no kernel, and none with sinks before Hopper; transformers 5.23 refuses sdpa for some classes
    (modeling_utils.py, _sdpa_can_dispatch): Gemma 2, gpt-oss, GPT-J.
    """
    if training.attention != "flash" or hardware.vendor != "nvidia":
        return ""
    from dsgen.families import FAMILIES  # it loads the operators of every family
    from dsgen.kernels.architectures import architecture  # a lint of one file loads no law of kernels
    from dsgen.kernels.attention import available

    family = FAMILIES.get(model.architecture)
    if family is None or not family.eager("sdpa"):
        return ""
    card, releases = architecture(hardware).name, family.flash_releases
    since = "Ampere"
    if hardware.bf16_flops_per_second > 0:
        if not releases or any(available(card, f"flash{one}") == f"flash{one}" for one in releases):
            return ""
        since = "Hopper for its sinks"
    return f"flash attention has no kernel before {since}, and transformers refuses sdpa for {model.architecture}"


def flash_release(hardware: Hardware, training: Training) -> int:
    """The release of FlashAttention that runs on GPUs where one is wished: 3 on Hopper, 4 on B200; 0 none."""
    from dsgen.kernels.architectures import architecture  # as above
    from dsgen.kernels.attention import available

    kernel = available(architecture(hardware).name, f"flash{training.flash_attention}")
    return int(kernel[-1]) if kernel.startswith("flash") else 0
