"""The child's answer to a `Simulation`: host bytes of one rank become those of a node, peaks get their limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dsgen.jobs.samples import seen_length
from dsgen.kernels import fused_kernel
from dsgen.memory import MemoryEstimate, PhaseMemory, Place
from dsgen.memory.limits import PINNED, RANK_PROCESS_BYTES, gpu_limit, host_limit
from dsgen.memory.overheads import overhead
from dsgen.memory.reserved import ReservedBytes
from dsgen.shapes.makers import NVIDIA
from dsgen.simulating.durations import divided
from dsgen.simulating.replay import replay
from dsgen.simulating.requests import Request
from dsgen.simulating.simulation import Collective, Sample, Shortage, Simulation, TensorGroup

__all__ = ["simulation"]

_HELD = ("kind", "bytes", "each_bytes", "count", "dtype", "shape", "site", "operator")


def simulation(answer: Mapping[str, Any], request: Request) -> Simulation:
    """What the child found, with the limits of the request's hardware."""
    ranks = request.ranks_per_node
    peaks, phases = answer["peak"], answer["phases"]
    pinned = peaks["host"]["pinned"]
    collectives = tuple(Collective(**one) for one in answer["collectives"])
    run, rates, program = request.run, request.rates, answer.get("program")
    if program and run.packing and run.seq_len:
        program = divided(program, seen_length(run.seq_len, run.mean_len))
    attention, card = request.run.attention or "flash", rates.architecture if rates else ""
    kernel = fused_kernel(attention, card, release=request.flash_attention, torch=request.torch)
    return Simulation(
        title=request.title,
        estimate=MemoryEstimate(
            gpu=_gpu(answer, request, collectives),
            host=_host(answer, request),
            nvme=_nvme(answer, request),
            made=tuple(_phase(phase, "peak", ranks) for phase in phases),
        ),
        ends=tuple(_phase(phase, "end", ranks) for phase in phases),
        limits=request.hardware is not None,
        run=request.run,
        world_size=request.world_size,
        ranks_per_node=ranks,
        launcher=request.launcher,
        kernel=kernel,
        engine=answer["engine"],
        versions=answer["versions"],
        allocated_bytes=peaks["gpu"]["allocator"]["allocated_peak_bytes"],
        out_of_memory=peaks["gpu"]["allocator"]["out_of_memory"],
        least_bytes=peaks["gpu"]["allocator"]["least_bytes"],
        shortage=_shortage(answer),
        growing_steps=peaks["gpu"]["allocator"]["growing_steps"],
        expandable_reserved_bytes=peaks["gpu"]["allocator"]["expandable_reserved_peak_bytes"],
        expandable_least_bytes=peaks["gpu"]["allocator"]["expandable_least_bytes"],
        pinned_bytes=ranks * pinned["bytes"],
        pinned_reserved_bytes=ranks * pinned["reserved_bytes"],
        largest={
            name: tuple(_held(one, 1 if name == "gpu" else ranks) for one in peaks[name]["largest"])
            for name in peaks
            if name in ("gpu", "host")
        },
        collectives=collectives,
        timeline={
            name: tuple(
                Sample(phase=sample["mark"], parts=_times(sample["parts"], 1 if name == "gpu" else ranks))
                for sample in answer["timeline"][name]
            )
            for name in ("gpu", "host")
        },
        step_time=replay(
            program,
            rates,
            ranks_per_node=ranks,
            stage=answer["engine"]["stage"],
            launcher=request.launcher,
            kernel=kernel,
        )
        if rates and program
        else None,
        peak_flops_per_second=rates.peak(request.run.dtype or "bf16") if rates and program else 0.0,
        hardware=request.hardware,
        program=program,
        afterwards=request.afterwards,
        filled=request.filled,
        notes=(*request.notes, *_of_another_release(request.deepspeed, answer["versions"]["deepspeed"])),
        seconds=answer["seconds"],
        process_bytes=answer["rss_bytes"],
    )


def _of_another_release(meant: str | None, ran: str) -> Iterator[str]:
    """A word where a config was rendered for another line of DeepSpeed's releases than ran."""
    if meant is not None and meant.split(".")[:2] != ran.split(".")[:2]:
        yield (
            f"DeepSpeed {ran} ran, and the config is for {meant}: --python names an interpreter that has that release; "
            "dsgen memory counts it without one"
        )


