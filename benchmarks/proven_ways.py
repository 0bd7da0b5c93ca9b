"""What is proven how, on what: the table that opens docs/proven.md, made of the records and of the golden configs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import every_release
import gpu_proofs

from dsgen.deepspeed import surface
from dsgen.jobs import scenarios
from golden import scenes, structures

__all__ = ["table"]

LINE = "0.19."  # the release line whose scenarios are proven on real ranks
CARD = Path(__file__).resolve().parent / "gpu_proofs.json"


def table(cells: Mapping[str, Any], releases: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """The rows.

    Args:
        cells: benchmarks/every_cell.json, and what is trained.
        releases: benchmarks/every_release.json.
    """
    trained, versions = cells["trained"], cells["versions"]
    most = max(int(ranks.partition(" ")[0]) for ranks in cells["parts"]["By ranks"])
    golden = list(_golden())
    card = json.loads(CARD.read_text("utf-8"))
    cases = {*gpu_proofs.CASES, *gpu_proofs.ADAPTERS}
    left = "" if cases <= card["proofs"].keys() else " ([the rest](gpu.md#proofs) was not run)"
    if old := gpu_proofs.changed(card["proofs"]):
        left += f"; {len(old)} are [rendered otherwise](gpu.md#proofs) since"
    yield from ("| what | how | how much | tests or record |", "|---|---|---|---|")
    yield from (
        f"| {what} | {how} | {much} | `{where}` |"
        for what, how, much, where in (
            (
                "every cell of the matrix, for the targets deepspeed, accelerate and hf-trainer",
                f"linted, handed on, parsed by DeepSpeed {versions['deepspeed']}",
                f"{cells['configs']:,} configs of {cells['cells']:,} cells, three times",
                "tests/proving/test_every_cell.py",
            ),
            (
                "the same, ZeRO 0 to 3, AutoTP, offload to CPU and NVMe",
                f"started as one rank of its declared world, of up to {most} ranks",
                f"{cells['starts']:,} starts",
                "benchmarks/every_cell.json",
            ),
            (
                f"every structure of the matrix ({cells['structures']}), {len(cells['parts']['By family'])} families",
                "trained ten steps on 2 and on 4 real gloo ranks beside plain PyTorch, saved, resumed",
                f"{trained['matrix_runs']} runs",
                "tests/proving/test_golden_trained.py",
            ),
            (
                "golden scenarios that training tells from the matrix, LoRA and QLoRA as adapters",
                "the same",
                f"{trained['scene_runs']} runs",
                "tests/proving/test_golden_trained.py",
            ),
            (
                f"golden scenarios of DeepSpeed {LINE[:-1]}",
                "started, stepped, saved and loaded on 2 gloo ranks; an overflow of fp16 forced and survived",
                f"{len(structures.distinct(dict(golden)))} structures of {len(golden)} scenarios",
                "tests/proving/test_golden_proof.py",
            ),
            (
                "the same",
                "started as one rank of its declared world, of up to 1,024 ranks",
                "a start for each structure, world and family, but for six",
                "tests/proving/test_every_cell.py",
            ),
            (
                "LoRA and QLoRA",
                "as adapters of peft, on weights of 16 or 4 bits",
                "each kind",
                "tests/proving/test_proof_models.py",
            ),
            (
                "checkpoints",
                "saved by 4 ranks, resumed by 2; saved by 2, resumed by 4 (universal); made one file (zero_to_fp32)",
                "stages 1 to 3",
                "tests/proving/test_resumed_elsewhere.py",
            ),
            (
                f"DeepSpeed {', '.join(releases)}",
                "rendered for it, started under it, declared world and 2 gloo ranks",
                f"{sum(len(one['places']) for one in releases.values()):,} starts, "
                f"{sum(_proved(one) for one in releases.values())} on gloo",
                "benchmarks/every_release.json",
            ),
            (
                f"one GPU ({card['card']}, torch {card['versions']['torch']})",
                "started on CUDA with NCCL, world 1: stages, offload, bf16, fp16, optimizers, adapters",
                f"{len(card['proofs'].keys() & cases)} of {len(cases)}{left}",
                "benchmarks/gpu_proofs.json",
            ),
            (
                "faults: killed ranks and parents, full disk, no compiler, no /dev/shm ...",
                "each ends with a clear error within 60 s, and leaves nothing",
                "each",
                "tests/proving/test_faults.py",
            ),
        )
    )


def _golden() -> Iterator[tuple[str, dict[str, Any]]]:
    """The committed scenarios of the line, and their configs."""
    for name in scenes.names():
        wanted = scenarios.read(str(scenes.SCENARIOS / f"{name}.yaml")).deepspeed
        if surface.load(wanted).version.startswith(LINE):
            yield name, json.loads((scenes.CONFIGS / f"{name}.json").read_text("utf-8"))


def _proved(release: Mapping[str, Any]) -> int:
    return sum(said == every_release.PROVED for said in release["scenes"].values())
