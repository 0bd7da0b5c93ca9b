"""rank.sh: what every rank runs, whoever starts it: the environment, where it goes on from, the program."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.frameworks.saving import KEPT
from dsgen.launching.expected import expect
from dsgen.launching.launches import CHECKPOINTS, CONFIG, JobLaunch
from dsgen.launching.quoting import array, comment, quoted
from dsgen.launching.trainer_programs import TRAINER_PROGRAMS, leading, resumed

__all__ = ["RANK_SCRIPT", "rank_script"]

RANK_SCRIPT = "rank.sh"

# The Trainer writes trainer_state.json of a checkpoint last, and DeepSpeed `latest` behind every rank's part
# (transformers 5.23.0, trainer.py, _save_checkpoint; deepspeed 0.19.8, runtime/engine.py, save_checkpoint).
_NEWEST = f"""\
# The newest checkpoint that was written to its end; one that a crash cut short has no trainer_state.json.
newest=-1
for one in "$folder"/{CHECKPOINTS}/checkpoint-*; do
  number="${{one##*-}}"
  if [[ "$number" =~ ^[0-9]+$ && -f "$one/trainer_state.json" && -f "$one/latest" && "$number" -gt "$newest" ]]; then
    newest="$number"
  fi
done
if [[ "$newest" -ge 0 ]]; then
  arguments+=(RESUMED)
fi"""


def rank_script(launch: JobLaunch) -> str:
    """The text of rank.sh; its first argument is the interpreter, by default `python`."""
    lines = [
        "#!/usr/bin/env bash",
        comment("What every rank runs: the environment, where it goes on from, the program."),
        "set -euo pipefail",
        f"folder={quoted(launch.folder)}",
        'source "$folder/env.sh"',
        *_of_launcher(launch),
        f"cd {quoted(launch.working_folder)}",
        array("arguments", _arguments(launch)),
    ]
    own = launch.target in TRAINER_PROGRAMS
    if own or (launch.target == "hf-trainer" and launch.program.checkpoint_argument):
        newest = resumed(launch.target, f'"$folder/{CHECKPOINTS}/checkpoint-$newest"')
        lines.append(_NEWEST.replace("RESUMED", newest))
    if launch.target == "ms-swift":
        lines += [comment("swift starts ranks of its own where these are set."), "unset NPROC_PER_NODE NNODES"]
    lines.append(f'exec "${{1:-python}}" -u {" ".join(launch.program.words)} ${{arguments[@]+"${{arguments[@]}}"}}')
    return "\n".join(lines) + "\n"


def _of_launcher(launch: JobLaunch) -> Iterator[str]:
    """What a launcher that knows nothing of torch leaves to us."""
    if launch.launcher == "slurm":
        yield comment("srun starts one of these for each rank; torch and DeepSpeed read the numbers by these names.")
        yield 'export RANK="$SLURM_PROCID" LOCAL_RANK="$SLURM_LOCALID" WORLD_SIZE="$SLURM_NTASKS"'


def _arguments(launch: JobLaunch) -> Iterator[str]:
    """Every argument, quoted: of the target, of the framework, and last those of the person, which win."""
    program = launch.program
    yield from leading(launch)
    if program.config_argument:
        if launch.target == "deepspeed" and program.config_argument == "--deepspeed_config":
            yield "--deepspeed"  # the two of deepspeed.add_config_arguments
        yield f'{quoted(program.config_argument)} "$folder/{CONFIG}"'
    if program.checkpoint_argument:
        yield f'{quoted(program.checkpoint_argument)} "$folder/{CHECKPOINTS}"'
        if launch.target == "hf-trainer":
            yield f"--save_strategy steps --save_steps {expect(launch).save_steps} --save_total_limit {KEPT}"
    for option, value in zip(launch.given[::2], launch.given[1::2], strict=True):
        yield f"{quoted(option)} {quoted(value)}"
    yield from map(quoted, program.arguments)
