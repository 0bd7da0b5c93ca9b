"""The time of a simulated step as text and as data: what fills it, what is hidden behind it, and what that makes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dsgen.report.tables import table
from dsgen.simulating import Simulation, Timeline

__all__ = ["data", "text_lines"]

_LEAST = 0.001  # share of the step below which a part is not worth a line
_TERA = 1e12


def text_lines(simulation: Simulation, width: int) -> Iterator[str]:
    """The step's seconds, what fills them, and what runs beside; nothing where there is no time."""
    time = simulation.step_time
    if time is None or not time.seconds:
        return
    told = _told(simulation, time)
    yield (
        f"step {simulation.run.steps} takes {_seconds(time.seconds)}: {told['tokens_per_second_per_gpu']:,.0f} "
        f"tokens/s/GPU, {told['model_flops_per_second'] / _TERA:,.1f} TFLOP/s a GPU, MFU {told['mfu']:.1%}, "
        f"HFU {told['hfu']:.1%}"
    )
    parts = sorted(time.parts.items(), key=lambda item: -item[1])
    hidden = time.hidden
    rows = [
        [name, _seconds(seconds), f"{seconds / time.seconds:.1%}", _seconds(hidden[name]) if hidden.get(name) else ""]
        for name, seconds in parts
        if seconds >= _LEAST * time.seconds
    ]
    rows += [
        [name, "", "", _seconds(seconds)]
        for name, seconds in hidden.items()
        if name not in dict(parts) and seconds >= _LEAST * time.seconds
    ]
    yield from table(rows, width, ["what fills it", "seconds", "share", "hidden"]).splitlines()
    yield f"the host works for {_seconds(time.host_seconds)} of it"
    if simulation.run.steps == 1:
        yield "the first step: it makes the optimizer's states, and stage 3 does not prefetch yet"
    if time.nearest is not None:
        yield f"kernels as measured on {time.nearest}: of this GPU there are no measurements"


def data(simulation: Simulation) -> dict[str, Any] | None:
    """The same as plain JSON types; None where there is no time."""
    time = simulation.step_time
    if time is None or not time.seconds:
        return None
    return {
        "step": simulation.run.steps,
        "step_seconds": time.seconds,
        **_told(simulation, time),
        "parts": dict(time.parts),
        "hidden": dict(time.hidden),
        "host_seconds": time.host_seconds,
        "phases": [one._asdict() for one in time.phases],
        "nearest": time.nearest,
    }


def _told(simulation: Simulation, time: Timeline) -> dict[str, float]:
    """Speeds of one GPU.

    FLOPs are those of products and attention that the run makes on this rank; of attention the pairs of positions that
    are seen, its backward counted as twice its forward. MFU leaves out what is recomputed, HFU counts it; both are by
    the dense peak of the run's dtype.
    """
    model, hardware = time.model_flops / time.seconds, time.hardware_flops / time.seconds
    return {
        "tokens_per_second_per_gpu": simulation.tokens_per_step_and_gpu / time.seconds,
        "model_flops_per_second": model,
        "mfu": model / simulation.peak_flops_per_second,
        "hfu": hardware / simulation.peak_flops_per_second,
    }


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.1f} ms"
