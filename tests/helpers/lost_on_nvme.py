"""A child process: which gradients an engine with its optimizer on a drive reads back, and to where.

Arguments: a folder, a config.json as text, and the size of a sub-group in elements. Prints JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from dsgen.engine.serving import ask_cpu_once

LENGTH = 1 << 18  # elements of fp32: 1 MiB
ODD = 64  # elements: 256 bytes


def takes_any_address(folder: Path) -> bool:
    """Whether the drive reads to an address that is no multiple of 512 bytes."""
    import torch
    from deepspeed.ops.op_builder import AsyncIOBuilder

    handle = AsyncIOBuilder().load().aio_handle(1 << 20, 8, False, True, 1)
    buffer = handle.new_cpu_locked_tensor(LENGTH + ODD, torch.zeros(1))
    whole, odd = buffer.narrow(0, 0, LENGTH), buffer.narrow(0, ODD, LENGTH)
    whole.fill_(1.0)
    assert handle.sync_pwrite(whole, str(folder / "asked"), 0) == 1
    buffer.zero_()
    assert handle.sync_pread(odd, str(folder / "asked"), 0) == 1  # it says so in either case
    return bool((odd == 1.0).all())


def main() -> None:
    """One step."""
    folder, said, sub_group = Path(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3])
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", LOCAL_SIZE="1", MASTER_ADDR="127.0.0.1",
                      MASTER_PORT="1", DS_ACCELERATOR="cpu", CUDA_VISIBLE_DEVICES="")  # fmt: skip
    out = os.dup(1)
    os.dup2(2, 1)  # whatever else is printed goes to stderr
    import deepspeed
    import torch
    import transformers
    from deepspeed.runtime.swap_tensor.partitioned_optimizer_swapper import PartitionedOptimizerSwapper as Swapper

    ask_cpu_once()
    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo", init_method=f"file://{folder / 'store'}", rank=0, world_size=1)
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**said))
    zero = {"stage": 3, "sub_group_size": sub_group,
            "offload_optimizer": {"device": "nvme", "nvme_path": str(folder)}}  # fmt: skip
    config = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": zero,
              "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}  # fmt: skip
    engine = deepspeed.initialize(model=model, model_parameters=list(model.parameters()), config=config)[0]
    told: list[tuple[int, bool]] = []
    read = Swapper._swap_in_pinned_gradients

    def watched(self: Any, aio_handle: Any, parameter: Any, gradient_tensor: Any) -> None:
        gradient_tensor.fill_(float("nan"))
        read(self, aio_handle, parameter, gradient_tensor)
        told.extend(
            (one.offset, not bool(gradient_tensor.narrow(0, one.offset, one.length).isnan().any()))
            for one in self.swap_params_info[self.parameter_id(parameter)].swapped_gradients.values()
        )

    Swapper._swap_in_pinned_gradients = watched
    tokens = torch.randint(said["vocab_size"], (1, 16))
    engine.backward(engine(input_ids=tokens, labels=tokens).loss)
    engine.step()
    os.write(out, json.dumps({"any": takes_any_address(folder), "read": told}).encode())


if __name__ == "__main__":
    main()
