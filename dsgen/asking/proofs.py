"""What is to be proven: a scenario, or a person's config as its program hands it over, and the model beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from dsgen import targets
from dsgen.asking.foresight import foresight
from dsgen.asking.handovers import provable
from dsgen.deepspeed import surface
from dsgen.deepspeed.autos import unfilled
from dsgen.deepspeed.keys import lookup
from dsgen.documents.document import Document
from dsgen.families.hf_config import to_hf_config
from dsgen.frameworks.recomputation import reenters
from dsgen.jobs import model_configs
from dsgen.linting import config_reader
from dsgen.linting.disagreements import RULE_NAME
from dsgen.linting.taken import taken
from dsgen.proving import prover
from dsgen.proving.adaptation import rank_count
from dsgen.proving.certificates import Certificate, Claims, Verified
from dsgen.proving.endings import NEEDS, OF_A_CRASH
from dsgen.proving.kept_proofs import Identity
from dsgen.proving.proven_models import METHODS, Lora, ProvenModel, is_factory, of_factory
from dsgen.proving.prover import FAILED, NOT_RUN, Proof
from dsgen.rendering import Config
from dsgen.shapes.errors import mistake
from dsgen.shapes.findings import Severity
from dsgen.shapes.layers import leaves
from dsgen.strategies.buffers import EIGHT_BITS
from dsgen.targets.filling import fill
from dsgen.targets.hf_trainer import HF_TRAINER

__all__ = [
    "ToProve",
    "asked",
    "identity",
    "of_rendered",
    "proven",
    "trained",
    "verified",
    "verified_rendered",
]

_ALONE = "deepspeed"
_PRECISIONS = (("fp16.enabled", "fp16"), ("bf16.enabled", "bf16"))


@attrs.frozen(kw_only=True)
class ToProve:
    """A config on its way into a proof.

    Attributes:
        written: As a person wrote it, or as dsgen rendered it.
        given: As its program hands it to DeepSpeed.
        target: That program.
        filled: Keys that it fills in -> the value.
        trained: The model.
    """

    written: Mapping[str, Any]
    given: Mapping[str, Any]
    target: str = _ALONE
    filled: Mapping[str, Any] = attrs.field(factory=dict)
    trained: ProvenModel = attrs.field(factory=ProvenModel)


def trained(
    model: str | Mapping[str, Any] | None = None,
    *,
    method: str | None = None,
    lora_rank: int | None = None,
    lora_targets: Sequence[str] | None = None,
    lora_dropout: float | None = None,
    lora_train_embeddings: bool | None = None,
) -> ProvenModel:
    """The model of a proof and what of it is trained.

    Args:
        model: A model profile, a config.json or its folder, what stands in one, or package.module:function.
        method, lora_rank, lora_targets, lora_dropout, lora_train_embeddings: As in a scenario.

    Raises:
        DsgenError: No such model or method, or adapters without a method that has them.
    """
    said = {
        "lora_rank": lora_rank,
        "lora_targets": lora_targets,
        "lora_dropout": lora_dropout,
        "lora_train_embeddings": lora_train_embeddings,
    }
    if method not in (None, *METHODS):
        raise mistake(f"method is {method!r}", must=f"it must be one of {', '.join(METHODS)}")
    adapters = None
    if method in (None, "full"):
        if extra := [name for name, value in said.items() if value is not None]:
            raise mistake(
                f"{extra[0]} is said, and the method is {method or 'not'}",
                must="adapters belong to method lora or qlora",
                code="contradiction",
            )
    else:
        if lora_rank is not None and (isinstance(lora_rank, bool) or not isinstance(lora_rank, int) or lora_rank < 1):
            raise mistake(f"lora_rank is {lora_rank!r}", must="it must be a whole number of at least 1")
        told: dict[str, Any] = {name.removeprefix("lora_"): value for name, value in said.items() if value is not None}
        if "targets" in told:
            told["targets"] = tuple(told["targets"])
        adapters = Lora(method=str(method), **told)
    if isinstance(model, str) and is_factory(model):
        return of_factory(model, adapters)
    if model is None:
        return ProvenModel(adapters=adapters)
    name, config, _ = model_configs.read(model)
    return ProvenModel(name=name, config=config, adapters=adapters)


def of_rendered(config: Config) -> ToProve:
    """What `dsgen render` made, with the job's own model and method."""
    job = config.plan.job
    wishes = job.training
    adapters = None
    if wishes.method != "full":
        adapters = Lora(
            method=wishes.method,
            rank=wishes.lora_rank,
            targets=tuple(wishes.lora_targets),
            dropout=wishes.lora_dropout,
            train_embeddings=wishes.lora_train_embeddings,
            fp32=wishes.lora_fp32,
            kbit_fp32=wishes.kbit_fp32,
        )
    model = ProvenModel(
        name=job.names.get("model", "the model"),
        config=to_hf_config(attrs.asdict(job.model)),
        adapters=adapters,
        checkpointing=_checkpointing(config),
        optimizer=EIGHT_BITS if wishes.optimizer == EIGHT_BITS and "optimizer" not in config.tree else "",
    )
    tree = config.to_dict()
    return ToProve(written=tree, given=provable(tree), trained=model)


