"""How dsgen does on runs that nobody here had seen when its models were made: memory, verdicts and speed, row by row.

    python benchmarks/unseen.py [--check]

benchmarks/data/published_3.json to published_11.json, a round each, have the runs with their sources;
docs/unseen.md is made of them. They are compared as published.py and published_speed.py compare all others.
"""

from __future__ import annotations

import argparse
import collections
import functools
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from published_cases import LEFT_OUT, Case, case_of, gathered, gathered_in  # benchmarks/, beside this script
from published_sources import GIB, source_of
from published_speed_cases import SpeedCase, speed_cases
from published_speed_figures import CLEAR, Pair, pairs

from dsgen.planning.planner import DISCOUNT_OFFLOAD, DISCOUNT_TENSOR_PARALLEL

__all__ = ["compared", "memory_cases", "page", "pairs_of", "speeds"]

PAGE = Path(__file__).resolve().parent.parent / "docs" / "unseen.md"
HEAD = """# On runs that dsgen had not seen

{count} training runs of {sources} sources were gathered in November 2026, when the models of memory and speed were
done, {again} of them in a second round, {third} in a third, {fourth} in a fourth, {fifth} in a fifth, {sixth} in a
sixth, {seventh} in a seventh, {eighth} in an eighth and {ninth} in a ninth, which were written down before dsgen was
asked of any. Of the sixth two facts were looked up at their sources afterwards: that ten rows, whose files name it, ran
FlashAttention 3, and that oi-12 ran FlashAttention. Of the seventh Liger was 0.1.1 first, a guess, which dsgen refuses;
0.4.1 stands for it. Of the eighth three were: that the program of the two cla-6a10 stops with checkpointing, the
dropout of xtu, and that a DeepSpeed older than dsgen knows stands as 0.14.0, as four rows of earlier rounds do since,
and not as the line, whose newest does more. Of the ninth four were: that the torch of asg, ast and halo asks cuDNN for
sdpa, that ast lets the allocator's segments grow and keeps no gathered weight for reuse, and that ff's bitsandbytes
kept what every layer in 4 bits was given. Since it was asked every row that names a DeepSpeed before 0.19.2 has
adapters of 16 bits, as that makes them and dsgen says of such a job.
None of their sources is among those of the [memory](published.md) and [speed](speed.md) pages, and no constant was
fitted on them but one: what ranks that are bound to no cores reach of a domain's bandwidth, on the six rows zf. Of
memory that the host's kernel gives anew the rate was measured with one thread, and that many gain nothing was taken
from the rows mle with an optimizer on the CPU.
Where a row showed a cause that was missing, the cause was built in, and the row stands here as it is now; what was
said of it first stands in the CHANGELOG. An issue of somebody whose run died is not a fair
sample: people report what does not fit. The files published_3.json to published_11.json of benchmarks/data, a round
each, have the runs, with what was taken for granted in each; `nox -s published` writes this page.

An error is dsgen's number less the measured one, of the measured one.
"""


@functools.cache
def compared() -> tuple[Case, ...]:
    """Every run with what became of its memory."""
    return tuple(map(case_of, gathered()))


def memory_cases() -> tuple[Case, ...]:
    """Every run whose memory can be compared."""
    return tuple(case for case in compared() if case.kind != LEFT_OUT and not case.apart)


@functools.cache
def speeds() -> tuple[SpeedCase, ...]:
    """Every run whose speed can be compared."""
    named = [record["id"] for record in gathered() if "tokens_per_second_per_gpu" in record["measured"]]
    return tuple(case for case in speed_cases(names=named) if case.ours is not None)


