"""`dsgen prove`: real ranks start the config, step, save and load, and what they observed is checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

import attrs
import click
from click.core import ParameterSource

from dsgen.cli import FOUND, OK, proof_runs
from dsgen.cli.lint_options import TARGETS
from dsgen.cli.options import scenario_from, scenario_options
from dsgen.cli.terminal import emit

if TYPE_CHECKING:
    from dsgen.asking.proofs import ToProve
    from dsgen.proving.prover import Proof
    from dsgen.rendering import Config

__all__ = ["command"]

_UNWRITTEN = "scenario"  # the name of what no file says
_OPTION = {"hardware": "hw", "files": "file", "sets": "set"}  # parameter -> its option
# What a config of one's own leaves to say; the rest describes a scenario.
_SUBJECT = ("model", "method", "lora_rank", "lora_targets", "lora_dropout", "lora_train_embeddings")


@click.command("prove")
@click.argument("files_", metavar="[FILE]...", nargs=-1)
@scenario_options
@click.option(
    "--target",
    type=click.Choice(TARGETS),
    help='With a config: the program that hands it over; its "auto" are filled in (default: DeepSpeed itself).',
)
@click.option(
    "--args", "arguments", metavar="FILE", help="With a config: the Trainer's arguments, in YAML, JSON or its program."
)
@click.option(
    "--ranks", type=click.IntRange(1), metavar="N", help="Processes to start (default: 2, or the AutoTP degree)."
)
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
@click.option("--steps", type=click.IntRange(1), default=3, show_default=True, metavar="N", help="Optimizer steps.")
@click.option("--timeout", type=click.FloatRange(min=1), default=600.0, show_default=True, metavar="SECONDS")
@click.option("--certificate", metavar="FILE", help="Write what was proven to a file, which --verify reads.")
@click.option("--force", is_flag=True, help="Write over a certificate that is there.")
@click.option(
    "--verify",
    metavar="FILE",
    help="Start nothing: say whether this certificate holds for what is said.",
)
@click.option(
    "--record",
    metavar="FILE",
    help="Keep each proof here as it ends, and start none again that is here and unchanged.",
)
@click.option("--junit", metavar="FILE", help="Write the outcome as JUnit's XML too.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(
    files_: tuple[str, ...],
    target: str | None,
    arguments: str | None,
    ranks: int | None,
    device: str,
    steps: int,
    timeout: float,
    certificate: str | None,
    force: bool,
    verify: str | None,
    record: str | None,
    junit: str | None,
    form: str,
    **options: Any,
) -> int:
    """Start a real deepspeed.initialize with a config and check what it observed.

    FILE is a DeepSpeed config or a scenario; without it the options name one. Of several each is proven, and with
    --record a run that was cut off goes on where it stopped. A tiny model takes three optimizer steps on 2 ranks, and a
    checkpoint is saved and loaded. Only batch sizes are rescaled to the ranks. A scenario is proven with a tiny sibling
    of its model, and with adapters where its method has them; a config with a tiny Llama, or with a sibling of --model.
    --model package.module:function instead runs that function of yours, in the child process, and trains what it
    returns: a model whose forward gives a loss, or (model, batch) where batch(samples) gives its arguments. Needs `pip
    install "dsgen[proof]"`. Exit code 1 means that the proof failed, or that the certificate of --verify does not hold.
    """
    from dsgen.documents.writing import ensure_writable, write_atomically
    from dsgen.proving import certificates, prover
    from dsgen.report import proof as report

    _check_together(files_, certificate, verify, record, junit, force)
    if verify is not None:
        told = steps if _is_said("steps") else None
        file = files_[0] if files_ else None
        return _verified(verify, file, target, arguments, ranks, device, told, form, dict(options))
    if certificate is not None:
        certificates.ensure_new(certificate, force=force)
    if junit is not None:
        ensure_writable(junit, by="--junit")
    names = files_ or (_UNWRITTEN,)
    questions = [_asked(file, target, arguments, ranks, dict(options)) for file in files_ or (None,)]
    said = proof_runs.run(
        names, questions, record, form, ranks=ranks, device=device, steps=steps, timeout_seconds=timeout
    )
    if junit is not None:
        write_atomically(junit, report.junit(list(zip(names, said, strict=True))), by="--junit")
    if certificate is not None:
        _certify(said[0], names[0], certificate, force)
    return OK if all(proof.outcome == prover.PROVED for proof in said) else FOUND


def _is_said(parameter: str) -> bool:
    """Whether a person wrote the option that has a default."""
    return click.get_current_context().get_parameter_source(parameter) is not ParameterSource.DEFAULT


def _certify(proof: Proof, name: str, certificate: str, force: bool) -> None:
    """The certificate of what was proved."""
    from dsgen.proving import certificates, prover

    if proof.outcome != prover.PROVED:
        click.echo(f"no certificate was written: the proof is {proof.outcome}", err=True)
        return
    certificates.certify(proof).write(certificate, force=force)
    again = f" {name}" if name != _UNWRITTEN else " with the same options"
    click.echo(f"wrote {certificate}. Later: dsgen prove --verify {certificate}{again}", err=True)


def _verified(
    verify: str,
    file: str | None,
    target: str | None,
    arguments: str | None,
    ranks: int | None,
    device: str,
    steps: int | None,
    form: str,
    options: dict[str, Any],
) -> int:
    """Whether a certificate holds."""
    import json

    from dsgen.asking import proofs
    from dsgen.proving import certificates
    from dsgen.report import certificate as report
    from dsgen.shapes.errors import mistake

    if file is None and all(value in (None, ()) for value in options.values()):
        raise mistake(
            f"{verify} is to be held against a config, and none is named",
            todo=f"Name it: dsgen prove --verify {verify} ds_config.json, or a scenario and its options.",
            code="missing",
        )
    record = certificates.read(verify)
    said = certificates.Claims(target=target, ranks=ranks, device=device, steps=steps)
    if _is_config(file):
        _check_subject(file, options)
        if any(options[name] not in (None, ()) for name in _SUBJECT):
            said = attrs.evolve(said, trained=_trained(options))
        answer = proofs.verified(record, file, said, arguments=arguments)
    else:
        answer = proofs.verified_rendered(record, _rendered(file, target, arguments, options), said)
    if form == "text":
        emit(report.text(answer), "proof", nl=True)
    else:
        emit(json.dumps(answer.to_dict(), indent=2), "json", nl=True)
    return OK if answer.holds else FOUND


def _check_together(
    files: Sequence[str],
    certificate: str | None,
    verify: str | None,
    record: str | None,
    junit: str | None,
    force: bool,
) -> None:
    from dsgen.shapes.errors import mistake

    if len(files) > 1 and (certificate or verify) is not None:
        raise mistake(
            f"{len(files)} configs are named, and a certificate is about one",
            todo="Name one config for each certificate.",
            code="contradiction",
        )
    if len(set(files)) < len(files):
        raise mistake("a config is named twice", must="each is proven once", code="contradiction")

    idle = (
        ("--certificate is written by a proof", certificate is not None),
        ("--record is of proofs that run", record is not None),
        ("--junit is written by a proof", junit is not None),
        ("--timeout ends one", _is_said("timeout")),
    )
    for why, said in idle:
        if verify is not None and said:
            raise mistake(
                f"--verify starts nothing, and {why}",
                todo="Drop one of the two.",
                code="contradiction",
            )
    if certificate is not None and record is not None:
        raise mistake(
            "--certificate is about a proof that runs, and --record may start none",
            todo="Drop one of the two.",
            code="contradiction",
        )
    if force and certificate is None:
        raise mistake("--force is said without --certificate", must="it is about a file that is there", code="missing")


def _asked(
    file: str | None, target: str | None, arguments: str | None, ranks: int | None, options: dict[str, Any]
) -> ToProve:
    """What is to be proven: a config as its program hands it over, or what a scenario renders."""
    from dsgen.asking import proofs

    if _is_config(file):
        _check_subject(file, options)
        return proofs.asked(file, target=target, arguments=arguments, ranks=ranks, model=_trained(options))
    return proofs.of_rendered(_rendered(file, target, arguments, options))


def _is_config(file: str | None) -> TypeGuard[str]:
    """Whether a file is named, and no scenario."""
    from dsgen.jobs.scenarios import is_scenario

    return file is not None and not is_scenario(file)


def _check_subject(file: str, options: Mapping[str, Any]) -> None:
    """Refuse beside a config what describes a scenario."""
    from dsgen.shapes.errors import mistake

    said = [name for name, value in options.items() if value not in (None, ()) and name not in _SUBJECT]
    if said:
        option = _OPTION.get(said[0], said[0].replace("_", "-"))
        raise mistake(
            f"{file} is a DeepSpeed config, and --{option} describes a scenario",
            must="prove takes one of the two",
            todo="Drop the options, or name a scenario file.",
            code="contradiction",
        )


def _rendered(file: str | None, target: str | None, arguments: str | None, options: dict[str, Any]) -> Config:
    """What `dsgen render` makes of a scenario."""
    from dsgen.jobs.assembly import assemble
    from dsgen.jobs.scenarios import layers
    from dsgen.planning.planner import plan
    from dsgen.proving.proven_models import is_factory
    from dsgen.rendering import render
    from dsgen.shapes.errors import mistake

    for option, value in (("--target", target not in (None, "deepspeed")), ("--args", arguments is not None)):
        if value:
            raise mistake(
                f'{option} is about a config\'s "auto"',
                must="a scenario has none: it renders numbers",
                todo="Render it for its program first: dsgen render ... --target hf-trainer -o ds_config.json.",
                code="contradiction",
            )
    if options["model"] is not None and is_factory(options["model"]):
        raise mistake(
            f"--model {options['model']} is a function",
            must="a scenario is planned for a profile, or for a config.json",
            todo="Render the scenario, and prove the config with your function.",
            code="contradiction",
        )
    scenario = scenario_from(file, options)
    return render(plan(assemble(layers(scenario), scenario.deepspeed)))


def _trained(options: dict[str, Any]) -> Any:
    """The model and the method that options say beside a config."""
    from dsgen.asking import proofs
    from dsgen.cli.options import fields_from

    fields = {name: item.value for name, item in fields_from(dict(options), _SUBJECT[1:]).items()}
    return proofs.trained(options["model"], **fields)
