"""What the simulation said of each scenario beside what the instant memory model says: bytes, part by part."""

from __future__ import annotations

import functools
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import attrs
from memory_cases import Case  # benchmarks/memory_cases.py, beside this script

from dsgen.memory import MemoryEstimate, estimate
from dsgen.memory.checkpoints import resuming, saving
from dsgen.memory.estimates import ERROR
from dsgen.memory.run_phases import PhaseMemory

__all__ = [
    "CHECKPOINTS",
    "DROPPING",
    "EMBEDDINGS",
    "FOREACH",
    "GROUPED",
    "HEADS",
    "KEYS",
    "LATER",
    "LIGER",
    "LINEAR",
    "MASKED",
    "MUON",
    "NARROW",
    "OFFLOADED",
    "OF_ENCODERS",
    "OF_MIXTURES",
    "OF_TYPES",
    "RECORD",
    "SPLIT",
    "WIDENED",
    "Compared",
    "Difference",
    "Phase",
    "compare",
    "compare_checkpoints",
    "compared",
    "compared_checkpoints",
    "differences",
    "differences_on_the_host",
    "facts",
    "read",
    "summary",
]

RECORD = Path(__file__).resolve().parent / "memory_agreement.json"
LATER = Path(__file__).resolve().parent / "memory_agreement_later.json"  # scenarios drawn when the model was finished
CHECKPOINTS = RECORD.with_name("memory_agreement_checkpoints.json")  # a save, and another engine that resumes
DROPPING = Path(__file__).resolve().parent / "memory_agreement_dropout.json"  # adapters with a dropout
EMBEDDINGS = RECORD.with_name("memory_agreement_embeddings.json")  # embedding and head trained beside adapters
FOREACH = RECORD.with_name("memory_agreement_foreach.json")  # torch's own AdamW, whose step copies moments
HEADS = RECORD.with_name("memory_agreement_head.json")  # adapters of the output head
KEYS = RECORD.with_name("memory_agreement_keys.json")  # keys that few configs say
OFFLOADED = RECORD.with_name("memory_agreement_offloaded.json")  # what autograd keeps waits in RAM
LIGER = RECORD.with_name("memory_agreement_liger.json")  # a chunked loss of Liger's older releases
MASKED = RECORD.with_name("memory_agreement_masked.json")  # masks beside sdpa
GROUPED = RECORD.with_name("memory_agreement_grouped.json")  # sdpa of grouped queries without a fused kernel
LINEAR = RECORD.with_name("memory_agreement_linear.json")  # without zero.Init's own linear layer
MUON = RECORD.with_name("memory_agreement_muon.json")  # Muon, whose groups ZeRO cuts apart
NARROW = RECORD.with_name("memory_agreement_narrow.json")  # master weights in 16 bits
OF_ENCODERS = RECORD.with_name("memory_agreement_encoders.json")  # decoders behind an encoder
OF_MIXTURES = RECORD.with_name("memory_agreement_mixtures.json")  # mixtures of experts without a profile
OF_TYPES = RECORD.with_name("memory_agreement_types.json")  # model types without a profile
SPLIT = RECORD.with_name("memory_agreement_split.json")  # AutoTP beside stage 3
WIDENED = RECORD.with_name("memory_agreement_widened.json")  # keys that are in the interval, not in the peak
# Shares of a part and of the peak up to which a part is called equal, or close.
EQUAL_PART, EQUAL_PEAK = 1e-4, 1e-5
CLOSE_PART, CLOSE_PEAK = 1e-2, 1e-3


class Difference(NamedTuple):
    """One part of a phase on the GPU, in bytes: as simulated, and as the instant model says; and the peak."""

    part: str
    simulated: int
    ours: int
    peak: int

    @property
    def bytes(self) -> int:
        """What the instant model says too much."""
        return self.ours - self.simulated

    @property
    def equal(self) -> bool:
        """But for rounding, and for tensors of a few numbers."""
        return abs(self.bytes) <= max(EQUAL_PART * self.simulated, EQUAL_PEAK * self.peak)

    @property
    def close(self) -> bool:
        """Within a hundredth of the part, or a thousandth of the peak."""
        return abs(self.bytes) <= max(CLOSE_PART * self.simulated, CLOSE_PEAK * self.peak)


