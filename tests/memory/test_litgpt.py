"""LitGPT's loss and its adapter of query, key and value: bytes by hand, as its classes hold them."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

import dsgen
from dsgen.memory.estimates import estimate
from dsgen.shapes.errors import DsgenError
from dsgen.simulating.setups import older_loss

SEQUENCES, TOKENS, CHUNK = 2, 1024, 128
ASKED = {"hw": "a100-80g", "gpus": 1, "zero_stage": 0, "method": "lora", "lora_targets": ["q_proj", "v_proj"],
         "lora_dropout": 0.05, "micro_batch": SEQUENCES, "seq_len": TOKENS, "checkpointing": "none",
         "attention": "sdpa"}  # fmt: skip
ALL = ["q_proj", "k_proj", "v_proj"]


def peak(name: str, part: str, phase: str, said: dict[str, Any] | None = None, **facts: Any) -> int:
    """Bytes of a part at the highest moment of a phase, of a model with other facts."""
    asked = dsgen.memory({**ASKED, "model": name, **(said or {})})
    job = asked.question.job
    found = estimate(attrs.evolve(job, model=attrs.evolve(job.model, **facts)), asked.question.strategy)
    return int(next(one.gpu.get(part, 0) for one in found.phases if one.phase == phase))


def test_logits_of_some_tokens_at_a_time_are_held_with_their_scores() -> None:
    """In fp32 4 bytes each, and in backward a chunk's gradient twice; all at once it is the whole gradient twice."""
    own = {"logits_upcast": "model", "logits_shifted": True}
    each = SEQUENCES * 128256 * 4  # bytes of a token in fp32
    whole, chunked = (peak("llama-3.2-1b", "logits and loss", "backward", head_chunk=one, **own) for one in (0, CHUNK))
    assert chunked == pytest.approx(each * (2 * TOKENS + 2 * CHUNK), rel=0.05)
    assert whole > 1.2 * chunked


def test_a_part_of_a_chunk_at_the_end_is_one_too() -> None:
    """1,000 tokens are seven of 128, and 104."""
    own = {"logits_upcast": "model", "logits_shifted": True, "head_chunk": CHUNK}
    odd, even = (peak("llama-3.2-1b", "logits and loss", "forward", {"seq_len": one}, **own) for one in (1000, 1024))
    assert odd == pytest.approx(even * 1000 / 1024, rel=0.02)


def kept(name: str, targets: list[str], adapters: str) -> float:
    """Bytes of activations for each token, block and element of the hidden state, at the end of forward."""
    said = {"lora_targets": targets}
    model = dsgen.job({**ASKED, "model": name}).model
    found = peak(name, "activations", "backward", said, litgpt=adapters)
    return found / (SEQUENCES * TOKENS * model.layers * model.hidden_size)


def test_query_and_value_alone_are_kept_and_the_product_stays() -> None:
    """Of each head's own: 3 bytes of one dropout less, 4 of the product's query and key more, 4 of the adapters'."""
    more = kept("llama-2-7b", ["q_proj", "v_proj"], "qv") - kept("llama-2-7b", ["q_proj", "v_proj"], "")
    assert more == pytest.approx(4 + 4 - 3, abs=0.2)


def test_shared_keys_and_values_are_written_out() -> None:
    """Of 32 heads 8: 3 bytes of two dropouts less each, keys and values of 24 heads more."""
    more = kept("mistral-7b", ALL, "qkv") - kept("mistral-7b", ALL, "")
    assert more == pytest.approx(2 * 2 * 24 / 32 - 2 * 3, abs=0.2)


@pytest.mark.parametrize("said", [{"method": "qlora"}, {"zero_stage": 3, "gpus": 8}])
def test_a_base_in_4_bits_and_stage_3_have_adapters_of_peft(said: dict[str, Any]) -> None:
    one, other = (peak("llama-2-7b", "activations", "backward", said, litgpt=way) for way in ("qv", ""))
    assert one == other


def test_a_simulation_runs_no_classes_of_litgpt() -> None:
    model = dsgen.job({**ASKED, "model": "llama-3.2-1b"}).model
    for facts in ({"head_chunk": CHUNK}, {"litgpt": "qv"}):
        with pytest.raises(DsgenError, match="not LitGPT's"):
            older_loss(attrs.evolve(model, **facts))
