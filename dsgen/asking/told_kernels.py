"""What a training program's arguments say of the kernels that run: attention, a loss in chunks, and Liger's."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any

from dsgen.asking import training_programs as programs

__all__ = ["attention", "liger", "loss_of_trl"]

# Switches of all that Liger has for a model, its chunked loss among it: the Trainer's, TRL's, LLaMA-Factory's; what of
# it a liger_kernel_config may switch off; Axolotl's switches of each, and of another loss that never holds all logits.
_LIGER = ("use_liger_kernel", "use_liger", "enable_liger_kernel")
_LIGER_LOSS, _LIGER_KERNELS = "fused_linear_cross_entropy", ("rope", "rms_norm", "swiglu", "geglu")
_LIGER_ONE_BY_ONE = ("liger_rope", "liger_rms_norm", "liger_glu_activation")
_CHUNKED = ("liger_fused_linear_cross_entropy", "cut_cross_entropy")
_LOSS, _CHUNKED_LOSS, _USUAL_LOSS, _SFT = "loss_type", "chunked_nll", "nll", "SFT"
_SMOOTHED = "label_smoothing_factor"  # needs all logits in every release (sft_trainer.py of TRL 1.16, compute_loss)
# TRL's releases since which SFTTrainer makes no logits of a whole batch (trainer/sft_config.py, sft_trainer.py): where
# nobody names a loss, unless Liger is on; and whatever is said.
_UNASKED_SINCE, _ALWAYS_SINCE = "1.7", "1.15"
# Which kernel of attention is asked for: transformers and TRL, ms-swift, LLaMA-Factory; and Axolotl's switches, also
# those of kernels that no plan knows.
_ATTENTIONS = ("attn_implementation", "attn_impl", "flash_attn")
_KERNELS = {**dict.fromkeys(("flash_attention_2", "flash_attention_3", "flash_attention_4", "flash_attn", "fa2", "fa3",
                             "kernels-community/flash-attn2", "kernels-community/flash-attn3",
                             "kernels-community/vllm-flash-attn3", "kernels-community/flash-attn4"), "flash"),
            "sdpa": "sdpa", "eager": "eager", "disabled": "eager"}  # fmt: skip
_SWITCHED = {"flash_attention": "flash", "sdp_attention": "sdpa", "eager_attention": "eager"}
_OTHERS = ("xformers_attention", "sage_attention", "flex_attention")
_UNASKED = (None, False, "", "auto")


def attention(values: Mapping[str, Any], model: str | None = None, computed: Container[str] = ()) -> str | None:
    """The kernel of attention that runs, as a scenario has it; None where it is not known, or none that a plan knows.

    Args:
        values: The arguments.
        model: The base by its name.
        computed: Names of others, which only running the program would tell.
    """
    asked = [kernel for name, kernel in _SWITCHED.items() if values.get(name) is True]
    asked += [_KERNELS[values[name]] for name in _ATTENTIONS if values.get(name) in (*_KERNELS,)]
    if asked:
        return asked[0]
    names = (*_SWITCHED, *_ATTENTIONS, *_OTHERS)
    if any(values.get(name) not in _UNASKED or name in computed for name in names):
        return None
    return programs.attention_of(values, model)


def liger(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """A loss without all logits, and Liger's other kernels: a program that switches Liger on takes all of them."""
    every = any(values.get(name) is True for name in _LIGER)
    chunked = any(values.get(name) is True for name in _CHUNKED) or values.get(_LOSS) == _CHUNKED_LOSS
    if chunked or (every and values.get(_LIGER_LOSS) is not False):
        yield "chunked_loss", True
    if every or all(values.get(name) is True for name in _LIGER_ONE_BY_ONE):
        yield "liger_kernels", not any(values.get(name) is False for name in _LIGER_KERNELS)


def loss_of_trl(values: Mapping[str, Any], file: str) -> str | None:
    """That a newer TRL's SFTTrainer makes no logits of a whole batch, where all are counted; None of any other."""
    if programs.program_of(values) != programs.TRL or programs.trainer_of_trl(values) != _SFT:
        return None
    if "chunked_loss" in dict(liger(values)) or (values.get(_SMOOTHED) and values.get(_LOSS) in (None, _USUAL_LOSS)):
        return None
    named = bool(values.get(_LOSS)) or any(values.get(name) is True for name in _LIGER)
    since = _ALWAYS_SINCE if named else _UNASKED_SINCE
    return (
        f"{file}: its loss is counted with all logits, as SFTTrainer makes it before TRL {since}; from there on it "
        "goes in chunks, which --chunked-loss counts"
    )
