"""Linear layers with 4-bit weights: a stand-in of bitsandbytes' that takes the memory of the real ones.

Source: bitsandbytes 0.49 to 0.50, functional.py (quantize_4bit, quantize_blockwise, dequantize_4bit), nn/modules.py
(Linear4bit), autograd/_functions.py (MatMul4Bit). From 0.50 on a fused kernel may serve forward up to 1536 tokens
without a 16-bit copy of the weight; here forward makes one, as it does above that and in every earlier release.
"""

from __future__ import annotations

import sys
import types
from importlib.machinery import ModuleSpec
from typing import Any

import torch

from dsgen.engine.simulate import devices

__all__ = ["Linear4bit", "pack", "quantize", "stand_in"]

BLOCK = 64  # weights that share one scale (quantize_4bit: blocksize)
SCALES = 256  # scales that share one scale of their own (double quantization: quantize_blockwise(blocksize=256))
LEVELS = 16  # of a 4-bit type (get_4bit_type), in fp32, for every weight
MAP = 256  # of the 8-bit type of the scales (create_dynamic_map), in fp32, for every weight


class Linear4bit(torch.nn.Linear):  # type: ignore[misc]
    """A linear layer whose weight is two numbers a byte, with scales that `nested` quantizes themselves.

    The scales are attributes of the weight in bitsandbytes; as buffers that are not saved they take the same and are
    found as a part of the model.
    """

    def __init__(self, inputs: int, outputs: int, bias: bool, dtype: torch.dtype, nested: bool = True) -> None:
        torch.nn.Module.__init__(self)
        self.in_features, self.out_features, self.compute_dtype, self.nested = inputs, outputs, dtype, nested
        device = devices.NAME
        elements = inputs * outputs
        packed = torch.empty(((elements + 1) // 2, 1), dtype=torch.uint8, device=device)
        self.weight = torch.nn.Parameter(packed, requires_grad=False)
        _named(self)
        empty = torch.empty(outputs, dtype=dtype, device=device) if bias else None
        self.bias = None if empty is None else torch.nn.Parameter(empty, requires_grad=False)
        scales = -(-elements // BLOCK)
        held: list[tuple[str, tuple[int, ...], torch.dtype]] = [
            ("absmax", (scales,), torch.uint8 if nested else torch.float32),
            ("code", (LEVELS,), torch.float32),
        ]
        if nested:
            held += [
                ("offset", (), torch.float32),
                ("state2_absmax", (-(-scales // SCALES),), torch.float32),
                ("state2_code", (MAP,), torch.float32),
            ]
        for name, size, kind in held:
            self.register_buffer(name, torch.empty(size, dtype=kind, device=device), persistent=False)

    def forward(self, x: Any) -> Any:
        """The product, in the type of the input."""
        bias = None if self.bias is None else self.bias.to(self.compute_dtype)
        return _MatMul4Bit.apply(x.to(self.compute_dtype), self.weight, bias, self).to(x.dtype)

    def dequantized(self) -> Any:
        """The weight in 16 bits; scales that are quantized themselves live in fp32 until it is made."""
        if self.nested:
            scales = torch.empty(self.absmax.numel(), dtype=torch.float32, device=self.absmax.device)
            scales += self.offset
        if devices.streams.program is not None:
            moved = self.weight.numel() * self.weight.element_size()
            moved += self.out_features * self.in_features * self.compute_dtype.itemsize
            devices.streams.program.kernel(devices.streams.current.number, "dequantize_4bit", "stream", moved)
        return torch.empty((self.out_features, self.in_features), dtype=self.compute_dtype, device=self.absmax.device)

    def stored_as(self, dtype: torch.dtype) -> Any:
        """Room for the packed weight as numbers of another type."""
        return torch.empty((-(-self.weight.numel() // dtype.itemsize), 1), dtype=dtype, device=devices.NAME)


class _MatMul4Bit(torch.autograd.Function):  # type: ignore[misc]
    """Forward and backward each make the 16-bit weight anew; what is kept is the packed one, not the input."""

    @staticmethod
    def forward(ctx: Any, x: Any, packed: Any, bias: Any, layer: Any) -> Any:
        out = torch.nn.functional.linear(x, layer.dequantized(), bias)
        ctx.layer, ctx.packed = layer, packed.view(-1, 1)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return torch.matmul(gradients[0], ctx.layer.dequantized().to(gradients[0].dtype)), None, None, None


def _named(layer: Linear4bit) -> None:
    """What peft reads from a weight of bitsandbytes, and the number of elements behind the packed ones."""
    layer.weight.compress_statistics, layer.weight.quant_type = layer.nested, "nf4"
    layer.weight.elements_in_4_bits = layer.in_features * layer.out_features


def quantize(model: Any, dtype: torch.dtype, nested: bool) -> None:
    """Make a model that was built on "meta" what `from_pretrained` with `load_in_4bit` gives: on the GPU, in 4 bits.

    Which layers are replaced is asked from transformers: every linear one but the output head and those that the class
    wants in fp32 (T5's `wo`), and Conv1D. The 16-bit
    weight that exists while one layer is being quantized is left out: one at a time, before there is anything else.
    """
    from transformers.pytorch_utils import Conv1D
    from transformers.quantizers.base import get_keys_to_not_convert
    from transformers.quantizers.quantizers_utils import should_convert_module

    kept = [*get_keys_to_not_convert(model), *(model._keep_in_fp32_modules or ())]
    for name, module in list(model.named_modules()):
        if not should_convert_module(name, kept) or not (isinstance(module, Conv1D) or type(module) is torch.nn.Linear):
            continue
        shape = module.weight.shape
        inputs, outputs = shape if isinstance(module, Conv1D) else reversed(shape)
        model.set_submodule(name, Linear4bit(inputs, outputs, module.bias is not None, dtype, nested))
    made: dict[int, Any] = {}
    for module in model.modules():
        for table in (module._parameters, module._buffers):
            for name, tensor in table.items():
                if tensor is None or tensor.device.type != "meta":
                    continue
                if id(tensor) not in made:  # tied weights stay tied
                    empty = torch.empty_like(tensor, device=devices.NAME)
                    made[id(tensor)] = torch.nn.Parameter(empty) if table is module._parameters else empty
                table[name] = made[id(tensor)]
    model.is_loaded_in_4bit = True
    model.config._is_quantized = True


def pack(model: Any, dtype: torch.dtype) -> None:
    """Store the 4-bit weights as numbers of a floating type (`bnb_4bit_quant_storage`), as many bytes as before.

    DeepSpeed's stage 3 gathers weights of one type together; peft's guide for DeepSpeed asks for the 16-bit type.
    """
    for module in model.modules():
        if isinstance(module, Linear4bit):
            module.weight = torch.nn.Parameter(module.stored_as(dtype), requires_grad=False)
            _named(module)


def stand_in() -> None:
    """Put a package `bitsandbytes` in place that holds the stand-in alone; peft then wraps it as it wraps the real one.

    Before peft is imported: it looks for the package once.
    """
    there = sys.modules.get("bitsandbytes.nn")
    if there is not None and getattr(there, "Linear4bit", None) is Linear4bit:
        return
    package, modules = types.ModuleType("bitsandbytes"), types.ModuleType("bitsandbytes.nn")
    for module in (package, modules):
        module.__spec__ = ModuleSpec(module.__name__, None)
    vars(modules).update(Linear4bit=Linear4bit, Linear8bitLt=type("Linear8bitLt", (torch.nn.Linear,), {}))
    vars(package).update(nn=modules)
    sys.modules.update({"bitsandbytes": package, "bitsandbytes.nn": modules})
