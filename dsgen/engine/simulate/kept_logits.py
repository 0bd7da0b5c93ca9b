"""The logits of an evaluation as the Trainer keeps them for compute_metrics: those of all ranks, in one tensor."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["behind", "gathered"]


def gathered(logits: Any) -> Any:
    """Those of all ranks: `_gpu_gather` of accelerate 1.15, which the Trainer of transformers 5.23 calls."""
    ranks = torch.distributed.get_world_size()
    if ranks == 1:
        return logits
    own = logits.contiguous()
    everywhere = own.new_empty(ranks * own.numel())
    torch.distributed.all_gather_into_tensor(everywhere, own)
    return everywhere.view(-1, *own.shape[1:])


def behind(kept: Any, logits: Any) -> Any:
    """What is kept with another batch: `EvalLoopContainer.add` of transformers 5.23 makes one tensor of both."""
    return logits if kept is None else torch.cat((kept, logits))
