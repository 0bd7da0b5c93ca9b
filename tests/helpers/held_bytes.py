"""The program of test_simulate_exact.py: bytes by kind after every phase, of real ranks and of simulated ones.

`python tests/helpers/held_bytes.py real|simulated`; stdin: a list of `{"name", "request", "ranks"}`, the request as of
dsgen.engine.simulate. A case may say `"whole": true` (DeepSpeed's own functions instead of shortcuts.py) and
`"silent": true` (real tensors whose collectives move nothing, so that no thread of gloo keeps one a moment longer).
stdout: name -> rank -> what `results.describe` calls `phases`; of real ranks also `held`: for every phase the
bytes by kind of the tensors that model and engine keep, and `found`: those of all tensors that the garbage collector
knows after the last step.

A real rank is a process of a gloo group that allocates and computes everything on the CPU. Each is a fork of one
process that has loaded the libraries, so that nothing stays from the case before.
"""

from __future__ import annotations

import datetime
import functools
import gc
import json
import os
import socket
import sys
import time
import traceback
import types
from collections.abc import Callable
from typing import Any

import torch

from dsgen.engine.proof.server import PRELOAD
from dsgen.engine.serving import ask_cpu_once, preload
from dsgen.engine.simulate import __main__ as simulate
from dsgen.engine.simulate import holders, liger, patches, requests, results, runs
from dsgen.engine.simulate.ledger import Ledger
from dsgen.engine.simulate.recorder import Recorder

SECONDS = 120  # a rank that waits longer for the others ends
MOMENT, STEADY = 0.02, 3  # seconds between two looks at what is alive, and how many of them must agree


