"""What an evaluation, a save and a resume take: against the simulated engine, and by hand."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import run

from dsgen.api import memory, render
from dsgen.memory import Verdict
from dsgen.memory.checkpoints import resuming, saving
from dsgen.memory.evaluating import evaluation, most_sequences

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
WORST = 0.006  # of the simulated peak
APART = {"deepseek_v2 grouped 10": 0.04}  # QLoRA of a mixture whose router picks groups first: not understood
NEAR = 0.002  # of the simulated peak
GIB = 2**30
LLAMA = {"hw": "a100-80g", "model": "llama-3.1-8b", "nodes": 1}
VOCABULARY, WIDTH = 128256, 4096


@pytest.fixture(scope="module")
def evaluated() -> Any:
    """Every recorded scenario beside what dsgen says."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return importlib.import_module("evaluations").evaluated()
    finally:
        sys.path.remove(str(BENCHMARKS))


def planned(**said: Any) -> tuple[Any, Any]:
    plan = render({**LLAMA, **said}).plan
    return plan.job, plan.chosen.strategy


def test_evaluations_take_what_the_engine_takes(evaluated: Any) -> None:
    """Of models of all kinds, stages, methods and losses."""
    assert len(evaluated) == 48
    assert all(one.simulated for one in evaluated)
    wrong = {one.case.name: one.error for one in evaluated if abs(one.error) > APART.get(one.case.name, WORST)}
    assert not wrong
    assert all(one.ours for one in evaluated)


def test_what_is_left_gathered_is_what_the_engine_leaves(evaluated: Any) -> None:
    """The first pass of training behind an evaluation, beside the one that follows it."""
    stage_3 = [one for one in evaluated if one.case.config.get("zero_optimization", {}).get("stage") == 3]
    more = {
        one.case.name: (one.ours.left_bytes - one.left) / sum(one.simulated.values()) for one in stage_3 if one.ours
    }
    assert sum(one.left != 0 for one in stage_3) >= 10
    assert min(more.values()) > -NEAR  # never too little
    assert sum(error < NEAR for error in more.values()) >= len(more) - 3


def test_logits_take_ten_bytes_each() -> None:
    """In 16 bits, in fp32, and what the loss makes of them."""
    took = evaluation(*planned(zero_stage=2, seq_len=1024), 3)
    assert took is not None
    assert took.parts["logits and loss"] == pytest.approx(10 * 3 * 1024 * VOCABULARY, rel=1e-3)
    assert took.left_bytes == 0


def test_a_chunked_loss_holds_no_logits_in_an_evaluation() -> None:
    """The Trainer says skip_logits."""
    whole, chunked = (evaluation(*planned(zero_stage=2, chunked_loss=one)) for one in (False, True))
    assert whole is not None
    assert chunked is not None
    assert chunked.peak_bytes < whole.peak_bytes - 30 * GIB


@pytest.mark.parametrize(("release", "chunked"), [("4.57", False), ("5.14.0", False), ("5.15", True), ("5.23.0", True)])
def test_the_trainer_says_skip_logits_from_5_15_on(release: str, chunked: bool) -> None:
    """Liger's forward makes all logits when it does not train, unless it is told not to."""
    took, whole, never = (
        evaluation(*planned(zero_stage=2, **said))
        for said in ({"chunked_loss": True, "transformers": release}, {}, {"chunked_loss": True})
    )
    assert took is not None
    assert whole is not None
    assert never is not None
    assert took.peak_bytes == (never if chunked else whole).peak_bytes


def test_who_evaluates_with_an_older_trainer_is_told() -> None:
    args = ("memory", "--hw", "a100-80g", "--gpus", "8", "--model", "llama-3.1-8b", "--chunked-loss")
    assert "skip_logits" in run(*args, "--transformers", "4.57").out
    assert "skip_logits" not in run(*args).out


@pytest.mark.parametrize(("hardware", "gpus"), [("rtx3090-24g", 1), ("a100-80g", 8)])
def test_the_largest_batch_fits_and_the_next_does_not(hardware: str, gpus: int) -> None:
    """An edge."""
    asked = planned(hw=hardware, gpus=gpus, method="qlora" if gpus == 1 else "full")
    most = most_sequences(*asked)
    assert most
    fits, too_much = evaluation(*asked, most), evaluation(*asked, most + 1)
    assert fits is not None
    assert fits.verdict is Verdict.FITS
    assert too_much is not None
    assert too_much.verdict is not Verdict.FITS


