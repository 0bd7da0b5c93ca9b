"""The child process of a simulation: asked once, and what became of it when it did not answer."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from typing import Any

from dsgen.proving import children
from dsgen.shapes.errors import DsgenError, mistake

__all__ = ["apart", "ask"]

_SERVER = "simulate.__main__"
# Sections that make DeepSpeed write or measure, and hold no tensor.
_OBSERVERS = ("tensorboard", "wandb", "csv_monitor", "comet", "flops_profiler", "comms_logger")
_NVME = ("offload_optimizer", "offload_param")


def ask(request: Mapping[str, Any], python: str, timeout_seconds: float) -> dict[str, Any]:
    """The child's answer to one request.

    Args:
        request: As `dsgen.engine.simulate` reads it; its config's paths are turned to a temporary folder.
        python: Interpreter of the child.
        timeout_seconds: For everything, the imports of torch and DeepSpeed included.

    Raises:
        DsgenError: The interpreter cannot be run, the time is over, or the child ended without an answer.
    """
    with children.start(python, _SERVER, "simulate") as child:
        try:
            question = {**request, "config": apart(request["config"], str(child.folder))}
            return child.ask(question, timeout_seconds, last=True)
        except children.LostError as error:
            raise _lost(error, timeout_seconds) from None


def apart(config: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """The config without what observes a run, and with its files in a folder."""
    used: dict[str, Any] = json.loads(json.dumps(config))
    for name in _OBSERVERS:
        section = used.get(name)
        if isinstance(section, dict) and section.get("enabled"):
            section["enabled"] = False
    zero = used.get("zero_optimization")
    for name in _NVME:
        section = zero.get(name) if isinstance(zero, dict) else None
        if isinstance(section, dict) and section.get("nvme_path") is not None:
            section["nvme_path"] = folder
    return used


def _lost(error: children.LostError, timeout_seconds: float) -> DsgenError:
    if error.late:
        return mistake(
            f"the simulation was not done within {timeout_seconds:g} s",
            todo="Allow more with --timeout, or take fewer steps or micro-batches: one of each shows the peak.",
            code="lost",
        )
    if error.code == -signal.SIGKILL:
        return mistake(
            "the system killed the process that simulates",
            must="this machine's own memory must hold it: 0.5 to 2 GB",
            todo="Free memory, or simulate where there is more.",
            code="lost",
        )
    code = error.code or 0
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"code {code}"
    words = " ".join(error.words.split())
    return mistake(
        f"the process that simulates ended with {how}: {words}", must="it must run torch and deepspeed", code="lost"
    )
