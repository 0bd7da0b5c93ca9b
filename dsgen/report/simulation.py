"""A simulation as text and as data: memory by place and phase, time, the largest tensors, collectives, how it ran."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

import attrs

from dsgen.memory import Verdict
from dsgen.memory.first_failure import first_to_fail
from dsgen.report import footprints, step_time
from dsgen.report.converted import conversion_lines, conversions_data
from dsgen.report.memory import wrapped
from dsgen.report.tables import table
from dsgen.shapes.makers import NVIDIA
from dsgen.shapes.units import gib
from dsgen.simulating import Collective, Simulation, TensorGroup

__all__ = [
    "Traffic",
    "data",
    "headlines",
    "host_words",
    "how",
    "of_checkpoint",
    "place_made",
    "shortage_words",
    "text",
    "torch_words",
    "traffic",
]

_LARGEST = 8  # tensors shown without --all
_LARGEST_HOST = 4
_LEAST_HOST = 2**27  # bytes of a node below which its tensors are not worth a table
_GIB_SHOWN = 2**30  # bytes from which a request is told in GiB
_NARROWEST = 60  # columns; a narrower terminal wraps the lines itself
_WIDE = 120  # columns from which a place in the source is shown with its folder
_BILLION, _MILLION = 1e9, 1e6


@attrs.frozen(kw_only=True)
class Traffic:
    """All collectives of one kind in one phase of one step and one size of group."""

    step: int
    phase: str
    kind: str
    ranks: int
    count: int
    bytes: int
    largest_bytes: int


def text(simulation: Simulation, width: int = 80, every: bool = False) -> str:
    """What a person reads after `dsgen simulate`, with a final newline.

    Args:
        simulation: The simulation.
        width: Columns of the terminal.
        every: Show every tensor that the simulation lists, and the collectives of every step.
    """
    width = max(width, _NARROWEST)
    heads = [*headlines(simulation), *([footprints.verdict_line(simulation.estimate)] if simulation.limits else [])]
    lines = [line for head in heads for line in textwrap.wrap(head, width, subsequent_indent="  ")]
    lines += ["", *_memory(simulation, width)]
    lines += ["", *footprints.phase_lines(simulation.phases, simulation.ends, disks=simulation.disk_bytes)]
    lines += [line for told in of_checkpoint(simulation) for line in wrapped(told, width)]
    if timed := list(step_time.text_lines(simulation, width)):
        lines += ["", *timed]
    lines += ["", *_largest(simulation, width, every)]
    moved = list(_shown(simulation, every))
    if moved:
        lines += ["", *_collectives(moved, simulation, width, every)]
    if simulation.filled:
        lines += ["", 'filled in, as the training program does where the config says "auto" or nothing']
        lines += table([[f"{one.key} = {_said(one.value)}", one.why] for one in simulation.filled], width).splitlines()
    lines += [""]
    for note in (*simulation.notes, *how(simulation)):
        lines += textwrap.wrap(note, width, subsequent_indent="  ")
    return "\n".join(lines) + "\n"


def headlines(simulation: Simulation) -> Iterator[str]:
    """What was simulated: the setting, then the model and the run."""
    yield simulation.title
    engine = simulation.engine
    run = simulation.run
    targets = f" to {run.target_len}" if run.target_len not in (None, run.seq_len) else ""
    several = ["samples packed"] * bool(run.packing) + ([f"{run.mean_len} in the mean"] if run.mean_len else [])
    mean = f" ({', '.join(several)})" if several else ""
    samples = f"{engine['micro_batch']} x {run.seq_len}{targets} tokens{mean}"
    passes = f", {engine['accumulation']} passes a step" if engine["accumulation"] > 1 else ""
    yield (
        f"{engine['model']}, {_elements(engine['parameters'])} parameters, ZeRO stage {engine['stage']}, "
        f"{samples}{passes}{_how_run(simulation)}; rank {run.rank} of {simulation.world_size}"
    )


def _how_run(simulation: Simulation) -> str:
    """What else decides the memory and is not as usual."""
    run = simulation.run
    said = [f"{run.method} of rank {run.lora_rank}"] if run.method != "full" else []
    said += [f"dropout {run.lora_dropout:g}"] if run.method != "full" and run.lora_dropout else []
    said += ["embedding and head beside it"] if run.method != "full" and run.lora_train_embeddings else []
    said += {"full": ["checkpointing"], "deepspeed": ["DeepSpeed's checkpointing"]}.get(run.checkpointing or "", [])
    said += ["activation offloading"] if run.activation_offloading else []
    said += ["reentrant"] if run.reentrant and run.checkpointing == "full" else []
    said += [f"{run.attention} attention"] if run.attention != "flash" else []
    said += ["chunked loss"] if run.chunked_loss else []
    said += ["Liger's kernels"] if run.liger_kernels else []
    variable = simulation.estimate.gpu.maker.allocator or NVIDIA.allocator
    said += [f"{variable}={run.alloc_conf}"] if run.alloc_conf else []
    said += [f"the cache emptied every {run.empty_cache_steps} steps"] if run.empty_cache_steps else []
    said += [f"evaluation of {run.evaluation} sequence{'s' if run.evaluation > 1 else ''}"] if run.evaluation else []
    said += [f"logits of {run.kept} batch{'es' if run.kept > 1 else ''} of it kept"] if run.kept else []
    return "".join(f", {words}" for words in said)


def host_words(simulation: Simulation) -> str:
    """How the host's bytes come about."""
    ranks = simulation.ranks_per_node
    each = gib(simulation.estimate.host.peak_bytes / ranks)
    first = first_to_fail(simulation.estimate, ()) if simulation.limits else None
    lacks = first is not None and first.place == "host" and first.verdict is Verdict.DOES_NOT_FIT
    over = f"{first.words} is the first that has no room; " if first is not None and lacks else ""
    alike = f"{ranks} ranks of a node, all alike: {ranks} x {each} GiB" if ranks > 1 else "the only rank of its node"
    alike = f"{over}{alike}"
    if not simulation.pinned_bytes:
        return f"{alike}, none of it page-locked"
    reserved = simulation.pinned_reserved_bytes
    more = f", {gib(reserved)} as torch rounds up and keeps it" if gib(reserved) != gib(simulation.pinned_bytes) else ""
    return f"{alike}, {gib(simulation.pinned_bytes)} GiB of it page-locked{more}"


