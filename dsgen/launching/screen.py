"""What a person sees after a launch was written: the folder, what each file is for, and what is next."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from dsgen.launching.folders import RunFolder
from dsgen.launching.run_page import PAGE

__all__ = ["dry_text", "written_text"]

_WIDTH = 80


def written_text(written: RunFolder, shown: str, *, started: bool = False) -> str:
    """The screen after writing.

    Args:
        written: What was written.
        shown: The folder as the person named it.
        started: Whether it is started now.
    """
    width = max(len(file.name) for file in written.files) + 2
    lines = [f"{shown.rstrip('/')}/"]
    for file in written.files:
        lines += textwrap.wrap(
            file.reason, _WIDTH, initial_indent=f"  {file.name:<{width}}", subsequent_indent=" " * (width + 2)
        )
    if written.unfilled:
        where = f"{shown.rstrip('/')}/{written.unfilled_file}"
        lines += textwrap.wrap(f"Fill in {', '.join(written.unfilled)} in {where}: it does not start before.", _WIDTH)
    said = "Starting" if started else f"Nothing was started. Read {PAGE}. Next"
    lines.append(f"{said}: {written.start(shown)}")
    return "\n".join(lines) + "\n"


def dry_text(written: RunFolder, shown: str) -> str:
    """Every file with its name above it, as `--dry-run` prints them; `shown` is the folder as the person named it."""
    return "\n".join(_files(written, shown))


def _files(written: RunFolder, shown: str) -> Iterator[str]:
    for file in written.files:
        yield f"==> {file.name} <== {file.reason}"
        yield file.text
    yield f"Nothing was written or started. The command would be: {written.start(shown)}\n"
