"""A loaded config as text: the answers first, then every written key beside its value in force, then the defaults."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsgen.effective import Answers, Effective, Refusal, WrittenKey

__all__ = ["text"]

_NAME = 11  # columns of the name before an answer
_GAP = "  "
_LAST = 9  # columns of the longest word for what happened
_DIGITS = 8  # of a rate as it is written; longer ones are rounded
_LARGE = 1e6  # whole numbers with a point are written short from here on
_LEAST_VALUE = 10
_LONGEST_VALUE = 40
_HEADS = ("key", "written", "in force", "outcome")
_TITLES = {"hf-trainer": "the Hugging Face Trainer", "accelerate": "Accelerate", "lightning": "Lightning"}
_NO_OPTIMIZER = {"hf-trainer": "none here: the Trainer makes the one of its argument optim"}  # create_optimizer
_OPEN = "left open"
_DROPPED = 'DeepSpeed drops "auto" in this section, and its default is in force'
# The defaults worth a line: what people believe they have set, or would set if they knew. JSON shows all.
_MATTER = (
    "gradient_clipping", "zero_optimization.stage", "zero_optimization.overlap_comm",
    "zero_optimization.reduce_bucket_size", "zero_optimization.allgather_bucket_size",
    "zero_optimization.sub_group_size", "zero_optimization.stage3_prefetch_bucket_size",
    "zero_optimization.stage3_param_persistence_threshold", "zero_optimization.stage3_max_live_parameters",
    "zero_optimization.stage3_gather_16bit_weights_on_model_save", "bf16.enabled", "fp16.enabled",
    "fp16.initial_scale_power", "optimizer.params.lr", "optimizer.params.betas", "optimizer.params.weight_decay",
    "optimizer.params.adam_w_mode", "scheduler.params.warmup_min_lr", "scheduler.params.warmup_max_lr",
    "scheduler.params.warmup_num_steps", "scheduler.params.warmup_type", "steps_per_print",
)  # fmt: skip


def text(effective: Effective, width: int) -> str:
    """What a person reads after `dsgen effective`; ends without a line break.

    Args:
        effective: The loaded config.
        width: Columns of the terminal.
    """
    lines = _wrapped(_headline(effective), "", width, hanging=2)
    if effective.refused is not None:
        lines += _refused(effective.refused, width)
    if effective.answers is not None:
        for name, words in _answers(effective.answers, effective):
            lines += _wrapped(words, f"{name:<{_NAME}}", width)
    for warning in effective.warnings:
        lines += _wrapped(warning, f"{'logs':<{_NAME}}", width)
    if effective.rows:
        lines += ["", *_table(effective.rows, width)]
    if any(row.happened == "dropped" for row in effective.rows):
        lines += ["", *_wrapped(_DROPPED, "dropped: ", width)]
    shown = [(path, effective.defaults[path]) for path in _MATTER if path in effective.defaults]
    if shown:
        widest = max(len(path) for path, _ in shown)
        lines += ["", "not written, in force"]
        lines += [_GAP + f"{path:<{widest}}{_GAP}{_cut(value, width - widest - 4)}" for path, value in shown]
    return "\n".join(line.rstrip() for line in lines)


def _headline(effective: Effective) -> str:
    ranks = f"{effective.world_size} GPU{'s' if effective.world_size != 1 else ''}"
    said = " (what its batch keys imply)" if effective.implied and effective.world_size > 1 else ""
    title = _TITLES.get(effective.target, effective.target)
    through = f", handed over by {title}, which fills in what is left open" if effective.target != "deepspeed" else ""
    return f"{effective.name} in DeepSpeed {effective.deepspeed} at {ranks}{said}{through}"


def _refused(refused: Refusal, width: int) -> list[str]:
    phase = {"read": "the file cannot be read", "parse": "refused", "initialize": "refused at initialize"}
    if refused.phase == "run":
        lines = _wrapped(refused.sentence, "refused, or stops later: ", width, hanging=2)
        return lines + _wrapped(refused.kind, "  dsgen lint's rule: ", width, hanging=4)
    lines = _wrapped(refused.sentence, f"{phase[refused.phase]}: ", width, hanging=2)
    words = " ".join(f"{refused.kind}: {refused.message}".split())
    site = f" ({refused.site})" if refused.site else ""
    return lines + _wrapped(f"{words}{site}", "  DeepSpeed's words: ", width, hanging=4)


def _answers(answers: Answers, effective: Effective) -> Iterator[tuple[str, str]]:
    autocast = f", torch.autocast to {answers.autocast}" if answers.autocast else ""
    yield "dtype", (answers.dtype or _OPEN) + autocast
    yield "ZeRO", f"stage {answers.stage}{_offload(answers)}"
    yield "batch", _batch(answers, effective.world_size)
    clipping = "no gradient clipping" if answers.gradient_clipping == 0 else _number(answers.gradient_clipping)
    if answers.gradient_clipping is None:
        clipping = _OPEN
    yield "clipping", clipping + (" (DeepSpeed's default)" if "gradient_clipping" in effective.defaults else "")
    if answers.optimizer is None:
        yield "optimizer", _NO_OPTIMIZER.get(effective.target, "none: the program must bring one")
    else:
        yield "optimizer", f"{answers.optimizer}, lr {_number(answers.lr)}{_default(effective, 'optimizer.params.lr')}"
    if answers.schedule is not None:
        yield "schedule", _schedule(answers)


def _offload(answers: Answers) -> str:
    places = {"cpu": "CPU", "nvme": "NVMe"}
    said = (("optimizer", answers.offload_optimizer), ("parameters", answers.offload_parameters))
    return "".join(f", {what} on {places.get(device, device)}" for what, device in said if device != "none")


def _batch(answers: Answers, ranks: int) -> str:
    train, micro, steps = (
        "?" if value is None else _number(value)
        for value in (answers.train_batch_size, answers.micro_batch, answers.accumulation)
    )
    known = f"{train} = micro-batch {micro} x {steps} steps x {ranks} GPU{'s' if ranks != 1 else ''}"
    return known + (f" (? is {_OPEN})" if "?" in (train, micro, steps) else "")


def _schedule(answers: Answers) -> str:
    if answers.highest_lr is None:
        return f"{answers.schedule}, rates {_OPEN}"
    said = f"{answers.schedule}: lr {_number(answers.first_lr)} in step 1"
    if answers.highest_lr_step is not None:
        said += f", at most {_number(answers.highest_lr)} (step {answers.highest_lr_step:,})"
    if answers.schedule_ignores_lr and answers.optimizer is not None and answers.highest_lr != answers.lr:
        said += "; the optimizer's own lr is not used"
    return said


def _default(effective: Effective, path: str) -> str:
    return " (its default)" if path in effective.defaults else ""


def _number(value: Any) -> str:
    if value is None:
        return _OPEN
    said = _said(value)
    return f"{value:.6g}" if isinstance(value, float) and len(said) > _DIGITS else said


def _table(rows: tuple[WrittenKey, ...], width: int) -> list[str]:
    """Four columns; a section has a line of its own, and a note stands below its row."""
    room = width - len(_GAP) * 3 - _LAST
    widest = max(len(_key(row)) for row in rows)
    longest = max(len(_said(value)) for row in rows for value in (row.written, row.in_force))
    value = max(_LEAST_VALUE, min(longest, (room - widest) // 2, _LONGEST_VALUE))
    key = min(max(widest, len(_HEADS[0])), room - 2 * value)
    lines = [_line(_HEADS, key, value)]
    section: list[str] = []
    for row in rows:
        parts = row.path.split(".")[:-1]
        for depth, name in enumerate(parts):
            if section[: depth + 1] != parts[: depth + 1]:
                lines.append(_GAP * depth + name)
        section = parts
        force = "-" if row.in_force is None and row.happened in ("not read", "left open") else _said(row.in_force)
        lines.append(_line((_key(row), _written(row), force, row.happened), key, value))
        if row.note and row.happened != "left open":  # the first line says so of all
            indent = _GAP * (len(parts) + 1)
            lines += _wrapped(row.note, indent, width)
    return lines


def _key(row: WrittenKey) -> str:
    return _GAP * row.path.count(".") + row.path.rpartition(".")[2]


def _written(row: WrittenKey) -> str:
    if isinstance(row.written, Mapping) and row.written:
        return f"{len(row.written)} key{'s' if len(row.written) != 1 else ''}"
    return _said(row.written)


def _line(cells: tuple[str, str, str, str], key: int, value: int) -> str:
    *first, last = cells
    shown = [f"{_shortened(cell, size):<{size}}" for cell, size in zip(first, (key, value, value), strict=True)]
    return _GAP.join([*shown, last])


def _said(value: Any) -> str:
    """A value as JSON writes it; a section by its keys."""
    if isinstance(value, Mapping) and value:
        return ", ".join(f"{key} {_said(item)}" for key, item in value.items() if item is not None)
    if isinstance(value, float) and value.is_integer() and abs(value) >= _LARGE:
        return re.sub(r"e\+?0*", "e", f"{value:g}")  # 1e9
    return json.dumps(value, ensure_ascii=False, default=str)


def _cut(value: Any, size: int) -> str:
    return _shortened(_said(value), size)


def _shortened(words: str, size: int) -> str:
    return words if len(words) <= size else f"{words[: max(1, size - 3)]}..."


def _wrapped(words: str, first: str, width: int, hanging: int | None = None) -> list[str]:
    """Words after a first indent; later lines are indented as far, or by `hanging`."""
    after = " " * (len(first) if hanging is None else hanging)
    return textwrap.wrap(words, width, initial_indent=first, subsequent_indent=after, break_on_hyphens=False) or [first]
