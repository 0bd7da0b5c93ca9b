"""What the linter's rules say of a rendered config with its job at hand, and who wrote what they speak of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dsgen.deepspeed.keys import lookup
from dsgen.jobs.job import Job
from dsgen.planning.planner import Plan
from dsgen.shapes.errors import DsgenError, mistake
from dsgen.shapes.layers import Origin, Override, Provenance, Rank, same, show

if TYPE_CHECKING:
    from dsgen.linting.subjects import Facts
    from dsgen.shapes.findings import Finding

__all__ = ["PLANNER", "WEIGHED", "facts", "judge", "worded"]

PLANNER = Origin("planner")
# What the plan has weighed itself, with the strategy that runs; a rule only knows what of it stands in the config.
WEIGHED = frozenset({"does-not-fit", "host-memory-too-small"})
_PREFIX = "deepspeed."
_FORGETS = "0.17.6"  # the release that does not load its checkpoints of stage 0 in bf16 (dsgen rule DSG353)


def judge(plan: Plan, values: Mapping[str, Any], provenance: Provenance) -> tuple[Finding, ...]:
    """The warnings of every rule, in the order of their codes.

    The rules are asked where somebody wrote what the planner does not, and only those that read such a key. What the
    planner writes has no finding: tests/rendering/test_own_output.py asks all rules of every golden job and of a spread
    of others, and holds the answers against this function's. So a plain render, and one whose pins the plan follows,
    loads none of them.

    Args:
        plan: What was rendered.
        values: The config.
        provenance: Who wrote each `deepspeed.` path.

    Raises:
        DsgenError: A rule finds an error; with the place where it was written.
    """
    keys = frozenset((*_warned_of(plan), *_said_otherwise(provenance)))
    if not keys:
        return ()
    from dsgen.linting.linter import lint_config
    from dsgen.linting.rules import RULES, about
    from dsgen.shapes.findings import Severity

    # A person's "auto" makes the config one that another program fills in, and then every rule may say another thing.
    # So may one that somebody said whole.
    every = plan.job.whole or any(lookup(values, key)[1] == "auto" for key in keys)
    rules = [rule for rule in (RULES if every else about(keys, values)) if rule.name not in WEIGHED]
    findings = lint_config(values, deepspeed=plan.job.version, facts=facts(plan.job), rules=rules)
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    if errors:
        raise _refusal(errors, values, provenance)
    return tuple(
        sorted(
            (item for item in findings if item.severity is Severity.WARNING), key=lambda item: (item.code, item.path)
        )
    )


def facts(job: Job) -> Facts:
    """What a job knows and no config says."""
    from dsgen.linting.facts import of_job

    return of_job(job)


def worded(findings: tuple[Finding, ...], provenance: Provenance) -> Iterator[str]:
    """Findings as warnings of a summary: where it was written, what is, and the rule that explains it."""
    for finding in findings:
        place = _written(finding.path, provenance)
        yield f"{f'{place}: ' if place else ''}{finding.message} ({finding.code})"


def _warned_of(plan: Plan) -> Iterator[str]:
    """The keys in which the plan follows a wish, or goes a way that nothing else fits, and the linter warns of it."""
    training, strategy = plan.job.training, plan.chosen.strategy
    if strategy.offload_optimizer == "nvme":
        yield "zero_optimization.offload_optimizer.device"
    elif strategy.offload_param == "nvme":  # as of adapters, whose optimizer is small
        yield "zero_optimization.offload_param.device"
    if strategy.precision == "fp32" and plan.job.hardware.vendor != "cpu":
        yield from ("bf16.enabled", "fp16.enabled")
    if (strategy.stage, strategy.precision, plan.job.version) == (0, "bf16", _FORGETS):
        yield "bf16.enabled"
    if training.flops_profiler:
        yield "flops_profiler.enabled"
    if training.comms_logger:
        yield "comms_logger.enabled"


def _said_otherwise(provenance: Provenance) -> Iterator[str]:
    """The keys of the config in which somebody's word is in force that the planner does not say too."""
    for path, history in provenance.overrides.items():
        if path.startswith(_PREFIX) and _differs(history):
            yield path.removeprefix(_PREFIX)


def _differs(history: tuple[Override, ...]) -> bool:
    """Whether somebody's word is in force that the planner does not say too."""
    last = history[-1]
    return last.rank > Rank.PLAN and not (history[0].rank is Rank.PLAN and same(history[0].value, last.value))


def _refusal(errors: list[Finding], values: Mapping[str, Any], provenance: Provenance) -> DsgenError:
    """The error for the first of some findings; what was written is shown where the key is there."""
    first, more = errors[0], len(errors) - 1
    there, value = lookup(values, first.path)
    fix = f"{first.fix.title[0].upper()}{first.fix.title[1:]}; " if first.fix else ""
    others = f" {more} more error{'s' if more > 1 else ''} behind it." if more else ""
    return mistake(
        f"{first.path} = {show(value)}" if there and not isinstance(value, Mapping) else first.path,
        must=first.message,
        where=_written(first.path, provenance),
        todo=f"{fix}dsgen rule {first.code} explains.{others}",
    )


def _written(path: str, provenance: Provenance) -> Origin | None:
    """Where a key, or the wish behind it, was written; of a section, what somebody wrote in it; else None."""
    override = next(reversed(provenance.history(f"{_PREFIX}{path}")), None)
    if override is None:  # before what stands above it: `deepspeed: null` is not where a section after it was written
        below = (said[-1] for key, said in provenance.overrides.items() if key.startswith(f"{_PREFIX}{path}."))
        override = next((item for item in below if item.rank > Rank.PLAN), None)
    if override is None:
        override = provenance.winner(f"{_PREFIX}{path}")
    return override.origin if override is not None and override.origin != PLANNER else None
