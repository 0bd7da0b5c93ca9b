"""What the tests share: jobs of built-in profiles, a user who may not read everything, three rules for the linter."""

from __future__ import annotations

import gc
import importlib
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lint_samples
import pytest
from command_line import MAIN, run
from hypothesis import settings
from three_rules import KINDS, rule
from warm import Warm

import dsgen
from dsgen.__main__ import OBJECTS
from dsgen.linting import linter, rules
from dsgen.proving import sessions

TESTS = Path(__file__).parent
# Rooms and modules whose answers can differ between Pythons: readers of text, numbers as text, sums of floats, the
# public face, what is golden, the system's words in errors. `nox` runs these on every Python, others on one. Of a test
# with several cases each of the other Pythons runs a third, and they together all; `nox -s thorough` runs all on all.
ACROSS_PYTHONS = (
    "catalog",
    "cli/test_bad_files.py",
    "cli/test_bad_input.py",
    "cli/test_cli.py",
    "cost/test_bounds.py",
    "cost/test_cost.py",
    "cost/test_model_flops.py",
    "cost/test_work.py",
    "documents",
    "house/test_api.py",
    "house/test_golden.py",
    "house/test_loaded.py",
    "jobs",
    "linting/test_lint_settings.py",
    "linting/test_sources.py",
    "memory/test_memory.py",
    "shapes",
)
ONLY_PROOFS = "\npytestmark = pytest.mark.proof\n"  # in a file of which every test is one
OTHERS = (10, 12, 13)  # of Python 3: beside the one that runs everything
FEW = 2  # cases of a test, which each of the others runs; of more it runs its share

# Proofs that show one cause in many models, stages and frameworks. File -> what of it `nox` runs on every change: tests
# or cases by their id. The other proofs of the file have the marker nightly, and `nox -s everything` runs them.
NIGHTLY: dict[str, tuple[str, ...]] = {
    "cost/test_gpu_speed_real.py": (
        "test_real_steps_are_timed",
        "test_every_kind_of_kernel_is_timed_and_a_wrong_one_says_why",
        "test_what_ends_a_run_is_an_answer_with_its_phase",
    ),
    "cost/test_step_times.py": ("test_the_record_is_what_the_simulation_tells[2]",),
    "engine/test_simulate_exact.py": (
        "stage 0, world 1",
        "stage 1, tied, accumulated, world 2",
        "stage 2, tied, overlapped, world 4",
        "stage 3, world 3",
        "stage 3, all offloaded, world 1",
        "stage 2, optimizer offloaded, accumulated, world 2",
        "stage 3, all offloaded, world 2",
        "stage 2, with an encoder, world 2",
        "stage 3, adapters that drop, world 2",
        "stage 3, split, world 4",
        "silent, stage 3, world 4",
        "whole, stage 3, world 3",
        "test_every_kind_is_compared",
    ),
    # Both conversions run in proving/test_resumed_elsewhere.py; here it is measured what they take.
    "memory/test_conversions.py": (),
    # What DeepSpeed does wrongly, and rules say: it changes with DeepSpeed alone.
    "engine/test_part_offloaded.py": (),
    "engine/test_simulate_split.py": (),
    "memory/test_swapped_parameters.py": (),
    "proving/test_lost_on_nvme.py": (),
    "frameworks/test_real_frameworks.py": (
        "hf-trainer-with_trainer.py training_args.yaml-torchrun---zero-stage 2",
        "test_accelerate_runs_the_code_of_a_config_whose_optimizer_or_schedule_was_deleted[both]",
        "--global-batch 4 --zero-stage 3 --method lora --lora-rank 2 --checkpointing full --deepspeed 0.18-4096",
        "test_auto_becomes_what_transformers_makes_of_it_and_resolved_numbers_do_not_disagree",
    ),
    "memory/test_gpu_memory_real.py": (
        "test_without_a_card_everything_before_the_first_cuda_call_is_run",
        "test_a_peak_outlives_a_reset_of_deepspeeds",
    ),
    "memory/test_loading_real.py": ("said0-cpu",),
    "proving/test_faults.py": (
        "test_a_rank_that_is_killed_is_named",
        "test_a_parent_that_is_killed_leaves_nothing",
        "test_a_parent_that_is_killed_leaves_no_shared_memory",
        "test_a_full_disk_while_saving_is_said",
        "test_without_shared_memory",
        "test_no_compiler_is_said",
        "test_a_home_that_cannot_be_written",
        "test_two_proofs_at_once_with_a_port_taken_and_no_home",
    ),
    # What it compares changes with torch and DeepSpeed alone; test_golden_proof.py runs the functions as written.
    "proving/test_muon_compiled.py": (),
    "proving/test_proof_models.py": (
        "llama, stage 3",
        "experts, stage 3",
        "experts, on a drive",
        "mistral over two ranks",
        "qlora, stage 3 and offload",
        "test_stage_3_trains_as_stage_2_does",
        "test_only_adapters_are_trained",
        "test_a_scenario_is_proven_with_the_checkpointing_of_its_program[lora-0.18]",
        "test_a_function_of_ones_own_is_trained",
    ),
    "proving/test_prove_real.py": (
        "stage 2 offload",
        "stage 3 fp16",
        "AutoTP 2, stage 3",
        "misspelt section",
        "batch that never multiplies",
        "schedule without its length",
        "clipping as text",
        "test_observations_are_the_engines",
        "test_an_overflow_is_forced_and_survived",
        "test_fp16_on_a_cpu_names_its_patch",
        "test_an_operator_that_a_cpu_lacks_is_not_run",
        "test_a_killed_proof_leaves_no_lock[9]",
        "test_a_timeout_is_not_a_verdict_on_the_config",
    ),
    "proving/test_resumed_from_nvme.py": (
        "test_a_new_process_gets_the_swapped_weights_and_no_moments_nor_those_of_a_small_sub_group",
    ),
    "proving/test_trained_alike.py": (
        "stage 1, fp32, 2 ranks",
        "stage 2, bf16, CPU optimizer, 2 ranks",
        "stage 2, fp32, no clipping, no accumulation, 2 ranks",
        "stage 3, fp32, hpZ 2, 4 ranks",
    ),
}

