"""A config to the scenario that renders back to it, checked by rendering it; and what a plan of dsgen's own gains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from dsgen.asking.adopting.scenario_text import scenario_text
from dsgen.asking.memory_questions import CHOSEN, Question, ask_config, for_program
from dsgen.asking.plan_questions.speedups import Speedups, speedups
from dsgen.asking.refused_configs import refusals
from dsgen.asking.training_arguments import TrainingArguments
from dsgen.documents.writing import write_new_yaml
from dsgen.jobs import scenarios
from dsgen.jobs.assembly import assemble
from dsgen.jobs.job import Job
from dsgen.jobs.releases import knows_liger_kernels
from dsgen.jobs.scenarios import FIELDS, Scenario, ScenarioValue
from dsgen.linting.sources import Source
from dsgen.planning.candidates import Candidate
from dsgen.planning.lengths import long_step
from dsgen.planning.planner import plan
from dsgen.rendering import Config, render
from dsgen.shapes.errors import DsgenError, mistake
from dsgen.shapes.layers import TOLD, Origin, Rank, same, show

__all__ = ["Adoption", "adopt"]

_BATCH = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
# Fact of a question -> the field of a scenario that says it, and the key that would.
_SAID = {
    "micro-batch": ("micro_batch", "train_micro_batch_size_per_gpu"),
    "accumulation": ("accumulation", "gradient_accumulation_steps"),
}
_KEYED = tuple(field for field, _ in _SAID.values())
_NAME = "scenario.yaml"  # what the scenario is called before it has a file


@attrs.frozen(kw_only=True)
class Adoption:
    """A config as a scenario, and what dsgen would do otherwise.

    Attributes:
        text: The scenario in YAML.
        config: What it renders to: the same as the config that was given.
        question: What that config runs.
        speedups: It as it is, and each change that would make it faster and surely fits.
        own: What a plan takes that follows nothing but the same job; None where nothing fits.
        given: The config that was given.
    """

    text: str
    config: Config = attrs.field(repr=False)
    question: Question = attrs.field(repr=False)
    speedups: Speedups = attrs.field(repr=False)
    own: Candidate | None = attrs.field(repr=False)
    given: Mapping[str, Any] = attrs.field(repr=False)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to say of the scenario; nothing of a batch that a plan takes where the config leaves it open."""
        rendered = self.config.plan
        chosen = rendered.chosen
        if chosen.strategy.global_batch == self.question.strategy.global_batch:
            return self.config.warnings
        of_its_batch = long_step(rendered.job, chosen.strategy, chosen.cost.seconds)
        return tuple(said for said in self.config.warnings if said != of_its_batch)

    @property
    def gain(self) -> float | None:
        """Speed of dsgen's own plan beside the config's, less one; None where nothing of its own fits."""
        return self.own.speed / self.speedups.now.speed - 1 if self.own is not None else None

    def write(self, path: str, *, force: bool = False) -> None:
        """Write the scenario, whole or not at all.

        Args:
            path: The file, which ends in .yaml.
            force: Write over a file that is there.

        Raises:
            DsgenError: It cannot be written, or a file is there.
        """
        write_new_yaml(path, lambda _: self.text, "a scenario", force=force)


def adopt(
    said: Scenario,
    source: Source,
    arguments: TrainingArguments | None = None,
    path: str = _NAME,
    target: str | None = None,
) -> Adoption:
    """The scenario of a config.

    Args:
        said: The job around it: at least hardware and model.
        source: The config as `dsgen.linting.config_reader` reads it.
        arguments: Those of the program that fills in its "auto".
        path: Where the scenario will lie: names of files in it start there.
        target: The program that trains, where it is known: how it loads the model counts, and no scenario says it.

    Raises:
        DsgenError: DeepSpeed refuses the config, it does not fit, or it cannot be kept as it is.
    """
    config = dict(source.document.config)
    _check_said(said)
    if arguments is not None:
        arguments.check(config)
        said = _with_arguments(said, arguments, config)
    first = assemble(scenarios.layers(said), said.deepspeed)
    said = _with_gpus(said, config, first, source)
    job = for_program(assemble(scenarios.layers(said), said.deepspeed), target)
    _check_config(job, source)
    question = ask_config(job, source)
    if arguments is not None and arguments.file != source.of:
        question = attrs.evolve(question, notes=(*question.notes, *arguments.uncounted))
    if left := _left(said, config, question, source):
        question = attrs.evolve(question, notes=(*question.notes, left))
    text = scenario_text(_with_batch(said, config, question), config, source.document.name, path, job.version)
    rendered = _rendered(text, path, source)
    _check_same(config, rendered.to_dict(), source)
    return Adoption(
        text=text,
        config=rendered,
        question=question,
        speedups=speedups(question),
        own=_own(job, question),
        given=config,
    )


