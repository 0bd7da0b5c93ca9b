"""bitsandbytes' AdamW with states in 8 bits: a stand-in that takes the memory of the real one, and its kernels' time.

A tensor that is updated gets two states of a byte an element, and an fp32 scale for each block of them; a small one has
states in fp32. Two tables by which states are read are shared by all (bitsandbytes 0.50.2, optim/optimizer.py:
Optimizer2State.init_state and update_step). The kernels update in place (csrc/kernels.cu), and the host waits for each.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from dsgen.engine.simulate import devices

__all__ = ["NAME", "AdamW8bit"]

NAME = "AdamW8bit"
_SMALL = 4096  # elements below which states are fp32 (its min_8bit_size)
_BLOCK = 256  # elements that share a scale
_TABLE = 256  # fp32 values of a table


class AdamW8bit(torch.optim.Optimizer):  # type: ignore[misc]
    """The optimizer, as DeepSpeed is given it."""

    def __init__(self, parameters: Iterable[Any], lr: float = 1e-3) -> None:
        super().__init__(parameters, {"lr": lr})
        self.name2qmap = {"dynamic": table(), "udynamic": table()}  # in RAM until there is a state

    def step(self, closure: Any = None) -> None:
        """One step: every tensor with a gradient, one after another."""
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        self._update(parameter)

    def _update(self, parameter: Any) -> None:
        state = self.state[parameter]
        if not state:
            self._make(parameter, state)
        streams = devices.streams
        if streams.program is not None:
            read = parameter.grad.numel() * parameter.grad.element_size()
            both = sum(state[name].numel() * state[name].element_size() for name in ("state1", "state2"))
            moved = read + 2 * (parameter.numel() * parameter.element_size() + both)
            streams.program.kernel(streams.current.number, "adamw_8bit", "adam", moved)
            streams.program.add("sync_device")

    def _make(self, parameter: Any, state: dict[str, Any]) -> None:
        small = parameter.numel() < _SMALL
        for name in ("state1", "state2"):
            state[name] = torch.zeros_like(parameter, dtype=torch.float32 if small else torch.uint8)
        if small:
            return
        for number, name in enumerate(self.name2qmap, 1):
            blocks = -(-parameter.numel() // _BLOCK)
            self.name2qmap[name] = state[f"qmap{number}"] = moved(self.name2qmap[name], parameter.device)
            state[f"absmax{number}"] = torch.zeros(blocks, dtype=torch.float32, device=parameter.device)


def table() -> Any:
    """One of the two by which states are read."""
    return torch.empty(_TABLE, dtype=torch.float32)


def moved(numbers: Any, device: Any) -> Any:
    """A table where the states are."""
    return numbers.to(device)
