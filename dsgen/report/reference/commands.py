"""The reference of the command line, from click's own commands and their help texts."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from dsgen.report.reference.markdown import cell, code, md_table

__all__ = ["commands_page"]


def commands_page(root: click.Group) -> str:
    """The page docs/commands.md.

    Args:
        root: The group `dsgen`; it is given because this package lies below the command line.
    """
    context = click.Context(root, info_name="dsgen")
    return "\n".join(["# Commands\n", *_sections(root, context, 2)])


def _sections(group: click.Group, context: click.Context, level: int) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None:  # a name that was listed always has a command; click's types do not say so
            continue
        yield from _section(command, click.Context(command, info_name=name, parent=context), level)


def _section(command: click.Command, context: click.Context, level: int) -> Iterator[str]:
    arguments = [item for item in command.params if isinstance(item, click.Argument)]
    options = [item for item in command.params if isinstance(item, click.Option)]
    usage = " ".join([context.command_path, *(["[OPTIONS]"] if options else []), *map(_argument, arguments)])
    nested = isinstance(command, click.Group)
    yield f"{'#' * level} {context.command_path}\n"
    yield f"`{usage}{' COMMAND' if nested else ''}`\n"
    yield f"{inspect.cleandoc(command.help or '')}\n"
    if options:
        yield md_table(["option", "meaning"], [[code(_option(item)), cell(_help(item))] for item in options])
    if isinstance(command, click.Group):
        yield from _sections(command, context, level + 1)


def _argument(argument: click.Argument) -> str:
    name = argument.metavar or (argument.name or "").upper()
    return name if argument.required else f"[{name}]"


def _option(option: click.Option) -> str:
    names = ", ".join(option.opts)
    if option.is_flag:
        return names
    if isinstance(option.type, click.Choice):
        return f"{names} {option.metavar or '|'.join(str(choice) for choice in option.type.choices)}"
    return f"{names} {option.metavar or option.type.name.upper()}"


def _help(option: click.Option) -> str:
    words = option.help or ""
    return f"{words} Default: {option.default}.".strip() if option.show_default else words
