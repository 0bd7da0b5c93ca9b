"""The rules of thumb and estimators that people use, ours, and what the real engine holds, on the same cases.

    python benchmarks/estimators.py [--update] [--recorded]

Prints the tables of docs/memory.md, or with --update writes them into it and records what the engine held in
benchmarks/estimators.json, which --recorded takes instead of running the engine again. DeepSpeed's and Accelerate's own
functions are called; formulas of papers and guides are written out below with their source. The truth is `dsgen
simulate`: the real DeepSpeed at true size on a virtual GPU. Takes about a minute a case.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import attrs

import dsgen
from dsgen import simulating
from dsgen.families.parameters import parameters
from dsgen.shapes.profiles import Model

__all__ = ["CASES", "Case", "Guess", "guesses", "page"]

PAGE = Path(__file__).resolve().parent.parent / "docs" / "memory.md"
RECORD = Path(__file__).resolve().parent / "estimators.json"
BEGIN, END = "<!-- benchmarks/estimators.py -->", "<!-- end -->"
GIB = 2**30
FP32 = 4  # bytes an element, as Accelerate counts a model
HARDWARE = "a100-80g"
PACKAGES = ("deepspeed", "torch", "transformers", "accelerate", "peft")
# Both add up to 16 bytes a parameter: 2 of weights, 2 of gradients, 12 of Adam and the fp32 master weights.
_WEIGHTS, _GRADIENTS, _STATES = 2, 2, 12
_HUGGING_FACE = 18  # bytes a parameter: 6 of weights, 8 of Adam, 4 of gradients
_RECOMPUTED, _KEPT = 2, 34  # bytes an element of the residual stream and block, at t = 1
# What each method is, and where it comes from.
METHODS = {
    "DeepSpeed": "`estimate_zero2_model_states_mem_needs` and `estimate_zero3_model_states_mem_needs` of the installed "
    "DeepSpeed; without ZeRO it has none.",
    "accelerate": "`estimate_training_usage` of the installed Accelerate, as `accelerate estimate-memory` prints it "
    "(training with Adam, in bf16).",
    "ZeRO paper": "Rajbhandari et al., [ZeRO](https://arxiv.org/abs/1910.02054), section 5: 16 bytes a parameter, of "
    "which each stage shares out a part.",
    "18 bytes": "Hugging Face, [Model training anatomy](https://huggingface.co/docs/transformers/"
    "model_memory_anatomy): 18 bytes a parameter, on one GPU.",
    "EleutherAI": "Quentin Anthony et al., [Transformer Math 101](https://blog.eleuther.ai/transformer-math/): the "
    "above, and activations from `s`, `b`, `h` and `L`.",
    "dsgen": "`dsgen memory`: the peak, without what no tensor holds.",
}


@attrs.frozen(kw_only=True)
class Case:
    """One training run."""

    model: str
    gpus: int = 8
    stage: int = 2
    offload_optimizer: bool = False
    offload_param: bool = False
    micro_batch: int = 1
    seq_len: int = 4096
    checkpointing: bool = True
    method: str = "full"

    @property
    def title(self) -> str:
        """The case in words."""
        moved = " + CPU parameters" if self.offload_param else ""
        moved = f"{' + CPU optimizer' if self.offload_optimizer else ''}{moved}"
        kind = "" if self.method == "full" else f", {self.method}"
        kept = "" if self.checkpointing else ", activations kept"
        return (
            f"{self.model}{kind}, {self.gpus} GPU{'s' if self.gpus > 1 else ''}, ZeRO-{self.stage}{moved}, "
            f"{self.micro_batch} x {self.seq_len}{kept}"
        )

    @property
    def config(self) -> dict[str, Any]:
        """The DeepSpeed config, with DeepSpeed's own default of everything else."""
        zero: dict[str, Any] = {"stage": self.stage}
        if self.offload_optimizer:
            zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
        if self.offload_param:
            zero["offload_param"] = {"device": "cpu", "pin_memory": True}
        return {
            "train_micro_batch_size_per_gpu": self.micro_batch,
            "gradient_accumulation_steps": 1,
            "bf16": {"enabled": True},
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
            "zero_optimization": zero,
        }


CASES = (
    Case(model="llama-3.2-1b", gpus=1, stage=0, micro_batch=4, seq_len=2048, checkpointing=False),
    Case(model="llama-2-7b", stage=1, micro_batch=2),
    Case(model="llama-2-7b", stage=2, micro_batch=2),
    Case(model="llama-2-7b", stage=2, offload_optimizer=True, micro_batch=4),
    Case(model="llama-2-7b", stage=3, micro_batch=4),
    Case(model="llama-2-7b", stage=3, offload_optimizer=True, offload_param=True, micro_batch=4),
    Case(model="qwen2.5-1.5b", gpus=4, stage=2, micro_batch=8, seq_len=2048),
    Case(model="llama-3-8b", gpus=2, stage=2, micro_batch=2, seq_len=8192, method="lora"),
)


@attrs.frozen
class Guess:
    """Bytes on one GPU, and in the RAM of one node where the method says something of it."""

    gpu: int
    host: int | None = None


def job(case: Case) -> dsgen.Job:
    """The job of a case."""
    training = {
        "seq_len": case.seq_len,
        "method": case.method,
        "checkpointing": "full" if case.checkpointing else "none",
    }
    return dsgen.job(
        dsgen.profile(HARDWARE) | dsgen.profile(case.model) | {"cluster": {"gpus": case.gpus}, "training": training}
    )


