"""Start every cell of the golden matrix at its declared world size, and write benchmarks/every_cell.json and its page.

python benchmarks/every_cell.py [--record FILE] [--page]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from string import Template
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import every_release  # noqa: E402 - beside this script
import proven_ways  # noqa: E402 - beside this script

from dsgen.linting.rules import RULES  # noqa: E402
from dsgen.proving import expectations  # noqa: E402
from dsgen.proving.adaptation import tensor_parallel_degree  # noqa: E402
from dsgen.proving.worlds import StartVerdict, open_world  # noqa: E402
from dsgen.rendering import Config  # noqa: E402
from golden import cells, starts, targets, trained, trained_scenes  # noqa: E402

RESULTS = ROOT / "benchmarks" / "every_cell.json"
PAGE = ROOT / "docs" / "proven.md"
CODES = {rule.name: rule.code for rule in RULES}
PARTS = ("By ZeRO stage and offload", "By precision", "By family", "By ranks")

ABOUT = """\
## How a cell is proven

1. **Lint.** Every rule of the linter is told of the job and asked of what each target is given. None finds an
   error, and they warn of no more than the matrix or the render says itself ([below](#what-the-linter-warns-of)).
2. **Parse.** DeepSpeed's own parser is given the config at the cell's world size, with every number as
   rendered. Every written value must be held, nothing may be left to "auto", and micro-batch, accumulation
   and ranks must make the train batch. The ranks are those of the hardware's profile and the nodes, not of
   the config. The same is asked of what the other targets hand on ([below](#what-the-targets-hand-on)).
3. **Start.** `deepspeed.initialize` and two optimizer steps on a tiny model of the same family, at the
   declared number of ranks. Asserted: stage, types of parameters and masters, clipping of engine and
   optimizer, classes of optimizer, wrapper and schedule, learning rate before and after, places of states and
   parameters, elements of parameters, masters and moments that this rank holds, batch and accumulation, the
   ranks of the data-parallel and tensor-parallel groups, and that DeepSpeed read every key. Where fp16's loss
   scaler skips both steps, more follow until one counts.

## What the targets hand on

The file of `--target accelerate` (and of `--target hf-trainer --resolve`, which is the same) goes through Accelerate's
real `DeepSpeedPlugin`; that of `--target hf-trainer`, with its "auto", through the Trainer's real
`HfTrainerDeepSpeedConfig` and `TrainingArguments` at the declared world size, and then the plugin. The arguments are
those that `dsgen needs` prints. What arrives is the config, value by value, but for three things: Accelerate sets
`steps_per_print` to infinity, and adds `zero_optimization` with stage 0 and `fp16` and `bf16` with `enabled` false
where there is no such section, which is what DeepSpeed takes a missing one for (`golden/targets.py`). So the start of a
cell is that of every target. That this is sound is tested: what was handed on of random cells is started too, and all
that is observed is the same, 4 of each target in `nox`, 40 in `nox -s cells`. `nox -s cells` asks this of every cell;
`nox` of every cell for Accelerate, and of one cell of every third structure for the Trainer.

## A world of twins

A start is one process. It is one rank of the declared world, and every other rank is its twin: a sum is this
rank's tensor times the ranks, a gather is as many copies of its part (`dsgen/engine/proof/twins.py`; a test
holds each collective against gloo ranks that all hold the same). It is rank 0, the root of every broadcast; ZeRO
pads its partitions, so every rank holds as much. At stage 3 and under AutoTP gathered weights are one part over
and over, so no loss is asserted there.
The golden scenarios of 0.19 are started so too, on up to 1,024 ranks: one for each structure, world and sibling in
`nox -s cells`, one for each world in `nox`. Six of them are no start of a config alone (the program makes the
optimizer), or ask for an operator that has no stand-in here (Lion's, Adagrad's on the CPU): these are proven on real
ranks, and the test holds their words.
DeepSpeed's operators of Adam and of asynchronous files are plain torch and Python in these starts; what is
offloaded to NVMe is too small here to leave memory. Compiled operators, swapping, losses, checkpoints and
resuming are proven on real ranks: `tests/proving/test_golden_proof.py` and
`tests/proving/test_trained_alike.py`.

## Trained rightly

Ten steps on real gloo ranks have the losses of a loop of plain PyTorch on the same model and the same batches, and a
run that is saved after five steps resumes with the losses that it had, in an engine that began with other weights.
Everything is trained on two ranks and on four, AutoTP on four alone, as 2 x 2; in its own precision and in fp32:
$runs runs (`tests/proving/test_golden_trained.py`), all in `nox -s cells`, 11 of them in `nox`.

- **The structures of the matrix** ($matrix_runs runs). As it writes them, with its schedule, clipping and accumulation,
  on siblings of all $families families, deepseek_v3 and qwen3_moe at stages 1 to 3; the numbers are those of a tiny
  model. All $structures structures are trained. They are $told_apart that a training step can tell apart
  (`golden/trained.py`):
  `activation_checkpointing`, `steps_per_print`, `wall_clock_breakdown` and `stage3_gather_16bit_weights_on_model_save`
  do not reach it, which is tested with all of them, and the AutoTP degrees 2, 4 and 8 are all trained as 2 x 2.
  With NVMe and a leaf module it is fp32 alone; in fp16 a Llama stands for what has experts, as a token that is routed
  otherwise moves a loss by more than is allowed. NVMe is libaio on a real drive.
- **The golden scenarios** ($scene_runs runs of $scenes scenarios, `golden/trained_scenes.py`): what training can tell
  from the matrix and from each other. Adam, Adagrad, SGD, Lion, Muon, AdamW8bit and the program's own AdamW; no
  schedule, decay and cosine; no clipping, a static loss scale, `torch_autocast`, hpZ, AutoTP at stages 0 and 3,
  parameters alone on the CPU, the profiler with the communication logger.
- **LoRA and QLoRA** ($adapter_runs of those runs), as adapters of the real peft with the scenario's own targets and
  checkpointing, rank 8 at most: LoRA at stages 2 and 3, with parameters on the CPU, and on a mixture; QLoRA at the
  stages that it has, on the 4-bit storage of the simulator. The plain loop is plain PyTorch on the same peft model.
- **What neither writes** (`tests/proving/test_trained_alike.py`): stages 0 to 3 on the tiny Llama without a schedule,
  on 2 and 4 ranks, and no accumulation.

The plain loop has torch's AdamW, SGD and Adagrad. Of what torch has not, Lion is the formula of its paper, Muon is
DeepSpeed's own `muon_update` uncompiled, everything around it plain, and AdamW8bit is bitsandbytes' class
(`tests/helpers/plain_optimizers.py`). FusedLion, which is Lion without offload, needs a GPU and is not trained.

In fp32 the losses, of about 5.5 (7.8 on a drive with four ranks), are the same to 1e-5 (5e-7 was seen, 2e-6 with
adapters, 4e-6 on a drive), in bf16 to 1e-2 (1e-3 was seen) and in fp16 to 1e-3 (2e-4 was seen, 8e-4 on a drive):
gradients of 16 bits are rounded before they are added up. In bf16 8e-3 was seen in mixtures, whose router chooses by
rounded numbers, and 6e-3 with Adagrad, whose first step is as large for a gradient that is all rounding as for any.
AdamW8bit is compared to 5e-4 in fp32: it rounds moments in blocks of 256 elements of what it is given,
which under ZeRO is a rank's part of all weights and in the plain loop one weight; where both are given one weight, at
stage 0, the difference is 1e-6.

Not proven, because DeepSpeed 0.19.8 does not do it: a run with the optimizer on NVMe does not resume in a new engine,
for `load_checkpoint` copies the swapped files and leaves out the rest of ZeRO's load (runtime/engine.py:4456). In a
new process the swapped weights come back, without moments and step count, and what is below 1 MiB of a rank does not;
a second engine of a process keeps the weights that it began with (`tests/proving/test_resumed_from_nvme.py`, and the
rule DSG352; `dsgen prove`, which loads in the engine that saved, notes it). And three mixtures (qwen3_moe, gpt_oss,
deepseek_v3) with parameters on NVMe in 16 bits stopped, in the small buckets of these runs, with "param 19 already
assigned swap buffer id 1" (rule DSG816; none does at full size). A Llama takes their place. On a CPU that DeepSpeed
thinks too weak for fp16, parameters on NVMe come back in bf16 in an fp32 run ("expected m1 and m2 to have the same
dtype"; runtime/zero/partition_parameters.py, _set_dtype); these runs say that it takes fp16, as every GPU does, and
train.

**Gradients that NVMe loses.** With the optimizer on NVMe DeepSpeed 0.19.8 writes each gradient of 1 MiB and more to a
file of its own and reads it into the sub-group's buffer at its offset (runtime/swap_tensor/optimizer_utils.py,
`get_swap_gradient_buffers`). The offset is the elements of a rank that lie before it. Where the drive wants memory at
multiples of 512 bytes (`/sys/block/*/queue/dma_alignment` is 511; before Linux 6.0 every drive did) and the offset is
none, the read fails, and nobody is told: libaio's events are counted, their results not looked at
(ops/csrc/aio/common/deepspeed_aio_common.cpp). The optimizer steps with what lay in the buffer. A bias of 256 elements
is 64 on each of four ranks, 256 bytes: in a GPT-NeoX the next layer's attention did not train, and the loss was 0.9 off
after four updates. The runs here have sizes that keep to 512. Which gradients of a model a number of ranks loses is
counted (`dsgen/memory/lost_gradients.py`; of Qwen3 8B on 8 ranks those of 64 % of the parameters, of Llama 3 8B none),
the real engine loses those and no other (`tests/proving/test_lost_on_nvme.py`), and a render and `dsgen lint` warn of
it (DSG356). NVMe itself wants 4 bytes, RAID (md), LVM (dm) and most virtual drives want 512.

What is DeepSpeed's own, and the plain loop does the same:

- At stage 0 in bf16 it makes Adam's states by a step with zero gradients that counts, so its first update is 0.73 of
  torch's (runtime/fp16/fused_optimizer.py, `initialize_optimizer_states`); AdamW8bit's too.
- Its warm-up makes the first two steps, not the first, with the least learning rate; the cosine after it is a step
  ahead (runtime/lr_schedules.py, `get_lr_ratio`).
- "Adam" is AdamW (runtime/engine.py, `_configure_basic_optimizer`).
- Muon clips by the norm of its updates, which does not fall with the gradients: an orthogonal matrix has the root of
  its rank, so a clipping of 1.0 always clips (runtime/zero/stage3.py:1829). Parameters beside Muon's get AdamW with
  betas (0.9, 0.95) and eps 1e-10 where the config says none (runtime/zero/muon/original_muon.py).

hpZ is resumed in the same engine, five steps on, for a process can make its groups once. A QLoRA run resumes on the
base that it began with, which its program reads whenever it starts: the stand-in's scales are in no checkpoint.

## Resumed on another number of ranks

Four ranks save after five steps, DeepSpeed's own `ds_to_universal` converts, and two ranks load it (`load_universal`)
into an engine that began with other weights: the losses are those of the run that went on, stages 1 to 3, fp32, bf16
and fp16, with a schedule, the optimizer and the parameters on the CPU, tied weights, LoRA, and AutoTP 2 x 2 as 2 x 1;
and so are those of four ranks that go on where two were (stages 2 and 3). Frozen weights are not loaded from such a
checkpoint (runtime/engine.py:4660): the program of adapters loads its base, as it does whenever it starts.
`zero_to_fp32.py`, as it lies in the checkpoint, gives one file with the fp32 weights of plain PyTorch (stages 1 to 3,
to 1e-5).
`tests/proving/test_resumed_elsewhere.py`; `nox -s cells` runs all.

What DeepSpeed 0.19.8 does not do, in its words: at stages 1 and 2 the converter wants `--inject_missing_state`
("Required universal_checkpoint_info state is missing in checkpoint"), for the engine does not write it; of stage 0 it
makes nothing ("can't find *_optim_states.pt files"); and AutoTP's checkpoint is not made one file ("Expected 2 of
'*_optim_states.pt' ... but found 4 files").

## Which cells share a start

Two cells share one where these are equal:

- the structure of the config: the same keys, with the same value wherever a value chooses code (booleans,
  texts, the stage, the tensor-parallel degree; of a clipping norm or a loss scale whether it is zero);
- the world: ranks in all, and ranks of a node;
- the tiny sibling of the model: its family and its choices (tied head, biases, grouped or single key heads,
  mixture, window ...) without its sizes.

So they differ in numbers alone, and their numbers are what the parser checks for each. That this is sound is
tested: random cells that share a start are started one by one and must give the same verdict, 12 in `nox`,
200 in `nox -s cells`. `nox -s cells` makes all the starts; `nox` a cover of them, in which every structure meets
each world and each sibling that it has, though not all three together."""


WARNED = """\
Of so many of the distinct configs, target by target. Each warning is true, and is said elsewhere too: the row of the
matrix is uncertain (DSG800, DSG801), the render says that such a run does not resume (DSG352) and which gradients some
drives lose (DSG356), and what the Trainer or Accelerate saves at stage 3 has no weights where the RAM of the node
cannot gather them (DSG351)."""


def kinds(cell: cells.Cell, config: dict[str, Any], family: str) -> tuple[str, ...]:
    """What a cell is, for each of PARTS."""
    optimizer, parameters = expectations.optimizer_place(config), expectations.parameter_place(config)
    places = [f"{what} on {place}" for what, place in (("optimizer", optimizer), ("parameters", parameters))
              if place != "accelerator"]  # fmt: skip
    tp = tensor_parallel_degree(config)
    stage = [f"stage {expectations.stage(config)}", *([f"AutoTP {tp}"] if tp > 1 else []), *places]
    ranks, local = starts.worlds(cell)
    return ", ".join(stage), expectations.parameter_dtype(config), family, f"{ranks} ({ranks // local} x {local})"


def run(record: Path) -> dict[str, Any]:
    """Start and parse everything; exit with what did not come through."""
    configs = cells.configs()
    shares = starts.shares(configs)
    began, wrong = time.monotonic(), []
    with open_world() as world:
        known = starts.Record(record, world.versions)
        for share in starts.progress(shares):
            one = starts.start_of(share.cells[0], configs)
            verdict = StartVerdict(error=None) if one in known else world.start(one)
            if verdict.why:
                wrong.append(f"{share.cells[0].name}: {verdict.why}")
            else:
                known.keep(one)
        made = starts.rendered(starts.declared())
        parsed = {target: starts.parse_all(world, configs, target) for target in ("deepspeed", "accelerate")}
        parsed["hf-trainer"] = starts.parse_filled(world, made)
        versions = world.versions
    for target, told in parsed.items():
        for (sha, ranks), one in told.items():
            if why := one.why or ", ".join(targets.differing(configs[sha], one.given)):
                wrong.append(f"{sha} on {ranks}, {target}: {why}")
    for target in targets.TARGETS:
        for (sha, ranks), config in made.items():
            wrong += [
                f"{sha} on {ranks}, {target}: the linter warns: {rule}" for rule in targets.unforeseen(config, target)
            ]
    if wrong:
        sys.exit("\n".join([*wrong[:40], f"{len(wrong)} did not come through"]))
    print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)
    return {
        "versions": versions,
        **standing(shares, configs),
        "parsed": {target: len(told) for target, told in parsed.items()},
        "warned": warned(made.values()),
    }


def standing(shares: Sequence[starts.Share], configs: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The part of the record that the committed matrix alone says: what is to be started, and how much of each kind."""
    count: list[Counter[str]] = [Counter() for _ in PARTS]
    begun: list[Counter[str]] = [Counter() for _ in PARTS]
    for share in shares:
        first = share.cells[0]
        family = json.loads(starts.model_of(first.model))["model_type"]
        for place, kind in enumerate(kinds(first, configs[first.sha], family)):
            begun[place][kind] += 1
            count[place][kind] += len(share.cells)
    every = sorted([cell.sha, starts.worlds(cell), starts.model_of(cell.model)] for cell in cells.cells())
    return {
        "matrix_sha256": hashlib.sha256(json.dumps(every).encode()).hexdigest(),
        "cells": sum(len(share.cells) for share in shares),
        "configs": len(configs),
        "structures": len({starts.structure(config) for config in configs.values()}),
        "starts": len(shares),
        "parts": {
            part: {kind: [count[place][kind], begun[place][kind]] for kind in sorted(count[place], key=_order)}
            for place, part in enumerate(PARTS)
        },
    }


def warned(made: Collection[Config]) -> dict[str, dict[str, int]]:
    """Rule -> target -> of how many configs it warns."""
    said = {target: [_once(config, target) for config in made] for target in targets.TARGETS}
    told = {target: Counter(rule for rules in every for rule in rules) for target, every in said.items()}
    rules = sorted({rule for rules in told.values() for rule in rules})
    return {rule: {target: told[target][rule] for target in targets.TARGETS} for rule in rules}


def _once(config: Config, target: str) -> set[str]:
    """The rules that warn."""
    return {one.rule for one in targets.warnings(config, target)}


def trained_counts() -> dict[str, int]:
    """What is trained on real ranks: structures that training can tell apart, scenarios, and runs."""
    configs = cells.configs()
    matrix = trained.cases(starts.shares(configs), configs)
    more = trained_scenes.cases(matrix)
    return {
        "structures": sum(case.stands_for for case in matrix),
        "told_apart": sum(case.stands_for > 0 for case in matrix),
        "runs": len(matrix) + len(more),
        "matrix_runs": len(matrix),
        "scene_runs": len(more),
        "scenes": len({case.name.split(",")[0] for case in more}),
        "adapter_runs": sum(case.adapters is not None for case in more),
    }


def _order(kind: str) -> tuple[int, str]:
    number = kind.split(" ", 1)[0]
    return (int(number), "") if number.isdigit() else (0, kind)


def page(results: dict[str, Any]) -> str:
    """docs/proven.md."""
    counts = trained_counts()
    versions = ", ".join(f"{name} {version}" for name, version in sorted(results["versions"].items()))
    lines = [
        "# What is proven, and how",
        "",
        f"All {results['cells']:,} cells of the golden matrix that have a config (hardware x model x cluster)",
        f"were started and parsed with {versions}.",
        "This page is made of `benchmarks/every_cell.json`, the record of `nox -s cells -- update`, and of the other",
        "records that it names.",
        "",
        *proven_ways.table({**results, "trained": counts}, json.loads(every_release.RECORD.read_text("utf-8"))),
        "",
        "| | |",
        "|---|---:|",
        f"| cells | {results['cells']:,} |",
        f"| distinct configs | {results['configs']:,} |",
        f"| distinct structures | {results['structures']:,} |",
        f"| starts | {results['starts']:,} |",
        *(f"| configs parsed, target {name} | {number:,} |" for name, number in results["parsed"].items()),
        "",
        Template(ABOUT).substitute(counts, families=len(results["parts"]["By family"])),
        "",
        "## What the linter warns of",
        "",
        WARNED,
        "",
        f"| rule | {' | '.join(targets.TARGETS)} |",
        f"|---|{'---:|' * len(targets.TARGETS)}",
        *(f"| {CODES[rule]} {rule} | {' | '.join(f'{number:,}' for number in told.values())} |"
          for rule, told in results["warned"].items()),
    ]  # fmt: skip
    for part, kinds_of in results["parts"].items():
        lines += ["", f"## {part}", "", "| | cells | starts |", "|---|---:|---:|"]
        lines += [f"| {kind} | {number:,} | {begun:,} |" for kind, (number, begun) in kinds_of.items()]
    lines += every_release.section(json.loads(every_release.RECORD.read_text("utf-8")))
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run, or with --page write the page of the committed record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", type=Path, default=ROOT / ".dsgen-cells", help="starts that came through: resume")
    parser.add_argument("--page", action="store_true", help="start nothing; write the page again")
    said = parser.parse_args()
    if not said.page:
        RESULTS.write_text(json.dumps(run(said.record), indent=1) + "\n", "utf-8")
    PAGE.write_text(page(json.loads(RESULTS.read_text("utf-8"))), "utf-8")


if __name__ == "__main__":
    main()
