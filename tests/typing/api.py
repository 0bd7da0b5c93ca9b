"""A program that uses the whole public face; mypy checks it, nothing runs it."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dsgen

layers: dsgen.Layers = dsgen.profile("a100-40g") | dsgen.profile("7b") | {"training": {"seq_len": 8192}}
reversed_layers: dsgen.Layers = {"training": {"seq_len": 8192}} | layers
wishes: dsgen.Layers = dsgen.overrides({"training": {"lr": 1e-5}}) | dsgen.site({"training": {"tp": 2}})
committed: dsgen.Layers = dsgen.scenario("scenario.yaml") | dsgen.scenario(Path("site.yaml"))
as_dict: dict[str, Any] = {"hw": "a100-40g", "model": "7b", "seq_len": 8192, "set": {"training.lr": 1e-5}}
spelled: dsgen.Layers = dsgen.scenario(as_dict)
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
mapping: Mapping[str, Any] = config
stage_in_config: int = config["zero_optimization"]["stage"]
of_dict: dsgen.Config = dsgen.render(as_dict, deepspeed="0.19")
same_plan: dsgen.Plan = dsgen.plan(config)
config.write("ds_config.json")
config.write(Path("ds_config.json"))

explanation: dsgen.Explanation = config.why("zero_optimization.stage")
reason: str = explanation.reason
writers: list[str] = [str(override.origin) for override in explanation.overrides]

footprint: dsgen.Footprint = dsgen.memory(layers, every=True)
of_config: dsgen.Footprint = dsgen.memory(job, config={"train_batch_size": 8}, deepspeed="0.19")
of_file: dsgen.Footprint = dsgen.memory(job, config="ds_config.json")
verdict: str = footprint.verdict.value
high_bytes: int = footprint.memory.gpu.high_bytes
longest: int | None = footprint.counterfactuals.seq_len

faster: dsgen.Speedups = dsgen.speedups(layers, "ds_config.json", deepspeed="0.19")
gains: dict[str, float] = {", ".join(one.words): one.gain for one in faster.changes}
to_write: list[Mapping[str, Any]] = [one.keys for one in faster.changes]

contest: dsgen.Contest = dsgen.compare(layers, "zero3", "zero1,tp=4", deepspeed="0.19")
named: list[str] = [one.name for one in contest.contestants if one.fits]

varied: dsgen.WhatIf = dsgen.what_if(as_dict, "network", ["ethernet-25g", "ib-hdr-200g"], deepspeed="0.19")
of_a_file: dsgen.WhatIf = dsgen.what_if(Path("scenario.yaml"), "seq_len", (4096, 8192))
turns: list[tuple[str, str]] = [(turn.last, turn.after) for turn in varied.turns]

offered: tuple[dsgen.Offer, ...] = dsgen.program_changes(layers, deepspeed="0.19")
options: list[tuple[str, float]] = [(one.change.option, one.gain) for one in offered]

budget: dsgen.Budget = dsgen.fewest_gpus(as_dict, tokens="300B", deadline="7d")
by_number: dsgen.Budget = dsgen.fewest_gpus(as_dict, 3e11, datetime.timedelta(days=7), deepspeed="0.19")
gpu_hours: float = budget.fewest.gpu_hours
price: float | None = budget.fewest.price
fleet: dsgen.Fleet = dsgen.training_time(planned, 3e11)
between: tuple[float, float] = fleet.interval

calibrated: dsgen.Calibration = dsgen.calibrate(layers, step_seconds=12.3)
of_what_ran: dsgen.Calibration = dsgen.calibrate(
    as_dict, step_seconds=12, peak_gib=31.5, peak_of="reserved", config="ds_config.json", deepspeed="0.19"
)
step_ratio: float = calibrated.step_time_ratio
memory_ratio: float | None = of_what_ran.peak_memory_ratio
in_yaml: str = calibrated.profile()
calibrated.write("my-box.yaml", force=True)

launched: dsgen.RunFolder = dsgen.launch(layers, launcher="slurm", folder="runs/one", script="train.py")
of_a_module: dsgen.RunFolder = dsgen.launch(
    as_dict, launcher="torchrun", folder="runs/two", module="my.train", target="hf-trainer", arguments=["--a", "b"]
)
next_command: str = launched.start()
of_a_module.write(force=True)

try:
    dsgen.profile("no-such-card")
except dsgen.DsgenError as error:
    message: str = str(error)
    said: tuple[str, str | None, str | None, str | None] = (error.what, error.must, error.where, error.todo)
    is_unknown: bool = error.code == "unknown-name"
    each: list[str] = [one.sentence for one in error.mistakes]

answer: dsgen.Answer = dsgen.why(as_dict, "zero_optimization.stage")
others: list[Any] = [other.value for other in answer.alternatives]

linted: dsgen.Linted = dsgen.lint("ds_config.json", target="hf-trainer", world_size=8, select=["DSG1"], severity="info")
findings: tuple[dsgen.Finding, ...] = dsgen.lint(config).findings
tree: tuple[dsgen.Linted, ...] = dsgen.survey("configs", Path("more"), deepspeed="0.18")
mended: dsgen.Mended = dsgen.fix(linted, unsafe=True)
new: Mapping[str, Any] = dsgen.fix(values).config
patch: str = dsgen.migrate(Path("ds_config.json"), "0.19").diff()
mended.write()

compared: dsgen.Comparison = dsgen.diff(config, "ds_config.json")
paths: list[str] = [difference.path for difference in compared.differences]
loaded: dsgen.Effective = dsgen.effective(config, world_size=8, timeout_seconds=60)
refused: bool = loaded.refused is not None
proof: dsgen.Proof = dsgen.prove("ds_config.json", ranks=2, device="cpu", steps=1)
verified: dsgen.Verified = dsgen.verify("proof.json", {"train_batch_size": 8}, target="hf-trainer")
outcome: str = proof.outcome

simulated: dsgen.Simulation = dsgen.simulate(layers, steps=1, rank=3, seq_len=512, attention="sdpa", method="lora")
bytes_of_a_gpu: int = simulated.estimate.gpu.peak_bytes
by_hand: dsgen.Simulation = dsgen.simulate(values, model="7b", world_size=64, hardware="a100-40g", timeout_seconds=60)
