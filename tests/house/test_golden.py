"""The golden files: what dsgen says now is what is committed, and every config is complete, valid and consistent."""

from __future__ import annotations

import csv
import functools
import json
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from dsgen import catalog
from dsgen.deepspeed import surface
from dsgen.jobs import scenarios
from dsgen.proving.adaptation import resolve_batch
from dsgen.shapes.layers import Rank

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))  # golden/ is a folder of the checkout, not of the installed package

from golden import files, matrix, scenes, structures  # noqa: E402

NAMES = scenes.names()
HOW = "If the change is meant: python golden/run.py --update, and commit the diff."


@pytest.fixture(autouse=True)
def _only_built_in_profiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DSGEN_PROFILE_PATH", raising=False)


def test_there_are_enough_scenarios_and_structures() -> None:
    configs = {name: json.loads((scenes.CONFIGS / f"{name}.json").read_text("utf-8")) for name in NAMES}
    assert len(NAMES) >= 120
    assert len(structures.distinct(configs)) >= 60


@pytest.mark.parametrize("name", NAMES)
def test_a_scenario_renders_as_committed(name: str) -> None:
    differences = files.compare(scenes.texts(scenes.scene(name)), ())
    assert not differences, f"{files.report(differences, ROOT)}\n{HOW}"


def test_every_card_has_rows_in_the_matrix_or_a_scenario() -> None:
    with (scenes.FOLDER / matrix.FILE_NAME).open(encoding="utf-8", newline="") as file:
        rows = {row["hardware"] for row in csv.DictReader(file)}
    of_desks = {scenes.scene(f"desk-{card}").config.plan.job.names["hardware"] for card in matrix.DESKS}

    assert of_desks == matrix.DESKS
    assert rows | of_desks == set(catalog.names("hardware"))


def test_nothing_golden_lies_about_without_a_scenario() -> None:
    wanted = {f"{name}{suffix}" for name in NAMES for suffix in (".json", ".md")}
    present = {path.name for folder in (scenes.CONFIGS, scenes.EXPLANATIONS) for path in folder.iterdir()}
    assert present == wanted


@pytest.mark.parametrize("model", ["125m", "gemma-2-9b", "gpt2", "llama-3.1-70b", "mixtral-8x7b"])
def test_the_matrix_is_as_committed(model: str) -> None:
    """Some models on other Pythons; the session golden compares all."""
    with (scenes.FOLDER / matrix.FILE_NAME).open(encoding="utf-8", newline="") as file:
        committed = [tuple(row) for row in csv.reader(file) if row[1] == model]
    assert committed
    assert list(matrix.rows([model])) == committed, HOW


@pytest.mark.parametrize("name", NAMES)
def test_every_key_has_provenance_and_a_reason(name: str) -> None:
    config = scenes.scene(name).config
    assert config.paths()
    for path in config.paths():
        explanation = config.why(path)
        assert explanation.overrides, f"nobody wrote {path}"
        winner = explanation.overrides[-1]
        assert winner.rank >= Rank.PLAN
        assert winner.value == explanation.value or (isinstance(winner.value, dict) and not explanation.value)
        assert str(winner.origin)
        assert explanation.reason.strip(), f"{path} has no reason"


@pytest.mark.parametrize("name", NAMES)
def test_every_key_is_read_by_the_release_and_does_something(name: str) -> None:
    config = scenes.scene(name).config
    known = surface.load(config.plan.job.version)
    for path in config.paths():
        key = known.key(path, config.tree)
        assert key is not None, f"DeepSpeed {known.version} does not read {path}"
        assert not key.removed
        assert not key.deprecated
        assert known.has_effect(path, config.tree) is None


@pytest.mark.parametrize("name", NAMES)
def test_the_batch_is_what_deepspeed_computes(name: str) -> None:
    config = scenes.scene(name).config
    values, chosen, world = config.tree, config.plan.chosen.strategy, config.plan.job.world
    micro, steps = values["train_micro_batch_size_per_gpu"], values["gradient_accumulation_steps"]
    assert resolve_batch(values, world) == (micro * steps * world, micro, steps)
    assert chosen.global_batch == micro * steps * world // chosen.tp
    if "train_batch_size" in values:
        assert values["train_batch_size"] == micro * steps * world
    else:
        assert (chosen.stage, chosen.tp > 1) == (3, True)  # there alone DeepSpeed counts replicas, not GPUs


