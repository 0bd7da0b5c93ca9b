"""The assembled whole that a plan is made for."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import attrs

from dsgen.deepspeed.keys import lookup
from dsgen.shapes.layers import Layer, Provenance
from dsgen.shapes.pins import Pin
from dsgen.shapes.profiles import Hardware, Model, Network, Training
from dsgen.shapes.value import Value

__all__ = ["DEFAULT_SEQ_LEN", "MASTER", "STATES", "Job", "Unsure", "narrowed", "unsure"]

DEFAULT_SEQ_LEN = (
    4096  # tokens when nobody says how long: the context of Llama 2, long enough for most fine-tuning data
)
MASTER, STATES = "master", "states"  # what keys of DeepSpeed's keep in 16 bits: with master weights the states, or not


def narrowed(value: Callable[[str], Any]) -> str:
    """What keys of DeepSpeed's ask to be kept in 16 bits.

    Args:
        value: The value of a key by its path.

    Returns:
        MASTER for the master weights and their gradients, STATES where the optimizer's states are among them, else "".
    """
    for dtype in ("bf16", "fp16"):
        if value(f"{dtype}.{dtype}_master_weights_and_grads") is True and value(f"{dtype}.enabled") is not False:
            # Moments of the CPU's Adam have its weights' type where it is told so (ops/adam/cpu_adam.py).
            told = value("optimizer.params.fp32_optimizer_states") is False
            states = dtype == "bf16" and value("bf16.bf16_optimizer_states") is True
            return STATES if states or told else MASTER
    return ""


_FP32 = ("fp32", "float32", "float", "torch.float32")  # as DeepSpeed spells it (runtime/config.py, DtypeEnum)
_QUANTIZED = ("weights", "nontrainable_weights")


class Unsure(NamedTuple):
    """What keys of DeepSpeed's ask for that is not counted, but may only change so much (dsgen.memory.widened).

    Attributes:
        gradients: Gradients are summed in fp32 though weights are in 16 bits.
        reduced: They travel in fp32.
        kept: Share of an offloaded optimizer that stays on the GPU.
        fetched: Stage 3 gathers weights in 8 bits.
        sent: It sends gradients in 4 bits.
        cast: torch.autocast computes in 16 bits what weights in fp32 give.
    """

    gradients: bool = False
    reduced: bool = False
    kept: float = 0.0
    fetched: bool = False
    sent: bool = False
    cast: bool = False


def unsure(value: Callable[[str], Any]) -> Unsure:
    """What keys of DeepSpeed's ask for that is not counted; `value` is the value of a key by its path."""
    ratio = value("zero_optimization.offload_optimizer.ratio")
    number = isinstance(ratio, (int, float)) and not isinstance(ratio, bool)
    return Unsure(
        gradients=_wide(value("data_types.grad_accum_dtype")),
        reduced=_wide(value("communication_data_type")),
        kept=min(1.0, max(0.0, 1.0 - ratio)) if number else 0.0,
        fetched=any(value(f"zero_optimization.zero_quantized_{name}") is True for name in _QUANTIZED),
        sent=value("zero_optimization.zero_quantized_gradients") is True,
        cast=value("torch_autocast.enabled") is True,
    )


def _wide(dtype: Any) -> bool:
    """Whether a type that is said is fp32."""
    return isinstance(dtype, str) and dtype.lower() in _FP32


@attrs.frozen(kw_only=True, repr=False, eq=False)
class Job(Value):
    """The assembled whole: what is there, what is wanted, and what was pinned.

    `narrow` is what its keys keep in 16 bits: see `narrowed`; `unsure` what they ask for that is not counted. `foreach`
    is whether AdamW is torch's foreach one, of a config or of the program: a plan's is DeepSpeed's. `whole` is whether
    the layers say every key of the config, so that a plan adds none (dsgen.jobs.exact). `weights` is where the model's
    lie, if it was named so: a repository of the hub, or a folder.
    """

    hardware: Hardware
    model: Model
    network: Network
    training: Training
    nodes: int
    gpus_per_node: int
    names: Mapping[str, str] = attrs.field(eq=False)
    pins: tuple[Pin, ...]
    deepspeed: Mapping[str, Any] = attrs.field(eq=False)
    deepspeed_layers: tuple[Layer, ...] = attrs.field(eq=False, repr=False)
    provenance: Provenance = attrs.field(eq=False, repr=False)
    version: str
    warnings: tuple[str, ...] = ()
    whole: bool = False
    weights: str = attrs.field(default="", eq=False)
    foreach: bool = False
    narrow: str = attrs.field()
    unsure: Unsure = attrs.field()

    @narrow.default
    def _narrowed(self) -> str:
        return narrowed(lambda path: lookup(self.deepspeed, path)[1])

    @unsure.default
    def _unsure(self) -> Unsure:
        return unsure(lambda path: lookup(self.deepspeed, path)[1])

    @property
    def seq_len(self) -> int:
        """Tokens per sequence: as wished, else 4096 or the model's longest."""
        return self.training.seq_len or min(DEFAULT_SEQ_LEN, self.model.max_positions)

    @property
    def target_len(self) -> int:
        """Tokens per target sequence; those of the sequence itself where the model is a decoder alone."""
        return self.training.target_len or self.seq_len

    @property
    def tokens(self) -> str:
        """Tokens per sequence in words, those of its target where it has others, and of one in the mean."""
        behind = f" to {self.target_len}" if self.target_len != self.seq_len else ""
        row = "samples packed" if self.training.packing else "samples end to end" if self.training.padding_free else ""
        mean = f"{self.training.mean_len} in the mean" if self.training.mean_len else ""
        mean = ", ".join([said for said in (row, mean) if said])
        mean = f" ({mean})" if mean else ""
        return f"{self.seq_len}{behind} token{'s' if max(self.seq_len, self.target_len) > 1 else ''}{mean}"

    @property
    def world(self) -> int:
        """GPUs in all."""
        return self.nodes * self.gpus_per_node

    @property
    def undivided_batch(self) -> int | None:
        """A wished global batch that the GPUs cannot share, where no pin says how they are to; None without one."""
        total = self.training.global_batch
        told = any(pin.field in ("tp", "train_batch") for pin in self.pins)
        return None if total is None or total % self.world == 0 or told else total
