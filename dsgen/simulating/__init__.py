"""The real DeepSpeed engine at true size on a virtual GPU cluster: memory by device and phase, and time; no GPU."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from dsgen.allocators import allocator_settings
from dsgen.jobs.model_configs import hardware_of, network_of
from dsgen.shapes.errors import mistake
from dsgen.simulating import answers, child, failures
from dsgen.simulating.networks import check_network, on_network
from dsgen.simulating.requests import ATTENTION, CHECKPOINTING, DTYPES, Request, from_config, from_rendered
from dsgen.simulating.run_options import Options
from dsgen.simulating.simulation import Collective, Sample, Simulation, TensorGroup
from dsgen.simulating.timelines import (
    ALIKE,
    CONTENTION,
    HOST_BOUND,
    KERNELS,
    Interval,
    PathStretch,
    PhaseTime,
    Timeline,
)
from dsgen.targets.filling import Filled

__all__ = [
    "ALIKE",
    "ATTENTION",
    "CHECKPOINTING",
    "CONTENTION",
    "DTYPES",
    "HOST_BOUND",
    "KERNELS",
    "TIMEOUT_SECONDS",
    "Collective",
    "Filled",
    "Interval",
    "Options",
    "PathStretch",
    "PhaseTime",
    "Request",
    "Sample",
    "Simulation",
    "TensorGroup",
    "Timeline",
    "check_network",
    "from_config",
    "from_rendered",
    "hardware_of",
    "network_of",
    "on_network",
    "simulate",
]

TIMEOUT_SECONDS = 1800.0  # the largest models take a minute for each forward and backward pass
_PACKAGES = ("torch", "deepspeed", "transformers")


def simulate(request: Request, *, python: str | None = None, timeout_seconds: float = TIMEOUT_SECONDS) -> Simulation:
    """Run the real engine on a virtual GPU, in a child process: no GPU is used, no weights are read or made.

    Args:
        request: What to run: `from_rendered` or `from_config`.
        python: Interpreter that has torch, deepspeed and transformers; by default this one.
        timeout_seconds: For everything.

    Raises:
        DsgenError: A package is missing, the versions were not tested, or the engine refuses the config.
    """
    if not timeout_seconds > 0:
        raise mistake(f"timeout_seconds is {timeout_seconds!r}", must="it must be more than 0")
    try:
        allocator_settings.parse(request.run.alloc_conf)
    except ValueError as error:
        raise mistake(f"alloc_conf is {request.run.alloc_conf!r}", must=str(error), code="bad-value") from None
    interpreter = python or sys.executable
    absent = None if python else next((name for name in _PACKAGES if find_spec(name) is None), None)
    if absent is not None:
        raise failures.missing(absent, interpreter)
    answer = child.ask(request.to_engine(), interpreter, timeout_seconds)
    if (package := answer.get("missing")) is not None:
        raise failures.missing(str(package), interpreter)
    if "error" in answer:
        raise failures.failure(answer, request, interpreter)
    return answers.simulation(answer, request)
