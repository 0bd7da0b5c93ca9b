"""What a config lets one expect of the engine: classes, types, sizes and places; pure arithmetic on the config."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = [
    "base_learning_rate",
    "gradient_clipping",
    "master_dtype",
    "master_elements",
    "masters_come_back",
    "operators",
    "optimizer_class",
    "optimizer_place",
    "parameter_dtype",
    "parameter_place",
    "release",
    "stage",
    "wrapper_class",
]

_DEFAULT_RATE = 1e-3  # of FusedAdam, DeepSpeedCPUAdam and torch's Adam and AdamW
_CLIPPING_SINCE = (0, 19, 3)  # the release that made gradient_clipping 1.0 by default (runtime/constants.py)
_BF16_WRAPPED_UNTIL = (0, 17, 6)  # where stage 0 in bf16 has the wrapper that is fp16's, with whole masters (engine.py)
_ALIGNMENT = 2  # ZeRO 1 and 2 pad to twice the data-parallel ranks (runtime/zero/stage_1_and_2.py)
_OFFLOADS = ("cpu", "nvme")
_ADAMS = ("adam", "adamw")
# Class -> the builder of the operator that it loads. Classes of torch need none.
_OPERATORS = {
    "DeepSpeedCPUAdam": "CPUAdamBuilder",
    "ZenFlowCPUAdam": "CPUAdamBuilder",
    "FusedAdam": "FusedAdamBuilder",
    "DeepSpeedCPULion": "CPULionBuilder",
    "FusedLion": "FusedLionBuilder",
    "DeepSpeedCPUAdagrad": "CPUAdagradBuilder",
    "FusedLamb": "FusedLambBuilder",
}


def _section(config: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    section: Any = config
    for name in names:
        section = section.get(name) if isinstance(section, Mapping) else None
    return section if isinstance(section, Mapping) else {}


def _enabled(config: Mapping[str, Any], name: str) -> bool:
    return _section(config, name).get("enabled") is True


def stage(config: Mapping[str, Any]) -> int:
    """The ZeRO stage; 0 where the config names none."""
    value = _section(config, "zero_optimization").get("stage", 0)
    return value if isinstance(value, int) else 0


def masters_come_back(config: Mapping[str, Any]) -> bool:
    """Whether a checkpoint's master weights are loaded, and not made anew of its 16-bit weights (stages 1 and 2)."""
    return _section(config, "zero_optimization").get("load_from_fp32_weights") is not False or stage(config) not in (
        1,
        2,
    )


def parameter_dtype(config: Mapping[str, Any]) -> str:
    """The type of the parameters that the model computes with."""
    if _enabled(config, "fp16"):
        return "float16"
    return "bfloat16" if _enabled(config, "bf16") or _enabled(config, "bfloat16") else "float32"


def master_dtype(config: Mapping[str, Any]) -> str:
    """The type of the weights that the optimizer updates."""
    if _section(config, "fp16").get("fp16_master_weights_and_grads") is True:
        return "float16"
    return "bfloat16" if _section(config, "bf16").get("bf16_master_weights_and_grads") is True else "float32"


def gradient_clipping(config: Mapping[str, Any], version: str) -> object:
    """The clipping norm: as written, or the release's default."""
    if "gradient_clipping" in config:
        return config["gradient_clipping"]
    return 1.0 if release(version) >= _CLIPPING_SINCE else 0.0


def release(version: str) -> tuple[int, ...]:
    """A version's numbers, to compare: 0.19.8+gdead is (0, 19, 8)."""
    return tuple(int(part) for part in version.split("+", maxsplit=1)[0].split(".")[:3] if part.isdigit())


def _place(config: Mapping[str, Any], name: str) -> str:
    device = _section(config, "zero_optimization", name).get("device")
    return device if device in _OFFLOADS else "accelerator"


def optimizer_place(config: Mapping[str, Any]) -> str:
    """Where masters and optimizer states are to be: accelerator, cpu or nvme."""
    return _place(config, "offload_optimizer")


def parameter_place(config: Mapping[str, Any]) -> str:
    """Where parameters are to rest between uses: accelerator, cpu or nvme."""
    return _place(config, "offload_param")


