"""Tables by rich as plain text of a given width."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence

__all__ = ["table"]


def table(rows: Iterable[Sequence[str]], width: int, headers: Sequence[str] = (), indent: int = 2) -> str:
    """Rows as columns that keep to a width; the last column wraps.

    Args:
        rows: Cells as text.
        width: Columns of the terminal.
        headers: Column heads; none for a bare grid.
        indent: Spaces before each row.

    Returns:
        Lines without trailing spaces, joined, without a final newline.
    """
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    cells = [list(row) for row in rows]
    grid = Table(box=None, show_header=bool(headers), padding=(0, 2, 0, 0), pad_edge=False, header_style="")
    columns = len(headers) or max(map(len, cells), default=0)
    for index in range(columns):
        last = index == columns - 1
        grid.add_column(headers[index] if headers else "", no_wrap=not last, overflow="fold" if last else "ellipsis")
    for row in cells:
        grid.add_row(*(Text(cell) for cell in row))
    buffer = io.StringIO()
    console = Console(file=buffer, width=width, color_system=None, force_terminal=False, legacy_windows=False)
    console.print(Padding(grid, (0, 0, 0, indent)), soft_wrap=False)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines())
