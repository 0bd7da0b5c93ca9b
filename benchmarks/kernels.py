"""How far the laws of dsgen/kernels agree with what others measured of single kernels, collectives, copies and hosts.

    python benchmarks/kernels.py [--check]

The rows lie in benchmarks/data/kernels.json; docs/kernels.md is made of them: the signed error of each law by card,
kernel and source, and which rows a constant was fitted on.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import dsgen
from dsgen import catalog
from dsgen.kernels import (
    Rates,
    attention_seconds,
    collective_seconds,
    copy_seconds,
    cpu_adam_seconds,
    nvme_seconds,
    product_seconds,
    rates,
    traffic_seconds,
)
from dsgen.kernels.measured_facts import GENERATIONS, STANDS_IN

__all__ = ["Compared", "compared", "page", "predicted", "rows", "shares"]

ROOT = Path(__file__).resolve().parent.parent
ROWS, PAGE = ROOT / "benchmarks" / "data" / "kernels.json", ROOT / "docs" / "kernels.md"
Row = dict[str, Any]

# Law -> repositories of which a constant was fitted, with the cards; None for all cards of it.
FITTED: dict[str, dict[str, tuple[str, ...] | None]] = {
    "product": {
        "MooreThreads/SimuMax": None,
        "baidu-research/DeepBench": None,
        "QDelta/Phantora": None,
        "zzc0721/torch-performance-test-data": None,
        "PrincetonUniversity/LLMCompass": ("mi210-64g",),
    },
    "attention": {
        "Dao-AILab/flash-attention": None,
        "MooreThreads/SimuMax": None,
        "facebookexperimental/triton": None,
        "meta-pytorch/tritonbench": None,
    },
    "traffic": {"te42kyfo/gpu-benches": None, "chsasank/device-benchmarks": None,
                "linkedin/Liger-Kernel": ("a100-80g", "h100-80g")},
    "small kernel": {"te42kyfo/gpu-benches": None},
    "eager chain": {"linkedin/Liger-Kernel": None},
    "collective": {
        "microsoft/superbenchmark": None,
        "aws-samples/awsome-distributed-training": ("h100-80g",),
        "NVIDIA/nccl": None,
        "stas00/ml-engineering": None,
        "google/dranet": None,
    },
    "copy": {"stas00/ml-engineering": None, "NVIDIA": None},
    "adam": {"deepspeedai/DeepSpeed": None},
    "nvme": {"deepspeedai/DeepSpeed": None},
}  # fmt: skip
LAWS = {
    "product": "Matrix products",
    "grouped product": "Grouped products (experts)",
    "attention": "Attention",
    "traffic": "Kernels bound by memory",
    "small kernel": "Kernels bound by their launch",
    "eager chain": "RMSNorm as Hugging Face writes it, eight operators",
    "collective": "Collectives",
    "copy": "Copies between host and GPU",
    "adam": "CPU Adam",
    "nvme": "Drives",
}
# What tells the rows of a law apart in the tables; of the others their sort.
WORDS = {"product": "dtype", "grouped product": "dtype", "copy": "direction", "adam": "launcher", "nvme": "direction"}
SMALL, LARGE = 2**20, 2**26  # bytes of a collective


class Compared(NamedTuple):
    """One row beside what its law says."""

    row: Row
    seconds: float

    @property
    def error(self) -> float:
        """Signed, as a share of what was measured: negative where the law is too fast."""
        return self.seconds / float(self.row["seconds"]) - 1

    @property
    def fitted(self) -> bool:
        """Whether a constant was fitted on rows of this law, source and card."""
        sources = FITTED.get(self.row["law"], {})
        name = repository(self.row)
        cards = sources.get(name, ())
        return name in sources and (cards is None or self.row["card"] in cards)


def repository(row: Row) -> str:
    """Where a row was published: owner/name, or the first words of its source."""
    return str(row["source"]).partition("@")[0].partition(" ")[0]


@functools.cache
def rows() -> list[Row]:
    """All rows."""
    found: list[Row] = json.loads(ROWS.read_text(encoding="utf-8"))
    return found


@functools.cache
def node(card: str, network: str = "single-node") -> Rates:
    """The rates of a profile's node, and of the network between nodes."""
    layers = dsgen.profile(card) | dsgen.profile("opt-125m")
    if network != "single-node":
        layers = layers | dsgen.profile(network) | {"cluster": {"nodes": 2}}
    job = dsgen.job(layers)
    return rates(job.hardware, job.network)


