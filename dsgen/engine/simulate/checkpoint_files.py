"""The files of a checkpoint that a simulated engine writes and reads: what torch.save and torch.load hold meanwhile.

A fake tensor has no bytes to write. `save` takes what torch.save would: each storage once, through a copy in RAM where
it is on the GPU, one at a time (torch/serialization.py, _save). What is read is what was written, as new storages in
RAM, each once (torch.load with map_location="cpu"). All else is the engine's own: which tensors a state has, what
is copied before, and where what was read goes.
"""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

__all__ = ["Files", "folder", "weights"]

_WHOLE = 3  # the stage that cuts the weights too


class _Written(NamedTuple):
    """A tensor in a file: its storage's number there, bytes of that, and how the tensor lies in it."""

    number: int
    size: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    parameter: bool


class Files:
    """What stands in for torch.save and torch.load of an engine.

    Attributes:
        sizes: Name of a file -> bytes of its storages.
    """

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self._states: dict[str, Any] = {}

    def serve(self, engine: Any) -> None:
        """Let an engine write and read here."""
        engine.checkpoint_engine.save, engine.checkpoint_engine.load = self.save, self.load

    def save(self, state_dict: Any, path: str) -> None:
        """Write a state; the file itself stays empty."""
        storages: dict[int, tuple[int, int]] = {}  # of a storage -> its number and bytes
        self._states[path] = _mapped(state_dict, lambda tensor: _noted(tensor, storages))
        self.sizes[Path(path).name] = sum(size for _, size in storages.values())
        Path(path).touch()

    def load(self, path: str, map_location: Any = None) -> Any:
        """Read a state that was written; whatever the place that is asked for, into RAM."""
        made: dict[int, Any] = {}
        return _mapped(self._states[path], lambda written: _read(written, made))


@contextlib.contextmanager
def folder() -> Iterator[tuple[Files, str]]:
    """A folder in which checkpoints lie for a while."""
    with tempfile.TemporaryDirectory() as path:
        yield Files(), path


def weights(engine: Any, adapted: bool) -> Any:
    """The weights that the Trainer and Accelerate save beside a checkpoint; None where a config does not gather them.

    At stage 3 and with AutoTP rank 0 has them; else every rank has copies in RAM (transformers 5.23,
    Trainer.save_model; Accelerate 1.15, Accelerator.get_state_dict).

    Args:
        engine: The engine.
        adapted: Whether adapters are trained alone: at stage 3 nothing else is gathered then.
    """
    from deepspeed.checkpoint.utils import clone_tensors_for_torch_save

    whole, gathers = engine.zero_optimization_stage() == _WHOLE, engine.zero_gather_16bit_weights_on_model_save()
    if whole and adapted:
        return engine._zero3_consolidated_16bit_state_dict(exclude_frozen_parameters=True)
    if whole or engine.autotp_size() > 1:
        return engine._consolidated_16bit_state_dict() if gathers else None
    return clone_tensors_for_torch_save(engine.module.state_dict())


def _noted(tensor: torch.Tensor, storages: dict[int, tuple[int, int]]) -> _Written:
    storage = tensor.untyped_storage()
    key = storage._cdata
    if key not in storages:
        storages[key] = len(storages), storage.nbytes()
        if tensor.device.type != "cpu":  # the copy that is written, and gone
            torch.empty(storage.nbytes(), dtype=torch.uint8)
    return _Written(
        *storages[key],
        tensor.dtype,
        tuple(tensor.shape),
        tuple(tensor.stride()),
        tensor.storage_offset(),
        isinstance(tensor, torch.nn.Parameter),
    )


def _read(written: _Written, made: dict[int, Any]) -> torch.Tensor:
    if written.number not in made:
        made[written.number] = torch.empty(written.size, dtype=torch.uint8)
    flat = made[written.number].view(written.dtype)
    tensor: torch.Tensor = torch.as_strided(flat, written.shape, written.strides, written.offset)
    return torch.nn.Parameter(tensor, requires_grad=False) if written.parameter else tensor


def _mapped(value: Any, change: Any) -> Any:
    """A state with each tensor of its containers changed; containers are new, all else is as it was."""
    if isinstance(value, _Written) or torch.is_tensor(value):
        return change(value)
    if isinstance(value, dict):
        made = type(value)()
        made.update({key: _mapped(item, change) for key, item in value.items()})
        return made
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(_mapped(item, change) for item in value)
    return value