def truth(case: Case) -> Guess:
    """What the real engine holds at its peak on a virtual GPU; of the host without the processes themselves."""
    request = simulating.from_config(
        case.config,
        model=case.model,
        world_size=case.gpus,
        hardware=job(case).hardware,
        options=simulating.Options(
            seq_len=case.seq_len, checkpointing="full" if case.checkpointing else "none", method=case.method
        ),
    )
    found = simulating.simulate(request)
    return Guess(found.estimate.gpu.peak_bytes, found.estimate.host.peak_bytes)


def guesses(case: Case) -> dict[str, Guess | None]:
    """Every method's answer; None where it has none."""
    model = job(case).model
    total = sum(item.numel * item.repeats for item in parameters(model))
    return {
        "DeepSpeed": _deepspeed(case, total, max(item.numel for item in parameters(model))),
        "accelerate": _accelerate(total),
        "ZeRO paper": Guess(_states(case, total)),
        "18 bytes": Guess(_HUGGING_FACE * total),
        "EleutherAI": Guess(_states(case, total) + _activations(case, model)),
        "dsgen": _dsgen(case),
    }


def _deepspeed(case: Case, total: int, largest: int) -> Guess | None:
    from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs as zero3
    from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs as zero2

    if case.stage < 2:
        return None
    if case.stage == 2:
        host, gpu = zero2(total, num_gpus_per_node=case.gpus, cpu_offload=case.offload_optimizer)
    else:
        host, gpu, _ = zero3(
            total,
            largest,
            num_gpus_per_node=case.gpus,
            cpu_offload=case.offload_optimizer,
            cpu_offload_params=case.offload_param,
            zero_init=True,
        )
    return Guess(gpu, host)


def _accelerate(total: int) -> Guess:
    from accelerate.commands.estimate import estimate_training_usage

    return Guess(int(max(estimate_training_usage(FP32 * total, "bfloat16").values())))


def _states(case: Case, total: int) -> int:
    """ZeRO, figure 1 and section 5: each stage shares out one more of states, gradients and weights."""
    shares = [case.gpus if case.stage >= stage else 1 for stage in (3, 2, 1)]  # of weights, gradients, states
    places = [case.offload_param, case.offload_optimizer, case.offload_optimizer]
    each = zip((_WEIGHTS, _GRADIENTS, _STATES), shares, places, strict=True)
    return int(sum(size * total / share for size, share, moved in each if not moved))


def _activations(case: Case, model: Model) -> int:
    """Transformer Math 101: 2sbhL with full recomputation, else sbhL(10 + 24/t) where attention keeps no scores."""
    tokens = case.seq_len * case.micro_batch * model.hidden_size * model.layers
    return tokens * (_RECOMPUTED if case.checkpointing else _KEPT)


def _dsgen(case: Case) -> Guess:
    memory = dsgen.memory(job(case), config=case.config).memory
    processes = sum(size for name, size in memory.host.parts.items() if name == "processes")
    return Guess(memory.gpu.peak_bytes, memory.host.peak_bytes - processes)


def page(found: dict[Case, tuple[Guess, dict[str, Guess | None]]], versions: dict[str, str]) -> str:
    """The tables in Markdown, with the versions that made them."""
    made_with = ", ".join(f"{name} {version}" for name, version in versions.items())
    lines = [f"Made with {made_with}.", "", "GiB on one GPU, and how far each is from the engine:", ""]
    lines += _rows(found, "gpu")
    lines += ["", "GiB in the RAM of one node, without the processes themselves:", "", *_rows(found, "host"), ""]
    return "\n".join([*lines, *(f"- {name}: {what}" for name, what in METHODS.items())])


def _rows(found: dict[Case, tuple[Guess, dict[str, Guess | None]]], place: str) -> list[str]:
    shown = [name for name in METHODS if any(_size(guess[name], place) is not None for _, guess in found.values())]
    heads = ["case", "engine", *shown]
    rows = [heads, ["---"] * len(heads)]
    for case, (real, guess) in found.items():
        true = _size(real, place) or 0
        rows.append([case.title, f"{true / GIB:.1f}", *(_cell(_size(guess[name], place), true) for name in shown)])
    return [f"| {' | '.join(row)} |" for row in rows]


def _size(guess: Guess | None, place: str) -> int | None:
    size: int | None = getattr(guess, place) if guess is not None else None
    return size


def _cell(size: int | None, true: int) -> str:
    if size is None:
        return "-"
    error = round(100 * (size / true - 1))
    return f"{size / GIB:.1f} ({error:+d} %)" if error else f"{size / GIB:.1f} (0 %)"


def recorded() -> dict[str, Any]:
    """What the engine held when it was last run: versions, and case -> bytes of each place."""
    found: dict[str, Any] = json.loads(RECORD.read_text("utf-8"))
    return found


def run() -> dict[str, Any]:
    """Run the engine on every case; the same shape as `recorded`."""
    cases = {}
    for case in CASES:
        print(case.title, file=sys.stderr)
        cases[case.title] = attrs.asdict(truth(case))
    return {"versions": {name: metadata.version(name) for name in PACKAGES}, "cases": cases}


def main() -> None:
    """Compare every case; print the tables, or write them into the page."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--update", action="store_true", help="write docs/memory.md and benchmarks/estimators.json")
    options.add_argument("--recorded", action="store_true", help="take what the engine held from the record")
    chosen = options.parse_args()
    engine = recorded() if chosen.recorded else run()
    with contextlib.redirect_stdout(sys.stderr):  # DeepSpeed logs to stdout
        found = {case: (Guess(**engine["cases"][case.title]), guesses(case)) for case in CASES}
    tables = page(found, engine["versions"])
    if not chosen.update:
        print(tables)
        return
    RECORD.write_text(f"{json.dumps(engine, indent=2)}\n", encoding="utf-8")
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{tables}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
