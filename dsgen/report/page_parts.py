"""What pages of HTML share: their frame and style, tables, and the section of one place's memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from dsgen.memory import Place
from dsgen.report.bars import said, up_to
from dsgen.report.timeline import COLOURS
from dsgen.shapes.units import gib

__all__ = ["PAGE_STYLE", "framed", "place_section", "swatch", "table"]

PAGE_STYLE = """
:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;margin:2rem auto;max-width:1100px;
padding:0 1rem;background:#fff;color:#1f2430}
h1{font-size:1.35rem;margin:0 0 .2rem}h2{font-size:1.05rem;margin:1.8rem 0 .4rem}
p{margin:.2rem 0}.soft{color:#5f6675}
table{border-collapse:collapse;margin:.3rem 0;font-size:14px}
th,td{padding:.2rem .8rem .2rem 0;text-align:left;border-bottom:1px solid #d5d9e0;vertical-align:top}
td.number,th.number{text-align:right;font-variant-numeric:tabular-nums}
.swatch{display:inline-block;width:.75rem;height:.75rem;border-radius:2px;margin-right:.5rem}
.scroll{overflow-x:auto}
td{white-space:nowrap}
.columns section.wide{max-width:none;flex-grow:2}
.wide td:last-child{white-space:normal;overflow-wrap:anywhere}
.columns{display:flex;flex-wrap:wrap;gap:0 2.5rem}
.columns section{flex:1 1 22rem;max-width:34rem}
@media (prefers-color-scheme:dark){body{background:#14171d;color:#e8eaf0}.soft{color:#a2a9b8}
th,td{border-color:#3a4150}}
"""


def framed(title: str, parts: Iterable[str], style: str = "") -> str:
    """A page of the parts that are not empty, with a final newline; it loads nothing from elsewhere."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{PAGE_STYLE}{style}</style></head>\n<body>\n"
        + "\n".join(part for part in parts if part)
        + "\n</body></html>\n"
    )


def swatch(filled: str) -> str:
    """A small square of a colour."""
    return f'<span class="swatch" style="background:{filled}"></span>'


def place_section(label: str, place: Place, words: str, limits: bool) -> str:
    """One place: what it comes to in the words of the text (`place_line`), and its parts."""
    if limits:
        comes = f"{gib(place.needed_bytes)} of {gib(place.limit_bytes)} GiB: {said(place)}"
    else:
        comes = f"{gib(place.peak_bytes)} GiB{up_to(place)}"
    rows: list[Sequence[str]] = [
        (
            swatch(COLOURS.get(name, "#6b7280")) + escape(name),
            f"{size:,}",
            gib(size),
        )
        for name, size in sorted(place.parts.items(), key=lambda item: -item[1])
        if size
    ]
    rows.append(("<b>all tensors at the peak</b>", f"<b>{place.peak_bytes:,}</b>", f"<b>{gib(place.peak_bytes)}</b>"))
    rows += [(f"{escape(name)} (no tensor)", f"{size:,}", gib(size)) for name, size in place.overhead.items() if size]
    if place.overhead_bytes:
        whole = place.needed_bytes
        rows.append(("<b>with what no tensor holds</b>", f"<b>{whole:,}</b>", f"<b>{gib(whole)}</b>"))
    head = f"<h2>{escape(label)}: {escape(comes)}</h2>"
    told = "; ".join(part for part in (f"peak in {place.phase}" if place.phase else "", words) if part)
    return f"<section>{head}<p class='soft'>{escape(told)}</p>{table(('part', 'bytes', 'GiB'), rows, 1)}</section>"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], first: int, until: int | None = None) -> str:
    """A table whose columns from `first` up to `until` are numbers; cells are HTML."""

    def cells(tag: str, row: Sequence[str]) -> str:
        last = len(row) if until is None else until
        return "".join(
            f'<{tag} class="number">{cell}</{tag}>' if first <= index < last else f"<{tag}>{cell}</{tag}>"
            for index, cell in enumerate(row)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{cells("th", heads)}</tr></thead><tbody>{body}</tbody></table></div>'
