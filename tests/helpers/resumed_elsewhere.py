"""A child process: a run saved on some gloo ranks, converted by DeepSpeed's own programs, and resumed on others.

Reads cases (config, ranks, others, and of trained_alike what a model may have) as JSON from stdin. Answers with the
losses of the run and of the resumed one, and how far the weights of one file are from those of plain PyTorch; or with
the step that failed and its words.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import tempfile
from pathlib import Path
from typing import Any

from trained_alike import (
    OTHER_SEED,
    SAVED_AFTER,
    SEED,
    STEPS,
    engine_of,
    forked,
    join,
    plain,
    serve,
    train,
)

SAVED, UNIVERSAL, ONE = "saved", "universal", "one"


def save(case: dict[str, Any], rank: int, folder: str) -> None:
    """Train, save in the middle, go on."""
    config = case["config"]
    join(config, case["ranks"], rank, folder)
    engine = engine_of(case, SEED)
    losses = train(engine, config, range(SAVED_AFTER), rank)
    engine.save_checkpoint(f"{folder}/checkpoint", tag=SAVED)
    losses += train(engine, config, range(SAVED_AFTER, STEPS), rank)
    if rank == 0:
        Path(folder, "losses.json").write_text(json.dumps(losses), "utf-8")


def resume(case: dict[str, Any], rank: int, folder: str) -> None:
    """Load what was converted into an engine that began with other weights, and train on."""
    config = case["config"]
    join(config, case["ranks"], rank, folder)
    engine = engine_of(case, OTHER_SEED)
    engine.load_checkpoint(f"{folder}/checkpoint", tag=UNIVERSAL)
    resumed = train(engine, config, range(SAVED_AFTER, STEPS), rank)
    if rank == 0:
        Path(folder, "resumed.json").write_text(json.dumps(resumed), "utf-8")


def on_others(case: dict[str, Any]) -> dict[str, Any]:
    """The case on other ranks: as many samples a step, in other micro-steps, and what was converted is loaded."""
    config = case["config"]
    accumulation = config["gradient_accumulation_steps"] * case["ranks"] // case["others"]
    batch = config["train_micro_batch_size_per_gpu"] * accumulation * case["others"]
    used = {**config, "gradient_accumulation_steps": accumulation, "train_batch_size": batch,
            "checkpoint": {"load_universal": True}}  # fmt: skip
    return {**case, "config": used, "ranks": case["others"]}


def run(folder: str, program: str, *arguments: str) -> str:
    """Run a program of DeepSpeed, a file or a module, in a fork that has imported torch; what it said if it failed."""
    said = Path(folder, "said")
    if not (error := forked(1, lambda _: be_program(said, program, arguments), folder)):
        return ""
    Path(folder, "error0").unlink()  # of this program, not of the ranks that come next
    return f"{said.read_text('utf-8')}\n{error}"[-2000:]


def be_program(said: Path, program: str, arguments: tuple[str, ...]) -> None:
    """Do what `python program` and `python -m program` do, and write what it says to a file."""
    with said.open("w", encoding="utf-8") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.argv = [program, *arguments]
    try:
        if program.endswith(".py"):
            runpy.run_path(program, run_name="__main__")
        else:
            runpy.run_module(program, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code:
            raise


def distance(case: dict[str, Any], folder: str) -> float:
    """How far the weights in the one file are from those of plain PyTorch, at most."""
    import torch

    kept: dict[str, Any] = {}
    plain(case, kept)
    found = torch.load(Path(folder, ONE, "pytorch_model.bin"), weights_only=True)
    tied = [one for name, one in found.items() if name not in kept]  # under its second name
    if not set(kept) <= set(found) or not all(any(one.equal(found[name]) for name in kept) for one in tied):
        return float("inf")
    return max(float((found[name] - one).abs().max()) for name, one in kept.items())


def answer(case: dict[str, Any]) -> dict[str, Any]:
    """Save on the ranks of a case, convert both ways, resume on others."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = f"{folder}/checkpoint"
        if error := forked(case["ranks"], lambda rank: save(case, rank, folder), folder):
            return {"failed": "save", "error": error}
        told: dict[str, Any] = {"engine": json.loads(Path(folder, "losses.json").read_text("utf-8"))}
        error = run(folder, f"{checkpoint}/zero_to_fp32.py", checkpoint, f"{folder}/{ONE}", "--tag", SAVED)
        told |= {"one_file": error} if error else {"distance": distance(case, folder)}
        # DeepSpeed's engine writes no `universal_checkpoint_info`; this lets its own converter make an empty one.
        given = ("--input_folder", f"{checkpoint}/{SAVED}", "--output_folder", f"{checkpoint}/{UNIVERSAL}")
        if error := run(folder, "deepspeed.checkpoint.ds_to_universal", *given, *case.get("options", ())):
            return {**told, "failed": "convert", "error": error}
        Path(folder, "store").unlink(missing_ok=True)
        others = on_others(case)
        if error := forked(others["ranks"], lambda rank: resume(others, rank, folder), folder):
            return {**told, "failed": "resume", "error": error}
        return {**told, "resumed": json.loads(Path(folder, "resumed.json").read_text("utf-8"))}


if __name__ == "__main__":
    serve(answer)
