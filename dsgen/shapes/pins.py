"""What a person has already decided: overrides that restrict the search for a strategy before it starts."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from dsgen.shapes.errors import mistake
from dsgen.shapes.layers import Override, Provenance, Rank, show

__all__ = ["LARGEST_COUNT", "PINNING", "Pin", "collect", "deciders"]

Values = tuple[Any, ...]

LARGEST_COUNT = 10**9  # GPUs, sequences, tokens, layers: nothing larger is built, and below it the search is short


class Pin(NamedTuple):
    """One field of a Strategy, the values still allowed, and the override that says so."""

    field: str
    allowed: Values
    override: Override

    def __str__(self) -> str:
        said, where = f"{self.override.path} = {show(self.override.value)}", str(self.override.origin)
        return f"{said} ({where})" if where else said


def _stage(value: Any) -> Values:
    if value is None:
        return (0,)  # a config without a stage has none: DeepSpeed's default
    if value not in (0, 1, 2, 3):
        raise ValueError("it must be 0, 1, 2 or 3")
    return (value,)


def _unless_auto(value: Any) -> Values:
    return () if value in (None, "auto") else (value,)


def _count(value: Any) -> Values:
    if value in (None, "auto"):
        return ()
    if type(value) is not int or not 1 <= value <= LARGEST_COUNT:
        raise ValueError(f"it must be a whole number from 1 to {LARGEST_COUNT:,}")
    return (value,)


def _device(value: Any) -> Values:
    if value not in (None, "none", "cpu", "nvme"):
        raise ValueError("it must be none, cpu or nvme")
    return (value or "none",)


def _absent(allowed: Values) -> Callable[[Any], Values]:
    """A whole section: deleted it leaves DeepSpeed's default, and otherwise its keys decide."""
    return lambda value: allowed if value is None else ()


def _degree(value: Any) -> Values:
    return _count(value) if value else (1,)


def _enabled(dtype: str, others: Values) -> Callable[[Any], Values]:
    return lambda value: (dtype,) if value is True else () if value == "auto" else others


_OFFLOAD_OPTIMIZER = {"none": ("none",), "cpu": ("cpu",), "optimizer": ("cpu",), "all": ("cpu",), "nvme": ("nvme",)}
_OFFLOAD_PARAM = {
    "none": ("none",),
    "cpu": ("none", "cpu"),
    "optimizer": ("none",),
    "all": ("cpu",),
    "nvme": ("none", "cpu", "nvme"),
}
_CHECKPOINTING = {"none": (False,), "full": (True,)}

# path -> the strategy fields it decides and how a written value reads; () decides nothing (auto, null)
_READ: dict[str, tuple[tuple[str, Callable[[Any], Values]], ...]] = {
    "training.precision": (("precision", _unless_auto),),
    "training.zero_stage": (("stage", lambda value: () if value is None else _stage(value)),),
    "training.tp": (("tp", _count),),
    "training.micro_batch": (("micro_batch", _count),),
    "training.accumulation": (("accumulation", _count),),
    "training.checkpointing": (("checkpointing", lambda value: _CHECKPOINTING.get(value, ())),),
    "training.activation_offloading": (("checkpointing", lambda value: (True,) if value else ()),),
    "training.offload": (
        ("offload_optimizer", lambda value: _OFFLOAD_OPTIMIZER.get(value, ())),
        ("offload_param", lambda value: _OFFLOAD_PARAM.get(value, ())),
    ),
    "deepspeed.zero_optimization": (("stage", _absent((0,))),),
    "deepspeed.zero_optimization.stage": (("stage", _stage),),
    "deepspeed.zero_optimization.offload_optimizer": (("offload_optimizer", _absent(("none",))),),
    "deepspeed.zero_optimization.offload_optimizer.device": (("offload_optimizer", _device),),
    "deepspeed.zero_optimization.offload_param": (("offload_param", _absent(("none",))),),
    "deepspeed.zero_optimization.offload_param.device": (("offload_param", _device),),
    "deepspeed.tensor_parallel": (("tp", _absent((1,))),),
    "deepspeed.tensor_parallel.autotp_size": (("tp", _degree),),
    "deepspeed.train_micro_batch_size_per_gpu": (("micro_batch", _count),),
    "deepspeed.gradient_accumulation_steps": (("accumulation", _count),),
    "deepspeed.train_batch_size": (("train_batch", _count),),
    "deepspeed.bf16.enabled": (("precision", _enabled("bf16", ("fp16", "fp32"))),),
    "deepspeed.fp16.enabled": (("precision", _enabled("fp16", ("bf16", "fp32"))),),
    "deepspeed.bf16": (("precision", _absent(("fp16", "fp32"))),),
    "deepspeed.fp16": (("precision", _absent(("bf16", "fp32"))),),
}

PINNING = tuple(_READ)
"""Every path that can pin a field of a strategy; a section stands before its keys."""


def collect(provenance: Provenance) -> tuple[Pin, ...]:
    """The pins in force, the strongest first.

    A pin of a lower rank that a higher one contradicts has lost, like any override. Two of one rank that
    contradict each other are a mistake of the user.

    Raises:
        DsgenError: A value that no strategy has, or two pins of one rank that leave none; it names the places.
    """
    kept: list[Pin] = []
    for pin in sorted(_all(provenance), key=lambda pin: -pin.override.rank):  # stable: equal ranks stay in order
        rivals = [rival for rival in kept if rival.field == pin.field]
        allowed = _meet([rival.allowed for rival in rivals], pin.allowed)
        if allowed:
            kept.append(pin)
        elif any(rival.override.rank == pin.override.rank for rival in rivals):
            rival = next(rival for rival in rivals if rival.override.rank == pin.override.rank)
            raise mistake(
                f"{rival} and {pin} exclude each other",
                must=f"one {pin.field} must win",
                todo="Drop one of the two.",
                code="contradiction",
            )
    return tuple(kept)


def deciders(path: str) -> tuple[str, ...]:
    """Every path that can pin a field which this path pins, itself included."""
    fields = {field for field, _ in _READ.get(path, ())}
    return (path, *(other for other, read in _READ.items() if other != path and fields & {field for field, _ in read}))


def _all(provenance: Provenance) -> Iterator[Pin]:
    for path, fields in _READ.items():
        history = provenance.history(path)
        if not history or history[-1].rank <= Rank.PLAN:
            continue
        for field, read in fields:
            try:
                values = read(history[-1].value)
            except ValueError as error:
                shown = show(history[-1].value)
                raise mistake(f"{path} is {shown}", must=str(error), where=history[-1].origin) from None
            if values:
                yield Pin(field, values, history[-1])


def _meet(rivals: list[Values], allowed: Values) -> Values:
    return tuple(value for value in allowed if all(value in other for other in rivals))
