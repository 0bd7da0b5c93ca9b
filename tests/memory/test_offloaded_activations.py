"""Activations that wait in the node's RAM: what is where, what the copies cost, and what is refused."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

import dsgen
from dsgen.asking.plan_questions.offers import offers
from dsgen.cost import cost
from dsgen.memory import Verdict
from dsgen.shapes.errors import DsgenError

LAYERS, HIDDEN, VOCABULARY = 32, 4096, 128256  # of Llama 3.1 8B
LONG = {"hw": "h100-80g", "gpus": 1, "model": "llama-3.1-8b", "method": "lora", "seq_len": 65536, "chunked_loss": True,
        "micro_batch": 1, "checkpointing": "full", "zero_stage": 0, "offload": "none"}  # fmt: skip


def asked(**more: Any) -> Any:
    return dsgen.memory({**LONG, **more})


def test_the_inputs_of_blocks_leave_the_gpu_and_lie_in_ram_in_powers_of_two() -> None:
    here, away = asked(), asked(activation_offloading=True)
    rows = 65536
    block = 2 * rows * HIDDEN
    behind = [4 * rows * HIDDEN, 4 * rows, 2 * rows * HIDDEN]  # of the norm, which is frozen; and the loss's gradient

    kept = away.memory.host.parts["activations"]
    assert kept == pytest.approx(LAYERS * block + sum(behind), rel=1e-3)
    assert away.memory.gpu.peak_bytes <= here.memory.gpu.peak_bytes - (LAYERS - 5) * block
    odd = asked(activation_offloading=True, seq_len=40000)
    tensors = odd.memory.host.parts["activations"]
    reserve = odd.memory.host.overhead["page-locked reserve"]
    rounded = (LAYERS + 1) * 2**29 + 2**30  # 0.31 GiB of an input in 0.5 GiB, 0.61 of its fp32 in 1
    assert tensors + reserve == pytest.approx(rounded, rel=1e-3)


def test_without_checkpointing_nothing_of_it_is_counted_and_both_at_once_are_refused() -> None:
    with pytest.raises(DsgenError, match="exclude each other"):
        asked(activation_offloading=True, checkpointing="none")
    with pytest.raises(DsgenError, match="reentrant checkpointing"):
        asked(activation_offloading=True, reentrant=True)
    for method in ("lora", "qlora"):
        with pytest.raises(DsgenError, match="reentrant"):
            asked(activation_offloading=True, method=method, gpus=2, zero_stage=3)


def test_ram_that_is_too_small_is_where_it_does_not_fit() -> None:
    """A plan counts RAM with each batch."""
    least = asked(activation_offloading=True, host_memory="16GiB").memory.host
    assert least.verdict is Verdict.DOES_NOT_FIT
    assert asked(activation_offloading=True, host_memory="64GiB").memory.host.verdict is Verdict.FITS
    many = {"hw": "h100-80g", "gpus": 8, "model": "llama-3.1-8b", "seq_len": 32768, "chunked_loss": True}
    free = dsgen.plan({**many, "activation_offloading": True, "checkpointing": "full", "host_memory": "200GiB"})
    assert free.chosen.memory.host.high_bytes <= free.chosen.memory.host.limit_bytes


def test_the_copies_of_blocks_hide_behind_kernels_and_those_of_the_loss_do_not() -> None:
    question = asked().question
    job, strategy = question.job, question.strategy
    whole = attrs.evolve(job, training=attrs.evolve(job.training, chunked_loss=False, seq_len=16384))

    def seconds(of: Any, offloading: bool) -> float:
        training = attrs.evolve(of.training, activation_offloading=offloading)
        return cost(attrs.evolve(of, training=training), strategy).seconds

    assert 0 < seconds(job, True) - seconds(job, False) < 0.01 * seconds(job, False)
    logits = 4 * 16384 * VOCABULARY
    over_pcie = 2 * logits / (seconds(whole, True) - seconds(whole, False))
    assert 20e9 < over_pcie < 64e9  # bytes a second: PCIe 5.0 of 16 lanes has 63e9


def test_a_program_is_told_and_the_file_of_axolotl_has_it() -> None:
    wished = {**LONG, "activation_offloading": True}
    whole = {"hw": "h100-80g", "gpus": 8, "model": "llama-3.1-8b", "activation_offloading": True}
    made = dsgen.job_files(dsgen.render(whole), "axolotl")
    assert any("activation_offloading: true" in file.text for file in made.files)
    with pytest.raises(DsgenError, match="recomputes nothing of adapters"):
        dsgen.job_files(dsgen.render({**wished, "seq_len": 8192}), "axolotl")
    with pytest.raises(DsgenError, match="no argument that moves activations"):
        dsgen.job_files(dsgen.render({**wished, "seq_len": 8192}), "llama-factory")
    needs = {one.code: one for one in dsgen.needs({**wished, "seq_len": 8192}, "hf-trainer")}
    assert "get_act_offloading_ctx_manager" in needs["activation-offloading"].snippet


def test_it_is_offered_where_it_makes_a_long_sequence_surely_fit() -> None:
    wished = {name: LONG[name] for name in ("hw", "gpus", "model", "method", "chunked_loss")}
    planned = dsgen.plan({**wished, "seq_len": 131072})
    told = {offer.change.option: offer for offer in offers(planned)}

    assert not planned.chosen.sure
    assert told["--activation-offloading"].surer
    short = dsgen.plan({**wished, "seq_len": 4096})
    assert "--activation-offloading" not in {offer.change.option for offer in offers(short)}
