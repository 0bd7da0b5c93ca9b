"""The walk of parameters through DeepSpeed's NVMe buffers says where the real engine stops, to the parameter."""

from __future__ import annotations

import re
from typing import Any

import pytest
from children import answer

from dsgen.engine.proof import siblings
from dsgen.families.hf_config import model_from_hf
from dsgen.jobs import model_configs
from dsgen.memory.events import Step, events
from dsgen.memory.gathered import uses_of
from dsgen.memory.swapped_parameters import Swapping, kept_on_drive, walk
from dsgen.shapes.profiles import Model

PROFILES = {"llama": "llama-2-7b", "mixtral": "mixtral-8x7b", "qwen3_moe": "qwen3-235b-a22b",
            "gpt_oss": "gpt-oss-20b", "deepseek_v3": "deepseek-v3"}  # fmt: skip
RANKS, PERSISTENCE, SUB_GROUP, REUSE = 2, 100, 4_000_000, 0
NONE_LEFT = -1
# What DeepSpeed 0.19.8 did with wide siblings in bf16 on two ranks: model, buffers, prefetch, most live, vocabulary,
# checkpointing; the parameter whose buffer was assigned twice, None where three steps went through.
RUNS = [
    ("llama", 5, 4_000_000, 8_000_000, 256, False, None),
    ("llama", 5, 4_000_000, 8_000_000, 8192, False, None),
    ("llama", 20, 4_000_000, 8_000_000, 8192, False, None),
    ("llama", 12, 4_000_000, 8_000_000, 256, False, 13),
    ("llama", 12, 100_000, 8_000_000, 256, False, None),
    ("llama", 30, 20_000_000, 40_000_000, 2048, False, 20),
    ("llama", 5, 4_000_000, 8_000_000, 256, True, None),
    ("llama", 8, 4_000_000, 8_000_000, 256, True, None),
    ("llama", 12, 100_000, 8_000_000, 256, True, 4),
    ("mixtral", 5, 4_000_000, 8_000_000, 256, False, 16),
    ("mixtral", 30, 4_000_000, 8_000_000, 8192, False, None),
    ("gpt_oss", 5, 4_000_000, 8_000_000, 256, False, 31),
    ("deepseek_v3", 5, 4_000_000, 8_000_000, 256, False, 20),
    ("qwen3_moe", 5, 4_000_000, 8_000_000, 256, False, 19),
    ("qwen3_moe", 5, 100_000, 8_000_000, 256, False, 19),
    ("qwen3_moe", 5, 0, 8_000_000, 256, False, None),
    ("qwen3_moe", 4, 4_000_000, 8_000_000, 256, False, None),
    ("qwen3_moe", 3, 4_000_000, 8_000_000, 256, False, None),
    ("qwen3_moe", 5, 4_000_000, 8_000_000, 8192, False, None),
    ("qwen3_moe", 5, 4_000_000, 8_000_000, 1024, False, None),
    ("qwen3_moe", 12, 4_000_000, 8_000_000, 2048, False, 24),
    ("qwen3_moe", 30, 4_000_000, 8_000_000, 4096, False, None),
    ("qwen3_moe", 30, 20_000_000, 40_000_000, 4096, False, 24),
]


def hf(name: str) -> dict[str, Any]:
    """A config.json; where it says the size of a head, heads together are as wide as the model, as in the runs."""
    said = model_configs.read(PROFILES[name])[1]
    return said | ({"head_dim": said["hidden_size"] // said["num_attention_heads"]} if name == "qwen3_moe" else {})


def stopped(
    name: str, buffers: int, prefetch: int, live: int, vocabulary: int, checkpointing: bool, reuse: int = REUSE
) -> int | None:
    """The parameter of the walk, for the model that trained_alike.py builds."""
    said = siblings.sibling(hf(name), 1, wide=True)
    facts: dict[str, Any] = model_from_hf({**said, "vocab_size": vocabulary}, name)
    step = Step(Model(**facts), "full", 0, (), 1, checkpointing=checkpointing)
    sizes = {held.place: held.numel for event in events(step) for held in event.module.tensors}
    drive = kept_on_drive(sizes, Swapping(RANKS, 2, 1 << 20, buffers, 0, SUB_GROUP))
    ended = walk(uses_of(step, PERSISTENCE), (prefetch, live, reuse), drive, buffers)
    return None if ended is None else ended[1]


@pytest.mark.parametrize(("name", "buffers", "prefetch", "live", "vocabulary", "checkpointing", "place"), RUNS)
def test_the_walk_stops_where_deepspeed_did(
    name: str, buffers: int, prefetch: int, live: int, vocabulary: int, checkpointing: bool, place: int | None
) -> None:
    assert stopped(name, buffers, prefetch, live, vocabulary, checkpointing) == place


def test_tensors_kept_for_reuse_leave_no_buffer() -> None:
    """DeepSpeed said "Not enough buffers 0 for swapping 1"; with the head in 8192 and 8 buffers it went through."""
    assert stopped("llama", 5, 4_000_000, 8_000_000, 256, False, reuse=1_000_000_000) == NONE_LEFT
    assert stopped("llama", 8, 4_000_000, 8_000_000, 8192, False, reuse=4_000_000) is None


def test_what_has_room_in_the_cpu_or_is_small_is_not_on_the_drive() -> None:
    """Whole sub-groups stay in RAM, from the first on; a share below 1 MiB, or below a block, is never swapped."""
    sizes = {0: 4 << 20, 1: 1 << 20, 2: 4 << 20, 3: 4 << 20}  # elements of two ranks
    none = Swapping(RANKS, 2, 1 << 20, 5, 0, 2 << 20)
    assert kept_on_drive(sizes, none) == {0, 1, 2, 3}
    assert kept_on_drive(sizes, none._replace(block_bytes=2 << 20)) == {0, 2, 3}
    assert kept_on_drive(sizes, none._replace(in_cpu=4 << 20)) == {1, 2, 3}
    assert kept_on_drive(sizes, none._replace(in_cpu=5 << 20)) == {3}
    assert kept_on_drive(sizes, none._replace(in_cpu=1 << 30)) == set()


@pytest.mark.proof
def test_the_engine_stops_at_the_parameter_of_the_walk_and_with_one_buffer_fewer_not() -> None:
    """A mixture with five buffers and with four: real DeepSpeed, two ranks, a real drive."""
    zero = {
        "stage": 3, "reduce_bucket_size": 4_000_000, "stage3_prefetch_bucket_size": 4_000_000,
        "stage3_param_persistence_threshold": PERSISTENCE, "stage3_max_live_parameters": 8_000_000,
        "stage3_max_reuse_distance": REUSE, "sub_group_size": SUB_GROUP,
        "offload_optimizer": {"device": "nvme", "buffer_count": 12},
    }  # fmt: skip
    config = {
        "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1, "gradient_clipping": 0.0,
        "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}},
    }  # fmt: skip
    cases = []
    for count in (5, 4):
        offload = {"device": "nvme", "buffer_count": count, "buffer_size": 10_000_000, "max_in_cpu": 0}
        whole = {**config, "zero_optimization": {**zero, "offload_param": offload}}
        cases.append({"config": whole, "model": hf("mixtral"), "ranks": RANKS, "wide": True})

    five, four = answer("trained_alike", asked=cases)
    (said,) = set(re.findall(r"param (\d+) already assigned swap buffer id", five["error"]))
    assert int(said) == stopped("mixtral", 5, 4_000_000, 8_000_000, 256, False)
    assert stopped("mixtral", 4, 4_000_000, 8_000_000, 256, False) is None
    assert not four["error"]
