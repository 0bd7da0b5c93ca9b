"""What DeepSpeed builds from the sections optimizer and scheduler, and which arguments that takes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from dsgen.deepspeed.keys import say
from dsgen.linting.subjects import OPEN, Subject
from dsgen.shapes.findings import Assign, Fix

__all__ = [
    "ONE_BIT",
    "TORCH_NUMBERS",
    "Built",
    "arguments",
    "built_optimizer",
    "built_schedule",
    "client_wins",
    "number",
    "number_fix",
    "peak",
    "schedule_hides_lr",
    "unknown",
]

TORCH_NUMBERS = (  # arguments of torch.optim.lr_scheduler that the first steps compute with
    *("step_size", "gamma", "T_max", "eta_min", "start_factor", "end_factor", "total_iters", "power", "factor"),
    *("T_0", "T_mult"),
)
ONE_BIT = ("onebitadam", "zerooneadam", "onebitlamb")  # removed in 0.19.7

_SHORT = ("deepspeed.ops.adam.", "deepspeed.ops.adagrad.", "deepspeed.ops.lamb.", "deepspeed.ops.lion.")
_PEAKS = {  # schedule -> the argument that sets the learning rate in the optimizer's place
    "WarmupLR": "warmup_max_lr",
    "WarmupDecayLR": "warmup_max_lr",
    "OneCycle": "cycle_max_lr",
    "LRRangeTest": "lr_range_test_min_lr",
}


@attrs.frozen
class Built:
    """The class that DeepSpeed makes an instance of.

    Attributes:
        title: What a person calls it: "FusedAdam", "torch.optim.AdamW".
        defaults: Argument -> its default.
        also: Arguments that DeepSpeed itself takes out before it makes the instance.
        required: Arguments without a default.
        drops: Whether DeepSpeed drops what it does not know instead of passing it on.
    """

    title: str
    defaults: Mapping[str, Any]
    also: tuple[str, ...]
    required: tuple[str, ...]
    drops: bool = False

    @property
    def torch(self) -> bool:
        """Whether it is one of torch's own classes."""
        return self.title.startswith("torch.")

    def takes(self, name: str) -> bool:
        """Whether an argument of this name reaches somebody."""
        return name in self.defaults or name in self.also


def client_wins(subject: Subject) -> bool:
    """Whether the program passes an optimizer of its own, so that the section optimizer is never built."""
    return subject.facts.client_optimizer in ("torch", "deepspeed")


def built_optimizer(subject: Subject) -> Built | None:
    """The optimizer that will be built; None for none, for an unknown one and for one of another package.

    Adam has three classes: FusedAdam, DeepSpeedCPUAdam where the optimizer is offloaded (at any stage), and torch's
    with torch_adam, which wins over both (get_optimizer_configuration in deepspeed/runtime/engine.py).
    """
    forms = subject.surface.forms("optimizer", subject.raw("optimizer.type"))
    if not forms or client_wins(subject):
        return None
    params = subject.section("optimizer.params")
    by_kind = {form.get("when", ""): form for form in forms}
    wanted = (
        "torch_adam" if params.get("torch_adam") else "gpu" if subject.offload("optimizer") == "none" else "offload"
    )
    form = by_kind.get(wanted, forms[0])
    if wanted == "torch_adam" and subject.optimizer == "adam" and params.get("adam_w_mode", True) in (False, 0):
        plain = {"title": "torch.optim.Adam", "defaults": {**form["params"], "decoupled_weight_decay": False}}
        return _built(form, **plain)
    return _built(form)


def built_schedule(subject: Subject) -> Built | None:
    """The schedule that will be built; None for none and for an unknown one."""
    forms = subject.surface.forms("scheduler", subject.raw("scheduler.type"))
    return _built(forms[0]) if forms else None


def arguments(subject: Subject, section: str) -> Mapping[str, Any]:
    """The arguments written for the "optimizer" or the "scheduler"."""
    return subject.section(f"{section}.params")


def unknown(subject: Subject, section: str, built: Built) -> Iterator[str]:
    """The names of the arguments that the class does not take."""
    for name in arguments(subject, section):
        if not built.takes(name) and name != "max_grad_norm":  # that one has an error, and a rule, of its own
            yield name


def number(value: object) -> float | None:
    """A finite number, or None for anything else; true and false are none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def number_fix(path: str, value: object) -> Fix | None:
    """The fix that writes the number or truth value that a text says; None where it says none.

    Unsafe for "false": a text counts as true until it is mended.
    """
    if not isinstance(value, str):
        return None
    text = value.strip().lower()
    if text in ("true", "false"):
        return Fix(f"write {text}", (Assign(path, text == "true"),), safe=text == "true")
    try:
        meant = number(float(text))
    except ValueError:
        return None
    if meant is None:
        return None
    plain = int(meant) if meant.is_integer() else meant
    return Fix(f"write {say(plain)}", (Assign(path, plain),))


def peak(subject: Subject) -> tuple[str, Any] | None:
    """The path and value of the schedule's own learning rate, where it sets one and leaves the optimizer's aside.

    The value is OPEN where the program fills it in. None for a schedule that follows the optimizer's.
    """
    name = _PEAKS.get(str(subject.raw("scheduler.type")))
    built = built_schedule(subject)
    if name is None or built is None:
        return None
    path = f"scheduler.params.{name}"
    value = subject.raw(path) if subject.written(path) else built.defaults.get(name)
    return None if value is None else (path, OPEN if value == "auto" else value)


def schedule_hides_lr(subject: Subject) -> bool:
    """Whether nothing computes with the optimizer's lr: these keep it unread until the schedule replaces it."""
    built = built_optimizer(subject)
    return built is not None and built.title in ("FusedAdam", "Muon") and peak(subject) is not None


def _built(form: Mapping[str, Any], **other: Any) -> Built:
    title = form.get("class", "Muon")
    for start in _SHORT:
        title = title.removeprefix(start)
    facts = {
        "title": title.removeprefix("deepspeed.runtime.lr_schedules."),
        "defaults": form["params"],
        "also": tuple(form.get("also", ())),
        "required": tuple(form["required"]),
        "drops": form.get("drops", False),
    }
    return Built(**{**facts, **other})
