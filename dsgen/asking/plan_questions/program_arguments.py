"""What a change is in the arguments of the program that trains, where those say it and not, or not only, the config."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from dsgen.asking.memory_questions.questions import Question
from dsgen.asking.told_values import SCRIPTS, lines_of
from dsgen.asking.training_programs import LLAMA_FACTORY, is_a_trainer, program_of
from dsgen.targets.hf_trainer import HF_TRAINER

__all__ = ["batch_arguments", "is_filled", "recomputing_arguments"]

_MICRO, _STEPS = "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
_OTHER_NAMES = {_MICRO: ("micro_batch_size",)}  # Axolotl's
_RECOMPUTES, _KIND = "gradient_checkpointing", "gradient_checkpointing_kwargs"
_RECOMPUTES_NOT, _REENTERS = "disable_gradient_checkpointing", "use_reentrant_gc"  # LLaMA-Factory's
_PYTHON = ".py"
_CLASS = "TrainingArguments"


def is_filled(question: Question, key: str) -> bool:
    """Whether the config leaves a key to the Trainer, which stops where the two are written and differ."""
    subject = question.subject
    return subject is not None and _is_trained(question) and key in HF_TRAINER.matched and subject.raw(key) == "auto"


def batch_arguments(question: Question, micro_batch: int, accumulation: int) -> Iterator[str]:
    """The arguments of another batch; none where it is not the Trainer that has some.

    Args:
        question: What was asked.
        micro_batch: Sequences of a forward pass on one GPU.
        accumulation: Forward passes of a step.
    """
    if not _is_trained(question):
        return
    for key, value in ((_MICRO, micro_batch), (_STEPS, accumulation)):
        usual = HF_TRAINER.matched[key]
        if value != (question.strategy.micro_batch if key == _MICRO else question.strategy.accumulation):
            said = question.arguments.values if question.arguments is not None else {}
            name = next((name for name in _OTHER_NAMES.get(key, ()) if name in said), usual)
            yield _written(question, {name: value})


def recomputing_arguments(question: Question, checkpointing: bool, reentrant: bool) -> str | None:
    """The arguments that switch activation checkpointing on or off; None where no Trainer is known to have them.

    Args:
        question: What was asked.
        checkpointing: Whether activations are recomputed then.
        reentrant: Whether by torch's reentrant kind.
    """
    if not _is_trained(question):
        return None
    said = question.arguments.values if question.arguments is not None else {}
    if program_of(said) == LLAMA_FACTORY:
        return _written(
            question, {_RECOMPUTES_NOT: not checkpointing, **({_REENTERS: reentrant} if checkpointing else {})}
        )
    return _written(
        question, {_RECOMPUTES: checkpointing, **({_KIND: {"use_reentrant": reentrant}} if reentrant else {})}
    )


def _is_trained(question: Question) -> bool:
    """Whether the Trainer trains: it loads the config, or has arguments beside Accelerate's file of it."""
    if question.subject is None:
        return False
    arguments = question.arguments
    return question.subject.target is HF_TRAINER or (arguments is not None and is_a_trainer(arguments.values))


def _written(question: Question, wanted: Mapping[str, Any]) -> str:
    """Arguments as their file has them, and where it says them now."""
    arguments = question.arguments
    if arguments is None:
        return f"{', '.join(f'{name}={value!r}' for name, value in wanted.items())} ({_CLASS})"
    file = arguments.file
    if file.endswith(_PYTHON):
        words = [f"{name}={value!r}" for name, value in wanted.items()]
    elif file.endswith(SCRIPTS):
        words = [
            f"--{name} {value if isinstance(value, (int, str)) else json.dumps(value)}"
            for name, value in wanted.items()
        ]
    else:
        words = [f"{name}: {json.dumps(value)}" for name, value in wanted.items()]
    line = next((line for name, line in lines_of(file).items() if name in wanted), None)
    return f"{', '.join(words)} ({file}:{line})" if line is not None else f"{', '.join(words)} ({file})"
