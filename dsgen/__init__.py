"""DeepSpeed configs from what you know: the GPUs, the model, the network, and what you want.

import dsgen

job = dsgen.profile("a100-40g") | dsgen.profile("7b") | {"training": {"seq_len": 8192}}
config = dsgen.render(job)
config.to_dict()                                  # for deepspeed.initialize(config=...)
config.why("zero_optimization.stage").reason      # and why
dsgen.estimate_memory(job).verdict                # whether it fits, what would
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsgen.api import Layers, estimate_memory, job, overrides, plan, profile, render, scenario, simulate, site
    from dsgen.asking.memory_questions import Footprint
    from dsgen.jobs.job import Job
    from dsgen.planning.planner import Plan
    from dsgen.rendering import Config, Explanation
    from dsgen.shapes.errors import DsgenError
    from dsgen.simulating import Simulation

__all__ = [
    "Config",
    "DsgenError",
    "Explanation",
    "Footprint",
    "Job",
    "Layers",
    "Plan",
    "Simulation",
    "estimate_memory",
    "job",
    "overrides",
    "plan",
    "profile",
    "render",
    "scenario",
    "simulate",
    "site",
]

# Loaded on first use: a training script that only wants one name pays for no other.
_HOMES = {
    "Config": "dsgen.rendering",
    "DsgenError": "dsgen.shapes.errors",
    "Explanation": "dsgen.rendering",
    "Footprint": "dsgen.asking.memory_questions",
    "Job": "dsgen.jobs.job",
    "Plan": "dsgen.planning.planner",
    "Simulation": "dsgen.simulating",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("dsgen")
    if name not in __all__:
        raise AttributeError(f"module 'dsgen' has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "dsgen.api")), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
