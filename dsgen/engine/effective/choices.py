"""The optimizer and the schedule that DeepSpeed's engine makes of a parsed config, asked of the engine itself.

The engine's own methods run on a stand-in without a model. Optimizers are not built, which would compile their
kernels: their constructors note what they are called with. Schedules are built for real and asked for their rates.
"""

from __future__ import annotations

import contextlib
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

from dsgen.engine.pydantic_fields import as_json

__all__ = ["choices"]

_WORDS = ("adam_w_mode", "adamw_mode")  # the same argument in FusedAdam and DeepSpeedCPUAdam
_ROUNDING = 1e-9  # relative; two ways to one rate differ by less
_FURTHEST = 2**24  # steps; no schedule is asked for more


class _StandIn:
    """What the engine's methods need of an engine: the parsed config, and no optimizer of the program's own."""

    client_optimizer = None
    client_lr_scheduler = None
    has_moe_layers = False

    def __init__(self, config: Any) -> None:
        self._config = config
        zenflow = getattr(config.zero_config, "zenflow", None)
        self.zenflow = zenflow is not None
        self.overlap_step = getattr(zenflow, "overlap_step", False)

    def __getattr__(self, name: str) -> Any:
        from deepspeed.runtime.engine import DeepSpeedEngine

        member = inspect.getattr_static(DeepSpeedEngine, name)
        return member.__func__ if isinstance(member, staticmethod) else types.MethodType(member, self)


class _NotedError(Exception):
    """An optimizer's constructor was called: its class, and every argument with its default."""

    def __init__(self, chosen: type, arguments: dict[str, Any]) -> None:
        super().__init__(chosen.__name__)
        self.chosen, self.arguments = chosen, arguments


class _RefusedError(Exception):
    """The constructor would not take its arguments; carries the TypeError that it would raise."""

    def __init__(self, error: TypeError) -> None:
        super().__init__(error)
        self.error = error


def choices(config: Any, open_: list[str]) -> dict[str, Any]:
    """The optimizer and the schedule of a parsed config.

    Args:
        config: A `DeepSpeedConfig`.
        open_: Dotted keys that the target fills in later.

    Returns:
        optimizer: class and arguments (with defaults), or None; schedule: class, arguments, first and highest rate
        (None where they hang on what is not known) and its 1-based step, own (whether they ignore the optimizer's).

    Raises:
        Exception: What `deepspeed.initialize` would raise.
    """
    engine = _StandIn(config)
    chosen: dict[str, Any] = {"optimizer": None, "schedule": None}
    if engine.optimizer_name() is not None:
        chosen["optimizer"] = _optimizer(engine)
    if engine.scheduler_name() is not None and not any(path.startswith("scheduler.") for path in open_):
        arguments = (chosen["optimizer"] or {}).get("arguments", {})
        rate = None if "optimizer.params.lr" in open_ else arguments.get("lr")
        chosen["schedule"] = _schedule(engine, rate)
    return chosen


def _optimizer(engine: Any) -> dict[str, Any] | None:
    """The class and the arguments that the engine calls; None where only a real model would tell."""
    import torch

    name = engine.optimizer_name()
    if not engine._is_supported_optimizer(name):  # the engine's own sanity check, in its own words
        raise AssertionError(f"{name} is not a supported DeepSpeed Optimizer")
    weights = [torch.nn.Parameter(torch.zeros(1, 1)) for _ in range(2)]
    for weight, muon in zip(weights, (True, False), strict=True):
        weight.use_muon = muon
    try:
        with _noting():
            engine._configure_basic_optimizer(weights)
    except _NotedError as noted:
        return _noted(noted)
    except _RefusedError as refused:
        raise refused.error from None
    except ValueError:
        if "max_grad_norm" in (engine.optimizer_params() or {}):  # the engine's own refusal of it
            raise
    except Exception:  # a package that is not installed here, or a release whose engine asks for more than we stand in
        return None
    return None


