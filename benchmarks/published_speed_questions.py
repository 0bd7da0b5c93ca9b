"""From a record to the question of speed that it is an answer to: the job with its links, and the strategy."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import attrs
from published_questions import config_of, job_of  # benchmarks/, beside this script
from published_speed_facts import flash_attention, host_of, launcher, narrow_adapters, really, torch_of
from published_speed_reasons import sized
from stated_questions import stated_question

from dsgen import catalog
from dsgen.asking.memory_questions import Question
from dsgen.jobs.assembly import assemble
from dsgen.jobs.job import Job
from dsgen.jobs.scenarios import Scenario, ScenarioValue, layers
from dsgen.shapes.layers import Origin
from dsgen.shapes.profiles import Network

__all__ = ["assumed_network", "own_tokens", "speed_question"]

Record = Mapping[str, Any]

_GIGABIT = 1e9 / 8  # bytes
# A network's kind in the records -> a profile of its kind; Omni-Path has the latency and the zero copies of InfiniBand.
_NETWORKS = {
    "efa": "efa-400g",
    "ethernet": "ethernet-25g",
    "infiniband": "ib-hdr-200g",
    "omni-path": "ib-hdr-200g",
    "roce": "roce-400g",
}
_ANY_NETWORK = "infiniband"
# Gb/s out of a node where no source says it, by the beginning of its GPU's name: what clouds and the reference designs
# of the generation have (DGX A100 and ND A100 v4: 8 x 200, DGX H100 and ND H100 v5: 8 x 400; Alps: 4 x 200).
_USUAL_GBPS = {"A100": 1600, "A800": 1600, "H100": 3200, "H800": 3200, "H200": 3200, "GH200": 800}
_GROUPS_EXPERTS = "scattermoe"  # a plugin of fms-acceleration's, with kernels for all experts of a block
# Runs of fms-acceleration on samples of several lengths, cut at its program's 4,096 tokens: of padded ones the
# tokens of a sample, as its runs without padding have it. Where its "multipack" deals samples out, no GPU has more.
_LONGEST = 4096
_OWN_TOKENS = {"fms-pf": 289, "fms-moe": 194}
_DEALT_OUT = "multipack"
_BUCKETS = {
    "reduce_bucket": "reduce_bucket_size",
    "prefetch_bucket": "stage3_prefetch_bucket_size",
    "max_live": "stage3_max_live_parameters",
    "max_reuse": "stage3_max_reuse_distance",
    "overlap_comm": "overlap_comm",
}


def speed_question(record: Record) -> Question:
    """The question that a record's speed answers.

    Raises:
        DsgenError: A model or a strategy that dsgen cannot say anything about.
    """
    record = really(sized(record))
    job = job_of(record)
    ways = {
        "flash_attention": flash_attention(record),
        "torch": torch_of(record),
        "lora_fp32": not narrow_adapters(record),
    }
    if _GROUPS_EXPERTS in record["config"].get("plugins", ""):
        ways["transformers"] = None  # the newest, which groups them too
    ways |= _samples(record)
    training = attrs.evolve(job.training, launcher=launcher(record), **ways)
    job = attrs.evolve(job, training=training, hardware=host_of(job.hardware))
    if job.nodes > 1:
        job = attrs.evolve(job, network=network_of(record))
    return stated_question(job, _config(record, job), record["config"]["checkpointing"])


def _samples(record: Record) -> dict[str, Any]:
    """How long the samples of a run are, where they are of several lengths and how they spread counts."""
    tokens, config = record["model"].get("mean_tokens"), record["config"]
    if config.get("padding_free") and tokens and _DEALT_OUT not in config.get("plugins", ""):
        return {"seq_len": _LONGEST, "mean_len": round(tokens), "padding_free": True}
    own = own_tokens(record)
    return {"seq_len": _LONGEST, "mean_len": own} if own else {}


def own_tokens(record: Record) -> int | None:
    """Tokens of a sample of a run whose printed speed counts padding; None of all others."""
    family = record["id"].rpartition("-")[0]
    config = record["config"]
    padded = "mean_tokens" in record["model"] and not config.get("padding_free") and config["micro_batch"] > 1
    return _OWN_TOKENS.get(family) if padded else None


def assumed_network(record: Record) -> bool:
    """Whether nodes are joined, and the source does not say how fast."""
    hardware = record["hardware"]
    return hardware.get("nodes", 1) > 1 and "network_gbps" not in hardware


def network_of(record: Record) -> Network:
    """What joins the nodes of a record: as stated, else as is usual for its GPU."""
    hardware = record["hardware"]
    usual = next((speed for start, speed in _USUAL_GBPS.items() if hardware["gpu"].startswith(start)), None)
    speed = hardware.get("network_gbps", usual)
    return attrs.evolve(_network(hardware.get("fabric", _ANY_NETWORK)), bandwidth_bytes_per_second=speed * _GIGABIT)


@functools.cache
def _network(fabric: str) -> Network:
    name = _NETWORKS[fabric]
    assert name in catalog.names("network")
    profiles = {"hardware": ("a100-80g",), "model": ("7b",), "network": (name,)}
    fields = {"nodes": ScenarioValue(2, Origin("benchmark"))}
    return assemble(layers(Scenario(profiles=profiles, fields=fields)), None).network


def _config(record: Record, job: Job) -> dict[str, Any]:
    """The config as for memory, with the buckets that the source states, and with AutoTP where layers are split."""
    config, stated = config_of(record, job.model), record["config"]
    zero = config["zero_optimization"]
    if zero["stage"]:
        zero |= {key: stated[name] for name, key in _BUCKETS.items() if name in stated and _read(key, zero["stage"])}
    if "tp" in stated:
        config["tensor_parallel"] = {"autotp_size": stated["tp"]}
    return config


def _read(key: str, stage: int) -> bool:
    return stage == 3 or not key.startswith("stage3")