def _left(said: Scenario, config: Mapping[str, Any], question: Question, source: Source) -> str:
    """What of the batch "auto" leaves to a program that nobody said anything of; empty where there is nothing."""
    left = {
        fact: field for fact, (field, key) in _SAID.items() if config.get(key) == "auto" and field not in said.fields
    }
    if not left:
        return ""
    counted = " and ".join(f"{fact} {question.said[fact].value}" for fact in left)
    options = " and ".join(f"--{field.replace('_', '-')}" for field in left.values())
    return (
        f'{source.document.name} leaves the batch to the program ("auto"): counted with {counted}, and planned anew by '
        f"dsgen render. Say what the program takes: --args with the file of its TrainingArguments, or {options}"
    )


def _check_said(said: Scenario) -> None:
    if said.below is not None or said.files:
        raise mistake(
            f"{said.files[0] if said.files else 'a scenario'} is named beside a config to adopt",
            must="the job is said by options, and becomes a scenario of its own",
            todo="Say --hw and --model; join the two files by hand afterwards.",
            code="contradiction",
        )
    for name, value in said.sets:
        if name.partition(".")[0] not in ("hardware", "model", "network", "training", "cluster"):
            raise mistake(
                f"{name} = {show(value.value)} would change the config",
                must="it is adopted as it is",
                where=value.origin,
                todo="Change the config, or the scenario afterwards.",
                code="contradiction",
            )


def _with_arguments(said: Scenario, arguments: TrainingArguments, config: Mapping[str, Any]) -> Scenario:
    """What the arguments say, below what a person says; their optimizer is made where the config has none."""
    origin, runs = Origin(arguments.file), bool(config.get("optimizer"))
    left = {field for field, key in _SAID.values() if config.get(key) == "auto"}  # what the program fills in by itself
    method = {name: ScenarioValue(value, origin) for name, value in arguments.fields.items() if name == "method"}
    usual = assemble(scenarios.layers(attrs.evolve(said, fields={**method, **said.fields})), said.deepspeed)
    told = {
        name: value
        for name, value in arguments.runs_on(usual.model.architecture).items()
        if (name in arguments.fields or name not in _KEYED or name in left) and not (name == "optimizer" and runs)
    }
    fields = {
        name: ScenarioValue(value, origin, TOLD)
        for name, value in told.items()
        if not _is_so(usual, FIELDS[name], value) and not (name == "liger_kernels" and _has_none(usual, value))
    }
    return attrs.evolve(said, fields={**fields, **said.fields})


def _has_none(job: Job, switched: bool) -> bool:
    """Whether Liger's kernels are switched on for a model of which they are not known; a scenario that says so is
    refused."""
    return switched and not knows_liger_kernels(job.model, job.training.liger)


def _is_so(job: Job, path: str, value: Any) -> bool:
    """Whether a training profile says the same, as that of the method does of its adapters."""
    winner = job.provenance.winner(path)
    return winner is not None and winner.rank == Rank.TRAINING and same(winner.value, value)


def _with_gpus(said: Scenario, config: Mapping[str, Any], job: Job, source: Source) -> Scenario:
    """As many GPUs as a person says, else as the batch of the config adds up with, else those of a node."""
    if {"gpus", "nodes"} & set(said.fields):
        return said
    named = source.of or source.document.name
    gpus, why = (source.world_size, f"as {named} says") if source.world_size else _world(config, job)
    return attrs.evolve(said, fields={**said.fields, "gpus": ScenarioValue(gpus, Origin(why))})


