"""Build the operators that the proofs need, before any test waits for one.

python tests/helpers/operators.py [--common]
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from dsgen.engine.proof import ops
from dsgen.engine.serving import ask_cpu_once

# Of a CPU: what a config asks for, what the gloo backend loads, and what `nvme` swaps with.
COMMON = ("ShareMemCommBuilder", "FusedAdamBuilder", "CPUAdamBuilder", "AsyncIOBuilder")
EVERY = (*COMMON, "CPUAdagradBuilder", "CPULionBuilder")  # the last two are of optimizers whose proofs run at night
SECONDS = 1800.0  # how long to wait for another dsgen that builds


def main() -> None:
    """Build all, or with `--common` those of every day, print how long each took, and exit 1 where one fails."""
    os.environ.update(DS_ACCELERATOR="cpu", CUDA_VISIBLE_DEVICES="")
    ask_cpu_once()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        ops.build(list(COMMON if "--common" in sys.argv else EVERY), SECONDS, report)
        built = json.loads(report.read_text("utf-8"))
    for name, seconds in built["seconds"].items():
        print(f"{name:<20} {seconds:7.1f} s")
    if built["failed"]:
        sys.exit("\n".join(f"{name}: {why}" for name, why in built["failed"].items()))


if __name__ == "__main__":
    main()
