"""Linear layers in 4 bits that compute on a CPU: the simulator's storage, with numbers in it."""

from __future__ import annotations

from typing import Any

import torch

from dsgen.engine.simulate import devices, quantized

__all__ = ["PackedLinear", "quantize"]

_ZERO = 8  # the level that stands for 0
_LEVELS = 7.0  # on each side of it


class PackedLinear(quantized.Linear4bit):
    """A frozen linear layer of 16 even levels between plus and minus its largest weight.

    bitsandbytes has other levels and a scale for each 64 weights; how many bytes there are, of which type, and who
    gathers them is the same, and that is what DeepSpeed sees.
    """

    def __init__(self, linear: Any, transposed: bool, dtype: torch.dtype) -> None:
        weight = linear.weight.detach().float()
        weight = weight.t() if transposed else weight
        outputs, inputs = weight.shape
        super().__init__(inputs, outputs, False, dtype)
        scale = float(weight.abs().max()) or 1.0
        level = (weight.flatten() / scale * _LEVELS).round().to(torch.int64) + _ZERO
        level = torch.nn.functional.pad(level, (0, level.numel() % 2), value=_ZERO)
        self.weight.data.copy_((level[0::2] * 16 + level[1::2]).to(torch.uint8).view(-1, 1))
        self.offset.fill_(scale)
        if linear.bias is not None:
            self.bias = torch.nn.Parameter(linear.bias.detach().to(dtype), requires_grad=False)

    def dequantized(self) -> Any:
        """The weight in 16 bits."""
        count = self.out_features * self.in_features
        packed = self.weight.detach().flatten().view(torch.uint8)
        levels = torch.stack((packed >> 4, packed & 15), dim=1).flatten()[:count].float() - _ZERO
        return (levels / _LEVELS * self.offset.float()).to(self.compute_dtype).view(self.out_features, self.in_features)

    def stored_as(self, dtype: torch.dtype) -> Any:
        """The packed weight in that room, byte for byte."""
        stored = super().stored_as(dtype)
        stored.zero_().view(torch.uint8).view(-1)[: self.weight.numel()].copy_(self.weight.detach().view(-1))
        return stored


def quantize(model: Any, dtype: torch.dtype) -> None:
    """Put the layers that transformers would put in 4 bits in 4 bits: every linear one but the output head."""
    from transformers.pytorch_utils import Conv1D
    from transformers.quantizers.base import get_keys_to_not_convert
    from transformers.quantizers.quantizers_utils import should_convert_module

    devices.NAME = "cpu"  # where this process makes what the simulator makes on its virtual GPU
    kept = [*get_keys_to_not_convert(model), *(getattr(model, "_keep_in_fp32_modules", None) or ())]
    for name, module in list(model.named_modules()):
        transposed = isinstance(module, Conv1D)
        if should_convert_module(name, kept) and (transposed or type(module) is torch.nn.Linear):
            model.set_submodule(name, PackedLinear(module, transposed, dtype))
    model.is_loaded_in_4bit = True
    model.config._is_quantized = True
