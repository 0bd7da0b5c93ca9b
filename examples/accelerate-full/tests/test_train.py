"""The program trains and resumes with the committed files, and says what the scenario says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]


def test_the_program_is_the_scenario_s(dsgen_config) -> None:
    import train

    plan = dsgen_config("full.scenario.yaml").plan

    assert plan.job.seq_len == train.SEQ_LEN
    assert plan.job.world == 8


def test_twice_the_length_still_fits(dsgen_config) -> None:
    assert dsgen_config("full.scenario.yaml", seq_len=8192).plan.chosen.sure


def run(folder: Path, steps: int) -> dict[str, Any]:
    """Two ranks of the CPU train the tiny model: the committed config, but for the number of GPUs."""
    config = json.loads((HERE / "ds_config.json").read_text(encoding="utf-8"))
    del config["train_batch_size"]  # DeepSpeed makes it of the ranks
    (folder / "ds_config.json").write_text(json.dumps({**config, "gradient_accumulation_steps": 2}))
    command = [str(Path(sys.executable).parent / "accelerate"), "launch", "--config_file", "accelerate.yaml"]
    others = ["--num_processes", "2", "--deepspeed_config_file", str(folder / "ds_config.json")]
    words = ["train.py", "--tiny", "--steps", str(steps), "--output", str(folder)]
    environment = {**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [*command, *others, *words], cwd=HERE, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads([line for line in done.stdout.splitlines() if line.startswith("{")][-1])


def test_a_tiny_model_trains_with_the_committed_files_and_goes_on(tmp_path: Path) -> None:
    first = run(tmp_path, 2)
    second = run(tmp_path, 4)

    assert (first["first"], first["steps"]) == (0, 2)
    assert (second["first"], second["steps"]) == (2, 4)
    assert 0 < second["loss"] < 10
