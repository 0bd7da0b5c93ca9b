"""docs/reserved.md: what the replay of torch's allocator says of the drawn scenarios, by cause and one by one."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from dsgen.memory.estimates import HIGH, HIGH_DEFAULT
from dsgen.memory.reserved import ReservedBytes
from dsgen.shapes.units import gib

__all__ = ["LOGITS_SHARE", "UNCOUNTED", "causes", "page", "ratio", "summary"]

Row = Mapping[str, Any]
LOGITS_SHARE = 0.10  # of the tensors, from which the logits of a micro-batch in fp32 count as a cause
_FP32 = 4  # bytes
_TENTH = 10  # the tenth part of the scenarios lies below the first number of a range, and above the second
# Scenarios with keys that the instant model has in its interval, not in its peak, or that it only comes near to.
UNCOUNTED = ("widened", "linear")
LATER = ("foreach", "masked", "grouped", "offloaded")  # counted scenarios that came after the constants were fitted
_NEAR, _CLOSE = 0.03, 0.10  # of what the replay says
Told = Mapping[str, tuple[ReservedBytes, ReservedBytes]]

_HEAD = """# What torch's allocator reserves

`dsgen simulate` replays every request of a run in its order through the rules of torch's caching allocator (a port of
PyTorch 2.13's CUDACachingAllocator.cpp, held [against the real one](#beside-the-real-allocator)), and its last step
over and over until nothing more is reserved. `python benchmarks/reserved.py --update` simulates {count} scenarios,
{each} of each group of [memory-agreement.md](memory-agreement.md), and writes this page.

- **reserved**: what `torch.cuda.max_memory_reserved` would say on a card that never runs out.
- **least**: the least memory that a card must give torch for the run to go through, where the allocator has given back
  all that it can: wholly free segments, or pages with expandable segments. Below it the run is out of memory. Found by
  halving, at most 1.5 % of the tensors too high.

Both are shown by `max_memory_allocated`, with default settings and with `expandable_segments:True`, which
`dsgen launch` sets for NVIDIA GPUs. The two numbers answer two questions: the first is what torch shows, and
`nvidia-smi` with what lies outside torch; the second is what decides whether a run dies.

## In short

"""

_NOTES = """
## Where the instant model stands

`dsgen memory`, and `dsgen plan` as JSON, run no engine. They write the requests down as they count them, and play them
into the same allocator (dsgen/memory/replaying): loading, initialize, and steps until nothing more is
reserved; each stretch of the model as its tape has it, DeepSpeed's buckets, what the coordinator of stage 3 gathers and
releases. That takes milliseconds, and no constant was fitted. It is known for {replayed} of these {count} scenarios,
not with Muon, hpZ, AutoTP beside stage 3, on NVMe, and of a model with an encoder. Those are told from causes: what
each kind of tensors takes at its own highest moment stays reserved, and serves another kind only in part; what stage 3
gathers and the buckets of communication leave holes by their own size (dsgen/memory/reserved.py). The one line of
`dsgen render` is told so too, as an interval: a replay takes as long as all else of a cold render.

| settings | told by | scenarios | median error | median absolute error | within 3 % | within 10 % | in the interval |
| --- | --- | --- | --- | --- | --- | --- | --- |
{said}

The causes' constants were fitted on {fitted} of these scenarios whose tensors are counted: torch's AdamW of many
tensors, masks, grouped queries and offloaded activations came later. What a fit on all would be, also with the model of
each left out, `python benchmarks/reserved_fit.py` prints. `uncounted` are scenarios with keys that are in the interval
of the tensors and not in their peak, or that the peak only comes near to.

Whether a run goes through is another question, and has its own bounds: the most that is needed is {high:.2f} times the
tensors with expandable segments, which is enough in {enough_expandable} of {count} scenarios, and {high_default:.2f}
times with torch's default settings, enough in {enough_default} of {count}: `memory` and `plan` replay what surely fits
by that on a GPU of its size (dsgen.memory.placed). A scenario is planned for expandable segments, which `dsgen launch`
sets; a config of one's own (`--config`) is judged by torch's default settings unless `--expandable-segments` is said.