def main() -> None:
    """Answer the cases on stdin."""
    os.environ.update(HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1", DS_ACCELERATOR="cpu", TORCH_CPP_LOG_LEVEL="ERROR")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    torch.set_num_threads(1)
    import transformers.models.gpt2.modeling_gpt2
    import transformers.models.llama.modeling_llama  # noqa: F401

    if sys.argv[1] == "real":  # what every rank would import, half of its time, and then look through for garbage
        preload(PRELOAD)
        ask_cpu_once()
        gc.freeze()
    answer = {"real": _real, "simulated": _simulated}[sys.argv[1]]
    # Those without the shortcuts first: what others share is changed once, before the first of their forks.
    cases = sorted(json.load(sys.stdin), key=lambda case: not case.get("whole", False))
    json.dump({case["name"]: answer(case) for case in cases}, answers)
    answers.flush()


def _forked(task: Callable[[], Any]) -> Callable[[], Any]:
    """Begin a task in a process of its own; the result waits for its answer."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        try:
            told = task()
        except BaseException as error:
            traceback.print_exception(error)
            told = {"error": f"{type(error).__name__}: {error}"}
        with os.fdopen(writing, "w", encoding="utf-8") as pipe:
            json.dump(told, pipe)
        os._exit(0)
    os.close(writing)

    def wait() -> Any:
        with os.fdopen(reading, encoding="utf-8") as pipe:
            text = pipe.read()
        os.waitpid(child, 0)
        return json.loads(text or '{"error": "the process ended without an answer"}')

    return wait


def _simulated(case: dict[str, Any]) -> dict[str, Any]:
    found = {}
    if not case.get("whole", False):
        runs.prepare()
    for rank in case["ranks"]:
        request = {**case["request"], "rank": rank}
        found[rank] = _forked(functools.partial(_simulate, request, case.get("whole", False)))()
    return found


def _simulate(request: dict[str, Any], whole: bool) -> dict[str, Any]:
    if whole:
        patches.shortcuts.apply = lambda: None
    return simulate.answer(request)


def _real(case: dict[str, Any]) -> dict[str, Any]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    world = case["request"]["world_size"]
    silent = case.get("silent", False)
    ranks = case["ranks"] if silent else range(world)
    waits = {rank: _forked(functools.partial(_rank, case["request"], rank, port, silent)) for rank in ranks}
    found = {rank: wait() for rank, wait in waits.items()}
    return {rank: found[rank] for rank in case["ranks"]}


def _rank(request: dict[str, Any], rank: int, port: int, silent: bool) -> dict[str, Any]:
    """One rank of a real run."""
    import deepspeed
    from deepspeed.accelerator import set_accelerator

    request = requests.filled({**request, "rank": rank})
    world = request["world_size"]
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1")
    os.environ["MASTER_PORT"] = str(port)
    torch.manual_seed(0)
    ledger = Ledger()
    recorder = Recorder(ledger, {})
    set_accelerator(_accelerator(request, recorder))
    patches._pinning(functools.partial(_pin, recorder), recorder.is_pinned)
    patches._streams_are_done()
    patches._operators_stand_in()
    torch.nn.functional.dropout = _dropout
    if request["liger_kernels"]:  # what its kernels leave out must be numbers, or nothing steps
        made = {"empty": torch.zeros, "empty_like": torch.zeros_like}
        liger.torch = types.SimpleNamespace(**{**vars(torch), **made})  # type: ignore[assignment]
    if silent:
        from torch.testing._internal.distributed.fake_pg import FakeStore

        torch.distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    runs.adapters.load(request["method"])
    deepspeed.init_distributed(dist_backend="gloo", timeout=datetime.timedelta(seconds=SECONDS), verbose=False)
    held: list[dict[str, int]] = []
    runs.devices.NAME = "cpu"  # inputs are made there
    if request["own_optimizer"]:
        import bitsandbytes

        real = runs.eight_bits.AdamW8bit = bitsandbytes.optim.AdamW8bit
        holders.HOLDERS[f"{real.__module__}:AdamW8bit"] = {"name2qmap": "optimizer states"}
    before = {one.untyped_storage()._cdata for one in gc.get_objects() if _counts(one)}  # of modules, and no rank's
    end = runs._end

    def ended(recorder: Any, module: Any, engine: Any, micro_batch: int = 0) -> None:
        _quiet(recorder)
        end(recorder, module, engine, micro_batch)
        held.append(_sums(holders.held(module, engine)))

    runs._end = ended
    with recorder:
        engine = runs._initialize(request, request["config"], recorder)
        for step in range(1, request["steps"] + 1):
            runs._train(request, engine, recorder, step)
        gc.collect()
    found = {one.untyped_storage()._cdata: one.untyped_storage().nbytes() for one in gc.get_objects() if _counts(one)}
    found = {storage: size for storage, size in found.items() if storage not in before}
    told = results.describe(ledger, request["gpu_memory_bytes"])
    torch.distributed.barrier()
    return {"phases": told["phases"], "peak": told["peak"], "held": held, "found": sum(found.values())}


def _dropout(tensor: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """The operator that CUDA takes, which the CPU has too: its mask is one byte an element."""
    assert not inplace
    return torch.native_dropout(tensor, p, True)[0] if training and p else tensor


def _quiet(recorder: Recorder) -> None:
    """Wait until the threads of gloo have let go of what they have sent: they do so a moment after it has arrived."""
    steady, before = 0, recorder.live[:]
    while steady < STEADY:
        time.sleep(MOMENT)
        steady = steady + 1 if recorder.live == before else 0
        before = recorder.live[:]


def _counts(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "cpu"


def _sums(pairs: Any) -> dict[str, int]:
    """Bytes by kind, each storage once; the last word about a storage counts."""
    kinds: dict[int, tuple[str, int]] = {}
    for tensor, kind in pairs:
        storage = tensor.untyped_storage()
        kinds[storage._cdata] = (kind, storage.nbytes())
    sums: dict[str, int] = {}
    for kind, size in kinds.values():
        sums[kind] = sums.get(kind, 0) + size
    return sums


def _pin(recorder: Recorder, tensor: Any, shape: Any) -> Any:
    """A page-locked tensor of the simulation, with the content that a real one has."""
    made = recorder.pin(tensor, shape)
    if made.shape == tensor.shape:
        made.copy_(tensor)
    return made


def _accelerator(request: dict[str, Any], recorder: Recorder) -> Any:
    """The CPU, which answers as the simulation's accelerator does, and that as CUDA."""
    from dsgen.engine.simulate.accelerator import VirtualAccelerator

    class Held(VirtualAccelerator):  # type: ignore[misc]
        def device_name(self, device_index: int | None = None) -> str:
            return "cpu"

        def device(self, device_index: int | None = None) -> Any:
            return torch.device("cpu")

        def current_device_name(self) -> str:
            return "cpu"

        def on_accelerator(self, tensor: Any) -> bool:
            return bool(tensor.device.type == "cpu")

        def _typed(self, dtype: torch.dtype) -> Any:
            return functools.partial(torch.tensor, dtype=dtype)

    accelerator = Held(
        memory_bytes=request["gpu_memory_bytes"],
        devices=request["gpus_per_node"],
        allocated=lambda: recorder.live[0],
        emptied=recorder.ledger.emptied,
        pin=functools.partial(_pin, recorder),
        is_pinned=recorder.is_pinned,
    )
    accelerator._name = "cpu"
    accelerator._communication_backend_name = "gloo"
    return accelerator


if __name__ == "__main__":
    main()
