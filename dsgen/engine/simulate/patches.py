"""What must be changed in torch and DeepSpeed so that they run on a device that holds nothing, each change by name."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch

from dsgen.engine.simulate import ops, shortcuts

__all__ = ["FUSED_ON_CUDA", "no_input_check", "patch_deepspeed", "patch_torch"]


def patch_torch(pin: Callable[[Any, Any], Any], is_pinned: Callable[[Any], bool]) -> None:
    """Change torch; once a process, before DeepSpeed is imported: zero.Init keeps torch's factories from then on.

    Args:
        pin: Makes a page-locked twin of a host tensor.
        is_pinned: Whether a host tensor is page-locked.
    """
    _nothing_is_compiled()
    _tensor_on_the_device()
    _pinning(pin, is_pinned)
    _streams_are_done()
    _values_are_zero()
    _fused_as_on_cuda()
    _grouped_as_on_cuda()
    _foreach_as_on_cuda()
    _moves_keep_the_parameter()
    _parameters_are_copied()


def patch_deepspeed() -> None:
    """Change DeepSpeed; once a process."""
    _operators_stand_in()
    _ranks_agree()
    _meshes_are_real()
    _shards_are_even()
    shortcuts.apply()


def _operators_stand_in() -> None:
    """Modules of DeepSpeed bind the builders of compiled operators at import; they get the stand-ins instead."""
    from deepspeed.ops.op_builder.builder import OpBuilder

    modules = [module for name, module in sys.modules.items() if name.startswith("deepspeed.") and module is not None]
    for module in modules:
        for name, value in list(vars(module).items()):
            bound = name.endswith("Builder") and isinstance(value, type) and issubclass(value, OpBuilder)
            if bound and name not in ("OpBuilder", "CUDAOpBuilder", "CPUOpBuilder", "TorchCPUOpBuilder"):
                setattr(module, name, functools.partial(ops.Builder, name))


def _nothing_is_compiled() -> None:
    """DeepSpeed's Muon calls `torch.compile` at import, which loads a compiler that nothing here uses (1.6 s)."""

    def compile_(model: Any = None, **_: Any) -> Any:
        return model if model is not None else (lambda function: function)

    torch.compile = compile_


def _tensor_on_the_device() -> None:
    """`torch.tensor(values, device=...)` copies real values to the device, which has no memory: make it empty."""
    original = torch.tensor

    def tensor(data: Any, *args: Any, device: Any = None, **kwargs: Any) -> Any:
        made = original(data, *args, **kwargs)
        if device is None or torch.device(device).type == "cpu":
            return made
        return torch.empty(made.shape, dtype=made.dtype, device=device, requires_grad=made.requires_grad)

    torch.tensor = tensor


def _pinning(pin: Callable[[Any, Any], Any], is_pinned: Callable[[Any], bool]) -> None:
    """Page-locking needs a CUDA context: a fake tensor of the same size is marked as page-locked instead."""

    def pin_memory(self: Any, device: Any = None) -> Any:
        return self if is_pinned(self) else pin(self, self.shape)

    torch.Tensor.pin_memory = pin_memory
    torch.Tensor.is_pinned = lambda self, device=None: is_pinned(self)


def _streams_are_done() -> None:
    """`record_stream` delays reuse until another stream's work is done; here all work is done at once."""
    torch.Tensor.record_stream = lambda self, stream: None


def _values_are_zero() -> None:
    """A fake tensor has no values: `.item()` gives zero, so no gradient overflows and no norm is clipped."""
    from torch._subclasses import fake_impls

    def local_scalar(mode: Any, func: Any, argument: Any) -> Any:
        if argument.dtype == torch.bool:
            return False
        return 0.0 if argument.dtype.is_floating_point else 0

    fake_impls.op_implementations_dict[torch.ops.aten._local_scalar_dense.default] = local_scalar


# Operators that torch takes apart where a device has no kernel of its own; CUDA has one, which makes no temporaries.
FUSED_ON_CUDA = ("silu_backward", "mish_backward")
_registration = torch.library.Library("aten", "IMPL")  # a registration lives as long as this object


def _fused_as_on_cuda() -> None:
    """Give the device the kernels that CUDA has; fake tensors never run them."""

    def never(*_: Any) -> Any:
        raise AssertionError("a fake tensor has run a kernel")

    for name in FUSED_ON_CUDA:
        _registration.impl(name, never, "PrivateUse1")


