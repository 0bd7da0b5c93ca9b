"""A made-up answer of the simulating child process, small enough to read, and a program that gives it."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path
from typing import Any

GIB = 2**30
CONFIG: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 2,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "pin_memory": True}},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
}
MODEL: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}
_LOADED = {"weights": 2 * GIB}
_HELD = {"weights": 2 * GIB, "gradients": GIB}
_FORWARD = {**_HELD, "gathered parameters": 3 * GIB, "activations": 4 * GIB}
_BACKWARD = {**_HELD, "gathered parameters": 3 * GIB, "activations": 4 * GIB, "logits and loss": 2 * GIB}
_STATES = {"optimizer states": 5 * GIB, "fp32 master weights": GIB}


def _place(peak: dict[str, int], end: dict[str, int]) -> dict[str, Any]:
    return {
        "peak_bytes": sum(peak.values()),
        "peak_parts": peak,
        "end_bytes": sum(end.values()),
        "end_parts": end,
    }


def _phase(name: str, step: int, batch: int, gpu: dict[str, int], end: dict[str, int]) -> dict[str, Any]:
    host = _STATES if step else {}
    return {"phase": name, "step": step, "micro_batch": batch, "gpu": _place(gpu, end), "host": _place(host, host)}


PHASES = [
    _phase("load", 0, 0, _LOADED, _LOADED),
    _phase("init", 0, 0, _HELD, _HELD),
    *(
        _phase(name, 1, batch, peak, _HELD)
        for batch in (1, 2)
        for name, peak in (("forward", _FORWARD), ("backward", _BACKWARD))
    ),
    _phase("step", 1, 0, _HELD, _HELD),
]
ANSWER: dict[str, Any] = {
    "versions": {"deepspeed": "0.19.8", "torch": "2.13.0+cpu", "transformers": "5.23.0"},
    "engine": {
        "model": "LlamaForCausalLM",
        "wrapper": "DeepSpeedZeroOptimizer_Stage3",
        "optimizer": "DeepSpeedCPUAdam",
        "stage": 3,
        "data_parallel": 16,
        "micro_batch": 1,
        "accumulation": 2,
        "train_batch": 32,
        "parameters": 6_738_415_616,
    },
    "phases": PHASES,
    "peak": {
        "gpu": {
            "bytes": 12 * GIB,
            "phase": 3,
            "parts": _BACKWARD,
            "largest": [
                {
                    "kind": "activations",
                    "bytes": 4 * GIB,
                    "each_bytes": GIB // 8,
                    "count": 32,
                    "operator": "aten.add.Tensor",
                    "site": "transformers/models/llama/modeling_llama.py:forward:312",
                    "dtype": "bfloat16",
                    "shape": "(1, 2048, 4096)",
                },
                {
                    "kind": "logits and loss",
                    "bytes": 2 * GIB,
                    "each_bytes": 2 * GIB,
                    "count": 1,
                    "operator": "aten.cat.default",
                    "site": "",
                    "dtype": "float32",
                    "shape": "(536870912,)",
                },
            ],
            "allocator": {
                "allocated_peak_bytes": 12 * GIB + 512,
                "reserved_peak_bytes": 13 * GIB,
                "released_segments": 0,
                "out_of_memory": False,
                "least_bytes": 12 * GIB + 3 * GIB // 4,
                "shortage": {
                    "capacity_bytes": 12 * GIB,
                    "phase": "backward",
                    "step": 1,
                    "micro_batch": 1,
                    "later": False,
                    "bytes": 2 * GIB,
                    "kind": "logits and loss",
                    "site": "deepspeed/runtime/engine.py:backward:2345",
                },
                "growing_steps": 0,
                "expandable_least_bytes": 12 * GIB + GIB // 4,
                "expandable_reserved_peak_bytes": 12 * GIB + GIB // 2,
                "expandable_out_of_memory": False,
            },
        },
        "host": {
            "bytes": 6 * GIB,
            "phase": 2,
            "parts": _STATES,
            "largest": [
                {
                    "kind": "optimizer states",
                    "bytes": 5 * GIB,
                    "each_bytes": 5 * GIB,
                    "count": 1,
                    "operator": "aten.zeros_like.default",
                    "site": "deepspeed/ops/adam/cpu_adam.py:step:161",
                    "dtype": "float32",
                    "shape": "(1342177280,)",
                }
            ],
            "pinned": {"bytes": 5 * GIB, "reserved_bytes": 8 * GIB},
        },
    },
    "nvme": {},
    "timeline": {
        "gpu": [
            {"mark": mark, "event": 10 * mark, "parts": phase["gpu"]["peak_parts"]} for mark, phase in enumerate(PHASES)
        ],
        "host": [
            {"mark": mark, "event": 10 * mark, "parts": phase["host"]["peak_parts"]}
            for mark, phase in enumerate(PHASES)
        ],
    },
    "collectives": [
        {"step": 1, "phase": "forward", "kind": "all-gather", "ranks": 16, "bytes": GIB // 4, "count": 8},
        {"step": 1, "phase": "forward", "kind": "all-gather", "ranks": 16, "bytes": GIB // 2, "count": 2},
        {"step": 1, "phase": "backward", "kind": "reduce-scatter", "ranks": 16, "bytes": GIB, "count": 1},
        {"step": 1, "phase": "step", "kind": "barrier", "ranks": 16, "bytes": 1, "count": 1},
    ],
    "storages": 100,
    "seconds": 12.5,
    "rss_bytes": GIB // 2,
}


def refusal(kind: str, message: str, site: str, phase: str = "init") -> dict[str, Any]:
    """What the child answers instead when the engine raised."""
    error = {"type": kind, "message": message, "site": site, "phase": phase}
    return {"versions": ANSWER["versions"], "error": error}


def interpreter(folder: Path, body: str) -> str:
    """A program that stands where an interpreter belongs."""
    program = folder / "python"
    program.write_text(f"#!{sys.executable}\n{body}\n", encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


def answering(folder: Path, answer: Any = ANSWER) -> str:
    """An interpreter that keeps what it is asked in `asked.json`, and gives this answer."""
    (folder / "answer.json").write_text(json.dumps(answer), encoding="utf-8")
    asked, given = str(folder / "asked.json"), str(folder / "answer.json")
    return interpreter(
        folder,
        f"import sys\nopen({asked!r}, 'w').write(sys.stdin.read())\nsys.stdout.write(open({given!r}).read())",
    )


def asked(folder: Path) -> dict[str, Any]:
    """The request that the program was given."""
    found: dict[str, Any] = json.loads((folder / "asked.json").read_text(encoding="utf-8"))
    return found
