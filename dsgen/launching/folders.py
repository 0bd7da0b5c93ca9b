"""The folder of a run: its files, made whole from a launch, after everything that could be wrong was looked at."""

from __future__ import annotations

import posixpath
from collections.abc import Callable

import attrs

from dsgen.frameworks import job_files, keep_filled
from dsgen.frameworks.job_files import unfilled
from dsgen.frameworks.trainers import TRAINERS
from dsgen.launching.hostfiles import check_hosts, hostfile_text
from dsgen.launching.kubernetes_job import JOBSET, in_pods, manifests
from dsgen.launching.launches import CONFIG, JobLaunch, RunFile
from dsgen.launching.quoting import quoted, refuse_nul
from dsgen.launching.rank_script import RANK_SCRIPT, rank_script
from dsgen.launching.run_page import PAGE, run_page
from dsgen.launching.skypilot_task import TASK, on_clouds, task
from dsgen.launching.slurm_job import JOB_SCRIPT, job_script
from dsgen.launching.starting import HOSTFILE, RUN_SCRIPT, run_script
from dsgen.launching.trainer_programs import check_filled, trainer_file
from dsgen.launching.variables import environment, environment_text
from dsgen.shapes.errors import mistake

__all__ = ["LAUNCHERS", "NAMES_HOSTS", "RunFolder", "run_folder"]

ENVIRONMENT = "env.sh"


@attrs.frozen(kw_only=True)
class RunFolder:
    """What is written for a launch.

    Attributes:
        folder: Where.
        files: Every file, the page last.
        command: What starts the run, before the path of its file.
        file: The name of that file.
        behind: What a person adds behind it.
        tool: The program that the command needs on PATH.
    """

    folder: str
    files: tuple[RunFile, ...]
    command: str
    file: str
    behind: str
    tool: str

    @property
    def unfilled(self) -> tuple[str, ...]:
        """What a person has still to fill in before a start, of `unfilled_file`."""
        return next((unfilled(file.text) for file in self.files if file.name == self.unfilled_file), ())

    @property
    def unfilled_file(self) -> str:
        """The file of axolotl, llama-factory or ms-swift; "" where there is none."""
        names = {known.file for known in TRAINERS.values()}
        return next((file.name for file in self.files if file.name in names), "")

    def start(self, folder: str | None = None) -> str:
        """The command that starts the run, as a shell reads it; `folder` is another way to say where."""
        return f"{self.command} {quoted(posixpath.join(folder or self.folder, self.file))}{self.behind}"

    def write(self, *, force: bool = False) -> None:
        """Write the folder as the command line does.

        Raises:
            DsgenError: It holds anything and `force` was not said, or cannot be written; nothing is left behind.
        """
        from dsgen.documents.folder_writing import write_folder

        write_folder(self.folder, self.texts(), force=force, by="folder")

    def texts(self) -> dict[str, str]:
        """Name -> text of every file, with what a person has filled in in an earlier one."""
        from dsgen.documents.writing import there

        texts = {file.name: file.text for file in self.files}
        if name := self.unfilled_file:
            texts[name] = keep_filled(there(posixpath.join(self.folder, name)), texts[name])
        return texts


@attrs.frozen
class _Way:
    """How one launcher is written: its files beside the config, and the command and the file that start it."""

    files: Callable[[JobLaunch], tuple[RunFile, ...]]
    command: str
    file: str
    tool: str


def run_folder(launch: JobLaunch) -> RunFolder:
    """Every file of a launch.

    Raises:
        DsgenError: No hosts for several nodes, or others than the job's; a batch at odds with the ranks; AutoTP over
            nodes; an argument, a folder or a directive that cannot be written.
    """
    _check(launch)
    way = LAUNCHERS[launch.launcher]
    files = (
        _config(launch),
        *way.files(launch),
    )
    numbered = launch.launcher == "accelerate" and launch.job.nodes > 1
    written = RunFolder(
        folder=launch.folder, files=files, command=way.command, file=way.file, behind=" N" if numbered else "",
        tool=way.tool,
    )  # fmt: skip
    reason = "what to expect, what to watch, how to resume, what to do when it fails"
    page = RunFile(PAGE, run_page(launch, files, written.start()), reason)
    return attrs.evolve(written, files=(*files, page))


