"""A state on NVMe with fewer swap buffers than one sub-group, or one weight, takes."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]

_SECTION = "zero_optimization.offload_optimizer"
_PATH = f"{_SECTION}.buffer_count"
_OF_WEIGHTS = "zero_optimization.offload_param.buffer_count"
_PIPELINES = ("pipeline_read", "pipeline_write")
# Weights, the states of the optimizer, and the gradient: Adagrad has one state; Adam has two, and Lion takes as many.
_BUFFERS, _OF_ADAGRAD = 4, 3


def check(subject: Subject) -> Iterator[Fault]:
    """NVMe at stage 3: a buffer for weights; for the optimizer those of a sub-group, twice where two are in flight."""
    if subject.stage != 3:
        return
    if subject.offload("param") == "nvme" and subject.value(_OF_WEIGHTS) == 0:
        said = "without a swap buffer no weight comes back from NVMe, and deepspeed.initialize stops; 5 is the default"
        yield Fault(_OF_WEIGHTS, said, Fix("write 5", (Assign(_OF_WEIGHTS, 5),), safe=False))
    if subject.offload("optimizer") != "nvme":
        return
    count = subject.value(_PATH)
    if not isinstance(count, int):
        return
    least = _OF_ADAGRAD if subject.optimizer == "adagrad" else _BUFFERS
    ahead = next((name for name in _PIPELINES if subject.value(f"{_SECTION}.{name}") is True), None)
    if count < least:
        said = f"{count} swap buffers hold no sub-group of the optimizer, and the first step stops; it takes {least}"
        yield Fault(_PATH, said, Fix(f"write {least}", (Assign(_PATH, least),), safe=False))
    elif ahead is not None and count < 2 * least:
        said = (
            f"with {ahead} two sub-groups are in the {count} swap buffers at once, and each takes {least}: the first "
            "step stops where a rank has more than one sub-group"
        )
        yield Fault(_PATH, said, Fix(f"write {2 * least}", (Assign(_PATH, 2 * least),), safe=False), Severity.WARNING)


RULE = Rule(
    code="DSG357",
    name="nvme-buffers-too-few",
    severity=Severity.ERROR,
    what="The optimizer on NVMe has fewer swap buffers than its states and gradients take, or weights have none.",
    why=(
        "A sub-group is read into offload_optimizer.buffer_count buffers: weights, each state, gradient. DeepSpeed "
        "asserts that they are there, mostly without a word. pipeline_read reads the next sub-group meanwhile, "
        "pipeline_write writes the last one, and the default of 4 is enough for one alone."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {
    "stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme", "buffer_count": 2}}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {
    "stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme", "buffer_count": 4}}
}""",
    evidence=("deepspeed/runtime/swap_tensor/partitioned_optimizer_swapper.py (0.19.8): swap_in_optimizer_state",
              "DeepSpeed 0.19.8 run with 2 to 12 buffers, AdamW, Adagrad and Lion, with and without pipelines"),
    check=check,
    shows=("ran out of swap buffers", "No swap buffers", "optimizer_swapper.py", r"range\(\) arg 3 must not be zero"),
)  # fmt: skip
