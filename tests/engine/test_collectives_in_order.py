"""Where DeepSpeed relies on it, collectives of gloo end in the order in which they are asked for, as those of NCCL."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.proof

ROOT = Path(__file__).resolve().parents[2]
# Two ranks gather 128 MiB and then 8 bytes, and wait for the latter alone, as DeepSpeed before 0.19.8 does at stage 3.
PROGRAM = """
import json, os, sys
import deepspeed, torch, torch.distributed as dist
from dsgen.engine.proof import cpu_stand_ins

path = sys.argv[1]
deepspeed.__version__ = sys.argv[2]
cpu_stand_ins.complete_in_order()
other = os.fork()
rank = int(other == 0)
dist.init_process_group("gloo", init_method=f"file://{path}/store", rank=rank, world_size=2)
group = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
whole = torch.full((2**25,), float("nan"))
first = dist.all_gather_into_tensor(whole, torch.ones(2**24), async_op=True)
last = dist.all_gather_into_tensor(torch.empty(2), torch.ones(1), async_op=True)
last.wait()
ended = first.is_completed()
first.wait()
told = {"ended": ended, "filled": bool((whole == 1).all()), "threads": group.options._threads}
told["seconds"] = group.options._timeout.seconds
open(f"{path}/{rank}.json", "w").write(json.dumps(told))
dist.barrier()
if rank == 0:
    os.waitpid(other, 0)
os._exit(0)
"""


def ranks(folder: Path, release: str) -> list[dict[str, int]]:
    """What each rank saw under a release of DeepSpeed."""
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo",
                   "DS_ACCELERATOR": "cpu"}  # fmt: skip
    command = [sys.executable, "-c", PROGRAM, str(folder), release]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads((folder / f"{rank}.json").read_text("utf-8")) for rank in (0, 1)]


def test_what_was_asked_for_first_has_ended_when_the_last_has(tmp_path: Path) -> None:
    for told in ranks(tmp_path, "0.15.4"):
        assert told == {"ended": True, "filled": True, "threads": 1, "seconds": 1800}  # torch's own timeout, handed on


def test_a_release_that_waits_for_all_keeps_gloos_threads(tmp_path: Path) -> None:
    assert [(told["filled"], told["threads"]) for told in ranks(tmp_path, "0.19.8")] == [(True, 2), (True, 2)]