def _checkpointing(config: Config) -> str:
    """How the program of a plan recomputes activations, as `dsgen needs` tells it."""
    if not config.plan.chosen.strategy.checkpointing:
        return ""
    return "reentrant" if reenters(config.plan) else "non-reentrant"


def asked(
    source: str | Mapping[str, Any],
    *,
    target: str | None = None,
    arguments: str | None = None,
    ranks: int | None = None,
    model: ProvenModel | None = None,
) -> ToProve:
    """A config that a person has, with every "auto" as its program fills it in.

    Args:
        source: A file (- is the standard input), or a config.
        target: The program that hands it over; DeepSpeed itself where nobody says, or the Trainer where its arguments
            are given.
        arguments: File of the Trainer's arguments.
        ranks: As `prover.prove` takes them.
        model: What is trained.

    Raises:
        DsgenError: Unreadable, a wrong argument, or an "auto" that nobody fills in.
    """
    subject = ProvenModel() if model is None else model
    program = target if target is not None else (HF_TRAINER.name if arguments is not None else _ALONE)
    if program == _ALONE and arguments is None:
        config = provable(source)
        return ToProve(written=config, given=config, trained=subject)
    if isinstance(source, str) and source != "-":  # which can be read once
        config_reader.read(source, target=program, bare=True)  # it says what is wrong with the text
    known = taken(source, target=program, arguments=arguments)
    if known is None:
        raise mistake("it is no config", where=str(source), code="unreadable")
    _check_told(known.source.document)
    written = dict(known.source.document.config)
    given = _filled(written, program, known.told, arguments is not None, ranks, subject)
    if left := unfilled(given, surface.load()):
        raise mistake(
            f'{", ".join(left)} {"is" if len(left) == 1 else "are"} "auto"',
            must=f"{targets.find(program).title} does not fill it in",
            where=config_reader.place(known.source.document, left[0]) if isinstance(source, str) else None,
            todo="Write a value.",
        )
    paths = [path for path, _ in leaves(given) if lookup(written, path) != lookup(given, path)]
    return ToProve(
        written=written,
        given=given,
        target=program,
        filled={path: lookup(given, path)[1] for path in paths},
        trained=subject,
    )


def _check_told(document: Document) -> None:
    """Refuse a config that its program's arguments contradict: the program stops before DeepSpeed has it.

    Raises:
        DsgenError: The first key with another value than its argument.
    """
    for rule, fault in document.faults:
        if rule == RULE_NAME and fault.severity is Severity.ERROR:
            raise mistake(
                fault.message,
                must="a proof is of what the program hands over",
                where=config_reader.place(document, fault.path),
                todo='Make them equal, or write "auto" into the config.',
                code="contradiction",
            )


def _filled(
    written: Mapping[str, Any],
    program: str,
    told: Mapping[str, Any],
    all_told: bool,
    ranks: int | None,
    subject: ProvenModel,
) -> dict[str, Any]:
    """The config as the program hands it over: by its arguments where there are any, else by its defaults."""
    precision = next((name for key, name in _PRECISIONS if told.get(key) is True), "fp32" if all_told else None)
    micro, steps = told.get("train_micro_batch_size_per_gpu"), told.get("gradient_accumulation_steps")
    used, _ = fill(
        _with(written, told),
        target=program,
        world_size=rank_count(written, ranks),
        hidden_size=subject.hidden_size,
        micro_batch=micro if isinstance(micro, int) else None,
        accumulation=steps if isinstance(steps, int) else None,
        precision=precision,
    )
    if "optimizer" not in written:  # the program brings it as an object, and so does the proof
        used.pop("optimizer", None)
    return used


