"""What a job file's lines for Slurm say of its variables, and the GPUs that a launcher is told by them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dsgen.linting.files import Linted, lint_files
from dsgen.linting.launch_files import starts
from dsgen.linting.launch_files.slurm import slurm_variables
from dsgen.linting.settings import Settings

LINES = "#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --gpus-per-node=8\n"
COMMAND = "srun torchrun --nnodes {} --nproc_per_node {} train.py --deepspeed ds.json\n"
CONFIG = '{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 4}'


def ranks(text: str) -> Any:
    (start,) = starts(text, "job.sbatch")
    return start.ranks and start.ranks[0]


@pytest.mark.parametrize(
    ("lines", "nodes", "each"),
    [
        (LINES, "$SLURM_NNODES", "8"),
        (LINES, "${SLURM_JOB_NUM_NODES}", "$SLURM_GPUS_ON_NODE"),
        ("#SBATCH -N 4\n#SBATCH --gres=gpu:a100:8\nNODES=$SLURM_NNODES\n", "$NODES", "$SLURM_GPUS_ON_NODE"),
        ("#SBATCH -N4\n#SBATCH --ntasks-per-node 8 # ranks\n", '"$SLURM_NNODES"', "$SLURM_NTASKS_PER_NODE"),
        ("#SBATCH --nodes=9\nSLURM_NNODES=4\n", "$SLURM_NNODES", "8"),
    ],
)
def test_variables_of_slurm_say_how_many_gpus_there_are(lines: str, nodes: str, each: str) -> None:
    assert ranks(lines + COMMAND.format(nodes, each)) == 32


@pytest.mark.parametrize(
    "lines",
    [
        "#SBATCH --nodes=2-4\n",
        "#SBATCH --nodes=4\n#SBATCH -N 2\n",
        "# SBATCH --nodes=4\n",
        "#SBATCH --gres=license:4\n",
        "#SBATCH --gres=gpu_mem:4\n",
        "##SBATCH --nodes=4\n",
        "module load cuda\n#SBATCH --nodes=4\n",
        f"cat > job.sbatch <<EOF\n{LINES}EOF\n",
        "",
    ],
)
def test_what_they_do_not_say_as_one_number_stays_open(lines: str) -> None:
    assert "SLURM_NNODES" not in slurm_variables(lines)
    assert "SLURM_GPUS_ON_NODE" not in slurm_variables(lines)
    assert ranks(lines + COMMAND.format("$SLURM_NNODES", "8")) is None


@pytest.mark.parametrize("line", ["--ntasks=8", "-n 8", "-n8"])
def test_tasks_in_all_are_read_of_both_options(line: str) -> None:
    assert slurm_variables(f"#SBATCH {line}\n")["SLURM_NTASKS"][0] == "8"


def test_the_gpus_per_node_are_there_as_the_option_has_them() -> None:
    assert "SLURM_GPUS_PER_NODE" in slurm_variables(LINES)
    for line in ("#SBATCH --gres=gpu:8\n", "#SBATCH --gpus-per-node=h100:8\n"):  # unset, and h100:8
        assert slurm_variables(line)["SLURM_GPUS_ON_NODE"][0] == "8"
        assert "SLURM_GPUS_PER_NODE" not in slurm_variables(line)


def test_a_batch_for_other_gpus_is_told_by_both_options(elsewhere: None) -> None:
    Path("ds.json").write_text(CONFIG)
    Path("job.sbatch").write_text(LINES + COMMAND.format("$SLURM_NNODES", "8"))

    linted = [one for one in lint_files(["job.sbatch"], Settings()) if isinstance(one, Linted)]
    told = [finding.message for file in linted for finding in file.findings if finding.rule == "argument-disagrees"]

    assert any(text.startswith("--nproc_per_node x --nnodes is 32, and train_batch_size is 64") for text in told)
