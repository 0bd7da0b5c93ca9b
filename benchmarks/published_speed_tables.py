"""The tables of the page on speeds: by what rows have in common, of pairs, of regret, and row by row."""

from __future__ import annotations

import itertools
import statistics
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence

from published_page import table  # benchmarks/, beside this script
from published_sources import SOURCES
from published_speed_cases import STRATEGY, SpeedCase
from published_speed_choices import decided
from published_speed_figures import Pair, Regret, agreement, ordered, pairs, regrets

from dsgen.planning.candidates import ENOUGH, FILLED
from dsgen.planning.planner import TIE

__all__ = [
    "WORST",
    "Cases",
    "agreements",
    "figures",
    "grouped",
    "order_tables",
    "parted",
    "regret_tables",
    "size",
    "table_of_rows",
]

_SYSTEMS = {
    "deepspeed": "DeepSpeed",
    "fsdp": "FSDP",
    "internevo": "InternEvo, ZeRO-1",
    "other": "one GPU, or plain torch",
}
WORST = 10
DEAR = 0.05  # a regret above it counts as one
AZURE = "dsaz"  # DeepSpeed's blog on Azure
_MANY = 5  # held-back rows of fewer would be told one by one by their median
_UP_TO, _OVER, _LAST = "up to ", "over ", 10**9
_LENGTHS = (1_024, 4_096, 16_384)  # upper bounds, tokens of a sequence
_MICRO_TOKENS = (2_048, 8_192, 32_768)  # upper bounds, tokens of a micro-batch on one GPU
_COUNTS = (1, 8, 64)  # upper bounds, GPUs
# What two runs of a pair differ in -> what they may differ in besides.
_DIMENSIONS: Mapping[str, tuple[str, ...]] = {
    "stage": (),
    "offload": (),
    "tensor parallelism": (),
    "checkpointing": (),
    "batch": (),
    "GPUs": (),
    "length": (),
    "GPU": (),
    "method": ("adapters",),
}

Cases = Sequence[SpeedCase]


def figures(cases: Cases) -> tuple[str, str, str, str]:
    """Rows, median error, median absolute error, and how many are in the interval, of one row or more."""
    found = agreement(cases)
    share = f"{sum(case.within for case in cases)} of {found.count}"
    return str(found.count), _percent(found.median), _percent(found.absolute, signed=False), share


def grouped(compared: Cases) -> list[str]:
    """A section for everything that rows have in common."""
    deepspeed = [case for case in compared if case.system == "deepspeed"]
    views: Mapping[str, tuple[str, Cases, Callable[[SpeedCase], str]]] = {
        "By source": ("source", compared, lambda case: SOURCES[case.source].title),
        "DeepSpeed's own rows": (
            "source",
            deepspeed,
            lambda case: f"{SOURCES[case.source].title}, stage {case.setup['stage']}",
        ),
        "By framework": ("ran with", compared, lambda case: _SYSTEMS[case.system]),
        "By GPU": ("GPU", compared, lambda case: str(case.setup["GPU"])),
        "By number of GPUs": ("GPUs", compared, lambda case: _binned(case.setup["GPUs"], _COUNTS)),
        "By length": ("tokens of a sequence", compared, lambda case: _binned(case.setup["length"], _LENGTHS)),
        "By micro-batch": ("its tokens", compared, lambda case: _binned(_micro_tokens(case), _MICRO_TOKENS)),
        "By stage": ("ZeRO stage", compared, lambda case: f"{case.setup['stage']}{_offloaded(case)}"),
        "By method": ("what is trained", compared, lambda case: str(case.setup["method"])),
    }
    lines: list[str] = []
    for heading, (title, cases, key) in views.items():
        lines += [f"## {heading}", "", *agreements(title, cases, key), ""]
    return lines


def agreements(title: str, cases: Cases, key: Callable[[SpeedCase], str]) -> list[str]:
    """One line for each value of a key; rows that are held back only by their number, and by their sum where many."""
    groups: dict[str, list[SpeedCase]] = {}
    for case in cases:
        groups.setdefault(key(case), []).append(case)
    head = (
        title,
        "rows",
        "median error",
        "median absolute error",
        "in the interval",
        "held back",
        "their absolute error",
    )
    rows = []
    for name, those in sorted(groups.items(), key=lambda item: _natural(item[0])):
        seen, held = parted(those)
        sums = figures(seen) if seen else ("0", "", "", "")
        absolute = _percent(agreement(held).absolute, signed=False) if len(held) >= _MANY else ""
        rows.append((name, *sums, str(len(held)), absolute))
    return table(head, rows)


