"""`dsgen migrate`: what a release of DeepSpeed changed is changed in the configs, and what is left is said."""

from __future__ import annotations

import sys
from typing import Any

import click

from dsgen.cli import FOUND, MISTAKE, OK
from dsgen.cli.lint_options import facts_options, for_terminal, lint_all, settings_from
from dsgen.cli.mending import mend
from dsgen.shapes.errors import mistake

__all__ = ["command"]


@click.command("migrate")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--to", "release", required=True, metavar="VERSION", help="The DeepSpeed release to move to.")
@facts_options
@click.option("--diff", is_flag=True, help="Print what would change (the default).")
@click.option("--write", is_flag=True, help="Change the files.")
@click.option("--unsafe-fixes", is_flag=True, help="Also fixes that change what is trained.")
def command(files: tuple[str, ...], release: str, diff: bool, write: bool, unsafe_fixes: bool, **options: Any) -> int:
    """Change configs to what another DeepSpeed release reads.

    Only what differs between releases is touched: keys that were removed, renamed or deprecated, or that the release
    does not know yet. Comments and layout stay. What is left to be changed is listed on stderr, with exit code 1.
    """
    from dsgen.linting.migrations import about_release, is_to_do
    from dsgen.report import findings
    from dsgen.report.wrapping import fit

    if diff and write:
        raise mistake("--diff and --write exclude each other", must="--write changes the files, --diff only shows how")
    said = settings_from({**options, "deepspeed": release}, "info")
    every, wrong = lint_all(files, said)
    linted, fixed, stuck = mend(
        [about_release(file) for file in every],
        unsafe=unsafe_fixes,
        write=write,
        narrow=about_release,
        only=is_to_do,
    )
    width, paint = for_terminal(sys.stderr)
    left = [finding for file in linted for finding in file.findings]
    to_do = [finding for finding in left if is_to_do(finding)]
    unsafe = sum(finding.fix is not None and not finding.fix.safe for finding in to_do)
    summary = _summary(fixed.fixed + fixed.arisen, len(to_do), unsafe, write)
    summary += f", {len(left) - len(to_do)} worth knowing" if len(left) > len(to_do) else ""
    click.echo(f"{findings.text(linted, width, paint)}{fit(f'DeepSpeed {release}: {summary}')}", err=True)
    if wrong or stuck:
        return MISTAKE
    return FOUND if to_do else OK


def _summary(fixed: int, left: int, unsafe: int, written: bool) -> str:
    if not fixed and not left:
        return "nothing to change"
    changed = f"{fixed} {'changed' if written else 'to change (--write does)'}" if fixed else "nothing changed"
    return (
        f"{changed}, {left} left{f' ({unsafe} fixable with --unsafe-fixes)' if unsafe else ' by hand' if left else ''}"
    )
