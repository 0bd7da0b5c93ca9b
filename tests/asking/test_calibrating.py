"""A measurement: what it says of a machine, what it leaves alone, and what later plans make of it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import attrs
import pytest

import dsgen
from dsgen.asking.calibrating import effect
from dsgen.asking.memory_questions import ask_config, given
from dsgen.cost import cost
from dsgen.cost.steps import HIGH, HIGH_ALIKE, HIGH_MEASURED, LOW, LOW_ALIKE, LOW_MEASURED, run_name, speed_interval
from dsgen.memory import Verdict, estimate
from dsgen.planning.planner import plan

BOX = {"hw": "a100-40g", "model": "7b", "gpus": 8}
GIB = 2**30
MEASURED = 45.2  # seconds, where 41 to 42 are computed


def written(folder: Path, name: str = "my-box.yaml", **said: Any) -> str:
    """The profile of a calibrated box."""
    path = folder / name
    dsgen.calibrate(said.pop("wanted", BOX), **{"step_seconds": MEASURED, **said}).write(str(path))
    return str(path)


def test_what_is_predicted_then_is_what_was_measured(tmp_path: Path) -> None:
    box = written(tmp_path, peak_gib=31.0)

    chosen = dsgen.plan({**BOX, "hw": box}).chosen

    assert chosen.strategy == dsgen.plan(BOX).chosen.strategy
    assert chosen.cost.seconds == pytest.approx(MEASURED, rel=1e-4)
    gpu = chosen.memory.gpu
    assert gpu.peak_bytes + gpu.overhead["cuBLAS workspace"] == pytest.approx(31.0 * GIB, rel=1e-4)
    assert sum(gpu.parts.values()) == gpu.peak_bytes
    assert sum(chosen.cost.parts.values()) == pytest.approx(chosen.cost.seconds)


@pytest.mark.parametrize("stage", [1, 3])
def test_another_strategy_moves_by_the_same_ratio(tmp_path: Path, stage: int) -> None:
    box = written(tmp_path, peak_gib=31.0)
    before, after = dsgen.job(BOX), dsgen.job({**BOX, "hw": box})
    other = attrs.evolve(dsgen.plan(BOX).chosen.strategy, stage=stage)

    plain, scaled = cost(before, other), cost(after, other)

    ratio = after.hardware.step_time_ratio
    assert ratio is not None
    assert scaled.seconds == pytest.approx(plain.seconds * ratio)
    assert scaled.hidden_seconds == pytest.approx(plain.hidden_seconds * ratio)
    assert {name: scaled.parts[name] / ratio for name in plain.parts} == pytest.approx(dict(plain.parts))
    peaks = [estimate(job, other).gpu.peak_bytes for job in (before, after)]
    assert peaks[1] / peaks[0] == pytest.approx(after.hardware.peak_memory_ratio)


@pytest.mark.parametrize("peak", [34.9, 28.0, 22.0])
def test_the_verdict_of_memory_moves_with_the_peak(tmp_path: Path, peak: float) -> None:
    box = written(tmp_path, peak_gib=peak)
    chosen = dsgen.plan(BOX).chosen.strategy
    now = estimate(dsgen.job({**BOX, "hw": box}), chosen)

    assert estimate(dsgen.job(BOX), chosen).verdict is Verdict.FITS
    assert now.verdict is (Verdict.UNCERTAIN if peak > 34 else Verdict.FITS)
    assert now.gpu.low_bytes <= now.gpu.peak_bytes <= now.gpu.high_bytes
    assert sum(now.gpu.parts.values()) == now.gpu.peak_bytes
    assert ("measured beyond these" in now.gpu.parts) and (now.gpu.parts["measured beyond these"] > 0) == (peak > 29)
    assert max(phase.gpu_bytes for phase in now.phases) == now.gpu.peak_bytes


def test_a_search_decides_by_the_measured_memory(tmp_path: Path) -> None:
    box = written(tmp_path, peak_gib=34.9)
    planned = dsgen.plan({**BOX, "hw": box})

    told = effect(planned)

    assert told.changed
    assert told.without == str(dsgen.plan(BOX).chosen.strategy)
    assert told.now == str(planned.chosen.strategy)
    assert f"plan changed from {told.without} to {told.now}" in told.words


def test_a_measured_time_alone_changes_no_plan(tmp_path: Path) -> None:
    box = written(tmp_path)
    slow = dsgen.plan({**BOX, "hw": box})

    told = effect(slow)

    assert not told.changed
    bare = attrs.evolve(slow.job, hardware=attrs.evolve(slow.job.hardware, step_time_ratio=None))
    assert plan(bare).chosen.strategy == slow.chosen.strategy
    assert [str(item.strategy) for item in plan(bare).runners_up] == [str(item.strategy) for item in slow.runners_up]


def test_measurements_do_not_compound(tmp_path: Path) -> None:
    box = written(tmp_path)
    again = dsgen.calibrate({**BOX, "hw": box}, step_seconds=MEASURED)
    other = dsgen.calibrate({**BOX, "hw": box, "zero_stage": 3}, step_seconds=50.0)

    first = dsgen.job({**BOX, "hw": box}).hardware.step_time_ratio
    assert again.step_time_ratio == first
    assert len(again.measurements) == 1  # the same run, measured anew
    assert len(other.measurements) == 2
    assert other.measurement.predicted_step_seconds == pytest.approx(
        dsgen.plan({**BOX, "zero_stage": 3}).chosen.cost.seconds, rel=1e-4
    )
    ratios = [one.step_time_ratio for one in other.measurements]
    assert other.step_time_ratio == pytest.approx(math.sqrt(ratios[0] * ratios[1]), rel=1e-4)


def test_of_several_peaks_the_largest_ratio_counts(tmp_path: Path) -> None:
    box = written(tmp_path, peak_gib=31.0)
    other = dsgen.calibrate({**BOX, "hw": box, "zero_stage": 3}, step_seconds=46.0, peak_gib=20.0)

    low, high = sorted(one.peak_memory_ratio or 0.0 for one in other.measurements)
    assert other.peak_memory_ratio == high > low


def test_each_ratio_names_the_run_that_it_rests_on(tmp_path: Path) -> None:
    box = written(tmp_path, peak_gib=31.0)
    both = dsgen.calibrate({**BOX, "hw": box, "zero_stage": 3}, step_seconds=49.0)
    both.write(box)

    profile = dsgen.catalog.find("hardware", box)
    reasons = {item.path: item.reason for item in profile.layer.overrides if item.origin.source == box}
    low, high = sorted(one.step_time_ratio for one in both.measurements)
    assert low < high
    assert reasons["hardware.step_time_ratio"] == f"geometric mean of 2 measurements of x {low:.2f} to {high:.2f}"
    assert reasons["hardware.peak_memory_ratio"] == "measured 31 GiB allocated against predicted 28.75 GiB"
    assert profile.source_of("step_time_ratio") == "dsgen calibrate: the 2 measurements below"
    assert "ZeRO-2, checkpointing" in (profile.source_of("peak_memory_ratio") or "")


def test_adding_to_the_file_keeps_what_it_extends(tmp_path: Path) -> None:
    box = written(tmp_path)
    dsgen.calibrate({**BOX, "hw": box, "zero_stage": 3}, step_seconds=50.0).write(box)

    profile = dsgen.catalog.find("hardware", box)
    assert (profile.extends, len(profile.measurements)) == ("a100-40g", 2)
    assert dsgen.job({**BOX, "hw": box}).hardware.measured_runs == ("7b on 8 GPUs", "7b on 8 GPUs")


def test_a_file_of_ones_own_is_extended_and_not_written_over(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("kind: hardware\nextends: a100-40g\nhardware:\n  host_memory: 512 GiB  # mine\n")
    made = dsgen.calibrate({**BOX, "hw": str(own)}, step_seconds=MEASURED)

    (tmp_path / "below").mkdir()
    made.write(str(tmp_path / "below" / "box.yaml"))
    with pytest.raises(dsgen.DsgenError, match="would be lost"):
        made.write(str(own), force=True)

    job = dsgen.job({**BOX, "hw": str(tmp_path / "below" / "box.yaml")})
    assert job.hardware.host_memory_bytes == 512 * GIB
    assert job.hardware.step_time_ratio is not None
    assert own.read_text().endswith("# mine\n")


def test_what_was_said_beside_the_profile_is_the_machines_too(tmp_path: Path) -> None:
    small = {"gpu_memory": "24GiB", "gpus": 1, "model": "1b", "method": "lora"}
    box = written(tmp_path, wanted=small, step_seconds=8.0)

    hardware = dsgen.job({"hw": box, "gpus": 1, "model": "1b", "method": "lora"}).hardware
    assert attrs.evolve(hardware, step_time_ratio=None, measured_runs=None) == dsgen.job(small).hardware


def test_a_config_is_costed_as_it_ran() -> None:
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 4,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}},
    }

    made = dsgen.calibrate(BOX, step_seconds=20.0, config=config)

    asked = ask_config(dsgen.job(BOX), given(config))
    assert made.question.strategy == asked.strategy
    assert made.measurement.predicted_step_seconds == pytest.approx(cost(asked.job, asked.strategy).seconds, rel=1e-5)
    assert "ZeRO-3 + CPU optimizer" in made.measurement.strategy


@pytest.mark.parametrize(("of", "gib"), [("allocated", 28.7464), ("reserved", 34.5703), ("card", 35.9819)])
def test_a_peak_is_compared_with_the_same_thing(of: str, gib: float) -> None:
    made = dsgen.calibrate(BOX, step_seconds=40.0, peak_gib=gib, peak_of=of)

    assert made.measurement.predicted_peak_gib == pytest.approx(gib, rel=1e-3)
    assert made.peak_memory_ratio == pytest.approx(1.0, abs=1e-3)


def test_the_interval_narrows_for_other_strategies_of_what_was_measured(tmp_path: Path) -> None:
    box = written(tmp_path)

    def interval(**said: Any) -> tuple[float, float]:
        return speed_interval(dsgen.job({**BOX, "hw": box, **said}))

    assert speed_interval(dsgen.job(BOX)) == (LOW, HIGH)
    assert interval() == interval(zero_stage=3) == (LOW_ALIKE, HIGH_ALIKE)
    assert interval(model="13b") == interval(gpus=4) == (LOW_MEASURED, HIGH_MEASURED)
    assert HIGH_ALIKE / LOW_ALIKE < HIGH_MEASURED / LOW_MEASURED <= HIGH / LOW


def test_a_cause_that_nobody_knows_widens_the_interval_until_it_is_seen_twice(tmp_path: Path) -> None:
    box = written(tmp_path, step_seconds=120.0)
    once = dsgen.job({**BOX, "hw": box})
    dsgen.calibrate({**BOX, "hw": box, "zero_stage": 3}, step_seconds=125.0).write(box)
    twice = dsgen.job({**BOX, "hw": box})

    ratio = once.hardware.step_time_ratio
    assert ratio is not None
    assert speed_interval(once) == (LOW_ALIKE, pytest.approx(HIGH_ALIKE * ratio))
    assert speed_interval(twice) == (LOW_ALIKE, HIGH_ALIKE)


def test_a_run_over_a_network_is_named_with_it() -> None:
    job = dsgen.job({"hw": "a100-40g", "model": "7b", "gpus": 16, "network": "ib-hdr-200g"})

    assert run_name(job) == "7b on 16 GPUs over ib-hdr-200g"


WRONG = [
    ({"step_seconds": 0}, "step-seconds is 0; it must be a number of seconds above 0"),
    ({"step_seconds": -3.0}, "above 0"),
    ({"step_seconds": math.nan}, "above 0"),
    ({"step_seconds": math.inf}, "above 0"),
    ({"step_seconds": "12"}, "above 0"),
    ({"step_seconds": True}, "above 0"),
    ({"step_seconds": 41.8 * 50}, "too far apart"),
    ({"step_seconds": 41.8 / 50}, "too far apart"),
    ({"step_seconds": 41.8 / 16}, "about one of the 16 micro-batches"),
    ({"step_seconds": 41_800}, "milliseconds"),
    ({"step_seconds": 40, "peak_gib": -1}, "above 0"),
    ({"step_seconds": 40, "peak_gib": 61.2}, "the GPU has 39.4 GiB"),
    ({"step_seconds": 40, "peak_gib": 3.0}, "too far apart"),
    ({"step_seconds": 40, "peak_gib": 31, "peak_of": "nvidia-smi"}, "allocated, reserved, card"),
    ({"step_seconds": 40, "config": {"zero_optimization": {"stage": 7}}}, "stage"),
]


@pytest.mark.parametrize(("said", "must"), WRONG)
def test_what_no_run_has_is_refused(said: dict[str, Any], must: str) -> None:
    with pytest.raises(dsgen.DsgenError, match=must):
        dsgen.calibrate(BOX, **said)


def test_what_fits_nowhere_needs_the_config_that_ran() -> None:
    with pytest.raises(dsgen.DsgenError, match="fits nowhere") as caught:
        dsgen.calibrate({**BOX, "zero_stage": 0}, step_seconds=40.0)
    assert caught.value.todo is not None
    assert "--config" in caught.value.todo

    config = {"train_batch_size": 8, "bf16": {"enabled": True}, "zero_optimization": {"stage": 0}}
    made = dsgen.calibrate(BOX, step_seconds=3.0, config=config)
    assert any("does not fit" in warning for warning in made.warnings)


def test_hardware_without_a_profile_is_refused() -> None:
    bare = attrs.evolve(job := dsgen.job(BOX), names={"model": "7b"})

    assert job.names["hardware"] == "a100-40g"
    with pytest.raises(dsgen.DsgenError, match="no hardware profile is named"):
        dsgen.calibrate(bare, step_seconds=40.0)


def test_a_measurement_far_off_is_taken_with_a_warning() -> None:
    assert dsgen.calibrate(BOX, step_seconds=40.0).warnings == ()
    (warning,) = dsgen.calibrate(BOX, step_seconds=100.0).warnings
    assert "lie outside of" in warning


def test_measurements_that_say_different_things_are_told(tmp_path: Path) -> None:
    box = written(tmp_path, step_seconds=39.0)

    alike = dsgen.calibrate({**BOX, "hw": box, "zero_stage": 3}, step_seconds=41.0)
    apart = dsgen.calibrate({**BOX, "hw": box, "zero_stage": 3}, step_seconds=53.0)

    assert alike.warnings == ()
    assert any("one ratio does not describe both" in warning for warning in apart.warnings)


@pytest.mark.parametrize(
    "broken",
    [
        "step_seconds: -1",
        "step_seconds: fast",
        "predicted_step_seconds: .nan",
        "peak_gib: 3",
        "colour: red",
    ],
)
def test_a_profile_that_was_changed_by_hand_is_told(tmp_path: Path, broken: str) -> None:
    box = Path(written(tmp_path))
    key = broken.partition(":")[0]
    lines = [line for line in box.read_text().splitlines() if not line.strip().startswith(f"{key}:")]
    place = next(number for number, line in enumerate(lines) if line.strip().startswith("run:"))
    box.write_text("\n".join([*lines[:place], f"    {broken}", *lines[place:]]) + "\n")

    with pytest.raises(dsgen.DsgenError, match=r"measurements\[0\]"):
        dsgen.calibrate({**BOX, "hw": str(box)}, step_seconds=40.0)


def test_measurements_belong_to_hardware(tmp_path: Path) -> None:
    model = tmp_path / "mine.yaml"
    model.write_text("kind: model\nextends: 7b\nmeasurements: [{date: today}]\n")
    with pytest.raises(dsgen.DsgenError, match="only hardware is measured"):
        dsgen.profile(str(model))

    model.write_text("kind: hardware\nextends: a100-40g\nmeasurements: 3\n")
    with pytest.raises(dsgen.DsgenError, match="list of maps"):
        dsgen.profile(str(model))


def test_a_file_that_is_there_is_kept(tmp_path: Path) -> None:
    box = written(tmp_path)
    made = dsgen.calibrate(BOX, step_seconds=50.0)
    before = Path(box).read_text()

    with pytest.raises(dsgen.DsgenError, match="it is there already"):
        made.write(box)
    assert Path(box).read_text() == before
    made.write(box, force=True)
    assert "step_seconds: 50" in Path(box).read_text()
    assert len(list(tmp_path.iterdir())) == 1


def test_a_ratio_that_somebody_says_counts_and_is_named() -> None:
    said = {**BOX, "set": {"hardware.step_time_ratio": 1.5}}
    slow = dsgen.plan(said)

    assert slow.chosen.cost.seconds == pytest.approx(1.5 * dsgen.plan(BOX).chosen.cost.seconds)
    assert effect(slow).words == "calibrated: step time, x 1.5 (python); plan not changed"
    assert speed_interval(slow.job) == (LOW_MEASURED, pytest.approx(HIGH_MEASURED * 1.5))  # nobody measured twice
    assert "1.5" not in dsgen.calibrate(said, step_seconds=45.0).profile()


@pytest.mark.parametrize(
    ("fact", "value"),
    [("step_time_ratio", 50), ("step_time_ratio", 0), ("peak_memory_ratio", 5), ("peak_memory_ratio", -1)],
)
def test_a_ratio_out_of_bounds_is_refused(fact: str, value: float) -> None:
    with pytest.raises(dsgen.DsgenError, match=rf"hardware\.{fact} is {value}; it must be (above|below)"):
        dsgen.job({**BOX, "set": {f"hardware.{fact}": value}})
