"""In which phase a traceback was raised, told by its frames, and which phase a log has reached, told by its marks."""

from __future__ import annotations

import re

__all__ = ["FRAMES", "MARKS", "OFTEN_MARKS", "TRAINING", "Phase", "after_frame", "after_mark"]

Phase = str
TRAINING = "training"  # forward, backward or step: the log does not say which
FRAMES = ('File "', "❱")  # what begins a frame, as Python and rich print it
# What a frame tells, the outermost first; those above the line hold whatever is called inside of them.
_FRAMES: tuple[tuple[Phase, re.Pattern[str]], ...] = (
    (
        "save",
        re.compile(
            r"in (?:_?save_checkpoint|save_pretrained|save_model|save_16bit_model|_save_zero_checkpoint|save_state)\b"
            r"|serialization\.py\", line \d+, in _?save\b|torch\.save\("
        ),
    ),
    (
        "resume",
        re.compile(r"in (?:_?load_checkpoint|_load_zero_checkpoint|_load_from_checkpoint|\w+_load_checkpoint)\b"),
    ),
    (
        "load",
        re.compile(
            r"in (?:from_pretrained|_load_pretrained_model|_load_state_dict_into_\w+|load_state_dict|from_config)\b"
        ),
    ),
    (
        "init",
        re.compile(
            r"deepspeed\.initialize\(|deepspeed/__init__\.py\", line \d+, in initialize"
            r"|in (?:_configure_\w+|_prepare_deepspeed|deepspeed_init|_batch_assertion|init_distributed|"
            r"init_process_group|_move_model_to_device|trainer_config_finalize|jit_load|setup_environment)\b"
            r"|runtime/(?:engine|zero/\w+|config)\.py\", line \d+, in __init__"
        ),
    ),
    ("evaluate", re.compile(r"in (?:evaluation_loop|prediction_step|evaluate|_run_sanity_check)\b")),
    ("data", re.compile(r"utils/data/\S+\.py\", line \d+, in (?:_next_data|_try_get_data|fetch|__getitem__)\b")),
    (
        "step",
        re.compile(
            r"in (?:_take_model_step|_optimizer_step)\b"
            r"|(?:deepspeed|torch/optim|accelerate)\S*\.py\", line \d+, in step\b"
        ),
    ),
    ("backward", re.compile(r"in (?:backward|_engine_run_backward|run_backward)\b|autograd/graph\.py|\.backward\(")),
    ("forward", re.compile(r"in (?:forward|compute_loss)\b|modeling_\w+\.py")),
)
_HOLDS = ("save", "resume", "load", "init", "evaluate", "data")
# Word of a log -> the phase that begins with it.
MARKS: dict[str, Phase] = {
    "Loading checkpoint shards": "load",
    "Before initializing optimizer states": "init",
    "DeepSpeedZeRoOffload initialize": "init",
    "Before creating fp16 partitions": "init",
    "Parameter Offload: Total persistent": "init",
    "Using DeepSpeed Optimizer param name": "init",
    "DeepSpeed info: version": "init",
    "***** Running training": TRAINING,
    "Beginning of Epoch": TRAINING,
    "Saving model checkpoint to": "save",
    "***** Running Evaluation": "evaluate",
    "Starting training": TRAINING,
}
OFTEN_MARKS: dict[str, Phase] = {"{'loss'": TRAINING}  # the same of what comes in every step


def after_frame(phase: Phase | None, frame: str) -> Phase | None:
    """The phase of a traceback after one more frame; they come from the outermost to the innermost."""
    if phase in _HOLDS:
        return phase
    told = next((name for name, pattern in _FRAMES if pattern.search(frame)), phase)
    return phase if phase == "backward" and told == "forward" else told  # recomputation runs forward in backward


def after_mark(phase: Phase | None, text: str) -> Phase | None:
    """The phase that a log has reached after a line that may have a mark."""
    return next((name for mark, name in (*MARKS.items(), *OFTEN_MARKS.items()) if mark in text), phase)
