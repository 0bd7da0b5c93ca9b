"""What one GPU measured, as docs/gpu.md: memory and time of real steps beside what dsgen says, and proofs on CUDA.

    python benchmarks/gpu_page.py [--check]

The records are benchmarks/gpu_memory.json, gpu_memory_limits.json, gpu_speed/<card>.json, gpu_speed_host.json and
gpu_proofs.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gpu_memory_cases  # benchmarks/, beside this script
import gpu_memory_limits
import gpu_memory_ram
import gpu_memory_table
import gpu_proofs
import gpu_speed_host_table
import gpu_speed_table
from gpu_speed_now import now

__all__ = ["PAGE", "main", "page"]

FOLDER = Path(__file__).resolve().parent
PAGE = FOLDER.parent / "docs" / "gpu.md"
HOST_PROFILE = "h200-141g"  # whose host was looked at
INTRO = """# What a GPU measured

Real steps of the real DeepSpeed on an H200, on two days, with random weights, each in a process of its own; `nox -s
gpu-memory` and `nox -s gpu-speed` run them, `nox -s gpu` the proofs. An error is dsgen's number less the measured
one, of that: above 0, dsgen says more. No memory was fitted on these runs; of the speeds, what the host takes
(below).

On the first day, 2026-11-26, the harness left `tie_weights` out (transformers' switch that makes no initial weights
does), so that OPT, GPT-2, Qwen2.5, SmolLM2 and Llama 3.2 ran with a head of their own, and dsgen is asked about what
ran. What ran on the second day ties them: four runs of Qwen2.5 0.5B and three of Llama 3.2 1B below, all of the
limits, and the speeds but the first eleven. FlashAttention's package was not there: its runs are rows without a
number. The machine is a virtual one of 16 cores and 128 GiB of RAM, in which an 8B with all its states has no room.
"""
MEMORY = """## Memory

What torch had allocated at most in two steps, beside the [simulation](simulate.md) of the same request. Outside torch
is what the card held beside torch's allocator after the last step: 619 MiB when the context was made; the rest are
kernels that were loaded, and 512 MiB that NCCL 2.28 takes for a communicator of one rank. That NCCL did so here was not
looked at: another measured it with the same torch on a B300 (NVIDIA/nccl, issue 2363). With an optimizer on the CPU
it is up to 82 MiB more, the more the larger the model. dsgen expects 776 MiB, and at most the 1,407 of the last rows.

cuBLAS's workspaces of 32 MiB, one with the first product of forward and one with that of backward, lie in the replay
where torch puts them: in the smallest block that is free then. Seven runs were 5 to 14 % off while they were added
behind the replay, four of them by a block of fp32 logits whose place a workspace had split; six of the seven are within
0.3 % since, phase by phase, and no other left the 5 %. The seventh (Qwen2.5 0.5B at stage 2, optimizer on the CPU)
reserved 1,040 MiB more in its first backward: an fp64 copy of the embedding's gradient, for which the replay has a free
block of 1,202 MiB. It has none if backward's workspace comes before the fp32 gradient of the logits goes; the other
runs say that it comes after. torch 2.11 gave cuBLASLt 1 MiB of its own where a layer has a bias; 2.13, whose rules are
replayed, shares cuBLAS's.
"""
NOT_RUN = """Not run on a card yet, in no row and no number here, are these cases, which came later:
"""
RAM = """### RAM

What the process held at most (`ru_maxrss`), which nothing was fitted on but the 2 GiB of a process. torch locks pages
in blocks of a power of two, and keeps them when they are freed: below, stage 3 with parameters on the CPU keeps each
share that zero.Init made, after all of them were copied into one tensor. Until it was counted, 2 to 9 GiB were missing
in the second, fourth and sixth row.
"""
LIMITS = """### The least card

Out of memory is where torch's allocator, after giving back all it can, finds no room. `dsgen simulate` tells the
least card on which a run goes through. Here torch was held to 1 % more than that, with which two steps must go
through, and to 1 % less, with which they must die; where a run did otherwise, to 4 %. All eleven ran with more. Held to
less nine died; one, whose optimizer is on the CPU, went through with 99 % and died with 96 %; the 8B with adapters went
through with 96 % too, so that what is said of it is at least 4 % too much. What a run reserves when it is free says
little of that: the fourth needs 5.06 GiB and reserves 8.11. The last column has the phase in which they died.
"""
SPEED = """## Speed

