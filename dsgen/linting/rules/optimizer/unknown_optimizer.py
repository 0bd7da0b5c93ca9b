"""A type of optimizer that the release does not have."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.deepspeed.keys import say
from dsgen.linting.rules.arguments import ONE_BIT, client_wins
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity
from dsgen.shapes.near_misses import alike

__all__ = ["RULE", "check"]

_WRITTEN = {  # DeepSpeed keeps its own names in small letters
    "adagrad": "Adagrad",
    "adam": "Adam",
    "adamw": "AdamW",
    "lamb": "Lamb",
    "lion": "Lion",
    "muadam": "MuAdam",
    "muadamw": "MuAdamW",
    "musgd": "MuSGD",
    "muon": "Muon",
}
_OTHER_NAMES = {  # what other programs call DeepSpeed's Adam
    "adamwtorch": "AdamW",
    "adamwhf": "AdamW",
    "fusedadam": "AdamW",
    "cpuadam": "AdamW",
}


def check(subject: Subject) -> Iterator[Fault]:
    """The type, where the release has nothing of that name."""
    name = subject.raw("optimizer.type")
    known = subject.surface
    if not isinstance(name, str) or client_wins(subject) or name.lower() in ONE_BIT:
        return
    if known.forms("optimizer", name) is not None:
        return
    torch = known.classes("optimizer", torch=True)
    exact = next((other for other in torch if other.lower() == name.lower()), None)
    meant = exact or _OTHER_NAMES.get(name.lower().replace("_", ""))
    own = tuple(_WRITTEN.get(other, other) for other in known.classes("optimizer") if other not in ONE_BIT)
    names = alike(name, (*own, *torch))
    best = meant or (names[0] if len(names) == 1 else None)
    fix = Fix(f"write {best}", (Assign("optimizer.type", best),), safe=exact is not None) if best else None
    near = f"there is {' and '.join(names)}" if names else f"it has {', '.join(own)} and those of torch.optim"
    hint = f"; {exact} is meant" if exact else "" if meant else f"; {near}"
    message = f"DeepSpeed {known.version} has no optimizer {say(name)} and stops in deepspeed.initialize{hint}"
    yield Fault("optimizer.type", message, fix, on="value")


RULE = Rule(
    code="DSG502",
    name="unknown-optimizer",
    severity=Severity.ERROR,
    what="The optimizer is neither one of DeepSpeed nor a class of torch.optim.",
    why=(
        "deepspeed.initialize stops with `X is not a supported DeepSpeed Optimizer`. DeepSpeed's own names count "
        "in any case of letters, those of torch.optim only exactly: `adamw` is right, `sgd` is not."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "sgd", "params": {"lr": 0.01}},
  "zero_optimization": {"stage": 0}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "SGD", "params": {"lr": 0.01}},
  "zero_optimization": {"stage": 0}
}""",
    evidence=(
        "deepspeed/runtime/engine.py (0.19.8): _is_supported_optimizer",
        "probes A_opt_type_unknown, OPT_sgd_lower",
    ),
    check=check,
)
