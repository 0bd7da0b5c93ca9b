"""Golden configs started on a real GPU: CUDA, NCCL, one rank; every stage, offloads, bf16, fp16 and fp32, optimizers.

    python benchmarks/gpu_proofs.py [--update] [--missing] [--required] [--seconds N] [--output FILE]

Each is initialized, stepped three times, saved and loaded, and its checks are compared, as `dsgen prove --device cuda
--ranks 1` does; LoRA and QLoRA as adapters of a tiny Llama, and what is offloaded to NVMe on the drive of the temporary
folder. Without a GPU it says what was not run, and with --required, for a machine that has one, it fails then. --update
records benchmarks/gpu_proofs.json after every case; --missing goes on where --seconds ended, with what is rendered
otherwise now too, on the card and with the versions that are recorded. The page is benchmarks/gpu_page.py's.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any

from dsgen.proving.proven_models import Lora, ProvenModel
from dsgen.proving.prover import PROVED, Proof, prove_many
from dsgen.shapes.errors import DsgenError

__all__ = ["ADAPTERS", "CASES", "changed", "main", "record"]

FOLDER = Path(__file__).resolve().parent
RESULTS, CONFIGS = FOLDER / "gpu_proofs.json", FOLDER.parent / "golden" / "configs"
CASES = (
    *("stage-0-gpt2-one-gpu", "stage-1-1b", "stage-2-3b", "stage-3-7b", "fp16-stage-1", "fp16-t4-one-gpu"),
    *("fp16-v100-32g-stage-3", "fp16-offload-all", "offload-all", "offload-optimizer-stage-1"),
    *("offload-optimizer-stage-2", "offload-optimizer-stage-3", "offload-param-cpu-only", "main-a100-40g-7b"),
    *("optimizer-lion", "optimizer-adagrad", "optimizer-muon-stage-1", "optimizer-muon-stage-3", "optimizer-sgd"),
    *("fp32-pinned", "fp32-offload", "bf16-off-by-key", "fp16-static-scale", "clipping-off", "schedule-cosine"),
    *("torch-autocast", "stage-3-no-gather", "training-memory-saver", "training-high-performance"),
    *("offload-nvme-both", "offload-nvme-cpu-params", "fp16-nvme-cpu-params"),
)

ADAPTERS = {"lora-one-gpu-8b": "lora", "lora-stage-3-70b": "lora", "fp16-t4-lora": "lora", "qlora-24g-7b": "qlora",
            "qlora-80g-70b": "qlora"}  # fmt: skip
DEVICE, RANKS, BACKEND = "cuda", 1, "nccl"
HASH_DIGITS = 16  # of sha256, as in golden/matrix.csv
_BROKEN = ("missing-package", "lost")  # an environment that proves nothing, with a GPU or without


class _TimeOverError(Exception):
    """No further proof is begun."""


def main() -> None:
    """Prove every case; exit 1 where one is not proved, or a package is missing.

    Where there is no GPU that is printed, and the exit code is 0 unless one is required.
    """
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--update", action="store_true", help="record what was proved, after every case")
    options.add_argument("--missing", action="store_true", help="only what is not recorded as proved")
    options.add_argument("--required", action="store_true", help="exit 1 where anything was not run")
    options.add_argument("--seconds", type=float, default=float("inf"), help="begin none after so many seconds")
    options.add_argument("--output", type=Path, default=RESULTS, metavar="FILE", help="where to")
    asked = options.parse_args()
    known: dict[str, Any] = {"proofs": {}}
    if asked.missing and asked.output.is_file():
        known = json.loads(asked.output.read_text("utf-8"))
    old = changed(known["proofs"])
    done = [name for name, one in known["proofs"].items() if one["outcome"] == PROVED and name not in old]
    names = [name for name in (*CASES, *ADAPTERS) if name not in done]
    deadline = time.monotonic() + asked.seconds
    proofs: dict[str, Proof] = {}

    def begin(done: int, number: int) -> None:
        if time.monotonic() > deadline:
            raise _TimeOverError
        print(f"{done} of {number}", file=sys.stderr)

    def keep(place: int, proof: Proof) -> None:
        proofs[names[place]] = proof
        print(f"{proof.outcome} {names[place]}{f': {proof.phase}: {proof.error}' if proof.error else ''}", flush=True)
        if asked.update:
            text = json.dumps(record(known, proofs), indent=1)
            asked.output.write_text(f"{text}\n", encoding="utf-8", newline="\n")

    configs = [json.loads((CONFIGS / f"{name}.json").read_text("utf-8")) for name in names]
    models = [_model(name, config) for name, config in zip(names, configs, strict=True)]
    broken = False
    try:
        prove_many(configs, ranks=RANKS, device=DEVICE, trained=models, tell=begin, ended=keep)
    except DsgenError as error:
        print(f"not run: {str(error).splitlines()[0]}")
        broken = error.code in _BROKEN
    except _TimeOverError:
        print("not run: the time of --seconds is over")
    not_run = [name for name in names if name not in proofs]
    print(*(f"not run: {name}" for name in not_run), sep="\n")
    failed = any(proof.outcome != PROVED for proof in proofs.values())
    sys.exit(failed or broken or (asked.required and bool(not_run)))


def changed(proofs: dict[str, Any]) -> list[str]:
    """Those of the recorded cases whose golden config is another one now."""
    return [name for name, one in proofs.items() if one["config_sha256"] != _digest(name)]


def _digest(name: str) -> str:
    return hashlib.sha256((CONFIGS / f"{name}.json").read_bytes()).hexdigest()[:HASH_DIGITS]


def _model(name: str, config: dict[str, Any]) -> ProvenModel:
    """What is trained: adapters where the scenario trains them, checkpointed where its program does that."""
    method = ADAPTERS.get(name)
    checkpointing = "non-reentrant" if "activation_checkpointing" in config else ""
    return ProvenModel(adapters=Lora(method=method) if method else None, checkpointing=checkpointing)


def record(known: dict[str, Any], proofs: dict[str, Proof]) -> dict[str, Any]:
    """What is kept of proofs on this card beside those that are known: how each ended, and how many checks held."""
    import torch

    versions = {name: release for proof in proofs.values() for name, release in proof.versions.items()}
    told = {
        name: {
            "outcome": proof.outcome,
            "device": proof.device,
            "checks": len(proof.checks),
            "held": sum(check.ok for check in proof.checks),
            "seconds": round(proof.seconds, 1),
            "config_sha256": _digest(name),
        }
        for name, proof in proofs.items()
    }
    card, was = torch.cuda.get_device_name(), known.get("versions", {})
    of_another = known.get("card", card) != card
    if of_another or any(was[name] != release for name, release in versions.items() if name in was):
        here = f"{card} with {versions}"
        of = f"{known['card']} with {was}"
        sys.exit(f"not recorded: the record is of {of}, and this is {here}; leave --missing out, which proves all anew")
    now = {"card": card, "versions": {**was, **versions}}  # those of adapters have more than those of a whole model
    date = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    return {**now, "date": date, "ranks": RANKS, "backend": BACKEND, "proofs": {**known["proofs"], **told}}


if __name__ == "__main__":
    main()