def predicted(row: Row, at: Rates | None = None) -> float:
    """What the law of a row says, in seconds.

    Args:
        row: One of `rows()`.
        at: Other rates than those of the row's card.
    """
    law = row["law"]
    if law == "nvme":
        own = node("a100-80g")._replace(nvme_read_bytes_per_second=row["rating"] * row["drives"])
        return nvme_seconds(own, row["bytes"], row["direction"])
    own = at or node(row["card"], row.get("network", "single-node"))
    if law in ("product", "grouped product"):
        return product_seconds(own, row["m"], row["n"], row["k"], row["dtype"], batch=row["batch"])
    if law == "attention":
        phases = ("forward", "backward") if row["phase"] == "both" else (row["phase"],)
        return sum(_attention(own, row, phase) for phase in phases)
    if law == "collective":
        return collective_seconds(own, row["kind"], row["bytes"], row["ranks"], row["ranks_per_node"])
    if law == "copy":
        return copy_seconds(own, row["bytes"], direction=row["direction"], both=row["both"])
    if law == "adam":
        return cpu_adam_seconds(own, row["elements"], ranks_per_node=row["ranks"], launcher=row["launcher"])
    return row["kernels"] * traffic_seconds(own, row["bytes"] / row["kernels"], row["sort"])


def _attention(own: Rates, row: Row, phase: str) -> float:
    size = {"batch": row["batch"], "heads": row["heads"], "kv_heads": row["kv_heads"], "head_size": row["head_size"]}
    return attention_seconds(
        own, row["kernel"], phase, queries=row["seq"], keys=row["seq"], causal=row["causal"], **size
    )


def compared(law: str) -> list[Compared]:
    """Every row of a law beside what it says."""
    return [Compared(row, predicted(row)) for row in rows() if row["law"] == law]


def _sort(row: Row) -> str:
    """What of its law a row is."""
    law = row["law"]
    if law == "attention":
        return f"{row['kernel']}, {row['phase']}, heads of {row['head_size']}{', causal' if row['causal'] else ''}"
    if law == "collective":
        size = "under 1 MiB" if row["bytes"] < SMALL else "under 64 MiB" if row["bytes"] < LARGE else "from 64 MiB"
        where = "" if row["network"] == "single-node" else f", {row['network']}"
        return f"{row['kind']}, {row['ranks']} ranks{where}, {size}"
    words = {
        "product": "dtype",
        "grouped product": "dtype",
        "copy": "direction",
        "adam": "launcher",
        "nvme": "direction",
    }
    return str(row[words.get(law, "sort")])


def _figures(found: Sequence[Compared]) -> str:
    """Count, median, median absolute, and the two worst errors, as cells of a table."""
    errors = [one.error for one in found]
    middle, off = statistics.median(errors), statistics.median(map(abs, errors))
    return f"{len(found)} | {middle:+.1%} | {off:.1%} | {min(errors):+.0%} to {max(errors):+.0%}"


def _without_its_own() -> list[Compared]:
    """Products of cards that their profile says a share of, as if it did not: by the card that stands in."""
    found = []
    for row in rows():
        if row["law"] != "product":
            continue
        own = node(row["card"])
        family = GENERATIONS[own.architecture]
        if family.measured_on != row["card"] and repository(row) != "MooreThreads/SimuMax":
            found.append(Compared(row, predicted(row, own._replace(product_efficiency=family.product_efficiency))))
    return found


def shares() -> dict[str, float]:
    """Card -> its measured share of peak by that of the card that would stand in for it, to two digits."""
    told: dict[str, float] = {}
    for name in catalog.names("hardware"):
        profile, own = catalog.profile(name), node(name)
        family = GENERATIONS[own.architecture]
        lent = catalog.profile(family.measured_on)
        source = profile.source_of("product_efficiency") or ""
        if (
            "hardware.product_efficiency" in profile.own
            and name not in (lent.name, lent.extends)
            and not source.startswith("derived")
        ):
            told[name] = round(own.product_efficiency / family.product_efficiency, 2)
    return told


