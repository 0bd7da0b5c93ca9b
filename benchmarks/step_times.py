"""How far the instant cost of a step agrees with the simulated one, scenario by scenario.

    python benchmarks/step_times.py --update [--only NAME ...]   simulate what is not simulated yet, and record it
    python benchmarks/step_times.py --page                       write docs/step-times.md
    python benchmarks/step_times.py                              print the errors of what is recorded

The scenarios are those of step_time_cases.py. tests/cost/step_times.json holds the seconds of each step as the replayed
queues of the real DeepSpeed tell them, by parts, with the collectives; they change with the laws of kernels, so that
`--update --only all` simulates anew what those change. Needs dsgen[simulate] for --update, some forty minutes in all.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import attrs
from memory_agreement import in_a_fork  # benchmarks/memory_agreement.py, beside this script
from step_time_cases import TimedCase, timed_cases

from dsgen.cost import StepCost, cost
from dsgen.cost.communication import exchanges
from dsgen.cost.sample_lengths import sees
from dsgen.cost.tensor_parallel import tensor_parallel_exchanges
from dsgen.kernels import fused_kernel, rates
from dsgen.simulating.durations import divided
from dsgen.simulating.replay import replay

__all__ = ["BEYOND", "RECORD", "Compared", "compared", "page", "parts_of", "read", "told"]

ROOT = Path(__file__).resolve().parent.parent
RECORD, PAGE = ROOT / "tests" / "cost" / "step_times.json", ROOT / "docs" / "step-times.md"
WITHIN = 0.05  # share of a step up to which the two are called equal
WORST = 10
# Scenario whose error is above WITHIN -> what it comes from, seen in its timeline.
BEYOND = {
    "gpt_bigcode tied 1": "four blocks of 512 tokens: a fifth of what gradients take to the host is counted as hidden, "
    "where the engine waits for all of it; why is not known yet",
    "qwen3-235b-a22b 1": "in every fetch the host waits for the one before the last, and behind the experts' gathers of"
    " 12 ms it launches attention's small kernels late, which is counted as hidden",
    "deepseek_v2 1": "three blocks: the kernels of a block are counted from when all of them are launched",
    "qwen2.5-0.5b 1": "the simulated rank owns a piece of the embedding alone, and what the host does for own"
    " gradients is counted as of the mean rank",
}
PADDING = 1e-3  # share of the bytes of a collective that ranks may be given more, so that all get as much
FEW = 64  # bytes of a collective up to which it tells a norm or an overflow
# What the replay tells -> the part of the instant model; what is exposed of a collective counts by its group.
NAMES = {
    "products": "matrix products",
    "memory-bound": "memory traffic",
    "host-bound": "host",
    "copies": "offload",
    "CPU optimizer": "offload",
    "host operators": "offload",
    "contention": "communication",
}


class Compared(NamedTuple):
    """One scenario: what the simulation tells of a step, in seconds, and what the instant model does.

    Attributes:
        case: The scenario.
        simulated: Part -> seconds; they add up to the step.
        ours: The instant model's answer.
        refused: What DeepSpeed said where it did not run; then nothing is compared.
        collectives: What the simulated step exchanges: kind, ranks, calls, bytes.
    """

    case: TimedCase
    simulated: Mapping[str, float]
    ours: StepCost | None
    refused: str = ""
    collectives: Sequence[Sequence[Any]] = ()

    @property
    def seconds(self) -> float:
        """Of the simulated step."""
        return sum(self.simulated.values())

    @property
    def error(self) -> float:
        """The instant step less the simulated one, of that."""
        return self.ours.seconds / self.seconds - 1 if self.ours else 0.0

    def exchanges(self) -> dict[tuple[str, int], tuple[int, float]]:
        """Kind and ranks -> calls and bytes of the instant model's collectives in a step, as `exchanged`."""
        job, strategy = self.case.strategy()
        totals: dict[tuple[str, int], tuple[int, float]] = {}
        for one in (*exchanges(job, strategy).all, *tensor_parallel_exchanges(job, strategy)):
            named = one.kind.replace("_", "-"), one.ranks
            calls, size = totals.get(named, (0, 0.0))
            totals[named] = calls + one.calls, size + one.calls * one.bytes
        return totals

    def equal_exchanges(self) -> bool:
        """Whether these are those of the simulation, by kind, ranks, calls and bytes."""
        ours, theirs = self.exchanges(), {(kind, ranks): numbers for kind, ranks, *numbers in self.collectives}
        return ours.keys() == theirs.keys() and all(
            calls == theirs[named][0] and abs(size - theirs[named][1]) <= PADDING * size
            for named, (calls, size) in ours.items()
        )

    def differences(self) -> dict[str, float]:
        """Part -> what the instant model says more, as a share of the simulated step."""
        if self.ours is None:
            return {}
        ours, simulated = _together(self.ours.parts), _together(self.simulated)
        return {name: (ours.get(name, 0.0) - simulated.get(name, 0.0)) / self.seconds for name in {*ours, *simulated}}


