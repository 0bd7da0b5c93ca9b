"""Bars and numbers as every report shows them."""

from __future__ import annotations

from dsgen.jobs.fabrics import assumes
from dsgen.jobs.job import Job
from dsgen.memory import Place, Verdict
from dsgen.memory.card_numbers import card
from dsgen.memory.reserved import Reserving
from dsgen.shapes.layers import Rank
from dsgen.shapes.units import gib
from dsgen.strategies.strategies import Strategy

__all__ = [
    "FULL",
    "at_once",
    "bar",
    "batch_words",
    "card_line",
    "folded",
    "limit_line",
    "machine_words",
    "place_line",
    "replayed",
    "room_line",
    "rounded",
    "said",
    "up_to",
    "whole_node",
]

FULL, EMPTY = "█", "░"
WIDTH = 30  # cells of a memory bar, fewer beside long numbers
NARROW = 80  # columns that a line keeps to


def bar(share: float, width: int = WIDTH) -> str:
    """A bar of a fixed width; what is over 1 fills it."""
    filled = max(0, min(width, round(share * width)))
    return FULL * filled + EMPTY * (width - filled)


def batch_words(chosen: Strategy, world: int) -> str:
    """What a micro-batch is multiplied with to a step: `4 replicas x accumulation 64 = 256`."""
    replicas = world // chosen.tp
    unit = "GPU" if chosen.tp == 1 else "replica"
    each = f"{replicas} {unit}{'s' if replicas > 1 else ''}"
    return f"{each} x accumulation {chosen.accumulation} = {chosen.global_batch}"


def machine_words(job: Job) -> str:
    """The GPUs of a job by their profile's name, with their memory where somebody says it over the profile."""
    name, said = job.names.get("hardware", "GPUs"), job.provenance.winner("hardware.gpu_memory")
    stated = said is not None and said.rank > Rank.HARDWARE
    return f"{name} of {gib(job.hardware.gpu_memory_bytes)} GiB" if stated else name


def network_words(job: Job) -> str:
    """What joins the nodes of a job, and whether that is assumed."""
    return f"{job.names.get('network', 'a network')}{' (assumed)' if assumes(job) else ''}"


def whole_node(job: Job) -> str:
    """How many GPUs one node is taken to have where nobody said how many there are; empty where somebody did."""
    said = any(job.provenance.winner(f"cluster.{name}") for name in ("gpus", "nodes"))
    if said or job.world == 1:
        return ""
    return f"a whole node of {job.world} GPUs, as its profile has it (--gpus N says another)"


def place_line(label: str, place: Place) -> str:
    """One place's memory against its limit, with what no tensor holds: numbers, bar, verdict and interval."""
    needed = place.needed_bytes
    share = needed / place.limit_bytes if place.limit_bytes else 0.0
    numbers = f"{gib(needed)} of {gib(place.limit_bytes)} GiB"
    cells = min(WIDTH, NARROW - len(f"{label:<5} {numbers:<20} ") - len(f" {said(place)}"))
    return f"{label:<5} {numbers:<20} {bar(share, cells)} {said(place)}"


def said(place: Place) -> str:
    """The verdict, with the interval where it has one: fits (41.9 to 47.9)."""
    low, high = gib(place.least_bytes), gib(place.high_bytes)
    return f"{place.verdict.value}{f' ({low} to {high})' if low != high else ''}"


def up_to(place: Place) -> str:
    """The most that a place takes whose limit is not known, where that is more than its peak: " (up to 47.9)"."""
    return f" (up to {gib(place.high_bytes)})" if gib(place.high_bytes) != gib(place.peak_bytes) else ""


def card_line(gpu: Place) -> str:
    """What a person reads of a GPU: allocated and reserved as torch says, and what its maker's tool shows, in GiB.

    On a CPU torch has no allocator that holds memory back, and nothing shows what a rank takes but the system.
    Where reserved is told from causes (`at_once`), it is an interval: within it a replay tells one number.
    """
    read = card(gpu)
    if not read.outside:  # no context: a CPU
        return f"tensors take {gib(read.allocated)} GiB of a rank's RAM; no allocator reserves more"
    if gpu.verdict is Verdict.DOES_NOT_FIT:
        return f"torch would have to allocate {gib(read.allocated)} GiB"
    if not read.runs:
        return f"torch would have to allocate {gib(read.allocated)} GiB, at least {gib(read.least_allocated)}"
    likely, low, high = read.reserved
    if not replayed(gpu):
        shown = f"{gib(read.shown.low)} to {gib(read.shown.high)}"
        held = f"reserves {gib(low)} to {gib(high)}"
        return f"torch allocates {gib(read.allocated)}, {held}, {gpu.maker.tool} {shown} GiB"
    reserved = f"{gib(likely)} ({gib(low)} to {gib(high)})"
    return f"torch allocates {gib(read.allocated)}, reserves {reserved} GiB; {gpu.maker.tool} {gib(read.shown.bytes)}"


def limit_line(gpu: Place) -> str:
    """Which of these numbers must stay below what; empty where nothing lies outside torch, as on a CPU."""
    read = card(gpu)
    if not read.outside:
        return ""
    if read.room <= 0:
        return f"what lies outside torch takes {gib(read.outside)} of {gib(gpu.limit_bytes)} GiB: nothing is left to it"
    return f"allocated, with the allocator's holes, must stay below {gib(read.room)} GiB"


def room_line(gpu: Place) -> str:
    """The same, with where that limit comes from and what is given back before it is met."""
    read, line = card(gpu), limit_line(gpu)
    if not line or read.room <= 0:
        return line
    given = "; what else is reserved is given back first" if read.runs else ""
    return f"{line} ({gib(gpu.limit_bytes)} less {gib(read.outside)} outside torch){given}"


def at_once(gpu: Place) -> Place:
    """A GPU whose reserved bytes are told from causes: a replay takes longer than a render; `dsgen memory` has it."""
    return gpu._replace(holds=gpu.holds._replace(replays=False)) if isinstance(gpu.holds, Reserving) else gpu


def replayed(gpu: Place) -> bool:
    """Whether reserved is told as one number; else as the interval that its causes tell (`at_once`)."""
    return not isinstance(gpu.holds, Reserving) or gpu.holds.replays


def folded(line: str, width: int) -> list[str]:
    """A place's line in two where it is too long: the peak's phase goes below."""
    head, semicolon, tail = line.rpartition("; ")
    if len(line) <= width or not semicolon:
        return [line]
    return [head, f"      {tail}"]


def rounded(value: float) -> str:
    """A speed with three digits and thousands separators: 2,450."""
    digits = max(0, len(str(int(value))) - 3)
    return f"{round(value, -digits):,.0f}" if value >= 10 else f"{value:.2g}"
