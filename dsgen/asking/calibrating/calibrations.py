"""A measured run against what is computed for it: the ratios, and the profile of the machine that keeps them."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import attrs

from dsgen.asking.calibrating import machine_profiles
from dsgen.asking.calibrating.machine_profiles import Machine
from dsgen.asking.calibrating.measurements import Measurement, kept, peak_ratio, step_ratio
from dsgen.asking.memory_questions import Question, ask, ask_config
from dsgen.asking.plan_questions.weighing import weigh
from dsgen.cost.steps import HIGH_MEASURED, LOW_MEASURED, run_name, speed_interval
from dsgen.jobs.job import Job
from dsgen.linting.sources import Source
from dsgen.memory import Place, Verdict, estimate
from dsgen.planning.candidates import Candidate
from dsgen.planning.planner import plan
from dsgen.shapes.errors import DsgenError, mistake
from dsgen.shapes.profiles import Hardware
from dsgen.strategies.strategies import describe

__all__ = ["PEAKS", "Calibration", "calibrate", "run_of"]

GIB = 2**30
# What a measured peak is of -> what a person reads it from.
PEAKS = {
    "allocated": "torch.cuda.max_memory_allocated, DeepSpeed's Max_MA",
    "reserved": "torch.cuda.max_memory_reserved, DeepSpeed's Max_CA",
    "card": "nvidia-smi, everything on the GPU",
}
_NEAR = 1.3  # a measured time within this factor of a micro-batch's is taken for one
_BOUNDS = {field.name: field.metadata for field in attrs.fields(Hardware)}


@attrs.frozen(kw_only=True)
class Calibration:
    """A measured run beside what was computed for it, and the profile that keeps it.

    Attributes:
        question: What ran.
        predicted: What was computed for it, without any earlier measurement.
        measurement: The run that was measured.
        measurements: All of the profile, this one last.
        step_time_ratio: What the profile says: every step takes so many times what is computed.
        peak_memory_ratio: Every GPU's tensors take so many times what is computed; None where nobody measured.
        warnings: What a person should know of the comparison.
        machine: What the profile says beside them.
    """

    question: Question = attrs.field(repr=False)
    predicted: Candidate = attrs.field(repr=False)
    measurement: Measurement
    measurements: tuple[Measurement, ...] = attrs.field(repr=False)
    step_time_ratio: float
    peak_memory_ratio: float | None
    warnings: tuple[str, ...]
    machine: Machine = attrs.field(repr=False)

    @property
    def job(self) -> Job:
        """The job that ran, on the machine as the profile describes it."""
        job, ratio = self.question.job, self.step_time_ratio
        runs = tuple(one.run for one in self.measurements)
        known = attrs.evolve(
            job.hardware, step_time_ratio=ratio, peak_memory_ratio=self.peak_memory_ratio, measured_runs=runs
        )
        return attrs.evolve(job, hardware=known)

    def profile(self, path: str | None = None) -> str:
        """The hardware profile, in YAML; with the path where it will stand, which it is named after."""
        return machine_profiles.text(self.machine, self.measurements, path)

    def write(self, path: str, *, force: bool = False) -> None:
        """Write the profile, whole or not at all.

        Args:
            path: The file.
            force: Write over another file that is there; the one that was measured before is always added to.

        Raises:
            DsgenError: It cannot be written, or a file is there that must not be lost.
        """
        machine_profiles.write(self.machine, self.measurements, path, force)


def run_of(job: Job, config: Source | None = None) -> Question:
    """What ran: a config as it is, or without one what a plan takes.

    Args:
        job: The job, on the machine as it is known.
        config: A DeepSpeed config as `dsgen.linting.config_reader` reads it.

    Raises:
        DsgenError: A config that cannot be costed, or nothing that fits.
    """
    if config is not None:
        return ask_config(job, config)
    question = ask(job)
    if estimate(job, question.strategy).verdict is not Verdict.DOES_NOT_FIT:
        return question
    try:
        plan(job)  # it says why
    except DsgenError as error:
        if error.code != "does-not-fit":
            raise
        raise mistake(
            f"no step is computed, because {error.what}",
            where=error.where,
            todo="If it ran all the same, name what ran: --config ds_config.json.",
            code="does-not-fit",
        ) from None
    return question


def calibrate(
    question: Question,
    step_seconds: float,
    peak_gib: float | None = None,
    peak_of: str = "allocated",
    today: datetime.date | None = None,
) -> Calibration:
    """What a measured run says of its machine.

    One measurement tells one thing, so one ratio scales all: the whole step, whatever fills it, and all tensors of a
    GPU, whatever they are. Earlier measurements of the machine stay; what is computed is always without them, and the
    run that was measured before is replaced.

    Args:
        question: What ran.
        step_seconds: One optimizer step, all of its micro-batches.
        peak_gib: The fullest GPU's peak.
        peak_of: What that is of: one of PEAKS.
        today: When it was measured.

    Raises:
        DsgenError: A number that no run has, or so far from what is computed that it cannot be of the same run.
    """
    _check_number(step_seconds, "step-seconds", "seconds")
    if peak_gib is not None:
        _check_number(peak_gib, "peak-gib", "GiB")
    if peak_of not in PEAKS:
        raise mistake(f"peak-of is {peak_of!r}", must=f"it must be one of {', '.join(PEAKS)}")
    job = question.job
    machine = machine_profiles.machine(job)
    bare = attrs.evolve(job.hardware, step_time_ratio=None, peak_memory_ratio=None, measured_runs=None)
    predicted = weigh(attrs.evolve(job, hardware=bare), question.strategy)
    seconds = predicted.cost.seconds
    if not _allowed("step_time_ratio", step_seconds / seconds):
        raise _too_far(
            f"a step of {_told(step_seconds)} s", f"{_told(seconds)} s", _perhaps(question, step_seconds, seconds)
        )
    measurement = Measurement(
        date=(today or datetime.date.today()).isoformat(),
        dsgen=version("dsgen"),
        run=run_name(job),
        strategy=_strategy(question),
        step_seconds=float(step_seconds),
        predicted_step_seconds=_short(seconds),
        **_peak(predicted.memory.gpu, peak_gib, peak_of),
    )
    earlier = kept(machine.measurements, machine.file)
    others = [one for one in earlier if (one.run, one.strategy) != (measurement.run, measurement.strategy)]
    every = (*others, measurement)
    return Calibration(
        question=question,
        predicted=predicted,
        measurement=measurement,
        measurements=every,
        step_time_ratio=_short(step_ratio(every)),
        peak_memory_ratio=_short(ratio) if (ratio := peak_ratio(every)) is not None else None,
        warnings=tuple(_warnings(question, predicted, measurement, others)),
        machine=machine,
    )


def _short(value: float) -> float:
    """A computed number with the digits that a profile keeps."""
    return float(f"{value:.6g}")


def _told(value: float) -> str:
    """A number for a person."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _check_number(value: object, option: str, unit: str) -> None:
    if type(value) not in (int, float) or not math.isfinite(value) or value <= 0:  # type: ignore[arg-type, operator]
        raise mistake(f"--{option} is {value}", must=f"it must be a number of {unit} above 0", where=None)