def _grouped(found: Iterable[Compared]) -> dict[tuple[str, str, str], list[Compared]]:
    groups: dict[tuple[str, str, str], list[Compared]] = defaultdict(list)
    for one in found:
        groups[one.row["card"] or "drives", _sort(one.row), repository(one.row)].append(one)
    return dict(sorted(groups.items()))


def _stood_in(told: dict[str, float]) -> list[str]:
    least, most = STANDS_IN
    inside = sum(least <= share <= most for share in told.values())
    ordered = sorted(told.items(), key=lambda item: item[1])
    text = (
        f"So the interval of a speed is wider there: it lies around the speeds with {least:.2f} and {most:.2f} of that "
        f"share, between which {inside} of {len(told)} cards are by the one that would stand in: "
        f"{', '.join(f'{card} {share:.2f}' for card, share in ordered)}."
    )
    return textwrap.wrap(text, 110, break_long_words=False, break_on_hyphens=False)


def page() -> str:
    """The text of docs/kernels.md."""
    every = {law: compared(law) for law in LAWS}
    lines = [
        "# Kernels, collectives, copies and hosts",
        "",
        "`dsgen/kernels` says how long one kernel, collective, copy or host operation takes, from a profile's facts",
        "and a few constants. Here is each law beside what others measured (`benchmarks/data/kernels.json`). An error",
        "is the law by the measurement, less one: negative where the law is too fast. Rows are fitted where a constant",
        "was chosen by rows of that law, source and card, held out where none was. `nox -s kernels` writes this page.",
        "",
        "| law | rows fitted | | median | absolute | worst | rows held out | | median | absolute | worst |",
        "| --- | ---: | --- | ---: | ---: | ---: | ---: | --- | ---: | ---: | ---: |",
    ]
    for law, title in LAWS.items():
        cells = [title]
        for fitted in (True, False):
            part = [one for one in every[law] if one.fitted is fitted]
            cells.append(_figures(part).replace(" | ", " | | ", 1) if part else "0 | | | |")
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "What is far off: kernels of LLMCompass's sheets, which time eager operators from Python with the libraries of",
        "2022 (on MI210 a third of what streams reach); grouped products, whose experts fill tiles badly, by a fifth;",
        "collectives under 1 MiB, where sources differ by three: 13 us on H100 and 40 us on H200 for the same call,",
        "and the first EFA on A100 (most of those held out): 164 us for the smallest message, 65 on the second.",
        "",
        "A card whose profile says no `product_efficiency` takes that of the card that its family was measured on. If",
        "no profile said one, products would be off by this much:",
        "",
        "| card | rows | median | absolute | worst |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    cards: dict[str, list[Compared]] = defaultdict(list)
    for one in _without_its_own():
        cards[one.row["card"]].append(one)
    lines += [f"| {card} | {_figures(found)} |" for card, found in sorted(cards.items())]
    lines += ["", *_stood_in(shares())]
    for law, title in LAWS.items():
        lines += ["", f"## {title}", "", "| card | what | source | | rows | median | absolute | worst |",
                  "| --- | --- | --- | --- | ---: | ---: | ---: | ---: |"]  # fmt: skip
        for (card, sort, source), found in _grouped(every[law]).items():
            state = "fitted" if found[0].fitted else "held out"
            lines.append(f"| {card} | {sort} | {source} | {state} | {_figures(found)} |")
    return "\n".join([*lines, ""])


def main() -> None:
    """Write the page, or with --check compare it; print the summary."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--check", action="store_true", help="write nothing; exit 1 when the page would change")
    chosen = options.parse_args()
    text = page()
    print(text.partition("\n## ")[0])
    if chosen.check and (not PAGE.is_file() or PAGE.read_text("utf-8") != text):
        sys.exit("docs/kernels.md is stale. Run: nox -s kernels")
    if not chosen.check:
        PAGE.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
