"""What a release of Liger makes of a chunked loss: the head's gradient in place, copies of logits and hidden states."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from command_line import run

import dsgen
from dsgen.engine.simulate.requests import LIGERS as SIMULATED
from dsgen.families.tape.chunked import LIGERS
from dsgen.jobs.releases import evaluates_in_chunks
from dsgen.shapes.errors import DsgenError
from dsgen.shapes.profiles import Model, Training

# Four sequences of a model with a wide vocabulary, in a step whose highest moment is the loss.
QWEN = {"hw": "a100-80g", "gpus": 8, "model": "qwen2.5-7b", "zero_stage": 3, "micro_batch": 4, "seq_len": 2048,
        "checkpointing": "none", "chunked_loss": True}  # fmt: skip
HIDDEN, VOCABULARY = 3584, 152064
CHUNK = 2 * 4 * 64 * VOCABULARY  # bytes, next_power_of_2(ceil(2048 / ceil(152064 / 3584))) tokens of each sequence


def asked(**said: Any) -> Any:
    return dsgen.memory({**QWEN, **said})


def logits(**said: Any) -> int:
    """What the loss holds at the highest moment of forward."""
    phases = asked(**said).memory.phases
    return int(next(one.gpu["logits and loss"] for one in phases if one.phase == "forward"))


@pytest.mark.parametrize(
    ("release", "as_of"),
    [("0.3", "0.3.0"), ("0.4.2", "0.3.0"), ("0.5.2", "0.5.0"), ("0.5.3", "0.5.3"), ("0.5.5", "0.5.3"),
     ("0.5.10", "0.5.6"), ("0.5", "0.5.6"), ("0.6.1", "0.5.6"), ("0.6.2", "0.6.2"), ("0.6", "0.6.2"), ("1.0", "0.6.2"),
     (None, "0.6.2")],
)  # fmt: skip
def test_a_loss_is_as_of_the_last_release_that_changed_it(release: str | None, as_of: str) -> None:
    """`0.5` is the last of its line."""
    assert dsgen.job({**QWEN, "liger": release} if release else QWEN).model.liger == as_of


def test_every_change_is_known_to_the_shapes_the_tape_and_the_simulation() -> None:
    facts = attrs.fields_dict(Model)["liger"]
    assert facts.metadata["choices"] == tuple(LIGERS) == SIMULATED
    assert facts.default == SIMULATED[-1]


def test_the_heads_gradient_of_a_chunk_is_made_apart_since_0_6_2() -> None:
    """In bf16 and in fp32: 6 bytes an element of the head, 3.0 GiB of Qwen2.5's, when the chunk before has gone."""
    assert logits() - logits(liger="0.6.1") == 6 * HIDDEN * VOCABULARY - CHUNK


def test_older_releases_hold_more_copies_of_a_chunks_logits() -> None:
    """Those of two chunks; beside them a copied gradient; fp32 ones with narrow ones beside the last one's gradient."""
    assert logits(liger="0.5.2") - logits(liger="0.5.3") == CHUNK
    assert logits(liger="0.4.2") - logits(liger="0.5.2") == CHUNK


def test_hidden_states_were_copied_before_0_5_6() -> None:
    """Without the last token's; one sequence is in one piece without a copy."""

    def forward(micro_batch: int, release: str) -> int:
        found = asked(micro_batch=micro_batch, liger=release).memory.phases
        return int(next(sum(one.gpu.values()) for one in found if one.phase == "forward"))

    more, none = (forward(batch, "0.5.5") - forward(batch, "0.5.6") for batch in (4, 1))
    assert more == pytest.approx(2 * 4 * 2047 * HIDDEN, rel=0.01)
    assert abs(none) < 2**20


@pytest.mark.parametrize("release", ["new", "0.2.1", "0.x"])
def test_what_is_no_release_is_said_so_of_liger(release: str) -> None:
    """Before 0.3 the gradient of a frozen head was made too."""
    with pytest.raises(DsgenError, match=f"liger is '{release}'; it must be a release from 0.3 on"):
        dsgen.job({**QWEN, "liger": release})


@pytest.mark.parametrize(("release", "chunked"), [("0.5.10", False), ("0.6.0", True), (None, True)])
def test_liger_knows_skip_logits_since_0_6(release: str | None, chunked: bool) -> None:
    """Before, what the Trainer says in an evaluation was not heard, and all logits were made."""
    assert evaluates_in_chunks(Training(chunked_loss=True, liger=release)) is chunked


def test_who_evaluates_with_an_older_liger_is_told() -> None:
    args = ("memory", "--hw", "a100-80g", "--gpus", "8", "--model", "llama-3.1-8b", "--chunked-loss")
    told, newer = (" ".join(run(*args, "--liger", release).out.split()) for release in ("0.5.10", "0.6.1"))
    assert "only since 0.6 does Liger listen" in told
    assert "this is 0.5.10" in told
    assert "holds all logits" not in newer