def parted(cases: Cases) -> tuple[list[SpeedCase], list[SpeedCase]]:
    """Those that may be looked at, and those that are held back."""
    return [case for case in cases if not case.held_back], [case for case in cases if case.held_back]


def _natural(name: str) -> tuple[int, str]:
    """Bins by their numbers, names by their letters."""
    digits = name.replace(",", "").removeprefix(_UP_TO)
    return (int(digits), name) if digits.isdigit() else (_LAST if name.startswith(_OVER) else -1, name)


def _binned(value: int, bounds: Sequence[int]) -> str:
    bound = next((bound for bound in bounds if value <= bound), None)
    return f"{_OVER}{bounds[-1]:,}" if bound is None else f"{_UP_TO}{bound:,}"


def _micro_tokens(case: SpeedCase) -> int:
    return int(case.setup["length"]) * int(case.setup["batch"][0])


def _offloaded(case: SpeedCase) -> str:
    optimizer, parameters = case.setup["offload"]
    moved = [name for name, where in (("optimizer", optimizer), ("parameters", parameters)) if where != "none"]
    return f", {' and '.join(moved)} offloaded" if moved else ""


def order_tables(cases: Cases) -> list[str]:
    """How many pairs are in the measured order, by what they differ in; and each pair of stages."""
    seen, held = parted(cases)
    groups = {what: [pairs(rows, what, *besides) for rows in (cases, held)] for what, besides in _DIMENSIONS.items()}
    sums = [list(itertools.chain.from_iterable(found)) for found in zip(*groups.values(), strict=True)]
    free = [pairs(rows, "stage", "batch") for rows in (cases, held)]
    every = {**groups, "all of these": sums, "stage, whatever the batch": free}
    rows = [(what, *_right(found), *_right(those)) for what, (found, those) in every.items() if found]
    head = ("they differ in", "pairs", "in the measured order", "both held back", "in the measured order")
    stages = pairs(seen, "stage", "batch")
    named = {case.name: case for case in cases}
    listed = [
        (pair.faster, pair.slower, _times(pair.measured), _times(pair.said), _apart(pair, named)) for pair in stages
    ]
    return [
        *table(head, rows),
        "",
        *_stages(groups["stage"][0], named),
        "",
        "Pairs that differ in the ZeRO stage, whatever the batch; below 1, dsgen has them the other way round:",
        "",
        *table(("faster", "slower", "measured", "dsgen says", "shown apart"), listed),
    ]


def _stages(those: Sequence[Pair], named: Mapping[str, SpeedCase]) -> list[str]:
    """What the pairs that differ in the ZeRO stage alone are of."""
    compared = sum(not _apart(pair, named) for pair in those)
    reasons = dict.fromkeys(
        case.reason for pair in those for case in (named[pair.faster], named[pair.slower]) if case.reason
    )
    of = "pairs that differ in the stage alone"
    apart = f"rows that are shown apart{': ' if reasons else ''}{'; '.join(reasons)}"
    if not compared:
        return textwrap.wrap(
            f"All {len(those)} {of} have {apart}. How dsgen orders the stages of one job is hardly tested by them.", 110
        )
    others = f", and {len(those) - compared} have {apart}" if compared < len(those) else ""
    said = f"Of {len(those)} {of} {compared} {'are' if compared > 1 else 'is'} of two rows that are compared{others}."
    return textwrap.wrap(said, 110)


def _apart(pair: Pair, named: Mapping[str, SpeedCase]) -> str:
    """How many rows of a pair are shown apart; "" for none."""
    count = sum(bool(named[name].reason) for name in (pair.faster, pair.slower))
    return ("", "one", "both")[count]


def _right(those: Sequence[Pair]) -> tuple[str, str]:
    return str(len(those)), _percent(ordered(those), signed=False) if those else ""


def _times(ratio: float) -> str:
    return f"{ratio:.2f} times"


