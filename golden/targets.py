"""What each target is given of a cell of the matrix, what it hands on to DeepSpeed, and what the linter says of it.

The file that `dsgen render --target` writes is handed on by the target's own classes, at the cell's declared world.
What arrives may differ from the config in three things alone, none of which a start can tell: then the start of the
config is the start of every target.

- `steps_per_print`: Accelerate sets it to infinity;
- `zero_optimization: {"stage": 0}`, `fp16` and `bf16: {"enabled": false}` where the config has no such section: what
  DeepSpeed takes a missing one for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from dsgen.deepspeed.keys import lookup
from dsgen.frameworks.training_arguments import autos, resolved, training_arguments, with_autos
from dsgen.linting.linter import lint_config
from dsgen.memory import Verdict
from dsgen.proving import expectations
from dsgen.rendering import Config
from dsgen.rendering.judgement import WEIGHED, facts
from dsgen.shapes.findings import Finding, Severity
from dsgen.shapes.layers import leaves

__all__ = ["TARGETS", "arguments", "differing", "unforeseen", "warnings", "written"]

TARGETS = ("deepspeed", "accelerate", "hf-trainer")
_PRINTED = "steps_per_print"
_OFF = {"zero_optimization.stage": 0, "fp16.enabled": False, "bf16.enabled": False}
_ON_NVME = ("optimizer-on-nvme-not-resumed", "nvme-loses-gradients")  # a render says them too, where nothing else fits
_NOT_GATHERED = "weights-not-gathered-on-save"  # a note under DeepSpeed itself, whose own save is another


def written(config: Config, target: str) -> dict[str, Any]:
    """What `dsgen render --target` writes."""
    if target == "deepspeed":
        return config.to_dict()
    return resolved(config) if target == "accelerate" else with_autos(config)


def arguments(config: Config, target: str) -> dict[str, Any]:
    """The TrainingArguments beside it; none for the other targets."""
    return {one.name: one.value for one in training_arguments(config)} if target == "hf-trainer" else {}


def differing(config: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    """The keys in which what was handed on is not the config, but for what no start can tell."""
    paths = dict.fromkeys(path for tree in (config, given) for path, _ in leaves(tree))
    return [path for path in paths if path != _PRINTED and not _same(path, lookup(config, path), lookup(given, path))]


def _same(path: str, ours: tuple[bool, Any], theirs: tuple[bool, Any]) -> bool:
    if ours[0] != theirs[0]:
        there = ours if ours[0] else theirs
        return path in _OFF and there[1] == _OFF[path]
    return bool(ours[1] == theirs[1])


def warnings(config: Config, target: str) -> tuple[Finding, ...]:
    """The errors and warnings of every rule, which is told of the job and of the Trainer's arguments."""
    job = config.plan.job
    known = attrs.evolve(facts(job), told=autos(config) if target == "hf-trainer" else {})
    every = lint_config(written(config, target), target=target, deepspeed=job.version, facts=known)
    return tuple(one for one in every if one.severity > Severity.INFO)


def unforeseen(config: Config, target: str) -> Iterator[str]:
    """The rules that warn of what neither the row of the matrix nor the render says itself."""
    uncertain = config.plan.chosen.memory.verdict is not Verdict.FITS
    for one in warnings(config, target):
        nvme = one.rule in _ON_NVME and expectations.optimizer_place(config.tree) == "nvme"
        gathered = one.rule == _NOT_GATHERED and target != "deepspeed"
        if one.severity is Severity.ERROR or not (nvme or gathered or (one.rule in WEIGHED and uncertain)):
            yield one.rule
