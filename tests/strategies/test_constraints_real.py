"""What the table of constraints says stops does stop in the real engine, and its neighbour runs: a tiny model each."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import simulations
from constraint_cases import CASES, Case

from dsgen.simulating import Options, from_config
from dsgen.strategies.constraints import CONSTRAINTS, Constraint

pytestmark = pytest.mark.proof

SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4}
SIZES |= {"vocab_size": 512, "max_position_embeddings": 64, "intermediate_size": 128, "tie_word_embeddings": False}
MODELS: dict[str, dict[str, Any]] = {
    "dropout-of-experts": {"model_type": "mixtral", **SIZES, "num_local_experts": 4},
    "copies-of-tied-weights": {"model_type": "llama", **SIZES, "tie_word_embeddings": True},
}
LLAMA = {"model_type": "llama", **SIZES}
# Those of single model types are held against the engine in tests/engine/test_simulate_split.py; a simulation has no
# values, so that no token is past the end of a table of positions; and its program brings no optimizer.
ELSEWHERE = (
    "autotp-unsplit", "learned-positions", "own-optimizer-offloaded", "8-bit-states-offloaded",
    "8-bit-states-elsewhere",
)  # fmt: skip
STOPS = [item for item in CONSTRAINTS if item.stops and item.until is None and item.code not in ELSEWHERE]
RANKS = {"autotp-and-gpus": 5}  # only a rank that is left over stops


def asked(item: Constraint, case: Case) -> dict[str, Any]:
    """The request as the engine reads it, whatever the table says of it."""
    wishes = {name: value for name, value in case.wishes.items() if name != "optimizer"}
    rank = min(RANKS.get(item.code, 0), case.gpus - 1)
    options = Options(**wishes, dtype=case.precision, seq_len=16, steps=1, attention="eager", rank=rank, force=True)
    model = MODELS.get(item.code, LLAMA)
    return from_config(case.config(), model=model, world_size=case.gpus, options=options).to_engine()


@pytest.mark.parametrize("item", STOPS, ids=lambda item: item.code)
def test_the_engine_stops_with_it_and_not_without(item: Constraint) -> None:
    case, changed = CASES[item.code]
    refused, taken = (simulations.simulate(asked(item, one)) for one in (case, attrs.evolve(case, **changed)))

    assert "error" in refused
    assert "error" not in taken, taken["error"]


@pytest.mark.parametrize("degree", [3, 8])
@pytest.mark.parametrize("rank", [0, 2])
def test_heads_that_do_not_divide_are_no_reason_for_the_engine(degree: int, rank: int) -> None:
    """They are one for memory, which counts ranks that are alike: DeepSpeed gives some more heads, or none."""
    case = Case(tp=degree, gpus=2 * degree)
    options = Options(dtype="bf16", seq_len=16, steps=1, attention="eager", rank=rank)
    request = from_config(case.config(), model=LLAMA, world_size=case.gpus, gpus_per_node=degree, options=options)

    assert "error" not in simulations.simulate(request.to_engine())


def test_a_sequence_past_learned_positions_stops_in_transformers() -> None:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=1, n_head=2, n_positions=8, vocab_size=32))

    assert model(torch.zeros((1, 8), dtype=torch.long)).logits.shape == (1, 8, 32)
    with pytest.raises(IndexError):
        model(torch.zeros((1, 9), dtype=torch.long))
