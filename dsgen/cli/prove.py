"""`dsgen prove`: real ranks start the config, step, save and load, and what they observed is checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dsgen.cli import FOUND, OK
from dsgen.cli.lint_options import TARGETS
from dsgen.cli.options import scenario_from, scenario_options
from dsgen.cli.terminal import emit

if TYPE_CHECKING:
    from dsgen.asking.proofs import Asked
    from dsgen.proving.prover import Proof

__all__ = ["command"]

_OPTION = {"hardware": "hw", "files": "file", "sets": "set"}  # parameter -> its option
# What a config of one's own leaves to say; the rest describes a scenario.
_SUBJECT = ("model", "method", "lora_rank", "lora_targets", "lora_dropout", "lora_train_embeddings")


@click.command("prove")
@click.argument("file", required=False)
@scenario_options
@click.option(
    "--target",
    type=click.Choice(TARGETS),
    help='With a config: the program that hands it over; its "auto" are filled in (default: DeepSpeed itself).',
)
@click.option("--args", "arguments", metavar="FILE", help="With a config: the Trainer's arguments, in YAML or JSON.")
@click.option(
    "--ranks", type=click.IntRange(1), metavar="N", help="Processes to start (default: 2, or the AutoTP degree)."
)
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
@click.option("--steps", type=click.IntRange(1), default=3, show_default=True, metavar="N", help="Optimizer steps.")
@click.option("--timeout", type=click.FloatRange(min=1), default=600.0, show_default=True, metavar="SECONDS")
@click.option("--certificate", metavar="FILE", help="Write what was proven to a file, which --verify reads.")
@click.option("--force", is_flag=True, help="Write over a certificate that is there.")
@click.option("--verify", metavar="FILE", help="Start nothing: say whether this certificate holds for the config here.")
@click.option("--junit", metavar="FILE", help="Write the outcome as JUnit's XML too.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(
    file: str | None,
    target: str | None,
    arguments: str | None,
    ranks: int | None,
    device: str,
    steps: int,
    timeout: float,
    certificate: str | None,
    force: bool,
    verify: str | None,
    junit: str | None,
    form: str,
    **options: Any,
) -> int:
    """Start a real deepspeed.initialize with a config and check what it observed.

    FILE is a DeepSpeed config or a scenario; without it the options name one. A tiny model takes three optimizer
    steps on 2 ranks, and a checkpoint is saved and loaded. Only batch sizes are rescaled to the ranks. A scenario is
    proven with a tiny sibling of its model, and with adapters where its method has them; a config with a tiny Llama, or
    with a sibling of --model. --model package.module:function instead runs that function of yours, in the child
    process, and trains what it returns: a model whose forward gives a loss, or (model, batch) where batch(samples)
    gives its arguments. Needs `pip install "dsgen[proof]"`. Exit code 1 means that the proof failed, or that the
    certificate of --verify does not hold.
    """
    import json

    from dsgen.asking import proofs
    from dsgen.documents.writing import ensure_writable
    from dsgen.proving import certificates, prover
    from dsgen.report import proof as report

    _check_together(certificate, verify, junit, force)
    if verify is not None:
        return _verified(verify, file, target, arguments, ranks, form, options)
    if certificate is not None:
        certificates.ensure_new(certificate, force=force)
    if junit is not None:
        ensure_writable(junit, by="--junit")
    question = _asked(file, target, arguments, ranks, options)
    proof = proofs.proven(question, ranks=ranks, device=device, steps=steps, timeout_seconds=timeout)
    if form == "text":
        emit(report.text(proof), "proof", nl=True)
    else:
        emit(json.dumps(proof.to_dict(), indent=2), "json", nl=True)
    _write(proof, file, certificate, junit, force)
    return OK if proof.outcome == prover.PROVED else FOUND


def _write(proof: Proof, file: str | None, certificate: str | None, junit: str | None, force: bool) -> None:
    """The files beside the answer."""
    from dsgen.documents.writing import write_atomically
    from dsgen.proving import certificates, prover
    from dsgen.report import proof as report

    if junit is not None:
        write_atomically(junit, report.junit([(file or "scenario", proof)]), by="--junit")
    if certificate is not None and proof.outcome == prover.PROVED:
        certificates.certify(proof).write(certificate, force=force)
        click.echo(f"wrote {certificate}. Later: dsgen prove --verify {certificate} {file or '...'}", err=True)
    elif certificate is not None:
        click.echo(f"no certificate was written: the proof is {proof.outcome}", err=True)


def _verified(
    verify: str,
    file: str | None,
    target: str | None,
    arguments: str | None,
    ranks: int | None,
    form: str,
    options: dict[str, Any],
) -> int:
    """Whether a certificate holds."""
    import json

    from dsgen.proving import certificates
    from dsgen.report import certificate as report

    record = certificates.read(verify)
    question = _asked(file, target or record.target, arguments, ranks or record.ranks, options)
    answer = record.verify(question.written, question.filled if arguments is not None else None)
    if form == "text":
        emit(report.text(answer), "proof", nl=True)
    else:
        emit(json.dumps(answer.to_dict(), indent=2), "json", nl=True)
    return OK if answer.holds else FOUND


def _check_together(certificate: str | None, verify: str | None, junit: str | None, force: bool) -> None:
    from dsgen.shapes.errors import mistake

    for option, said in (("--certificate", certificate), ("--junit", junit)):
        if verify is not None and said is not None:
            raise mistake(
                f"--verify starts nothing, and {option} is written by a proof",
                todo="Drop one of the two.",
                code="contradiction",
            )
    if force and certificate is None:
        raise mistake("--force is said without --certificate", must="it is about a file that is there", code="missing")


def _asked(
    file: str | None, target: str | None, arguments: str | None, ranks: int | None, options: dict[str, Any]
) -> Asked:
    """What is to be proven: a config as its program hands it over, or what a scenario renders."""
    from dsgen.asking import proofs
    from dsgen.jobs.assembly import assemble
    from dsgen.jobs.scenarios import is_scenario, layers
    from dsgen.planning.planner import plan
    from dsgen.proving.subjects import is_factory
    from dsgen.rendering import render
    from dsgen.shapes.errors import mistake

    if file is not None and not is_scenario(file):
        said = [name for name, value in options.items() if value not in (None, ()) and name not in _SUBJECT]
        if said:
            option = _OPTION.get(said[0], said[0].replace("_", "-"))
            raise mistake(
                f"{file} is a DeepSpeed config, and --{option} describes a scenario",
                must="prove takes one of the two",
                todo="Drop the options, or name a scenario file.",
                code="contradiction",
            )
        return proofs.asked(file, target=target, arguments=arguments, ranks=ranks, model=_trained(options))
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
    return proofs.of_rendered(render(plan(assemble(layers(scenario), scenario.deepspeed))))


def _trained(options: dict[str, Any]) -> Any:
    """The model and the method that options say beside a config."""
    from dsgen.asking import proofs
    from dsgen.cli.options import fields_from

    fields = {name: item.value for name, item in fields_from(dict(options), _SUBJECT[1:]).items()}
    return proofs.trained(options["model"], **fields)
