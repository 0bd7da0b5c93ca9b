"""What one GPU measured, as docs/gpu.md: memory and time of real steps beside what dsgen says, and proofs on CUDA.

    python benchmarks/gpu_page.py [--check]

The records are benchmarks/gpu_memory.json, benchmarks/gpu_speed/<card>.json and benchmarks/gpu_proofs.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import gpu_memory_table  # benchmarks/, beside this script
import gpu_speed_table
from gpu_speed_now import now

__all__ = ["PAGE", "main", "page"]

FOLDER = Path(__file__).resolve().parent
PAGE = FOLDER.parent / "docs" / "gpu.md"
INTRO = """# What a GPU measured

Real steps of the real DeepSpeed on one H200, with random weights, each in a process of its own; `nox -s gpu-memory`
and `nox -s gpu-speed` run them, `dsgen prove --device cuda` the proofs. An error is dsgen's number less the measured
one, of that: above 0, dsgen says more. Nothing was fitted on these runs.

The harness left `tie_weights` out (transformers' switch that makes no initial weights does), so that OPT, GPT-2,
Qwen2.5, SmolLM2 and Llama 3.2 ran with a head of their own, and dsgen is asked about what ran. That is mended; a run
with tied embeddings is not recorded yet. FlashAttention's package was not there: its runs are rows without a number.
The machine is a virtual one of 16 cores and 128 GiB of RAM, in which an 8B with all its states has no room.
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
SPEED = """## Speed

Whole steps, the median of six behind three, beside what `dsgen plan` says at once. Where kernels fill the GPU the steps
are within 4 %. Where the host launches them too slowly (adapters, stage 3, few tokens) they took 1.3 to 2.9 times what
is said. Steps of one such run differ by up to half of the shortest, those of the others hardly: the host of this
virtual machine may have had other work, or Python of peft's layers and DeepSpeed's hooks takes longer than is counted;
which of the two is not known. Plain operators were launched in 7.5 microseconds each, where 10 are said. Attention is
torch's sdpa, which is cuDNN's kernel here since 2.11; none of its law's numbers is of this card.
"""
PROOFS = """## Proofs

Golden configs that started on CUDA with NCCL, one rank: initialized, stepped three times, saved and loaded, with every
check held. Of QLoRA the 4-bit weights are bitsandbytes' own.

| config | checks | seconds |
| --- | --- | --- |"""


def page() -> str:
    """The page."""
    proofs = _read("gpu_proofs.json")
    rows = [
        f"| {name} | {one['held']} of {one['checks']} | {one['seconds']:.1f} |"
        for name, one in proofs["proofs"].items()
    ]
    speeds = [f"gpu_speed/{file.name}" for file in sorted((FOLDER / "gpu_speed").glob("*.json"))]
    known = ", ".join(f"{name} {value}" for name, value in proofs["versions"].items())
    return "\n".join(
        [
            INTRO,
            MEMORY,
            gpu_memory_table.markdown(_read("gpu_memory.json")["cases"]),
            SPEED,
            *(gpu_speed_table.markdown(now(_read(file))) for file in speeds),
            "",
            PROOFS,
            *rows,
            "",
            f"On {proofs['card']}, {known}.",
            "",
        ]
    )


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