def page() -> str:
    """docs/unseen.md."""
    memory, speed = memory_cases(), speeds()
    sources = {source_of(record).prefix for record in gathered()}
    left = {case.name: case.reason for case in compared() if case.kind == LEFT_OUT and case.name not in _names(speed)}
    left |= {case.name: f"{case.apart} (of its memory)" for case in compared() if case.apart}
    parts = [
        HEAD.format(
            count=len(gathered()),
            sources=len(sources),
            again=len(gathered_in(2)),
            third=len(gathered_in(3)),
            fourth=len(gathered_in(4)),
            fifth=len(gathered_in(5)),
            sixth=len(gathered_in(6)),
            seventh=len(gathered_in(7)),
            eighth=len(gathered_in(8)),
            ninth=len(gathered_in(9)),
        ),
        *_verdicts(memory),
        *_peaks([case for case in memory if case.peaks]),
        *_speeds(speed),
        *_pairs(speed),
        *_trusted(speed),
        "## Left out",
        "",
        *(f"- {name}: {reason}" for name, reason in sorted(left.items())),
    ]
    return "\n".join([*parts, ""])


_TRUSTED = """## What a plan trusts less

With the objective `balanced` a speed counts for less where a strategy has one of these parts, so that it must win by
more than its error. Beside the discounts: measured speeds as shares of what dsgen says, of the runs of this page and of
those on the page of [speed](speed.md) that may be looked at, the ones that are shown apart among them. Those with
tensor parallelism ran that of GPT-NeoX and InternEvo, for which AutoTP stands in; no published run with NVMe could be
compared.

| part | counts as | runs | sources | a quarter is below | half is below |
| --- | --- | --- | --- | --- | --- |"""


