"""`dsgen render`: the config on stdout or in a file, what a framework needs beside it, and a summary on stderr."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dsgen.cli.options import arguments_option, filled_by, idle, job_from, say_left_behind, scenario_options
from dsgen.cli.terminal import emit

if TYPE_CHECKING:
    from dsgen.frameworks import JobFiles

__all__ = ["command"]

_DEFAULT = click.core.ParameterSource.DEFAULT
TARGETS = ("deepspeed", "hf-trainer", "accelerate", "lightning", "axolotl", "llama-factory", "ms-swift")


@click.command("render")
@click.argument("scenario", required=False)
@scenario_options
@arguments_option
@click.option(
    "--target",
    type=click.Choice(TARGETS),
    default="deepspeed",
    show_default=True,
    help="Who hands the config to DeepSpeed: with -o its own files are written beside the config.",
)
@click.option("--resolve", is_flag=True, help='Numbers instead of the "auto" that the Hugging Face Trainer fills in.')
@click.option(
    "--format",
    "form",
    type=click.Choice(["json", "hjson"]),
    default="json",
    show_default=True,
    help="Of the config: hjson has a comment with the reason behind each key; DeepSpeed reads both.",
)
@click.option("-o", "--output", metavar="FILE", help="Write the config to a file, whole or not at all.")
@click.option("--force", is_flag=True, help="Also replace files beside the config that dsgen did not write.")
@click.option("-q", "--quiet", is_flag=True, help="No summary on stderr.")
@click.option(
    "--check",
    is_flag=True,
    help="Write nothing: compare with the config beside SCENARIO (or -o), lint the job, say whether it fits.",
)
def command(
    scenario: str | None,
    target: str,
    resolve: bool,
    form: str,
    output: str | None,
    force: bool,
    quiet: bool,
    check: bool,
    **options: Any,
) -> int | None:
    """Print the DeepSpeed config for a scenario.

    Name the hardware and the model, or give a SCENARIO file with the same fields. The config goes to stdout and
    nothing else does; a short summary goes to stderr. With --check, SCENARIO may be a folder, and exit code 1 means
    that something is not as committed.
    """
    if check:
        if options.pop("arguments") is not None:
            idle("--args", "what is committed is a scenario")
        from dsgen.cli.checking import check_committed

        given = target if click.get_current_context().get_parameter_source("target") is not _DEFAULT else None
        return check_committed(scenario, output, quiet, given, resolve, options)
    from dsgen.planning.planner import plan
    from dsgen.rendering import render
    from dsgen.report import summary

    output = None if output == "-" else output
    if output is not None:
        from dsgen.documents.writing import ensure_apart

        ensure_apart(output, (scenario, *options.values()))
    arguments = options["arguments"]
    config = render(plan(job_from(scenario, options, target)))
    if target == "deepspeed":
        for said, option in ((resolve, "--resolve"), (force, "--force")):
            if said:
                idle(option, "it is about the files of a framework (--target)")
        _put(config.to_json() if form == "json" else config.to_hjson(), output)
        beside: tuple[str, ...] = ()
    else:
        beside = _hand_over(_files(config, target, resolve, form, output), output, force, arguments)
    if not quiet:
        emit(summary.text(config, output, target, beside), "summary", err=True)
    return None


def _files(config: Any, target: str, resolve: bool, form: str, output: str | None) -> JobFiles:
    from pathlib import Path

    from dsgen.frameworks import CONFIG_FILE, job_files
    from dsgen.shapes.errors import mistake

    if form != "json":
        raise mistake(
            f"--format {form} and --target {target} exclude each other",
            must="frameworks read the config with Python's json, which knows no comments",
            todo="Drop one of them.",
            code="contradiction",
        )
    return job_files(config, target, resolve=resolve, path=str(Path(output).expanduser()) if output else CONFIG_FILE)


def _hand_over(files: JobFiles, output: str | None, force: bool, arguments: str | None) -> tuple[str, ...]:
    """Write a job's files, all or none of them; without a place for them the config goes to stdout alone.

    Args:
        files: The files.
        output: Where the config goes.
        force: What is there is written over.
        arguments: A file of arguments, which says what only a person knows.
    """
    first, *rest = files.files
    if output is None:
        emit(first.text, "json")
        return tuple(item.name for item in rest)
    from pathlib import Path

    from dsgen.documents.writing import ensure_writable, there
    from dsgen.frameworks import keep_filled
    from dsgen.shapes.errors import mistake

    folder = Path(output).expanduser().parent
    paths = [str(folder / item.name) for item in rest]
    ensure_writable(output)
    for path in paths:
        ensure_writable(path)
        if not force and Path(path).is_file() and not _is_ours(path, Path(output).name):
            raise mistake(
                f"{path} is there, and dsgen did not write it for {Path(output).name}",
                must="what is of a person or of another config is not replaced unasked",
                todo="Say --force, or write the config to another folder with -o.",
                code="unwritable",
            )
    _put(first.text, output)
    for path, item in zip(paths, rest, strict=True):
        text = filled_by(arguments, item.text)
        text = text if force else keep_filled(there(path), text)
        say_left_behind(arguments, path, text)
        _put(text, path)
    return tuple(paths)


def _is_ours(path: str, config: str) -> bool:
    """Whether dsgen wrote a file, and beside a config of this name."""
    from dsgen.documents.writing import there
    from dsgen.frameworks import HEADER

    text = there(path)
    return text.startswith(HEADER) and config in text


def _put(text: str, path: str | None) -> None:
    if path is None:
        emit(text, "json")
        return
    from dsgen.documents.writing import write_atomically

    write_atomically(path, text)
