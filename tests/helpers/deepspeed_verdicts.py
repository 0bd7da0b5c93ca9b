"""Child process of the tests: what the real DeepSpeed does with each config, every one in a fork of its own.

One JSON object per line on stdin (`config`, `world`, `fp16`, `client`: whether the program brings an optimizer), one
line per answer on stdout: "ok", or the phase and the error: "parse: TypeError: ...". A fake process group stands in
for the other ranks, so any world size runs here.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import json
import os
import select
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from dsgen.engine.proof import cpu_stand_ins
from dsgen.engine.proof import ops as proof_ops
from dsgen.engine.serving import ask_cpu_once, preload

SECONDS = 120.0  # for one config; most take under two
BUILD_SECONDS = 900.0  # how long to wait for another process that builds
OPERATORS = ("FusedAdamBuilder", "CPUAdamBuilder")
# What a start imports, here once for all forks; what compiles is the longest, and every ZeRO stage asks for Muon.
PRELOAD = (
    "torch._dynamo",
    "torch._inductor.compile_fx",
    "torch.testing._internal.distributed.fake_pg",
    "deepspeed.runtime.zero.stage_1_and_2",
    "deepspeed.runtime.zero.stage3",
    "deepspeed.runtime.zero.muon.muon_optimizer",
    "deepspeed.runtime.zenflow.zenflow_stage_1_and_2",
    "deepspeed.module_inject.auto_ep_layer",
    "deepspeed.module_inject.auto_tp",
)
os.environ.update(OMP_NUM_THREADS="1", DS_ACCELERATOR="cpu", TOKENIZERS_PARALLELISM="false")


def verdict(config: dict[str, Any], world: int, fp16: bool, client: bool) -> str:
    """Parse, initialize and two optimizer steps of one config on rank 0 of `world`."""
    import deepspeed
    import torch
    from deepspeed.runtime.config import DeepSpeedConfig
    from torch.testing._internal.distributed.fake_pg import FakeStore

    os.environ.update(
        RANK="0", LOCAL_RANK="0", WORLD_SIZE=str(world), LOCAL_SIZE="8", MASTER_ADDR="127.0.0.1", MASTER_PORT="1"
    )
    phase = "parse"
    try:
        # As asked, whatever this machine's CPU has: some compute in fp16, and torch does so on every one.
        type(deepspeed.accelerator.get_accelerator()).is_fp16_supported = lambda _: fp16
        torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
        deepspeed.init_distributed(dist_backend="fake", verbose=False)
        DeepSpeedConfig(copy.deepcopy(config))
        phase = "init"
        cpu_stand_ins.leave_uncompiled(config)
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
        own = torch.optim.AdamW(model.parameters()) if client else None
        engine, *_ = deepspeed.initialize(
            model=model, model_parameters=list(model.parameters()), config=config, optimizer=own
        )
        phase = "step"
        dtype = next(model.parameters()).dtype
        for _ in range(2 * max(1, int(engine.gradient_accumulation_steps()))):  # ZenFlow sets 0 for "auto"
            batch = torch.randn(int(engine.train_micro_batch_size_per_gpu()), 8, dtype=dtype)
            loss = engine(batch).float().pow(2).mean()
            engine.backward(loss)
            engine.step()
    except BaseException as error:
        return f"{phase}: {type(error).__name__}: {error}"
    return "ok"


def forked(asked: dict[str, Any]) -> str:
    """The verdict from a fork, which is killed when it takes too long."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        log = os.open(os.devnull, os.O_WRONLY)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.chdir(tempfile.mkdtemp())
        os.write(write, verdict(asked["config"], asked["world"], asked["fp16"], asked["client"]).encode()[:2_000])
        os._exit(0)
    os.close(write)
    ready = select.select([read], [], [], SECONDS)[0]
    said = os.read(read, 4_000).decode(errors="replace") if ready else f"no answer in {SECONDS:g} s"
    os.close(read)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return said or "died without a word"


def main() -> None:
    """Answer until stdin ends."""
    import deepspeed
    import torch

    torch.set_num_threads(1)
    preload(PRELOAD)
    ask_cpu_once()

    # Built before the forks: one that is killed while it builds would leave a lock behind.
    with tempfile.TemporaryDirectory() as folder:
        proof_ops.build(list(OPERATORS), BUILD_SECONDS, Path(folder) / "report.json")
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # a minute of building that fake ranks do not need
    gc.freeze()  # DeepSpeed collects garbage often; a fork would look through all that was imported
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    for line in sys.stdin:
        print(json.dumps(forked(json.loads(line))), file=channel, flush=True)


if __name__ == "__main__":
    main()
