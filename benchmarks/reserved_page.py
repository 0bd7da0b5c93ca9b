"""docs/reserved.md: what the replay of torch's allocator says of the drawn scenarios, by cause and one by one."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from dsgen.memory.estimates import HIGH, RESERVED
from dsgen.shapes.units import gib

__all__ = ["LOGITS_SHARE", "causes", "page", "ratio", "summary"]

Row = Mapping[str, Any]
LOGITS_SHARE = 0.10  # of the tensors, from which the logits of a micro-batch in fp32 count as a cause
_FP32 = 4  # bytes
_TENTH = 10  # the tenth part of the scenarios lies below the first number of a range, and above the second
_WORST = 10

_HEAD = """# What torch's allocator reserves

`dsgen simulate` replays every request of a run in its order through the rules of torch's caching allocator (a port of
PyTorch 2.13's CUDACachingAllocator.cpp, tests by cause in tests/engine), and its last step over and over until nothing
more is reserved. `python benchmarks/reserved.py --update` simulates {count} scenarios, {each} of each group of
[memory-agreement.md](memory-agreement.md), and writes this page.

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

`dsgen memory` and `dsgen plan` do not replay anything. They still say {reserved:.2f} times the tensors for reserved,
and take {high:.2f} times the tensors as the most that is needed.

- Reserved by {reserved:.2f}: {near} of {count} scenarios lie within 3 % of it; the median error is {bias:+.1%}, the
  median absolute error {error:.1%}.
- {high:.2f} times the tensors is enough in {enough_expandable} of {count} scenarios with expandable segments, and in
  {enough_default} of {count} with torch's default settings. So a plan that FITS by the instant model holds for a launch
  with expandable segments; with default settings ask `dsgen simulate`, which says UNCERTAIN where the allocator needs
  more than there is.

## What the replay does not know

- `record_stream`: a block that another stream uses comes back when that stream is done. Here all work is done at
  once, so gradients that ZeRO reduces beside backward (overlap_comm, and stage 3) are free a little earlier than on a
  GPU.
- Lengths that change within a step, and the order of those of a person's data: a run has one length, or the lengths
  of its steps in turn (the request's `lengths`).
- What other libraries ask of the allocator: NCCL and cuDNN have memory of their own; cuBLAS's workspaces are an
  allowance.
- `torch.compile`, CUDA graphs and their pools.

The cache is emptied where DeepSpeed 0.19.8 does it: when ZeRO-1 and 2 flatten a group of parameters (twice where that
is done on the CPU), when ZeRO-3 defragments its partitions, and when states are moved by `offload_states` or a
partition cache is given back. No step empties it. transformers 5.23 does it in a step only where
`torch_empty_cache_steps` says so (`--empty-cache-steps`), between forward and backward; Accelerate in none.

## Every scenario

By the share of the tensors that is reserved, highest first; sizes in GiB, the others in shares of `allocated`.

| scenario | stage | offload | method | allocated | reserved | least | expandable: reserved | least |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
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


def page(record: Mapping[str, Any]) -> str:
    """The page."""
    rows = record["cases"]
    each = max(sum(row["group"] == one["group"] for row in rows) for one in rows)
    return "".join(_parts(record, rows, each))


def _parts(record: Mapping[str, Any], rows: Sequence[Row], each: int) -> Iterator[str]:
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
    errors = [RESERVED / ratio(row, "reserved_peak_bytes") - 1 for row in rows]
    yield _NOTES.format(
        reserved=RESERVED,
        high=HIGH,
        count=len(rows),
        near=sum(abs(error) <= 0.03 for error in errors),
        bias=statistics.median(errors),
        error=statistics.median(map(abs, errors)),
        enough_expandable=sum(ratio(row, "expandable_least_bytes") <= HIGH for row in rows),
        enough_default=sum(ratio(row, "least_bytes") <= HIGH for row in rows),
    )
    for row in sorted(rows, key=lambda row: -ratio(row, "reserved_peak_bytes")):
        numbers = " | ".join(f"{ratio(row, name):.2f}" for name in _COLUMNS)
        size = gib(row["allocated_peak_bytes"])
        yield f"| {row['name']} | {row['stage']} | {row['offload']} | {row['method']} | {size} | {numbers} |\n"