def _world(config: Mapping[str, Any], job: Job) -> tuple[int, str]:
    """How many GPUs, and why so many."""
    total, micro, steps = (_count(config.get(key)) for key in _BATCH)
    if total is None:
        return job.world, "all of a node"
    sequences = (micro or 1) * (steps or 1)
    if micro is not None and steps is not None and total % sequences == 0:
        return total // sequences, f"{total} / ({micro} x {steps}), as its batch keys add up"
    shared = total // sequences if total % sequences == 0 else 1
    most = max(number for number in range(1, job.gpus_per_node + 1) if shared % number == 0)
    return most, f"the most of a node that share {shared}"


def _count(value: Any) -> int | None:
    whole = isinstance(value, (int, float)) and not isinstance(value, bool) and value == int(value) and value > 0
    return int(value) if whole else None


def _check_config(job: Job, source: Source) -> None:
    """Refuse what DeepSpeed, or the program before it, refuses."""
    errors = refusals(job, source.document, source.target)
    if not errors:
        return
    first, more = errors[0], len(errors) - 1
    others = f" {more} more error{'s' if more > 1 else ''} behind it." if more else ""
    raise mistake(
        first.message,
        where=f"{source.document.name}:{first.line}:{first.column}",
        must="a config that does not start cannot be adopted",
        todo=f"dsgen lint {source.document.name} shows it, --fix mends what it can; "
        f"dsgen rule {first.code} explains.{others}",
        code="refused",
    )


def _with_batch(said: Scenario, config: Mapping[str, Any], question: Question) -> Scenario:
    """The sizes that DeepSpeed makes of the batch keys and that no key says: the plan must not choose others."""
    fields = dict(said.fields)
    for fact, (field, key) in _SAID.items():
        told = question.said[fact]
        by_default = field == "accumulation" and key not in config  # DeepSpeed's own: one
        if (told.by != CHOSEN or by_default) and _count(config.get(key)) is None and field not in fields:
            by = "DeepSpeed's default" if told.by == CHOSEN else told.by
            fields[field] = ScenarioValue(told.value, Origin(by))
    return attrs.evolve(said, fields=fields)


def _rendered(text: str, path: str, source: Source) -> Config:
    parsed = scenarios.parse(text, path)
    try:
        return render(plan(assemble(scenarios.layers(parsed), parsed.deepspeed)))
    except DsgenError as error:
        if error.code == "does-not-fit":
            nowhere, pins, _ = error.what.partition(" with ")  # the pins are the config itself
            raise mistake(
                f"{nowhere} as this config runs it" if "fits nowhere" in nowhere and pins else error.what,
                must="a scenario is of a run that fits",
                where=source.document.name,
                todo="dsgen memory --config shows where the bytes are and what would fit; name other hardware, or "
                "--seq-len, --method, --checkpointing as your program has them.",
                code="does-not-fit",
            ) from None
        raise error.inside(f"{source.document.name} cannot be adopted") from None


def _check_same(given: Mapping[str, Any], rendered: Mapping[str, Any], source: Source) -> None:
    differing = [path for path, _ in _differences(given, rendered)]
    if differing:
        raise mistake(
            f"{', '.join(differing[:3])} cannot be kept",
            must="a scenario renders back to the same config",
            where=source.document.name,
        )


def _differences(given: Any, rendered: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The paths at which two configs differ as JSON data: 5e8 is 500000000, and true is not 1."""
    if isinstance(given, Mapping) and isinstance(rendered, Mapping):
        for key in (*given, *(key for key in rendered if key not in given)):
            if key in given and key in rendered:
                yield from _differences(given[key], rendered[key], f"{path}{key}.")
            else:
                yield f"{path}{key}", given.get(key)
    elif isinstance(given, list) and isinstance(rendered, (list, tuple)) and len(given) == len(rendered):
        for one, other in zip(given, rendered, strict=True):
            yield from _differences(one, other, path)
    elif isinstance(given, bool) is not isinstance(rendered, bool) or given != rendered:
        yield path.rstrip("."), given


def _own(job: Job, question: Question) -> Candidate | None:
    """What a plan takes for the same sequences a step, nothing of the config followed."""
    wishes = attrs.evolve(job.training, global_batch=question.strategy.global_batch)
    try:
        return plan(attrs.evolve(job, training=wishes, pins=(), deepspeed={})).chosen
    except DsgenError:  # nothing fits, or these GPUs cannot share so many sequences
        return None
