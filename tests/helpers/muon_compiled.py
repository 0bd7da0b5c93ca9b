"""Muon's orthogonalisation as torch.compile makes it and as it is written: a program, which answers in JSON."""

from __future__ import annotations

import json
import os
import tempfile

__all__ = ["differences"]

SHAPE = (128, 64)  # a tall matrix, which both turn; the tiny Llama's feed-forward is one
STEPS = 5  # of the iteration, as DeepSpeed's default


def differences() -> dict[str, list[float]]:
    """Of each function how far the compiled one is from the written one, and its largest number; graphs compiled."""
    import torch
    from deepspeed.runtime.zero.muon import original_muon

    told = {}
    for name in ("zeropower_via_newtonschulz5", "zeropower_via_gram_newtonschulz"):
        function = getattr(original_muon, name)
        given = torch.randn(SHAPE, generator=torch.Generator().manual_seed(20))
        with torch.compiler.set_stance("force_eager"):
            written = function(given, STEPS)
        compiled = function(given, STEPS)
        told[name] = [float((compiled - written).abs().max()), float(written.abs().max())]
    told["graphs"] = [float(torch._dynamo.utils.counters["stats"]["unique_graphs"])]
    return told


if __name__ == "__main__":
    os.environ.update(DS_ACCELERATOR="cpu", CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1")
    out = os.dup(1)
    os.dup2(2, 1)  # whatever else is printed goes to stderr
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        answer = differences()
    with os.fdopen(out, "w", encoding="utf-8") as file:
        json.dump(answer, file)
