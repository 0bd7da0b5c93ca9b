"""What a training program holds or does, by its arguments, that no plan counts, and what of it can be said instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["uncounted"]

# What says how a model is aligned: Axolotl, ms-swift, LLaMA-Factory; and the arguments of TRL's trainers that do.
_ALIGNED = ("rl", "rlhf_type", "stage")
# Training on preferences -> whether a reference model stays beside the one that learns, unless adapters do.
_PAIRS = {"dpo": True, "ipo": True, "kto": True, "rm": False, "orpo": False, "cpo": False, "simpo": False}
_GENERATE = ("grpo", "ppo", "rloo", "gkd")
_OF_GRPO, _OF_DPO = ("num_generations",), ("max_prompt_length", "precompute_ref_log_probs", "ref_model", "pref_beta")
# Arguments of the Trainer's that are not counted -> what of them.
_SWITCHED_ON = {
    "torch_compile": "torch.compile is not counted: it may take less for what it fuses, and more while it compiles",
    "predict_with_generate": "what an evaluation generates is not counted: keys and values of all tokens, and at "
    "stage 3 a gathering of all weights for each token",
}
_EMPTIED = "torch_empty_cache_steps"


def uncounted(values: Mapping[str, Any], file: str, fields: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for each.

    Args:
        values: All arguments.
        file: Where they stand.
        fields: What a scenario has of them.
    """
    yield from (f"{file}: {words}" for name, words in _SWITCHED_ON.items() if values.get(name) is True)
    if values.get(_EMPTIED):
        yield (
            f"{file}: {_EMPTIED} is not counted: what is reserved is less than is said, and dsgen simulate "
            f"--empty-cache-steps {values[_EMPTIED]} says it"
        )
    kind = _aligned(values)
    if kind in _GENERATE:
        yield (
            f"{file} is of {kind.upper()}: what generates its answers and a reference model are not counted; "
            "--gpu-memory-used SIZE says what they take of every GPU"
        )
        return
    pairs, reference = kind in _PAIRS and kind != "kto", _PAIRS.get(kind, False) and "method" not in fields
    if not (pairs or reference):
        return
    batch = fields.get("micro_batch")
    held = ["the second answer of each pair"] * pairs + ["its reference model"] * reference
    ways = [f"--micro-batch {2 * batch if batch else 'N'} counts both answers"] * pairs
    ways += ["--gpu-memory-used SIZE the reference (at stage 3 its share)"] * reference
    verb = "is" if len(held) == 1 else "are"
    yield f"{file} is of {kind.upper()}: {' and '.join(held)} {verb} not counted; {', '.join(ways)}"


def _aligned(values: Mapping[str, Any]) -> str:
    """How the model is aligned, in small letters; empty where it is not."""
    words = [str(values[name]).lower() for name in _ALIGNED if values.get(name)]
    known = next((word for word in words if word in (*_PAIRS, *_GENERATE)), "")
    if known:
        return known
    if any(name in values for name in _OF_GRPO):
        return "grpo"
    return "dpo" if any(values.get(name) for name in _OF_DPO) else ""