def _times(parts: Mapping[str, int], count: int) -> dict[str, int]:
    return {name: count * size for name, size in parts.items()}


def _phase(phase: Mapping[str, Any], moment: str, ranks: int) -> PhaseMemory:
    return PhaseMemory(
        phase=phase["phase"],
        step=phase["step"],
        micro_batch=phase["micro_batch"],
        gpu=phase["gpu"][f"{moment}_parts"],
        host=_times(phase["host"][f"{moment}_parts"], ranks),
    )


def _named(answer: Mapping[str, Any], place: str) -> str:
    """The phase of a place's peak in words."""
    return _in_words(answer["phases"][answer["peak"][place]["phase"]], answer)


def _in_words(phase: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
    """A phase in words: "backward of step 2"."""
    if not phase["step"]:
        return str(phase["phase"])
    name = "the optimizer" if phase["phase"] == "step" else str(phase["phase"])
    several = any(other["micro_batch"] > 1 for other in answer["phases"])
    batch = f" {phase['micro_batch']}" if several and phase["micro_batch"] else ""
    return f"{name}{batch} of step {phase['step']}"


def _shortage(answer: Mapping[str, Any]) -> Shortage | None:
    """What the allocator could not serve first."""
    told = answer["peak"]["gpu"]["allocator"]["shortage"]
    if told is None:
        return None
    phase = _in_words(told, answer)
    if told["later"]:
        phase = f"{phase.partition(' of step ')[0]} of a later step"
    return Shortage(phase=phase, **{name: told[name] for name in ("capacity_bytes", "bytes", "kind", "site")})


def _gpu(answer: Mapping[str, Any], request: Request, collectives: tuple[Collective, ...]) -> Place:
    """The GPU: certain are the tensors; plausible is the least with which torch's allocator goes through.

    On less it would have to reserve more than there is when it has given back all that it can: there it runs out.
    """
    gpu = answer["peak"]["gpu"]
    reserved, least = (gpu["allocator"][name] for name in ("reserved_peak_bytes", "least_bytes"))
    outside: dict[str, int] = {}
    beyond, maker = 0, NVIDIA
    if request.hardware is not None:
        groups = len({one.ranks for one in collectives if one.ranks > 1}) or 1
        told = overhead(request.hardware, request.world_size, groups, request.torch)
        outside, beyond, maker = told.parts, told.more_bytes, told.maker
    around = sum(outside.values())
    return Place(
        peak_bytes=gpu["bytes"],
        low_bytes=gpu["bytes"],
        high_bytes=max(least, gpu["bytes"]) + around + beyond,
        limit_bytes=gpu_limit(request.hardware) if request.hardware else 0,
        parts=gpu["parts"],
        phase=_named(answer, "gpu"),
        overhead=outside,
        holds=ReservedBytes(reserved, reserved, reserved),
        overhead_more_bytes=beyond,
        maker=maker,
    )


def _host(answer: Mapping[str, Any], request: Request) -> Place:
    """One node's RAM: tensors of all its ranks, page-locked ones as torch holds them, and the processes themselves."""
    host, ranks = answer["peak"]["host"], request.ranks_per_node
    processes = ranks * RANK_PROCESS_BYTES
    peak = ranks * host["bytes"]
    beyond = ranks * (host["pinned"]["reserved_bytes"] - host["pinned"]["bytes"])
    return Place(
        peak_bytes=peak,
        low_bytes=peak,
        high_bytes=peak + beyond + processes,
        limit_bytes=host_limit(request.hardware) if request.hardware else 0,
        parts=_times(host["parts"], ranks),
        phase=_named(answer, "host"),
        overhead={"processes": processes} | ({PINNED: beyond} if beyond else {}),
    )


def _nvme(answer: Mapping[str, Any], request: Request) -> Place:
    """One node's drives: the files of all its ranks."""
    parts = _times(answer["nvme"], request.ranks_per_node)
    size = sum(parts.values())
    return Place(
        peak_bytes=size,
        low_bytes=size,
        high_bytes=size,
        limit_bytes=request.hardware.nvme_capacity_bytes if request.hardware else 0,
        parts=parts,
        phase="training" if size else "",
    )


def _held(one: Mapping[str, Any], ranks: int) -> TensorGroup:
    facts = {name: one[name] for name in _HELD}
    return TensorGroup(**{**facts, "bytes": ranks * one["bytes"], "count": ranks * one["count"]})
