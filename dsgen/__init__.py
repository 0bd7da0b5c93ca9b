"""DeepSpeed configs from what you know: the GPUs, the model, the network, and what you want.

import dsgen

job = dsgen.profile("a100-40g") | dsgen.profile("7b") | {"training": {"seq_len": 8192}}
config = dsgen.render(job)                        # or render({"hw": "a100-40g", "model": "7b", "seq_len": 8192})
config.write("ds_config.json")                    # or config.to_dict() for deepspeed.initialize(config=...)
config.why("zero_optimization.stage").reason      # and why
dsgen.job_files(job, "hf-trainer").files          # with what the Trainer is given beside it; dsgen.needs
dsgen.memory(job).verdict                         # whether it fits, what would
dsgen.calibrate(job, step_seconds=12.3).write("my-box.yaml")  # what you measured, for later plans
dsgen.detect().write("my-box.yaml")               # the machine at hand as a profile; {"hw": "auto"} takes it
dsgen.adopt({"hw": "a100-40g", "model": "7b"}, "ds_config.json").write("scenario.yaml")  # a config that exists
dsgen.speedups(job, "ds_config.json").changes     # what would make a config faster; compare, what_if, fewest_gpus
dsgen.diagnose("train.log", job).root             # why a run failed, and .changes with numbers
dsgen.launch(job, launcher="slurm", script="train.py", folder="runs/first").write()  # what starts it, and RUN.md
dsgen.lint("ds_config.json").findings             # what is wrong with a config; dsgen.fix mends it
dsgen.prove("ds_config.json", certificate="proof.json").outcome  # DeepSpeed started with it; dsgen.verify, later
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsgen.api import (
        Layers,
        adopt,
        calibrate,
        check,
        detect,
        effective,
        job,
        memory,
        overrides,
        plan,
        profile,
        render,
        scenario,
        simulate,
        site,
        why,
    )
    from dsgen.asking.adopting import Adoption
    from dsgen.asking.calibrating import Calibration
    from dsgen.asking.comparisons import Comparison, diff
    from dsgen.asking.from_python import prove, verify
    from dsgen.asking.memory_questions import Footprint
    from dsgen.asking.plan_questions.asked import (
        compare,
        fewest_gpus,
        program_changes,
        speedups,
        training_time,
        what_if,
    )
    from dsgen.asking.plan_questions.contests import Contest
    from dsgen.asking.plan_questions.deadlines import Budget, Fleet
    from dsgen.asking.plan_questions.offers import Offer
    from dsgen.asking.plan_questions.speedups import Speedups
    from dsgen.asking.plan_questions.what_ifs import WhatIf
    from dsgen.asking.questions import Answer
    from dsgen.catalog.detected import DetectedMachine
    from dsgen.checking import Checked
    from dsgen.diagnosing import Diagnosis
    from dsgen.diagnosing.from_python import diagnose
    from dsgen.effective import Effective
    from dsgen.frameworks import JobFiles
    from dsgen.frameworks.asked import job_files, needs
    from dsgen.frameworks.needs import Need
    from dsgen.jobs.job import Job
    from dsgen.launching import RunFolder
    from dsgen.launching.from_python import launch
    from dsgen.linting.asked import fix, lint, migrate, survey
    from dsgen.linting.files import Linted
    from dsgen.linting.mending import Mended
    from dsgen.planning.planner import Plan
    from dsgen.proving.certificates import Verified
    from dsgen.proving.prover import Proof
    from dsgen.rendering import Config, Explanation
    from dsgen.shapes.errors import DsgenError
    from dsgen.shapes.findings import Finding
    from dsgen.simulating import Simulation

__all__ = [
    "Adoption",
    "Answer",
    "Budget",
    "Calibration",
    "Checked",
    "Comparison",
    "Config",
    "Contest",
    "DetectedMachine",
    "Diagnosis",
    "DsgenError",
    "Effective",
    "Explanation",
    "Finding",
    "Fleet",
    "Footprint",
    "Job",
    "JobFiles",
    "Layers",
    "Linted",
    "Mended",
    "Need",
    "Offer",
    "Plan",
    "Proof",
    "RunFolder",
    "Simulation",
    "Speedups",
    "Verified",
    "WhatIf",
    "adopt",
    "calibrate",
    "check",
    "compare",
    "detect",
    "diagnose",
    "diff",
    "effective",
    "fewest_gpus",
    "fix",
    "job",
    "job_files",
    "launch",
    "lint",
    "memory",
    "migrate",
    "needs",
    "overrides",
    "plan",
    "profile",
    "program_changes",
    "prove",
    "render",
    "scenario",
    "simulate",
    "site",
    "speedups",
    "survey",
    "training_time",
    "verify",
    "what_if",
    "why",
]

# Loaded on first use: a training script that only wants one name pays for no other. The rest is in dsgen.api.
_HOMES = {
    "Adoption": "dsgen.asking.adopting",
    "Answer": "dsgen.asking.questions",
    "Budget": "dsgen.asking.plan_questions.deadlines",
    "Calibration": "dsgen.asking.calibrating",
    "Checked": "dsgen.checking",
    "Comparison": "dsgen.asking.comparisons",
    "Config": "dsgen.rendering",
    "Contest": "dsgen.asking.plan_questions.contests",
    "DetectedMachine": "dsgen.catalog.detected",
    "Diagnosis": "dsgen.diagnosing",
    "DsgenError": "dsgen.shapes.errors",
    "Effective": "dsgen.effective",
    "Explanation": "dsgen.rendering",
    "Finding": "dsgen.shapes.findings",
    "Fleet": "dsgen.asking.plan_questions.deadlines",
    "Footprint": "dsgen.asking.memory_questions",
    "Job": "dsgen.jobs.job",
    "JobFiles": "dsgen.frameworks",
    "Linted": "dsgen.linting.files",
    "Mended": "dsgen.linting.mending",
    "Need": "dsgen.frameworks.needs",
    "Offer": "dsgen.asking.plan_questions.offers",
    "Plan": "dsgen.planning.planner",
    "Proof": "dsgen.proving.prover",
    "RunFolder": "dsgen.launching",
    "Simulation": "dsgen.simulating",
    "Speedups": "dsgen.asking.plan_questions.speedups",
    "Verified": "dsgen.proving.certificates",
    "WhatIf": "dsgen.asking.plan_questions.what_ifs",
    **dict.fromkeys(
        ("compare", "fewest_gpus", "program_changes", "speedups", "training_time", "what_if"),
        "dsgen.asking.plan_questions.asked",
    ),
    "diagnose": "dsgen.diagnosing.from_python",
    "diff": "dsgen.asking.comparisons",
    "fix": "dsgen.linting.asked",
    "job_files": "dsgen.frameworks.asked",
    "launch": "dsgen.launching.from_python",
    "lint": "dsgen.linting.asked",
    "migrate": "dsgen.linting.asked",
    "needs": "dsgen.frameworks.asked",
    "prove": "dsgen.asking.from_python",
    "survey": "dsgen.linting.asked",
    "verify": "dsgen.asking.from_python",
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


class _Face(ModuleType):
    """This package: a room with the name of a function (memory, effective) is imported by its path and hides it not."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in __all__ and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Face
