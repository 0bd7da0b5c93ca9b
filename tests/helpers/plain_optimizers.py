"""The optimizers of a training loop without DeepSpeed: torch's own, and what torch has none of.

- Adam, AdamW, SGD, Adagrad: torch's. DeepSpeed's "Adam" is AdamW, for its `adam_w_mode` is on (runtime/engine.py,
  `_configure_basic_optimizer`).
- Lion: its paper's formula (arXiv 2302.06675, algorithm 2).
- Muon: the orthogonalisation is DeepSpeed's function, which has another iteration than torch's; all about it is here.
- AdamW8bit: bitsandbytes' own class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from dsgen.engine.proof import cpu_stand_ins

__all__ = ["Lion", "Muon", "brought", "make"]

MOMENTUM = 0.95  # DeepSpeed's default for Muon
# DeepSpeed's for the parameters beside Muon's, where the config says none; its AdamW alone has (0.9, 0.999) and 1e-8
# (runtime/zero/muon/original_muon.py, MuonWithAuxAdam).
AUXILIARY = {"betas": (0.9, 0.95), "eps": 1e-10}
NO_MATRIX = ("embed", "lm_head")  # names of what DeepSpeed gives to AdamW (deepspeed/__init__.py, set_optimizer_flags)


class Lion(torch.optim.Optimizer):
    """One moment, and steps of one size."""

    def __init__(self, masters: Iterable[Any], lr: float, betas: tuple[float, float], weight_decay: float) -> None:
        super().__init__(masters, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """As the paper has it."""
        for group in self.param_groups:
            (first, second), rate = group["betas"], group["lr"]
            for one in group["params"]:
                moment = self.state[one].setdefault("moment", torch.zeros_like(one))
                one.mul_(1 - rate * group["weight_decay"])
                one.sub_((first * moment + (1 - first) * one.grad).sign(), alpha=rate)
                moment.mul_(second).add_(one.grad, alpha=1 - second)


class Muon(torch.optim.Optimizer):
    """Muon for the matrices, AdamW for the rest; a gradient becomes its update before the norm of all is taken."""

    def __init__(self, named: Mapping[str, Any], lr: float, weight_decay: float) -> None:
        self.matrices = [one for name, one in named.items() if one.ndim >= 2 and not any(n in name for n in NO_MATRIX)]
        kept = {id(one) for one in self.matrices}
        others = [one for one in named.values() if id(one) not in kept]
        super().__init__([{"params": self.matrices}, {"params": others}], {"lr": lr, "weight_decay": weight_decay})
        self._adam = torch.optim.AdamW(others, lr=lr, weight_decay=weight_decay, **AUXILIARY)

    @torch.no_grad()
    def before_clipping(self) -> None:
        """Orthogonalise: DeepSpeed takes the norm over the updates (runtime/zero/stage3.py:1829)."""
        from deepspeed.runtime.zero.muon.original_muon import muon_update

        for one in self.matrices:
            moment = self.state[one].setdefault("moment", torch.zeros_like(one))
            one.grad = muon_update(one.grad, moment, beta=MOMENTUM)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Both halves."""
        group, others = self.param_groups
        for one in self.matrices:
            one.mul_(1 - group["lr"] * group["weight_decay"])
            one.sub_(one.grad, alpha=group["lr"])
        self._adam.param_groups[0]["lr"] = others["lr"]
        self._adam.step()


def brought(name: str, rate: float) -> Callable[[list[Any]], Any]:
    """The optimizer that a program makes itself: AdamW or AdamW8bit."""
    if name == "AdamW":
        return lambda masters: torch.optim.AdamW(masters, lr=rate)
    import bitsandbytes

    return lambda masters: getattr(bitsandbytes.optim, name)(masters, lr=rate)


def make(config: Mapping[str, Any], named: Mapping[str, Any]) -> Any:
    """The optimizer of a config on masters by name."""
    kind, said = config["optimizer"]["type"], dict(config["optimizer"]["params"])
    masters = list(named.values())
    if kind == "Muon":
        cpu_stand_ins.leave_uncompiled(dict(config))
        return Muon(named, **said)
    if kind == "Lion":
        return Lion(masters, **said)
    known = {"Adam": torch.optim.AdamW, "AdamW": torch.optim.AdamW, "SGD": torch.optim.SGD,
             "Adagrad": torch.optim.Adagrad}  # fmt: skip
    return known[kind](masters, **said)
