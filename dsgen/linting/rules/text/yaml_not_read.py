"""A config in YAML, which DeepSpeed does not read."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.documents.misreadings import misread
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity, Span

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """A file that is YAML alone, and that the program's reader takes for something else."""
    document = subject.document
    said = misread(document)
    if said is None:
        return
    reader = "DeepSpeed"
    if subject.target.strict_json:
        reader, said = subject.target.title, "it reads the file with Python's json and stops"
    message = f"{reader} reads no YAML: {said}"
    start = document.places.get(next(iter(document.config)))
    span = start.key if start is not None else None
    yield Fault("", f"{message}; write it as JSON or HJSON", span=span or Span(0, min(1, len(document.text))))


RULE = Rule(
    code="DSG016",
    name="yaml-not-read",
    severity=Severity.WARNING,
    what="The config is YAML, which neither DeepSpeed nor the programs before it read.",
    why=(
        "DeepSpeed reads every file with the package hjson, whatever its ending: a section of indented keys becomes a "
        "text or a key of the level above, and the engine stops with ValueError: Duplicate keys in DeepSpeed config, "
        "or takes another config than was written. The Hugging Face Trainer, Accelerate and Lightning read it with "
        "Python's json. Only a program that loads the YAML itself and hands the map over can use it; `# dsgen: "
        "ignore[yaml-not-read]` says that yours does."
    ),
    example="""train_micro_batch_size_per_gpu: 1
zero_optimization:
  stage: 2
""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 2}
}""",
    evidence=(
        "deepspeed/runtime/config.py (0.19.8): DeepSpeedConfig.__init__, hjson.load",
        "accelerate/utils/deepspeed.py (1.15.0): HfDeepSpeedConfig, json.load",
    ),
    check=check,
    reads="text",
)
