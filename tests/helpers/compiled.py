"""A program that imports what the engine's servers import: its bytecode is written once, not by four at a time."""

from __future__ import annotations

import os

from dsgen.engine.proof.server import PRELOAD
from dsgen.engine.serving import preload

__all__ = ["main"]

# What proofs start beside the servers: the Trainer, Accelerate, adapters.
FRAMEWORKS = ("transformers.models.auto.modeling_auto", "transformers.trainer", "accelerate", "peft")


def main() -> None:
    """Import it on the CPU, torch first."""
    os.environ.update(DS_ACCELERATOR="cpu", CUDA_VISIBLE_DEVICES="")
    preload(("torch", "deepspeed", *PRELOAD, *FRAMEWORKS))


if __name__ == "__main__":
    main()
