"""Axolotl, LLaMA-Factory and ms-swift as programs: what every rank runs, and the one file that says all of a run.

Their own commands (`axolotl train`, `llamafactory-cli train`, `swift sft`) start ranks that run these modules. Read in
Axolotl 0.18.0 (cli/utils/train.py), LLaMA-Factory 0.9.5 (launcher.py), ms-swift 4.6.0 (cli/main.py, cli/sft.py).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from typing import Any

from dsgen.documents.yaml import documents as yaml_documents
from dsgen.frameworks.job_files import FILL_IN, Argument, unfilled, yaml_value
from dsgen.frameworks.saving import KEPT
from dsgen.frameworks.trainers import OF_NO_PLAN, TRAINERS, trainer_arguments, trainer_text
from dsgen.launching.expected import expect
from dsgen.launching.launches import CHECKPOINTS, CONFIG, JobLaunch, RunFile, RunProgram
from dsgen.launching.quoting import quoted
from dsgen.shapes.errors import mistake

__all__ = [
    "TRAINER_PROGRAMS",
    "check_filled",
    "guard",
    "leading",
    "program_of",
    "read_arguments",
    "resumed",
    "trainer_file",
]

# What a job of a cluster copies when it is written, so that nothing can be filled in later.
_COPIES = ("kubernetes", "skypilot")
# Module of the ranks, the words before the file, and how the file is told a value on the command line.
_MODULES: Mapping[str, tuple[str, tuple[str, ...], str]] = {
    "axolotl": ("axolotl.cli.train", (), "--{name}={value}"),
    "llama-factory": ("llamafactory.launcher", (), "{name}={value}"),
    "ms-swift": ("swift.cli.main", ("sft",), "--{name}={value}"),
}
TRAINER_PROGRAMS = tuple(_MODULES)
# Of a run alone, by framework: ms-swift would save below a folder with the time of each start; LLaMA-Factory takes a
# folder that holds a checkpoint for a mistake, or goes on from one that was cut short.
_OWN: Mapping[str, tuple[Argument, ...]] = {
    "ms-swift": (Argument("add_version", False, "each start saves in the same folder"),),
    "llama-factory": (Argument("overwrite_output_dir", True, "deletes nothing; rank.sh says where it goes on"),),
}


def program_of(target: str, arguments: tuple[str, ...]) -> RunProgram:
    """What every rank of a framework runs.

    Args:
        target: axolotl, llama-factory or ms-swift.
        arguments: What a person gives it behind its file, letter for letter.
    """
    return RunProgram(module=_MODULES[target][0], arguments=arguments, called=TRAINERS[target].run)


def leading(launch: JobLaunch) -> Iterator[str]:
    """The first words of the program, quoted: its subcommand and its file."""
    if launch.target in _MODULES:
        yield from map(quoted, _MODULES[launch.target][1])
        yield f'"$folder/{TRAINERS[launch.target].file}"'


def resumed(target: str, path: str) -> str:
    """How the program is told from which checkpoint it goes on; `path` is quoted already."""
    form = _MODULES[target][2] if target in _MODULES else "--{name} {value}"
    return form.format(name="resume_from_checkpoint", value=path)


def trainer_file(launch: JobLaunch) -> RunFile | None:
    """The YAML of a framework's run; None for programs of a person's own.

    Raises:
        DsgenError: A model that it does not train; a value for what the plan says, or for what it does not have.
    """
    if launch.target not in _MODULES:
        return None
    name = TRAINERS[launch.target].file
    checkpoints = posixpath.join(launch.folder, CHECKPOINTS)
    run = (
        Argument("output_dir", checkpoints, "checkpoints and logs"),
        *_OWN.get(launch.target, ()),
        Argument("save_strategy", "steps"),
        Argument("save_steps", expect(launch).save_steps, "optimizer steps between checkpoints"),
        Argument("save_total_limit", KEPT, "the newest may be cut short by a crash"),
    )
    config = posixpath.join(launch.folder, CONFIG)
    arguments = trainer_arguments(launch.target, launch.config, config, run)
    text = trainer_text(launch.target, tuple(_filled(launch, arguments)), name)
    return RunFile(name, text, "all that the program is told; fill in what only you know" if unfilled(text) else
                   "all that the program is told")  # fmt: skip


def _filled(launch: JobLaunch, arguments: tuple[Argument, ...]) -> Iterator[Argument]:
    """The arguments with a person's values, then what they add."""
    said: dict[str, Any] = dict(launch.filled)
    ours = {item.name: item for item in arguments}
    theirs = [*(item.name for item in TRAINERS[launch.target].unknown), *OF_NO_PLAN]
    for name in said:
        if name in ours and name not in theirs and FILL_IN not in str(ours[name].value):
            raise mistake(
                f"--argument {name}: the plan says {yaml_value(ours[name].value)}",
                must="the arguments agree with the config",
                todo="Say what you want to the plan: dsgen launch --help lists its options.",
                code="contradiction",
            )
    for item in arguments:
        yield item._replace(value=said.pop(item.name), reason="") if item.name in said else item
    for name, value in said.items():
        yield Argument(name, value, "as you say it")


def check_filled(launch: JobLaunch) -> None:
    """Refuse what a cluster would copy before a person could fill it in.

    Raises:
        DsgenError: Something is still to be filled in.
    """
    file = trainer_file(launch) if launch.launcher in _COPIES else None
    missing = unfilled(file.text) if file else ()
    if missing:
        raise mistake(
            f"{launch.target} is not told {', '.join(missing)}",
            must=f"{launch.launcher} copies the file when it is written",
            todo=" ".join(f"Say --argument {name}=VALUE." for name in missing),
            code="missing",
        )


def guard(launch: JobLaunch) -> tuple[str, ...]:
    """Lines of bash that stop a start before its ranks where something is still to be filled in."""
    if launch.target not in _MODULES:
        return ()
    name = TRAINERS[launch.target].file
    return (
        f"if open_lines=\"$(sed 's/#.*//' \"$folder/{name}\" | grep -n '{FILL_IN}')\"; then",
        f'  echo "{name} is not filled in yet; nothing was started. Write what only you know in $folder/{name}:" >&2',
        '  echo "$open_lines" >&2',
        "  exit 2",
        "fi",
    )


def read_arguments(given: tuple[str, ...]) -> tuple[tuple[str, Any], ...]:
    """Name and value of each --argument NAME=VALUE; a value is read as YAML, as the file's reader will.

    Raises:
        DsgenError: One without a name, twice the same, or a value that is no YAML.
    """
    told: dict[str, Any] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals or not name.isidentifier():
            raise mistake(f"--argument {one} names nothing", must="it must be NAME=VALUE", code="missing")
        if name in told:
            raise mistake(f"--argument {name} is said twice", must="one value is meant", code="contradiction")
        read = yaml_documents.read(f"value: {value}\n", "--argument")
        if read.faults or not isinstance(read.config, dict) or set(read.config) != {"value"}:
            raise mistake(f"--argument {name}: {value!r} is no value of YAML", must="the program reads it as YAML",
                          todo=f"Quote it: --argument '{name}=\"...\"'.", code="unreadable")  # fmt: skip
        told[name] = read.config["value"]
    return tuple(told.items())
