"""A DeepSpeed config, or a file of another program, that stands where a scenario is read."""

from __future__ import annotations

from dsgen.shapes.errors import DsgenError, mistake
from dsgen.shapes.layers import Origin

__all__ = ["of_config"]

# Keys one of which such a file has and no scenario: DeepSpeed's, Accelerate's.
_KEYS = (
    *("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping", "bf16"),
    *("fp16", "zero_optimization", "compute_environment", "distributed_type", "deepspeed_config"),
)
_ARGUMENTS = ("base_model", "model_name_or_path", "per_device_train_batch_size")  # likewise of a training program


def of_config(path: str, origin: Origin) -> DsgenError | None:
    """The error of an unknown field that is a config's key, with what takes such a file; None of another field.

    Args:
        path: The field.
        origin: Where it stands; it has a line where that is a file.
    """
    key = path.partition(".")[0]
    if not origin.line or key not in (*_KEYS, *_ARGUMENTS):
        return None
    if key in _ARGUMENTS:
        return mistake(
            f"{path} is an argument of a training program",
            must="a scenario has hw, model and what else is wished",
            where=origin,
            todo=f"--args {origin.source} takes what it wants; with a DeepSpeed config that it names: --config.",
            code="unknown-name",
        )
    return mistake(
        f"{path} is of a DeepSpeed config or of what names one",
        must="a scenario has hw, model and what else is wished",
        where=origin,
        todo=f"dsgen memory and plan take it by --config {origin.source}, and dsgen adopt makes a scenario of it.",
        code="unknown-name",
    )
