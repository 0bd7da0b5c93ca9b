"""Where a config and the files that start its training say different things: a fault at each of the two places."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeGuard

from dsgen.deepspeed.keys import lookup, say
from dsgen.documents.document import Document
from dsgen.linting.statements import LAUNCHED_DTYPE, WORLD, Statement, differs
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE_NAME", "in_config", "in_statements"]

RULE_NAME = "argument-disagrees"
_SILENT = "accelerate", "deepspeed"  # programs that do not compare; what the config says is what runs
_BATCH = "train_batch_size"
_MICRO, _STEPS = "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
_PRODUCT = f"{_MICRO} x {_STEPS}"
_ITEM = re.compile(r"(.+)\[([0-9]+)\]")


def in_config(document: Document, statements: Sequence[Statement], target: str) -> Iterator[tuple[str, Fault]]:
    """What differs, at the keys of the config."""
    if not isinstance(document.config, Mapping):
        return
    for statement in statements:
        if statement.key == WORLD or not _differ(document.config, statement, statements):
            continue
        key, value = _key(statement), _value(document.config, _key(statement))
        there = f"{_stated(statement, statements)} in {statement.name}:{statement.line}"
        severity, outcome = _judged(statement, target)
        said = f"{key} is {say(value)}, and {there}; {outcome}"
        fix = (
            Fix('write "auto"', (Assign(key, "auto"),), safe=False)
            if target == "hf-trainer" and "[" not in key
            else None
        )
        yield RULE_NAME, Fault(key, said, fix, severity, on="value")


def in_statements(
    statements: Sequence[Statement], config: Document, target: str, name: str
) -> Iterator[tuple[str, Fault]]:
    """What differs, at the arguments that stand in the file of a name."""
    if not isinstance(config.config, Mapping):
        return
    for statement in statements:
        if statement.name != name or not _differ(config.config, statement, statements):
            continue
        key = _key(statement)
        value = _value(config.config, key)
        line = config.position(config.span(key).start)[0]
        there = f"{key} is {say(value)} in {config.name}:{line}"
        said = f"{_stated(statement, statements)}, and {there}"
        severity, outcome = _judged(statement, target)
        path = statement.path or statement.word
        yield RULE_NAME, Fault(path, f"{said}; {outcome}", severity=severity, span=statement.span, on="value")


def _differ(config: Mapping[str, Any], statement: Statement, every: Sequence[Statement]) -> bool:
    if statement.key == WORLD:
        return _batch_needs_others(config, statement.value)
    if statement.key == _PRODUCT:
        ranks = _ranks(every)
        total = config.get(_BATCH)
        alone = not any(differs(config.get(one.key), one) for one in every if one.key in (_MICRO, _STEPS))
        return ranks is not None and alone and _is_count(total) and total != statement.value * ranks
    return differs(_value(config, statement.key), statement)


def _batch_needs_others(config: Mapping[str, Any], ranks: int) -> bool:
    """Whether the three batch sizes of a config are for another number of GPUs."""
    total, micro, steps = config.get(_BATCH), config.get(_MICRO), config.get(_STEPS)
    if any(name in config for name in ("tensor_parallel", "sequence_parallel_size")):
        return False
    if not (_is_count(total) and _is_count(micro) and _is_count(steps)):
        return False
    return total % (micro * steps) == 0 and total != micro * steps * ranks


def _stated(statement: Statement, every: Sequence[Statement]) -> str:
    """What a statement says, with the product behind it where there is one."""
    if statement.key == _PRODUCT:
        total = statement.value * (_ranks(every) or 1)
        return f"{statement.word} x {_STEPS} x GPUs is {say(total)}"
    return f"{statement.word} is {say(statement.said)}{' by default' if statement.default else ''}"


def _key(statement: Statement) -> str:
    return _BATCH if statement.key in (_PRODUCT, WORLD) else statement.key


def _ranks(every: Sequence[Statement]) -> int | None:
    return next((one.value for one in every if one.key == WORLD), None)


def _value(config: Mapping[str, Any], key: str) -> Any:
    """The value at a key, or of an item of the list there."""
    item = _ITEM.fullmatch(key)
    if item is None:
        return lookup(config, key)[1]
    listed = lookup(config, item[1])[1]
    place = int(item[2])
    return listed[place] if isinstance(listed, list) and place < len(listed) else None


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _judged(statement: Statement, target: str) -> tuple[Severity, str]:
    """How grave a difference is, and what happens then."""
    if statement.key == WORLD:
        return Severity.ERROR, "DeepSpeed multiplies the batch sizes with the GPUs and stops at the parse"
    if statement.word.lstrip("-").replace("-", "_") == LAUNCHED_DTYPE:
        if statement.value is False:  # the config has the other dtype on
            return Severity.ERROR, "Accelerate refuses the two (ValueError)"
        return Severity.WARNING, "Accelerate leaves what the config says, so it trains in another dtype than is said"
    if target in _SILENT:
        trainer = "; a Trainer would stop" if target == "accelerate" else ""
        return Severity.WARNING, f"DeepSpeed goes by the config{trainer}"
    return Severity.ERROR, "the Trainer compares them and stops with a ValueError"
