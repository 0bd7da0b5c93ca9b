"""What makes two configs the same in structure: DeepSpeed takes the same paths through its code for both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dsgen.shapes.layers import leaves

__all__ = ["Structure", "distinct", "structure"]

Structure = tuple[tuple[str, str], ...]

# Numbers that choose code, not a size or a rate.
_CHOOSING = frozenset({"zero_optimization.stage", "tensor_parallel.autotp_size"})
# Numbers of which only zero or not chooses: no clipping, dynamic scaling.
_SWITCHES = frozenset({"gradient_clipping", "fp16.loss_scale"})
# Texts that name things outside the config: folders, runs, a model's classes.
_FREE = frozenset({"nvme_path", "output_path", "output_file", "job_name", "project", "group", "team", "classes"})


def structure(config: Mapping[str, Any]) -> Structure:
    """The keys of a config and its values where they choose: booleans, texts, stage, degree; no sizes, no rates."""
    return tuple(sorted((path, _kind(path, value)) for path, value in leaves(config)))


def distinct(configs: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """The first config of each structure, in order, and the others that share it: name -> names."""
    groups: dict[Structure, list[str]] = {}
    for name, config in configs.items():
        groups.setdefault(structure(config), []).append(name)
    return {first: tuple(others) for first, *others in groups.values()}


def _kind(path: str, value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, str):
        return "text" if path.rpartition(".")[2] in _FREE else value
    if isinstance(value, (int, float)):
        return str(value) if path in _CHOOSING else str(value != 0) if path in _SWITCHES else "number"
    return _list(path, value) if isinstance(value, (list, tuple)) else "map"


def _list(path: str, items: Iterable[Any]) -> str:
    return f"[{', '.join(_kind(path, item) for item in items)}]"
