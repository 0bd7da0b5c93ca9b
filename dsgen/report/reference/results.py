"""What dsgen computes from a profile, for its page: the parameters of a model, the plans of a hardware."""

from __future__ import annotations

from dsgen import catalog
from dsgen.families.parameters import active_parameter_count, parameter_count
from dsgen.jobs.assembly import assemble
from dsgen.jobs.job import Job
from dsgen.jobs.scenarios import Scenario, layers
from dsgen.planning.planner import plan
from dsgen.report.bars import rounded
from dsgen.report.reference.markdown import cell, fence, md_table
from dsgen.shapes.errors import DsgenError
from dsgen.shapes.units import gib
from dsgen.strategies.strategies import describe

__all__ = ["counts", "plans"]

MODELS = ("7b", "70b")  # one that a node trains with ease, and one that a node hardly holds
ANY_HARDWARE = "a100-80g"  # a Job needs one to be assembled; the counts do not depend on it
BYTES_16BIT = 2  # of one parameter in bf16 or fp16


def counts(profile: catalog.Profile) -> str:
    """The section of a model's page that says how many parameters it has."""
    model = _job(ANY_HARDWARE, profile.name).model
    total, active = parameter_count(model), active_parameter_count(model)
    rows = [["all", f"{total:,}", f"{gib(total * BYTES_16BIT)} GiB"]]
    if active != total:
        rows.append(["used by one token", f"{active:,}", f"{gib(active * BYTES_16BIT)} GiB"])
    return f"## Parameters\n\n{md_table(['which', 'parameters', 'in 16 bits'], rows)}"


def plans(profile: catalog.Profile) -> str:
    """The section of a hardware's page that says how one full node of it trains the generic models."""
    rows, failures = [], []
    for model in MODELS:
        try:
            planned = plan(_job(profile.name, model))
        except DsgenError as error:
            rows.append([_link(model), "fits nowhere, see below", "", "", ""])
            failures.append(fence(str(error)))
            continue
        chosen, memory = planned.chosen.strategy, planned.chosen.memory.gpu
        replicas = planned.job.world // chosen.tp
        batch = f"{chosen.micro_batch} x {replicas} x {chosen.accumulation} = {chosen.global_batch}"
        fit = f"{gib(memory.needed_bytes)} of {gib(memory.limit_bytes)} GiB, {memory.verdict.value}"
        rows.append([_link(model), cell(describe(chosen)), batch, fit, rounded(planned.chosen.speed)])
    heads = ["model", "strategy", "micro-batch x replicas x accumulation", "GPU memory", "tokens/s/GPU"]
    gpus = _job(profile.name, MODELS[0]).world
    node = f"One full node ({gpus} GPU{'s' if gpus > 1 else ''}), nothing else said: "
    node += f"`dsgen plan --hw {profile.name} --model {MODELS[0]}`."
    return "\n".join([f"## Plans\n\n{node}\n", md_table(heads, rows), *failures])


def _link(model: str) -> str:
    return f"[{model}](../model/{model}.md)"


def _job(hardware: str, model: str) -> Job:
    return assemble(layers(Scenario(profiles={"hardware": (hardware,), "model": (model,)})))
