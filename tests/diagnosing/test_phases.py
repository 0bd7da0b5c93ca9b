"""In which phase a traceback was raised, by frames as DeepSpeed, transformers, Accelerate and Lightning have them."""

from __future__ import annotations

import pytest

from dsgen.diagnosing import read

SITE = "/opt/conda/lib/python3.11/site-packages"
FRAMES = {
    "trainer": ("transformers/trainer.py", "_inner_training_loop"),
    "training_step": ("transformers/trainer.py", "training_step"),
    "loss": ("transformers/trainer.py", "compute_loss"),
    "module": ("transformers/models/llama/modeling_llama.py", "forward"),
    "accelerate": ("accelerate/accelerator.py", "backward"),
    "engine_backward": ("deepspeed/runtime/engine.py", "backward"),
    "engine_step": ("deepspeed/runtime/engine.py", "_take_model_step"),
    "stage_step": ("deepspeed/runtime/zero/stage3.py", "step"),
    "autograd": ("torch/autograd/graph.py", "_engine_run_backward"),
    "recompute": ("torch/utils/checkpoint.py", "unpack_hook"),
    "initialize": ("deepspeed/__init__.py", "initialize"),
    "engine": ("deepspeed/runtime/engine.py", "__init__"),
    "from_pretrained": ("transformers/modeling_utils.py", "from_pretrained"),
    "save": ("transformers/trainer.py", "_save_checkpoint"),
    "save_zero": ("deepspeed/runtime/engine.py", "save_checkpoint"),
    "resume": ("deepspeed/runtime/engine.py", "load_checkpoint"),
    "evaluation": ("transformers/trainer.py", "evaluation_loop"),
    "closure": ("torch/optim/adamw.py", "step"),
    "loader": ("torch/utils/data/dataloader.py", "_next_data"),
}


@pytest.mark.parametrize(
    ("phase", "frames"),
    [
        ("forward", "trainer training_step loss module"),
        ("backward", "trainer training_step accelerate engine_backward autograd"),
        ("backward", "trainer training_step accelerate autograd recompute module"),  # it runs forward again
        ("step", "trainer training_step accelerate engine_step stage_step"),  # Accelerate steps inside of its backward
        ("forward", "closure training_step loss module"),  # Lightning runs a step's passes inside of the optimizer's
        ("init", "initialize engine"),
        ("load", "from_pretrained initialize module"),
        ("save", "trainer save save_zero"),
        ("resume", "trainer resume"),
        ("evaluate", "trainer evaluation loss module"),
        ("data", "trainer loader"),
    ],
)
def test_the_frames_tell_the_phase(phase: str, frames: str) -> None:
    lines = ["Traceback (most recent call last):"]
    for name in frames.split():
        file, function = FRAMES[name]
        lines += [f'  File "{SITE}/{file}", line 100, in {function}', "    something(here)"]

    record = read(["\n".join([*lines, "RuntimeError: CUDA error: out of memory"]).encode()])

    assert record.root is not None
    assert record.root.phase == phase


def test_a_traceback_ends_where_the_next_begins() -> None:
    first = f'Traceback (most recent call last):\n  File "{SITE}/deepspeed/__init__.py", line 1, in initialize\n'
    second = f'Traceback (most recent call last):\n  File "{SITE}/torch/_tensor.py", line 1, in backward\n'

    record = read([(first + second + "RuntimeError: CUDA out of memory.\n").encode()])

    assert record.root is not None and record.root.phase == "backward"


@pytest.mark.parametrize(
    ("mark", "phase"),
    [
        ("Loading checkpoint shards:  50%|##  | 1/2 [00:01<00:01,  1.40s/it]", "load"),
        ("[INFO] [utils.py:829:see_memory_usage] Before initializing optimizer states", "init"),
        ("{'loss': 1.2, 'epoch': 0.1}", "training"),
        ("  1%|1 | 12/900 [11:16<13:02:24, 95.00s/it]", "training"),
        ("***** Running Evaluation *****", "evaluate"),
        ("Saving model checkpoint to out/checkpoint-10", "save"),
    ],
)
def test_without_a_traceback_it_is_as_far_as_the_log_has_come(mark: str, phase: str) -> None:
    record = read([f"{mark}\nx exits with return code = -9\n".encode()])

    assert record.root is not None
    assert (record.root.code, record.root.phase) == ("process-killed", phase)
