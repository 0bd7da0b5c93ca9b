"""What DeepSpeed's CPU accelerator leaves out or gets wrong, so that a proof on a CPU says what a GPU would."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from pathlib import Path
from typing import Any

__all__ = ["allow_files", "allow_fp16", "allow_locked_pages", "complete_in_order", "leave_uncompiled",
           "let_ranks_go_first", "name_device", "share_memory"]  # fmt: skip

_FILES = "AsyncIOBuilder"
_SHARED_MEMORY = "deepspeed_shm_comm"  # the operator of a CPU's own collectives
_NAMED_SINCE = (0, 18)  # the line whose AutoTP sends objects by the device's name, "cpu" (runtime/engine.py)
_AWAITED_SINCE = (0, 19, 8)  # the release that waits for every gathering of a coalesced one
_GLOO_LOOP = "gloo_tcp_loop"  # the name of its thread (gloo/transport/tcp/loop.cc)
_LAST = 19  # of the niceness of Linux: what else can run goes first
_compatible: dict[str, bool] = {}  # what DeepSpeed itself said of an operator


def allow_fp16(accelerator: Any) -> None:
    """Let the fp16 code of DeepSpeed run on a CPU that it thinks too weak for it.

    From 0.16 on it asks torch; before, no CPU has fp16, neither by `is_fp16_supported` nor in `supported_dtypes`.
    """
    import torch

    kind = type(accelerator)
    kind.is_fp16_supported = lambda self: True
    known = list(accelerator.supported_dtypes())
    if torch.float16 not in known:
        kind.supported_dtypes = lambda self: [*known, torch.float16]


def name_device(accelerator: Any) -> bool:
    """Give the CPU a name that torch takes, where DeepSpeed gives the rank as text; whether that was needed.

    Before 0.18 AutoTP sends the batch to `current_device()`, of a CPU "0": "Invalid device string: '0'".
    """
    import deepspeed

    if tuple(int(part) for part in deepspeed.__version__.split(".")[:2]) >= _NAMED_SINCE:
        return False
    type(accelerator).current_device = lambda self: "cpu"
    return True


def allow_files(accelerator: Any) -> None:
    """Let a CPU have the builder of asynchronous files that the other accelerators have: before 0.15 it has none.

    Modules take the builder's class when they are imported, so each that has one that refuses gets the other.
    """
    builders = importlib.import_module(accelerator.op_builder_dir())
    if hasattr(builders, _FILES):
        return
    real = importlib.import_module("deepspeed.ops.op_builder.async_io").AsyncIOBuilder
    for name, module in list(sys.modules.items()):
        if name.startswith("deepspeed.") and module.__dict__.get(_FILES) is builders.NotImplementedBuilder:
            setattr(module, _FILES, real)


def allow_locked_pages(accelerator: Any) -> None:
    """Let a CPU remember which memory was page-locked: what is swapped must be, and torch locks for a GPU alone.

    From 0.19 on DeepSpeed locks pages itself.
    """
    kind = type(accelerator)
    if "is_pinned" not in vars(kind):
        return
    locked: dict[int, Any] = {}  # address -> storage, kept so that no other gets its address

    def pin_memory(self: Any, tensor: Any, align_bytes: int = 1) -> Any:
        storage = tensor.untyped_storage()
        locked[storage.data_ptr()] = storage
        return tensor

    kind.pin_memory = pin_memory
    kind.is_pinned = lambda self, tensor: tensor.untyped_storage().data_ptr() in locked


def share_memory(wanted: bool) -> None:
    """Let `init_distributed` load a CPU's own collectives, or not: only AutoTP's forward asks for them.

    Each rank writes 66 MiB of /dev/shm for them as it joins (csrc/cpu/comm/shm.cpp, `allreduce_workspace`).
    """
    compatible: dict[str, bool] = importlib.import_module("deepspeed.ops").__compatible_ops__
    able = _compatible.setdefault(_SHARED_MEMORY, compatible.get(_SHARED_MEMORY, False))
    compatible[_SHARED_MEMORY] = wanted and able


def complete_in_order() -> None:
    """Let gloo's collectives end in the order in which a rank asks for them, as NCCL's do on a GPU's stream.

    Gloo has two threads for each interface (torch's ProcessGroupGloo.cpp), so that a later collective can end before an
    earlier one. At stage 3 DeepSpeed before 0.19.8 gathers each parameter that stays whole into `torch.empty`, and
    waits for the last gathering alone (runtime/zero/partition_parameters.py, `_allgather_params_coalesced`; mended by
    its pull request 8539): on a busy machine forward reads what nothing was written to, and the loss is nan. One thread
    takes a sixth longer for such a proof, so that releases which wait for all keep two.
    """
    import deepspeed
    from packaging.version import Version
    from torch.distributed import ProcessGroupGloo

    if Version(deepspeed.__version__).release >= _AWAITED_SINCE:
        return
    join: Any = ProcessGroupGloo.__init__

    def join_with_one_thread(self: Any, store: Any, rank: int, size: int, timeout: Any) -> None:
        options = ProcessGroupGloo._Options()
        options._devices = [ProcessGroupGloo.create_device(interface=os.environ["GLOO_SOCKET_IFNAME"])]
        options._timeout = timeout
        options._threads = 1
        join(self, store, rank, size, options)

    ProcessGroupGloo.__init__ = join_with_one_thread


def let_ranks_go_first(threads: Path = Path("/proc/self/task")) -> int:
    """Let gloo's threads of this process, one for each group by now, give way to the ranks; how many, 0 without /proc.

    It does not wait for a connection that another thread has locked, but asks again at once (gloo's transport/tcp/
    pair.cc, `handleEvents`). With more ranks than cores it spins on the core that the other thread needs to unlock it:
    a quarter of all CPU time of proofs on two cores.
    """
    loops = [thread for thread in threads.glob("*") if _name_of(thread) == _GLOO_LOOP]
    for thread in loops:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, int(thread.name), _LAST)
    return len(loops)


def _name_of(thread: Path) -> str:
    """The name of a thread; "" where it has just ended."""
    try:
        return (thread / "comm").read_text("utf-8").strip()
    except OSError:
        return ""


def leave_uncompiled(config: dict[str, Any]) -> bool:
    """Run Muon's functions as they are written; whether the config has any, and torch (from 2.6 on) can leave them so.

    They are compiled at their first call, for each shape, by each rank: half a minute of C++ that no GPU runs.
    """
    import torch

    chosen = config.get("optimizer")
    muon = isinstance(chosen, dict) and str(chosen.get("type", "")).lower() == "muon"
    if not muon or not hasattr(torch.compiler, "set_stance"):
        return False
    torch.compiler.set_stance("force_eager")
    return True