def _check(launch: JobLaunch) -> None:
    job, strategy = launch.job, launch.plan.chosen.strategy
    if job.gpus_per_node % strategy.tp:
        raise mistake(
            f"AutoTP {strategy.tp} does not divide the {job.gpus_per_node} GPUs of a node",
            must="the GPUs that share a layer are in one node: they talk in every layer",
            todo=f"Say --tp with a divisor of {job.gpus_per_node}.",
            code="contradiction",
        )
    refuse_nul((*launch.program.arguments, *launch.given, launch.program.script or "", launch.folder))
    if launch.hosts:
        check_hosts(launch.hosts, job.nodes, job.gpus_per_node, "--hostfile")
    elif job.nodes > 1 and launch.launcher in NAMES_HOSTS:
        raise mistake(
            f"no hosts are named for {job.nodes} nodes",
            must=f"{launch.launcher} must know them",
            todo="Write one line for each, worker-1 slots=8, and say --hostfile FILE.",
            code="missing",
        )
    check_filled(launch)
    _check_batch(launch)


def _check_batch(launch: JobLaunch) -> None:
    """The batch of the config against the ranks that are started, as DeepSpeed will hold them."""
    config = launch.config.tree
    names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    total, micro, steps = (config.get(name) for name in names)
    if not (isinstance(total, int) and isinstance(micro, int) and isinstance(steps, int)):
        return  # left to the program
    world = launch.job.world  # those of AutoTP's groups too: DeepSpeed counts every rank
    if total != micro * steps * world:
        raise mistake(
            f"train_batch_size {total} is not {micro} x {steps} x {world} (micro-batch, steps, ranks)",
            must="the batch is what the ranks make",
            where=CONFIG,
            todo="Say --gpus, --global-batch or --micro-batch so that they agree.",
            code="contradiction",
        )


def _common(launch: JobLaunch) -> tuple[RunFile, ...]:
    count = len(environment(launch))
    number = f"{count} variable{'s' if count != 1 else ''}, each with its reason"
    told = trainer_file(launch)
    return (
        *((told,) if told else ()),
        RunFile(ENVIRONMENT, environment_text(launch), number),
        RunFile(RANK_SCRIPT, rank_script(launch), "what every rank runs: the program, from its last checkpoint on"),
    )


def _started(launch: JobLaunch) -> tuple[RunFile, ...]:
    job = launch.job
    ranks = f"{job.nodes} x {job.gpus_per_node}" if job.nodes > 1 else f"{job.world}"
    ranks += " rank" if job.world == 1 else " ranks"
    hosts: tuple[RunFile, ...] = ()
    if launch.launcher == "deepspeed" and job.nodes > 1:
        hosts = (RunFile(HOSTFILE, hostfile_text(launch.hosts), "the hosts and the ranks of each"),)
    reason = f"the command: {ranks} with {launch.launcher}"
    return (*_common(launch), *hosts, RunFile(RUN_SCRIPT, run_script(launch), reason))


def _slurm(launch: JobLaunch) -> tuple[RunFile, ...]:
    job = launch.job
    many = f"{job.nodes} node{'s' if job.nodes > 1 else ''} x {job.gpus_per_node}"
    return (*_common(launch), RunFile(JOB_SCRIPT, job_script(launch), f"{many}, requeues, resumes"))


def _kubernetes(launch: JobLaunch) -> tuple[RunFile, ...]:
    inside = in_pods(launch)
    mounted = (_config(launch), *_common(inside))
    return (*_common(inside), *manifests(inside, launch.name, mounted))


def _skypilot(launch: JobLaunch) -> tuple[RunFile, ...]:
    common = _common(on_clouds(launch))
    return (*common, task(launch, (_config(launch), *common)))


def _config(launch: JobLaunch) -> RunFile:
    """As the target must have it: in numbers, without what it refuses or overwrites."""
    text = job_files(launch.config, launch.target, resolve=True).files[0].text
    return RunFile(CONFIG, text, "the DeepSpeed config; `dsgen why KEY` says why each key is so")


NAMES_HOSTS = ("deepspeed", "torchrun", "accelerate")
LAUNCHERS = {
    **{name: _Way(_started, "bash", RUN_SCRIPT, name) for name in NAMES_HOSTS},
    "slurm": _Way(_slurm, "sbatch", JOB_SCRIPT, "sbatch"),
    "kubernetes": _Way(_kubernetes, "kubectl apply -f", JOBSET, "kubectl"),
    "skypilot": _Way(_skypilot, "sky jobs launch", TASK, "sky"),
}
