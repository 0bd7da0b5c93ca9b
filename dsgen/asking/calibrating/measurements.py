"""What was measured of one run on a machine, beside what was computed for it, as a profile keeps it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from dsgen.shapes.errors import mistake

__all__ = [
    "NUMBERS",
    "REQUIRED",
    "TEXTS",
    "Measurement",
    "fullest",
    "kept",
    "peak_ratio",
    "peak_reason",
    "step_ratio",
    "step_reason",
]

_SAID = ("date", "dsgen", "run", "strategy")
_STEP = ("step_seconds", "predicted_step_seconds")
_PEAK = ("peak_gib", "predicted_peak_gib", "peak_memory_ratio")
# As a profile has them: of text, numbers above 0, and those of either that are never left out.
TEXTS, NUMBERS, REQUIRED = (*_SAID, "peak_of"), (*_STEP, *_PEAK), (*_SAID, *_STEP)


@attrs.frozen(kw_only=True)
class Measurement:
    """One run that was measured.

    Attributes:
        date: When, such as 2026-11-23.
        dsgen: The release of dsgen that computed what was predicted.
        run: What ran where: "7b on 8 GPUs".
        strategy: How: strategy, batch, length, dtype.
        step_seconds, predicted_step_seconds: One optimizer step, measured and computed.
        peak_of: What the peak is of: allocated, reserved or card.
        peak_gib, predicted_peak_gib: The fullest GPU's peak in GiB, measured and computed; None where nobody measured.
        peak_memory_ratio: Of the tensors in it, what was measured by what was computed.
    """

    date: str
    dsgen: str
    run: str
    strategy: str
    step_seconds: float
    predicted_step_seconds: float
    peak_of: str | None = None
    peak_gib: float | None = None
    predicted_peak_gib: float | None = None
    peak_memory_ratio: float | None = None

    @property
    def step_time_ratio(self) -> float:
        """Measured by computed seconds of a step."""
        return self.step_seconds / self.predicted_step_seconds

    @property
    def facts(self) -> dict[str, Any]:
        """As a map of a profile; what nobody measured is left out."""
        return {name: value for name, value in attrs.asdict(self).items() if value is not None}


def kept(written: Sequence[Mapping[str, Any]], where: str) -> tuple[Measurement, ...]:
    """The measurements that a profile keeps.

    Raises:
        DsgenError: One of them is not as dsgen calibrate writes it.
    """
    return tuple(_read(facts, f"measurements[{place}]", where) for place, facts in enumerate(written))


def _read(facts: Mapping[str, Any], path: str, where: str) -> Measurement:
    known = {field.name for field in attrs.fields(Measurement)}
    wrong = next((name for name in facts if name not in known), None)
    wrong = wrong or next((name for name in REQUIRED if name not in facts), None)
    wrong = wrong or next((name for name in NUMBERS if name in facts and not _positive(facts[name])), None)
    if wrong is None and any(name in facts for name in (*_PEAK, "peak_of")):
        wrong = next((name for name in (*_PEAK, "peak_of") if name not in facts), None)
    if wrong is not None:
        raise mistake(
            f"{path}.{wrong} is {facts.get(wrong, 'missing')}",
            must="it must be as dsgen calibrate writes it",
            where=where,
            todo="Remove that measurement, or write a new profile with -o and the --hw that this one extends.",
        )
    said: dict[str, Any] = {name: str(value) if name in TEXTS else value for name, value in facts.items()}
    return Measurement(**said)


def _positive(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value > 0


def step_ratio(measured: Sequence[Measurement]) -> float:
    """Measured by computed seconds of several runs: their geometric mean, in which none counts more."""
    return math.exp(sum(math.log(one.step_time_ratio) for one in measured) / len(measured))


def peak_ratio(measured: Sequence[Measurement]) -> float | None:
    """Measured by computed tensors of several runs: the largest, so that what was seen to be taken is never denied."""
    return max((one.peak_memory_ratio for one in measured if one.peak_memory_ratio is not None), default=None)


def step_reason(measured: Sequence[Measurement]) -> str:
    """What the ratio of steps rests on, for a person: "measured 12.3 s against predicted 10.9 s"."""
    if len(measured) == 1:
        one = measured[0]
        return f"measured {one.step_seconds:.4g} s against predicted {one.predicted_step_seconds:.4g} s"
    ratios = [one.step_time_ratio for one in measured]
    return f"geometric mean of {len(ratios)} measurements of x {min(ratios):.3g} to {max(ratios):.3g}"


def peak_reason(measured: Sequence[Measurement]) -> str:
    """What the ratio of peaks rests on: the largest of those that were measured."""
    every = [one for one in measured if one.peak_memory_ratio is not None]
    one = fullest(every)
    told = f"measured {one.peak_gib:.4g} GiB {one.peak_of} against predicted {one.predicted_peak_gib:.4g} GiB"
    return told if len(every) == 1 else f"largest of {len(every)}: {told}"


def fullest(measured: Sequence[Measurement]) -> Measurement:
    """The measurement whose peak is most beyond what was computed; one of them must have a peak."""
    return max(measured, key=lambda one: one.peak_memory_ratio or 0.0)
