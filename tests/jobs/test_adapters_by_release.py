"""The type of adapters at stage 3: 16 bits before DeepSpeed 0.19.2, whatever peft made, and peft's from then on."""

from __future__ import annotations

import pytest

import dsgen
from dsgen.frameworks.needs import needs

LORA = {"hw": "a100-80g", "gpus": 8, "model": "llama-3.1-70b", "method": "lora", "zero_stage": 3}


@pytest.mark.parametrize(
    ("release", "fp32"),
    [("0.14", False), ("0.18", False), ("0.19.1", False), ("0.19.2", True), ("0.19", True)],
)
def test_deepspeed_casts_adapters_before_0_19_2(release: str, fp32: bool) -> None:
    assert dsgen.job(LORA, release).training.lora_fp32 is fp32


@pytest.mark.parametrize("said", [True, False])
def test_a_wish_that_deepspeed_overrides_is_said_to_do_nothing(said: bool) -> None:
    older, newer = (dsgen.job({**LORA, "lora_fp32": said}, release) for release in ("0.18", "0.19"))

    assert older.warnings[-1].endswith("DeepSpeed 0.18.9 makes adapters 16-bit, whatever peft has made of them")
    assert not [warning for warning in newer.warnings if "lora_fp32 does nothing" in warning]
    won, lost = reversed(older.provenance.history("training.lora_fp32")[-2:])
    assert (won.value, won.reason) == (False, "DeepSpeed before 0.19.2 makes adapters 16-bit with all else")
    assert lost.value is said


def test_an_older_release_is_as_fast_as_adapters_of_the_base_s_type() -> None:
    older, newer = dsgen.plan(LORA, "0.18"), dsgen.plan(LORA)
    told = dsgen.plan({**LORA, "lora_fp32": False, "reentrant": True})  # as what is frozen needs before 0.19.3

    assert older.chosen.speed == pytest.approx(told.chosen.speed, rel=1e-3)
    assert older.chosen.speed > 1.2 * newer.chosen.speed
    assert told.chosen.memory.gpu.needed_bytes <= newer.chosen.memory.gpu.needed_bytes
    # Before 0.19.3 the embedding stays gathered between the passes of a step (docs/memory-releases.md), and whole
    # modules are fetched in its place.
    more = older.chosen.memory.gpu.peak_bytes - told.chosen.memory.gpu.peak_bytes
    assert more == pytest.approx(2 * older.job.model.vocab_size * older.job.model.hidden_size, rel=0.05)


def test_peft_is_told_so_only_where_deepspeed_does_not_cast() -> None:
    def code(**said: bool) -> str:
        release = "0.18" if said.pop("older", False) else None
        return next(one for one in needs(dsgen.plan({**LORA, **said}, release), "deepspeed")
                    if one.code == "adapters").snippet  # fmt: skip

    assert "autocast_adapter_dtype" not in code()
    assert "autocast_adapter_dtype=False" in code(lora_fp32=False)
    assert "autocast_adapter_dtype" not in code(lora_fp32=False, older=True)
