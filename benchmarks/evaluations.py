"""How far the memory of an evaluation that dsgen says agrees with the simulation of the real DeepSpeed.

    python benchmarks/evaluations.py --update [--only NAME ...]   simulate what is not simulated yet, and record it
    python benchmarks/evaluations.py                              print the errors of what is recorded

Scenarios are drawn from those of memory_cases.py, a few blocks deep, each with a batch to evaluate behind two steps of
training. evaluations.json holds what the simulation said; docs/memory.md has the sums. --update needs dsgen[simulate].
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import attrs
from memory_agreement import in_a_fork  # benchmarks/, beside this script
from memory_cases import Case, later
from memory_cases_apart import of_mixtures, of_types

from dsgen.memory.evaluating import Evaluation, evaluation

__all__ = ["Evaluated", "drawn", "evaluated"]

RECORD = Path(__file__).resolve().parent / "evaluations.json"
COUNT = 48
BATCHES = (1, 3, 8)  # sequences, in turn


class Evaluated(NamedTuple):
    """One scenario with what the simulation counted of its evaluation, and what dsgen says.

    Attributes:
        case: The scenario.
        sequences: Of the batch.
        simulated: Part -> bytes at the evaluation's peak; empty where the simulation ended with an error.
        left: Bytes that the pass behind an evaluation has gathered more than the one that follows, as simulated.
        ours: What dsgen says; None where it does not count it.
    """

    case: Case
    sequences: int
    simulated: Mapping[str, int]
    left: int
    ours: Evaluation | None

    @property
    def error(self) -> float:
        """Signed error of the peak, as a share of the simulated one."""
        return self.ours.peak_bytes / sum(self.simulated.values()) - 1 if self.ours and self.simulated else 0.0


def drawn() -> Iterator[tuple[Case, int]]:
    """Scenarios and how many sequences each evaluates, by a hash of their names.

    At stage 3 each has two passes a step: of what an evaluation leaves the second one shows nothing.
    """
    known = {case.name: case for case in (*later(), *of_types(), *of_mixtures())}
    named = sorted(known, key=lambda name: hashlib.sha256(name.encode()).hexdigest())[:COUNT]
    return ((_twice(known[name]), BATCHES[number % len(BATCHES)]) for number, name in enumerate(named))


def _twice(case: Case) -> Case:
    if case.config.get("zero_optimization", {}).get("stage") != 3:
        return case
    return attrs.evolve(case, config={**case.config, "gradient_accumulation_steps": 2})


def evaluated() -> list[Evaluated]:
    """Every recorded scenario beside what dsgen says."""
    rows = json.loads(RECORD.read_text(encoding="utf-8"))["cases"]
    known = {row["name"]: row for row in rows}
    made = []
    for case, sequences in drawn():
        if (row := known.get(case.name)) is not None:
            ours = evaluation(*case.strategy(), sequences)
            made.append(Evaluated(case, sequences, row["parts"], row["left"], ours))
    return made


def main() -> None:
    """Simulate and record, or print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help="simulate what is missing and record it")
    parser.add_argument("--only", nargs="*", default=(), help="scenarios to simulate again")
    options = parser.parse_args()
    if options.update:
        _update(set(options.only))
    made = evaluated()
    for one in sorted(made, key=lambda item: abs(item.error)):
        left = (one.ours.left_bytes if one.ours else 0, one.left)
        parts = {name: (one.ours.parts.get(name, 0) if one.ours else 0, size) for name, size in one.simulated.items()}
        wrong = {name: both for name, both in parts.items() if abs(both[0] - both[1]) > 0.001 * max(1, both[1])}
        print(f"{one.case.name:26} x{one.sequences} {one.error:+8.3%}  left {left[0]} {left[1]}  {wrong}")
    sizes = [abs(one.error) for one in made if one.simulated and one.ours]
    print(f"{len(sizes)} counted: median {statistics.median(sizes):.3%}, worst {max(sizes):.3%}")


def _update(again: set[str]) -> None:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.update(OMP_NUM_THREADS="1", DS_ACCELERATOR="cpu")
    import torch
    import transformers.modeling_utils  # noqa: F401

    from dsgen.engine.simulate import __main__ as simulate

    torch.set_num_threads(1)
    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {"versions": {}, "cases": []}
    known = {row["name"]: row for row in record["cases"] if row["name"] not in again}
    for case, sequences in drawn():
        asked = {**attrs.asdict(case), "evaluation": sequences}
        row = known.get(case.name)
        if row is None or row["asked"] != asked:
            answer = in_a_fork(simulate.answer, {**case.request(), "steps": 3, "evaluation": sequences})
            record["versions"] = answer.get("versions") or record["versions"]
            known[case.name] = {"name": case.name, "asked": asked, **_compact(answer)}
            print(case.name, known[case.name].get("error", ""), flush=True)
            lines = ",\n".join(json.dumps(row) for row in known.values())
            versions = json.dumps(record["versions"])
            RECORD.write_text(f'{{"versions": {versions},\n"cases": [\n{lines}\n]}}\n', encoding="utf-8")


def _compact(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The peak of the last evaluation; and what the pass behind one has gathered more than the same without one."""
    if "error" in answer:
        return {"parts": {}, "left": 0, "error": f"{answer['error']['type']}: {answer['error']['message']}"[:300]}
    phases = [one for one in answer["phases"] if one["phase"] in ("evaluate", "forward")]
    last = [one for one in phases if one["phase"] == "evaluate"][-1]
    passes = [one["gpu"]["peak_parts"].get("gathered parameters", 0) for one in phases if one["step"] == 3]
    return {"parts": last["gpu"]["peak_parts"], "left": passes[0] - passes[1] if len(passes) > 2 else 0}


if __name__ == "__main__":
    main()