Whole steps, the median of six behind three, beside what `dsgen plan` says at once. Of the 36 that ran, ten are within
7 %: those of long sequences and large batches, which kernels fill. Most others are bound by the host (below), and
machines of one kind differ in it: adapters of an 8B without ZeRO took 0.43 s a step on the first day and 0.32 on the
second, and the six steps of that run, as of others like it, differed by a third. Not explained: of the runs at stage
2 those of few tokens take up to 57 % longer than is said, those with an optimizer on the CPU up to a quarter. In the
tables of kernels `host` is a loop without modules, which takes less than what is counted for an operator in a model.
Attention is torch's sdpa, which is cuDNN's kernel here since 2.11; none of its law's numbers is of this card.
"""
HOST = """### What the host takes

A step was looked at twice: as it is, and with sequences of eight tokens, in milliseconds. Kernels of forward and
backward take next to nothing then, and those of the optimizer, which stay, are in the step's own phase. Steps are 2
to 15 % shorter so, or not at all: these runs are bound by the host. Counted is what dsgen counts: 11 microseconds an
operator from Python, 22 for one that autograd calls, 2.5 for a view, 50 for a call of a module that holds parameters,
460 for ZeRO-3's hooks of one, which is a fit on these forwards and backwards. Of the second run forward takes 154
with eight tokens and 100 in the step as it is, and both together as long. The step's own phase is what is counted of
the host alone: at stages 1 and 2 the optimizer's kernels come on top, and what stage 3 does there beside its
operators is in no number.

The host beside a B200 takes 0.56 of what is counted (stas00/ml-engineering: a layer of Llama in 0.51 ms), and the
interval of a speed reaches there. Before, dsgen counted a quarter to a half: what modules cost was in no part, and
backward was thought to be cheaper than forward. Two more runs are in the harness and were not made.
benchmarks/host_costs.py, which needs no GPU, printed beside it: {costs}.
"""
PROOFS = """## Proofs

Golden configs that started on CUDA with NCCL, one rank: initialized, stepped three times, saved and loaded, with every
check held. Of QLoRA the 4-bit weights are bitsandbytes' own. {left}

| config | checks | seconds |
| --- | --- | --- |"""


def page() -> str:
    """The page."""
    proofs = _read("gpu_proofs.json")
    rows = [
        f"| {name} | {one['held']} of {one['checks']} | {one['seconds']:.1f} |"
        for name, one in proofs["proofs"].items()
    ]
    missing = [name for name in (*gpu_proofs.CASES, *gpu_proofs.ADAPTERS) if name not in proofs["proofs"]]
    left = f"Not proved yet, for want of time on the card:\n{', '.join(missing)}." if missing else "None is missing."
    if old := gpu_proofs.changed(proofs["proofs"]):
        left += f"\nProved as they were then, and rendered otherwise since: {', '.join(old)}."
    speeds = [f"gpu_speed/{file.name}" for file in sorted((FOLDER / "gpu_speed").glob("*.json"))]
    known = ", ".join(f"{name} {value}" for name, value in proofs["versions"].items())
    return "\n".join(
        [
            INTRO,
            MEMORY,
            gpu_memory_table.markdown(_read("gpu_memory.json")["cases"]),
            *_not_run(_read("gpu_memory.json")["cases"]),
            RAM,
            gpu_memory_ram.markdown(_read("gpu_memory.json")["cases"]),
            LIMITS,
            gpu_memory_limits.markdown(_read("gpu_memory_limits.json")),
            "",
            SPEED,
            *(gpu_speed_table.markdown(now(_read(file))) for file in speeds),
            "",
            HOST.format(costs="; ".join(_read("gpu_speed_host.json")["host_costs"])),
            gpu_speed_host_table.markdown(_read("gpu_speed_host.json"), HOST_PROFILE),
            "",
            PROOFS.format(left=left),
            *rows,
            "",
            f"On {proofs['card']}, {known}.",
            "",
        ]
    )


def _not_run(records: Mapping[str, Any]) -> list[str]:
    """The cases of `nox -s gpu-memory` that came after the days on the card, by name; nothing where there are none."""
    names = [case.name for case in gpu_memory_cases.cases() if case.name not in records]
    return [NOT_RUN, *(f"- {name}" for name in names), ""] if names else []


def main() -> None:
    """Write the page, or with --check compare it."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--check", action="store_true", help="write nothing; exit 1 when the page would change")
    if not options.parse_args().check:
        PAGE.write_text(page(), encoding="utf-8", newline="\n")
    elif PAGE.read_text("utf-8") != page():
        sys.exit("docs/gpu.md is stale. Run: python benchmarks/gpu_page.py")


def _read(name: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((FOLDER / name).read_text("utf-8"))
    return record


if __name__ == "__main__":
    main()
