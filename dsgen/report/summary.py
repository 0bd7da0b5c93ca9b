"""The short summary beside a rendered config: strategy, memory, speed, what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dsgen.cost.steps import speed_interval
from dsgen.jobs.fabrics import assumes
from dsgen.planning.planner import Plan, offloaded
from dsgen.rendering import Config
from dsgen.report import needs, schedules
from dsgen.report.bars import batch_words, network_words, place_line, rounded, whole_node
from dsgen.report.headroom import between_steps, plan_lines
from dsgen.report.wrapping import fit, wrapped
from dsgen.strategies.strategies import describe

if TYPE_CHECKING:
    from dsgen.memory.later import Later

__all__ = ["headline", "text"]


def text(config: Config, written_to: str | None = None, target: str = "deepspeed", beside: tuple[str, ...] = ()) -> str:
    """The summary, at most 80 columns where the numbers allow, with a final newline.

    Args:
        config: What was rendered.
        written_to: Its file; None for stdout.
        target: Who hands it to DeepSpeed.
        beside: The files that the target is given beside it.
    """
    plan = config.plan
    chosen, job = plan.chosen, plan.job
    memory, speed = chosen.memory, chosen.speed
    places = {"GPU": memory.gpu, "host": memory.host, **({"NVMe": memory.nvme} if memory.nvme.peak_bytes else {})}
    lines = [headline(config), *(place_line(label, place) for label, place in places.items())]
    between = between_steps(plan, target)
    lines[2:2] = [part for line in plan_lines(memory, between) for part in wrapped(line, " " * 6, 2)]
    network = whole_node(job) or "one node"
    if job.nodes > 1:
        network = f"{job.nodes} nodes over {network_words(job)}"
    low, high = (rounded(speed * share) for share in speed_interval(job, chosen.strategy))
    lines.append(f"speed about {rounded(speed)} tokens/s/GPU ({low} to {high}); {network}")
    if job.hardware.calibrated:
        from dsgen.asking.calibrating import effect  # most machines were not measured

        lines.append(effect(plan).words)
    lines.append(needs.sentence(plan))
    if change := _offer(plan, target):
        lines.append(change)
    if rate := schedules.sentence(plan):
        lines.append(rate)
    keys = len(config.paths())
    if target != "deepspeed":
        lines.extend(_handed(written_to, target, beside))
    elif written_to:
        lines.append(f"wrote {written_to} ({keys} keys, DeepSpeed {job.version}). Next: dsgen prove {written_to}")
    else:
        lines.append(f"{keys} keys, DeepSpeed {job.version}. Next: -o ds_config.json, dsgen prove ds_config.json")
    lines.extend(f"warning: {warning}" for warning in (*config.warnings, *_cautions(between)))
    return "\n".join(line if line.startswith("wrote") else fit(line) for line in lines) + "\n"


def _handed(written_to: str | None, target: str, beside: tuple[str, ...]) -> Iterator[str]:
    """What lies beside a config for a framework, or would."""
    if written_to is None:
        yield f"for {target}: -o ds_config.json also writes {needs.joined(beside)} beside it"
        return
    yield from (f"wrote {name}" for name in (written_to, *beside))


def _cautions(between: tuple[Later, ...]) -> Iterator[str]:
    """What of it has no room."""
    if between:
        from dsgen.frameworks.between_steps import cautions

        yield from cautions(between)


def _offer(plan: Plan, target: str) -> str:
    """What the program could do otherwise, where the plan offloads or may not fit, and what a network that nodes of
    these GPUs have would change where nobody named one; empty where nothing helps, or no program of the target can."""
    if plan.chosen.sure and not offloaded(plan.chosen.strategy) and not assumes(plan.job):
        return ""
    from dsgen.asking.plan_questions.offers import offers as offered  # most summaries have none
    from dsgen.frameworks.recomputation import offloads
    from dsgen.report import offers

    told = (
        one for one in offered(plan) if "--activation-offloading" not in one.change.option or offloads(target, plan.job)
    )
    return next(map(offers.sentence, told), "")


def headline(config: Config) -> str:
    """One line: the strategy, the batch arithmetic and the dtype."""
    chosen, job = config.plan.chosen.strategy, config.plan.job
    words = batch_words(chosen, job.world)
    return f"{describe(chosen)}, micro-batch {chosen.micro_batch} x {words}, {chosen.precision}"
