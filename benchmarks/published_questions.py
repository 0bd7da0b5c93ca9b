"""From a record to the question of memory that it is an answer to: the job and the strategy."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import attrs
from published_models import model_of, targets_of  # benchmarks/, beside this script
from published_reasons import EIGHT_BIT_OPTIMIZERS, offload_of, stage_of
from published_sources import GIB, source_of
from stated_questions import stated_question

from dsgen.asking.memory_questions import Question
from dsgen.families.parameters import block_elements
from dsgen.jobs.assembly import assemble
from dsgen.jobs.job import Job
from dsgen.jobs.releases import by_release, casts_adapters
from dsgen.jobs.scenarios import Scenario, ScenarioValue, layers
from dsgen.shapes.layers import Origin
from dsgen.shapes.profiles import Hardware, Model
from dsgen.strategies.buffers import EIGHT_BITS

__all__ = ["PROFILES", "config_of", "hardware_of", "job_of", "question_of"]

Record = Mapping[str, Any]

# The records' GPUs -> profile.
PROFILES = {
    "A10-24GB": "a10-24g",
    "A100-40GB": "a100-40g",
    "A100-80GB": "a100-80g",
    "A100-PCIe-80GB": "a100-80g-pcie",
    "A10G-24GB": "a10g-24g",
    "A40-48GB": "a40-48g",
    "A800-80GB": "a800-80g",
    "B200-180GB": "b200-180g",
    "B300-288GB": "b300-288g",
    "GAUDI2-96GB": "gaudi2-96g",
    "GAUDI3-128GB": "gaudi3-128g",
    "GB200-186GB": "gb200-186g",
    "GH200-96GB": "gh200-96g",
    "H100-80GB": "h100-80g",  # none says which; boards of eight and rented machines have this one
    "H100-94GB": "h100-94g-nvl",
    "H100-SXM-80GB": "h100-80g",
    "H20-96GB": "h20-96g",
    "H200-141GB": "h200-141g",
    "H800-80GB": "h800-80g",
    "L20-48GB": "l40s-48g",  # as much memory
    "L4-24GB": "l4-24g",
    "L40S-48GB": "l40s-48g",
    "MI300X-192GB": "mi300x-192g",
    "RTX3090-24GB": "rtx3090-24g",
    "RTX-PRO-6000-96GB": "rtxpro6000-96g",
    "RTX4090-24GB": "rtx4090-24g",
    "RTX5090-32GB": "rtx5090-32g",
    "RTXA4000-16GB": "rtxa4000-16g",
    "RTXA6000-48GB": "rtxa6000-48g",
    "T4-16GB": "t4-16g",
    "V100-SXM-16GB": "v100-16g",
    "V100-SXM-32GB": "v100-32g",
}
# No profile has it: a card of the same family, with its own memory. TITAN RTX: "22.3 of 23.65 GiB" in the record.
_TURING = ("TITAN-RTX-24GB", "RTX6000-24GB")
_TURING_PROFILE = "t4-16g"
_TURING_USABLE_BYTES = int(23.65 * GIB)
# One to a node in its profile. Alps has four, of which every two are joined by six of the 18 links (450 GB/s in all).
_SUPERCHIPS, _NVLINK_4 = ("GH200-96GB",), "h100-80g"
# A card whose record says that PCIe joins it to its peers -> the profile whose link it then has.
_PCIE, _BESIDE_PCIE = "pcie", {"H100-80GB": "h100-80g-pcie", "A100-80GB": "a100-80g-pcie", "A100-40GB": "a100-40g-pcie"}
_MODEL = "7b"  # every job is assembled with it and then gets the record's own
_NETWORK = "ib-hdr-200g"  # memory does not depend on it

# Buckets of the DeepSpeed configs that Qwen, ms-swift and the guides of Transformers give: 2e8 at stages 1 and 2
# (finetune/ds_config_zero2.json), and at stage 3 "auto", which Transformers fills from the hidden size
# (integrations/deepspeed.py, trainer_config_process).
_BUCKET = 200_000_000  # elements
_PREFETCH_SHARE = 0.9  # of hidden_size squared
_PERSISTENT = 10  # times hidden_size
_LIVE = 1_000_000_000  # elements
# What a record has of a run's own config -> DeepSpeed's key.
_KEYS = {
    "reduce_bucket": "reduce_bucket_size",
    "allgather_bucket": "allgather_bucket_size",
    "prefetch_bucket": "stage3_prefetch_bucket_size",
    "max_live": "stage3_max_live_parameters",
    "max_reuse": "stage3_max_reuse_distance",
    "persistence": "stage3_param_persistence_threshold",
    "overlap_comm": "overlap_comm",
}


def question_of(record: Record) -> Question:
    """The question that a record answers.

    Raises:
        DsgenError: A model or a strategy that dsgen cannot say anything about.
    """
    job = job_of(record)
    question = stated_question(job, config_of(record, job.model), record["config"]["checkpointing"])
    training = attrs.evolve(question.job.training, expandable_segments=_grows(record))
    return attrs.evolve(question, job=attrs.evolve(question.job, training=training))


# Tokens of a sequence in the mean, where a source trains on several lengths and says so. PEFT's batches are sorted by
# length too, 20 at a time, and its cache is emptied every ten steps, for which dsgen has no word
# (huggingface/peft@026d1e0, method_comparison/MetaMathQA/run.py: BUCKET_FACTOR, ACCELERATOR_EMPTY_CACHE_SCHEDULE).
_MEANS = {"peftmc": 210}
# Programs with a loss of Liger's of a known release. fms-acceleration's own plugin has a copy, line by line that of
# 0.3.1 (fms_acceleration_foak/fused_ops/liger_ce/fused_linear_cross_entropy_loss.py).
_LIGERS = {"ast": "0.8.4", "fms": "0.3.1", "sws": "0.5.10"}
# Programs whose records name no release of transformers -> that of the time when they published: of Qwen3's first one.
_TRANSFORMERS = {"swq": "4.51"}
# Programs that ran DeepSpeed -> the release of the time when they published; the oldest that is known for those of the
# year before it (0.14.0 is of March 2024).
_RELEASES = {"sws": "0.16", "qwen": "0.14.0", "flagp": "0.14.0"}
# Runs whose scripts set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (modelscope/ms-swift@3602360;
# snowflakedb/ArcticTraining@b28638e, projects/sequence-parallelism/README.md).
_GROWING = (
    *("sws-02", "sws-03", "sws-07", "sws-12", "sws-13"),
    *("arc-h100-32k", "arc-h100-36k", "arc-h200-65k", "arc-h200-liger-300k"),
)
# Programs that do so for every run: bytedance-iaas/AsymGEMM@52c4a1a0, scripts/lf/profile_lora_lf_test_both.sh, whose
# EXPANDABLE_SEG is true unless it is told otherwise, since 2026-07-10.
_LET_IT_GROW = ("ast",)
# Programs whose config of stage 3 has neither overlap nor an optimizer, for which the Trainer of 2025 brings torch's
# own AdamW (modelscope/ms-swift@3602360, swift/llm/ds_config/zero3.json; transformers before 4.54).
_BRINGS_ADAMW = ("sws",)
# The same at every stage, of configs that have no optimizer (hiyouga/LLaMA-Factory, examples/deepspeed).
_HAS_NO_OPTIMIZER = ("lf",)
# Programs that hand torch's own AdamW to DeepSpeed, whose config keeps its overlap (verify_loss.py).
_HANDS_ADAMW = ("bc2", "dsv", "pft")
# Programs whose FSDP gathered the whole model at once while it was loaded: without zero.Init a rank has it whole too.
_WHOLE_AT_FIRST = ("litr", "lith")
# Sources whose records tell scales that are quantized themselves ("nf4 twice") from those that are not; other programs
# nest them: fms-acceleration's plugin, bitsandbytes' own layers by default, as fsdp_qlora takes them, and Axolotl.
_TELLS_NESTED = ("litr", "lith", "lithc", "bnb4", "ob", "bob", "pyc")
# Programs that do not make fp32 of what is not in 4 bits: LitGPT, LLaMA-Factory, TRL since 0.27, Optimum Benchmark.
# What fsdp_qlora's own loader, which quantizes layer by layer, holds meanwhile is not known.
_UNPREPARED = ("litr", "lith", "lithc", "lf", "trlnb", "ob")


def _grows(record: Record) -> bool:
    return record["id"] in _GROWING or source_of(record).prefix in _LET_IT_GROW


def job_of(record: Record) -> Job:
    """The job: hardware, model, and how it is trained."""
    where, config = record["hardware"], record["config"]
    per_node = where["gpus"] // where["nodes"]
    base = _base(_TURING_PROFILE if where["gpu"] in _TURING else PROFILES[where["gpu"]], where["nodes"] > 1)
    lora = config.get("lora")
    model, loss = model_of(record), source_of(record).own_loss
    said: dict[str, Any] = {}
    if lora:
        method = "qlora" if config.get("quantization") else "lora"
        said = {"method": method, "lora_rank": lora["r"], "lora_targets": targets_of(record, model)}
        prefix = record["id"].partition("-")[0]
        said["double_quantization"] = not (prefix in _TELLS_NESTED and config.get("quantization") == "nf4")
        said["kbit_fp32"] = "never" if prefix in _UNPREPARED else "always"
        said["lora_dropout"] = source_of(record).lora_dropout
        said["lora_train_embeddings"] = lora.get("train_embeddings", False)
        said["lora_fp32"] = _wide_adapters(record)
    if config.get("optimizer") in EIGHT_BIT_OPTIMIZERS:
        said["optimizer"] = EIGHT_BITS
    training = attrs.evolve(
        base.training,
        seq_len=record["model"]["seq_len"],
        target_len=record["model"].get("target_len"),
        mean_len=_MEANS.get(record["id"].partition("-")[0]),
        packing=config.get("packing", False),
        attention=config.get("attention", "eager"),
        chunked_loss=_chunked(record),
        checkpointing="full" if config["checkpointing"] else "none",
        transformers=record.get("transformers", _TRANSFORMERS.get(source_of(record).prefix)),
        liger=config.get("liger", _LIGERS.get(source_of(record).prefix)),
        liger_kernels=True if "liger" in config else None,
        foreach=True if _brings_adamw(record) or source_of(record).prefix in _HANDS_ADAMW else None,
        zero_init=config.get(
            "zero_init", not (record["system"] == "fsdp" and source_of(record).prefix in _WHOLE_AT_FIRST)
        ),
        **said,
    )
    model = _as_litgpt(record, by_release(model, training, base.provenance))
    if loss is not None:
        model = attrs.evolve(model, logits_upcast=loss[0], logits_shifted=loss[1], head_chunk=loss[2])
    return attrs.evolve(
        base,
        hardware=attrs.evolve(hardware_of(record), gpus_per_node=per_node),
        model=model,
        training=training,
        nodes=where["nodes"],
        gpus_per_node=per_node,
        pins=(),
        version=_release(record) or base.version,
    )


def _release(record: Record) -> str | None:
    """DeepSpeed's, where it ran, and the record states it or its date is known."""
    stated: str | None = record.get("deepspeed", _RELEASES.get(source_of(record).prefix))
    return stated if record["system"] == "deepspeed" else None


