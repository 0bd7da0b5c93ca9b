"""Tensor parallelism for a model that nothing says how to split."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.tensor_parallelism import SECTION, SIZE, tensor_parallel, unplanned
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """An autotp_size without partition_config and preset_model, for parameters that are no transformer's."""
    if tensor_parallel(subject) == 1 or not unplanned(subject) or subject.raw(f"{SECTION}.preset_model"):
        return
    message = (
        "the model is none of Hugging Face's, so DeepSpeed cannot tell how to split it, and deepspeed.initialize "
        "stops; tensor_parallel needs a partition_config"
    )
    yield Fault(SIZE, message)


RULE = Rule(
    code="DSG409",
    name="tensor-parallel-without-plan",
    severity=Severity.ERROR,
    what="A model of its own is to be split, and the config does not say how.",
    why=(
        "Without partition_config and preset_model DeepSpeed takes the plan that transformers gives its models, or "
        "guesses from the names of the classes: `Not able to determine model policy automatically. Please provide "
        "policy`."
    ),
    example='{"train_micro_batch_size_per_gpu": 1, "tensor_parallel": {"autotp_size": 2}}',
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "tensor_parallel": {
    "autotp_size": 2,
    "partition_config": {"layer_specs": [{"patterns": [".*up_proj\\\\.weight$"], "partition_type": "column"}]}
  }
}""",
    evidence=("deepspeed/module_inject/auto_tp.py (0.19.8): AutoTP.supported", "probe TP_nopc_w2"),
    check=check,
    given={"parameters": ("layers.0.up_proj.weight", "layers.0.down_proj.weight")},
    since="0.18.9",
)
