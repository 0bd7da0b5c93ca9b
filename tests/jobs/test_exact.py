"""`deepspeed: null` in a scenario: the keys beside it are the whole config, and a plan follows what it can read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dsgen
from dsgen.rendering import Config
from dsgen.shapes.errors import DsgenError

BASE = "hw: a100-40g\nmodel: 7b\nset:\n"


def rendered(tmp_path: Path, keys: str, *more: dict[str, Any]) -> Config:
    path = tmp_path / "scenario.yaml"
    path.write_text(BASE + "".join(f"  {line}\n" for line in keys.splitlines()))
    layers = dsgen.scenario(str(path))
    for part in more:
        layers = layers | dsgen.overrides(part)
    return dsgen.render(layers)


BATCH = "train_micro_batch_size_per_gpu: 1"
TINY = f"deepspeed: null\n{BATCH}\nbf16.enabled: true\nzero_optimization.stage: 2"


def test_the_config_is_what_is_said_and_nothing_else(tmp_path: Path) -> None:
    config = rendered(tmp_path, TINY)

    assert config.to_dict() == {
        "train_micro_batch_size_per_gpu": 1,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 2},
    }
    assert len(rendered(tmp_path, TINY.replace("deepspeed: null\n", "")).paths()) > 15


def test_the_order_of_the_lines_does_not_matter(tmp_path: Path) -> None:
    first, *rest = TINY.splitlines()

    assert rendered(tmp_path, "\n".join([*rest, first])).to_dict() == rendered(tmp_path, TINY).to_dict()


def test_the_plan_follows_it(tmp_path: Path) -> None:
    chosen = rendered(tmp_path, TINY.replace("stage: 2", "stage: 3")).plan.chosen.strategy

    assert (chosen.stage, chosen.micro_batch, chosen.precision) == (3, 1, "bf16")
    assert (chosen.offload_optimizer, chosen.offload_param, chosen.tp) == ("none", "none", 1)


def test_what_is_absent_is_absent_for_the_plan_too(tmp_path: Path) -> None:
    """Without a section there is no ZeRO and no 16 bits: a plan of its own would have both."""
    path = tmp_path / "scenario.yaml"
    path.write_text(f"hw: a100-80g\nmodel: 1b\nset:\n  deepspeed: null\n  {BATCH}\n")
    chosen = dsgen.render(dsgen.scenario(str(path))).plan.chosen.strategy

    assert (chosen.stage, chosen.precision) == (0, "fp32")


def test_auto_and_null_and_what_deepspeed_ignores_are_kept(tmp_path: Path) -> None:
    config = rendered(
        tmp_path,
        f"{TINY}\ngradient_clipping: auto\nwandb.enabled: false\nwandb.team: null\n"
        "deepspeed.memory_efficient_linear: true\ndeepspeed.zero_optimization.offload_param.device: cpu",
    )

    assert config["gradient_clipping"] == "auto"
    assert config["wandb"] == {"enabled": False, "team": None}
    assert config["memory_efficient_linear"] is True
    assert config["zero_optimization"]["offload_param"] == {"device": "cpu"}
    assert config.plan.chosen.strategy.offload_param == "none"  # at stage 2 it does nothing
    assert any("memory_efficient_linear" in warning for warning in config.warnings)
    assert config.why("memory_efficient_linear").value is True
    assert '"memory_efficient_linear": true' in config.to_hjson()


def test_numbers_stay_as_they_were_written(tmp_path: Path) -> None:
    config = rendered(tmp_path, f"{TINY}\nzero_optimization.reduce_bucket_size: 5.0e+8")

    assert config["zero_optimization"]["reduce_bucket_size"] == 500_000_000


def test_an_old_name_stays_an_old_name(tmp_path: Path) -> None:
    keys = "deepspeed: null\ntrain_micro_batch_size_per_gpu: 1\nbfloat16.enabled: true"

    config = rendered(tmp_path, f"{keys}\nzero_optimization.stage: 1")

    assert config["bfloat16"] == {"enabled": True}
    assert config.plan.chosen.strategy.precision == "bf16"


def test_whoever_stands_above_still_wins(tmp_path: Path) -> None:
    config = rendered(tmp_path, f"{TINY}\ngradient_clipping: 1.0", {"deepspeed.gradient_clipping": 0.5})
    without = rendered(tmp_path, f"{TINY}\nwandb.team: null", {"deepspeed.wandb": None})

    assert config["gradient_clipping"] == 0.5
    assert "wandb" not in without


def test_what_a_profile_contributes_is_taken_away(tmp_path: Path) -> None:
    profile = tmp_path / "mine.yaml"
    profile.write_text("kind: training\nextends: standard\ndeepspeed:\n  wall_clock_breakdown: true\n")
    path = tmp_path / "scenario.yaml"
    keys = "".join(f"  {line}\n" for line in TINY.splitlines())
    path.write_text(f"hw: a100-40g\nmodel: 7b\ntraining: {profile}\nset:\n{keys}")

    assert "wall_clock_breakdown" not in dsgen.render(dsgen.scenario(str(path)))


def test_of_several_files_the_last_that_says_the_whole_counts(tmp_path: Path) -> None:
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text("gradient_clipping: 0.3\nsteps_per_print: 7\n")
    second.write_text(f"deepspeed: null\n{BATCH}\nbf16.enabled: true\nzero_optimization.stage: 2\n")
    path = tmp_path / "scenario.yaml"
    path.write_text("hw: a100-40g\nmodel: 7b\nfile: [first.yaml, second.yaml]\nset:\n  gradient_clipping: 0.7\n")

    config = dsgen.render(dsgen.scenario(str(path)))

    assert set(config) == {"train_micro_batch_size_per_gpu", "bf16", "zero_optimization", "gradient_clipping"}
    assert config["gradient_clipping"] == 0.7


def test_a_key_that_is_misspelt_without_the_prefix_is_still_an_error(tmp_path: Path) -> None:
    with pytest.raises(DsgenError, match="unknown path zero_optimisation"):
        rendered(tmp_path, TINY.replace("zero_optimization", "zero_optimisation"))


def test_what_deepspeed_refuses_is_still_an_error(tmp_path: Path) -> None:
    with pytest.raises(DsgenError, match="micro_batch_size_per_gpu"):
        rendered(tmp_path, "deepspeed: null\nbf16.enabled: true\nzero_optimization.stage: 2")
    with pytest.raises(DsgenError, match="steps_per_print"):
        rendered(tmp_path, f"{TINY}\ndeepspeed.steps_per_print: many")


def test_the_whole_of_nothing_is_refused_where_a_map_must_stand(tmp_path: Path) -> None:
    with pytest.raises(DsgenError, match="deepspeed is 7; it must be a map"):
        rendered(tmp_path, "deepspeed: 7")


def test_a_plain_scenario_is_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "plain.yaml"
    path.write_text("hw: a100-40g\nmodel: 7b\n")

    job = dsgen.job(dsgen.scenario(str(path)))
    assert not job.whole
    assert dsgen.render(job).to_dict() == dsgen.render({"hw": "a100-40g", "model": "7b"}).to_dict()
