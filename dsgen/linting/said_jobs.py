"""What a person says of the run that a config is for: a scenario file, and the fields of one that no config holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dsgen.catalog.structure import structure
from dsgen.jobs import scenarios
from dsgen.jobs.assembly import assemble, canonical
from dsgen.jobs.job import Job
from dsgen.jobs.scenarios import FIELDS, Scenario, ScenarioValue
from dsgen.shapes.layers import Layer, Origin, Override, Rank, fold
from dsgen.shapes.profiles import Training

__all__ = ["WISHES", "job", "wishes"]

# What decides memory beside the config: fields of a scenario that `dsgen lint` takes as options and settings.
WISHES = (
    *("method", "lora_rank", "lora_targets", "lora_dropout", "lora_train_embeddings"),
    *("chunked_loss", "optimizer", "attention", "checkpointing"),
)


def wishes(said: Mapping[str, Any]) -> Training | None:
    """Wishes by their fields alone, where no hardware and model make them a job; None where nothing was said.

    Raises:
        DsgenError: A value that its field cannot be.
    """
    if not said:
        return None
    values = ((FIELDS[name], _valued(name, value)) for name, value in said.items())
    written = tuple(Override(path, one.value, one.origin, Rank.USER) for path, one in values)
    folded = fold(canonical([Layer("wishes", Rank.USER, written)]))
    return structure(Training, "training", folded.tree, folded.provenance)


def job(
    scenario: str | None,
    *,
    profiles: Mapping[str, str | None],
    fields: Mapping[str, Any],
    deepspeed: str | None = None,
) -> Job | None:
    """The job that a scenario file and what is said over it make; None where hardware or model is not named.

    Args:
        scenario: The file.
        profiles: Kind -> a profile's name or file, over the file's.
        fields: Field of a scenario -> its value, over the file's; None where nothing was said.
        deepspeed: The release that reads the config, over the file's.

    Raises:
        DsgenError: A broken file, an unknown profile or a value that its field cannot be; with its place.
    """
    said = Scenario(
        profiles={kind: (name,) for kind, name in profiles.items() if name is not None},
        fields={name: _valued(name, value) for name, value in fields.items() if value is not None},
        deepspeed=deepspeed,
    )
    whole = scenarios.merge(scenarios.read(scenario), said) if scenario is not None else said
    if not whole.profiles.get("model") or not (whole.profiles.get("hardware") or _sized(whole)):
        return None
    return assemble(scenarios.layers(whole), whole.deepspeed)


def _sized(scenario: Scenario) -> bool:
    """Whether the memory of a card stands in the place of its name."""
    return "gpu_memory" in scenario.fields or (scenario.below is not None and _sized(scenario.below))


def _valued(name: str, value: Any) -> ScenarioValue:
    """A field as somebody said it, with the place where it was said."""
    if isinstance(value, ScenarioValue):
        return value
    return ScenarioValue(list(value) if isinstance(value, tuple) else value, Origin(name))
