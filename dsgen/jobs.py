"""The assembled whole that a plan is made for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from dsgen.layers import Layer, Provenance
from dsgen.pins import Pin
from dsgen.profiles import Hardware, Model, Network, Training

__all__ = ["DEFAULT_SEQ_LEN", "Job"]

DEFAULT_SEQ_LEN = (
    4096  # tokens when nobody says how long: the context of Llama 2, long enough for most fine-tuning data
)


@attrs.frozen(kw_only=True)
class Job:
    """The assembled whole: what is there, what is wanted, and what was pinned."""

    hardware: Hardware
    model: Model
    network: Network
    training: Training
    nodes: int
    gpus_per_node: int
    names: Mapping[str, str] = attrs.field(eq=False)
    pins: tuple[Pin, ...]
    deepspeed: Mapping[str, Any] = attrs.field(eq=False)
    deepspeed_layers: tuple[Layer, ...] = attrs.field(eq=False)
    provenance: Provenance = attrs.field(eq=False)
    version: str
    warnings: tuple[str, ...] = ()

    @property
    def seq_len(self) -> int:
        """Tokens per sequence: as wished, else 4096 or the model's longest."""
        return self.training.seq_len or min(DEFAULT_SEQ_LEN, self.model.max_positions)

    @property
    def world(self) -> int:
        """GPUs in all."""
        return self.nodes * self.gpus_per_node