@pytest.mark.parametrize("name", NAMES)
def test_the_config_passes_the_schema_of_its_release(name: str) -> None:
    config = scenes.scene(name).config
    errors = [error.message for error in _validator(config.plan.job.version).iter_errors(config.to_dict())]
    assert not errors


@pytest.mark.parametrize("name", NAMES)
def test_the_chosen_strategy_fits(name: str) -> None:
    config = scenes.scene(name).config
    memory = config.plan.chosen.memory
    for place in (memory.gpu, memory.host, memory.nvme):
        assert place.low_bytes <= place.peak_bytes <= place.high_bytes
        assert place.high_bytes <= place.limit_bytes or config.warnings
        assert sum(place.parts.values()) == place.peak_bytes


@functools.cache
def _validator(version: str) -> Any:
    line = ".".join(version.split(".")[:2])
    schema = json.loads((ROOT / "schema" / "deepspeed" / f"{line}.schema.json").read_text("utf-8"))
    kind = jsonschema.validators.validator_for(schema)
    kind.check_schema(schema)
    return kind(schema)


def test_a_schema_refuses_what_it_should() -> None:
    wrong = {"zero_optimization": {"stage": 7}, "train_batch_size": 8}
    assert list(_validator("0.19.8").iter_errors(wrong))


def test_an_older_release_gets_no_newer_key() -> None:
    lines = surface.known_versions()
    wanted = {scenarios.read(str(scenes.SCENARIOS / f"{name}.yaml")).deepspeed for name in NAMES}
    covered = {".".join(surface.load(release).version.split(".")[:2]) for release in wanted}
    assert covered == set(lines)


def test_structures_ignore_sizes_and_rates_but_not_choices() -> None:
    one = {"a": 1, "zero_optimization": {"stage": 2}, "gradient_clipping": 1.0, "on": True, "nvme_path": "/x"}
    same = {"a": 5, "zero_optimization": {"stage": 2}, "gradient_clipping": 0.5, "on": True, "nvme_path": "/y"}
    others = [
        {**one, "zero_optimization": {"stage": 3}},
        {**one, "gradient_clipping": 0},
        {**one, "on": False},
        {key: value for key, value in one.items() if key != "a"},
    ]
    assert structures.structure(one) == structures.structure(same)
    assert all(structures.structure(other) != structures.structure(one) for other in others)
    assert structures.distinct({"x": one, "y": same, "z": others[0]}) == {"x": ("y",), "z": ()}


def test_a_difference_is_reported_and_updated(tmp_path: Path) -> None:
    kept = tmp_path / "configs"
    kept.mkdir()
    (kept / "changed.json").write_bytes(b"old\n")
    (kept / "stale.json").write_bytes(b"gone\n")
    wanted = {kept / "changed.json": "new\n", kept / "missing.json": "here\n"}
    found = files.compare(wanted, [kept])
    assert [item.kind for item in found] == ["changed", "missing", "stale"]
    text = files.report(found, tmp_path)
    assert "-old" in text
    assert "+new" in text
    assert text.endswith("golden: 1 changed, 1 missing, 1 stale")
    files.update(found)
    assert files.compare(wanted, [kept]) == ()


def test_the_bounds_of_time_that_golden_reads_are_those_that_the_benchmark_holds(module: Any) -> None:
    """benchmarks/results.json keeps them beside what was measured; golden/run.py takes the matrix's from there."""
    bench = module("bench")
    recorded = json.loads((ROOT / "benchmarks" / "results.json").read_text("utf-8"))

    assert (recorded["bounds"], recorded["aims"], recorded["floors"]) == (bench.BOUNDS, bench.AIMS, bench.FLOORS)
    assert bench.AIMS.keys() <= bench.BOUNDS.keys()
