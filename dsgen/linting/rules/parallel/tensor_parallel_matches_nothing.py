"""A partition of which no rule matches any parameter of the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.tensor_parallelism import PRESETS, SECTION, matches, patterns, tensor_parallel
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """A partition_config or preset_model that splits nothing of a model whose parameters are known."""
    names = subject.facts.parameters
    if not names or tensor_parallel(subject) == 1:
        return
    own, preset = subject.raw(f"{SECTION}.partition_config"), subject.raw(f"{SECTION}.preset_model")
    ready = PRESETS.get(preset.lower()) if isinstance(preset, str) else None
    rules: list[str] = []
    if isinstance(own, Mapping) and own:
        rules = list(patterns(own.get("layer_specs")))
        if own.get("use_default_specs", True) is not False:
            rules += ready or ()
        path = f"{SECTION}.partition_config"
    elif ready:
        rules, path = list(ready), f"{SECTION}.preset_model"
    else:
        return
    if not any(matches(rule, names) for rule in rules):
        message = (
            f"{path.rpartition('.')[2]} matches no parameter of the model ({names[0]}, ...): nothing is split, while "
            "the GPUs are still counted in groups"
        )
        yield Fault(path, message)


RULE = Rule(
    code="DSG411",
    name="tensor-parallel-matches-nothing",
    severity=Severity.WARNING,
    what="AutoTP is on, but none of its patterns fits a parameter.",
    why=(
        "Patterns are regular expressions matched from the start of a parameter's full name. When none fits, every "
        "GPU keeps the whole model, and the GPUs of a group compute the same thing. DeepSpeed says nothing."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "tensor_parallel": {
    "autotp_size": 2,
    "partition_config": {"layer_specs": [{"patterns": ["up_proj"], "partition_type": "column"}]}
  }
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "tensor_parallel": {
    "autotp_size": 2,
    "partition_config": {"layer_specs": [{"patterns": [".*up_proj"], "partition_type": "column"}]}
  }
}""",
    evidence=(
        "deepspeed/module_inject/autotp_config.py (0.19.8): TPLayerSpec.matches",
        "probes TP_pc_nomatch, TP_preset_llama_nomatch",
    ),
    check=check,
    given={"parameters": ("layers.0.up_proj.weight", "layers.0.down_proj.weight")},
    since="0.18.9",
)
