"""How long training takes and the fewest GPUs that meet a deadline, as text and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from dsgen.asking.plan_questions.amounts import tokens_text
from dsgen.asking.plan_questions.deadlines import FASTER, Budget, Fleet, MetBy
from dsgen.report.bars import machine_words, network_words, rounded
from dsgen.report.costs import seconds_text
from dsgen.report.memory import wrapped
from dsgen.report.plan import candidate_data, job_data

__all__ = ["data", "fleet_data", "fleet_lines", "meets", "text"]

NARROWEST = 60  # columns; a narrower terminal wraps the lines itself
_NUMBERS = 45  # columns of the numbers of a row, its mark among them; a price takes _PRICE more
_PRICE = 11
_BESIDE = 36  # least room in which a strategy is readable beside its numbers; else it goes below
_ALONE = "time of training alone: nothing is restarted, evaluated or saved"


def text(answer: Budget, width: int = 80) -> str:
    """The answer for a person, with a final newline.

    Args:
        answer: The fewest GPUs, and others.
        width: Columns of the terminal.
    """
    width = max(width, NARROWEST)
    fewest, job = answer.fewest, answer.fewest.plan.job
    hardware = machine_words(job)
    deadline = seconds_text(answer.deadline_seconds)
    head = f"{job.names.get('model', 'model')}, {tokens_text(answer.tokens)} tokens in {deadline} on {hardware}"
    lines = [
        *wrapped(f"{head}: {_count(fewest)}", width),
        *wrapped(_step(answer), width),
        *wrapped(_words(fewest), width),
        *wrapped(_sure(answer), width),
        *(wrapped(_over_faster(answer.fewest, answer.faster), width) if answer.faster is not None else []),
        "",
    ]
    priced = fewest.price is not None
    columns = _NUMBERS + (_PRICE if priced else 0)
    beside = width - columns - 2 >= _BESIDE
    price = f" {'price':>{_PRICE - 1}}" if priced else ""
    lines.append(f"  {'GPUs':>6} {'time':>10} {'GPU-hours':>10}{price} {'tok/s/GPU':>9} {'comm':>4}"
                 f"{'  strategy' if beside else ''}")  # fmt: skip
    for fleet in answer.fleets:
        lines += _row(fleet, fleet == fewest, width, beside)
    lines += ["", *wrapped(f"> the fewest; {_ALONE}", width)]
    return "\n".join(lines) + "\n"


def _count(fleet: Fleet) -> str:
    job = fleet.plan.job
    nodes = f" ({job.nodes} x {job.gpus_per_node})" if job.nodes > 1 else ""
    return f"{fleet.gpus:,} GPU{'s' if fleet.gpus > 1 else ''}{nodes}"


def _step(answer: Budget) -> str:
    """What a step of the fewest GPUs trains, and whether others train as much in theirs; it decides how often they
    wait for each other.
    """
    job, batch = answer.fewest.plan.job, answer.fewest.plan.chosen.strategy.global_batch
    over = f" over {network_words(job)}" if job.nodes > 1 else ""
    told = f"{job.tokens}{over}, {batch} sequences a step"
    if job.training.global_batch is not None:
        return told
    batches = [fleet.plan.chosen.strategy.global_batch for fleet in answer.fleets]
    others = f"{min(batches)} to {max(batches)} in the rows below; " if min(batches) < max(batches) else ""
    return f"{told} ({others}--global-batch N says another)"


def _words(fleet: Fleet) -> str:
    """Time with its interval, GPU-hours, price."""
    low, high = map(seconds_text, fleet.interval)
    price = f", price {rounded(fleet.price)}" if fleet.price is not None else ""
    return f"{seconds_text(fleet.seconds)} ({low} to {high}), {rounded(fleet.gpu_hours)} GPU-hours{price}"


def _sure(answer: Budget) -> str:
    if answer.sure is None:
        return "no number of GPUs meets it at the slow end of the interval"
    if answer.sure.gpus == answer.fewest.gpus:
        return "they meet it even at the slow end of the interval"
    return f"even at the slow end of the interval: {_count(answer.sure)}"


def _over_faster(fewest: Fleet, faster: Fleet) -> str:
    """What another network would save where GPUs wait for the one that there is."""
    share, network = fewest.plan.chosen.cost.communication_share, fewest.plan.job.names.get("network", "the network")
    fast = faster.plan.job.names.get("network", "one node") if faster.plan.job.nodes > 1 else "one node"
    return f"they wait for {network} {share:.0%} of each step; over {fast}: {_count(faster)}, {_words(faster)}"


def _row(fleet: Fleet, fewest: bool, width: int, beside: bool) -> Iterator[str]:
    chosen = fleet.plan.chosen
    price = f" {rounded(fleet.price):>{_PRICE - 1}}" if fleet.price is not None else ""
    row = (
        f"{'>' if fewest else ' '} {fleet.gpus:>6,} {seconds_text(fleet.seconds):>10} {rounded(fleet.gpu_hours):>10}"
        f"{price} {rounded(chosen.speed):>9} {chosen.cost.communication_share:>4.0%}"
    )
    if beside:
        first, *rest = textwrap.wrap(str(chosen.strategy), width - len(row) - 2)
        yield f"{row}  {first}"
        yield from (f"{'':<{len(row)}}  {line}" for line in rest)
    else:
        yield row
        yield from textwrap.wrap(str(chosen.strategy), width, initial_indent=" " * 9, subsequent_indent=" " * 9)


def meets(fleet: Fleet, deadline_seconds: float) -> str:
    """Whether a deadline is met: "met", "missed", or which of both depends on the interval."""
    low, high = fleet.interval
    if high <= deadline_seconds:
        return "met"
    if fleet.seconds <= deadline_seconds:
        return "met, but not at the slow end of the interval"
    return "missed" if low > deadline_seconds else "missed, but not at the fast end of the interval"


def fleet_lines(fleet: Fleet, deadline_seconds: float | None, width: int, way: MetBy | None = None) -> Iterator[str]:
    """How long the GPUs of a plan train, and whether that meets a deadline; where not, the way that does."""
    steps = fleet.plan.job.training.total_steps  # None where the length is said in tokens
    said = f"{steps:,} steps, {tokens_text(fleet.tokens)} tokens" if steps else f"{tokens_text(fleet.tokens)} tokens"
    yield from wrapped(f"{said}: {_words(fleet)}; {_ALONE}", width)
    if deadline_seconds is not None:
        yield from wrapped(f"deadline of {seconds_text(deadline_seconds)}: {meets(fleet, deadline_seconds)}", width)
    if way is not None:
        yield from wrapped(_way(way), width)


def _way(way: MetBy) -> str:
    """What would meet a deadline that is missed."""
    if way.fleet is None:
        return f"nothing meets it: {way.refused}"
    job = way.fleet.plan.job
    over = f" over {network_words(job)}" if job.nodes > 1 else ""
    chosen = way.fleet.plan.chosen.strategy
    how = f"{_count(way.fleet)}{over}, {chosen}, {chosen.global_batch} sequences a step"
    told = f"the fewest GPUs that meet it: {how}: {_words(way.fleet)}"
    return told if way.faster is None else f"{told}; {_over_faster(way.fleet, way.faster)}"


def fleet_data(fleet: Fleet, deadline_seconds: float | None = None, way: MetBy | None = None) -> dict[str, Any]:
    """A number of GPUs and its time as plain JSON types; where a deadline is missed, the way that meets it."""
    low, high = fleet.interval
    return {
        "tokens": fleet.tokens,
        "gpus": fleet.gpus,
        "seconds": fleet.seconds,
        "seconds_low": low,
        "seconds_high": high,
        "gpu_hours": fleet.gpu_hours,
        "price": fleet.price,
        **({} if deadline_seconds is None else {"deadline_seconds": deadline_seconds,
                                                "meets": fleet.seconds <= deadline_seconds}),
        **({} if way is None else {"fewest": fleet_data(way.fleet) if way.fleet else None,
                                   "refused": way.refused or None,
                                   "faster_network": _faster_data(way.faster, deadline_seconds)}),
    }  # fmt: skip


def _faster_data(fleet: Fleet | None, deadline_seconds: float | None) -> dict[str, Any] | None:
    return None if fleet is None else {"network": FASTER, **fleet_data(fleet, deadline_seconds)}


def data(answer: Budget) -> dict[str, Any]:
    """The answer as plain JSON types; bytes and seconds throughout."""
    return {
        "tokens": answer.tokens,
        "deadline_seconds": answer.deadline_seconds,
        "fewest": answer.fewest.gpus,
        "sure": answer.sure.gpus if answer.sure is not None else None,
        "faster_network": _faster_data(answer.faster, answer.deadline_seconds),
        "fleets": [
            {
                **fleet_data(fleet, answer.deadline_seconds),
                "job": job_data(fleet.plan.job),
                "chosen": candidate_data(fleet.plan.chosen),
                "warnings": list(fleet.plan.warnings),
            }
            for fleet in answer.fleets
        ],
    }
