"""A layer that is split without the ones that it gives its output to, or takes its input from."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.split_layers import torn
from dsgen.linting.rules.tensor_parallelism import SECTION, tensor_parallel
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]

_LAYERS = tuple(f"model.layers.0.self_attn.{name}_proj.weight" for name in "qkvo")
_PATH = f"{SECTION}.partition_config"


def check(subject: Subject) -> Iterator[Fault]:
    """Attention or feed-forward that a partition_config splits in part; guessed where nobody says the model."""
    if tensor_parallel(subject) == 1 or subject.raw(f"{SECTION}.vocab_parallel_lm_head") is True:
        return
    known = subject.facts.parameters
    for said in torn(subject.section(_PATH), subject.raw(f"{SECTION}.preset_model"), known):
        where = "" if known else " of a Llama, Qwen or Mistral"
        severity = Severity.ERROR if known else Severity.WARNING
        yield Fault(_PATH, f"{said[0]}{where} {said[1]}: the first step stops", severity=severity)


RULE = Rule(
    code="DSG414",
    name="tensor-parallel-without-partner",
    severity=Severity.ERROR,
    what="A partition_config splits some layers of attention or of feed-forward, and not those that belong to them.",
    why=(
        "A column-parallel layer gives each GPU its part of the output, and a row-parallel layer takes such a part: "
        "one without the other has a matrix of another width. `mat1 and mat2 shapes cannot be multiplied`, or `The "
        "size of tensor a (128) must match the size of tensor b (64)`. With gather_output a column-parallel layer "
        "gives all of it and needs no partner."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "tensor_parallel": {
    "autotp_size": 2,
    "partition_config": {"layer_specs": [{"patterns": [".*o_proj"], "partition_type": "row"}]}
  }
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "tensor_parallel": {
    "autotp_size": 2,
    "partition_config": {
      "layer_specs": [
        {"patterns": [".*o_proj"], "partition_type": "row"}, {"patterns": [".*[qkv]_proj"], "partition_type": "column"}
      ]
    }
  }
}""",
    evidence=(
        "deepspeed/module_inject/auto_tp.py (0.19.8): _replace_with_config",
        "19 partitions of a Llama on two ranks of DeepSpeed 0.19.8",
    ),
    check=check,
    given={"parameters": _LAYERS},
    since="0.18.9",
    shows=(
        "shapes cannot be multiplied",
        r"size of tensor a \(\d+\) must match the size of tensor b",
        "Expected input batch_size .* to match target batch_size",
    ),
)
