"""One config through DeepSpeed's own reader, parser, optimizer and schedule, at any number of ranks in one process."""

from __future__ import annotations

import contextlib
import copy
import importlib
import json
import logging
import os
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dsgen.engine.effective import choices
from dsgen.engine.effective.held import held_values
from dsgen.engine.witness import Witness

__all__ = ["run"]

_TRAIN, _MICRO, _STEPS = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
_MOST_RANKS = 2**20  # a fake group costs nothing, but ranks beyond this are a typing error
_MESSAGE = 4000  # characters of an error's text


def run(job: dict[str, Any], report: Path) -> bool:
    """Load one config and write what came of it.

    Args:
        job: file (or config, as it is handed over), world_size (None: what the batch keys imply), open (dotted keys
            that the target fills in later and that the config is without).
        report: JSON file to write: config, world_size, implied, refused, held, aliases, moved, seen, warnings,
            optimizer, schedule.
    """
    result: dict[str, Any] = {"refused": None, "warnings": [], "seen": [], "world_size": job["world_size"] or 1}
    with _listening(result["warnings"]):
        phase = "read"
        try:
            config = job["config"] if job["file"] is None else _read(job["file"])
            result["config"] = config
            implied = _implied(config)
            result.update(implied=job["world_size"] is None, world_size=job["world_size"] or implied)
            _join(result["world_size"])
            phase = "parse"
            witness = Witness(copy.deepcopy(config)) if isinstance(config, dict) else config
            parsed = _parse(witness)
            result["seen"] = sorted(getattr(witness, "seen", ()))
            values = held_values(parsed)
            result.update(held=values.values, aliases=values.aliases, moved=values.moved)
            phase = "initialize"
            result.update(choices.choices(parsed, job["open"]))
        except Exception as error:
            result["refused"] = {"phase": phase, **_error(error)}
    draft = report.with_suffix(".tmp")
    draft.write_text(json.dumps(result, default=str), encoding="utf-8")
    draft.replace(report)
    return True


def _read(file: str) -> Any:
    """The file as `deepspeed.initialize` reads it: HJSON, a key twice is an error."""
    try:
        reader = importlib.import_module("deepspeed.runtime.tensor_parallel.init_utils").load_ds_config
    except (ImportError, AttributeError):  # up to 0.17 DeepSpeedConfig itself opened the file, in this way
        hook = importlib.import_module("deepspeed.runtime.config_utils").dict_raise_error_on_duplicate_keys
        with open(file) as text:  # noqa: PTH123 - in the locale's encoding, as DeepSpeed does
            return importlib.import_module("hjson").load(text, object_pairs_hook=hook)
    return reader(file)


def _implied(config: Any) -> int:
    """The number of ranks at which the three batch keys agree; 1 where they leave it open."""
    keys = (_TRAIN, _MICRO, _STEPS) if isinstance(config, dict) else ()
    counts = [value for key in keys if type(value := config.get(key)) is int and value > 0]
    if len(counts) < 3:
        return _mesh(config)
    train, micro, steps = counts
    ranks, rest = divmod(train, micro * steps)
    return ranks if rest == 0 and ranks <= _MOST_RANKS else 1


def _mesh(config: Any) -> int:
    """The number of ranks in the mesh that a config asks for; 1 where it asks for none."""
    sizes = (
        [config.get(key) for key in ("data_parallel_size", "sequence_parallel_size")]
        if isinstance(config, dict)
        else []
    )
    ranks = 1
    for size in sizes:
        if type(size) is not int or size < 1:
            return 1
        ranks *= size
    return ranks if ranks <= _MOST_RANKS else 1


def _join(ranks: int) -> None:
    """Become rank 0 of a world that consists of this process alone: collectives do nothing."""
    import torch.distributed
    from torch.testing._internal.distributed.fake_pg import FakeStore

    os.environ.update(
        RANK="0", LOCAL_RANK="0", WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks), LOCAL_SIZE=str(ranks),
        MASTER_ADDR="127.0.0.1", MASTER_PORT="29500",  # never bound
    )  # fmt: skip
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    import deepspeed

    deepspeed.init_distributed(dist_backend="fake", verbose=False)


def _parse(config: Any) -> Any:
    """As `deepspeed.initialize` does, mesh of ranks included."""
    import deepspeed.comm
    from deepspeed.runtime.config import DeepSpeedConfig

    mesh = None
    if "sequence_parallel_size" in config and "data_parallel_size" in config:
        shape = (config["data_parallel_size"], config["sequence_parallel_size"])
        mesh = deepspeed.comm.initialize_mesh_device(shape, ("data_parallel", "sequence_parallel"))
    return DeepSpeedConfig(config) if mesh is None else DeepSpeedConfig(config, mesh_device=mesh)


def _error(error: Exception) -> dict[str, Any]:
    """The engine's own words, where it said them, and what pydantic knows of each fault."""
    frames = traceback.extract_tb(error.__traceback__)
    inside = [frame for frame in frames if f"{os.sep}deepspeed{os.sep}" in frame.filename]
    place = inside[-1] if inside else None
    faults: list[dict[str, Any]] = []
    listed = getattr(error, "errors", None)
    if callable(listed):
        with contextlib.suppress(Exception):  # only pydantic's have this form
            faults = [{"at": [str(part) for part in fault["loc"]], "message": fault["msg"]} for fault in listed()]
    return {
        "kind": type(error).__name__,
        "message": str(error).strip()[:_MESSAGE] or "(no message)",
        "site": f"{place.filename.rsplit(f'site-packages{os.sep}', 1)[-1]}:{place.lineno}" if place else None,
        "functions": [frame.name for frame in inside],
        "model": getattr(error, "title", None) or getattr(getattr(error, "model", None), "__name__", None),
        "faults": faults,
    }


class _Listener(logging.Handler):
    """Keeps what DeepSpeed's logger says at WARNING and above."""

    def __init__(self, said: list[str]) -> None:
        super().__init__(logging.WARNING)
        self.said = said

    def emit(self, record: logging.LogRecord) -> None:
        text = " ".join(record.getMessage().split())
        if text not in self.said:
            self.said.append(text)


@contextlib.contextmanager
def _listening(said: list[str]) -> Iterator[None]:
    """Collect what DeepSpeed logs, and the warnings that its own files raise."""
    logger = importlib.import_module("deepspeed.utils").logger
    handler = _Listener(said)
    logger.addHandler(handler)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
    finally:
        logger.removeHandler(handler)
    own = [item for item in caught if f"{os.sep}deepspeed{os.sep}" in item.filename]
    # Its own slips are none of the config's: a file left open, a use of pydantic that is going away.
    meant = [item for item in own if not issubclass(item.category, (ResourceWarning, DeprecationWarning))]
    said.extend(text for item in meant if (text := " ".join(str(item.message).split())) not in said)
