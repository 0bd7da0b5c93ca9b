"""The program trains and resumes with the committed config, says what the scenario says, and has a job of Slurm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import dsgen

HERE = Path(__file__).resolve().parents[1]


def test_the_program_is_the_scenario_s(dsgen_config) -> None:
    import train

    plan = dsgen_config("pretrain.scenario.yaml").plan

    assert plan.job.seq_len == train.SEQ_LEN
    assert (plan.job.nodes, plan.job.gpus_per_node) == (2, 8)


def test_slurm_gets_two_nodes_and_the_program_what_it_takes(tmp_path: Path) -> None:
    made = dsgen.launch(
        dsgen.scenario(HERE / "pretrain.scenario.yaml"),
        launcher="slurm",
        script=HERE / "train.py",
        folder=tmp_path / "first",
        arguments=["--data", "tokens.bin"],
    )
    files = {file.name: file.text for file in made.files}

    assert "#SBATCH --nodes=2" in files["job.sbatch"]
    assert "#SBATCH --requeue" in files["job.sbatch"]
    assert files["ds_config.json"] == (HERE / "ds_config.json").read_text(encoding="utf-8")
    for option in ("--deepspeed_config", "--checkpoints", "--data", "tokens.bin"):
        assert option in files["rank.sh"]


def run(folder: Path, steps: int) -> dict[str, Any]:
    """Two ranks of the CPU train the tiny model: the committed config, but for the number of GPUs."""
    config = json.loads((HERE / "ds_config.json").read_text(encoding="utf-8"))
    del config["train_batch_size"]  # DeepSpeed makes it of the ranks
    (folder / "ds_config.json").write_text(json.dumps({**config, "gradient_accumulation_steps": 2}))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    words = ["--deepspeed_config", str(folder / "ds_config.json"), "--checkpoints", str(folder / "checkpoints")]
    environment = {**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [*command, "train.py", "--tiny", "--steps", str(steps), *words],
        cwd=HERE,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads([line for line in done.stdout.splitlines() if line.startswith("{")][-1])


def test_a_tiny_model_trains_with_the_committed_config_and_goes_on(tmp_path: Path) -> None:
    first = run(tmp_path, 2)
    second = run(tmp_path, 4)

    assert (first["first"], first["steps"]) == (0, 2)
    assert (second["first"], second["steps"]) == (2, 4)
    assert 0 < second["loss"] < 10