def optimizer_class(config: Mapping[str, Any]) -> str | None:
    """The class that does the update, as runtime/engine.py chooses it; None where the config names no optimizer."""
    section = _section(config, "optimizer")
    name, params = section.get("type"), _section(config, "optimizer", "params")
    if not isinstance(name, str):
        return None
    offloaded = optimizer_place(config) != "accelerator"
    lower = name.lower()
    if lower in _ADAMS:
        if params.get("torch_adam") is True:
            return "AdamW" if lower == "adamw" or params.get("adam_w_mode", True) else "Adam"
        if offloaded:
            return "ZenFlowCPUAdam" if _section(config, "zero_optimization", "zenflow") else "DeepSpeedCPUAdam"
        return "FusedAdam"
    known = {
        "adagrad": "DeepSpeedCPUAdagrad" if offloaded else "Adagrad",
        "lion": "DeepSpeedCPULion" if offloaded else "FusedLion",
        "lamb": "FusedLamb",
        "muon": "MuonWithAuxAdam",
        "muadam": "MuAdam",
        "muadamw": "MuAdamW",
        "musgd": "MuSGD",
    }
    return known.get(lower, name)


def _sums_in_fp32(config: Mapping[str, Any], version: str) -> bool:
    """Whether BF16_Optimizer does the update, which keeps masters in parts at stage 0 too (_do_optimizer_sanity_check).

    At stage 0 all releases before 0.17.6 sum gradients of bf16 in fp32, unless told otherwise, which they refuse.
    """
    number, accumulate = stage(config), _section(config, "data_types").get("grad_accum_dtype")
    if parameter_dtype(config) != "bfloat16" or optimizer_place(config) == "cpu":
        return False
    before = number == 0 and release(version) < _BF16_WRAPPED_UNTIL
    return before or (number in (0, 1) and accumulate == "fp32")


def wrapper_class(config: Mapping[str, Any], optimizer: str, version: str) -> str | None:
    """The class around the optimizer; None for the forms that are not foretold here (ZenFlow, SuperOffload)."""
    zero = _section(config, "zero_optimization")
    if zero.get("zenflow") or _section(config, "zero_optimization", "offload_optimizer").get("super_offload"):
        return None
    number, dtype = stage(config), parameter_dtype(config)
    if _sums_in_fp32(config, version):
        return "BF16_Optimizer"
    if number == 0:
        if dtype == "float32":
            return optimizer
        return "FP16_Optimizer" if optimizer == "FusedAdam" else "FP16_UnfusedOptimizer"
    return "DeepSpeedZeroOptimizer_Stage3" if number == 3 else "DeepSpeedZeroOptimizer"


def operators(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The builders of the DeepSpeed operators that the config needs, in a fixed order."""
    chosen = optimizer_class(config)
    offloaded = optimizer_place(config) != "accelerator"
    needed = []
    if chosen is None:
        needed += ["CPUAdamBuilder"] if offloaded else []
    elif chosen == "MuonWithAuxAdam":
        torch_adam = _section(config, "optimizer", "params").get("torch_adam") is True
        needed += [] if torch_adam else ["CPUAdamBuilder" if offloaded else "FusedAdamBuilder"]
    elif chosen in _OPERATORS:
        needed.append(_OPERATORS[chosen])
    if stage(config) == 3 and "nvme" in (optimizer_place(config), parameter_place(config)):
        needed.append("AsyncIOBuilder")
    return tuple(needed)


def base_learning_rate(config: Mapping[str, Any]) -> float | None:
    """The optimizer's own rate; None where the config does not settle it."""
    params = _section(config, "optimizer", "params")
    kind = str(_section(config, "optimizer").get("type", "")).lower()
    value = params.get("lr", _DEFAULT_RATE if kind in _ADAMS else None)
    if kind == "muon":
        value = params.get("muon_lr", value)  # of its own group, which is the first
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def master_elements(
    config: Mapping[str, Any], sizes: Sequence[int], data_parallel: int, groups: int, version: str
) -> tuple[int, int]:
    """How many master elements one rank holds: the least and the most, padding included.

    Args:
        config: The config.
        sizes: Elements of every trainable parameter on this rank before ZeRO partitions it.
        data_parallel: Ranks that share them.
        groups: Flat groups that the optimizer made; each is padded on its own.
        version: DeepSpeed's.
    """
    total, number = sum(sizes), stage(config)
    if number == 0 and not _sums_in_fp32(config, version):
        return total, total
    if number == 3:  # every parameter is padded on its own
        exact = sum(math.ceil(size / data_parallel) for size in sizes)
        return exact, exact
    padding = _ALIGNMENT * groups
    if _section(config, "zero_optimization").get("parameter_alignment") is True:
        padding += math.ceil(16 * len(sizes) / data_parallel)  # 16 bytes at most before each parameter
    return math.ceil(total / data_parallel), total // data_parallel + padding
