"""With which releases the simulation was tested, and what the functions it patches looked like in them."""

from __future__ import annotations

import ast
import hashlib
import importlib
import inspect
from typing import Any

from dsgen.engine.simulate.errors import UntestedVersionsError

__all__ = ["PATCHED", "TESTED", "TESTED_PEFT", "check_tested", "fingerprint"]

# (deepspeed, torch, transformers) with which the simulation was compared with real runs.
TESTED = (("0.19.8", "2.13.0", "5.23.0"),)
TESTED_PEFT = ("0.21.2",)  # asked for where adapters are trained

# Patched function -> first 12 digits of the sha256 of its source in the tested release.
PATCHED: dict[str, str] = {
    "deepspeed.ops.op_builder.builder:OpBuilder.load": "c5ef6bf49931",
    "deepspeed.runtime.activation_checkpointing.checkpointing:get_partitioned_activations_for_backward": "f89d1d1ba778",
    "deepspeed.runtime.comm.coalesced_collectives:reduce_scatter_coalesced": "d49fb6b733d0",
    "deepspeed.runtime.engine:DeepSpeedEngine._configure_tensor_parallel_states": "991bba3e2a06",
    "deepspeed.runtime.zero.partition_parameters:AllGatherCoalescedHandle.wait": "898453ec1a22",
    "deepspeed.runtime.zero.partition_parameters:Init._convert_to_deepspeed_param": "1c639977bd9a",
    "deepspeed.runtime.zero.utils:assert_ints_same_as_other_ranks": "2bdacaf64d04",
    "deepspeed.sequence.cross_entropy:_validate_vocab_shard_bounds": "a2c367d8a260",
    "torch._subclasses.fake_tensor:FakeTensorMode.avoid_device_init": "69433dd54d1e",
    "torch._tensor:Tensor.__deepcopy__": "546714c5275c",
    "torch.distributed.device_mesh:init_device_mesh": "a8e1d76795ef",
    "torch.nn.modules.module:Module._apply": "4e7315ad6635",
    "torch.nn.parameter:Parameter.__deepcopy__": "a46bb31ee91f",
    "torch.utils:swap_tensors": "7b5778803d61",
    "torch.utils.backend_registration:_setup_privateuseone_for_python_backend": "3ce2d9fa70b6",
    "transformers.models.falcon.modeling_falcon:FalconFlashAttention2.forward": "a389fc2038a9",
    "transformers.models.gptj.modeling_gptj:GPTJFlashAttention2.forward": "2af2c0651aa1",
}


def fingerprint(name: str) -> str:
    """The first 12 digits of the sha256 of a function's source, decorators and nested functions included.

    Args:
        name: "package.module:Class.function".

    Raises:
        LookupError: The module has no such function.
    """
    module, _, path = name.partition(":")
    source = inspect.getsource(importlib.import_module(module))
    scope: Any = ast.parse(source)
    for part in path.split("."):
        named = [node for node in ast.walk(scope) if getattr(node, "name", None) == part]
        if not named:
            raise LookupError(f"{module} has no {path}")
        scope = named[0]
    first = min([scope.lineno, *(decorator.lineno for decorator in scope.decorator_list)])
    text = "\n".join(source.splitlines()[first - 1 : scope.end_lineno])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def check_tested(versions: dict[str, str], force: bool) -> None:
    """Refuse versions that were not tested together.

    Raises:
        UntestedVersionsError: They were not, and `force` is not set.
    """
    installed = tuple(versions[name].partition("+")[0] for name in ("deepspeed", "torch", "transformers"))
    if installed not in TESTED and not force:
        tested = "; ".join("deepspeed {}, torch {}, transformers {}".format(*one) for one in TESTED)
        raise UntestedVersionsError(
            "the simulation was not tested with deepspeed {}, torch {}, transformers {}; tested: ".format(*installed)
            + tested
        )
    peft = versions.get("peft")
    if peft is not None and peft not in TESTED_PEFT and not force:
        raise UntestedVersionsError(
            f"the simulation was not tested with peft {peft}; tested: peft {', '.join(TESTED_PEFT)}"
        )