def _with(written: Mapping[str, Any], told: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """The config with what the arguments say in the place of "auto"."""
    return {
        key: _with(value, told, f"{before}{key}.")
        if isinstance(value, Mapping)
        else (told[f"{before}{key}"] if value == "auto" and f"{before}{key}" in told else value)
        for key, value in written.items()
    }


def verified(
    record: Certificate,
    source: str | Mapping[str, Any],
    said: Claims,
    *,
    arguments: str | None = None,
) -> Verified:
    """Whether a certificate holds for a config that a person has; nothing is started.

    Args:
        record: The certificate; what nobody says is as it says.
        source: As in `asked`.
        said: What is said beside the config.
        arguments: As in `asked`; then what they fill in is compared too.

    Raises:
        DsgenError: As `asked`.
    """
    program = said.target
    if program is None and (arguments is None or record.target != _ALONE):
        program = record.target
    question = asked(
        source,
        target=program,
        arguments=arguments,
        ranks=record.ranks if said.ranks is None else said.ranks,
        model=said.trained,
    )
    compared = attrs.evolve(said, target=question.target)
    return record.verify(question.written, question.filled if arguments is not None else None, said=compared)


def verified_rendered(record: Certificate, config: Config, said: Claims) -> Verified:
    """Whether a certificate holds for what `dsgen render` made, its own model and method included."""
    question = of_rendered(config)
    return record.verify(question.written, said=attrs.evolve(said, target=question.target, trained=question.trained))


def proven(
    questions: Sequence[ToProve], *, ended: Callable[[int, Proof], None] | None = None, **options: Any
) -> tuple[Proof, ...]:
    """The proofs of what was asked, in order; where one fails, with what lint says of its config.

    Args:
        questions: Configs and their models; DeepSpeed is imported once for all.
        ended: Called after each with its place and its proof.
        options: As `prover.prove_many` takes them.

    Raises:
        DsgenError: As `prover.prove_many`.
    """
    configs, models = [dict(one.given) for one in questions], [one.trained for one in questions]
    named: dict[int, Proof] = {}

    def name(place: int, proof: Proof) -> None:
        named[place] = _named(questions[place], proof)
        if ended is not None:
            ended(place, named[place])

    prover.prove_many(configs, trained=models, ended=name, **options)
    return tuple(named[place] for place in range(len(questions)))


def identity(question: ToProve, *, ranks: int | None, device: str, steps: int) -> Identity | None:
    """What must be the same for a proof to stand for another; None for a person's own function, which nobody can tell.

    Args:
        question: What is to be proven.
        ranks, device, steps: As `prover.prove` takes them.
    """
    if question.trained.factory is not None:
        return None
    return Identity(
        config_sha256=prover.config_hash(question.written),
        given_sha256=prover.config_hash(question.given),
        target=question.target,
        model=question.trained.title,
        model_sha256=question.trained.sha256,
        ranks=rank_count(question.given, ranks),
        device=device,
        steps=steps,
    )


def _named(question: ToProve, proof: Proof) -> Proof:
    """A proof with what was asked, and what lint knew."""
    proof = attrs.evolve(
        proof,
        config_sha256=prover.config_hash(question.written),
        target=question.target,
        filled=dict(question.filled),
    )
    unbuilt = proof.outcome == NOT_RUN and proof.todo == NEEDS["a GPU"]  # an operator that a CPU has not
    crashed = proof.outcome == FAILED and proof.todo == OF_A_CRASH
    if not (unbuilt or crashed) and (proof.outcome != FAILED or not proof.is_verdict):
        return proof
    said = foresight(question.given, proof)
    if crashed:  # a verdict only where lint knows that this config ends so
        known = bool(said.causes) and not said.lacking
        verdict = attrs.evolve(proof, is_verdict=True, todo=None, foreseen=said.causes, also=said.also)
        return verdict if known else proof
    if unbuilt:
        return attrs.evolve(proof, foreseen=said.causes or None, also=said.also)
    if said.lacking:
        return attrs.evolve(
            proof,
            outcome=NOT_RUN,
            todo=NEEDS[said.lacking],
            is_verdict=False,
            foreseen=said.causes,
            also=said.also,
        )
    own = question.trained.factory is not None  # whose own faults no linter of configs knows
    return attrs.evolve(proof, foreseen=said.causes or (None if own else ()), also=said.also)
