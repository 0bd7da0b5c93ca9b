"""Parameters on NVMe whose swap buffers DeepSpeed gives out twice, or has too few of."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.described import Described, described
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]

_PATH = "zero_optimization.offload_param.buffer_count"
_AIO_BLOCK = 1 << 20  # bytes, DeepSpeed's default
_FEWER = (5, 4, 3, 2)  # buffers that are tried, DeepSpeed's default first
_TWICE = "DeepSpeed reads a tensor ahead twice and stops: already assigned swap buffer"
_NONE_LEFT = "its tensors are kept for reuse in all buffers and DeepSpeed stops: Not enough buffers"


def check(subject: Subject) -> Iterator[Fault]:
    """offload_param to "nvme", walked over a step of the model that is named."""
    run = described(subject) if subject.offload("param") == "nvme" else None
    if run is None or run.strategy.stage != 3 or run.strategy.tp > 1:
        return
    if run.job.training.method != "full" or subject.written("zero_optimization.leaf_module"):
        return
    count = int(subject.value(_PATH))
    # Whether blocks run again in backward is the program's word; where nobody says it, both are walked.
    ways = (run.strategy.checkpointing,) if subject.facts.training is not None else (True, False)
    ends = [_end(subject, run, count, way) for way in ways]
    if not any(ends):
        return
    certain = all(ends)
    words = "" if certain else (", with activation checkpointing" if ends[0] else ", without activation checkpointing")
    enough = next((n for n in _FEWER if n < count and not any(_end(subject, run, n, way) for way in ways)), None)
    fix = Fix(f"take {enough} buffers", (Assign(_PATH, enough),), safe=False) if enough else None
    message = f"with {count} buffers for parameters on NVMe{words} {next(end for end in ends if end)}"
    yield Fault(_PATH, message, fix, severity=None if certain else Severity.WARNING)


def _end(subject: Subject, run: Described, count: int, checkpointing: bool) -> str:
    """How a step stops with so many buffers; "" where it does not."""
    from dsgen.memory.swapped_parameters import Swapping, ending

    strategy, zero = run.strategy, "zero_optimization"
    block, in_cpu = subject.value("aio.block_size"), subject.value(f"{zero}.offload_param.max_in_cpu")
    wire = 4 if strategy.precision == "fp32" else 2
    block = block if isinstance(block, int) else _AIO_BLOCK
    swapping = Swapping(run.job.world, wire, block, count, int(in_cpu), strategy.buffers.sub_group)
    twice = ending(run.job.model, checkpointing, run.job.training.chunked_loss, strategy.buffers, swapping)
    return {None: "", True: _TWICE, False: _NONE_LEFT}[twice]


RULE = Rule(
    code="DSG816",
    name="nvme-parameters-stop",
    severity=Severity.ERROR,
    what="Parameters on NVMe have so many swap buffers that a tensor gets two, or so few that none is left.",
    why=(
        "From the second pass on DeepSpeed reads parameters ahead along their order of use, until twice the elements "
        "that are being gathered are passed or every buffer is taken. A tensor that is used in forward and soon again "
        "in backward is then read twice, and the step stops. More buffers make it worse; the default of 5 meets it in "
        "tiny mixtures alone. With stage3_max_reuse_distance above 0 tensors keep their buffers until none is left."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {
    "stage": 3, "stage3_max_reuse_distance": 0, "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme"},
    "offload_param": {"device": "nvme", "nvme_path": "/local_nvme", "buffer_count": 64, "buffer_size": 100000000}}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {
    "stage": 3, "stage3_max_reuse_distance": 0, "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme"},
    "offload_param": {"device": "nvme", "nvme_path": "/local_nvme", "buffer_size": 100000000}}
}""",
    evidence=("deepspeed/runtime/zero/partitioned_param_coordinator.py (0.19.8): __prefetch_nvme_param_partitions",
              "DeepSpeed 0.19.8 run on Llama, Mixtral, Qwen3-MoE, gpt-oss and DeepSeek-V3"),
    check=check,
    given={"hardware": "h100", "model": "70b", "world_size": 8},
)  # fmt: skip
