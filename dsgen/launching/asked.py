"""A launch from what a person says: files are looked at, defaults of the target taken, and mistakes told."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs

from dsgen.frameworks.needs import Need, needs
from dsgen.launching.folders import LAUNCHERS, NAMES_HOSTS
from dsgen.launching.hostfiles import RunHost, read_hosts
from dsgen.launching.launches import PORT, JobLaunch, RunProgram
from dsgen.launching.trainer_arguments import trainer_arguments
from dsgen.launching.trainer_programs import TRAINER_PROGRAMS, program_of, read_arguments
from dsgen.planning.planner import Plan
from dsgen.rendering import Config
from dsgen.shapes.errors import mistake, nearest
from dsgen.shapes.near_misses import offer

__all__ = ["NOTHING", "TARGETS_LAUNCHED", "Wishes", "asked_launch"]

# RUN.md says of these what env.sh has and rank.sh gives to the program.
_OF_THE_RUN = ("environment", "start", "save", "resume", "one-file")
NOTHING = "none"  # what an option of arguments says to give none
_HIGHEST_PORT = 65_535
_LONGEST_HOSTFILE = 1_000_000  # bytes; 10,000 hosts take a fifth of it
# Target -> the option that its programs take the config by, and the one for the folder of checkpoints; None: they are
# told otherwise (env.sh), or find it themselves.
TARGETS_LAUNCHED: dict[str, tuple[str | None, str | None]] = {
    "deepspeed": ("--deepspeed_config", "--checkpoints"),
    "hf-trainer": ("--deepspeed", "--output_dir"),
    "accelerate": (None, "--output_dir"),
    "lightning": (None, None),
    **dict.fromkeys(TRAINER_PROGRAMS, (None, None)),  # their file says all
}


@attrs.frozen(kw_only=True)
class Wishes:
    """What a person says of a launch; what is None is chosen.

    Attributes:
        launcher: Who starts the ranks: deepspeed, torchrun, accelerate, slurm, kubernetes or skypilot.
        folder: Where its files go.
        target: The program that loads the config.
        script, module: What every rank runs: a Python file, or a module.
        arguments: What it is given, letter for letter.
        config_argument, checkpoint_argument: The options of the config and of the checkpoints; "none" gives none.
        hostfile: File with a line `HOST slots=N` for each machine.
        interface: Network interface between hosts.
        port: Where rank 0 waits.
        directives: Further options of sbatch.
        image: Container image.
        filled: NAME=VALUE each, for the file of axolotl, llama-factory or ms-swift.
    """

    launcher: str
    folder: str
    target: str = "deepspeed"
    script: str | None = None
    module: str | None = None
    arguments: tuple[str, ...] = ()
    config_argument: str | None = None
    checkpoint_argument: str | None = None
    hostfile: str | None = None
    interface: str | None = None
    port: int = PORT
    directives: tuple[str, ...] = ()
    image: str | None = None
    filled: tuple[str, ...] = ()


def asked_launch(config: Config, wishes: Wishes) -> JobLaunch:
    """The launch of a config.

    Args:
        config: What was rendered.
        wishes: What a person says.

    Raises:
        DsgenError: No such launcher, target or script, two programs or none, a port that is none, a broken hostfile.
    """
    _one_of(wishes.launcher, LAUNCHERS, "launcher", "--with")
    _one_of(wishes.target, TARGETS_LAUNCHED, "target", "--target")
    if not 1 <= wishes.port <= _HIGHEST_PORT:
        raise mistake(f"port {wishes.port} is none", must=f"it must be 1 to {_HIGHEST_PORT}", where="--port")
    return JobLaunch(
        config=config,
        target=wishes.target,
        launcher=wishes.launcher,
        folder=_folder(wishes.folder),
        working_folder=str(Path.cwd()),
        program=_program(wishes),
        hosts=_hosts(wishes.hostfile) if wishes.launcher in NAMES_HOSTS else (),
        interface=wishes.interface,
        port=wishes.port,
        directives=wishes.directives,
        image=wishes.image,
        filled=read_arguments(wishes.filled),
        given=trainer_arguments(config) if wishes.target == "hf-trainer" else (),
        needs=tuple(_needs(config.plan, wishes.target)),
    )


def _needs(plan: Plan, target: str) -> Iterator[str]:
    """What the program must do but for what RUN.md says of a run anyway."""
    told = needs(plan, target, launched=True)
    return (_told(item) for item in told if item.code not in _OF_THE_RUN)


def _told(need: Need) -> str:
    """A need as an item of a list in Markdown, with its code."""
    code = "\n".join(f"  {line}".rstrip() for line in need.snippet.splitlines())
    install = f" (`{need.install}`)" if need.install else ""
    return f"{need.words}{install}; else: {need.otherwise}\n\n  ```python\n{code}\n  ```\n"


def _one_of(name: str, names: Iterable[str], kind: str, where: str) -> None:
    choices = tuple(names)
    if name not in choices:
        raise mistake(
            f"no {kind} {name!r}",
            must=f"it must be one of {', '.join(choices)}",
            where=where,
            todo=offer(nearest(name, choices)[:1]),
            code="unknown-name",
        )


def _folder(folder: str) -> str:
    if not folder:
        raise mistake("-o names no folder", must="it must name one", todo="Such as -o runs/first.", code="missing")
    return os.path.abspath(Path(folder).expanduser())  # noqa: PTH100 - a link stays the name that every host knows


def _program(wishes: Wishes) -> RunProgram:
    if wishes.target in TRAINER_PROGRAMS:
        return _own_program(wishes)
    if wishes.filled:
        raise mistake(
            f"--argument is of {', '.join(TRAINER_PROGRAMS)}",
            must=f"a program of {wishes.target} is given what stands behind --",
            todo="Write it behind --.",
            code="contradiction",
        )
    if wishes.script and wishes.module:
        raise mistake(
            f"--script {wishes.script} and --module {wishes.module}",
            must="one program is started",
            todo="Drop one.",
            code="contradiction",
        )
    if not wishes.script and not wishes.module:
        raise mistake(
            "no program is named", must="every rank runs one", todo="Say --script train.py or --module NAME.",
            code="missing",
        )  # fmt: skip
    by_target = TARGETS_LAUNCHED[wishes.target]
    config_argument, checkpoint_argument = (
        default if said is None else None if said == NOTHING else said
        for said, default in zip((wishes.config_argument, wishes.checkpoint_argument), by_target, strict=True)
    )
    return RunProgram(
        script=_script(wishes.script, wishes.launcher) if wishes.script else None,
        module=wishes.module,
        arguments=wishes.arguments,
        config_argument=config_argument,
        checkpoint_argument=checkpoint_argument,
    )


def _own_program(wishes: Wishes) -> RunProgram:
    """The program of axolotl, llama-factory or ms-swift, which is theirs."""
    for option, said in (
        ("--script", wishes.script),
        ("--module", wishes.module),
        ("--config-argument", wishes.config_argument),
        ("--checkpoint-argument", wishes.checkpoint_argument),
    ):
        if said:
            raise mistake(
                f"{option} {said} and --target {wishes.target}",
                must=f"{wishes.target} is the program, and its file says the config and the checkpoints",
                todo=f"Drop {option}, or take --target hf-trainer for a program of your own.",
                code="contradiction",
            )
    return program_of(wishes.target, wishes.arguments)


def _script(script: str, launcher: str) -> str:
    if launcher == "kubernetes":  # it lies in the image
        if script.startswith("/"):
            return script
        raise mistake(f"the script {script} is no whole path", must="it lies in the image", where="--script",
                      todo="Such as --script /workspace/train.py.")  # fmt: skip
    path = Path(script).expanduser()
    if not path.is_file():
        kind = "is a folder" if path.is_dir() else "is not there"
        near = _beside(path)
        raise mistake(
            f"the script {script} {kind}",
            must="every rank runs it",
            where="--script",
            todo=offer(near, f"Looked in {Path.cwd()}; a module is --module NAME."),
            code="unreadable",
        )
    return os.path.abspath(path)  # noqa: PTH100 - as the folder


def _beside(path: Path) -> tuple[str, ...]:
    """The Python file of the same folder that a misspelt one is most like."""
    try:
        names = [one.name for one in path.parent.glob("*.py")]
    except OSError:
        return ()
    return tuple(str(path.with_name(name)) for name in nearest(path.name, names)[:1])


def _hosts(hostfile: str | None) -> tuple[RunHost, ...]:
    if hostfile is None:
        return ()
    path = Path(hostfile).expanduser()
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_LONGEST_HOSTFILE)
    except (OSError, UnicodeDecodeError) as error:
        raise mistake(
            f"it cannot be read ({getattr(error, 'strerror', None) or 'no text in UTF-8'})",
            where=hostfile,
            todo="Name a file with a line for each machine: worker-1 slots=8.",
            code="unreadable",
        ) from None
    return read_hosts(text, hostfile)
