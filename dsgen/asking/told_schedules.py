"""What a training program does at each step of its optimizer: rates and decays, and the learning-rate schedule.

What its file leaves out has the program's default, for the program refuses a config that says otherwise. A schedule is
the config's where one of DeepSpeed's falls alike and its end is said in steps; any other stays the program's own.

Sources: transformers 5.23 training_args.py, TRL 1.16 (each trainer's config), ms-swift 4.6 (swift/trainers and
sft_args.py), Axolotl 0.18 (utils/schemas), LLaMA-Factory ff6d4d1, whose arguments are transformers'.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping
from typing import Any

from dsgen.asking import training_programs as programs

__all__ = ["STEPS", "defaults", "said_of", "schedule"]

# Of the optimizer's steps: argument of TrainingArguments -> path of the wish.
STEPS = {
    "learning_rate": "training.lr",
    "weight_decay": "training.weight_decay",
    "adam_beta1": "training.beta1",
    "adam_beta2": "training.beta2",
    "adam_epsilon": "training.eps",
    "max_grad_norm": "training.gradient_clipping",
}
_OF_THE_TRAINER = {
    "learning_rate": 5e-5, "weight_decay": 0.0, "adam_beta1": 0.9, "adam_beta2": 0.999, "adam_epsilon": 1e-8,
    "max_grad_norm": 1.0,
}  # fmt: skip
_OF_SWIFT = {**_OF_THE_TRAINER, "weight_decay": 0.1, "adam_beta2": 0.95}
_SWIFTS_RATES = {True: 1e-5, False: 1e-4}  # of all weights, and of adapters
_RATES_OF_TRL, _OTHER_RATE_OF_TRL = {"SFT": 2e-5, "Reward": 1e-4}, 1e-6  # the other one: of DPO, GRPO, KTO, RLOO

_KINDS = ("lr_scheduler_type", "lr_scheduler")  # transformers' and LLaMA-Factory's, Axolotl's
_KIND_OF = {programs.AXOLOTL: "cosine", programs.SWIFT: "cosine"}
_KIND_OF_THE_TRAINER = "linear"
# What falls until the last step, and DeepSpeed's schedule that falls alike; and the one that does not fall.
_FALLING = {"linear": "WarmupDecayLR", "cosine": "WarmupCosineLR"}
_LEVEL = {"constant_with_warmup": "WarmupLR"}
_OWN = "program"
_WARMUPS = ("warmup_steps", "warmup_ratio")
_LEAST_WARMUP = 1  # what the Trainer fills in for none (integrations/deepspeed.py)


def defaults(values: Mapping[str, Any], computed: Container[str] = ()) -> Iterator[tuple[str, Any]]:
    """Path of a wish -> the program's default, of what a file leaves out; nothing where the program is not known.

    Args:
        values: All arguments.
        computed: Names of others, which only running the program would tell.
    """
    if not programs.is_a_trainer(values):
        return
    program = programs.program_of(values)
    each: dict[str, float] = {**(_OF_SWIFT if program == programs.SWIFT else _OF_THE_TRAINER)}
    if program == programs.AXOLOTL:  # which has no default of it
        del each["learning_rate"]
    elif program == programs.SWIFT:
        each["learning_rate"] = _SWIFTS_RATES["full" in (values.get("tuner_type"), values.get("train_type"))]
    elif program == programs.TRL:
        each["learning_rate"] = _rate_of_trl(values)
    yield from ((STEPS[name], value) for name, value in each.items() if name not in values and name not in computed)


def _rate_of_trl(values: Mapping[str, Any]) -> float:
    return _RATES_OF_TRL.get(programs.trainer_of_trl(values), _OTHER_RATE_OF_TRL)


def schedule(
    values: Mapping[str, Any], ended: bool = False, known: bool = True, computed: Container[str] = ()
) -> Iterator[tuple[str, Any]]:
    """Path of a wish -> its value; a schedule that falls only where its end is said too.

    transformers 5.23 rounds a share of the steps up (training_args.py: get_warmup_steps).

    Args:
        values: All arguments.
        ended: Somebody else says how long training lasts.
        known: What they leave out has the program's default.
        computed: Names of others, which only running the program would tell.
    """
    total, warm = values.get("max_steps"), values.get("warmup_steps")
    share = warm if isinstance(warm, float) else values.get("warmup_ratio")
    kind = _said_kind(values)
    if not kind and known and programs.is_a_trainer(values) and not any(name in computed for name in _KINDS):
        kind = _KIND_OF.get(programs.program_of(values) or "", _KIND_OF_THE_TRAINER)
    taken = {**_LEVEL, **(_FALLING if ended or _is_count(total) else {})}.get(kind, _OWN if kind else None)
    if taken is not None:
        yield "training.scheduler", taken
    if taken == _OWN:
        return
    if taken == "WarmupCosineLR":
        yield "scheduler.params.cos_min_ratio", 0.0  # where transformers' ends
    if _is_count(warm):
        yield "training.warmup_steps", warm
    elif isinstance(total, int) and _is_count(total) and isinstance(share, float) and 0 < share < 1:
        yield "training.warmup_steps", math.ceil(total * share)
    elif taken is not None and known and not any(values.get(name) or name in computed for name in _WARMUPS):
        yield "training.warmup_steps", _LEAST_WARMUP


def said_of(path: str, values: Mapping[str, Any]) -> bool:
    """Whether arguments say what `schedule` has of a wish; else it is the program's default."""
    names = {"training.scheduler": _KINDS, "training.warmup_steps": _WARMUPS}.get(path, ())
    return any(values.get(name) for name in names)


def _said_kind(values: Mapping[str, Any]) -> str:
    return next((str(values[name]) for name in _KINDS if values.get(name)), "")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
