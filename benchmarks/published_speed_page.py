"""docs/speed.md: the published speeds beside what dsgen says, by what they have in common, and the worst explained."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

from published_page import bullets, reasons_table, table  # benchmarks/, beside this script
from published_sources import SOURCES
from published_speed_cases import APART, COMPARED, LEFT_OUT, STRATEGY, SpeedCase
from published_speed_figures import Pair, Regret, agreement, ordered, pairs, regrets
from published_speed_remarks import CAUSES, HOW, MEANINGS

__all__ = ["page", "summary"]

_SYSTEMS = {
    "deepspeed": "DeepSpeed",
    "fsdp": "FSDP",
    "internevo": "InternEvo, ZeRO-1",
    "other": "one GPU, or plain torch",
}
_WORST = 10
_LENGTHS = (1_024, 4_096, 16_384)  # upper bounds, tokens of a sequence
_MICRO_TOKENS = (2_048, 8_192, 32_768)  # upper bounds, tokens of a micro-batch on one GPU
_COUNTS = (1, 8, 64)  # upper bounds, GPUs
_DIMENSIONS = ("stage", "offload", "tensor parallelism", "checkpointing", "batch", "GPUs", "length", "GPU", "method")

Cases = Sequence[SpeedCase]


def page(cases: Cases) -> str:
    """The whole page."""
    compared, apart = _of(cases, COMPARED), _of(cases, APART)
    left = _of(cases, LEFT_OUT)
    seen = [case for case in compared if not case.held_back]
    lines = [
        "# How far the speed model agrees with published measurements",
        "",
        f"Others measured {len(cases)} training runs and published them. The speed of {len(compared)} is compared with",
        f"what dsgen says of the same job and strategy; {len(apart)} more ran with something that dsgen has no word for",
        f"and are shown apart; {len(left)} are not compared, each for a reason. benchmarks/data/published.json and",
        "published_2.json have the records with their sources; `nox -s published` writes this page.",
        "",
        "An error is dsgen's tokens/s/GPU less the measured ones, of the measured ones: above 0, dsgen says faster. The",
        "interval is the one that is printed beside a speed. One row in three, chosen by a hash of its name, is held",
        "back: of those there are only sums here, so that a change made while looking at the others can be judged by",
        "them. End-to-end rows are a test of the model and not what its constants are fitted on.",
        "",
        *summary(cases),
        "",
        *_grouped(compared),
        "## In the measured order",
        "",
        "Two runs of one source that differ in one thing alone, and by more than 5 % in measured speed, make a pair.",
        "",
        *_order(compared, apart),
        "",
        "## What dsgen's choice costs",
        "",
        "Wherever a source measured several strategies of one job, dsgen would take the one that it says is fastest. Its",
        "regret is how much longer that one takes than the one that was measured to be the fastest. A strategy is stage,",
        "offload, tensor parallelism, checkpointing and micro-batch; some of a source's strategies may train on other",
        "numbers of sequences a step.",
        "",
        *_regret_tables([*compared, *apart]),
        "",
        "## The worst",
        "",
        *_table_of_rows(sorted(seen, key=_size, reverse=True)[:_WORST]),
        "",
        "Where the largest errors come from, as far as the sources show it:",
        "",
        *bullets(CAUSES),
        "",
        "## What a speed means",
        "",
        *_meanings(cases),
        "",
        "## How a run becomes a question",
        "",
        *bullets(HOW),
        "",
        "## Shown apart",
        "",
        *_agreements("what dsgen has no word for", apart, lambda case: case.reason),
        "",
        "## Every row that may be looked at",
        "",
        "Worst first in each source. The grade is that of the record: A is exact, C rests on guesses. Steps are of",
        "dsgen's parts, in percent of its step.",
        "",
        *_every_row(seen),
        "## What is not compared",
        "",
        *reasons_table(left),
        "",
    ]
    return "\n".join(lines)


def summary(cases: Cases) -> list[str]:
    """The rows in all, those of DeepSpeed, and those that are held back."""
    compared = _of(cases, COMPARED)
    deepspeed = [case for case in compared if case.system == "deepspeed"]
    groups = {
        "all": compared,
        "all that may be looked at": [case for case in compared if not case.held_back],
        "all that are held back": [case for case in compared if case.held_back],
        "DeepSpeed": deepspeed,
        "DeepSpeed, may be looked at": [case for case in deepspeed if not case.held_back],
        "DeepSpeed, held back": [case for case in deepspeed if case.held_back],
        "grade A and B": [case for case in compared if case.grade != "C"],
        "shown apart": _of(cases, APART),
    }
    head = ("", "rows", "median error", "median absolute error", "in the interval")
    return table(head, [(title, *_figures(those)) for title, those in groups.items()])


def _of(cases: Cases, kind: str) -> list[SpeedCase]:
    return [case for case in cases if case.kind == kind]


def _figures(cases: Cases) -> tuple[str, str, str, str]:
    found = agreement(cases)
    share = f"{sum(case.within for case in cases)} of {found.count}"
    return str(found.count), _percent(found.median), _percent(found.absolute, signed=False), share


def _grouped(compared: Cases) -> list[str]:
    views: Mapping[str, tuple[Cases, Callable[[SpeedCase], str]]] = {
        "source": (compared, lambda case: SOURCES[case.source].title),
        "DeepSpeed's, source": (
            [case for case in compared if case.system == "deepspeed"],
            lambda case: f"{SOURCES[case.source].title}, stage {case.setup['stage']}",
        ),
        "ran with": (compared, lambda case: _SYSTEMS[case.system]),
        "GPU": (compared, lambda case: str(case.setup["GPU"])),
        "GPUs": (compared, lambda case: _binned(case.setup["GPUs"], _COUNTS)),
        "tokens of a sequence": (compared, lambda case: _binned(case.setup["length"], _LENGTHS)),
        "tokens of a micro-batch": (compared, lambda case: _binned(_micro_tokens(case), _MICRO_TOKENS)),
        "stage": (compared, lambda case: f"{case.setup['stage']}{_offloaded(case)}"),
        "trained": (compared, lambda case: case.setup["method"]),
    }
    lines: list[str] = []
    for title, (cases, key) in views.items():
        lines += [f"## By {title}" if "'" not in title else "## DeepSpeed's own rows", ""]
        lines += [*_agreements(title.removeprefix("DeepSpeed's, "), cases, key), ""]
    return lines


def _agreements(title: str, cases: Cases, key: Callable[[SpeedCase], str]) -> list[str]:
    """One line for each value of a key, with those that are held back beside the others."""
    groups: dict[str, list[SpeedCase]] = {}
    for case in cases:
        groups.setdefault(key(case), []).append(case)
    head = (title, "rows", "median error", "median absolute error", "in the interval", "of them held back")
    rows = []
    for name, those in sorted(groups.items(), key=lambda item: _natural(item[0])):
        held = [case for case in those if case.held_back]
        beside = f"{len(held)}, {_percent(agreement(held).absolute, signed=False)}" if held else "0"
        rows.append((name, *_figures(those), beside))
    return table(head, rows)


def _natural(name: str) -> tuple[int, str]:
    """Bins by their first number, names by their letters."""
    digits = name.replace(",", "").removeprefix("up to ").removeprefix("over ")
    return (int(digits) if digits.isdigit() else -1, name)


def _binned(value: int, bounds: Sequence[int]) -> str:
    bound = next((bound for bound in bounds if value <= bound), None)
    return f"over {bounds[-1]:,}" if bound is None else f"up to {bound:,}"


def _micro_tokens(case: SpeedCase) -> int:
    return int(case.setup["length"]) * int(case.setup["batch"][0])


def _offloaded(case: SpeedCase) -> str:
    optimizer, parameters = case.setup["offload"]
    moved = [name for name, where in (("optimizer", optimizer), ("parameters", parameters)) if where != "none"]
    return f", {' and '.join(moved)} offloaded" if moved else ""


def _order(compared: Cases, apart: Cases) -> list[str]:
    """How many pairs are in the measured order, by what they differ in; and each pair of stages."""
    rows, every, held = [], list[Pair](), list[Pair]()
    everything = [*compared, *apart]
    for what in _DIMENSIONS:
        found = pairs(everything, what)
        those = pairs([case for case in everything if case.held_back], what)
        every, held = every + found, held + those
        if found:
            rows.append((what, *_right(found), *_right(those)))
    head = ("they differ in", "pairs", "in the measured order", "held back", "in the measured order")
    stages = pairs([case for case in everything if not case.held_back], "stage")
    listed = [(pair.faster, pair.slower, _times(pair.measured), _times(pair.said)) for pair in stages]
    return [
        *table(head, [*rows, ("all", *_right(every), *_right(held))]),
        "",
        "Pairs that differ in the ZeRO stage alone, and may be looked at; below 1, dsgen has them the other way round:",
        "",
        *table(("faster", "slower", "measured", "dsgen says"), listed),
    ]


def _right(those: Sequence[Pair]) -> tuple[str, str]:
    return str(len(those)), _percent(ordered(those), signed=False) if those else ""


def _times(ratio: float) -> str:
    return f"{ratio:.2f} times"


def _regret_tables(cases: Cases) -> list[str]:
    found = regrets(cases, STRATEGY)
    rows = []
    for source in [*dict.fromkeys(regret.source for regret in found), None]:
        those = [regret for regret in found if source in (None, regret.source)]
        rows.append((SOURCES[source].title if source else "all", *_regretted(those)))
    seen = {case.name for case in cases if not case.held_back}
    shown = [regret for regret in found if seen.issuperset(regret.names)]
    held = [regret for regret in found if seen.isdisjoint((regret.pick, regret.best)) and regret.pick != regret.best]
    rows.append(("all, where pick and best are held back", *_regretted(held)))
    worst = sorted(shown, key=lambda regret: -regret.cost)[:_WORST]
    listed = [(one.pick, one.best, str(len(one.names)), _percent(one.cost)) for one in worst if one.cost > 0]
    return [
        *table(("source", "jobs", "median regret", "worst", "above 5 %"), [row for row in rows if row[1] != "0"]),
        "",
        "The worst of those of which all rows may be looked at:",
        "",
        *table(("dsgen takes", "best", "strategies", "regret"), listed),
    ]


def _regretted(those: Sequence[Regret]) -> tuple[str, str, str, str]:
    if not those:
        return ("0", "", "", "")
    costs = [regret.cost for regret in those]
    over = sum(cost > 0.05 for cost in costs)
    return str(len(those)), _percent(statistics.median(costs)), _percent(max(costs)), str(over)


def _meanings(cases: Cases) -> list[str]:
    used = {case.source for case in cases if case.kind != LEFT_OUT}
    rows = [(source.title, MEANINGS[prefix]) for prefix, source in SOURCES.items() if prefix in used]
    return table(("source", "its speed"), rows)


def _every_row(seen: Cases) -> list[str]:
    lines: list[str] = []
    for prefix, source in SOURCES.items():
        those = sorted((case for case in seen if case.source == prefix), key=_size, reverse=True)
        if those:
            lines += [f"### {source.title}", "", *_table_of_rows(those), ""]
    return lines


def _table_of_rows(cases: Iterable[SpeedCase]) -> list[str]:
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


def _size(case: SpeedCase) -> float:
    return abs(case.error)


def _count(speed: float) -> str:
    return f"{speed:,.0f}" if speed >= 100 else f"{speed:.1f}"


def _percent(value: float, *, signed: bool = True) -> str:
    return f"{100 * value:+.1f} %" if signed else f"{100 * value:.1f} %"
