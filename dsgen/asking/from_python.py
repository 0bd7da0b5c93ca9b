"""What `import dsgen` offers of proofs: DeepSpeed started with a config, and a certificate of it asked again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from dsgen.asking import proofs
from dsgen.jobs import scenarios
from dsgen.proving import certificates, prover
from dsgen.proving.adaptation import rank_count
from dsgen.proving.certificates import Claims, Verified
from dsgen.proving.prover import Proof
from dsgen.rendering import Config, render
from dsgen.rendering.wanted import Path, Values, plan, scenario
from dsgen.shapes.arguments import names_arguments, path_of
from dsgen.shapes.errors import mistake

__all__ = ["prove", "verify"]


@names_arguments()
def prove(
    source: Values | Path,
    *,
    model: str | Values | None = None,
    target: str | None = None,
    arguments: Path | None = None,
    method: str | None = None,
    lora_rank: int | None = None,
    lora_targets: Sequence[str] | None = None,
    lora_dropout: float | None = None,
    lora_train_embeddings: bool | None = None,
    ranks: int | None = None,
    device: str = "auto",
    steps: int = 3,
    timeout_seconds: float = 600,
    certificate: Path | None = None,
    force: bool = False,
    python: str | None = None,
) -> Proof:
    """Start a real deepspeed.initialize with a config and check what it observed; `.outcome` says whether it holds.

    A rendered `Config` and a scenario are proven with a tiny sibling of their own model, and with adapters where their
    method has them.

    Args:
        source: A config: a Config, a dict of DeepSpeed's keys or a file; or the path of a scenario.
        model: For a config: a model profile, a config.json or what stands in it, made tiny; or package.module:function
            of your own, which is then run in the child process. By default a tiny Llama.
        target: For a config: the program that hands it over, which fills in "auto".
        arguments: File of the Trainer's arguments, YAML or JSON.
        method, lora_rank, lora_targets, lora_dropout, lora_train_embeddings: For a config: what is trained.
        ranks: Processes; by default 2, or the AutoTP degree where that is larger.
        device: "auto" takes CUDA where there is a GPU for every rank, else "cpu".
        steps: Optimizer steps.
        timeout_seconds: For everything, the building of DeepSpeed's operators included.
        certificate: File to write what was proven to, which `verify` reads; nothing is written where the proof fails.
        force: Write over a certificate that is there.
        python: Interpreter that has torch, deepspeed and transformers; by default this one.

    Raises:
        DsgenError: Unreadable, a package is missing, an argument is not what it must be, or a file is in the way.
    """
    if certificate is not None:
        certificates.ensure_new(path_of(certificate), force=force)
    said: dict[str, Any] = {"model": model, "method": method, "lora_rank": lora_rank, "lora_targets": lora_targets,
            "lora_dropout": lora_dropout, "lora_train_embeddings": lora_train_embeddings}  # fmt: skip
    rendered = _rendered(source)
    if rendered is None:
        asked = source if isinstance(source, Mapping) else path_of(source)
        told = None if arguments is None else path_of(arguments)
        question = proofs.asked(asked, target=target, arguments=told, ranks=ranks, model=proofs.trained(**said))
    else:
        _is_of_a_job({**said, "target": target, "arguments": arguments})
        question = proofs.of_rendered(rendered)
    (proof,) = proofs.proven(
        [question], ranks=ranks, device=device, steps=steps, timeout_seconds=timeout_seconds, python=python
    )
    if certificate is not None and proof.outcome == prover.PROVED:
        certificates.certify(proof).write(path_of(certificate), force=force)
    return proof


@names_arguments()
def verify(
    certificate: Path,
    source: Values | Path,
    *,
    model: str | Values | None = None,
    target: str | None = None,
    arguments: Path | None = None,
    method: str | None = None,
    lora_rank: int | None = None,
    lora_targets: Sequence[str] | None = None,
    lora_dropout: float | None = None,
    lora_train_embeddings: bool | None = None,
    ranks: int | None = None,
    device: str = "auto",
    steps: int | None = None,
) -> Verified:
    """Whether a certificate still holds for a config, with the packages of this interpreter; nothing is started.

    What is said beside the config is compared with what was proven; what is not said counts as it was proven.

    Args:
        certificate: The file that `prove` wrote.
        source: As `prove` takes it.
        model, method, lora_rank, lora_targets, lora_dropout, lora_train_embeddings: As `prove` takes them.
        target: The program that hands it over.
        arguments: File of the Trainer's arguments: then what it fills in is compared too.
        ranks, device, steps: As `prove` takes them.

    Raises:
        DsgenError: It is no certificate, one of another schema version, or one that was changed; or as `prove`.
    """
    record = certificates.read(path_of(certificate))
    prover.check_device(device)
    if ranks is not None:
        rank_count({}, ranks)
    beside: dict[str, Any] = {"model": model, "method": method, "lora_rank": lora_rank, "lora_targets": lora_targets,
            "lora_dropout": lora_dropout, "lora_train_embeddings": lora_train_embeddings}  # fmt: skip
    said = Claims(target=target, ranks=ranks, device=device, steps=steps)
    rendered = _rendered(source)
    if rendered is not None:
        _is_of_a_job({**beside, "target": target, "arguments": arguments})
        return proofs.verified_rendered(record, rendered, said)
    if any(value is not None for value in beside.values()):
        said = attrs.evolve(said, trained=proofs.trained(**beside))
    asked = source if isinstance(source, Mapping) else path_of(source)
    return proofs.verified(record, asked, said, arguments=None if arguments is None else path_of(arguments))


def _is_of_a_job(said: Mapping[str, Any]) -> None:
    """Refuse beside a job what it says itself."""
    if extra := [name for name, value in said.items() if value is not None]:
        raise mistake(f"{extra[0]} is for a config of your own", must="a job says it itself", code="contradiction")


def _rendered(source: Values | Path) -> Config | None:
    """What dsgen itself renders: a Config, or a scenario's; None for a config of a person's own."""
    if isinstance(source, Config):
        return source
    if isinstance(source, Mapping) or not scenarios.is_scenario(path_of(source)):
        return None
    return render(plan(scenario(path_of(source))))
