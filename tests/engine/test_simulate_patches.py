"""What the simulation changes in torch and DeepSpeed, and the names it knows, still are what they were."""

from __future__ import annotations

import ast
import hashlib
import importlib
import inspect
import re
from importlib import metadata
from pathlib import Path

import pytest

from dsgen.engine.simulate import versions as tested

pytestmark = pytest.mark.proof

ENGINE = Path(tested.__file__).parent

# What is not replaced but relied on, read as it is in the tested release: function -> as in tested.PATCHED.
READ = {
    # The accelerator answers as this one, and inherits the rest from the CPU's.
    "deepspeed.accelerator.abstract_accelerator:DeepSpeedAccelerator.is_pinned": "c1f0cac38a0e",
    "deepspeed.accelerator.abstract_accelerator:DeepSpeedAccelerator.pin_memory": "5aa32cdc4b5c",
    "deepspeed.accelerator.cpu_accelerator:CPU_Accelerator.handles_memory_backpressure": "e4ecfb686994",
    "deepspeed.accelerator.cpu_accelerator:CPU_Accelerator.resolves_data_dependency": "1850a868c5ed",
    "deepspeed.accelerator.cuda_accelerator:CUDA_Accelerator.create_op_builder": "587e250b4b98",
    "deepspeed.accelerator.cuda_accelerator:CUDA_Accelerator.handles_memory_backpressure": "e4ecfb686994",
    "deepspeed.accelerator.cuda_accelerator:CUDA_Accelerator.is_synchronized_device": "4de593732ae7",
    "deepspeed.accelerator.cuda_accelerator:CUDA_Accelerator.resolves_data_dependency": "1850a868c5ed",
    # They call the stand-ins of `ops`.
    "deepspeed.ops.adagrad.cpu_adagrad:DeepSpeedCPUAdagrad.step": "28175e786c69",
    "deepspeed.ops.adam.cpu_adam:DeepSpeedCPUAdam.step": "bc2df204ebae",
    "deepspeed.ops.adam.fused_adam:FusedAdam.step": "2706e54148f9",
    "deepspeed.ops.lamb.fused_lamb:FusedLamb.step": "e29933c1e9dd",
    "deepspeed.ops.lion.cpu_lion:DeepSpeedCPULion.step": "eb53480a05b6",
    "deepspeed.ops.lion.fused_lion:FusedLion.step": "7125bf97a413",
    # It calls `narrow`, whose views the shortcut hands out again.
    "deepspeed.runtime.zero.partition_parameters:_all_gather_dtype": "8999be2ab1a4",
    # simulate_fakes makes tensors as these do, and asks once where this one would be asked once.
    "torch._subclasses.fake_tensor:FakeTensor.__new__": "81f8aa4cc3be",
    "torch._subclasses.fake_tensor:FakeTensorMode._validate_cache_key": "3dc231c21b9c",
    "torch._subclasses.fake_tensor:in_kernel_invocation_manager": "81dfc3aeb34e",
    # They ask for the type of a tensor and for its device.
    "torch.optim.optimizer:_default_to_fused_or_foreach": "f169a74db383",
    "torch.utils._foreach_utils:_has_foreach_support": "2c99e5332cf2",
    # Its values are replaced, and what is told from no value.
    "torch._subclasses.fake_impls:local_scalar_dense": "1d34dd365dc6",
    # It takes bf16 alone, where CUDA takes fp16 and fp32 too.
    "torch._meta_registrations:_meta_grouped_mm_common": "b5cd72f24ddf",
    # Its import is all that is asked of the compiler.
    "torch:compile": "454ee6568234",
    # attention.py stands in its place.
    "transformers.integrations.flash_attention:flash_attention_forward": "ea5dbf6f37c7",
}

# Functions of torch that are written in C++ and replaced: name -> schema, or the first line of the documentation.
NATIVE = {
    "is_pinned": "aten::is_pinned(Tensor self, Device? device=None) -> bool",
    "mish_backward": "aten::mish_backward(Tensor grad_output, Tensor self) -> Tensor",
    "narrow": "aten::narrow(Tensor(a) self, int dim, SymInt start, SymInt length) -> Tensor(a)",
    "pin_memory": "aten::pin_memory(Tensor(a) self, Device? device=None) -> Tensor(a)",
    "record_stream": "aten::record_stream(Tensor(a!) self, Stream s) -> ()",
    "silu_backward": "aten::silu_backward(Tensor grad_output, Tensor self) -> Tensor",
    "tensor": "tensor(data, *, dtype=None, device=None, requires_grad=False, pin_memory=False) -> Tensor",
}

