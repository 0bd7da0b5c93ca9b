"""Colours of reports at a terminal, by rich: they are laid over the finished text, so that without a terminal it is
the same to the byte.

Only what prints at a terminal imports this module: rich takes as long to load as a plan to make.
"""

from __future__ import annotations

import io

from rich.color import ColorSystem
from rich.console import Console
from rich.highlighter import JSONHighlighter
from rich.style import Style
from rich.text import Text
from rich.theme import Theme

__all__ = ["REPORTS", "painted", "styled"]

STYLES = {
    "error": "bold red",
    "warning": "bold yellow",
    "info": "bold cyan",
    "place": "bold",
    "head": "bold",
    "faint": "dim",
    "fix": "green",
    "good": "green",
    "doubt": "yellow",
    "bad": "red",
    "bar": "cyan",
}
_PREFIX = "dsgen."
_SYSTEM = ColorSystem.STANDARD  # the sixteen that every terminal has, in the shades that its owner chose
_THEME = Theme({f"{_PREFIX}{role}": style for role, style in STYLES.items()})

# What every report may hold; a group's name is its role, and of two over one place the later wins.
_COMMON = [
    r"(?m)^(?P<warning>(warning|note):)",
    r"(?P<faint>░+)",
    r"(?m)(?P<bar>█+)(?=░*$)",
    r"(?P<good>█+(?=░* fits)|(?<=[█░] )fits)",
    r"(?P<doubt>█+(?=░* uncertain)|(?<=[█░] )uncertain)",
    r"(?P<bad>█+(?=░* does not fit)|(?<=[█░] )does not fit)",
    r"(?m)^(?:(?P<good>FITS)|(?P<doubt>UNCERTAIN|TRAINING FITS)|(?P<bad>DOES NOT FIT))(?=:)",
]
REPORTS: dict[str, list[str]] = {
    "summary": [r"\A(?P<head>.+)", r"(?m)^(?P<warning>your program needs) "],
    "needs": [
        r"(?m)^(?P<head>\[ \] \d+ .+)$",
        r"(?m)^    (?P<warning>else:)",
        r"(?P<bad>does not fit)",
        r"(?m)(?P<faint># .+)$",
    ],
    "plan": [
        r"\A(?P<head>.+)",
        r"(?m)^(?P<head>   strategy .+)$",
        r"(?m)^(?P<good> 1 .+)$",
        r"(?m)^(?P<faint> - .+)$",
        r"(?m)^(?P<info>pinned:)",
        r"(?m)^deadline of .+: (?:(?P<good>met)|(?P<bad>missed))",
    ],
    "speedups": [
        r"\A(?P<head>.+)",
        r"(?m)^(?P<head>   what would make it faster .+)$",
        r"(?m)^[ \d]\d .+ (?P<good>[+][\d.]+%|[\d.]+x) +\S+ +\S+$",
        r"(?m)^ = .+ (?P<good>[+][\d.]+%|[\d.]+x) +\S+ +\S+$",
        r"(?m)^(?P<info> =)(?= together)",
    ],
    "contest": [
        r"\A(?P<head>.+)",
        r"(?m)(?<=  )(?P<good>fits|fastest)(?=  |$)",
        r"(?m)(?<=  )(?P<doubt>uncertain)(?=  |$)",
        r"(?m)(?<=  )(?P<bad>does not fit)(?=  |$)",
        r"(?m)^\S+: (?P<bad>cannot run)(?=:)",
        r"(?m)^(?P<info>the fastest that fits:)",
        r"(?m)^(?P<faint>  \S+(?: \S+)*  +.+)$",
    ],
    "budget": [
        r"\A(?P<head>.+)",
        r"(?m)^(?P<head>    GPUs .+|    +GPUs .+)$",
        r"(?m)^(?P<good>> .+%)",
        r"(?m)^(?P<faint>         \S.+)$",
    ],
    "what-if": [
        r"\A(?P<head>.+)",
        r"(?m)^(?P<head>\S+ +tok/s/GPU .+|where the winner changes)$",
        r"(?m)^(?P<faint>     \S.+)$",
        r"(?m)^  between .+(?P<info>->)",
        r"(?m)^(?P<good>the same strategy wins throughout)$",
    ],
    "memory": [
        r"\A(?P<head>.+)",
        r"(?m)^(?P<head>GiB in phase .+|  stage optim .+|every stage and offload .+)$",
        r"(?m)^[> ] \d .+ (?:(?P<good>fits)|(?P<doubt>uncertain|(?:fits|uncertain) \*)|(?P<bad>does not fit))$",
        r"(?m)^(?P<info>>)(?= \d)",
    ],
    "why": [r"\A(?P<head>.+)", r"(?m)^(?P<info>If it were .+?:)"],
    "diff": [r"(?m)^(?P<head>\w\S*)$", r"(?m)^ *(?:(?P<bad>-)|(?P<good>\+)) "],
    "proof": [r"\A(?:(?P<good>proved)|(?P<bad>failed)|(?P<doubt>not run))", r"(?m)^(?P<head>changed .+|observed .+)$"],
    "checks": [
        r"(?m)^(?P<head>\S.*)$",
        r"(?m)^ +(?P<bad>-.*)$",
        r"(?m)^ +(?P<good>[+].*)$",
        r"(?m)(?<=[.]hjson |.[.]json )(?P<good>is what is rendered)$",
    ],
    "effective": [r"\A(?P<head>.+)"],
    "launch": [r"\A(?P<head>.+)", r"(?m)^(?P<head>==> .+ <==)", r"(?m)^(?P<info>Nothing was .+?\.|Starting:)"],
    "simulation": [r"\A(?P<head>.+)", r"(?m)^(?P<head> *GiB in phase .+)$"],
    "diagnosis": [
        r"\A(?P<head>.+)",
        r"(?m)^(?P<good>  next)(?=  )",
        r"(?m)^(?P<info>   or)(?=   )",
        r"(?m)^(?P<faint>  (?:log|last line|last error|also): .+)$",
    ],
    "patch": [r"(?m)^(?P<head>(?:---|\+\+\+) .+)$", r"(?m)^(?:(?P<bad>-.*)|(?P<good>\+.*))$", r"(?m)^(?P<info>@@.+@@)"],
    "page": [],  # markdown, csv
    "table": [r"\A(?P<head>.+)"],
}


def painted(text: str, report: str) -> str:
    """A finished report with colours; without them it is the text as it was.

    Args:
        text: The report.
        report: Its kind: one of REPORTS, or "json".
    """
    lines = Text(text, end="")
    if report == "json":
        JSONHighlighter().highlight(lines)
    for pattern in () if report == "json" else (*_COMMON, *REPORTS[report]):
        lines.highlight_regex(pattern, style_prefix=_PREFIX)
    paper = io.StringIO()
    console = Console(
        file=paper, force_terminal=True, color_system="standard", no_color=False, theme=_THEME, legacy_windows=False
    )
    console.print(lines, end="", soft_wrap=True)
    return paper.getvalue()


def styled(words: str, role: str) -> str:
    """Words in the colour of their role: one of STYLES."""
    return Style.parse(STYLES[role]).render(words, color_system=_SYSTEM)
