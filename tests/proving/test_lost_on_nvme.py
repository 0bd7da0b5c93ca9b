"""Gradients of an optimizer on NVMe lie where dsgen counts them, and a drive that wants 512 bytes loses those."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from children import answer

from dsgen.families.hf_config import model_from_hf
from dsgen.memory.lost_gradients import Sharing, lost
from dsgen.shapes.profiles import Model

pytestmark = [pytest.mark.proof, pytest.mark.operators]

WIDE = {"hidden_size": 544, "num_hidden_layers": 3, "vocab_size": 512, "max_position_embeddings": 64}  # 4.25 x 128
LLAMA = {**WIDE, "model_type": "llama", "intermediate_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 8,
         "tie_word_embeddings": False}  # fmt: skip
GPT2 = {**WIDE, "model_type": "gpt2", "n_embd": 544, "n_layer": 3, "n_head": 8, "n_positions": 64,
        "tie_word_embeddings": True}  # fmt: skip


@pytest.mark.parametrize("said", [LLAMA, GPT2], ids=["llama", "gpt2"])
@pytest.mark.parametrize("sub_group", [2_000_000, 1_000_000_000])
def test_the_gradients_that_are_lost_are_those_that_are_counted(
    said: dict[str, Any], sub_group: int, tmp_path: Path
) -> None:
    """The day DeepSpeed reads them all, the rule nvme-loses-gradients and docs/proven.md are out of date."""
    facts: dict[str, Any] = model_from_hf({**said, "architectures": ["any"]}, said["model_type"])
    told = answer("lost_on_nvme", str(tmp_path), json.dumps(said), str(sub_group))

    counted = lost(Model(**facts), Sharing(1, sub_group, 4, 1 << 20, 1))
    odd = [offset for offset, _ in told["read"] if offset % 128]
    assert 0 < counted.tensors == len(odd) < len(told["read"])
    assert [offset for offset, read in told["read"] if not read] == ([] if told["any"] else odd)
