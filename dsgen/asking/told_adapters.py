"""What a training program's arguments say of adapters: fields of a scenario."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any

from dsgen.asking import training_programs as programs
from dsgen.linting.python_programs import OF_PEFT

__all__ = ["FOLLOWED", "TARGETS", "adapters"]

# The rank of adapters and the matrices that get them: peft and TRL, LLaMA-Factory, ms-swift, FastChat.
_RANKS = ("lora_r", "lora_rank")
TARGETS = ("lora_target_modules", "lora_target", "target_modules")
_ADAPTERS = {"use_peft": True, "lora_enable": True, "use_lora": True, "finetuning_type": "lora", "train_type": "lora",
             "tuner_type": "lora", "adapter": "lora"}  # fmt: skip
_FOUR_BITS = {"load_in_4bit": True, "quantization_bit": 4, "quant_bits": 4, "q_lora": True, "bits": 4,
              "adapter": "qlora"}  # fmt: skip
# Whether the scales of 4-bit weights are quantized too: LLaMA-Factory, transformers and ms-swift, TRL.
_NESTED = ("double_quantization", "bnb_4bit_use_double_quant", "use_bnb_nested_quant")
FOLLOWED = (*_RANKS, *TARGETS, *_NESTED, "lora_dropout", "load_in_4bit")  # what a plan follows of a program's
_EVERY_MATRIX = ("all", "all-linear")


def adapters(values: Mapping[str, Any], model: str | None, computed: Container[str] = ()) -> Iterator[tuple[str, Any]]:
    """What is trained, where it is adapters; a rank alone counts unless the program is told to train all.

    Args:
        values: The arguments, with those that the program has by default.
        model: The base by its name.
        computed: Names of others, which only running the program would tell.
    """
    four_bits = any(values.get(name) == value for name, value in _FOUR_BITS.items())
    switch = [values[name] for name in _ADAPTERS if name in values]
    rank = next((values[name] for name in _RANKS if _is_count(values.get(name))), None)
    asked = any(values.get(name) == value for name, value in _ADAPTERS.items()) or values.get("adapter") == "qlora"
    asked = asked or (OF_PEFT in values and not switch)  # its rank may be computed
    if not (asked or (rank is not None and not switch)):
        return
    yield "method", "qlora" if four_bits else "lora"
    if four_bits:
        nested = next((values[name] for name in _NESTED if isinstance(values.get(name), bool)), programs.nested(values))
        yield from [("double_quantization", False)] if not nested else ()
        if prepared := programs.kbit_fp32(values):
            yield "kbit_fp32", prepared
    if not programs.lora_fp32(values):
        yield "lora_fp32", False
    if programs.trains_embeddings(values):
        yield "lora_train_embeddings", True
    if rank is not None:
        yield "lora_rank", rank
    share = values.get("lora_dropout")
    if isinstance(share, float) and 0 < share < 1:
        yield "lora_dropout", share
    every = "all-linear" if values.get("lora_target_linear") is True else None  # Axolotl's
    targets = next((values[name] for name in TARGETS if values.get(name)), every)
    if targets is None and not any(name in computed for name in TARGETS):
        targets = programs.targets(values, model)
    names = [one.strip() for one in targets.split(",")] if isinstance(targets, str) else targets
    if isinstance(names, list) and names and all(isinstance(one, str) for one in names):
        yield "lora_targets", ["all-linear"] if any(one in _EVERY_MATRIX for one in names) else names


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