def torch_words(simulation: Simulation) -> str:
    """What torch would report of the GPU."""
    gpu = simulation.estimate.gpu
    said = f"torch allocates {gib(simulation.allocated_bytes)} and reserves {gib(gpu.reserved_bytes)} GiB"
    if simulation.out_of_memory and simulation.limits:
        said = f"{said}, and runs out of memory"
    elif gpu.overhead_bytes:
        said = f"{said}, {gpu.maker.tool} shows {gib(gpu.shown.bytes)}"
    room = f" of {gib(gpu.limit_bytes - gpu.overhead_bytes)}" if simulation.limits else ""
    least = f"{said}; it needs {gib(simulation.least_bytes)}{room} not to run out"
    if expandable_segments(simulation) or not gpu.maker.grows:
        return least
    growing, needed = gib(simulation.expandable_reserved_bytes), gib(simulation.expandable_least_bytes)
    return f"{least} (with expandable_segments it reserves {growing} and needs {needed})"


def shortage_words(simulation: Simulation) -> str | None:
    """Where memory runs out first, or would on a smaller GPU: the phase, and what is asked for there."""
    first = simulation.shortage
    if first is None:
        return None
    asked = f"{gib(first.bytes)} GiB" if first.bytes >= _GIB_SHOWN else f"{first.bytes / 2**20:,.0f} MiB"
    what = f"{first.phase}, where {asked} are asked for ({first.kind}, {_place(first.site, _NARROWEST)})"
    return f"memory runs out in {what}" if simulation.out_of_memory else f"a smaller GPU would run out first in {what}"


def of_checkpoint(simulation: Simulation) -> Iterator[str]:
    """What a person should know of the scripts that read the checkpoint, where one was saved."""
    if after := simulation.afterwards:
        yield from conversion_lines(after.conversions, after.unconverted, simulation.estimate.host.limit_bytes)
    elif simulation.run.checkpoint:
        yield "zero_to_fp32 and ds_to_universal: dsgen memory --config says what they take"


