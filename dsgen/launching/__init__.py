"""From a config to a running job: the folder of a run, with what starts it and what to know of it; none is started."""

from __future__ import annotations

from dsgen.launching.folders import LAUNCHERS, NAMES_HOSTS, RunFolder, run_folder
from dsgen.launching.hostfiles import RunHost, read_hosts
from dsgen.launching.launches import JobLaunch, RunFile, RunProgram

__all__ = [
    "LAUNCHERS",
    "NAMES_HOSTS",
    "JobLaunch",
    "RunFile",
    "RunFolder",
    "RunHost",
    "RunProgram",
    "read_hosts",
    "run_folder",
]
