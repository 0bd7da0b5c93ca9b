"""What is launched: a config, a program with its arguments, on hosts, by a launcher; and the files that makes."""

from __future__ import annotations

import posixpath
from typing import Any

import attrs

from dsgen.frameworks.rank_environment import rank_cores
from dsgen.jobs.job import Job
from dsgen.launching.hostfiles import RunHost
from dsgen.launching.quoting import quoted
from dsgen.planning.planner import Plan
from dsgen.rendering import Config

__all__ = ["CHECKPOINTS", "CONFIG", "PORT", "JobLaunch", "RunFile", "RunProgram"]

PORT = 29500  # where rank 0 waits: the default of torch's and of DeepSpeed's launcher (deepspeed/constants.py)
CONFIG = "ds_config.json"
CHECKPOINTS = "checkpoints"


@attrs.frozen
class RunFile:
    """One file of the folder of a run: its name, its text, and what it is for."""

    name: str
    text: str
    reason: str


@attrs.frozen(kw_only=True)
class RunProgram:
    """What every rank runs.

    Attributes:
        script: Absolute path of a Python file; None where a module runs.
        module: Name of a module, as `python -m` takes it; None where a script runs.
        arguments: What it is given behind what dsgen gives it, letter for letter.
        config_argument: The option before the config's path; None gives it none.
        checkpoint_argument: The option before the folder of checkpoints; None gives it none.
        called: What a person calls it, where that is not its file or module: "axolotl train".
    """

    script: str | None = None
    module: str | None = None
    arguments: tuple[str, ...] = ()
    config_argument: str | None = None
    checkpoint_argument: str | None = None
    called: str = ""

    @property
    def name(self) -> str:
        """What a person calls it: train.py."""
        if self.called:
            return self.called
        return posixpath.basename(self.script) if self.script else f"python -m {self.module}"

    @property
    def words(self) -> tuple[str, ...]:
        """What stands behind `python -u`, quoted."""
        return (quoted(self.script),) if self.script else ("-m", quoted(self.module or ""))


@attrs.frozen(kw_only=True, eq=False)
class JobLaunch:
    """All that the files of a run are written from.

    Attributes:
        config: The config, with its plan.
        target: The program that loads it, as --target names it.
        launcher: deepspeed, torchrun, accelerate, slurm, kubernetes or skypilot.
        folder: Absolute path of the folder of the run.
        working_folder: Absolute path of the folder that the program runs in.
        program: What every rank runs.
        hosts: Its machines; empty where the launcher knows them (slurm, kubernetes, skypilot, one machine).
        interface: The network interface between hosts; None leaves it to NCCL.
        port: Where rank 0 waits.
        directives: Further #SBATCH lines, without the word.
        image: The container of kubernetes and skypilot.
        given: Options of the framework with their values, before the person's.
        needs: What the program must do, in a sentence each.
        filled: Names and values for the file of axolotl, llama-factory or ms-swift, which a person says.
    """

    config: Config
    target: str
    launcher: str
    folder: str
    working_folder: str
    program: RunProgram
    hosts: tuple[RunHost, ...] = ()
    interface: str | None = None
    port: int = PORT
    directives: tuple[str, ...] = ()
    image: str | None = None
    given: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    filled: tuple[tuple[str, Any], ...] = ()

    @property
    def plan(self) -> Plan:
        """What was planned."""
        return self.config.plan

    @property
    def job(self) -> Job:
        """What it was planned for."""
        return self.config.plan.job

    @property
    def name(self) -> str:
        """The name of the run: that of its folder."""
        return posixpath.basename(self.folder.rstrip("/")) or "run"

    @property
    def offloads(self) -> bool:
        """Whether Adam runs on the host, so that its threads count."""
        return self.plan.chosen.strategy.offload_optimizer != "none"

    @property
    def cores(self) -> int:
        """Cores of each rank."""
        return rank_cores(self.plan)

    @property
    def has_gpus(self) -> bool:
        """Whether the ranks run on accelerators."""
        return self.job.hardware.vendor != "cpu"