def expandable_segments(simulation: Simulation) -> bool:
    """Whether it ran with expandable segments."""
    return "expandable_segments:True" in simulation.run.alloc_conf.replace(" ", "")


def how(simulation: Simulation) -> Iterator[str]:
    """How it was done, and what that leaves open."""
    if not simulation.limits:
        yield "no limits: --hw or --gpu-memory says what there is, and adds what lies outside torch (CUDA, NCCL)"
    elif simulation.step_time is None:
        yield "no time: --hw says how fast the GPUs are, and --network what joins several nodes"
    names = {name: version.partition("+")[0] for name, version in simulation.versions.items()}
    others = ", ".join(f"{name} {version}" for name, version in names.items() if name != "deepspeed")
    yield (
        f"the real DeepSpeed {names.get('deepspeed', '')} ({others}) on a virtual GPU, {simulation.run.steps} "
        f"step{'s' if simulation.run.steps > 1 else ''} in {simulation.seconds:.0f} s and "
        f"{gib(simulation.process_bytes)} GiB of this machine; no GPU was used"
    )


def _memory(simulation: Simulation, width: int) -> list[str]:
    estimate = simulation.estimate
    lines = footprints.place_lines("GPU", estimate.gpu, width, simulation.limits)
    for said in filter(None, (torch_words(simulation), shortage_words(simulation))):
        lines += textwrap.wrap(said, width, initial_indent=" " * 6, subsequent_indent=" " * 6)
    lines += footprints.place_lines("host", estimate.host, width, simulation.limits)
    lines += textwrap.wrap(host_words(simulation), width, initial_indent=" " * 6, subsequent_indent=" " * 6)
    if estimate.nvme.peak_bytes:
        lines += footprints.place_lines("NVMe", estimate.nvme, width, simulation.limits)
    return lines


def _largest(simulation: Simulation, width: int, every: bool) -> list[str]:
    lines: list[str] = []
    for name, label in (("gpu", "GPU"), ("host", "host")):
        small = name == "host" and simulation.estimate.host.peak_bytes < _LEAST_HOST
        most = len(simulation.largest[name]) if every else 0 if small else _LARGEST if name == "gpu" else _LARGEST_HOST
        if listed := simulation.largest[name][:most]:
            lines += [f"largest tensors at the {label}'s peak", *_held(listed, width)]
    return lines


def _held(listed: tuple[TensorGroup, ...], width: int) -> list[str]:
    """Tensors as a table; where they are made is cut on its left where the line is too long."""
    rows = [(gib(one.bytes), one.kind, _each(one), place_made(one, width)) for one in listed]
    kind, each = (max(len(row[column]) for row in rows) for column in (1, 2))
    lines = []
    for size, name, count, made in (("GiB", "what", "count x each", "made in"), *rows):
        line = f"{size:>6} {name:<{kind}} {count:<{each}} "
        room = width - len(line)
        lines.append(f"{line}{made if len(made) <= room else '…' + made[1 - room :]}")
    return lines


def _each(one: TensorGroup) -> str:
    """Count, dtype and shape: "27 x bf16 1x2048x4096"."""
    shape = "x".join(one.shape.strip("(),").replace(" ", "").split(","))
    return f"{one.count} x {_short(one.dtype)} {shape or 'number'}"


def _short(dtype: str) -> str:
    return dtype.replace("bfloat", "bf").replace("float", "fp").replace("uint", "u").replace("int", "i")


def place_made(one: TensorGroup, width: int = _WIDE) -> str:
    """Where a tensor is made: file and line, with folder and function where there is room; else torch's operator."""
    return _place(one.site, width) or one.operator.removeprefix("aten.").partition(".")[0]


def _place(site: str, width: int) -> str:
    path, _, rest = site.partition(":")
    function, _, line = rest.partition(":")
    if not line:
        return site
    return f"{path}:{line} {function}" if width >= _WIDE else f"{path.rpartition('/')[2]}:{line}"