def _wide_adapters(record: Record) -> bool:
    """Whether adapters stay fp32, as peft makes them: DeepSpeed before 0.19.2 makes them 16-bit with all else.

    A record that names no release itself is asked as a job that names none.
    """
    stated: str | None = record.get("deepspeed")
    return record["system"] != "deepspeed" or stated is None or not casts_adapters(stated)


def _brings_adamw(record: Record) -> bool:
    prefix, offloaded = source_of(record).prefix, record["config"]["offload"] != "none"
    return (prefix in _BRINGS_ADAMW and stage_of(record) == 3) or (prefix in _HAS_NO_OPTIMIZER and not offloaded)


# model_types whose block LitGPT's is but for one product of query, key and value.
_OF_LITGPT = ("falcon", "gemma", "gemma2", "gpt_neox", "llama", "mistral")
_LITGPT = ("litr", "lith")


def _as_litgpt(record: Record, model: Model) -> Model:
    """The model with LitGPT's adapter of query, key and value."""
    targets = record["config"].get("lora", {}).get("targets", ())
    if not record["id"].startswith(_LITGPT) or model.architecture not in _OF_LITGPT or not targets:
        return model
    return attrs.evolve(model, litgpt="qkv" if "all-linear" in targets else "qv")


def hardware_of(record: Record) -> Hardware:
    """The profile of a record's GPU."""
    gpu = record["hardware"]["gpu"]
    if gpu in _SUPERCHIPS and record["hardware"]["gpus"] > record["hardware"]["nodes"]:
        return _joined(_base(PROFILES[gpu], False).hardware, record["hardware"]["gpus"] // record["hardware"]["nodes"])
    if gpu in _TURING:
        hardware = _base(_TURING_PROFILE, False).hardware
        return attrs.evolve(hardware, gpu_memory_bytes=24 * GIB, usable_memory_bytes=_TURING_USABLE_BYTES)
    own = _base(PROFILES[gpu], False).hardware
    if record["hardware"].get("link") == _PCIE and own.intra_node_link != _PCIE and gpu in _BESIDE_PCIE:
        return attrs.evolve(own, **_link(_BESIDE_PCIE[gpu]))
    return own


def _link(profile: str) -> dict[str, Any]:
    """What joins the GPUs of a node of a profile."""
    there = _base(profile, False).hardware
    return {
        "intra_node_link": there.intra_node_link,
        "intra_node_bandwidth_bytes_per_second": there.intra_node_bandwidth_bytes_per_second,
        "intra_node_latency_seconds": there.intra_node_latency_seconds,
    }


def _joined(one: Hardware, count: int) -> Hardware:
    """A node of several superchips, each with a host of its own."""
    return attrs.evolve(
        one,
        **_link(_NVLINK_4),
        cpu_cores=count * one.cpu_cores,
        numa_domains=count * one.numa_domains,
        host_memory_bytes=count * one.host_memory_bytes,
        host_memory_bandwidth_bytes_per_second=count * one.host_memory_bandwidth_bytes_per_second,
    )


@functools.cache
def _base(hardware: str, several: bool) -> Job:
    profiles = {"hardware": (hardware,), "model": (_MODEL,)}
    if not several:
        return assemble(layers(Scenario(profiles=profiles)), None)
    nodes = {"nodes": ScenarioValue(2, Origin("benchmark"))}
    return assemble(layers(Scenario(profiles={**profiles, "network": (_NETWORK,)}, fields=nodes)), None)


def _chunked(record: Record) -> bool:
    return record["config"].get("chunked_loss", False) or source_of(record).fused_loss


def config_of(record: Record, model: Model) -> dict[str, Any]:
    """The DeepSpeed config that is like what a record ran."""
    config = record["config"]
    stage, offload = stage_of(record), offload_of(record)
    assert stage is not None
    assert offload is not None
    zero: dict[str, Any] = {"stage": stage, **_buffers(record, model, stage), **_written(record)}
    if offload[0] == "cpu" and stage:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": config.get("pin_memory", True)}
    if offload[1] == "cpu" and stage == 3:
        zero["offload_param"] = {"device": "cpu", "pin_memory": config.get("pin_memory", True)}
    found: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": config["micro_batch"],
        "gradient_accumulation_steps": config.get("grad_accum", 1),
        "optimizer": {"type": "Muon" if config["optimizer"] == "Muon" else "AdamW", "params": {"lr": 1e-4}},
        "zero_optimization": zero,
    }
    if _brings_adamw(record):
        del found["optimizer"]
        zero["overlap_comm"] = False
    if source_of(record).prefix in _HANDS_ADAMW or config["optimizer"] in EIGHT_BIT_OPTIMIZERS:  # the program makes it
        del found["optimizer"]
    precision = config["precision"].removeprefix("pure ")
    if precision != "fp32":
        found[precision] = {"enabled": True}
    return found


