"""The scenarios on which the instant cost of a step is held to the simulated one: drawn, always the same.

Every model profile and every type without one has a scenario; the models that people fine-tune have several more. They
are whole models; a type has the widths of a real one and a few blocks.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from typing import Any

import attrs
from memory_cases import ANY, Case, models, of_type  # benchmarks/memory_cases.py, beside this script
from memory_types import TYPES
from memory_types_mixtures import MIXTURES

from dsgen.jobs.assembly import assemble
from dsgen.jobs.job import Job
from dsgen.jobs.samples import beside_card
from dsgen.jobs.scenarios import Scenario, ScenarioValue, layers
from dsgen.shapes.layers import Origin

__all__ = ["TimedCase", "timed_cases"]

SEED = 14_2026
COMMON = (
    "qwen2.5-0.5b", "llama-3.2-1b", "qwen2.5-1.5b", "gemma-2-2b", "qwen3-4b", "gemma-3-4b", "mistral-7b", "qwen2.5-7b",
    "llama-3.1-8b", "qwen3-8b", "gemma-2-9b", "llama-2-13b", "phi-4", "qwen2.5-32b", "llama-3.1-70b",
)  # fmt: skip
MORE = 7  # scenarios of each of these besides its own
# ZeRO++ between nodes: what each scenario says beside stage 3.
ZEROPP = {
    "hpZ": {"zero_hpz_partition_size": 8},
    "qwZ": {"zero_quantized_weights": True},
}
# Adapters in the type of the base at stage 3, which are fp32 where nobody says so: as TRL's SFTTrainer makes them.
NARROW = ("qwen2.5-1.5b", "llama-3.1-8b", "llama-3.1-70b")
PACKED = {"qwen2.5-1.5b": 300, "llama-3.1-8b": 900}  # model -> tokens of a sample in the mean; sequences of 8,192
CARDS = ("a100-80g",) * 3 + ("h100-80g",) * 3 + ("a100-40g", "rtx4090-24g", "rtx3090-24g", "l40s-48g", "a10g-24g",
         "h200-141g", "v100-32g")  # fmt: skip
OLD = ("v100-32g",)  # cards without bf16
NETWORKS = ("ib-hdr-200g", "ib-ndr-400g", "ethernet-25g", "roce-100g")
SINGLE = 8  # GPUs up to which no network is crossed


@attrs.frozen(kw_only=True)
class TimedCase(Case):
    """A scenario with the hardware and the network that its time is told on.

    Attributes:
        hardware, network: Names of profiles.
    """

    hardware: str
    network: str

    def job(self) -> Job:
        """The job on this hardware."""
        made, there = super().job(), _cluster(self.hardware, self.network)
        per_node = min(self.gpus, there.hardware.gpus_per_node)
        network = there.network if self.gpus > per_node else _cluster(self.hardware, None).network
        nodes = self.gpus // per_node
        packed = self.options.get("packed")  # tokens of a sample in the mean
        training = attrs.evolve(made.training, packing=packed is not None, mean_len=packed)
        run = {"hardware": there.hardware, "network": network, "nodes": nodes, "gpus_per_node": per_node}
        return attrs.evolve(made, training=training, **run)

    def request(self) -> dict[str, Any]:
        """What the simulation is asked: its program too. It runs whole sequences, packed or not."""
        asked = {name: said for name, said in super().request().items() if name != "packed"}
        hardware = _cluster(self.hardware, None).hardware
        runs = beside_card(self.options["attention"], hardware, asked["dtype"] != "float32", False)
        return {**asked, "attention": runs, "time": True}


@functools.lru_cache
def _cluster(hardware: str, network: str | None) -> Job:
    """A job on nodes of some hardware, joined by a network; on one node where that is None."""
    profiles = {"hardware": (hardware,), "model": (ANY,), "network": (network,) if network else ()}
    nodes = {"nodes": ScenarioValue(2, Origin("benchmark"))} if network else {}
    return assemble(layers(Scenario(profiles=profiles, fields=nodes)), None)


def timed_cases() -> Iterator[TimedCase]:
    """Every scenario: first one of each model, then more of the common ones, of ZeRO++, adapters in 16 bits, and packed
    samples."""
    facts = dict(models())
    for name, model in facts.items():
        yield _drawn(f"{name} 1", name, model)
    for name in (*TYPES, *MIXTURES):
        yield _drawn(f"{name} 1", name, of_type(name))
    for name in COMMON:
        for number in range(MORE):
            yield _drawn(f"{name} {number + 2}", name, facts[name])
    for name, keys in ZEROPP.items():
        like = _drawn(f"llama-3.1-8b {name}", "llama-3.1-8b", facts["llama-3.1-8b"])
        zero = {"stage": 3, "overlap_comm": True, **keys}
        config = {key: value for key, value in like.config.items() if key in ("optimizer", "bf16")}
        config |= {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 2, "zero_optimization": zero}
        options = {**like.options, "method": "full", "chunked_loss": False, "attention": "flash"}
        yield attrs.evolve(like, gpus=16, hardware="a100-80g", network="ib-hdr-200g", config=config, options=options)
    for model in NARROW:
        like = _drawn(f"{model} narrow", model, facts[model])
        config = _overlapping(2, 4, 3)
        options = {**like.options, "method": "lora", "lora_fp32": False, "checkpointing": True, "attention": "flash"}
        yield attrs.evolve(like, gpus=8, hardware="a100-80g", config=config, options=options)
    for model, tokens in PACKED.items():
        like = _drawn(f"{model} packed", model, facts[model])
        config = _overlapping(1, 2, 2)
        options = {**like.options, "method": "lora", "seq_len": 8192, "checkpointing": False, "attention": "flash"}
        options["packed"] = tokens
        yield attrs.evolve(like, gpus=8, hardware="a100-80g", config=config, options=options)


def _overlapping(micro_batch: int, accumulation: int, stage: int) -> dict[str, Any]:
    return {
        "train_micro_batch_size_per_gpu": micro_batch,
        "gradient_accumulation_steps": accumulation,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
        "zero_optimization": {"stage": stage, "overlap_comm": True},
        "bf16": {"enabled": True},
    }


def _drawn(name: str, model: str, facts: Any) -> TimedCase:
    draw = random.Random(f"{SEED} {name}")
    stage = draw.choice((0, 1, 2, 2, 2, 3, 3, 3))
    gpus = draw.choice((1, 1, 2, 4, 8, 8, 8, 16, 32, 64))
    method = draw.choice(("full", "full", "lora", "qlora"))
    hardware = draw.choice(CARDS)
    offload = draw.choice(("none", "none", "none", "cpu")) if stage else "none"
    tp = draw.choice((2, 4)) if _splits(facts, stage, method, gpus, hardware) and draw.random() < 0.5 else 1
    zero: dict[str, Any] = {"stage": stage}
    if stage:
        zero["overlap_comm"] = draw.random() < 0.8
    if offload == "cpu":
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
        if stage == 3 and draw.random() < 0.5:
            zero["offload_param"] = {"device": "cpu", "pin_memory": True}
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": draw.choice((1, 1, 2, 4, 8)),
        "gradient_accumulation_steps": draw.choice((1, 2, 4)),
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
        "zero_optimization": zero,
        "fp16" if hardware in OLD else "bf16": {"enabled": True},
    }
    if tp > 1:
        config["tensor_parallel"] = {"autotp_size": tp}
    lengths = [length for length in (512, 1024, 2048, 4096, 8192) if length <= facts.max_positions]
    return TimedCase(
        name=name,
        model=model,
        depth=facts.layers,
        gpus=gpus,
        hardware=hardware,
        network=draw.choice(NETWORKS),
        config=config,
        options={
            "seq_len": draw.choice(lengths),
            "attention": draw.choice(("flash",) * 5 + ("eager",)),
            "checkpointing": draw.random() < 0.6,
            "method": method,
            "lora_rank": draw.choice((8, 16, 64)),
            "chunked_loss": method == "full" and draw.random() < 0.15 and tp == 1,  # Liger's takes the whole head
        },
    )


def _splits(model: Any, stage: int, method: str, gpus: int, hardware: str) -> bool:
    """Whether AutoTP is asked of the model: dense, trained whole, at the stages where it is right, over fast links."""
    heads = model.attention_heads % 4 == 0 and model.kv_heads % 4 == 0
    fast = hardware.startswith(("a100", "h100", "h200", "v100"))
    return stage in (1, 2) and method == "full" and gpus >= SINGLE and heads and fast and not model.experts
