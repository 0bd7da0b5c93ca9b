"""What `dsgen memory` says of torch_autocast, and torch's own casts of a model's weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import dsgen
from dsgen.cost.steps import cost
from dsgen.families.parameters import parameter_count
from dsgen.shapes.units import gib

CONFIG = {"train_micro_batch_size_per_gpu": 1, "torch_autocast": {"enabled": True, "dtype": "bfloat16"}}
LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "torch_dtype": "float32",
}


def note(model: str, stage: int) -> str:
    job = dsgen.profile("a100-80g") | dsgen.profile(model) | {"training": {"seq_len": 32}}
    notes = dsgen.memory(job, config={**CONFIG, "zero_optimization": {"stage": stage}}).question.notes
    return next(note for note in notes if note.startswith("torch_autocast"))


def test_it_says_where_the_weights_are_and_what_their_casts_take() -> None:
    embedding, norms = 128_256 * 4096, 65 * 4096
    elements = 8_030_261_248 - embedding - norms  # the head is a matrix, the embedding is none
    assert "weights, gradients and states are counted in fp32, as it leaves them" in note("llama-3.1-8b", 2)
    assert f"a cast of each matrix, {gib(2 * elements)} GiB, is in the interval" in note("llama-3.1-8b", 2)
    assert "a cast of" not in note("llama-3.1-8b", 3)


@pytest.mark.parametrize("stage", [0, 2, 3])
def test_weights_that_nothing_casts_are_fp32_and_what_is_cast_is_in_the_interval(stage: int) -> None:
    job = dsgen.profile("a100-80g") | dsgen.profile("llama-3.2-1b") | {"training": {"seq_len": 2048}}
    zero = {"zero_optimization": {"stage": stage}}
    wide, half, cast = (
        dsgen.memory(job, config={"train_micro_batch_size_per_gpu": 1, **zero, **more})
        for more in ({}, {"bf16": {"enabled": True}}, {"torch_autocast": CONFIG["torch_autocast"]})
    )
    assert cast.question.strategy.precision == wide.question.strategy.precision == "fp32"
    assert half.question.strategy.precision == "bf16"
    assert cast.memory.gpu.peak_bytes == wide.memory.gpu.peak_bytes
    assert cast.memory.gpu.low_bytes < wide.memory.gpu.low_bytes
    assert cast.memory.gpu.high_bytes > wide.memory.gpu.high_bytes
    seconds = [cost(each.question.job, each.question.strategy).seconds for each in (wide, half, cast)]
    assert seconds[2] < seconds[0] / 2  # computed in 16 bits
    assert seconds[2] == pytest.approx(seconds[1], rel=0.1)


@pytest.mark.proof
@pytest.mark.parametrize("tied", [False, True])
def test_torch_casts_each_matrix_once_and_keeps_it_until_the_forward_ends(tmp_path: Path, tied: bool) -> None:
    """Checkpointed too: a second pass in the same context casts nothing, for what the first has cast is there."""
    import torch
    import transformers
    from torch.utils._python_dispatch import TorchDispatchMode

    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "tie_word_embeddings": tied}))
    model: Any = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(tmp_path))
    model.activation_checkpointing_enable()
    weights = {item.data_ptr() for item in model.parameters()}
    cast: list[int] = []

    class Casts(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            made = function(*args, **(kwargs or {}))
            if function is torch.ops.aten._to_copy.default and args[0].data_ptr() in weights:
                cast.append(made.nbytes)
            return made

    tokens = torch.zeros(1, 8, dtype=torch.long)
    with Casts(), torch.autocast("cpu", dtype=torch.bfloat16):
        model.train()(input_ids=tokens, labels=tokens)
        first = sum(cast)
        model(input_ids=tokens, labels=tokens)

    job = dsgen.job(dsgen.profile("a100-80g") | dsgen.profile(str(tmp_path / "config.json")))
    embedding, norms = 512 * 64, 7 * 64
    assert first == 2 * (parameter_count(job.model) - norms - (0 if tied else embedding))
    assert sum(cast) == first