# Sources of compiled operators for which `ops` stands in, below deepspeed/ops/csrc -> sha256, first 12 digits.
KERNELS = {
    "adagrad": "6659f80a325c",
    "adam": "5647c14baf15",
    "aio/py_lib": "185f09c50741",
    "lamb": "4cb04e620f32",
    "lion": "68ed6927399a",
}


def test_these_versions_are_tested_ones():
    found = tuple(metadata.version(name).partition("+")[0] for name in ("deepspeed", "torch", "transformers"))

    assert found in tested.TESTED


def test_other_versions_are_refused_unless_forced():
    versions = {"deepspeed": "0.12.0", "torch": "2.1.0+cu118", "transformers": "4.30.0"}

    tested.check_tested(versions, force=True)
    with pytest.raises(RuntimeError, match=r"deepspeed 0\.12\.0, torch 2\.1\.0, transformers 4\.30\.0; tested: "):
        tested.check_tested(versions, force=False)


@pytest.mark.parametrize("patched", tested.PATCHED)
def test_a_patched_function_is_the_one_that_was_read(patched):
    assert tested.fingerprint(patched) == tested.PATCHED[patched]


@pytest.mark.parametrize("function", READ)
def test_a_function_that_is_relied_on_is_the_one_that_was_read(function):
    assert tested.fingerprint(function) == READ[function]


@pytest.mark.parametrize("name", NATIVE)
def test_a_native_function_takes_what_its_patch_takes(name):
    import torch

    if name == "tensor":
        told = torch.tensor.__doc__.strip().partition("\n")[0]
    else:
        told = str(getattr(torch.ops.aten, name).default._schema)

    assert told == NATIVE[name]


@pytest.mark.parametrize("folder", KERNELS)
def test_a_compiled_operator_is_the_one_that_was_read(folder):
    """It changes tensors in place or moves bytes, and allocates none; that of LAMB makes three small ones."""
    import deepspeed

    files = sorted((Path(deepspeed.__file__).parent / "ops" / "csrc" / folder).glob("*.*"))
    text = b"".join(file.read_bytes() for file in files if file.suffix in (".cpp", ".cu", ".cuh", ".h"))

    assert hashlib.sha256(text).hexdigest()[:12] == KERNELS[folder]


def test_every_patch_has_a_fingerprint():
    """Every attribute that the patches and shortcuts set on something of torch, DeepSpeed or transformers."""
    known = {name.rpartition(":")[2].rpartition(".")[2] for name in {**tested.PATCHED, **READ}} | set(NATIVE)
    # Descriptors have no source: `data` is torch's own on both sides but where devices differ.
    known |= {"data"}
    set_here = set()
    for name in ("patches", "shortcuts"):
        tree = ast.parse((ENGINE / f"{name}.py").read_text("utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign):
                targets = [target for target in node.targets if isinstance(target, ast.Attribute)]
                set_here |= {one.attr for one in targets if ast.unparse(one.value).split(".")[0] not in ("self", "ctx")}
    parameters = {"complete", "data", "ds_status"}  # of objects, not of modules

    assert len(set_here) > 8
    assert sorted(set_here - known - parameters) == []


def test_every_maker_is_a_function_of_its_file():
    from dsgen.engine.simulate import kinds

    absent = []
    for path, functions in kinds.MAKERS.items():
        module = importlib.import_module(path.removesuffix(".py").replace("/", "."))
        source = inspect.getsource(module)
        absent += [f"{path}: {name}" for name in functions if not re.search(rf"^\s*def {name}\(", source, re.MULTILINE)]

    assert absent == []


def test_every_holder_is_an_attribute_of_its_class():
    from dsgen.engine.simulate import holders

    absent = []
    for name, attributes in holders.HOLDERS.items():
        module, _, kind = name.partition(":")
        source = inspect.getsource(getattr(importlib.import_module(module), kind))
        for attribute in attributes:
            plain = attribute.removeprefix(f"_{kind}")  # a name with two underscores is stored with its class
            if not re.search(rf"self\.{plain}\b", source):
                absent.append(f"{name}.{attribute}")

    assert absent == []