def traffic(collectives: tuple[Collective, ...]) -> tuple[Traffic, ...]:
    """The collectives summed over sizes, in the order of the run; barriers move nothing and stay out."""
    sums: dict[tuple[int, str, str, int], list[Collective]] = {}
    for one in collectives:
        if one.kind != "barrier" and one.ranks > 1:
            sums.setdefault((one.step, one.phase, one.kind, one.ranks), []).append(one)
    return tuple(
        Traffic(
            step=step,
            phase=phase,
            kind=kind,
            ranks=ranks,
            count=sum(one.count for one in group),
            bytes=sum(one.count * one.bytes for one in group),
            largest_bytes=max(one.bytes for one in group),
        )
        for (step, phase, kind, ranks), group in sums.items()
    )


def _shown(simulation: Simulation, every: bool) -> Iterator[Traffic]:
    """The last step stands for all: it is like every later one."""
    order = {"load": 0, "init": 1, "input": 2, "forward": 3, "backward": 4, "step": 5, "evaluate": 6}
    listed = [one for one in traffic(simulation.collectives) if every or one.step == simulation.run.steps]
    return iter(sorted(listed, key=lambda one: (one.step, order.get(one.phase, len(order)), -one.bytes)))


def _collectives(moved: list[Traffic], simulation: Simulation, width: int, every: bool) -> list[str]:
    rows = [
        [
            *([f"{one.step}"] if every else []),
            one.phase,
            one.kind,
            f"{one.ranks}",
            f"{one.count:,}",
            gib(one.bytes),
            f"{one.largest_bytes / 2**20:,.1f}",
        ]
        for one in moved
    ]
    heads = [*(["step"] if every else []), "phase", "collective", "ranks", "calls", "GiB", "largest MiB"]
    later = ", as in every later one" if simulation.run.steps > 1 else ""
    title = "collectives of a rank" + ("" if every else f" in step {simulation.run.steps}{later}")
    return [title, *table(rows, width, heads).splitlines()]


def _said(value: Any) -> str:
    return {True: "true", False: "false"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def _elements(count: int) -> str:
    if count >= _BILLION / 10:
        return f"{count / _BILLION:,.2f} B"
    return f"{count / _MILLION:,.1f} M" if count >= _MILLION / 10 else f"{count:,}"


def data(simulation: Simulation) -> dict[str, Any]:
    """The simulation as plain JSON types: the shape of `footprints.data`, and what only a simulation knows."""
    told = footprints.data(
        simulation.estimate,
        ends=simulation.ends,
        ranks_per_node=simulation.ranks_per_node,
        allocated_bytes=simulation.allocated_bytes,
        limits=simulation.limits,
    )
    after = simulation.afterwards
    told["gpu"]["out_of_memory"] = simulation.out_of_memory
    told["gpu"]["least_bytes"] = simulation.least_bytes
    told["gpu"]["expandable_least_bytes"] = simulation.expandable_least_bytes
    told["gpu"]["shortage"] = attrs.asdict(simulation.shortage) if simulation.shortage else None
    told["gpu"]["growing_steps"] = simulation.growing_steps
    told["gpu"]["expandable_reserved_bytes"] = simulation.expandable_reserved_bytes
    told["host"]["pinned_bytes"] = simulation.pinned_bytes
    told["host"]["pinned_reserved_bytes"] = simulation.pinned_reserved_bytes
    return {
        "title": simulation.title,
        **told,
        "rank": simulation.run.rank,
        "world_size": simulation.world_size,
        "run": attrs.asdict(simulation.run),
        "engine": dict(simulation.engine),
        "largest": {name: [attrs.asdict(one) for one in listed] for name, listed in simulation.largest.items()},
        "collectives": [attrs.asdict(one) for one in simulation.collectives],
        "timeline": {
            name: [{"phase": one.phase, "bytes": sum(one.parts.values()), "parts": dict(one.parts)} for one in samples]
            for name, samples in simulation.timeline.items()
        },
        "time": step_time.data(simulation),
        "written": dict(after.written) if after else {},
        "conversions": conversions_data(after.conversions, simulation.estimate.host.limit_bytes) if after else [],
        "unconverted": [one._asdict() for one in after.unconverted] if after else [],
        "filled": [attrs.asdict(one) for one in simulation.filled],
        "notes": list(simulation.notes),
        "versions": dict(simulation.versions),
        "seconds": simulation.seconds,
        "process_bytes": simulation.process_bytes,
    }
