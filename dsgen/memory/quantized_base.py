"""A base in 4 bits, as bitsandbytes packs it: bytes of weights and scales, and who makes fp32 of all else.

Source: bitsandbytes 0.50.2, functional.py (quantize_4bit, quantize_blockwise): an element takes 4 bits, and 64 of them
have a scale. Double quantization, which `BitsAndBytesConfig` leaves off where nobody asks (bnb_4bit_use_double_quant),
keeps scales in 8 bits, and 256 of those have one in fp32; without it each scale is fp32. FP4 takes what NF4 takes.
"""

from typing import Any, NamedTuple

from dsgen.families.tape.products import QUANTIZED_BLOCK
from dsgen.memory.shares import FP32

__all__ = ["BITS", "Scales", "lifts", "scale_bits"]

BITS = 4  # of an element, without its scale
_NESTED = 256  # scales that share one
_BYTE = 8  # bits
_WHOLE = 3  # the stage that cuts the weights


class Scales(NamedTuple):
    """The scales of packed weights; numbers of two types, of which none is a parameter.

    Attributes:
        small, wide: Those in 8 bits, and those in fp32.
    """

    small: int
    wide: int

    @classmethod
    def of(cls, training: Any, elements: int) -> "Scales":
        """Those of some packed elements, by `double_quantization` of a training."""
        scales = elements // QUANTIZED_BLOCK
        return cls(scales, scales // _NESTED) if training.double_quantization else cls(0, scales)

    @property
    def numel(self) -> int:
        """How many there are."""
        return self.small + self.wide

    @property
    def size(self) -> int:
        """Bytes of all."""
        return self.small + FP32 * self.wide


def scale_bits(training: Any) -> float:
    """Bits an element takes for its scales: 0.127, or 0.5 without double quantization."""
    if training.double_quantization:
        return (_BYTE + FP32 * _BYTE / _NESTED) / QUANTIZED_BLOCK
    return FP32 * _BYTE / QUANTIZED_BLOCK


def lifts(training: Any, stage: int) -> bool:
    """Whether the program makes fp32 of what is not in 4 bits, which initialize makes 16-bit again.

    peft's prepare_model_for_kbit_training does. dsgen's own code calls it, and Axolotl where stage 3 does not run;
    LLaMA-Factory, ms-swift and, since 0.27, TRL's SFTTrainer do not.
    """
    asked = training.kbit_fp32
    return training.method == "qlora" and (asked == "always" or (asked == "below-3" and stage < _WHOLE))
