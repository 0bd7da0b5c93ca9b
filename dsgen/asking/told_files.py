"""What a training file gives to the file of a program that dsgen writes: what only a person knows, and of the run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from dsgen.asking import training_programs as programs
from dsgen.asking.told_values import tops_of, yaml_of
from dsgen.asking.training_arguments import MODELS, TrainingArguments
from dsgen.frameworks.job_files import FILL_IN, keep_filled, yaml_value
from dsgen.frameworks.trainers import OF_NO_PLAN, TRAINERS

__all__ = ["filled", "filling", "left_behind"]

# How long a run lasts, and its schedule where that is left to the program; no plan depends on it.
_EPOCHS = ("num_train_epochs", "num_epochs")
_WHERE, _LOGGED = "output_dir", "logging_steps"  # where a run writes, and how often it tells of itself
_ITS_OWN = "output_dir: output  # checkpoints and logs"  # which nothing depends on; a launch says where it resumes from
_EVALUATES = re.compile(r"^((?:per_device_)?eval_batch_size: )(\d+)", re.MULTILINE)
_WRITTEN_ANYHOW = ("deepspeed", "output_dir", "do_train")
_NOTHING: tuple[Any, ...] = (None, False, "", [], {})
_SCHEDULE = ("lr_scheduler_type", "lr_scheduler", "lr_scheduler_kwargs", "warmup_steps", "warmup_ratio")


def filling(told: TrainingArguments, text: str) -> str:
    """A file for a program with what a training file says where only a person knows, and of what no plan depends on,
    the batch of an evaluation where that is smaller among it: of the same program also how long the run lasts, and the
    schedule where the text has none."""
    own = "".join(f"{name}: {yaml_value(told.model)}\n" for name in MODELS if told.model is not None)
    kept = (*OF_NO_PLAN, _LOGGED, *([_WHERE] if _ITS_OWN in text.splitlines() else ()))
    text = keep_filled(f"{own}{yaml_of(told.file, told.values)}", text, kept)
    text = _EVALUATES.sub(lambda line: f"{line[1]}{min(told.evaluated or int(line[2]), int(line[2]))}", text)
    keys = {line.partition(":")[0]: None for line in text.splitlines()}
    if programs.program_of(keys) is None or programs.program_of(keys) != programs.program_of(told.values):
        return text
    run = (*_EPOCHS, *(() if any(name in keys for name in _SCHEDULE) else _SCHEDULE))
    left = [name for name in run if name in told.values and name not in keys]
    return text + "".join(f"{name}: {yaml_value(told.values[name])}\n" for name in left)


def left_behind(told: TrainingArguments, text: str) -> tuple[str, ...]:
    """The arguments of a training file, in its order, that a file of the same program written for it says nothing of:
    how it treats its data, where it writes, and else what no plan follows.

    Args:
        told: The training file.
        text: The file that is written; empty is the answer for one of another program, or of none.
    """
    keys = {line.partition(":")[0]: None for line in text.splitlines()}
    program = programs.program_of(keys)
    if program is None or program != programs.program_of(told.values):
        return ()
    said = (*MODELS, *_EPOCHS, *_SCHEDULE, *_WRITTEN_ANYHOW)
    return tuple(
        name
        for name, held in tops_of(told.file, told.values).items()
        if name not in keys and name not in said and any(value not in _NOTHING for value in held.values())
        if not any(told.follows(one) for one in held)
    )


def filled(told: TrainingArguments, target: str, scheduled: bool) -> Iterator[str]:
    """The same as NAME=VALUE, for a file that is written anew.

    Args:
        told: The training file.
        target: The program that is written for.
        scheduled: The config has the schedule.
    """
    asked = [item.name for item in TRAINERS[target].unknown] if target in TRAINERS else []
    run = (*OF_NO_PLAN, *_EPOCHS, *(() if scheduled else _SCHEDULE))
    same = programs.program_of(told.values) == target
    for name in (*asked, *(run if same else ())):
        value = told.model if name in MODELS else told.values.get(name)
        if isinstance(value, (str, int, float)) and value != FILL_IN:
            yield f"{name}={yaml_value(value)}"
