"""The program trains with the committed files, and says what the scenario says; `pytest --dsgen` checks the files."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parents[1]


def test_the_program_is_the_scenario_s(dsgen_config) -> None:
    import train

    job = dsgen_config("lora.scenario.yaml").plan.job

    assert (job.training.lora_rank, job.seq_len) == (train.RANK, train.SEQ_LEN)
    assert train.LORA.target_modules == job.training.lora_targets[0]


@pytest.mark.parametrize("seq_len", [1024, 2048])
def test_nothing_is_partitioned_or_offloaded_up_to_this_length(dsgen_config, seq_len: int) -> None:
    assert "zero_optimization" not in dsgen_config("lora.scenario.yaml", seq_len=seq_len)


def test_a_tiny_model_trains_with_the_committed_files(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "1"]
    words = ["train.py", "training_args.yaml", "--tiny", "--output", str(tmp_path)]
    environment = {**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}

    done = subprocess.run(
        [*command, *words], cwd=HERE, env=environment, capture_output=True, text=True, timeout=300, check=False
    )

    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["steps"] == 3
    assert 0 < said["loss"] < 2 * math.log(128)
    assert (tmp_path / "adapter_model.safetensors").is_file()