## What the replay does not know

- `record_stream`: a block that another stream uses comes back when that stream is done. Here all work is done at
  once, so gradients that ZeRO reduces beside backward (overlap_comm, and stage 3) are free a little earlier than on a
  GPU.
- Lengths that change within a step, and the order of those of a person's data: a run has one length, or the lengths
  of its steps in turn (the request's `lengths`).
- What other libraries ask of the allocator: NCCL and cuDNN have memory of their own. The scenarios here are without
  cuBLAS's workspaces, on both sides. In `simulate` and `memory` they lie among the tensors, where each thread's first
  product puts them; what that changes was measured ([gpu.md](gpu.md)).
- `torch.compile`, CUDA graphs and their pools.

## Beside the real allocator

Others published memory snapshots of training and inference on their GPUs, with the history of what was asked of
torch's allocator. `benchmarks/snapshots.py` plays {played} of them into the port: every request must lie at the address
where torch put it, as much must be reserved after it, an emptied cache must keep as much, and as much must be allocated
at the end. In {alike} all of it is so: {events:,} events, {requests:,} of them requests. The other {untold} are not
compared. A snapshot has its last state and the history that led there, and theirs leave open how large a block was
before the first event.

| snapshots | torch | settings | alike | events | requests | segments taken | given back | reserved, GiB |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
{snapshots}

`torch` is the release in the repository's lock file. Each history is of one stream.
tests/allocators/test_published_allocations.py plays four of them whole (benchmarks/data/allocations.json), and shorter
facts, all of which the port meets:

- Expandable segments with `max_split_size_mb`: what is reserved grows from 220 to 14,060 MiB in 100 cycles, and the
  card is full in cycle 115 ([pytorch#193400](https://github.com/pytorch/pytorch/pull/193400),
  [ROCm#6603](https://github.com/ROCm/ROCm/issues/6603)).
- Buffers on new streams at every call: 2 to 16 GiB in eight calls, 32 GiB at most
  ([vllm#52950](https://github.com/vllm-project/vllm/issues/52950)).
- What torch's own tests assert on GPUs: rounding to parts of a power of two, a share of the card, a request that goes
  through once another is freed. The first requests of a ResNet, in a post on memory traces.
- `max_split_size_mb:20` ([vllm#41268](https://github.com/vllm-project/vllm/pull/41268)). The port refused it before.

Nothing published was there to hold `garbage_collection_threshold` against, nor memory that another stream still uses.
Left out are traces of torch's profiler, which do not tell what was there before them, numbers of 2018, when requests
were rounded otherwise, programs whose arguments are not told, and snapshots of other allocators: of a fork of torch
with segments of 4 MiB (fjc-oai/pbag), of a device that rounds otherwise (codeasier/MemSnapDump).

## When the cache is emptied

The cache is emptied where DeepSpeed 0.19.8 does it: when ZeRO-1 and 2 flatten a group of parameters (twice where that
is done on the CPU), when ZeRO-3 defragments its partitions, and when states are moved by `offload_states` or a
partition cache is given back. No step empties it. transformers 5.23 does it in a step only where
`torch_empty_cache_steps` says so (`--empty-cache-steps`), between forward and backward; Accelerate in none.

## Every scenario

By the share of the tensors that is reserved, highest first; sizes in GiB, the others in shares of `allocated`.
`instant` is what `dsgen memory` says of the number before it.

| scenario | stage | offload | method | allocated | reserved | instant | least | expandable | instant | least |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""


def ratio(row: Row, name: str) -> float:
    """A number of the replay by what was allocated."""
    return float(row[name] / row["allocated_peak_bytes"])


def causes() -> dict[str, Callable[[Row], bool]]:
    """What may make reserved larger -> whether a scenario has it."""
    return {
        **{f"stage {stage}": (lambda row, stage=stage: row["stage"] == stage) for stage in range(4)},
        "stage 3, parameters on the CPU": lambda row: row["offload"] == "param",
        "optimizer on the CPU": lambda row: row["offload"] == "optimizer",
        "checkpointing": lambda row: bool(row["checkpointing"]),
        "no checkpointing": lambda row: not row["checkpointing"],
        "attention with all its scores (eager)": lambda row: row["attention"] == "eager",
        f"logits of a micro-batch in fp32 above {LOGITS_SHARE:.0%} of the tensors": _logits,
        "several passes a step": lambda row: row["passes"] > 1,
        "one pass a step": lambda row: row["passes"] == 1,
        "adapters": lambda row: row["method"] != "full",
        "tensors below 4 GiB": lambda row: row["allocated_peak_bytes"] < 4 << 30,
        "tensors of 16 GiB and more": lambda row: row["allocated_peak_bytes"] >= 16 << 30,
    }


def _logits(row: Row) -> bool:
    size = row["micro_batch"] * row["seq_len"] * row["vocabulary"] * _FP32
    return not row["chunked_loss"] and size > LOGITS_SHARE * row["allocated_peak_bytes"]


_EXPANDABLE_LEAST = ("expandable_least_bytes", "least with expandable segments")
_COLUMNS = ("reserved_peak_bytes", "least_bytes", "expandable_reserved_peak_bytes", "expandable_least_bytes")


def _range(rows: Sequence[Row], name: str) -> str:
    values = sorted(ratio(row, name) for row in rows)
    cut = len(values) // _TENTH
    return f"{statistics.median(values):.2f} ({values[cut]:.2f} to {values[-1 - cut]:.2f})"


def summary(record: Mapping[str, Any]) -> list[str]:
    """The ranges over all scenarios: median, and what eight of ten lie between."""
    rows = record["cases"]
    names = ("reserved", "least", "reserved with expandable segments", "least with expandable segments")
    grew = sum(row["growing_steps"] > 0 for row in rows)
    return [
        *(
            f"{label}: {_range(rows, name)} of the tensors, at most {max(ratio(row, name) for row in rows):.2f}"
            for label, name in zip(names, _COLUMNS, strict=True)
        ),
        f"{grew} of {len(rows)} scenarios reserve more in a step after the third",
        *_varied(record),
    ]


def _varied(record: Mapping[str, Any]) -> Iterator[str]:
    """What changing lengths do to the scenarios that were run so, beside the same with one length."""
    fixed = {row["name"]: row for row in record["cases"]}
    rows = record.get("varied", [])
    if rows:
        said = []
        for name, label in (("reserved_peak_bytes", "reserved"), ("least_bytes", "least"), _EXPANDABLE_LEAST):
            more = [row[name] / fixed[row["name"]][name] - 1 for row in rows]
            said.append(f"{label} {statistics.median(more):+.1%} in the median and at most {max(more):+.1%}")
        yield f"{len(rows)} scenarios with shorter steps between two of the longest: {', '.join(said)}"


def page(record: Mapping[str, Any], instant: Told, replayed: Collection[str], snapshots: Sequence[Row]) -> str:
    """The page.

    Args:
        record: The replays of the simulated engine.
        instant: Scenario -> what the instant model says is reserved, by default and with expandable segments.
        replayed: The scenarios whose requests it knows, and replays too.
        snapshots: What came of the snapshots that benchmarks/snapshots.py played.
    """
    rows = record["cases"]
    each = max(sum(row["group"] == one["group"] for row in rows) for one in rows)
    return "".join(_parts(record, rows, each, instant, replayed, snapshots))


def _parts(
    record: Mapping[str, Any],
    rows: Sequence[Row],
    each: int,
    instant: Told,
    replayed: Collection[str],
    snapshots: Sequence[Row],
) -> Iterator[str]:
    yield _HEAD.format(count=len(rows), each=each)
    yield "".join(f"- {line}\n" for line in summary(record))
    yield "\n## By cause\n\nMedian, and what eight of ten scenarios lie between, of the tensors.\n\n"
    yield "| cause | scenarios | reserved | least | expandable: reserved | least |\n"
    yield "| --- | --- | --- | --- | --- | --- |\n"
    for cause, has in causes().items():
        of_cause = [row for row in rows if has(row)]
        if of_cause:
            ranges = " | ".join(_range(of_cause, name) for name in _COLUMNS)
            yield f"| {cause} | {len(of_cause)} | {ranges} |\n"
    yield _NOTES.format(
        count=len(rows),
        fitted=sum(row["group"] not in (*UNCOUNTED, *LATER) for row in rows),
        replayed=len(replayed),
        said="\n".join(_said(rows, instant, replayed)),
        high=HIGH,
        high_default=HIGH_DEFAULT,
        enough_expandable=sum(ratio(row, "expandable_least_bytes") <= HIGH for row in rows),
        enough_default=sum(ratio(row, "least_bytes") <= HIGH_DEFAULT for row in rows),
        **_held(snapshots),
    )
    for row in sorted(rows, key=lambda row: -ratio(row, "reserved_peak_bytes")):
        ours = [one.bytes / row["allocated_peak_bytes"] for one in instant[row["name"]]]
        told = [ratio(row, name) for name in _COLUMNS]
        numbers = " | ".join(f"{one:.2f}" for one in (told[0], ours[0], told[1], told[2], ours[1], told[3]))
        size = gib(row["allocated_peak_bytes"])
        yield f"| {row['name']} | {row['stage']} | {row['offload']} | {row['method']} | {size} | {numbers} |\n"


def _held(snapshots: Sequence[Row]) -> dict[str, Any]:
    """What came of the snapshots that were played, in words of _NOTES."""
    compared = [row for row in snapshots if row["differences"] is not None]
    alike = [row for row in compared if not row["differences"]]
    lines = []
    for repository, of_it in itertools.groupby(snapshots, key=_repository):
        rows = list(of_it)
        told = [row for row in rows if row["differences"] == 0]
        numbers = (f"{sum(row[name] for row in told):,}" for name in ("events", "requests", "opened", "released"))
        sizes = [gib(size(row["reserved"] for row in told)) for size in (min, max)]
        said = " to ".join(dict.fromkeys(sizes))
        release = rows[0]["torch"] or "not told"
        count = f"{len(told)} of {len(rows)}"
        settings = f"`{rows[0]['settings']}`" if rows[0]["settings"] else "default"
        link = f"[{repository}](https://github.com/{repository})"
        lines.append(f"| {link} | {release} | {settings} | {count} | {' | '.join(numbers)} | {said} |")
    return {
        "played": len(snapshots),
        "alike": len(alike),
        "untold": len(snapshots) - len(compared),
        "events": sum(row["events"] for row in alike),
        "requests": sum(row["requests"] for row in alike),
        "snapshots": "\n".join(lines),
    }


def _repository(row: Row) -> str:
    return "/".join(row["source"].split("/")[3:5])


def _said(rows: Sequence[Row], instant: Told, replayed: Collection[str]) -> Iterator[str]:
    """How far the instant model is off, by setting and by how it tells."""
    kinds: dict[str, Callable[[Row], bool]] = {
        "replay": lambda row: row["group"] not in UNCOUNTED and row["name"] in replayed,
        "causes": lambda row: row["group"] not in UNCOUNTED and row["name"] not in replayed,
        "uncounted": lambda row: row["group"] in UNCOUNTED,
        "all": lambda row: True,
    }
    for place, (label, name) in enumerate((("default", _COLUMNS[0]), ("expandable segments", _COLUMNS[2]))):
        for kind, has in kinds.items():
            ours = [(instant[row["name"]][place], row[name]) for row in rows if has(row)]
            errors = [one.bytes / told - 1 for one, told in ours]
            near, close = (sum(abs(error) <= most for error in errors) for most in (_NEAR, _CLOSE))
            within = sum(one.low <= told <= one.high for one, told in ours)
            middle, size = statistics.median(errors), statistics.median(map(abs, errors))
            numbers = f"{len(ours)} | {middle:+.1%} | {size:.1%} | {near} | {close} | {within}"
            yield f"| {label} | {kind} | {numbers} |"
