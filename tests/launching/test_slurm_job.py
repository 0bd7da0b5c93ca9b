"""job.sbatch without Slurm: with programs of its names, what it starts, when it is queued again, and when not."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import attrs
import pytest
from launches_made import FOUR_NODES, launch

from dsgen.launching.slurm_job import job_script

SCONTROL = """#!/usr/bin/env bash
case "$1 $2" in
  "show hostnames") echo n1; echo n2;;
  "show node") echo "   NodeAddr=10.0.0.7 NodeHostName=x";;
  "show job") echo "   JobState=${STATE:-RUNNING} Reason=None";;
  "requeue 7") echo again >> "$TOP/requeued"; kill "$PPID";;
esac
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a blank in its name, with job.sbatch, and programs in bin/."""
    run = tmp_path / "the run"
    (run / "checkpoints").mkdir(parents=True)
    (run / "job.sbatch").write_text(
        job_script(attrs.evolve(launch(FOUR_NODES, launcher="slurm", hosts=()), folder=str(run)))
    )
    (tmp_path / "bin").mkdir()
    program(tmp_path, "scontrol", SCONTROL)
    return tmp_path


def program(folder: Path, name: str, text: str) -> None:
    path = folder / "bin" / name
    path.write_text(text)
    path.chmod(0o755)


def start(folder: Path, state: str = "RUNNING") -> subprocess.Popen[str]:
    environment = {"STATE": state, "PATH": f"{folder}/bin:{os.environ['PATH']}", "SLURM_JOB_ID": "7",
                   "SLURM_JOB_NODELIST": "n[1-2]", "TOP": str(folder)}  # fmt: skip
    return subprocess.Popen(
        ["bash", str(folder / "the run" / "job.sbatch")], env=environment, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def requeued(folder: Path) -> bool:
    return (folder / "requeued").exists()


def test_it_starts_a_rank_for_each_task_and_tells_where_rank_0_waits(folder: Path) -> None:
    program(folder, "srun", '#!/usr/bin/env bash\necho "$MASTER_ADDR $MASTER_PORT"; printf "%s\\n" "$@"\n')

    out, _ = start(folder).communicate(timeout=30)
    first, *words = out.splitlines()

    assert first == "10.0.0.7 15007"
    assert words[:4] == ["--kill-on-bad-exit=1", "--cpus-per-task=14", "--cpu-bind=cores", "bash"]
    assert words[4] == f"{folder}/the run/rank.sh"
    assert not requeued(folder)


def test_ranks_that_fail_at_once_are_not_queued_again(folder: Path) -> None:
    (folder / "the run" / "checkpoints" / "latest").write_text("global_step4")  # of an earlier start
    program(folder, "srun", "#!/usr/bin/env bash\nexit 3\n")

    process = start(folder)
    _, err = process.communicate(timeout=30)

    assert process.returncode == 3
    assert "no checkpoint was written since this start: not queued again" in err
    assert not requeued(folder)


def test_ranks_that_fail_after_a_checkpoint_are_queued_again(folder: Path) -> None:
    program(folder, "srun", '#!/usr/bin/env bash\necho global_step5 > "$TOP/the run/checkpoints/latest"; exit 3\n')

    _, err = start(folder).communicate(timeout=30)

    assert "queued again, it goes on from its last checkpoint" in err
    assert requeued(folder)


def test_a_cancelled_job_stays_cancelled(folder: Path) -> None:
    program(folder, "srun", '#!/usr/bin/env bash\necho global_step5 > "$TOP/the run/checkpoints/latest"; exit 143\n')

    process = start(folder, "CANCELLED")
    _, err = process.communicate(timeout=30)

    assert process.returncode == 143
    assert "the job was cancelled or is queued again already" in err
    assert not requeued(folder)


@pytest.mark.parametrize("progress", [True, False])
def test_near_its_time_limit_it_is_queued_again_only_after_progress(folder: Path, progress: bool) -> None:
    save = 'echo x > "$TOP/the run/checkpoints/latest"; ' if progress else ""
    program(folder, "srun", f'#!/usr/bin/env bash\n{save}echo up > "$TOP/up"; sleep 2; exit 0\n')
    process = start(folder)
    over = time.monotonic() + 20
    while not (folder / "up").exists() and time.monotonic() < over:
        time.sleep(0.05)

    process.send_signal(signal.SIGUSR1)
    _, err = process.communicate(timeout=30)

    assert requeued(folder) is progress
    assert ("the time limit is near" in err) is True
    assert (process.returncode == 0) is not progress  # what made none runs on to its end
