"""What `nox -s gpu-speed` measures: whole runs on one GPU, each with what dsgen says of the same config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
from gpu_memory_cases import case_of  # benchmarks/, beside this script

import dsgen
from dsgen.asking.memory_questions import Question, question
from dsgen.asking.plan_questions.weighing import weigh
from dsgen.cost.steps import speed_interval
from dsgen.families.hf_config import to_hf_config
from dsgen.shapes.errors import DsgenError

__all__ = ["CASES", "TINY", "SpeedCase", "asked_of", "predicted", "speed_case", "speed_cases"]

GIB = 2**30

Facts = Mapping[str, Any]


@attrs.frozen
class SpeedCase:
    """One run.

    Attributes:
        name: What differs, in words; it is its key in the records.
        said: Arguments of `gpu_memory_cases.case_of`.
        facts: What its model has otherwise than its profile; empty but for tiny ones.
        request: What the child runs, as `dsgen.engine.simulate` takes it.
    """

    name: str
    said: Facts
    facts: Facts
    request: dict[str, Any]


def speed_cases(tiny: bool = False) -> tuple[SpeedCase, ...]:
    """Every case, the small ones first; or the tiny ones, which any machine runs."""
    return tuple(speed_case(said, _TINY_MODEL if tiny else {}) for said in (TINY if tiny else CASES))


def speed_case(said: Facts, facts: Facts) -> SpeedCase:
    """The case of arguments of `gpu_memory_cases.case_of`, with what its model has otherwise."""
    made = case_of(**said)
    request = made.request
    if facts:
        model = dsgen.job(dsgen.profile("generic-80g") | dsgen.profile(said["model"]) | {"model": facts}).model
        request = {**request, "model": dict(to_hf_config(attrs.asdict(model)))}
    return SpeedCase(f"tiny {made.name}" if facts else made.name, said, facts, request)


def predicted(case: SpeedCase, hardware: str, host: Facts, torch: str | None = None) -> dict[str, Any]:
    """What dsgen says of a case on one GPU.

    Args:
        case: The case.
        hardware: A profile's name.
        host: Facts of the hardware that the machine has otherwise, such as its cores.
        torch: The release that ran; None for the newest.

    Returns:
        `step_seconds` with `low_seconds` and `high_seconds`, `parts`, `peak_gib` (torch's allocated) with
        `reserved_gib`, `verdict`, `strategy`; or `refused`: why dsgen does not cost it.
    """
    try:
        asked = asked_of(case, hardware, host, torch)
        item = weigh(asked.job, asked.strategy)
    except DsgenError as refusal:
        return {"refused": str(refusal).splitlines()[0]}
    low, high = speed_interval(item.job, item.strategy)
    gpu = item.memory.gpu
    return {
        "strategy": str(item.strategy),
        "step_seconds": item.cost.seconds,
        "low_seconds": item.cost.seconds / high,
        "high_seconds": item.cost.seconds / low,
        "parts": dict(item.cost.parts),
        "peak_gib": gpu.allocated_bytes / GIB,
        "reserved_gib": gpu.reserved_bytes / GIB,
        "verdict": item.memory.verdict.value,
    }


def asked_of(case: SpeedCase, hardware: str, host: Facts, torch: str | None = None) -> Question:
    """The job and the strategy of a case; arguments as of `predicted`.

    Raises:
        DsgenError: dsgen does not cost it.
    """
    training = {
        "seq_len": case.request["seq_len"],
        "attention": case.request["attention"],
        "checkpointing": "full" if case.request["checkpointing"] else "none",
        "method": case.request.get("method", "full"),
        "launcher": "deepspeed",  # one process that has all cores
        "torch": torch.partition("+")[0] if torch else None,
    }
    layers = dsgen.profile(hardware) | dsgen.profile(case.said["model"])
    layers |= {"training": training, "cluster": {"gpus": 1}, **({"model": case.facts} if case.facts else {})}
    layers |= {"hardware": host} if host else {}
    return question(dsgen.job(layers), case.request["config"])


_SMALL = {"model": "opt-125m"}
_1B = {"model": "llama-3.2-1b"}
_3B = {"model": "llama-3.2-3b", "checkpointing": True}
_8B = {"model": "llama-3.1-8b"}
CASES: tuple[dict[str, Any], ...] = (
    # Small models: what the host takes to launch kernels.
    {**_SMALL, "stage": 0, "seq_len": 512},
    {**_SMALL, "stage": 0, "seq_len": 512, "micro_batch": 16},
    {**_SMALL, "stage": 0, "seq_len": 512, "micro_batch": 4, "accumulation": 4},
    {**_SMALL, "stage": 1, "precision": "fp16", "micro_batch": 8},
    {**_SMALL, "stage": 2, "seq_len": 2048, "micro_batch": 4},
    {**_SMALL, "stage": 3, "seq_len": 2048, "micro_batch": 4},
    {**_SMALL, "stage": 0, "precision": "fp32", "micro_batch": 4},
    {"model": "gpt2", "stage": 0, "micro_batch": 8},
    {"model": "gpt2", "stage": 2, "micro_batch": 16, "attention": "eager"},
    {"model": "qwen2.5-0.5b", "stage": 0, "seq_len": 2048, "micro_batch": 4},
    {"model": "qwen2.5-0.5b", "stage": 2, "seq_len": 4096, "checkpointing": True},
    {"model": "qwen2.5-0.5b", "stage": 3, "seq_len": 16384, "checkpointing": True},
    {"model": "qwen2.5-0.5b", "stage": 2, "seq_len": 2048, "offload": "optimizer"},
    {"model": "qwen2.5-0.5b", "stage": 3, "seq_len": 2048, "offload": "optimizer+param"},
    # 1B: each stage, batches, lengths, kernels of attention, recomputation, dtypes.
    {**_1B, "stage": 0, "seq_len": 512, "micro_batch": 4},
    {**_1B, "stage": 1, "seq_len": 2048, "micro_batch": 2},
    {**_1B, "stage": 2, "seq_len": 2048, "micro_batch": 1},
    {**_1B, "stage": 2, "seq_len": 2048, "micro_batch": 4},
    {**_1B, "stage": 2, "seq_len": 2048, "micro_batch": 8, "checkpointing": True},
    {**_1B, "stage": 3, "seq_len": 2048, "micro_batch": 4},
    {**_1B, "stage": 2, "seq_len": 2048, "micro_batch": 2, "accumulation": 4},
    {**_1B, "stage": 2, "seq_len": 1024, "micro_batch": 2, "attention": "eager"},
    {**_1B, "stage": 2, "seq_len": 8192, "checkpointing": True},
    {**_1B, "stage": 2, "seq_len": 16384, "checkpointing": True},
    {**_1B, "stage": 2, "precision": "fp16", "seq_len": 2048, "micro_batch": 2},
    {**_1B, "stage": 1, "precision": "fp32", "seq_len": 1024},
    {**_1B, "stage": 2, "seq_len": 2048, "micro_batch": 4, "offload": "optimizer"},
    {**_1B, "stage": 3, "seq_len": 2048, "micro_batch": 4, "offload": "optimizer+param"},
    {**_1B, "stage": 2, "seq_len": 2048, "micro_batch": 4, "method": "lora"},
    {**_1B, "stage": 0, "seq_len": 2048, "micro_batch": 4, "method": "qlora"},
    # 3B: what fills a card of 80 GB, and what needs offload.
    {**_3B, "stage": 2, "seq_len": 2048, "micro_batch": 2},
    {**_3B, "stage": 3, "seq_len": 4096, "micro_batch": 1},
    {**_3B, "stage": 2, "seq_len": 4096, "micro_batch": 2, "offload": "optimizer"},
    {**_3B, "stage": 0, "seq_len": 2048, "micro_batch": 4, "method": "lora"},
    # 7B and 8B: adapters, offload.
    {**_8B, "stage": 0, "seq_len": 2048, "checkpointing": True, "method": "lora"},
    {**_8B, "stage": 2, "seq_len": 4096, "micro_batch": 2, "checkpointing": True, "method": "lora"},
    {**_8B, "stage": 3, "seq_len": 2048, "micro_batch": 2, "checkpointing": True, "method": "lora"},
    {**_8B, "stage": 0, "seq_len": 2048, "micro_batch": 2, "checkpointing": True, "method": "qlora"},
    {**_8B, "stage": 0, "seq_len": 512, "micro_batch": 1, "method": "qlora"},
    {**_8B, "stage": 3, "seq_len": 2048, "micro_batch": 2, "checkpointing": True, "offload": "optimizer+param"},
    {**_8B, "stage": 2, "seq_len": 2048, "micro_batch": 2, "checkpointing": True, "offload": "optimizer"},
    # More than a card of 80 GB holds: the row says so, on both sides.
    {**_8B, "stage": 2, "seq_len": 2048, "checkpointing": True},
)
_TINY_MODEL = {"layers": 2, "hidden_size": 64, "attention_heads": 4, "kv_heads": 2, "head_size": 16, "ffn_size": 128,
               "vocab_size": 512, "max_positions": 128}  # fmt: skip
TINY: tuple[dict[str, Any], ...] = (
    {**_1B, "stage": 0, "seq_len": 32, "micro_batch": 2, "accumulation": 2},
    {**_1B, "stage": 2, "seq_len": 32, "checkpointing": True, "method": "lora"},
)
