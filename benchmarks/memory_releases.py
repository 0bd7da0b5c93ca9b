"""How far the memory model agrees with older releases of DeepSpeed, simulated under those releases.

    python benchmarks/memory_releases.py FOLDER    simulate the scenarios below under each, record them, write the page
    python benchmarks/memory_releases.py           write docs/memory-releases.md of what is recorded

FOLDER holds an environment for each release (benchmarks/release_environments.py). The simulation was made for the
newest DeepSpeed; under older ones it runs as `dsgen simulate --force` does.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from memory_cases import Case, usual  # benchmarks/memory_cases.py, beside this script

from dsgen.jobs.releases import casts_adapters
from dsgen.memory import estimate
from dsgen.memory.reserved import Reserving
from dsgen.shapes.units import gib

__all__ = ["PAGE", "RECORD", "Row", "cases", "page", "rows"]

RECORD = Path(__file__).resolve().with_suffix(".json")
PAGE = Path(__file__).resolve().parent.parent / "docs" / "memory-releases.md"
STEPS = 3  # two make the optimizer's states and their first reuse
ENOUGH_BYTES = 1 << 44  # a card that never runs out
_BUCKET = 200_000_000  # elements: what copied configs have at stages 1 and 2
_WORDS = 110  # letters of an error that the page shows

# (model, GPUs, stage, passes of a step, tokens of a sequence, what else is not as usual)
_ROWS: tuple[tuple[str, int, int, int, int, dict[str, Any]], ...] = (
    ("llama-3.1-8b", 8, 3, 1, 4096, {}),
    ("llama-3.1-8b", 8, 3, 2, 4096, {}),
    ("qwen2.5-7b", 4, 3, 2, 8192, {"chunked_loss": True}),
    ("qwen2.5-1.5b", 8, 3, 2, 4096, {}),
    ("opt-1.3b", 8, 3, 2, 2048, {}),
    ("llama-3.1-8b", 2, 3, 2, 2048, {"offload": True}),
    ("mistral-7b", 4, 3, 2, 4096, {"method": "lora", "checkpointing": False}),
    ("mistral-7b", 4, 3, 2, 4096, {"method": "lora"}),
    ("llama-3.1-8b", 8, 2, 1, 4096, {}),
    ("llama-3.1-8b", 8, 2, 2, 4096, {}),
    ("llama-3.1-8b", 8, 1, 1, 4096, {}),
    ("llama-3.1-8b", 8, 1, 2, 4096, {}),
    ("llama-3.1-8b", 8, 2, 2, 4096, {"method": "lora"}),
    ("qwen2.5-7b", 2, 2, 4, 2048, {"method": "qlora"}),
    ("qwen2.5-1.5b", 1, 2, 4, 2048, {}),
    ("llama-3.2-3b", 2, 2, 2, 2048, {"offload": True}),
)


@attrs.frozen(kw_only=True)
class Row:
    """A scenario under a release.

    Attributes:
        release: DeepSpeed's.
        case: The scenario.
        simulated: Bytes allocated and reserved at most, and reserved with growing segments; or an error.
        counted: The same of the instant model.
    """

    release: str
    case: Case
    simulated: Mapping[str, Any]
    counted: tuple[int, int, int]

    @property
    def errors(self) -> tuple[float, float, float] | None:
        """What the instant model says too much, as a share of what was simulated."""
        names = "allocated", "reserved", "growing"
        if "error" in self.simulated:
            return None
        shares = (ours / self.simulated[name] - 1 for name, ours in zip(names, self.counted, strict=True))
        allocated, reserved, growing = shares
        return allocated, reserved, growing


def cases() -> Iterator[Case]:
    """The scenarios above, in bf16 with FlashAttention, and with checkpointing where nothing else is said."""
    for number, (model, gpus, stage, passes, length, more) in enumerate(_ROWS):
        rest = {**more}
        zero: dict[str, Any] = {"stage": stage, "overlap_comm": stage < 3}
        if stage < 3:
            zero |= {"reduce_bucket_size": _BUCKET, "allgather_bucket_size": _BUCKET}
        if rest.pop("offload", False):
            zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
        config = {
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": passes,
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
            "bf16": {"enabled": True},
            "zero_optimization": zero,
        }
        options = usual(**{"seq_len": length, "attention": "flash", "checkpointing": True, "lora_rank": 16, **rest})
        yield Case(name=f"{model} v{number + 1}", model=model, depth=None, gpus=gpus, config=config, options=options)


def rows() -> list[Row]:
    """Everything that is recorded, with the instant model's answers."""
    record = json.loads(RECORD.read_text("utf-8"))
    named = {case.name: case for case in cases()}
    return [
        Row(release=release, case=named[name], simulated=said, counted=_counted(named[name], release))
        for release, by_name in record["releases"].items()
        for name, said in by_name.items()
    ]


