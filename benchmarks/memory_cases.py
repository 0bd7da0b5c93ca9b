"""The scenarios on which the instant memory model is held to the simulation: drawn, always the same, over every model.

Every model has four. The first runs at full depth; the others at the model's width with a few of its blocks, which
shows the same causes in a tenth of the time.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from typing import Any

import attrs
from memory_types import TYPES  # benchmarks/memory_types.py, beside this script
from memory_types_encoders import ENCODERS
from memory_types_mixtures import MIXTURES
from stated_questions import stated_question

from dsgen import catalog
from dsgen.families.hf_config import model_from_hf, to_hf_config
from dsgen.families.parameters import ALL_LINEAR, parameter_count
from dsgen.jobs.assembly import assemble
from dsgen.jobs.job import Job
from dsgen.jobs.scenarios import Scenario, ScenarioValue, layers
from dsgen.shapes.layers import Origin
from dsgen.shapes.profiles import Model, Network
from dsgen.strategies.strategies import Strategy

__all__ = ["Case", "cases", "drawn", "later", "models", "of_type", "usual"]

SEED = 20260
ROUNDS = 4  # scenarios of each model
LATER_SEEDS, LATER_ROUNDS = (31337, 90210), 2
DEPTH = 5  # blocks of the scenarios that are not at full depth
HARDWARE = "h100-80g"  # its memory is not asked: a peak is counted whether it fits or not
NETWORK = "ib-hdr-200g"
ANY = "7b"  # a profile whose model is not asked
LARGEST_FULL = 20e9  # parameters; above it no scenario is at full depth
_WITHOUT = {**TYPES, **MIXTURES, **ENCODERS}  # model types without a profile
_OPTIMIZERS = ("AdamW",) * 8 + ("Lion", "SGD")


@attrs.frozen(kw_only=True)
class Case:
    """One scenario.

    Attributes:
        name: Model and number.
        model: Name of a model profile, or of a type without one.
        depth: Blocks; None for all.
        gpus: Ranks.
        config: The DeepSpeed config.
        options: seq_len, attention, checkpointing, method, lora_rank and chunked_loss, as the simulation takes them;
            lora_targets, lora_dropout, lora_train_embeddings, lora_fp32, older_loss, target_len, reentrant and
            activation_offloading where they are not as usual.
    """

    name: str
    model: str
    depth: int | None
    gpus: int
    config: dict[str, Any]
    options: dict[str, Any]

    def job(self) -> Job:
        """The job that the scenario describes."""
        profiles = {"hardware": (HARDWARE,), "model": (ANY if self.model in _WITHOUT else self.model,)}
        job = assemble(layers(Scenario(profiles=profiles)), None)
        per_node = min(self.gpus, job.hardware.gpus_per_node)
        options = self.options
        training = attrs.evolve(
            job.training,
            seq_len=options["seq_len"],
            target_len=options.get("target_len"),
            attention=options["attention"],
            method=options["method"],
            lora_rank=options["lora_rank"],
            lora_targets=tuple(options.get("lora_targets", (ALL_LINEAR,))),
            lora_dropout=options.get("lora_dropout", 0.0),
            lora_train_embeddings=options.get("lora_train_embeddings", False),
            lora_fp32=options.get("lora_fp32", True),
            chunked_loss=options["chunked_loss"],
            checkpointing="full" if options["checkpointing"] else "none",
            reentrant=options.get("reentrant", False),
            activation_offloading=options.get("activation_offloading", False),
        )
        model = of_type(self.model) if self.model in _WITHOUT else job.model
        if older := options.get("older_loss"):
            upcast, shifted = older["upcast"], older["shifted"]
            model = attrs.evolve(model, logits_upcast=upcast, logits_shifted=shifted, liger=older["liger"])
        model = attrs.evolve(model, liger_kernels=options.get("liger_kernels", ""))
        if self.depth is not None:
            dense = min(model.dense_layers, self.depth - 1)
            model = attrs.evolve(model, layers=self.depth, dense_layers=dense)
        nodes = self.gpus // per_node
        network = _network() if nodes > 1 else job.network
        return attrs.evolve(
            job, model=model, training=training, nodes=nodes, gpus_per_node=per_node, network=network, pins=()
        )

    def strategy(self) -> tuple[Job, Strategy]:
        """The job and the strategy that the config means."""
        question = stated_question(self.job(), self.config, bool(self.options["checkpointing"]))
        return question.job, question.strategy

    def request(self) -> dict[str, Any]:
        """What the simulation is asked."""
        job = self.job()
        facts = attrs.asdict(job.model)
        dtype = "float32" if not (self.config.get("bf16") or self.config.get("fp16")) else None
        dtype = dtype or ("bfloat16" if self.config.get("bf16") else "float16")
        return {
            "config": self.config,
            "model": to_hf_config(facts),
            "world_size": self.gpus,
            "gpus_per_node": job.gpus_per_node,
            "dtype": dtype,
            **self.options,
        }


def usual(seq_len: int, lora_rank: int, **more: Any) -> dict[str, Any]:
    """The options of a scenario: a whole model with FlashAttention and checkpointing, but for what is said."""
    return {
        "seq_len": seq_len,
        "attention": "flash",
        "checkpointing": True,
        "method": "full",
        "lora_rank": lora_rank,
        "chunked_loss": False,
        **more,
    }


def cases() -> Iterator[Case]:
    """Every scenario, in the order of the models' names."""
    for name, model in models():
        for number in range(ROUNDS):
            draw = random.Random(f"{SEED} {name} {number}")
            full = number == 0 and parameter_count(model) <= LARGEST_FULL
            depth = None if full or model.layers <= DEPTH else DEPTH
            yield drawn(f"{name} {number + 1}", name, depth, draw, model)


