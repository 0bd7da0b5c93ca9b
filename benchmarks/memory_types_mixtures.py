"""Scenarios of mixtures of experts that no built-in profile has, from their config.json, at full width and few blocks.

    python benchmarks/memory_types_mixtures.py --update [--only NAME ...]   simulate what is missing, and record it
    python benchmarks/memory_types_mixtures.py                              print the errors of what is recorded

memory_agreement_mixtures.json holds what the simulation said of each. Needs dsgen[proof] for --update.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
from memory_agreement import simulate  # benchmarks/memory_agreement.py, beside this script
from memory_cases import Case, draw_case
from memory_compared import compare, differences, read, summary

from dsgen.hf_config import model_from_hf
from dsgen.jobs import Job
from dsgen.profiles import Model
from dsgen.units import gib

__all__ = ["MODELS", "RECORD", "MixtureCase", "cases"]

RECORD = Path(__file__).resolve().parent / "memory_agreement_mixtures.json"
SEED = 511
DEPTH = 3  # blocks; one of them is dense where the first ones are
ANOTHER = "7b"  # a profile for what the job says beside the model
# What each model has: stage, method, precision, attention, checkpointing, offload; the rest is drawn.
ROUNDS = (
    (3, "full", "bf16", "flash", False, False),
    (2, "lora", "bf16", "sdpa", True, False),
    (0, "full", "fp16", "eager", False, False),
    (3, "lora", "bf16", "flash", True, False),
    (1, "full", "bf16", "flash", True, False),
    (3, "qlora", "bf16", "sdpa", False, False),
    (3, "full", "fp16", "eager", True, False),
    (2, "full", "bf16", "flash", False, True),
    (3, "lora", "bf16", "eager", False, False),
    (3, "full", "bf16", "flash", True, True),
)

# The keys of config.json as Hugging Face has them, sizes of weights and what changes their number.
MODELS: dict[str, dict[str, Any]] = {
    # Qwen/Qwen1.5-MoE-A2.7B
    "qwen1.5-moe-a2.7b": {
        "model_type": "qwen2_moe",
        "hidden_size": 2048,
        "intermediate_size": 5632,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "vocab_size": 151936,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": False,
        "sliding_window": 32768,
        "use_sliding_window": False,
        "decoder_sparse_step": 1,
        "moe_intermediate_size": 1408,
        "shared_expert_intermediate_size": 5632,
        "num_experts": 60,
        "num_experts_per_tok": 4,
        "norm_topk_prob": False,
    },
    # Qwen/Qwen2-57B-A14B
    "qwen2-57b-a14b": {
        "model_type": "qwen2_moe",
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 151936,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": False,
        "sliding_window": 65536,
        "use_sliding_window": False,
        "decoder_sparse_step": 1,
        "moe_intermediate_size": 2560,
        "shared_expert_intermediate_size": 20480,
        "num_experts": 64,
        "num_experts_per_tok": 8,
        "norm_topk_prob": False,
    },
}


class MixtureCase(Case):
    """A scenario whose model is one of MODELS."""

    def job(self) -> Job:
        """The job that the scenario describes."""
        job = attrs.evolve(self, model=ANOTHER, depth=None).plain().job()
        model = facts(self.model)
        if self.depth is not None:
            model = attrs.evolve(model, layers=self.depth, dense_layers=min(model.dense_layers, 1))
        return attrs.evolve(job, model=model)

    def plain(self) -> Case:
        """The same scenario as one of a built-in profile."""
        return Case(**attrs.asdict(self))


def facts(name: str) -> Model:
    """The model of a config.json."""
    found: dict[str, Any] = model_from_hf(MODELS[name], name)
    return Model(**found)


def cases() -> Iterator[MixtureCase]:
    """Every scenario."""
    for name in MODELS:
        for number, (stage, method, precision, attention, checkpointing, offload) in enumerate(ROUNDS, 1):
            for attempt in itertools.count():
                draw = random.Random(f"{SEED} {name} {number} {attempt}")
                drawn = draw_case(f"{name} {number}", name, DEPTH, draw, facts(name))
                zero = drawn.config["zero_optimization"]
                found = zero["stage"], drawn.options["method"], "offload_optimizer" in zero
                if found == (stage, method, offload) and precision in drawn.config:
                    break
            options = {**drawn.options, "attention": attention, "checkpointing": checkpointing}
            yield MixtureCase(**{**attrs.asdict(drawn), "options": options})


def main() -> None:
    """Simulate and record, or print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help="simulate what is missing, and record it")
    parser.add_argument("--only", nargs="*", default=(), help="scenarios, or models, to simulate again")
    options = parser.parse_args()
    if options.update:
        simulate(RECORD, list(cases()), set(options.only))
    found = compare(read(RECORD), MixtureCase)
    for item in found:
        simulated = item.simulated
        if item.ours is None:
            print(f"{item.case.name:24} {simulated['error']}")
            continue
        print(f"{item.case.name:24} {item.error:+8.3%}  {gib(simulated['peak']):>6} GiB in {simulated['phase']}")
        for phase in simulated["phases"]:
            for part in differences(item, phase):
                if not part.close:
                    print(f"    {phase:10} {part.part:24} simulated {part.simulated:>14,} ours {part.ours:>14,}")
    print(summary(found))


if __name__ == "__main__":
    sys.exit(main())
