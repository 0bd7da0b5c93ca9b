"""An optimizer of the program's own under offload_optimizer."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.setups import refused
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Remove, Severity
from dsgen.targets.hf_trainer import HF_TRAINER

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The offload, where the program's optimizer is torch's."""
    if _the_trainers_own(subject):
        old = "zero_optimization.cpu_offload"
        message = (
            f"{old} is true and the config has no optimizer: the Trainer makes torch's AdamW, since Accelerate looks "
            "at offload_optimizer alone, and DeepSpeed stops (ZeRORuntimeException)"
        )
        new = "zero_optimization.offload_optimizer"
        yield Fault(old, message, Fix(f"write {new}", (Remove(old), Assign(new, {"device": "cpu"}))))
    elif why := refused(subject, "own-optimizer-offloaded"):
        fix = Fix("write false", (Assign("zero_force_ds_cpu_optimizer", False),), safe=False)
        yield Fault("zero_optimization.offload_optimizer", why, fix)


def _the_trainers_own(subject: Subject) -> bool:
    """Whether the Trainer makes an optimizer of torch's, which DeepSpeed then refuses to offload.

    Where `offload_optimizer` says so, Accelerate makes it DeepSpeed's own; the older key it does not know.
    """
    ours = subject.target.name == HF_TRAINER.name and subject.facts.client_optimizer is None
    old = subject.value("zero_optimization.cpu_offload") is True and not subject.written(
        "zero_optimization.offload_optimizer"
    )
    forced = subject.value("zero_force_ds_cpu_optimizer") is not False
    return ours and old and forced and subject.stage > 0 and not subject.written("optimizer")


RULE = Rule(
    code="DSG525",
    name="client-optimizer-under-offload",
    severity=Severity.ERROR,
    what=(
        "The program passes a torch optimizer, offload_optimizer is on, and zero_force_ds_cpu_optimizer is true, "
        "as by default."
    ),
    why=(
        "deepspeed.initialize stops: a torch optimizer updates offloaded states slowly. The ways out are "
        "DeepSpeedCPUAdam, an optimizer in the config, or zero_force_ds_cpu_optimizer false. The Trainer's own AdamW "
        "is made DeepSpeedCPUAdam where offload_optimizer says so, and not for the older cpu_offload."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
  "zero_force_ds_cpu_optimizer": false
}""",
    evidence=(
        "deepspeed/runtime/engine.py (0.19.8): _configure_optimizer",
        "probes O_client_opt_off, O_client_opt_off_force",
        "accelerate/accelerator.py (1.15.0): _prepare_deepspeed, map_pytorch_optim_to_deepspeed",
        "the Trainer of transformers 5.23.0 run with the older key: benchmarks/data/program-verdicts.json",
    ),
    check=check,
    shows=("ZeRO-Offload with a client provided optimizer",),
    given={"client_optimizer": "torch"},
)
