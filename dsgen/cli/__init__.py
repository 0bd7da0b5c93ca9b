"""The command line: finds the command, prints, and exits: 0 ok, 1 findings or does not fit, 2 the user's mistake."""

from __future__ import annotations

import codecs
import importlib
import io
import os
import sys
from typing import Any, NoReturn

import click

from dsgen.shapes.errors import DsgenError
from dsgen.shapes.near_misses import offer

__all__ = ["COMMANDS", "main"]

OK, FOUND, MISTAKE, INTERRUPTED = 0, 1, 2, 130
_SPELLED = "dsgen.spelled"  # name of the error handler of stdout and stderr
_PLAIN = {"█": "#", "░": ".", "·": ".", "…": "~"}  # what a bar is drawn with where its letters are missing

# name -> what it does, so that `dsgen --help` imports no command
COMMANDS = {
    "render": "Print the DeepSpeed config for a scenario.",
    "needs": "Show what your program must do for a plan, with code.",
    "plan": "Show the chosen strategy, its rivals and what was rejected, with numbers.",
    "memory": "Say how much memory training takes, in every phase and place, and whether it fits.",
    "adopt": "Turn an existing config into a scenario that renders back to it, and say what would be faster.",
    "calibrate": "Turn your own measurement of a run into a hardware profile, which later plans use.",
    "diagnose": "Say why a run failed or is slow, from its log, and what to change.",
    "launch": "Write the folder of a run: config, environment, command or job file, and what to expect and watch.",
    "why": "Say who decided a key, what lost, and why.",
    "diff": "Compare two configs or two scenarios, key by key, with reasons.",
    "prove": "Start a real deepspeed.initialize with the config and check what it observed.",
    "lint": "Say what is wrong with config files, why, and mend it.",
    "rule": "Explain a rule of lint, or list them all.",
    "migrate": "Change configs to what another DeepSpeed release reads.",
    "survey": "Lint a tree of files and count what was found.",
    "effective": "Show what the installed DeepSpeed makes of a config.",
    "simulate": "Run the real DeepSpeed at full size without a GPU and show the memory of every phase.",
    "schema": "Print the JSON Schema of a release's config, for editors.",
    "profiles": "List, show and create profiles.",
    "hardware": "Detect this machine and write its hardware profile.",
}


class _BrokenError(Exception):
    """What was printed or read could not be: carries the OSError past click, which ends a broken pipe in silence."""


class _Lazy(click.Group):
    """A group that imports a command's module only when the command is used."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except OSError as error:
            raise _BrokenError from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"dsgen.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from dsgen.cli import other_words
            from dsgen.shapes.errors import nearest

            close = nearest(args[0], COMMANDS)
            hint = other_words.command(args[0]) or offer(close, f"commands: {', '.join(COMMANDS)}")
            ctx.fail(f"no command {args[0]!r}\n  {hint}")
        return super().resolve_command(ctx, args)


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        import dsgen

        click.echo(f"dsgen {dsgen.__version__}")
        ctx.exit()


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Print dsgen's version."
)
def cli() -> None:
    """DeepSpeed configs from what you know: the GPUs, the model, the network.

    Start with: dsgen render --hw a100-40g --model 7b
    """


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line; every mistake of a person is one message on stderr and exit code 2."""
    _stand_in()
    _spell_out()
    try:
        code = cli.main(args=arguments, prog_name="dsgen", standalone_mode=False)
        sys.stdout.flush()
    except DsgenError as error:
        _complain(str(error))
        code = MISTAKE
    except click.ClickException as error:
        _complain(_told(error), getattr(error, "ctx", None))
        code = MISTAKE
    except (click.exceptions.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except _BrokenError as broken:
        code = _unwritten(broken.__cause__)
    except OSError as error:
        code = _unwritten(error)
    sys.exit(code if isinstance(code, int) else OK)


def _told(error: click.ClickException) -> str:
    """What click says, with what a person can do about it."""
    from dsgen.cli import other_words

    if isinstance(error, click.NoSuchOption):
        return other_words.no_such_option(error)
    if isinstance(error, click.MissingParameter):
        return other_words.missing(error)
    if isinstance(error, click.BadParameter):
        return other_words.bad_value(error)
    return error.format_message()


def _stand_in() -> None:
    """Put a stream that cannot be written in the place of a closed stdout (>&-), where print would say nothing."""
    if sys.stdout is None:
        sys.stdout = open(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")  # noqa: PTH123, SIM115 - until exit


def _spell_out() -> None:
    """Let no letter end the run that the terminal's encoding lacks: a comment in Chinese, a name that is no UTF-8."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors=_SPELLED)


def _spelled(error: UnicodeError) -> tuple[str, int]:
    """What stands for letters that an encoding lacks: bars have plain ones, any other is its number."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(_PLAIN.get(letter, ascii(letter)[1:-1]) for letter in missing), error.end


codecs.register_error(_SPELLED, _spelled)


def _unwritten(error: BaseException | None) -> int:
    """Nobody can read what was printed: stdout is closed or full; or a file is in the way, which has a name."""
    named, why = getattr(error, "filename", None), getattr(error, "strerror", error)
    if named is None:
        _silence_stdout()
        _complain(f"the output could not be written ({why}); -o FILE writes it to a file")
    else:
        _complain(f"{named}: it cannot be used ({why})")
    return MISTAKE


def _complain(message: str, context: click.Context | None = None) -> None:
    """Print one error on stderr, with control characters spelled out: they could move the cursor or forge a line."""
    shown = "".join(letter if letter == "\n" or letter.isprintable() else ascii(letter)[1:-1] for letter in message)
    usage = context is not None and message == context.get_help()  # no command was given
    try:
        click.echo(shown if usage else f"{_error()} {shown}", err=True)
        if context is not None and not usage:
            click.echo(f"  {context.command_path} --help", err=True)
    except OSError:
        _silence_stdout()


def _error() -> str:
    from dsgen.cli.terminal import is_coloured

    if not is_coloured(sys.stderr):
        return "error:"
    from dsgen.report.colours import styled  # it loads rich

    return styled("error:", "error")


def _silence_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's last flush does not fail again."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (AttributeError, OSError, ValueError):
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - lives until exit