def _counted(case: Case, release: str) -> tuple[int, int, int]:
    """Bytes allocated, reserved, and reserved with growing segments; without cuBLAS's workspaces."""
    job, strategy = case.strategy()
    job = attrs.evolve(job, version=release)
    told = []
    wide = job.training.lora_fp32 and not casts_adapters(release)
    for growing in (False, True):
        training = attrs.evolve(job.training, expandable_segments=growing, lora_fp32=wide)
        gpu = estimate(attrs.evolve(job, training=training), strategy).gpu
        held = gpu.holds._replace(workspaces=False) if isinstance(gpu.holds, Reserving) else gpu.holds
        told.append(held().bytes if isinstance(held, Reserving) else held.bytes)
    return gpu.peak_bytes, told[0], told[1]


def page() -> str:
    """docs/memory-releases.md."""
    every = rows()
    told = [(row, row.errors) for row in every]
    known = [errors for _, errors in told if errors]
    versions = json.loads(RECORD.read_text("utf-8"))["versions"]
    used = ", ".join(f"{name} {version}" for name, version in versions.items())
    near = sum(abs(allocated) <= 3e-3 for allocated, *_ in known)
    close = [sum(abs(errors[index]) <= 0.03 for errors in known) for index in (1, 2)]
    lines = [
        "# Memory by release of DeepSpeed",
        "",
        "`--deepspeed` changes what a run takes, not only which keys it knows. These scenarios were simulated by the",
        f"real engine of each release ({used}), on a",
        "virtual GPU that never runs out, and are held against the instant model's answer for that release:",
        f"allocated is within 0.3 % in {near} of {len(known)}, reserved within 3 % in {close[0]}, with growing",
        f"segments in {close[1]}. What changed between them:",
        "",
        "- Before 0.17.2 stages 1 and 2 make the buckets of gradients before backward, beside the loss.",
        "- Before 0.18.3 stage 3 clones its weights in 16 bits and then makes them fp32.",
        "- Before 0.18.3 stages 1 and 2 move the weights of an optimizer on the CPU there without a copy on the GPU.",
        "- Before 0.18.7 stages 1 and 2 flatten weights in RAM. Since then they do it on the GPU, which leaves holes",
        "  as large as the weights: the allocator may reserve 15 GiB more for an 8B.",
        "- Before 0.19.2 adapters of a base under zero.Init are made 16-bit, which keeps 19 GiB less of a 7B without",
        "  checkpointing.",
        "- Before 0.19.3 stage 3 leaves the embedding gathered from one pass of a step to the next, and a chunked",
        "  loss the head too. The next one does not count them and takes them off when they go, so it fetches as much",
        "  more ahead: 1.0 GiB for Llama 3 8B, 2.0 for Qwen2.5 7B with a chunked loss. In 0.14 behind a step too.",
        "- Before 0.19.3 adapters at stage 3 cannot be checkpointed but in the reentrant kind: the last lines of each.",
        "",
        "- Before 0.19.0 stages 1 and 2 look for infinities in fp32 copies of a gradient that goes to the CPU, 11",
        "  bytes an element of the largest.",
        "",
        "What such runs reserve, and those of 0.14.1 to 0.16 that move fp32 weights to the GPU behind a step, is told",
        "from causes and not replayed: with the optimizer on the CPU at stages 1 and 2 it is up to a quarter more.",
        "",
        "GiB, and what the instant model says more or less. `nox -s memory-releases` simulates them again.",
        "",
    ]
    for release in dict.fromkeys(row.release for row in every):
        lines += [f"## DeepSpeed {release}", "", *_table([one for one in told if one[0].release == release]), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _table(told: Sequence[tuple[Row, tuple[float, float, float] | None]]) -> Iterator[str]:
    yield "| scenario | allocated | reserved | with growing segments |"
    yield "| --- | --- | --- | --- |"
    for row, errors in sorted(told, key=lambda one: one[1] is None):
        if errors is None:
            yield f"| {_title(row.case)} | {row.simulated['error'][:_WORDS]} | | |"
            continue
        cells = (
            f"{gib(row.simulated[name])} {error:+.1%}"
            for name, error in zip(("allocated", "reserved", "growing"), errors, strict=True)
        )
        yield f"| {_title(row.case)} | {' | '.join(cells)} |"


def _title(case: Case) -> str:
    zero, options = case.config["zero_optimization"], case.options
    passes = case.config["gradient_accumulation_steps"]
    words = [case.model, f"ZeRO-{zero['stage']}", f"{case.gpus} GPUs" if case.gpus > 1 else "1 GPU"]
    words += [f"{options['seq_len']:,} tokens", f"{passes} passes" if passes > 1 else "1 pass"]
    words += [options["method"]] if options["method"] != "full" else []
    words += ["optimizer on the CPU"] if "offload_optimizer" in zero else []
    words += ["chunked loss"] if options["chunked_loss"] else []
    words += [] if options["checkpointing"] else ["no checkpointing"]
    return ", ".join(words)


def _simulated(case: Case) -> dict[str, Any]:
    from memory_agreement import in_a_fork  # benchmarks/

    from dsgen.engine.simulate import __main__ as simulate

    asked = {**case.request(), "gpu_memory_bytes": ENOUGH_BYTES, "steps": STEPS, "force": True}
    answer = in_a_fork(simulate.answer, asked)
    if "error" in answer:
        message = str(answer["error"]["message"]).strip().splitlines()[0]
        return {"error": f"{answer['error']['type']}: {message}"}
    told = answer["peak"]["gpu"]["allocator"]
    return {
        "allocated": answer["peak"]["gpu"]["bytes"],
        "reserved": told["reserved_peak_bytes"],
        "growing": told["expandable_reserved_peak_bytes"],
    }


def _child() -> None:
    """Print what the DeepSpeed that is installed here takes, as JSON."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.update(OMP_NUM_THREADS="1", DS_ACCELERATOR="cpu")
    import torch
    import transformers

    torch.set_num_threads(1)
    found = {case.name: _simulated(case) for case in cases()}
    versions = {"torch": torch.__version__.partition("+")[0], "transformers": transformers.__version__}
    print(json.dumps({"versions": versions, "cases": found}))


def _record(folder: Path) -> None:
    record: dict[str, Any] = {"versions": {}, "releases": {}}
    for home in sorted(one for one in folder.iterdir() if (one / "bin" / "python").exists()):
        command = [str(home / "bin" / "python"), __file__, "--child"]
        ran = subprocess.run(command, check=False, capture_output=True, text=True)
        if ran.returncode:
            raise SystemExit(f"{home.name}: {ran.stderr.strip().splitlines()[-1]}")
        answer = json.loads(ran.stdout.splitlines()[-1])
        record["versions"], record["releases"][home.name] = answer["versions"], answer["cases"]
        print(home.name, flush=True)
    RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Simulate and record, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="environments of releases to simulate under")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        _child()
        return
    if options.folder:
        _record(options.folder)
    PAGE.write_text(page(), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    sys.exit(main())
