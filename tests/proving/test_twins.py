"""A world of twins does what a real world of ranks that all hold the same does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.proof

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import json, sys
import torch, torch.distributed as dist

def ask():
    own = torch.arange(12.0)
    told = {}
    for name in ("SUM", "AVG", "MAX"):
        if name == "AVG" and dist.get_backend() == "gloo":
            told[name] = own.tolist()  # gloo has none
            continue
        one = own.clone(); dist.all_reduce(one, op=getattr(dist.ReduceOp, name)); told[name] = one.tolist()
    out = torch.empty(72); dist.all_gather_into_tensor(out, own); told["gather"] = out.tolist()
    parts = [torch.empty(12) for _ in range(6)]; dist.all_gather(parts, own)
    told["parts"] = [part.tolist() for part in parts]
    out = torch.empty(2); dist.reduce_scatter_tensor(out, own); told["scatter"] = out.tolist()
    out = torch.empty(12); dist.all_to_all_single(out, own); told["exchange"] = out.tolist()
    one = own.clone(); dist.broadcast(one, src=1); told["broadcast"] = one.tolist()
    some = dist.new_group([0, 2, 4])
    if dist.get_rank() in (0, 2, 4):
        one = own.clone(); dist.all_reduce(one, group=some); told["some"] = one.tolist()
        told["place"] = [dist.get_rank(group=some), dist.get_world_size(group=some)]
    said = [None] * 6; dist.all_gather_object(said, {"rank": "any"}); told["objects"] = said
    dist.barrier()
    return told

def real(rank, path):
    dist.init_process_group("gloo", init_method=f"file://{path}/store", rank=rank, world_size=6)
    told = ask()
    if rank == 2:
        open(f"{path}/real.json", "w").write(json.dumps(told))

if __name__ == "__main__":
    path = sys.argv[1]
    torch.multiprocessing.spawn(real, args=(path,), nprocs=6)
    from dsgen.engine.proof import twins
    twins.join(2, 6)
    open(f"{path}/twins.json", "w").write(json.dumps(ask()))
"""


def test_collectives_of_twins_are_those_of_gloo_ranks_that_hold_the_same(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, "utf-8")
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    real, twins = (json.loads((tmp_path / f"{name}.json").read_text("utf-8")) for name in ("real", "twins"))
    assert twins == real