def _grouped_as_on_cuda() -> None:
    """CUDA multiplies the groups of experts in fp16 and fp32 too, one after the other; torch's shapes know bf16 only.

    Source: torch/include/ATen/native/GroupedMMUtils.h, _grouped_mm_validate_inputs and _grouped_mm_fallback, which
    writes every product into its part of one output.
    """
    from torch._subclasses import fake_impls

    def grouped(mode: Any, func: Any, one: Any, other: Any, *args: Any, **kwargs: Any) -> Any:
        if one.dtype not in (torch.float16, torch.float32) or other.dtype != one.dtype:
            return NotImplemented
        with mode:
            twins = [
                torch.empty_strided(given.shape, given.stride(), dtype=torch.bfloat16, device=given.device)
                for given in (one, other)
            ]
            made = func(*twins, *args, **kwargs)
            return torch.empty_strided(made.shape, made.stride(), dtype=one.dtype, device=one.device)

    fake_impls.op_implementations_dict[torch.ops.aten._grouped_mm.default] = grouped


def _foreach_as_on_cuda() -> None:
    """torch's optimizers update all tensors of a group at once on CUDA, but only those of a type that they know."""
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.optim import optimizer
    from torch.utils import _foreach_utils

    for module in (optimizer, _foreach_utils):
        module._foreach_supported_types.append(FakeTensor)


def _moves_keep_the_parameter() -> None:
    """A parameter stays the same object when its data goes to another device; between fake devices torch refuses that.

    `module.to(device)` swaps the content of two fake tensors, but not of one that anything refers to weakly, which is
    meant for real ones; and setting `parameter.data` needs one type of tensor on both sides.
    """
    from torch._subclasses.fake_tensor import FakeTensor

    plain = torch.Tensor.data

    def swap_tensors(one: Any, other: Any) -> None:
        torch._C._swap_tensor_impl(one, other)
        before = dict(one.__dict__)
        one.__dict__.update(other.__dict__)
        other.__dict__.update(before)

    def set_data(self: Any, value: Any) -> None:
        if value.device == self.device:
            plain.__set__(self, value)
        else:
            swap_tensors(self, torch.nn.Parameter(value.detach(), requires_grad=self.requires_grad))

    torch.utils.swap_tensors = swap_tensors
    FakeTensor.data = property(plain.__get__, set_data)


def _parameters_are_copied() -> None:
    """`copy.deepcopy` of a parameter is a clone of its data (torch/nn/parameter.py), of a fake one as of a real one."""
    from torch._subclasses.fake_tensor import FakeTensor

    plain = torch.Tensor.__deepcopy__

    def deepcopy(self: Any, memo: dict[int, Any]) -> Any:
        if not isinstance(self, torch.nn.Parameter):
            return plain(self, memo)
        if id(self) not in memo:
            memo[id(self)] = torch.nn.Parameter(self.data.clone(), self.requires_grad)
        return memo[id(self)]

    FakeTensor.__deepcopy__ = deepcopy


def _ranks_agree() -> None:
    """Ranks other than 0 compare their trace with rank 0's, which a world of one process does not have."""
    from deepspeed.runtime.zero import partitioned_param_coordinator

    partitioned_param_coordinator.assert_ints_same_as_other_ranks = lambda *_, **__: None


def _meshes_are_real() -> None:
    """A device mesh reads ranks out of a tensor, so that tensor must not be a fake one."""
    from torch.distributed import device_mesh
    from torch.utils._python_dispatch import _disable_current_modes

    original = device_mesh.init_device_mesh

    def init_device_mesh(device_type: str, *args: Any, **kwargs: Any) -> Any:
        with _disable_current_modes():
            return original("cpu", *args, **kwargs)

    device_mesh.init_device_mesh = init_device_mesh
    torch.distributed.device_mesh.init_device_mesh = init_device_mesh


def _shards_are_even() -> None:
    """AutoTP's loss reads from every rank which part of the vocabulary it has; here every rank has as much as this."""
    from deepspeed import comm

    try:
        from deepspeed.sequence import cross_entropy
    except ImportError:  # releases before AutoTP trained have none
        return

    def validate(size: int, start: int, end: int, group: Any, device: Any) -> int:
        ranks = comm.get_world_size(group) if group is not None else 1
        if ranks > 1:
            own = torch.empty(3, dtype=torch.long, device=device)
            comm.all_gather_into_tensor(own.new_empty(3 * ranks), own, group=group)
        return ranks * size

    cross_entropy._validate_vocab_shard_bounds = validate


def no_input_check(engine: Any) -> None:
    """AutoTP pickles the first batch to compare it between ranks; a fake tensor has nothing to compare."""
    check = getattr(engine, "first_dataloader_check", None)
    if check is not None:
        check.remove()
