"""A simulation in which TRL's own class moves what autograd keeps: python trl_offloading.py < request.json

The class runs as it is, on the virtual GPU's streams. Of fake tensors it cannot ask addresses, which are those of their
storages here; and page-locked memory is plain.
"""

from __future__ import annotations

import gc
import json
import sys
from typing import Any

import torch
from trl.models import activation_offloading as trl

from dsgen.engine.simulate import activation_offloading as ours
from dsgen.engine.simulate import devices, requests, results, runs
from dsgen.engine.simulate.__main__ import versions


def main() -> None:
    """Answer the request on stdin: phases of the simulation, on the last line."""
    request = requests.filled(json.load(sys.stdin))
    gc.disable()  # as a simulation has it
    runs.prepare()
    for name, made in _DEVICE.items():
        setattr(torch.vgpu, name, made)
    torch.accelerator.current_accelerator = lambda *_: torch.device(devices.NAME)
    trl._get_unique_tensor_key = lambda tensor: (
        tensor.untyped_storage()._cdata,
        tensor.storage_offset(),
        tensor.dtype,
    )
    ours.OffloadedActivations = lambda _: trl.OffloadActivations(use_pin_memory=False)
    ledger, _, _ = runs.run(request, versions(("peft",)), {})
    told = results.describe(ledger, request["gpu_memory_bytes"])
    print("\n" + json.dumps(told["phases"]))  # behind what DeepSpeed prints


_DEVICE: dict[str, Any] = {
    "Stream": devices.Stream,
    "current_stream": lambda *_: devices.streams.current,
    "stream": devices.on_stream,
    "empty_cache": lambda: None,
}

if __name__ == "__main__":
    main()
