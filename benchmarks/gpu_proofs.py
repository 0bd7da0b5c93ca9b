"""Golden configs started on a real GPU: CUDA, NCCL, one rank; every stage, offloads, bf16, fp16 and fp32, optimizers.

    python benchmarks/gpu_proofs.py [--update]

Each is initialized, stepped three times, saved and loaded, and its checks are compared, as `dsgen prove --device cuda
--ranks 1` does. Without a GPU it says what was not run. --update records benchmarks/gpu_proofs.json; the page is
benchmarks/gpu_page.py's.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from pathlib import Path
from typing import Any

from dsgen.proving.prover import PROVED, Proof, prove_many
from dsgen.shapes.errors import DsgenError

__all__ = ["CASES", "main", "record"]

FOLDER = Path(__file__).resolve().parent
RESULTS, CONFIGS = FOLDER / "gpu_proofs.json", FOLDER.parent / "golden" / "configs"
CASES = (
    *("stage-0-gpt2-one-gpu", "stage-1-1b", "stage-2-3b", "stage-3-7b", "fp16-stage-1", "fp16-t4-one-gpu"),
    *("fp16-v100-32g-stage-3", "fp16-offload-all", "offload-all", "offload-optimizer-stage-1"),
    *("offload-optimizer-stage-2", "offload-optimizer-stage-3", "offload-param-cpu-only", "main-a100-40g-7b"),
    *("optimizer-lion", "optimizer-adagrad", "optimizer-muon-stage-1", "optimizer-muon-stage-3", "optimizer-sgd"),
    *("fp32-pinned", "fp32-offload", "bf16-off-by-key", "fp16-static-scale", "clipping-off", "schedule-cosine"),
    *("torch-autocast", "stage-3-no-gather", "training-memory-saver", "training-high-performance"),
)


def main() -> None:
    """Prove every case; exit 1 where one is not proved, 0 where there is no GPU, which is printed."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--update", action="store_true", help="record what was proved")
    update = options.parse_args().update
    configs = [json.loads((CONFIGS / f"{name}.json").read_text("utf-8")) for name in CASES]
    try:
        proofs = prove_many(configs, ranks=1, device="cuda", tell=_tell)
    except DsgenError as error:
        print(f"not run: {str(error).splitlines()[0]}")
        print(*(f"not run: {name}" for name in CASES), sep="\n")
        return
    for name, proof in zip(CASES, proofs, strict=True):
        print(f"{proof.outcome} {name}{f': {proof.phase}: {proof.error}' if proof.error else ''}")
    if update:
        text = json.dumps(record(dict(zip(CASES, proofs, strict=True))), indent=1)
        RESULTS.write_text(f"{text}\n", encoding="utf-8", newline="\n")
    sys.exit(any(proof.outcome != PROVED for proof in proofs))


def record(proofs: dict[str, Proof]) -> dict[str, Any]:
    """What is kept of proofs on this card: how each ended, how many checks there were, and how many held."""
    import torch

    versions = next(iter(proofs.values())).versions
    return {
        "card": torch.cuda.get_device_name(),
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "ranks": 1,
        "backend": "nccl",
        "versions": dict(versions),
        "proofs": {
            name: {
                "outcome": proof.outcome,
                "device": proof.device,
                "checks": len(proof.checks),
                "held": sum(check.ok for check in proof.checks),
                "seconds": round(proof.seconds, 1),
            }
            for name, proof in proofs.items()
        },
    }


def _tell(done: int, number: int) -> None:
    print(f"{done} of {number}", file=sys.stderr)


if __name__ == "__main__":
    main()