def _written(record: Record) -> dict[str, Any]:
    """The keys that the record has of the run's own DeepSpeed config."""
    if record["system"] != "deepspeed":
        return {}
    config = record["config"]
    found = {key: config[name] for name, key in _KEYS.items() if name in config}
    if not source_of(record).efficient_linear:
        found["memory_efficient_linear"] = False
    return found


def _buffers(record: Record, model: Model, stage: int) -> dict[str, Any]:
    """What gradients and parameters travel through, as far as it is not DeepSpeed's own default."""
    if not stage:
        return {}
    if "zero_stage_equiv" in record["config"]:  # FSDP: whole blocks, the next one gathered ahead, none kept for reuse
        block = block_elements(model)
        found: dict[str, Any] = {"overlap_comm": True, "reduce_bucket_size": block}
        if stage == 3:
            found |= {
                "stage3_prefetch_bucket_size": block,
                "stage3_max_live_parameters": 2 * block,
                "stage3_max_reuse_distance": 0,
                "stage3_param_persistence_threshold": 0,
            }
        return found
    if source_of(record).buffers != "huggingface":
        return {}
    if stage < 3:
        return {"overlap_comm": True, "reduce_bucket_size": _BUCKET, "allgather_bucket_size": _BUCKET}
    square = model.hidden_size**2
    return {
        "overlap_comm": True,
        "reduce_bucket_size": square,
        "stage3_prefetch_bucket_size": int(_PREFETCH_SHARE * square),
        "stage3_param_persistence_threshold": _PERSISTENT * model.hidden_size,
        "stage3_max_live_parameters": _LIVE,
        "stage3_max_reuse_distance": _LIVE,
    }