def regret_tables(cases: Cases) -> list[str]:
    """What dsgen's choice costs, by source, and the worst choices."""
    found = regrets(cases, STRATEGY)
    fitting = regrets(cases, STRATEGY, lambda case: case.doubt)
    planned = regrets(cases, STRATEGY, lambda case: case.doubt, decided)
    rows = []
    for source in [*dict.fromkeys(regret.source for regret in found), None]:
        those = [regret for regret in found if source in (None, regret.source)]
        rows.append((SOURCES[source].title if source else "all", *_regretted(those)))
    back = {case.name for case in cases if case.held_back}
    shown = [regret for regret in found if back.isdisjoint((regret.pick, regret.best))]
    rows.append(("all, where neither is held back", *_regretted(shown)))
    rows.append(("all, taken among what dsgen says fits", *_regretted(fitting)))
    rows.append(("all, as a plan decides among those", *_regretted(planned)))
    elsewhere = [regret for regret in planned if regret.source != AZURE]
    rows.append((f"of these without {SOURCES[AZURE].title}", *_regretted(elsewhere)))
    worst = sorted(shown, key=lambda regret: -regret.cost)[:WORST]
    listed = [(one.pick, one.best, str(len(one.names)), _percent(one.cost)) for one in worst if one.cost > 0]
    near, tie, room = (f"{100 * share:.0f} %" for share in (1 - ENOUGH, TIE, 1 - FILLED))
    alone, azure = len(found) - len(fitting), _of(fitting, AZURE)
    return [
        *table(("source", "jobs", "median regret", "worst", "above 5 %"), rows),
        "",
        "A plan takes nothing that dsgen says does not fit, with the allocator's settings that it has. In",
        f"{alone} jobs that is all that was measured; of those above 5 % {azure} are of DeepSpeed's blog on Azure,",
        "whose runs of 175B to 1T took less memory than dsgen says: it enables offload where memory runs out, of",
        f"activations too, and does not say where. A plan also takes the simplest of strategies within {tie}, and of",
        f"micro-batches within {near} of the fastest the largest that leaves {room} of a GPU, else the smallest: the",
        "last row.",
        "",
        "The worst, where neither is held back:",
        "",
        *table(("dsgen takes", "best", "strategies", "regret"), listed),
    ]


def _of(those: Sequence[Regret], source: str) -> int:
    return sum(one.cost > DEAR and one.source == source for one in those)


def _regretted(those: Sequence[Regret]) -> tuple[str, str, str, str]:
    costs = [regret.cost for regret in those]
    over = sum(cost > DEAR for cost in costs)
    return str(len(those)), _percent(statistics.median(costs)), _percent(max(costs)), str(over)


def table_of_rows(cases: Iterable[SpeedCase]) -> list[str]:
    """Rows one by one."""
    head = ("record", "what ran", "grade", "measured, tokens/s/GPU", "dsgen", "error", "of its step")
    return table(head, map(_row, cases))


def _row(case: SpeedCase) -> tuple[str, ...]:
    return (
        case.name,
        _title(case),
        case.grade,
        _count(case.measured),
        _count(case.speed),
        _percent(case.error),
        _parts(case),
    )


def _title(case: SpeedCase) -> str:
    setup = case.setup
    micro, accumulation = setup["batch"]
    words = [str(setup["model"]), f"{setup['GPUs']} x {setup['GPU']}", f"stage {setup['stage']}{_offloaded(case)}"]
    if setup["tensor parallelism"] > 1:
        words.append(f"tp {setup['tensor parallelism']}")
    if setup["method"] != "full":
        words.append(setup["method"])
    words.append(f"{micro} x {setup['length']:,} tokens")
    if accumulation > 1:
        words.append(f"{accumulation} micro-batches")
    return ", ".join([*words, *(["checkpointing"] if setup["checkpointing"] else [])])


def _parts(case: SpeedCase) -> str:
    assert case.ours is not None
    shares = {part: seconds / case.ours.seconds for part, seconds in case.ours.parts.items()}
    return ", ".join(f"{part} {100 * share:.0f}" for part, share in shares.items() if share >= 0.05)


def size(case: SpeedCase) -> float:
    """The error of a row without its sign."""
    return abs(case.error)


def _count(speed: float) -> str:
    return f"{speed:,.0f}" if speed >= 100 else f"{speed:.1f}"


def _percent(value: float, *, signed: bool = True) -> str:
    return f"{100 * value:+.1f} %" if signed else f"{100 * value:.1f} %"