# Files of which these cases alone are left to the night. A CPU without fp16 takes half a minute for each that is wide
# enough to be swapped to a drive; other structures show fp16, and NVMe in bf16. Adagrad and Lion on a CPU each wait for
# an operator of their own. Of adapters one stays for each way: at stages 2 and 3, of few matrices, in 4 bits.
NIGHTLY_CASES: dict[str, tuple[str, ...]] = {
    "proving/test_golden_proof.py": (
        "fp16-nvme-both",
        "fp16-nvme-cpu-params",
        "optimizer-adagrad-offload",
        "optimizer-lion-offload",
        "lora-a10-7b",
        "lora-mixtral",
        "lora-stage-3-70b",
        "qlora-24g-7b",
    ),
}

# Files whose proofs take longest, by minutes; they begin first, so that all processes end at about the same time.
LONGEST = ("proving/test_every_cell.py", "proving/test_golden_proof.py", "proving/test_trained_alike.py",
           "proving/test_golden_trained.py")  # fmt: skip


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what has no test of a marker that is asked for: to import and collect it all takes most of a minute."""
    if collection_path.suffix != ".py" or not collection_path.name.startswith("test_"):
        return None
    asked = config.option.markexpr.split(" and ")  # a part with "or" or "not" is no marker's name
    lacks = "pythons" in asked and not is_listed(collection_path, ACROSS_PYTHONS)
    lacks |= "nightly" in asked and not is_listed(collection_path, (*NIGHTLY, *NIGHTLY_CASES))
    if not lacks and (named := [one for one in asked if one in ("proof", "launch", "operators")]):
        text = collection_path.read_text("utf-8")
        lacks = any(f"pytest.mark.{one}" not in text for one in named)
    if not lacks and "not proof" in asked:  # a file of proofs alone works out its cases when it is imported
        lacks = ONLY_PROOFS in collection_path.read_text("utf-8")
    return True if lacks else None


def is_listed(path: Path, places: tuple[str, ...]) -> bool:
    """Whether a file of tests is one of some files or lies in one of some folders."""
    place = path.relative_to(TESTS).as_posix()
    return any(place == one or place.startswith(f"{one}/") for one in places)


def pytest_collection_finish() -> None:
    """Search for garbage as seldom as the command line does, and not in what was imported: an eighth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(OBJECTS)


