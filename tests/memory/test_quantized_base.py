"""A base in 4 bits: bytes of its scales with and without double quantization, and who makes fp32 of the rest."""

from __future__ import annotations

import json
from typing import Any

import pytest
from command_line import run

import dsgen
from dsgen.api import memory
from dsgen.families.parameters import parameters
from dsgen.frameworks.needs import needs
from dsgen.memory.conversions import written
from dsgen.memory.loading import KBIT_FP32_OF
from dsgen.memory.quantized_base import BITS, Scales, lifts, scale_bits

QLORA = {"hw": "a100-80g", "gpus": 8, "model": "llama-3.1-8b", "method": "qlora", "seq_len": 1024, "zero_stage": 2}
LINEAR = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336)  # elements of the packed matrices
OTHER = 2 * 128256 * 4096 + 65 * 4096  # embedding, head and norms


def phases(target: str | None = None, **said: Any) -> dict[str, int]:
    """Phase -> most bytes of tensors on a GPU."""
    most: dict[str, int] = {}
    for one in memory({**QLORA, **said}, target=target).memory.phases:
        most[one.phase] = max(most.get(one.phase, 0), one.gpu_bytes)
    return most


def test_64_elements_share_a_scale_of_8_bits_or_of_32() -> None:
    nested, plain = (dsgen.job({**QLORA, "double_quantization": said}).training for said in (True, False))

    assert BITS + scale_bits(nested) == pytest.approx(4.127, abs=5e-4)
    assert BITS + scale_bits(plain) == 4.5
    assert Scales.of(nested, LINEAR).size == LINEAR // 64 + 4 * (LINEAR // 64 // 256)
    assert Scales.of(plain, LINEAR).size == 4 * LINEAR // 64


@pytest.mark.parametrize("stage", [0, 2, 3])
def test_without_double_quantization_every_phase_holds_wider_scales(stage: int) -> None:
    """At stage 3 too: scales are no parameters, so each rank has all of them."""
    more = LINEAR * (0.5 - (8 + 32 / 256) / 64) / 8
    nested, plain = (phases(zero_stage=stage, double_quantization=said) for said in (True, False))

    for phase in ("load", "forward", "backward", "step"):
        assert plain[phase] - nested[phase] == pytest.approx(more, rel=1e-3), phase


def test_a_checkpoint_has_the_scales_in_their_type() -> None:
    for said, each in ((True, 1 + 4 / 256), (False, 4)):
        asked = memory({**QLORA, "double_quantization": said}).question
        assert written(asked.job, asked.strategy)["scales of the base"] == pytest.approx(each * LINEAR / 64, rel=1e-4)


def test_peft_makes_fp32_of_what_is_not_in_4_bits_until_initialize() -> None:
    lifted, left = (phases(kbit_fp32=said) for said in ("always", "never"))
    assert sum(item.total for item in parameters(dsgen.job(QLORA).model)) == LINEAR + OTHER

    head, adapters = 128256 * 4096, 16 * 32 * (4 * 4096 + 2 * (4096 + 1024) + 3 * (4096 + 14336))
    beside = 2 * head - 4 * adapters  # the last tensor in both types, before there are adapters
    assert lifted["load"] - left["load"] == pytest.approx(2 * OTHER + beside, rel=1e-3)
    assert {name: lifted[name] for name in ("forward", "backward", "step")} == {
        name: left[name] for name in ("forward", "backward", "step")
    }


@pytest.mark.parametrize(
    ("target", "stage", "does"),
    [
        ("hf-trainer", 2, True),
        ("hf-trainer", 3, True),
        ("axolotl", 2, True),
        ("axolotl", 3, False),
        ("llama-factory", 2, False),
        ("ms-swift", 0, False),
    ],
)
def test_the_program_decides_who_is_made_fp32(target: str, stage: int, does: bool) -> None:
    found = phases(target, zero_stage=stage)

    assert found["load"] == phases(target, zero_stage=stage, kbit_fp32="always" if does else "never")["load"]
    assert found["load"] != phases(target, zero_stage=stage, kbit_fp32="never" if does else "always")["load"]
    assert set(KBIT_FP32_OF.values()) <= {"never", "below-3"}


def test_a_method_without_4_bits_lifts_nothing_and_says_so() -> None:
    job = dsgen.job({**QLORA, "method": "lora", "double_quantization": False, "kbit_fp32": "never"})

    assert not lifts(job.training, 2)
    for name in ("double_quantization", "kbit_fp32"):
        assert any(f"training.{name} does nothing: training.method is lora" in one for one in job.warnings)


def test_code_and_files_say_what_was_asked_for() -> None:
    def code(name: str, target: str, **said: Any) -> str:
        plan = dsgen.plan({**QLORA, **said})
        return next(one.snippet for one in needs(plan, target) if one.code == name)

    assert "bnb_4bit_use_double_quant=True" in code("four-bits", "deepspeed")
    assert "bnb_4bit_use_double_quant=False" in code("four-bits", "deepspeed", double_quantization=False)
    assert "prepare_model_for_kbit_training" in code("adapters", "deepspeed")
    assert "prepare_model_for_kbit_training" not in code("adapters", "deepspeed", kbit_fp32="never")


def test_plan_why_and_memory_say_what_the_program_decides() -> None:
    words = [
        "--hw",
        "4090",
        "--gpus",
        "1",
        "--model",
        "qwen3-8b",
        "--method",
        "qlora",
        "--seq-len",
        "256",
        "--micro-batch",
        "1",
    ]
    peaks = {}
    for target in ("hf-trainer", "ms-swift"):
        planned = json.loads(run("plan", *words, "--target", target, "--format", "json").out)
        peaks[target] = planned["chosen"]["memory"]["gpu"]["peak_bytes"]
    assert peaks["hf-trainer"] > peaks["ms-swift"]  # of a short sequence nothing is larger than the load

    why = run("why", "training.kbit_fp32", *words, "--target", "ms-swift").out
    assert why.startswith("training.kbit_fp32 = never\n  --target ms-swift  never")
    told = run("memory", *words, "--target", "ms-swift").out
    assert "--target ms-swift: kbit fp32 never, loading gpu" in told
    for target, peak in peaks.items():
        lengths = ("--what-if", "seq_len=256,512", "--format", "json")
        cases = json.loads(run("plan", *words, "--target", target, *lengths).out)["cases"]
        assert cases[0]["chosen"]["memory"]["gpu"]["peak_bytes"] == peak


@pytest.mark.parametrize(("card", "kernel"), [("t4-16g", "sdpa"), ("rtx3090-24g", "flash")])
def test_memory_says_the_kernel_of_attention_that_runs(card: str, kernel: str) -> None:
    told = run("memory", "--hw", card, "--gpus", "1", "--model", "llama-3.2-1b", "--method", "lora").out
    assert f"attention {kernel}," in told
