"""What a strict section makes of a value, as DeepSpeed's own pydantic models make it."""

from __future__ import annotations

import importlib
import math
from typing import Any

import pytest

from dsgen.deepspeed import surface
from dsgen.deepspeed.coercion import REFUSED, read_strict, refused_at
from dsgen.deepspeed.keys import Key

KNOWN = surface.load("0.19")
VALUES: tuple[Any, ...] = (
    *(0, 1, 2, 3, -1, 5, 10**30, 0.0, 1.0, 2.0, 1.5, 0.5, 5e8, 1e19, -1e19, math.inf, True, False, None),
    *("x", "true", "false", "yes", "Y", "on", "0", "1", "2", " 2 ", "2.0", "5e8", "1.5", "-1", "500_000", ""),
    *("cpu", "none", "CPU", "nan", "fp16", "None", " true", "TRUE", "auto", "Auto"),
    *([], ["a"], [1], {}),
)  # fmt: skip
MODELS = {
    "zero_optimization": ("deepspeed.runtime.zero.config", "DeepSpeedZeroConfig"),
    "fp16": ("deepspeed.runtime.precision_config", "DeepSpeedFP16Config"),
    "bf16": ("deepspeed.runtime.precision_config", "DeepSpeedBF16Config"),
    "tensor_parallel": ("deepspeed.runtime.tensor_parallel.config", "TPTrainingConfig"),
    "compile": ("deepspeed.compile.config", "CompileConfig"),
    "hybrid_engine": ("deepspeed.runtime.config", "HybridEngineConfig"),
    "comms_logger": ("deepspeed.comm.config", "CommsLoggerConfig"),
    "tensorboard": ("deepspeed.monitor.config", "TensorBoardConfig"),
    "wandb": ("deepspeed.monitor.config", "WandbConfig"),
    "csv_monitor": ("deepspeed.monitor.config", "CSVConfig"),
    "comet": ("deepspeed.monitor.config", "CometConfig"),
}
# Refused beside the other keys, not for themselves: rules of the linter.
TOGETHER = {"zero_optimization.compute_grad_norm", "zero_optimization.offload_optimizer.ratio"}


def key(path: str) -> Key:
    found = KNOWN.key(path)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("path", "value", "read"),
    [
        ("zero_optimization.stage", "2", 2),
        ("zero_optimization.stage", 2.0, 2),
        ("zero_optimization.stage", 4, REFUSED),
        ("zero_optimization.reduce_bucket_size", 5e8, 500_000_000),
        ("zero_optimization.reduce_bucket_size", "5e8", REFUSED),
        ("zero_optimization.reduce_bucket_size", "auto", 500_000_000),
        ("zero_optimization.overlap_comm", "yes", True),
        ("zero_optimization.overlap_comm", 2, REFUSED),
        ("zero_optimization.offload_optimizer.device", "CPU", REFUSED),
        ("bf16.enabled", "auto", False),
        ("fp16.loss_scale", True, REFUSED),
        ("fp16.loss_scale_window", "2.0", REFUSED),
        ("zero_optimization.zenflow.update_interval", "4", REFUSED),
        ("zero_optimization.leaf_module.names", [1], REFUSED),
    ],
)
def test_a_value_is_read_as_deepspeed_reads_it(path: str, value: Any, read: Any) -> None:
    found = read_strict(key(path), value)

    assert found is read if read is REFUSED else (found, type(found)) == (read, type(read))


@pytest.mark.parametrize(
    ("path", "value", "phase"),
    [
        ("zero_optimization.stage", 4, "parse"),
        ("train_batch_size", "8", "parse"),
        ("train_micro_batch_size_per_gpu", None, None),
        ("gradient_clipping", "1.0", "step"),
        ("gradient_clipping", True, None),
        ("gradient_clipping", "auto", None),
        ("steps_per_print", 0, "step"),
        ("steps_per_print", None, None),
        ("communication_data_type", "float16", "parse"),
        ("data_types.grad_accum_dtype", "float64", "init"),
        ("checkpoint.tag_validation", "warn", None),
        ("checkpoint.tag_validation", "Maybe", "parse"),
        ("dump_state", "x", None),
    ],
)
def test_a_refused_value_says_when(path: str, value: Any, phase: str | None) -> None:
    assert refused_at(key(path), value) == phase


def test_huge_text_is_no_number() -> None:
    assert read_strict(key("zero_optimization.reduce_bucket_size"), "9" * 5_000) is REFUSED


@pytest.mark.proof
@pytest.mark.parametrize("section", MODELS)
def test_the_models_themselves_say_the_same(section: str) -> None:
    module, name = MODELS[section]
    model = getattr(importlib.import_module(module), name)
    strict = [path for path in KNOWN.paths if path.startswith(f"{section}.") and key(path).strict]
    compared = 0
    for path in strict:
        if key(path).removed or key(path).deprecated or path in TOGETHER or path in KNOWN.sections:
            continue
        for value in VALUES:
            tree: Any = value
            for part in reversed(path.split(".")[1:]):
                tree = {part: tree}
            try:
                model(**tree)
                taken = True
            except (ValueError, AssertionError):
                taken = False

            assert (read_strict(key(path), value) is not REFUSED) == taken, (path, value)
            compared += 1
    assert compared > len(VALUES)