def _together(parts: Mapping[str, float]) -> dict[str, float]:
    """Parts with all that ranks exchange as one: a timeline does not tell AutoTP's sums from those of gradients."""
    told = dict(parts)
    told["communication"] = told.get("communication", 0.0) + told.pop("tensor parallelism", 0.0)
    return told


def told(case: TimedCase, answer: Mapping[str, Any]) -> dict[str, Any]:
    """What is recorded of a simulation: the seconds of its last step by parts, and its collectives; or an error."""
    if answer.get("error"):
        return {"error": f"{answer['error']['type']}: {answer['error']['message']}"[:300]}
    job, strategy = case.strategy()
    engine, launcher = answer["engine"], job.training.launcher
    node = rates(job.hardware, job.network)
    ranks = job.gpus_per_node
    kernel = fused_kernel(case.options["attention"], node.architecture)
    program = divided(answer["program"], sees(job))
    timeline = replay(program, node, ranks_per_node=ranks, stage=engine["stage"], launcher=launcher, kernel=kernel)
    return {
        "parts": {name: float(f"{value:.6g}") for name, value in parts_of(timeline.parts, strategy.tp).items()},
        "collectives": exchanged(answer["collectives"]),
    }


def exchanged(collectives: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    """Kind, ranks, calls and bytes of what the last step exchanges between several ranks, in the order of names.

    The norm of gradients and whether they overflowed are a few bytes, and left out.
    """
    last = max((one["step"] for one in collectives), default=0)
    totals: dict[tuple[str, int], list[int]] = {}
    for one in collectives:
        if one["step"] == last and one["ranks"] > 1 and one["bytes"] > FEW:
            total = totals.setdefault((one["kind"], one["ranks"]), [0, 0])
            total[0] += one["count"]
            total[1] += one["bytes"] * one["count"]
    return [[*named, *total] for named, total in sorted(totals.items())]


def parts_of(parts: Mapping[str, float], tp: int) -> dict[str, float]:
    """The replay's parts in the words of the instant model."""
    said: dict[str, float] = {}
    for name, seconds in sorted(parts.items()):
        whole = name.partition(",")[0]
        group = "tensor parallelism" if tp > 1 and whole == "all-reduce" else "communication"
        kind = NAMES.get(name) or ("offload" if whole == "drives" else group if "," in name else name)
        said[kind] = said.get(kind, 0.0) + seconds
    return said


def read() -> dict[str, Any]:
    """The record; empty where there is none."""
    if not RECORD.exists():
        return {"versions": {}, "cases": {}}
    record: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return record


def compared(record: Mapping[str, Any]) -> list[Compared]:
    """Every recorded scenario beside the instant model's answer, the worst first."""
    rows = []
    for case in timed_cases():
        simulated = record["cases"].get(case.name)
        if simulated is None:
            continue
        if "error" in simulated:
            rows.append(Compared(case, {}, None, simulated["error"]))
        else:
            instant = cost(*case.strategy())
            rows.append(Compared(case, simulated["parts"], instant, collectives=simulated["collectives"]))
    return sorted(rows, key=lambda row: -abs(row.error))


def page(rows: Sequence[Compared]) -> str:
    """docs/step-times.md."""
    ran = [row for row in rows if row.ours]
    equal = sum(row.equal_exchanges() for row in ran)
    close = sum(all(abs(one) <= WITHIN for one in (row.error, *row.differences().values())) for row in ran)
    lines = [
        "# How far the instant speed agrees with the simulated one",
        "",
        "`dsgen plan` computes the time of a step at once; `dsgen simulate` replays what the real DeepSpeed 0.19.8",
        "queues, operator by operator. Both read the same laws of kernels, links and hosts: what differs is what the",
        f"arithmetic leaves out. {len(ran)} scenarios: one of every model profile that extends no other, whole; one of",
        "every type without, with a real model's widths and a few blocks; more of the models that people fine-tune.",
        "`nox -s step-times` writes this page.",
        "",
        f"In {equal} of them all collectives are equal too: by kind, ranks, calls and bytes.",
        "",
        "An error is the instant step less the simulated one, of that: above 0, the instant model says slower.",
        "",
        "|  | scenarios | median error | median absolute error | within 5 % | worst |",
        "| --- | --- | --- | --- | --- | --- |",
        _row("all", ran),
        *(_row(f"stage {stage}", [row for row in ran if _stage(row) == stage]) for stage in range(4)),
        *(
            _row(method, [row for row in ran if row.case.options["method"] == method])
            for method in ("full", "lora", "qlora")
        ),
        _row("offload", [row for row in ran if "offload" in str(row.case.config["zero_optimization"])]),
        _row("AutoTP", [row for row in ran if "tensor_parallel" in row.case.config]),
        "",
        "## By part",
        "",
        "What the instant model says more of a part, as a share of the simulated step: kernels that share the GPU with",
        "a collective count as communication in a simulation, and as traffic here, so that two parts may differ where",
        f"the step does not. The step and each of its parts are within {WITHIN:.0%} of it in {close} of the scenarios.",
        "",
        "| part | scenarios that have it | its median share of the step | within 5 % | worst |",
        "| --- | --- | --- | --- | --- |",
        *_by_part(ran),
        "",
        f"## The worst {WORST}",
        "",
        "| scenario | error | what differs, of the step |",
        "| --- | --- | --- |",
        *(f"| {_said(row)} | {row.error:+.1%} | {_differs(row)} |" for row in ran[:WORST]),
        "",
        f"What those above {WITHIN:.0%} come from:",
        "",
        *(f"- {name}: {cause}." for name, cause in BEYOND.items()),
        "",
    ]
    refused = [row for row in rows if row.refused]
    if refused:
        lines += ["## Not compared", "", *(f"- {_said(row)}: {row.refused}" for row in refused), ""]
    return "\n".join(lines)


def _by_part(rows: Sequence[Compared]) -> Iterator[str]:
    """A row for each part of a step, the largest first."""
    shares: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        simulated = _together(row.simulated)
        for name, more in row.differences().items():
            shares.setdefault(name, []).append((simulated.get(name, 0.0) / row.seconds, more))
    for name, told in sorted(shares.items(), key=lambda item: -statistics.median(share for share, _ in item[1])):
        there = [(share, more) for share, more in told if share or more]
        within = sum(abs(more) <= WITHIN for _, more in there)
        middle, worst = statistics.median(share for share, _ in there), max((more for _, more in there), key=abs)
        yield f"| {name} | {len(there)} | {middle:.0%} | {within} of {len(there)} | {worst:+.1%} |"


def _stage(row: Compared) -> int:
    return int(row.case.config["zero_optimization"]["stage"])


def _row(name: str, rows: Sequence[Compared]) -> str:
    errors = [row.error for row in rows]
    within = sum(abs(error) <= WITHIN for error in errors)
    middle, size = statistics.median(errors), statistics.median(map(abs, errors))
    worst = max(errors, key=abs)
    return f"| {name} | {len(rows)} | {middle:+.1%} | {size:.1%} | {within} of {len(rows)} | {worst:+.1%} |"


def _said(row: Compared) -> str:
    case = row.case
    _, strategy = case.strategy()
    what = f"{case.options['method']}, {case.options['seq_len']} tokens"
    return f"{case.name}: {strategy}, {what}, {case.gpus} {case.hardware}"


def _differs(row: Compared) -> str:
    largest = sorted(row.differences().items(), key=lambda item: -abs(item[1]))[:2]
    return ", ".join(f"{name} {share:+.1%}" for name, share in largest)


def main() -> None:
    """Simulate and record, write the page, or print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help="simulate what is missing, and record it")
    parser.add_argument("--only", nargs="*", default=(), help="scenarios to simulate again, or all")
    parser.add_argument("--page", action="store_true", help="write docs/step-times.md")
    options = parser.parse_args()
    if options.update:
        _update(set(options.only))
    rows = compared(read())
    if options.page:
        PAGE.write_text(page(rows), encoding="utf-8")
        return
    for row in rows:
        print(f"{row.error:+7.1%} {_said(row)}; {row.refused or _differs(row)}")


def _update(again: set[str]) -> None:
    """Simulate each scenario in a fork of this process, which has imported what takes long; record it at once."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.update(OMP_NUM_THREADS="1", DS_ACCELERATOR="cpu")
    import torch
    import transformers.modeling_utils  # noqa: F401

    from dsgen.engine.simulate import __main__ as simulate

    torch.set_num_threads(1)
    record = read()
    known, record["cases"] = record["cases"], {}
    for case in timed_cases():
        row = known.get(case.name)
        asked = json.loads(json.dumps(attrs.asdict(case)))
        if row is None or row["case"] != asked or again & {case.name, "all"}:
            answer = in_a_fork(simulate.answer, case.request())
            record["versions"] = answer.get("versions") or record["versions"]
            row = {"case": asked, **told(case, answer)}
            print(f"{case.name}: {row.get('error', 'simulated')}", flush=True)
        record["cases"][case.name] = row
        write(record)


def write(record: Mapping[str, Any]) -> None:
    """Write the record, a scenario a line."""
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in record["cases"].items())
    RECORD.write_text(
        f'{{"versions": {json.dumps(record["versions"])},\n"cases": {{\n{lines}\n}}}}\n', encoding="utf-8"
    )


if __name__ == "__main__":
    main()