def _allowed(fact: str, ratio: float) -> bool:
    return bool(_BOUNDS[fact]["above"] < ratio < _BOUNDS[fact]["below"])


def _too_far(measured: str, predicted: str, perhaps: str) -> DsgenError:
    return mistake(
        f"{measured} was measured, and {predicted} is computed",
        must="they are too far apart to be of the same run",
        todo=f"{perhaps} Name what really ran: --config ds_config.json, --model, --gpus, --seq-len.",
        code="contradiction",
    )


def _perhaps(question: Question, measured: float, predicted: float) -> str:
    """What a time that is far off may be instead."""
    steps = question.strategy.accumulation
    if steps > 1 and 1 / _NEAR < measured * steps / predicted < _NEAR:
        return f"It is about one of the {steps} micro-batches: a step is all of them."
    if 1 / _NEAR < measured / 1000 / predicted < _NEAR:
        return "It is about the same in milliseconds: seconds are meant."
    return "A step is one update of the weights, all micro-batches, in seconds, after the first few."


def _strategy(question: Question) -> str:
    job, chosen = question.job, question.strategy
    method = "" if job.training.method == "full" else f", {job.training.method}"
    batch = f"micro-batch {chosen.micro_batch} x {chosen.accumulation}, {chosen.global_batch} sequences a step"
    return f"{describe(chosen)}, {batch}, {job.tokens}, {chosen.precision}{method}"


def _peak(gpu: Place, peak_gib: float | None, peak_of: str) -> dict[str, Any]:
    """A measured peak beside what is computed for the same thing, and the ratio of the tensors in both."""
    if peak_gib is None:
        return {}
    if peak_gib * GIB > gpu.limit_bytes:
        raise mistake(
            f"--peak-gib is {peak_gib:g}",
            must=f"the GPU has {gpu.limit_bytes / GIB:.1f} GiB",
            todo="It is of one GPU, in GiB. Another card: --hw.",
            code="contradiction",
        )
    outside = gpu.overhead_bytes - gpu.workspace_bytes
    shown = {"allocated": gpu.allocated_bytes, "reserved": gpu.reserved_bytes, "card": gpu.reserved_bytes + outside}
    held = gpu.overhead_bytes if peak_of == "card" else gpu.workspace_bytes  # follows no tensor
    predicted = shown[peak_of]
    ratio = (peak_gib * GIB - held) / (predicted - held)
    if not _allowed("peak_memory_ratio", ratio):
        perhaps = f"{peak_of} is what {PEAKS[peak_of]} says; --peak-of names another."
        raise _too_far(f"a peak of {_told(peak_gib)} GiB", f"{_told(predicted / GIB)} GiB", perhaps)
    return {
        "peak_of": peak_of,
        "peak_gib": float(peak_gib),
        "predicted_peak_gib": _short(predicted / GIB),
        "peak_memory_ratio": _short(ratio),
    }


def _warnings(
    question: Question, predicted: Candidate, measured: Measurement, others: list[Measurement]
) -> Iterator[str]:
    yield from question.job.warnings if question.subject is None else question.notes
    low, high = speed_interval(predicted.job, predicted.strategy)
    seconds = predicted.cost.seconds
    if not seconds / high <= measured.step_seconds <= seconds / low:
        said = f"{_told(measured.step_seconds)} s lie outside of {seconds / high:.3g} to {seconds / low:.3g} s"
        perhaps = _perhaps(question, measured.step_seconds, seconds)
        yield f"{said}, where nine of ten published runs lie. {perhaps}"
    if predicted.memory.verdict is Verdict.DOES_NOT_FIT:
        yield "dsgen computes that what ran does not fit" + (
            "" if measured.peak_gib is not None else ": --peak-gib tells it what was taken"
        )
    if others:
        apart = step_ratio(others) / measured.step_time_ratio  # as a speed, the one measured now by the earlier ones
        if not LOW_MEASURED <= apart <= HIGH_MEASURED:
            yield (
                f"earlier measurements say x {step_ratio(others):.3g}, this one x {measured.step_time_ratio:.3g}: "
                "one ratio does not describe both; a profile for each describes either"
            )