@attrs.frozen(kw_only=True)
class Compared:
    """One scenario: what the simulation counted and what the instant model says.

    Attributes:
        case: The scenario.
        simulated: What is recorded of it: peak, phase, parts by phase, host bytes, reserved bytes; or an error.
        ours: The instant model's answer; None where the simulation ended with an error.
    """

    case: Case
    simulated: Mapping[str, Any]
    ours: MemoryEstimate | None

    @property
    def error(self) -> float:
        """Signed error of the GPU's peak, as a share of the simulated one."""
        return self.ours.gpu.peak_bytes / self.simulated["peak"] - 1 if self.ours else 0.0

    @functools.cached_property
    def phases(self) -> tuple[PhaseMemory, ...]:
        """Those of the instant model's answer."""
        return self.ours.phases if self.ours else ()


class Phase(NamedTuple):
    """A save or a resume of a scenario: bytes on the GPU at most, as simulated and as the instant model says."""

    case: Case
    name: str
    simulated: Mapping[str, int]
    ours: Mapping[str, int]

    @property
    def error(self) -> float:
        """Signed, as a share of what was simulated."""
        return sum(self.ours.values()) / sum(self.simulated.values()) - 1


def compare_checkpoints(record: Mapping[str, Any]) -> list[Phase]:
    """Both phases of every recorded scenario, the most exact first; of those that ended with an error none."""
    found = []
    for row in record["cases"]:
        case = Case(**facts(row))
        for name, counted in (("save", saving), ("resume", resuming)):
            if "error" not in row["simulated"]:
                ours = counted(*case.strategy()).gpu
                found.append(Phase(case, name, row["simulated"]["phases"][name], ours))
    return sorted(found, key=lambda one: abs(one.error))


def read(path: Path = RECORD) -> dict[str, Any]:
    """The record; empty where there is none."""
    if not path.exists():
        return {"versions": {}, "cases": []}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def compare(record: Mapping[str, Any]) -> list[Compared]:
    """Every recorded scenario beside the instant model's answer, the most exact first."""
    found = []
    for row in record["cases"]:
        case = Case(**facts(row))
        simulated = row["simulated"]
        ours = None if "error" in simulated else estimate(*case.strategy())
        found.append(Compared(case=case, simulated=simulated, ours=ours))
    return sorted(found, key=lambda item: abs(item.error))


@functools.cache
def compared(path: Path = RECORD) -> tuple[Compared, ...]:
    """`compare` of a record's file, once in a process."""
    return tuple(compare(read(path)))


@functools.cache
def compared_checkpoints() -> tuple[Phase, ...]:
    """`compare_checkpoints` of what is recorded, once in a process."""
    return tuple(compare_checkpoints(read(CHECKPOINTS)))


def differences(item: Compared, phase: str) -> list[Difference]:
    """The parts of a phase, largest difference first; none where the simulation ended with an error."""
    if item.ours is None:
        return []
    theirs = item.simulated["phases"].get(phase, {})
    of_phase = [one for one in item.phases if one.phase == phase]  # of the first step, and of a later one
    ours = max(reversed(of_phase), key=lambda one: one.gpu_bytes).gpu if of_phase else {}
    peak = item.simulated["peak"]
    found = [Difference(name, theirs.get(name, 0), ours.get(name, 0), peak) for name in {*theirs, *ours}]
    return sorted(found, key=lambda one: (-abs(one.bytes), one.part))


def differences_on_the_host(item: Compared) -> list[Difference]:
    """The parts of a node's RAM after the last step; none where nothing is offloaded. The peak is their sum."""
    if item.ours is None or "offload" not in str(item.case.config["zero_optimization"]):
        return []
    ranks = item.case.job().gpus_per_node
    simulated = {name: ranks * size for name, size in item.simulated["host"].items()}
    ours = {name: size for name, size in item.phases[-1].host.items() if name != "temporaries"}  # gone by then
    whole = sum(simulated.values())
    return [Difference(name, simulated.get(name, 0), ours.get(name, 0), whole) for name in {*simulated, *ours}]


def facts(row: Mapping[str, Any]) -> dict[str, Any]:
    """What a row was simulated for."""
    return {field.name: row[field.name] for field in attrs.fields(Case)}


def summary(found: Sequence[Compared]) -> str:
    counted = [item for item in found if item.ours]
    failed = len(found) - len(counted)
    if not counted:
        return "nothing recorded"
    sizes = sorted(abs(item.error) for item in counted)
    within = sum(size <= ERROR for size in sizes)
    return (
        f"{len(counted)} scenarios: {within} within {100 * ERROR:g} %, median {statistics.median(sizes):.2%}, "
        f"largest {sizes[-1]:.2%}; {failed} ended with an error"
    )
