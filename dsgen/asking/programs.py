"""What Axolotl, LLaMA-Factory and ms-swift do by themselves where their file of arguments says nothing."""

from collections.abc import Iterator, Mapping
from typing import Any

from dsgen.memory.loading import KBIT_FP32_OF, LOADINGS_OF

__all__ = ["evaluates", "kbit_fp32", "loading", "nested", "recomputes"]

_AXOLOTL, _LLAMA_FACTORY, _SWIFT = "axolotl", "llama-factory", "ms-swift"
# Keys that one program alone has (08-2026). A bare Trainer's file says nothing of how its program loads.
_MARKS = {
    _LLAMA_FACTORY: ("finetuning_type", "disable_gradient_checkpointing"),
    _AXOLOTL: ("sequence_len", "base_model_config", "adapter"),
    _SWIFT: ("train_type", "tuner_type", "quant_bits"),
}
_OF_TRL = "use_peft"  # of its ModelConfig
# Keys by which the two programs are given something to evaluate; a share of the data, or a set of its own.
_EVALUATED = {
    _AXOLOTL: ("val_set_size", "test_datasets"),
    _LLAMA_FACTORY: ("val_size", "eval_dataset", "do_eval", "eval_strategy", "evaluation_strategy"),
}
_BATCHES = ("per_device_eval_batch_size", "eval_batch_size")  # transformers', Axolotl's
_NOTHING = (None, False, 0, "", "no")


def _program(values: Mapping[str, Any]) -> str | None:
    """The program whose arguments they are, by the name that `--target` takes; None of a program of one's own."""
    return next((program for program, marks in _MARKS.items() if any(name in values for name in marks)), None)


def loading(values: Mapping[str, Any]) -> str | None:
    """How it loads a model that no zero.Init makes; None where it is not known."""
    return LOADINGS_OF.get(_program(values) or "")


def kbit_fp32(values: Mapping[str, Any]) -> str | None:
    """When it makes fp32 of what a base has not in 4 bits; TRL's SFTTrainer does not since 0.27; None: not known."""
    return "never" if _OF_TRL in values else KBIT_FP32_OF.get(_program(values) or "")


def nested(values: Mapping[str, Any]) -> bool:
    """Whether the scales of 4-bit weights are quantized too: TRL does it only where it is told to."""
    return _OF_TRL not in values


def recomputes(values: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """The arguments of its checkpointing that it sets.

    LLaMA-Factory recomputes, by the reentrant kind, where nobody says otherwise (model/model_utils/checkpointing.py);
    Axolotl takes that kind where it recomputes and trains on no preferences (utils/config, normalize_config).
    """
    program = _program(values)
    if program == _LLAMA_FACTORY and values.get("gradient_checkpointing") is None:
        on = values.get("disable_gradient_checkpointing") is not True
        yield "gradient_checkpointing", on
        yield "use_reentrant_gc", values.get("use_reentrant_gc", on) is True
    if program == _AXOLOTL and not values.get("rl") and "use_reentrant" not in values:
        yield "use_reentrant", values.get("gradient_checkpointing") is True


def evaluates(values: Mapping[str, Any]) -> int | None:
    """Sequences of an evaluation's batch on one GPU; 0 where nothing is evaluated, None where it is not known.

    Axolotl takes the micro-batch where nobody says another (utils/config, normalize_config), LLaMA-Factory the
    Trainer's default.
    """
    said = next((values[name] for name in _BATCHES if _is_count(values.get(name))), None)
    program = _program(values)
    if said is not None or program not in _EVALUATED:
        return said
    if all(values.get(name) in _NOTHING for name in _EVALUATED[program]):
        return 0
    micro = values.get("micro_batch_size")
    return micro if program == _AXOLOTL and _is_count(micro) else None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
