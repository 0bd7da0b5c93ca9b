"""What a simulation is asked for: defaults, and what is refused before torch is loaded."""

from __future__ import annotations

import pytest

from dsgen.engine.simulate.requests import DEFAULTS, filled

LEAST = {"config": {}, "model": {"model_type": "llama"}, "world_size": 8}


def test_defaults_fill_what_is_not_asked():
    assert filled({**LEAST, "rank": 7}) == {**DEFAULTS, **LEAST, "rank": 7}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": None}, "the request has no model"),
        ({"world_size": "8"}, "the request has no world_size"),
        ({"sequence": 5}, "unknown keys: sequence"),
        ({"target_len": 0}, "target_len is 0; it must be a whole number"),
        ({"seq_len": 0}, "seq_len is 0; it must be a whole number"),
        ({"steps": True}, "steps is True"),
        ({"rank": 8}, "rank is 8; it must be from 0 to 7"),
        ({"rank": -1}, "rank is -1"),
        ({"attention": "flash2"}, "attention is 'flash2'; it must be one of flash, sdpa, masked, grouped, math, eager"),
        ({"dtype": "int8"}, "dtype is 'int8'"),
        ({"lora_dropout": 1}, "lora_dropout is 1; it must be a number of at least 0 and below 1"),
        ({"lora_dropout": -0.1}, "lora_dropout is -0.1"),
        ({"lora_dropout": True}, "lora_dropout is True"),
        ({"lora_dropout": "0.05"}, "lora_dropout is '0.05'"),
        ({"lora_train_embeddings": 1}, "lora_train_embeddings is 1; it must be true or false"),
        ({"every_pass": "no"}, "every_pass is 'no'; it must be true or false"),
        ({"lengths": []}, r"lengths is \[\]; it must be a list of whole numbers"),
        ({"lengths": [512, 0]}, "lengths is .*; it must be a list"),
        ({"alloc_conf": None}, "alloc_conf is None; it must be text"),
        ({"alloc_conf": "backend:cudaMallocAsync"}, "'backend:cudaMallocAsync' is no setting"),
        ({"empty_cache_steps": 0}, "empty_cache_steps is 0; it must be a whole number"),
        ({"checkpointing": "torch"}, "checkpointing is 'torch'; it must be true, false or 'deepspeed'"),
        ({"lora_targets": []}, r"lora_targets is \[\]; it must be a list of names"),
        ({"lora_targets": ["q_proj", ""]}, "lora_targets is .*; it must be a list of names"),
        ({"method": "qlora", "dtype": "float32"}, "method is 'qlora' with dtype 'float32'; it must be a 16-bit type"),
        ({"model": {"hidden_size": 8}}, "no model_type"),
        ({"config": {"sequence_parallel_size": 2}}, "sequence_parallel_size is 2; .*seq_len divided by 2"),
        (
            {"config": {"torch_autocast": {"enabled": True, "dtype": "bfloat16"}}},
            "torch_autocast.enabled is true; .*fp32",
        ),
        ({"config": {"zero_optimization": {"zenflow": {"topk_ratio": 0.05}}}}, "a simulation has no values"),
        (
            {"config": {"zero_optimization": {"offload_optimizer": {"device": "cpu", "super_offload": True}}}},
            "super_offload is true; it must be false",
        ),
    ],
)
def test_what_cannot_be_is_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        filled({**LEAST, **changes})


@pytest.mark.parametrize("section", [None, [], {"autotp_size": "auto"}, {"autotp_size": 3}])
def test_tensor_parallelism_is_left_to_deepspeed(section):
    """What it refuses of a degree is said before a child starts."""
    assert filled({**LEAST, "config": {"tensor_parallel": section}})


@pytest.mark.parametrize(
    "config",
    [
        {"sequence_parallel_size": 1},
        {"zero_optimization": {"zenflow": None, "offload_optimizer": {"super_offload": False}}},
        {"zero_optimization": {"offload_optimizer": None}},
    ],
)
def test_what_is_off_is_taken(config):
    assert filled({**LEAST, "config": config})
