"""A program that tells from_pretrained where the weights lie, which DeepSpeed says."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.model_loads import ModelLoad
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]

_STAGE, _PARTITIONED = "zero_optimization.stage", 3
_SPREADS = ('"auto"', '"balanced"', '"balanced_low_0"')  # over all GPUs that a process sees


def check(subject: Subject) -> Iterator[Fault]:
    """Every load with a device_map: at stage 3 any, where a config is known by then; else what spreads the model."""
    for load in subject.facts.loads:
        if load.device_map is not None and subject.stage == _PARTITIONED and load.known is not None:
            yield _refused(load)
        elif load.device_map in _SPREADS and subject.facts.world_size != 1:
            message = (
                f"from_pretrained gets device_map={load.device_map} ({load.file}:{load.line}): each rank spreads the "
                "model over all GPUs that it sees, and Accelerate refuses one that lies on several (ValueError); leave "
                'it away, or of a base in 4 or 8 bits below stage 3: device_map={"": int(os.environ["LOCAL_RANK"])}'
            )
            yield Fault(_STAGE, message, severity=Severity.WARNING, on="value")


def _refused(load: ModelLoad) -> Fault:
    where = "" if load.sure else " where the program comes by there"
    message = (
        f"{_STAGE} is {_PARTITIONED}, and from_pretrained gets device_map={load.device_map} ({load.file}:{load.line}) "
        f"when line {load.known} has made the config known: transformers refuses the two{where} (ValueError); leave "
        "device_map away"
    )
    return Fault(_STAGE, message, severity=None if load.sure else Severity.WARNING, on="value")


RULE = Rule(
    code="DSG927",
    name="device-map-beside-deepspeed",
    severity=Severity.ERROR,
    what="The program loads its model with a device_map, which ZeRO-3 does not take.",
    why=(
        'At stage 3 DeepSpeed says where each part of a weight lies, and from_pretrained raises "DeepSpeed Zero-3 is '
        'not compatible with passing a `device_map`" for any but None, of a quantized base too, once TrainingArguments '
        "or an HfDeepSpeedConfig that is kept have made the config known. Below stage 3 a device_map of the rank's own "
        'GPU is right; "auto" spreads the model over all that the rank sees, and Accelerate raises "You can\'t train a '
        "model that has been loaded with `device_map='auto'` in any distributed mode\": a warning. transformers 5 "
        "ignores low_cpu_mem_usage, which 4 refused beside stage 3. Only a Python program that --args names is read."
    ),
    example='{"zero_optimization": {"stage": 3}}',
    instead='{"zero_optimization": {"stage": 2}}',
    evidence=(
        "transformers/integrations/accelerate.py (5.23.0): check_and_set_device_map",
        "accelerate/accelerator.py (1.15.0): Accelerator.prepare, verify_device_map",
        "the real from_pretrained of transformers 5.23.0 run so: tests/asking/test_load_before_arguments.py",
    ),
    check=check,
    given={
        "target": "hf-trainer",
        "loads": (ModelLoad(file="train.py", line=2, known=1, device_map='{"": 0}'),),
    },
    reads="job",
)
