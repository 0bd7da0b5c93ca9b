"""A golden scenario: its file, the config it renders, and the explanation of every key as committed text."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import attrs

from dsgen.jobs import scenarios
from dsgen.jobs.assembly import assemble
from dsgen.memory import Place
from dsgen.planning.planner import plan
from dsgen.rendering import Config, Explanation, render
from dsgen.report import summary
from dsgen.report.bars import rounded
from dsgen.shapes.errors import DsgenError
from dsgen.shapes.layers import show
from dsgen.shapes.units import gib

__all__ = ["CONFIGS", "EXPLANATIONS", "FOLDER", "SCENARIOS", "Scene", "names", "scene", "texts"]

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent
SCENARIOS, CONFIGS, EXPLANATIONS = FOLDER / "scenarios", FOLDER / "configs", FOLDER / "explanations"


@attrs.frozen
class Scene:
    """One rendered scenario.

    Attributes:
        name: Its file's name without `.yaml`.
        why: The comment that opens the file: what it covers.
        config: What dsgen renders for it.
    """

    name: str
    why: str
    config: Config


def names() -> tuple[str, ...]:
    """Every scenario, sorted."""
    return tuple(sorted(path.stem for path in SCENARIOS.glob("*.yaml")))


@functools.cache  # tests of several rooms ask for all of them
def scene(name: str) -> Scene:
    """Render one scenario, once in a process.

    Raises:
        DsgenError: The scenario is broken, has no opening comment, or has no plan.
    """
    path = SCENARIOS / f"{name}.yaml"
    first, _, _ = path.read_text("utf-8").partition("\n")
    if not first.startswith("# "):
        raise DsgenError(f"golden/scenarios/{name}.yaml:1: it must open with a comment that says what it covers")
    said = scenarios.read(str(path))
    job = assemble(scenarios.layers(said), said.deepspeed)
    return Scene(name, first.removeprefix("# "), render(plan(job)))


def texts(wanted: Scene) -> dict[Path, str]:
    """The committed files of a scene: path -> text."""
    return {
        CONFIGS / f"{wanted.name}.json": wanted.config.to_json(),
        EXPLANATIONS / f"{wanted.name}.md": _portable("\n".join(_explanation(wanted)) + "\n"),
    }


def _explanation(wanted: Scene) -> Iterator[str]:
    """The strategy with its predictions, then one line for every key in the config's own order."""
    config = wanted.config
    chosen = config.plan.chosen
    yield from (f"# {wanted.name}", "", wanted.why, "", f"- strategy: {summary.headline(config)}")
    yield f"- GPU: {_amount(chosen.memory.gpu)}"
    yield f"- host: {_amount(chosen.memory.host)}"
    if chosen.memory.nvme.peak_bytes:
        yield f"- NVMe: {_amount(chosen.memory.nvme)}"
    yield f"- speed: about {rounded(chosen.speed)} tokens/s/GPU"
    yield f"- chosen: {config.plan.reason}"
    yield f"- rivals: {', '.join(str(rival.strategy) for rival in config.plan.runners_up) or 'none fits'}"
    yield from (f"- warning: {warning}" for warning in config.warnings)
    yield from ("", "## Keys", "")
    yield from (_line(config.why(path)) for path in config.paths())
    if config.dropped:
        yield from ("", "## Left out", "")
        yield from (f"- `{path}`: {why}" for path, why in config.dropped.items())


def _amount(place: Place) -> str:
    """One place's memory as the summary shows it, without the bar."""
    numbers = f"{gib(place.needed_bytes)} of {gib(place.limit_bytes)} GiB, {place.verdict.value}"
    if place.least_bytes == place.high_bytes:
        return numbers
    return f"{numbers} ({gib(place.least_bytes)} to {gib(place.high_bytes)})"


def _line(key: Explanation) -> str:
    """One key: value, who decided it, why, and what lost."""
    decided = key.overrides[-1].origin if key.overrides else "nobody"
    lost = "; ".join(f"{show(loser.value)} ({loser.origin})" for loser in reversed(key.overrides[:-1]))
    over = f" [over {lost}]" if lost else ""
    return f"- `{key.path}` = `{show(key.value)}` ({decided}): {key.reason}{over}"


def _portable(text: str) -> str:
    """Paths as seen from the checkout, wherever it lies."""
    return text.replace(f"{SCENARIOS}/../", "golden/").replace(f"{ROOT}/", "")
