"""Settings of expert parallelism that DeepSpeed refuses."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.deepspeed.keys import say
from dsgen.linting.rules.batch_sizes import whole
from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.tensor_parallelism import tensor_parallel
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Remove, Severity
from dsgen.shapes.near_misses import alike

__all__ = ["EXPERT_PRESETS", "RULE", "check"]

_SECTION = "expert_parallel"
EXPERT_PRESETS = ("mixtral", "qwen3_moe", "qwen3_5_moe", "deepseek_v2", "deepseek_v3", "minimax_m3")  # 0.19.8


def check(subject: Subject) -> Iterator[Fault]:
    """A size that does not divide the GPUs, 1 beside tensor parallelism, split experts, an unknown preset."""
    if not subject.on(_SECTION):
        return
    stops = "deepspeed.initialize stops"
    path, world = f"{_SECTION}.autoep_size", subject.facts.world_size
    size = whole(subject.value(path))
    if size is not None and size > 0 and world and world % size:
        best = max(part for part in range(1, min(size, world) + 1) if world % part == 0)
        fix = Fix(f"write {best}", (Assign(path, best),), safe=False)
        yield Fault(path, f"autoep_size {size} does not divide {world} GPUs: {stops}", fix, on="value")
    if size == 1 and tensor_parallel(subject) > 1:
        yield Fault(path, f"autoep_size must be above 1 beside autotp_size above 1: {stops}")
    path = f"{_SECTION}.expert_tensor_parallel_size"
    split = whole(subject.value(path))
    if split is not None and split > 1:
        fix = Fix("write 1", (Assign(path, 1),), safe=False)
        yield Fault(path, f"expert_tensor_parallel_size {split} is not supported yet: {stops}", fix, on="value")
    path = f"{_SECTION}.preset_model"
    preset = subject.raw(path)
    if isinstance(preset, str) and preset not in EXPERT_PRESETS:
        close = alike(preset, EXPERT_PRESETS)
        edit = Assign(path, close[0]) if close else Remove(path)
        fix = Fix(f"write {close[0]}" if close else "remove preset_model", (edit,), safe=False)
        known = ", ".join(EXPERT_PRESETS)
        yield Fault(path, f"preset_model {say(preset)} is none of {known}: {stops}", fix, on="value")


RULE = Rule(
    code="DSG430",
    name="expert-parallel-refused",
    severity=Severity.ERROR,
    what="The section expert_parallel asks for something that AutoEP does not do.",
    why=(
        "Experts are spread over groups of autoep_size GPUs, so it must divide the GPUs: `must divide the stage size`. "
        "One expert on several GPUs is reserved, and AutoTP needs experts that are spread."
    ),
    example='{"train_micro_batch_size_per_gpu": 1, "expert_parallel": {"enabled": true, "autoep_size": 3}}',
    instead='{"train_micro_batch_size_per_gpu": 1, "expert_parallel": {"enabled": true, "autoep_size": 4}}',
    evidence=(
        "deepspeed/module_inject/auto_ep_config.py and auto_ep_folding.py (0.19.8)",
        "probe EP_size3_w2; run with expert_tensor_parallel_size 2, an unknown preset, autoep_size 1 beside AutoTP",
    ),
    check=check,
    given={"world_size": 8},
    since="0.19.2",
)