def _noted(noted: _NotedError) -> dict[str, Any]:
    known = noted.arguments
    mode = next((known.pop(word) for word in _WORDS if word in known), None)
    if mode is not None:
        known["adam_w_mode"] = mode
    names = {key: as_json(value) for key, value in known.items() if key not in ("self", "params", "model_params")}
    return {"class": noted.chosen.__name__, "arguments": names}


@contextlib.contextmanager
def _noting() -> Iterator[None]:
    """Every optimizer's constructor notes its call instead of building."""
    import torch

    classes = list(_below(torch.optim.Optimizer))
    own = {cls: cls.__dict__["__init__"] for cls in classes if "__init__" in cls.__dict__}
    for cls, original in own.items():
        cls.__init__ = _noter(original)
    try:
        yield
    finally:
        for cls, original in own.items():
            cls.__init__ = original


def _below(cls: Any) -> Iterator[Any]:
    """Every class derived from a class."""
    for derived in cls.__subclasses__():
        yield derived
        yield from _below(derived)


def _noter(original: Callable[..., None]) -> Callable[..., None]:
    signature = inspect.signature(original)

    def note(self: Any, *arguments: Any, **named: Any) -> None:
        try:
            bound = signature.bind(self, *arguments, **named)
        except TypeError as error:
            raise _RefusedError(TypeError(f"{type(self).__name__}.__init__() {error}")) from None
        bound.apply_defaults()
        given = dict(bound.arguments)
        for parameter in signature.parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                given.update(given.pop(parameter.name))
        raise _NotedError(type(self), given)

    return note


def _schedule(engine: Any, rate: float | None) -> dict[str, Any]:
    """The schedule at the optimizer's rate, and again at twice the rate: does it follow?"""
    base = rate if isinstance(rate, (int, float)) and not isinstance(rate, bool) and rate > 0 else None
    scheduler, rates = _rates(engine, base or 1.0)
    _, doubled = _rates(engine, 2 * (base or 1.0))
    own = rates == doubled
    known = base is not None or own
    highest = max(rates.values())
    peak = next(step for step, value in rates.items() if value >= highest - abs(highest) * _ROUNDING)
    return {
        "class": type(scheduler).__name__,
        "arguments": _arguments(engine),
        "first": rates[0] if known else None,
        "highest": rates[peak] if known else None,
        "at_step": peak + 1 if len(rates) > 1 else None,
        "own": own,
    }


def _arguments(engine: Any) -> dict[str, Any]:
    """The schedule's arguments with their defaults."""
    import torch
    from deepspeed.runtime import lr_schedules

    name = engine.scheduler_name()
    cls = getattr(lr_schedules, name, None) or getattr(torch.optim.lr_scheduler, name)
    signature = inspect.signature(cls)
    bound = signature.bind(None, **engine.scheduler_params())
    bound.apply_defaults()
    names = list(signature.parameters)
    return {key: as_json(value) for key, value in bound.arguments.items() if key != names[0]}


def _rates(engine: Any, rate: float) -> tuple[Any, dict[int, float]]:
    """A fresh schedule, and the rate of optimizer steps, 0-based: the first, and those around each number it takes.

    The engine steps the schedule after the optimizer, so the schedule's own count is one behind.
    """
    import torch

    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=rate)
    scheduler = engine._scheduler_from_config(optimizer)
    group = optimizer.param_groups[0]
    rates = {0: float(group["lr"])}
    counts = [v for v in _arguments(engine).values() if isinstance(v, int) and not isinstance(v, bool)]
    counts += [v for v in vars(scheduler).values() if isinstance(v, int) and not isinstance(v, bool)]
    steps = {near for count in counts for near in (count - 1, count, count + 1)} | {2**power for power in range(12)}
    with contextlib.suppress(Exception):  # torch's own schedules cannot be set to a step
        for step in sorted(step for step in steps if 0 < step <= _FURTHEST):
            scheduler.step(step - 1)
            rates[step] = float(group["lr"])
    return scheduler, rates