def later() -> Iterator[Case]:
    """The same from other draws, each made when the instant model was finished, and once more finished."""
    for turn, seed in enumerate(LATER_SEEDS):
        for name, model in models():
            for number in range(LATER_ROUNDS):
                draw = random.Random(f"{seed} {name} {number}")
                depth = None if model.layers <= DEPTH else DEPTH
                yield drawn(f"{name} f{turn * LATER_ROUNDS + number + 1}", name, depth, draw, model)


def of_type(name: str) -> Model:
    """The model of a type without a profile."""
    facts: dict[str, Any] = model_from_hf(_WITHOUT[name], name)
    return Model(**facts)


def models() -> Iterator[tuple[str, Model]]:
    """Name and facts of every model profile that extends no other."""
    for name in catalog.names("model", whole=True):
        yield name, assemble(layers(Scenario(profiles={"hardware": (HARDWARE,), "model": (name,)})), None).model


@functools.lru_cache(maxsize=1)
def _network() -> Network:
    """What joins the nodes; memory does not depend on it."""
    profiles = {"hardware": (HARDWARE,), "model": (ANY,), "network": (NETWORK,)}
    return assemble(
        layers(Scenario(profiles=profiles, fields={"nodes": ScenarioValue(2, Origin("benchmark"))})), None
    ).network


def drawn(
    name: str,
    model: str,
    depth: int | None,
    draw: random.Random,
    facts: Any,
    methods: tuple[str, ...] = ("full",) * 6 + ("lora", "qlora"),
) -> Case:
    """A scenario of a model, cut to `depth` blocks where that is not None, drawn in one of some methods."""
    stage = draw.choice((0, 1, 1, 2, 2, 2, 3, 3, 3, 3))
    gpus = draw.choice((1, 2, 4, 8, 8, 16, 64, 256))
    method = draw.choice(methods)
    offload = draw.choice(("none", "none", "cpu")) if stage else "none"
    tp = draw.choice((2, 4)) if _splits(facts, stage, method, gpus) and draw.random() < 0.4 else 1
    zero: dict[str, Any] = {"stage": stage}
    if offload == "cpu":
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
        if stage == 3 and draw.random() < 0.5:
            zero["offload_param"] = {"device": "cpu", "pin_memory": True}
    if stage and draw.random() < 0.5:
        zero["overlap_comm"] = draw.random() < 0.5
    if draw.random() < 0.5:
        zero["reduce_bucket_size"] = draw.choice((50_000_000, 200_000_000))
    if stage == 3 and draw.random() < 0.5:
        zero["stage3_max_live_parameters"] = zero["stage3_max_reuse_distance"] = draw.choice((100_000_000, 500_000_000))
        zero["stage3_prefetch_bucket_size"] = draw.choice((10_000_000, 50_000_000))
    precision = draw.choice(("bf16",) * 7 + ("fp16", "fp32"))
    precision = "bf16" if method == "qlora" and precision == "fp32" else precision  # 4-bit weights are made from bf16
    optimizer = draw.choice(_OPTIMIZERS) if offload == "none" else "AdamW"
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": draw.choice((1, 1, 2, 4, 8)),
        "gradient_accumulation_steps": draw.choice((1, 1, 2)),
        "optimizer": {"type": optimizer, "params": {"lr": 1e-4}},
        "zero_optimization": zero,
    }
    if optimizer == "SGD":
        config["zero_allow_untested_optimizer"] = True
    if precision != "fp32":
        config[precision] = {"enabled": True}
    if tp > 1:
        config["tensor_parallel"] = {"autotp_size": tp}
    lengths = [length for length in (512, 1024, 2048, 4096, 8192) if length <= facts.max_positions]
    options = {
        "seq_len": draw.choice(lengths),
        "attention": draw.choice(("flash",) * 4 + ("sdpa", "eager")),
        "checkpointing": draw.random() < 0.6,
        "method": method,
        "lora_rank": draw.choice((8, 16, 64)),
        "chunked_loss": method == "full" and draw.random() < 0.15,
    }
    return Case(name=name, model=model, depth=depth, gpus=gpus, config=config, options=options)


def _splits(model: Any, stage: int, method: str, gpus: int) -> bool:
    """Whether AutoTP is asked of the model: dense, trained whole, at the stages where it is right."""
    heads = model.attention_heads % 4 == 0 and model.kv_heads % 4 == 0
    return stage in (1, 2) and method == "full" and gpus >= 8 and heads and not model.experts
