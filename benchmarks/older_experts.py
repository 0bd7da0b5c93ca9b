"""What experts cost that transformers runs one after another, looked at in its real classes, without a GPU.

    python benchmarks/older_experts.py                            # in an environment with transformers before 5
    torchrun --nproc_per_node RANKS benchmarks/older_experts.py   # what ZeRO-3 takes of the host for a gathered tensor

The first prints, of each class, the operators and views that one more expert dispatches, forward and backward, trained
and frozen (OlderExperts of dsgen.families.family, which counts what the host waits for once more), and the bytes that a
block keeps for backward. The second gathers leaf modules of 24 and 96 tensors with the real DeepSpeed over gloo, and
prints what a tensor more takes of this thread, and less what it takes at stage 1 (GATHERED_TENSOR_SECONDS of
dsgen.kernels; host_costs.py says how this host compares). With OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

VIEWS = {"_unsafe_view", "alias", "as_strided", "detach", "expand", "permute", "select", "slice", "split", "squeeze",
         "t", "transpose", "unbind", "unsqueeze", "view"}  # fmt: skip
# Module below transformers.models -> config, class of the block, how the config calls width and number of experts.
CLASSES = {
    "mixtral": ("MixtralConfig", "MixtralSparseMoeBlock", "intermediate_size", "num_local_experts"),
    "qwen2_moe": ("Qwen2MoeConfig", "Qwen2MoeSparseMoeBlock", "moe_intermediate_size", "num_experts"),
    "qwen3_moe": ("Qwen3MoeConfig", "Qwen3MoeSparseMoeBlock", "moe_intermediate_size", "num_experts"),
    "deepseek_v3": ("DeepseekV3Config", "DeepseekV3MoE", "moe_intermediate_size", "n_routed_experts"),
    "gpt_oss": ("GptOssConfig", "GptOssMLP", "intermediate_size", "num_local_experts"),
    "granitemoe": ("GraniteMoeConfig", "GraniteMoeMoE", "intermediate_size", "num_local_experts"),
}
TOKENS, HIDDEN, WIDTH, PICKED = 512, 64, 32, 2
FEW, MANY = 8, 16  # experts
STEPS, BLOCKS, EXPERTS, LAYERS = 6, 4, (8, 32), 3  # of the second: LAYERS tensors an expert, EXPERTS a leaf module


class Counted(TorchDispatchMode):
    """How many operators of each kind are dispatched."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.views = 0, 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        seen = function.overloadpacket.__name__ in VIEWS
        self.views += seen
        self.calls += not seen
        return function(*args, **(kwargs or {}))


def block(name: str, experts: int, trained: bool) -> nn.Module:
    """A small block of a class, in 16 bits."""
    config, kind, width, number = CLASSES[name]
    groups = {"n_group": 1, "topk_group": 1} if name == "deepseek_v3" else {}
    sizes = {"hidden_size": HIDDEN, width: WIDTH, number: experts, "num_experts_per_tok": PICKED, **groups}
    module = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
    made: nn.Module = getattr(module, kind)(
        getattr(importlib.import_module("transformers"), config)(**sizes)
    ).bfloat16()
    for weight in made.parameters():
        nn.init.normal_(weight, std=0.02)
        weight.requires_grad_(trained)
    return made.train()


def dispatched(name: str, experts: int, trained: bool) -> list[int]:
    """Operators and views of a forward, and of its backward."""
    made, tokens = block(name, experts, trained), torch.randn(1, TOKENS, HIDDEN, dtype=torch.bfloat16)
    tokens.requires_grad_(True)
    with Counted() as ahead:
        out = made(tokens)
    out = out[0] if isinstance(out, tuple) else out
    gradient = torch.ones_like(out)
    with Counted() as back:
        out.backward(gradient)
    return [ahead.calls, ahead.views, back.calls, back.views]


