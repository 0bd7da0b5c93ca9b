"""`dsgen launch`: the folder of a run, from a scenario and a program; it starts nothing unless told to."""

from __future__ import annotations

from typing import Any

import click

from dsgen.cli import FOUND, OK
from dsgen.cli.options import arguments_option, filled_by, idle, job_from, say_left_behind, scenario_options
from dsgen.cli.terminal import emit
from dsgen.shapes.errors import mistake

__all__ = ["command"]

_META = "dsgen.launch.arguments"
_WITH = "deepspeed|torchrun|accelerate|slurm|kubernetes|skypilot"


class _WithProgram(click.Command):
    """A command whose words behind `--` are the program's, and never options of dsgen."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own, behind = args, []
        if "--" in args:
            place = args.index("--")
            own, behind = args[:place], args[place + 1 :]
        ctx.meta[_META] = tuple(behind)
        return super().parse_args(ctx, own)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- ARGUMENT...]"]


@click.command("launch", cls=_WithProgram)
@click.argument("scenario", required=False)
@click.option("--with", "starter", metavar=_WITH, required=True, help="Who starts the ranks.")
@click.option("--target", default="deepspeed", show_default=True, metavar="NAME", help="The program that loads the config: deepspeed, hf-trainer, accelerate, lightning, axolotl, llama-factory, ms-swift.")  # fmt: skip  # noqa: E501
@click.option("--script", metavar="FILE", help="The Python file that every rank runs.")
@click.option("--module", metavar="NAME", help="Or the module, as python -m takes it.")
@click.option("-o", "--output", "folder", metavar="FOLDER", help="Where the files of the run go.")
@click.option("--hostfile", metavar="FILE", help="The machines of several nodes, a line for each: worker-1 slots=8.")
@click.option("--interface", metavar="NAME", help="The network interface between hosts (default: NCCL finds one).")
@click.option("--port", type=int, default=29500, show_default=True, help="Where rank 0 waits.")
@click.option(
    "--config-argument", metavar="OPTION|none", help="What the program takes the config by (default: by target)."
)
@click.option("--checkpoint-argument", metavar="OPTION|none", help="What it takes the folder of checkpoints by.")
@click.option("--directive", "directives", multiple=True, metavar="OPTION", help="One more #SBATCH line, such as --directive=--partition=gpu; repeatable.")  # fmt: skip  # noqa: E501
@click.option("--argument", "filled", multiple=True, metavar="NAME=VALUE", help="One value in the file of axolotl, llama-factory or ms-swift, such as --argument dataset=mine; repeatable.")  # fmt: skip  # noqa: E501
@click.option("--image", metavar="NAME", help="The container image of kubernetes, or of skypilot's nodes.")
@click.option("--force", is_flag=True, help="Write over files of a run that are there.")
@click.option("--dry-run", is_flag=True, help="Print every file, and write none.")
@click.option("--start", is_flag=True, help="Start it when it is written; without this nothing is started.")
@arguments_option
@scenario_options
def command(
    scenario: str | None,
    starter: str,
    target: str,
    script: str | None,
    module: str | None,
    folder: str | None,
    hostfile: str | None,
    interface: str | None,
    port: int,
    config_argument: str | None,
    checkpoint_argument: str | None,
    directives: tuple[str, ...],
    filled: tuple[str, ...],
    image: str | None,
    force: bool,
    dry_run: bool,
    start: bool,
    **options: Any,
) -> int:
    """Write the folder of a run: config, environment, what every rank runs, the command or job file, and RUN.md.

    What stands behind -- is given to the program, letter for letter. RUN.md says what to expect (memory, step time,
    MFU), what the program must do, what to watch and at which thresholds, how the run resumes, and what to do when it
    fails. Nothing is started without --start. Exit code 1 means that what was started has failed.
    """
    import attrs

    from dsgen.documents.folder_writing import write_folder
    from dsgen.launching import run_folder
    from dsgen.launching.asked import Wishes, asked_launch
    from dsgen.launching.screen import dry_text, written_text
    from dsgen.planning.launchers import started_by
    from dsgen.planning.planner import plan
    from dsgen.rendering import render

    if folder is None and not dry_run:
        raise mistake("no folder is named", must="the files of a run go into one", code="missing",
                      todo="Say -o runs/first, or --dry-run.")  # fmt: skip
    if start and dry_run:
        raise mistake("--start and --dry-run", must="one of them is meant", todo="Drop one.", code="contradiction")
    wishes = Wishes(
        launcher=starter, folder="run" if folder is None else folder, target=target, script=script, module=module,
        arguments=click.get_current_context().meta[_META],
        config_argument=config_argument, checkpoint_argument=checkpoint_argument,
        hostfile=hostfile, interface=interface, port=port, directives=directives, image=image, filled=filled,
    )  # fmt: skip
    arguments = options["arguments"]
    config = render(plan(started_by(job_from(scenario, options, target), starter)))
    if arguments is not None:
        from dsgen.asking import told_files
        from dsgen.asking.training_arguments import read_arguments

        own = [one.partition("=")[0] for one in filled]
        scheduled = config.plan.job.training.scheduler != "program"
        told = told_files.filled(read_arguments(arguments), target, scheduled)
        wishes = attrs.evolve(wishes, filled=(*(one for one in told if one.partition("=")[0] not in own), *filled))
    _say_idle(wishes, config.plan.job.nodes)
    written = run_folder(asked_launch(config, wishes))
    if name := written.unfilled_file:
        texts = ((file, filled_by(arguments, file.text) if file.name == name else file.text) for file in written.files)
        written = attrs.evolve(written, files=tuple(attrs.evolve(file, text=text) for file, text in texts))
    for file in written.files:
        say_left_behind(arguments, file.name, file.text)
    if dry_run:
        emit(dry_text(written, wishes.folder), "launch")
        return OK
    if start:
        _ensure_tool(written.tool)
    write_folder(written.folder, written.texts(), force=force)
    emit(written_text(written, wishes.folder, started=start), "launch")
    for warning in config.warnings:
        from dsgen.report.wrapping import fit

        click.echo(fit(f"warning: {warning}"), err=True)
    return _started(written.start()) if start else OK


def _say_idle(wishes: Any, nodes: int) -> None:
    from dsgen.launching import NAMES_HOSTS
    from dsgen.launching.launches import PORT

    if wishes.hostfile and wishes.launcher not in NAMES_HOSTS:
        idle("--hostfile", f"{wishes.launcher} knows its machines")
    if wishes.interface and nodes == 1:
        idle("--interface", "one node has no network between hosts")
    if wishes.port != PORT and wishes.launcher == "slurm":
        idle("--port", "a job of Slurm takes a port by its number")
    if wishes.image and wishes.launcher not in ("kubernetes", "skypilot"):
        idle("--image", f"{wishes.launcher} starts no containers")
    if wishes.directives and wishes.launcher != "slurm":
        idle("--directive", "it is for --with slurm")


def _ensure_tool(tool: str) -> None:
    """Refuse to start what is not there, before anything is written."""
    import shutil

    if shutil.which(tool) is None:
        raise mistake(
            f"no {tool} on PATH",
            must="--start runs it",
            todo="Nothing was written. Activate the environment that has it, or leave --start away.",
            code="missing-package",
        )


def _started(start: str) -> int:
    """Run the command as a person would; its output is theirs."""
    import subprocess

    return OK if subprocess.run(["bash", "-c", start], check=False).returncode == 0 else FOUND