def _trusted(those: Sequence[SpeedCase]) -> Iterator[str]:
    yield _TRUSTED
    rows = [*those, *(case for case in speed_cases() if case.ours is not None and not case.held_back)]
    ram = DISCOUNT_OFFLOAD["cpu"]
    for part, discount, places, parallel in (
        ("none of them", 1.0, ("none", "none"), False),
        ("optimizer in RAM", ram, ("cpu", "none"), False),
        ("optimizer and parameters in RAM", ram * ram, ("cpu", "cpu"), False),
        ("tensor parallelism", DISCOUNT_TENSOR_PARALLEL, ("none", "none"), True),
    ):
        group = [
            case
            for case in rows
            if case.setup["offload"] == places and (case.setup["tensor parallelism"] > 1) is parallel
        ]
        shares = sorted(case.measured / case.speed for case in group)
        sources = len({case.source for case in group})
        quarter, half = shares[len(shares) // 4], statistics.median(shares)
        yield f"| {part} | {discount:.2f} | {len(group)} | {sources} | {quarter:.2f} | {half:.2f} |"
    yield ""


def _names(those: Iterable[SpeedCase]) -> set[str]:
    return {case.name for case in those}


def _verdicts(those: Sequence[Case]) -> Iterator[str]:
    yield from ["## Verdicts", "", "|  | runs | fits | uncertain | does not fit |", "| --- | --- | --- | --- | --- |"]
    rounds = ("second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth")
    for again, of in ((0, ""), *((number, f", {name} round") for number, name in enumerate(rounds, 2))):
        group = [case for case in those if case.verdict and (not again or case.name in gathered_in(again))]
        for fits, what in ((True, "ran"), (False, "ran out of memory")):
            found = collections.Counter(case.verdict.value for case in group if case.verdict and case.fits is fits)
            yield f"| {what}{of} | {found.total()} | {found['fits']} | {found['uncertain']} | {found['does not fit']} |"
    yield from ["", "Those that are wrong, and those that died where dsgen is not sure:", ""]
    yield from ["| record | what ran | grade | it | dsgen says |", "| --- | --- | --- | --- | --- |"]
    for case in those:
        if case.right is False or (case.right is None and not case.fits):
            assert case.verdict is not None
            what = "ran" if case.fits else "died"
            yield f"| {case.name} | {case.title} | {case.grade} | {what} | {case.verdict.value} |"
    yield ""


def _peaks(those: Sequence[Case]) -> Iterator[str]:
    peaks = [(case, peak) for case in those for peak in case.peaks]
    yield from ["## Peaks", "", _sum([peak.error for _, peak in peaks], [peak.within for _, peak in peaks]), ""]
    yield from ["| record | what ran | grade | measured | dsgen | its interval | error | what it counts |"]
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for case, peak in peaks:
        interval = f"{peak.low / GIB:.1f} to {peak.high / GIB:.1f}"
        counts = peak.reading.value.partition(":")[0].partition(";")[0].partition(",")[0]
        yield (
            f"| {case.name} | {case.title} | {case.grade} | {peak.measured / GIB:.1f} GiB | {peak.ours / GIB:.1f} "
            f"| {interval} | {peak.error:+.1%} | {counts} |"
        )
    yield ""


def _speeds(those: Sequence[SpeedCase]) -> Iterator[str]:
    yield from ["## Speed", ""]
    yield "|  | rows | median error | median absolute error | in the interval |"
    yield "| --- | --- | --- | --- | --- |"
    groups = {
        "all": lambda case: True,
        "second round": lambda case: case.name in gathered_in(2),
        "fourth round": lambda case: case.name in gathered_in(4),
        "fifth round": lambda case: case.name in gathered_in(5),
        "sixth round": lambda case: case.name in gathered_in(6),
        "seventh round": lambda case: case.name in gathered_in(7),
        "eighth round": lambda case: case.name in gathered_in(8),
        "ninth round": lambda case: case.name in gathered_in(9),
        "grade A and B": lambda case: case.grade != "C",
        "DeepSpeed": lambda case: case.system == "deepspeed",
        "CPU offload": lambda case: case.setup["offload"] != ("none", "none"),
        **{f"stage {n}": (lambda case, n=n: case.setup["stage"] == n) for n in range(4)},
    }
    for name, belongs in groups.items():
        group = [case for case in those if belongs(case)]
        errors = [case.error for case in group]
        yield (
            f"| {name} | {len(group)} | {statistics.median(errors):+.1%} "
            f"| {statistics.median(map(abs, errors)):.1%} | {sum(case.within for case in group)} |"
        )
    yield ""
    yield "| record | model | GPUs | stage | grade | measured, tokens/s/GPU | dsgen | error | in the interval |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for case in those:
        at = f"{case.setup['GPUs']} x {case.setup['GPU']}"
        yield (
            f"| {case.name} | {case.setup['model']} | {at} | {case.setup['stage']} | {case.grade} "
            f"| {case.measured:,.0f} | {case.speed:,.0f} | {case.error:+.1%} | {'yes' if case.within else 'no'} |"
        )
    yield ""


def pairs_of(those: Iterable[SpeedCase]) -> tuple[Pair, ...]:
    """Runs of one job that differ in the stage alone, or in what is offloaded alone, and clearly in speed."""
    rows = tuple(those)
    return tuple(pair for what in ("stage", "offload") for pair in pairs(rows, what))


def _pairs(those: Sequence[SpeedCase]) -> Iterator[str]:
    yield from ["## Pairs", "", f"Two runs of one job that differ in one thing, and by more than {CLEAR:.0%} in speed:"]
    yield from ["", "| they differ in | pairs | of the fifth round | in the measured order | of the fifth round |"]
    yield "| --- | --- | --- | --- | --- |"
    every = pairs_of(those)
    for what in ("stage", "offload"):
        group = [pair for pair in every if pair.what == what]
        fifth = [pair for pair in group if pair.faster in gathered_in(5)]
        right = sum(pair.right for pair in group)
        yield f"| {what} | {len(group)} | {len(fifth)} | {right} | {sum(pair.right for pair in fifth)} |"
    yield from ["", "| faster | slower | measured, times as fast | dsgen |", "| --- | --- | --- | --- |"]
    for pair in every:
        if pair.faster in gathered_in(5) or not pair.right:
            yield f"| {pair.faster} | {pair.slower} | {pair.measured:.2f} | {pair.said:.2f} |"
    yield ""


def _sum(errors: Sequence[float], within: Sequence[bool]) -> str:
    return (
        f"{len(errors)} numbers: median error {statistics.median(errors):+.1%}, median absolute error "
        f"{statistics.median(map(abs, errors)):.1%}, {sum(within)} in the interval."
    )


def main() -> None:
    """Write the page, or with --check compare it."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--check", action="store_true", help="write nothing; exit 1 when the page would change")
    text = page()
    if options.parse_args().check:
        if not PAGE.is_file() or PAGE.read_text("utf-8") != text:
            sys.exit("docs/unseen.md is stale. Run: nox -s published")
        return
    PAGE.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
