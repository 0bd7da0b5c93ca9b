"""RUN.md: how the run is started, what to expect of it, what to watch, how it resumes, and what to do when it fails."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from dsgen.frameworks.saving import AT_RISK_SECONDS, KEPT
from dsgen.frameworks.trainers import TRAINERS
from dsgen.launching.expected import Expectation, expect
from dsgen.launching.launches import CHECKPOINTS, CONFIG, JobLaunch, RunFile
from dsgen.launching.remedies_page import remedies
from dsgen.launching.trainer_programs import TRAINER_PROGRAMS
from dsgen.launching.watched import watched
from dsgen.memory import Place
from dsgen.memory.conversions import UNIVERSAL, unconverted
from dsgen.report.bars import machine_words, rounded
from dsgen.report.costs import seconds_text
from dsgen.report.summary import headline
from dsgen.shapes.units import gib

__all__ = ["PAGE", "run_page"]

PAGE = "RUN.md"
_WIDTH = 100  # columns of a paragraph


def run_page(launch: JobLaunch, files: Sequence[RunFile], start: str) -> str:
    """The page of a run.

    Args:
        launch: What is launched.
        files: The other files of its folder.
        start: The command that starts it.
    """
    job, expected = launch.job, expect(launch)
    model = job.names.get("model", job.model.architecture)
    machine = machine_words(job)
    many = f"{job.nodes} nodes of {job.gpus_per_node}" if job.nodes > 1 else f"{job.world}"
    sections = [
        f"# {launch.name}",
        f"{model} on {many} x {machine}, {job.tokens}: {headline(launch.config)}. {launch.program.name} is started by "
        f"{launch.launcher}. Nothing was started yet; the numbers below are computed, not measured.",
        "## Start",
        _start(launch, start),
        "## What is here",
        _table(("file", "what it is for"), [(f"`{file.name}`", file.reason) for file in files]),
        "## What to expect",
        _table(("what", "expected", "limit or interval"), list(_expected(launch, expected))),
        "## What the program must do",
        _needs(launch),
        "## What to watch",
        _table(("what", "how", "expected", "act when"), list(watched(launch, expected))),
        "## How it resumes",
        _resume(launch, expected),
        "## When it fails",
        _table(("you see", "it means", "do"), list(remedies(launch))),
    ]
    return "\n\n".join(map(_wrapped, sections)) + "\n"


def _start(launch: JobLaunch, start: str) -> str:
    job = launch.job
    text = f"```bash\n{start}\n```"
    if job.nodes == 1 and launch.launcher in ("deepspeed", "torchrun", "accelerate"):
        return f"{text}\n\nIn the environment whose `python` has torch and deepspeed."
    if launch.launcher == "deepspeed":
        return (
            f"{text}\n\nOn the first host, in the environment whose `python` has torch and deepspeed. The folder, the "
            "program and that environment lie at the same path on every host, and `ssh HOST hostname` asks for no "
            "password."
        )
    if launch.launcher in ("torchrun", "accelerate"):
        return (
            f"{text}\n\nOn every host, in any order, in the environment whose `python` has torch and deepspeed. The "
            "folder and the program lie at the same path on every host."
        )
    if launch.launcher == "slurm":
        return (
            f"{text}\n\nIn the environment whose `python` has torch and deepspeed: sbatch hands it on. The folder lies "
            "on a file system that all nodes share. Output goes to `slurm-JOBID.out` beside this page."
        )
    if launch.launcher == "kubernetes":
        return (
            f"{text}\n\nOr `trainjob.yaml` where Kubeflow Trainer is installed; either needs JobSet. The image has "
            "torch, deepspeed and the program. Checkpoints go to a claim of the cluster's own storage class, which "
            "many nodes must be able to write; say its class and size in the file. Networks of RDMA have resources of "
            "their own, which your cluster names: add them to `limits`."
        )
    return (
        f"{text}\n\nAs a managed job, which finds other nodes where a cloud takes them away. The working folder is "
        "copied to each node; torch and deepspeed must be there: name an `--image`, or add `setup:` to the file. "
        "Checkpoints go to a bucket that SkyPilot makes."
    )


def _expected(launch: JobLaunch, expected: Expectation) -> Iterator[tuple[str, ...]]:
    yield ("memory of a GPU", f"{gib(expected.gpu.needed_bytes)} GiB", _interval(expected.gpu))
    if expected.gpu.reserved_bytes:
        held = "`torch.cuda.max_memory_reserved`; what no tensor uses is given back where it is short"
        yield ("reserved by torch", f"{gib(expected.gpu.reserved_bytes)} GiB", held)
    yield ("RAM of a node", f"{gib(expected.host.needed_bytes)} GiB", _interval(expected.host))
    if expected.nvme.peak_bytes:
        yield ("NVMe of a node", f"{gib(expected.nvme.needed_bytes)} GiB", _interval(expected.nvme))
    seconds = _seconds
    interval = f"{seconds(expected.low_seconds)} to {seconds(expected.high_seconds)}"
    yield ("one optimizer step", seconds(expected.seconds), interval)
    speed = expected.tokens_per_second_per_gpu
    yield ("tokens/s/GPU", rounded(speed), f"{expected.tokens:,} tokens a step, all GPUs")
    yield ("MFU", f"{expected.utilization:.0%}", "without what is recomputed, by the dense peak")
    if launch.job.world > 1:
        yield ("waiting for the network", f"{expected.communication_share:.0%} of a step", "what nothing hides")
    if expected.steps:
        took, least, most = (
            seconds_text(expected.steps * one)
            for one in (expected.seconds, expected.low_seconds, expected.high_seconds)
        )
        yield ("the whole run", f"{expected.steps:,} steps, {took}", f"{least} to {most}")


def _interval(place: Place) -> str:
    said = f"{gib(place.least_bytes)} to {gib(place.high_bytes)} of {gib(place.limit_bytes)} GiB"
    return f"{said}: {place.verdict.value}"


def _needs(launch: JobLaunch) -> str:
    lines = [*launch.needs, *_program(launch)]
    return "\n".join(f"- {line}" for line in lines)


def _program(launch: JobLaunch) -> Iterator[str]:
    """What the program is given, and must take."""
    program = launch.program
    if program.config_argument:
        yield f"Take `{program.config_argument} PATH`, the DeepSpeed config."
    if program.checkpoint_argument and launch.target == "deepspeed":
        yield (
            f"Take `{program.checkpoint_argument} FOLDER`: call `engine.load_checkpoint(FOLDER)` before the first "
            "step, which gives `(None, {})` where there is none, and `engine.save_checkpoint(FOLDER)` on every rank."
        )
    elif program.checkpoint_argument and launch.target == "accelerate":
        yield (
            f"Take `{program.checkpoint_argument} FOLDER`: `accelerator.save_state(FOLDER)` there, and, where it holds "
            "one, `accelerator.load_state(FOLDER)` before the first step."
        )
    elif program.checkpoint_argument:
        yield f"Save below `{program.checkpoint_argument} FOLDER`."
    if launch.target == "hf-trainer":
        yield "Hand `args.resume_from_checkpoint` to `trainer.train(...)`: `rank.sh` sets it where there is one."
    if launch.target in TRAINER_PROGRAMS:
        yield (
            f"`{TRAINERS[launch.target].file}` says all that it is told. What says FILL_IN there only you know: a "
            "start stops at it. More arguments stand behind `--` of `dsgen launch`, or in that file."
        )
    if launch.target == "lightning":
        yield (
            "Take its Trainer from the `trainer.py` of `dsgen render --target lightning`: it reads from `env.sh` where "
            "the config is, and saves beside it. One of your own makes `DeepSpeedStrategy()` without `config=`."
        )


def _resume(launch: JobLaunch, expected: Expectation) -> str:
    minutes = round(expected.save_steps * expected.seconds / 60)
    often = f"every {expected.save_steps:,} steps" if expected.save_steps > 1 else "every step"
    size = f"A checkpoint takes about {gib(expected.saved_bytes)} GiB of disk, and {KEPT} are worth keeping"
    if not launch.program.checkpoint_argument and launch.target not in TRAINER_PROGRAMS:
        lightning = " (`trainer.py`: `trainer().fit(..., ckpt_path=last())`)" if launch.target == "lightning" else ""
        return (
            f"The program is told of no folder for checkpoints: it saves below `{launch.folder}/{CHECKPOINTS}` and "
            f"goes on from the newest one by itself{lightning}, {often}, about {minutes:,} min of work. {size}.\n\n"
            f"{_again(launch)}"
        )
    text = [
        f"Checkpoints go to `{CHECKPOINTS}/`. Save {often}, about {minutes:,} min of work: that is what a failure "
        f"costs at most (aimed at {AT_RISK_SECONDS // 60} min). {size}: the newest may be cut short by a crash.",
    ]
    if launch.target in TRAINER_PROGRAMS:
        text.append(
            f"`{TRAINERS[launch.target].file}` says so (`save_steps`). Every start looks for the newest `checkpoint-N` "
            "that was written to its end, and hands it over as `resume_from_checkpoint`."
        )
    elif launch.target == "hf-trainer":
        text.append(
            f"`rank.sh` says so (`--save_steps {expected.save_steps}`). Every start looks for the newest "
            "`checkpoint-N` that was written to its end, and hands it over as `--resume_from_checkpoint`."
        )
    else:
        text.append(
            "DeepSpeed writes `latest` when every rank's part is there; every start goes on from what it names."
        )
    text.append(_again(launch))
    text.append(
        f"To begin anew, move `{CHECKPOINTS}/` away. {_elsewhere(launch)} For another number write the folder anew: "
        f"the batch in `{CONFIG}` is for {launch.job.world}."
    )
    return "\n\n".join(text)


def _elsewhere(launch: JobLaunch) -> str:
    """What loads a checkpoint on other GPUs."""
    strategy = launch.plan.chosen.strategy
    stops = {one.name for one in unconverted(launch.job, strategy)}
    if stops and not strategy.stage:
        return "A checkpoint of stage 0 is one file, which any number of GPUs loads at that stage."
    alike = "A checkpoint of DeepSpeed is for the same number of GPUs and the same ZeRO stage"
    if UNIVERSAL in stops:
        return f"{alike}, and `ds_to_universal.py` stops at this one."
    return f"{alike}; for others convert it first (`ds_to_universal.py`)."


def _again(launch: JobLaunch) -> str:
    if launch.launcher == "slurm":
        return (
            "Slurm queues the job again when a node fails (`--requeue`). The job does so itself when its ranks fail, "
            "and 5 minutes before its time limit, but only if a checkpoint was written since the start: what fails "
            "before would fail again. By hand: `scontrol requeue JOBID`, or `sbatch` again."
        )
    if launch.launcher == "torchrun":
        return (
            "torchrun starts the ranks of all hosts again up to 3 times when one fails, each time from the last "
            "checkpoint. A host that was away joins again when `run.sh` is started on it; the first host holds the "
            "rendezvous, and when that one goes all must be started again."
        )
    if launch.launcher == "accelerate":
        return "accelerate hands 3 restarts to torchrun, each from the last checkpoint. By hand: start `run.sh` again."
    if launch.launcher == "deepspeed":
        return "The deepspeed launcher ends all ranks when one fails, and starts none again: start `run.sh` again."
    if launch.launcher == "kubernetes":
        return (
            "JobSet starts all pods again up to 3 times when one fails, each time from the last checkpoint. Delete it "
            "(`kubectl delete -f`) but for its claim before you apply it anew."
        )
    return (
        "SkyPilot finds other nodes when a cloud takes some away, and starts again up to 3 times after an error of the "
        "program, each time from the last checkpoint."
    )


def _wrapped(text: str) -> str:
    """Paragraphs broken at _WIDTH; headings, tables and code stay as they are."""
    lines, code = [], False
    for line in text.split("\n"):
        fence = line.lstrip().startswith("```")
        lines.append(line if code or fence or line.startswith(("#", "|")) else _filled(line))
        code = code != fence
    return "\n".join(lines)


def _filled(line: str) -> str:
    behind = "  " if line.startswith("- ") else ""
    return textwrap.fill(line, _WIDTH, subsequent_indent=behind, break_long_words=False, break_on_hyphens=False)


def _seconds(seconds: float) -> str:
    return f"{seconds:,.0f} s" if seconds >= 100 else f"{seconds:.3g} s"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; a bar in a cell is escaped."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
