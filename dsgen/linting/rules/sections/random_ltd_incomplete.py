"""Random layer-token dropping without what its schedule or its layers are made from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dsgen.linting.rules.random_ltd import AT_STEP, SECTION, missing, missing_of_layers, refused
from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.texts import listed
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The first key that the scheduler asks for and does not find: DeepSpeed stops there. Then a value it has not.

    What only layers ask for is a warning: they do where a program wraps them.
    """
    section = subject.raw(SECTION)
    if not isinstance(section, Mapping) or not section.get("enabled"):
        return
    path = next(missing(section), None)
    if path is not None:
        name = path.rpartition(".")[2]
        when = "the first step" if name in AT_STEP else "deepspeed.initialize"
        yield Fault(
            f"{SECTION}.{path}", f"{SECTION} is enabled without {path}, and {when} stops with KeyError '{name}'"
        )
        return
    yield from (Fault(f"{SECTION}.{path}", f"{path} {said}", on="value") for path, said in refused(section))
    if lacked := missing_of_layers(section):
        names = listed(lacked) if len(lacked) > 1 else lacked[0]
        said = f"{SECTION} is enabled without {names}: convert_to_random_ltd stops with KeyError '{lacked[0]}'"
        yield Fault(SECTION, f"{said}, and without that call no layer drops tokens", severity=Severity.WARNING)


RULE = Rule(
    code="DSG706",
    name="random-ltd-incomplete",
    severity=Severity.ERROR,
    what="random_ltd is enabled, and a key of its schedule or layers is missing, or a value that it does not have.",
    why=(
        "The engine builds the schedule as soon as `random_ltd.enabled` is true, whether data_efficiency and "
        "data_routing are enabled or not, and takes its keys without defaults. `convert_to_random_ltd`, with which a "
        "program wraps the layers that are to drop tokens, asks for four more."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "data_efficiency": {"data_routing": {"random_ltd": {"enabled": true}}}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "data_efficiency": {"data_routing": {"random_ltd": {"enabled": false}}}
}""",
    evidence=(
        "deepspeed/runtime/data_pipeline/data_routing/scheduler.py (0.19.8)",
        "deepspeed/runtime/engine.py: random_ltd_initialize, data_routing/basic_layer.py: init_config (0.19.8)",
        "seen on 0.19.8: KeyError: 'total_layer_num' in deepspeed.initialize; 'Unsupported random LTD schedule type'",
    ),
    check=check,
)