def kept(name: str, trained: bool) -> int:
    """Bytes that a block keeps for backward, beside its weights."""
    made = block(name, FEW, trained)
    weights = {one.untyped_storage().data_ptr() for one in made.parameters()}
    held: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        held[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    tokens = torch.randn(1, TOKENS, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        made(tokens)
    return sum(one.untyped_storage().nbytes() for place, one in held.items() if place not in weights)


class Expert(nn.Module):
    """Three linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16, bias=False) for _ in range(LAYERS))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Gate and up, and down."""
        gate, up, down = self.layers
        return down(gate(tokens) * up(tokens))  # type: ignore[no-any-return]


class Experts(nn.Module):
    """Experts one after another."""

    def __init__(self, experts: int) -> None:
        super().__init__()
        self.experts = nn.ModuleList(Expert() for _ in range(experts))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Their sum."""
        for expert in self.experts:
            tokens = tokens + expert(tokens)
        return tokens


def passed(experts: int, stage: int, leaf: bool) -> tuple[float, float]:
    """Seconds of this thread for a forward and for a backward, the least of some."""
    deepspeed = importlib.import_module("deepspeed")
    zero: dict[str, Any] = {"stage": stage, "reduce_bucket_size": 1_000_000}
    if stage == 3:
        zero |= {"stage3_param_persistence_threshold": 0, "stage3_prefetch_bucket_size": 0}
        zero |= {"leaf_module": {"classes": [f"{__name__}.Experts"]}} if leaf else {}
    optimizer = {"type": "Adam", "params": {"torch_adam": True}}
    config = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "optimizer": optimizer,
              "zero_optimization": zero}  # fmt: skip
    model = nn.Sequential(*(Experts(experts) for _ in range(BLOCKS)))
    engine = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]
    tokens = torch.randn(1, 16, dtype=torch.bfloat16, requires_grad=True)
    times = []
    for _ in range(STEPS):
        start = time.thread_time()
        loss = engine(tokens).sum()
        middle = time.thread_time()
        engine.backward(loss)
        times.append((middle - start, time.thread_time() - middle))
        engine.step()
    ahead, back = zip(*times[2:], strict=True)
    return min(ahead), min(back)


def each(stage: int, leaf: bool) -> list[float]:
    """Microseconds of a tensor more, forward and backward."""
    few, many = (passed(experts, stage, leaf) for experts in EXPERTS)
    tensors = BLOCKS * LAYERS * (EXPERTS[1] - EXPERTS[0])
    return [1e6 * (more - less) / tensors for less, more in zip(few, many, strict=True)]


@contextmanager
def gloo() -> Iterator[int]:
    """The process group of torchrun; this rank."""
    os.environ["DS_ACCELERATOR"] = "cpu"
    importlib.import_module("deepspeed").init_distributed("gloo")
    yield torch.distributed.get_rank()
    torch.distributed.destroy_process_group()


def main() -> None:
    """Print either, by who started it."""
    if "LOCAL_RANK" in os.environ:
        with gloo() as rank:
            rows = {"alone (stage 1)": each(1, False), "in a leaf module": each(3, True), "by itself": each(3, False)}
            base = rows["alone (stage 1)"]
            for name, row in rows.items() if rank == 0 else ():
                less = [] if row is base else [f"{one - other:.0f}" for one, other in zip(row, base, strict=True)]
                print(
                    f"{name}: {row[0]:.0f} us forward, {row[1]:.0f} backward; less stage 1 {' and '.join(less) or '-'}"
                )
        return
    print(f"transformers {importlib.import_module('transformers').__version__}, torch {torch.__version__}")
    for name in CLASSES:
        for trained in (True, False):
            pairs = zip(dispatched(name, FEW, trained), dispatched(name, MANY, trained), strict=True)
            counts = [(many - few) / (MANY - FEW) for few, many in pairs]
            word = "trained" if trained else "frozen"
            print(f"{name} {word}: forward {counts[:2]}, backward {counts[2:]}; keeps {kept(name, trained):,} bytes")


if __name__ == "__main__":
    main()
