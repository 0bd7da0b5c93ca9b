"""A program that uses the whole public face; mypy checks it, nothing runs it."""

from __future__ import annotations

from typing import Any

import dsgen

layers: dsgen.Layers = dsgen.profile("a100-40g") | dsgen.profile("7b") | {"training": {"seq_len": 8192}}
reversed_layers: dsgen.Layers = {"training": {"seq_len": 8192}} | layers
said: dsgen.Layers = dsgen.overrides({"training": {"lr": 1e-5}}) | dsgen.site({"training": {"tp": 2}})
committed: dsgen.Layers = dsgen.scenario("scenario.yaml")
nothing: dsgen.Layers = dsgen.Layers()

job: dsgen.Job = dsgen.job(layers, deepspeed="0.19")
gpus: int = job.world
tokens: int = job.seq_len

planned: dsgen.Plan = dsgen.plan(job)
same: dsgen.Plan = dsgen.plan(layers, deepspeed="0.19")
stage: int = planned.chosen.strategy.stage
peak_bytes: int = planned.chosen.memory.gpu.peak_bytes
reasons: list[str] = [rejection.why for rejection in planned.rejections]

config: dsgen.Config = dsgen.render(planned)
values: dict[str, Any] = config.to_dict()
text: str = config.to_json()
commented: str = config.to_hjson()
keys: tuple[str, ...] = config.paths()

explanation: dsgen.Explanation = config.why("zero_optimization.stage")
reason: str = explanation.reason
writers: list[str] = [str(override.origin) for override in explanation.overrides]

footprint: dsgen.Footprint = dsgen.estimate_memory(layers)
of_config: dsgen.Footprint = dsgen.estimate_memory(job, config={"train_batch_size": 8}, deepspeed="0.19")
of_file: dsgen.Footprint = dsgen.estimate_memory(job, config="ds_config.json")
verdict: str = footprint.verdict.value
high_bytes: int = footprint.memory.gpu.high_bytes
longest: int | None = footprint.counterfactuals.seq_len

try:
    dsgen.profile("no-such-card")
except dsgen.DsgenError as error:
    message: str = str(error)

simulated: dsgen.Simulation = dsgen.simulate(layers, steps=1, rank=3)
bytes_of_a_gpu: int = simulated.estimate.gpu.peak_bytes
by_hand: dsgen.Simulation = dsgen.simulate(values, model="7b", world_size=64, hardware="a100-40g", timeout_seconds=60)
