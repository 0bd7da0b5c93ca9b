"""job.sbatch: one task for each rank, requeued where it made progress, and resumed from its last checkpoint."""

from __future__ import annotations

from dsgen.launching.launches import CHECKPOINTS, JobLaunch
from dsgen.launching.quoting import array, comment, quoted
from dsgen.launching.rank_script import RANK_SCRIPT
from dsgen.launching.trainer_programs import guard
from dsgen.shapes.errors import mistake

__all__ = ["JOB_SCRIPT", "WARNING_SECONDS", "job_script"]

JOB_SCRIPT = "job.sbatch"
WARNING_SECONDS = 300  # before the time limit, in which the job asks to be queued again
_GIB = 2**30

# `progress` changes with every checkpoint that was written to its end: DeepSpeed writes `latest` last.
_BODY = f"""\
progress() {{ find "$folder/{CHECKPOINTS}" -name latest -exec cksum {{}} + 2>/dev/null | sort; }}
before="$(progress)"

again() {{
  if ! scontrol show job "$SLURM_JOB_ID" | grep -q "JobState=RUNNING"; then
    echo "dsgen: $1, and the job was cancelled or is queued again already" >&2
    return 1
  fi
  if [[ "$(progress)" == "$before" ]]; then
    echo "dsgen: $1, and no checkpoint was written since this start: not queued again, it would end so again" >&2
    return 1
  fi
  echo "dsgen: $1; queued again, it goes on from its last checkpoint" >&2
  scontrol requeue "$SLURM_JOB_ID"
}}
trap 'again "the time limit is near" && sleep {WARNING_SECONDS}' USR1

srun "${{command[@]}}" &
ranks=$!
code=0
wait "$ranks" || code=$?
if kill -0 "$ranks" 2>/dev/null; then  # a signal ended the wait, not the ranks
  code=0
  wait "$ranks" || code=$?
fi
if [[ "$code" -ne 0 ]]; then
  again "the ranks ended with code $code" && sleep {WARNING_SECONDS}
fi
exit "$code"
"""


def job_script(launch: JobLaunch) -> str:
    """The text of job.sbatch.

    Raises:
        DsgenError: A directive that is no single line beginning with --.
    """
    if "\n" in launch.folder:
        raise mistake(f"the folder {launch.folder!r} holds a line break", must="a #SBATCH line names it", where="-o")
    lines = ["#!/usr/bin/env bash", *(f"#SBATCH {one}" for one in _directives(launch))]
    job = launch.job
    lines += [
        comment(
            f"{job.nodes} x {job.gpus_per_node} ranks, one task each. Slurm queues the job again when a node fails; "
            "the lines below do so when the ranks fail or time runs out, if a checkpoint was written since the start."
        ),
        "set -uo pipefail",
        f"folder={quoted(launch.folder)}",
        *guard(launch),
        comment("Rank 0 waits on the first node, by the address that Slurm has of it, at a port of this job's own."),
        'first="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"',
        """MASTER_ADDR="$(scontrol show node "$first" | sed -n 's/.*NodeAddr=\\([^ ]*\\).*/\\1/p')\"""",
        'MASTER_PORT="$((15000 + SLURM_JOB_ID % 10000))"',
        "export MASTER_ADDR MASTER_PORT",
        array("command", _srun(launch)),
        _BODY,
    ]
    return "\n".join(lines)


def _srun(launch: JobLaunch) -> list[str]:
    words = ["--kill-on-bad-exit=1"]
    if launch.has_gpus:
        words += [f"--cpus-per-task={launch.cores}", "--cpu-bind=cores"]
    return [*words, "bash", f'"$folder/{RANK_SCRIPT}"', '"$(command -v python3 || command -v python)"']


def _directives(launch: JobLaunch) -> list[str]:
    job = launch.job
    own = [
        f"--job-name={_directive_word(launch.name)}",
        f"--nodes={job.nodes}",
        f"--ntasks-per-node={job.gpus_per_node}",
    ]
    if launch.has_gpus:
        own += [f"--gpus-per-node={job.gpus_per_node}", f"--cpus-per-task={launch.cores}"]
        own += _memory(launch)
    own += [
        "--requeue",
        "--open-mode=append",
        f"--signal=B:USR1@{WARNING_SECONDS}",
        f"--chdir={_directive_word(launch.folder)}",
        "--output=slurm-%j.out",
    ]
    for one in launch.directives:
        if not one.startswith("--") or "\n" in one:
            raise mistake(
                f"{one!r} is no directive",
                must="it must be one option of sbatch that begins with --",
                where="--directive",
                todo="Such as --directive=--partition=gpu.",
            )
    return [*own, *launch.directives]


def _memory(launch: JobLaunch) -> list[str]:
    """The whole node where all of its GPUs are used; else what the host is to hold at most."""
    if launch.job.gpus_per_node == launch.job.hardware.gpus_per_node:
        return ["--exclusive", "--mem=0"]
    return [f"--mem={-(-launch.plan.chosen.memory.host.high_bytes // _GIB):.0f}G"]


def _directive_word(word: str) -> str:
    """A value as sbatch reads it back: in double quotes, where a backslash keeps the next letter."""
    if quoted(word) == word:
        return word
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'