def pytest_unconfigure() -> None:
    """Search for garbage once more; pytest behind this, and Python's farewell, would go through all that is kept."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what can differ between Pythons, and what is left to the night; the longest files first."""
    rank = {place: number for number, place in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.relative_to(TESTS).as_posix(), len(LONGEST)))
    cases = Counter(item.nodeid.partition("[")[0] for item in items)
    seen: Counter[str] = Counter()
    for item in items:
        test = item.nodeid.partition("[")[0]
        if is_listed(item.path, ACROSS_PYTHONS) and (cases[test] <= FEW or falls_to(seen[test], sys.version_info[1])):
            item.add_marker(pytest.mark.pythons)
        seen[test] += 1
        if is_left_to_the_night(item):
            item.add_marker(pytest.mark.nightly)


def falls_to(number: int, python: int) -> bool:
    """Whether a case is of a Python's share, by its number: all tests of one scenario fall to one Python."""
    return python not in OTHERS or number % len(OTHERS) == OTHERS.index(python)


def is_left_to_the_night(item: pytest.Item) -> bool:
    """Whether a proof is of a file of NIGHTLY and not of what `nox` keeps of it, or a case of NIGHTLY_CASES."""
    if item.get_closest_marker("proof") is None:
        return False
    place = item.path.relative_to(TESTS).as_posix()
    test, _, case = item.name.partition("[")
    names = {item.name, test, case.removesuffix("]")}
    if place in NIGHTLY:
        return not names & set(NIGHTLY[place])
    return bool(names & set(NIGHTLY_CASES.get(place, ())))


# Examples are the same in CI every time, and no slow machine fails a test; at a desk hypothesis searches on.
settings.register_profile("dsgen", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("dsgen")


@pytest.fixture
def make_job() -> Callable[..., dsgen.Job]:
    """A Job from a hardware, a model and overrides."""

    def make(hardware: str = "a100-80g", model: str = "llama-2-7b", **overrides: Any) -> dsgen.Job:
        layers = dsgen.profile(hardware) | dsgen.profile(model)
        for name in overrides.pop("profiles", ()):
            layers = layers | dsgen.profile(name)
        return dsgen.job(layers | overrides)

    return make


@pytest.fixture(scope="module")
def module() -> Iterator[Callable[[str], Any]]:
    """A module of benchmarks/ by its name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).resolve().parents[1] / "benchmarks"))
        yield importlib.import_module


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An empty folder as the working directory, and a terminal 100 columns wide."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture(name="run")
def command_line(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run the command line; gives the exit code, stdout and stderr."""

    def call(*arguments: str) -> tuple[int, str, str]:
        return lint_samples.dsgen(capsys, *arguments)

    return call


@pytest.fixture(scope="session")
def engines() -> Iterator[Warm]:
    """One engine of each kind for all tests of a process: to import torch and DeepSpeed takes longer than most."""
    running = Warm()
    yield running
    running.close()


@pytest.fixture(scope="module")
def warm(engines: Warm) -> Iterator[None]:
    """What this file asks of an engine is asked of those that run already."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sessions, "start", engines.start)
        yield


@pytest.fixture
def nobody() -> Iterator[Path]:
    """A folder of root, seen by a user who may not read everything."""
    run("render", *MAIN, "--set", "training.lr=1")  # what is loaded late may be unreadable later
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield folder
    finally:
        if root:
            os.seteuid(0)
        shutil.rmtree(folder)


@pytest.fixture
def secret(nobody: Path) -> Path:
    """A file that its reader may not read."""
    if os.geteuid() == 65534:
        os.seteuid(0)
    file = nobody / "x.yaml"
    file.write_text("training: {seq_len: 8}\n")
    file.chmod(0)
    if os.getuid() == 0:
        os.seteuid(65534)
    return file


@pytest.fixture
def three_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """The linter with three rules instead of its own."""
    three = tuple(rule(name) for name in KINDS)
    monkeypatch.setattr(rules, "RULES", three)
    monkeypatch.setattr(linter, "RULES", three)
