"""What a pass over a model depends on besides buffers: the model, how it is trained, precision, sharding."""

from typing import NamedTuple

from dsgen.families import family_of
from dsgen.memory.events import Step
from dsgen.memory.shares import FP32
from dsgen.memory.trained import wide_adapters
from dsgen.shapes.profiles import Model, Training

__all__ = ["Run"]


class Run(NamedTuple):
    """What a pass depends on besides buffers.

    Attributes:
        model: The architecture.
        training: How it is trained.
        seq_len: Tokens of a sequence.
        precision: bf16, fp16 or fp32.
        tp: AutoTP degree.
        checkpointing: Each block runs forward again before its backward.
        told: Stage 3 gathers, so moments tell where they are.
        single: The micro-batch is one sequence, and something copies less of it than of several.
        lingers, returns: As in a step.
    """

    model: Model
    training: Training
    seq_len: int
    precision: str
    tp: int
    checkpointing: bool
    told: bool
    single: bool = False
    lingers: bool = False
    returns: bool = False

    @property
    def reentrant(self) -> bool:
        """Blocks run again by torch's reentrant checkpointing; behind an encoder it is counted as the other kind."""
        return self.checkpointing and self.training.reentrant is True and not self.model.encoder_layers

    @property
    def offloads(self) -> bool:
        """What autograd keeps waits in the node's RAM."""
        return self.checkpointing and self.training.activation_offloading

    @property
    def size(self) -> int:
        """Bytes of a weight."""
        return FP32 if self.precision == "fp32" else 2

    @property
    def wide(self) -> bool:
        """Stage 3 has adapters in fp32 and weights in 16 bits; those of a base in 4 bits were cast before."""
        return self.told and wide_adapters(self.training) and self.size < FP32

    @property
    def reads(self) -> bool:
        """FlashAttention asks in which type it may compute, as it does in fp32: GPT-J's queries always are."""
        wide = self.size == FP32 or family_of(self.model).wide_queries
        return self.told and wide and self.training.attention == "flash" and self.training.method != "qlora"

    @property
    def trains(self) -> tuple[str, int, tuple[str, ...], int, bool]:
        """Method, rank and targets of the adapters, AutoTP degree, whether embedding and head are trained beside."""
        training = self.training
        return training.method, training.lora_rank, training.lora_targets, self.tp, training.lora_train_embeddings

    def step(self, free: bool = False) -> Step:
        """What the order of use depends on; what AutoTP has split may be `free`, and not cut again."""
        chunked = self.training.chunked_loss
        ways = self.checkpointing, chunked, self.wide, self.reads, free, self.lingers
        return Step(self.model, *self.trains, *ways, self.reentrant, self.returns)
