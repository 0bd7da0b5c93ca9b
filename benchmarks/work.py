"""The work that dsgen.cost.model_work says of a model, against every operator that the real class dispatches.

`python benchmarks/work.py measure` (with dsgen[simulate]) fills tests/cost/work.json, two minutes; with names of cases
it measures those again, and `print` instead of `measure` prints them. `python benchmarks/work.py compare` needs no
torch: it prints how far each case is off.

A case is a small model of benchmarks/activations.py, two sequences of 256 tokens, forward and backward without
DeepSpeed's engine. Second forwards of checkpointing count with backward.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import attrs

from dsgen.cost.model_work import ModelWork, work
from dsgen.families.hf_config import model_from_hf
from dsgen.families.tape.moments import Size
from dsgen.families.tape.work import Work
from dsgen.shapes.profiles import Model, yaml_name

BENCHMARKS = Path(__file__).parent
TABLE = BENCHMARKS.parent / "tests" / "cost" / "work.json"
MICRO_BATCH, TOKENS = 2, 256
DTYPES = {"bf16": "bfloat16", "fp32": "float32"}
PHASES = ("forward", "backward")

# precision, attention, method, checkpointing, chunked loss
PLAIN = ("bf16", "flash", "full", False, False)
RUNS = (
    ("bf16", "eager", "full", False, False),
    ("bf16", "flash", "full", True, False),
    ("bf16", "flash", "lora", False, False),
    ("bf16", "flash", "lora", True, False),
    ("bf16", "flash", "qlora", False, False),
    ("bf16", "flash", "qlora", True, False),
    ("bf16", "flash", "full", False, True),
    ("fp32", "flash", "full", False, False),
)
COMMON = ("llama", "qwen2", "qwen3", "mistral", "gemma2", "gemma3_text", "gpt2", "mixtral")
FIELDS = ("precision", "attention", "method", "checkpointing", "chunked_loss")


@functools.cache
def configs() -> dict[str, dict[str, Any]]:
    """The models."""
    if str(BENCHMARKS) not in sys.path:
        sys.path.append(str(BENCHMARKS))
    from activations import MODELS  # benchmarks/activations.py

    return dict(MODELS)


def cases() -> dict[str, dict[str, Any]]:
    """Every case by its name."""
    found = {}
    for model in configs():
        for run in (PLAIN, *(RUNS if model in COMMON else ())):
            case = {"model": model, **dict(zip(FIELDS, run, strict=True))}
            found["/".join(str(part) for part in case.values())] = case
    return found


def predicted(case: dict[str, Any]) -> ModelWork:
    """What the cost model says of a case."""
    facts = model_from_hf(configs()[case["model"]], case["model"])
    known = {one.name: facts[yaml_name(one.name)] for one in attrs.fields(Model) if one.name in facts}
    return work(Model(**known), seq_len=TOKENS, **{name: case[name] for name in FIELDS})


def told(found: ModelWork) -> dict[str, dict[str, Any]]:
    """The prediction in the form of the table."""
    return {"forward": _told(found.forward), "backward": _told(found.again.plus(found.backward))}


def _told(found: Work) -> dict[str, Any]:
    products: Counter[str] = Counter()
    for one, count in found.products:
        sizes = (_at(size) for size in (one.m, one.n, one.k, one.batch))
        products[" ".join(str(number) for number in (*sizes, one.item, one.groups))] += count
    attentions: Counter[str] = Counter()
    for call, count in found.attentions:
        shape = (call.heads, call.kv_heads, call.queries, call.keys, call.head_size, call.item)
        attentions[" ".join(str(number) for number in (call.phase, MICRO_BATCH, *shape))] += count
    return {
        "products": dict(products),
        "attentions": dict(attentions),
        "bytes": _at(found.moved()),
        "operators": found.operators,
        "views": found.views,
    }


def _at(size: Size) -> int:
    return size[0] + MICRO_BATCH * size[1]


def measure(case: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What the real class does."""
    from work_seen import seen  # benchmarks/work_seen.py

    watch = seen(
        {
            "config": {"train_micro_batch_size_per_gpu": MICRO_BATCH},
            "model": configs()[case["model"]],
            "world_size": 1,
            "seq_len": TOKENS,
            "steps": 1,
            "dtype": DTYPES[case["precision"]],
            **{name: case[name] for name in FIELDS if name != "precision"},
        }
    )
    found = {}
    for phase in PHASES:
        kernels = watch.kernels[phase]
        kinds: dict[str, dict[str, int]] = {"products": {}, "attentions": {}}
        for (kind, what), count in kernels.items():
            if kind in kinds:
                kinds[kind][" ".join(str(number) for number in what)] = count
        moved = sum(what[1] * count for (kind, what), count in kernels.items() if kind == "traffic")
        found[phase] = {**kinds, "bytes": moved, "operators": watch.operators[phase], "views": watch.views[phase]}
    return found


def differences(mine: dict[str, Any], real: dict[str, Any]) -> dict[str, float]:
    """How far a phase is off: products and attentions by how many differ, the rest as a share of what is real."""
    kinds = ("products", "attentions")
    found: dict[str, float] = {
        kind: sum(((Counter(mine[kind]) - Counter(real[kind])) | (Counter(real[kind]) - Counter(mine[kind]))).values())
        for kind in kinds
    }
    return found | {name: mine[name] / real[name] - 1 for name in ("bytes", "operators", "views")}


def _measured(case: dict[str, Any]) -> dict[str, Any]:
    """Of a process of its own: torch's device and the changes to its functions are those of one model."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        with os.fdopen(writing, "w", encoding="utf-8") as pipe:
            json.dump(measure(case), pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return dict(json.loads(text))


def measured(names: list[str]) -> dict[str, Any]:
    """What the real classes do in these cases."""
    os.environ.update(HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1", DS_ACCELERATOR="cpu", TORCH_CPP_LOG_LEVEL="ERROR")
    from dsgen.engine.simulate import runs

    runs.prepare()
    every = cases()
    return {name: _measured(every[name]) for name in names}


def update(names: list[str]) -> None:
    """Measure, and write the table."""
    table = json.loads(TABLE.read_text("utf-8")) if TABLE.exists() else {}
    table |= measured(names or list(cases()))
    lines = (f"{json.dumps(name)}: {json.dumps(table[name], separators=(',', ':'))}" for name in cases())
    TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


def main() -> None:
    """Measure, print or compare."""
    if sys.argv[1:2] == ["measure"]:
        update(sys.argv[2:])
        return
    if sys.argv[1:2] == ["print"]:
        out = os.dup(1)
        os.dup2(2, 1)  # whatever else is printed goes to stderr
        with os.fdopen(out, "w", encoding="utf-8") as file:
            json.dump(measured(sys.argv[2:]), file)
        return
    table = json.loads(TABLE.read_text("utf-8"))
    for name, case in cases().items():
        found = told(predicted(case))
        for phase in PHASES:
            off = differences(found[phase], table[name][phase])
            shares = "  ".join(f"{kind} {100 * off[kind]:+6.2f} %" for kind in ("bytes", "operators", "views"))
            print(f"{name:44} {phase:8}  products {off['products']:2}  attention {off['attentions']:2}  {shares}")


if __name__ == "__main__":
    main()