def test_below_stage_3_every_rank_copies_the_model_to_save_it() -> None:
    """And reads its own states, or the weights, to go on."""
    asked = planned(zero_stage=2)
    weights = 2 * 8_030_261_248
    assert saving(*asked).host == {"copies of the weights": pytest.approx(8 * weights, rel=1e-3)}
    assert resuming(*asked).host == {"the checkpoint's files": pytest.approx(8 * weights, rel=1e-3)}
    one_file = resuming(*planned(zero_stage=0, hw="b200-180g", checkpointing="full"))
    assert one_file.host == {"the checkpoint's files": pytest.approx(8 * 7 * weights, rel=1e-3)}


def test_at_stage_3_one_rank_gathers_the_model_to_save_it() -> None:
    """Of adapters nothing else; each rank reads its twelve bytes an element to go on."""
    asked = planned(zero_stage=3)
    weights = 2 * 8_030_261_248
    assert saving(*asked).host == {"copies of the weights": pytest.approx(weights + 8 * 4e9, rel=1e-2)}  # both at once
    assert saving(*asked).gpu["gathered parameters"] == 2 * VOCABULARY * WIDTH
    assert resuming(*asked).host == {"the checkpoint's files": pytest.approx(6 * weights, rel=1e-3)}
    adapters = saving(*planned(zero_stage=3, method="lora"))
    assert sum(adapters.host.values()) < GIB


def test_of_an_encoder_nothing_is_said() -> None:
    """It is not counted."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        encoder = next(importlib.import_module("memory_cases_apart").of_encoders())
    finally:
        sys.path.remove(str(BENCHMARKS))
    asked = encoder.strategy()
    assert asked[0].model.encoder_layers
    assert evaluation(*asked) is None
    assert most_sequences(*asked) is None


def test_memory_says_it() -> None:
    """The phases, the largest batch, and what does not fit."""
    tight = ("--hw", "rtx3090-24g", "--gpus", "1", "--model", "llama-3.1-8b", "--method", "qlora")
    shown = run("memory", *tight).out
    assert "evaluate 8 sequences" in shown
    assert "largest evaluation  3 at a time" in shown
    assert "say per_device_eval_batch_size=3" in shown
    told = json.loads(run("memory", *tight, "--format", "json").out)
    assert told["evaluation"]["most_sequences"] == 3
    assert told["evaluation"]["verdict"] == "does not fit"
    assert sum(told["evaluation"]["parts"].values()) == told["evaluation"]["peak_bytes"]
    assert set(told["checkpoints"]) == {"save", "resume"}


def test_training_arguments_evaluate_what_fits(tmp_path: Path) -> None:
    """A power of two, at most the Trainer's own default."""
    tight = ("--hw", "rtx3090-24g", "--gpus", "1", "--model", "llama-3.1-8b", "--method", "qlora")
    run("render", *tight, "--target", "hf-trainer", "-o", str(tmp_path / "small.json"))
    run("render", "--hw", "a100-80g", "--model", "7b", "--target", "hf-trainer", "-o", str(tmp_path / "large.json"))
    written = {name: (tmp_path / f"{name}.training_args.yaml").read_text("utf-8") for name in ("small", "large")}
    assert "per_device_eval_batch_size: 2 " in written["small"]
    assert "per_device_eval_batch_size: 8 " in written["large"]


@pytest.mark.parametrize("target", ["hf-trainer", "axolotl", "llama-factory", "ms-swift"])
def test_memory_evaluates_as_the_files_of_a_target_do(target: str) -> None:
    """What is said wins, and what stands beside one's own config is not known."""
    tight = {"hw": "a100-40g", "gpus": 4, "model": "llama-3.1-8b"}
    assert memory(tight).evaluation.sequences == 8
    footprint = memory(tight, target=target)
    assert footprint.evaluation.sequences == 2
    assert footprint.question.said["evaluation batch"].by == f"--target {target}"
    assert memory(tight, render(tight).tree, target=target).evaluation.sequences == 8
    words = ("--hw", "a100-40g", "--gpus", "4", "--model", "llama-3.1-8b", "--target", target)
    assert "evaluate 2 sequences" in run("memory", *words).out
    assert "evaluate 5 sequences" in run("memory", *words, "--eval-batch", "5").out


@pytest.mark.parametrize("deepspeed", ["0.15.4", None])
def test_an_evaluation_is_judged_alike_wherever_it_stands(deepspeed: str | None) -> None:
    """Also where a release may hold much less than is counted."""
    footprint = memory({"hw": "a100-80g", "model": "llama-3-8b", "gpus": 8, "zero_stage": 0}, deepspeed=deepspeed)
    one = footprint.evaluation
    (same,) = (later for later in footprint.later if later.noun == "evaluation")
    assert one is not None
    assert (one.verdict, one.high_bytes, one.peak_bytes) == (same.gpu.verdict, same.gpu.high_bytes, same.gpu.peak_bytes)
    assert (one.verdict is Verdict.UNCERTAIN) == (deepspeed is not None)
