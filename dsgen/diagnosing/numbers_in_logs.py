"""The numbers that messages carry: bytes of an out-of-memory error, sizes of a collective, products of a batch."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

__all__ = ["facts_of"]

Fact = int | float | str

_SIZES = {"bytes": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "KB": 2**10, "MB": 2**20,
          "GB": 2**30}  # fmt: skip
_SIZE = r"(\d+(?:\.\d+)?) ?(bytes|[KMGT]i?B)"
_MEMORY = {
    "asked_bytes": re.compile(rf"Tried to allocate {_SIZE}"),
    "total_bytes": re.compile(rf"total capaci?ty of {_SIZE}|{_SIZE} total capacity"),
    "free_bytes": re.compile(rf"of which {_SIZE} is free|; {_SIZE} free"),
    "allocated_bytes": re.compile(rf"{_SIZE} is allocated by PyTorch|{_SIZE} already allocated"),
    "unallocated_bytes": re.compile(rf"{_SIZE} is reserved by PyTorch but unallocated"),
    "reserved_bytes": re.compile(rf"{_SIZE} reserved in total"),
    "process_bytes": re.compile(rf"this process has {_SIZE} memory in use"),
}
_OTHERS = re.compile(rf"Process \d+ has {_SIZE} memory in use")
_VARIABLE = re.compile(r"(PYTORCH\w*ALLOC_CONF)=expandable_segments:True")  # torch 2.9 and later drop CUDA from it
_GPU = re.compile(r"\bGPU (\d+)\b")
_COLLECTIVE = {
    "collective": re.compile(r"OpType=(\w+)"),
    "number": re.compile(r"SeqNum=(\d+)|at work: (\d+)"),
    "elements": re.compile(r"NumelIn=(\d+)"),
    "timeout_ms": re.compile(r"Timeout\(ms\)=(\d+)"),
    "last_completed": re.compile(r"last completed NCCL work: (-?\d+)"),
    "last_enqueued": re.compile(r"last enqueued NCCL work: (-?\d+)"),
}
_BATCH = re.compile(r"world_size\W*(\d+) != (\d+) \* (\d+) \* (\d+)")
_HOST_ASKED = re.compile(r"tried to allocate (\d+) bytes")
_SCALE = re.compile(r"loss scal\s*e: ([\d.e+]+)(?:, reducing to ([\d.e+]+))?")
_OPERATOR = re.compile(r"(?:extension|load the|module) '?(\w+)'?|'(\w+Adam\w*)' object")
_VERSIONS = re.compile(r"CUDA version \(?([\d.]+)\)? (?:does not match|mismatches).*?(?:with|PyTorch) \(?([\d.]+)\)?")
_DIFFERENCE = re.compile(r"- ds ([\w.]+)=(\S+) vs hf ([^=]+)=(\S+)")
_WORLDS = re.compile(r"DP world size of (\d+) but the current world size is (\d+)")
_PORT = re.compile(r"(?:port: |\]:|0\.0\.0\.0:)(\d{2,5})\b")
_FLUSHES = re.compile(r"(\d+) pytorch allocator cache flushes")
_MISSING = re.compile(r"No module named '?([\w.]+)'?")


def facts_of(code: str, window: str) -> dict[str, Fact]:
    """What a message says in numbers; nothing where it says none.

    Args:
        code: The cause that it tells.
        window: The message, however it was broken.
    """
    reader = _READERS.get(code)
    return reader(" ".join(window.replace("│", " ").split())) if reader is not None else {}


def _memory(text: str) -> dict[str, Fact]:
    facts: dict[str, Fact] = {
        name: size for name, pattern in _MEMORY.items() if (size := _size(pattern, text)) is not None
    }
    if variable := _VARIABLE.search(text):
        facts["variable"] = variable[1]
    if gpu := _GPU.search(text):
        facts["gpu"] = int(gpu[1])
    if others := sum(_bytes(match[1], match[2]) for match in _OTHERS.finditer(text)):
        facts["others_bytes"] = others
    allocated, reserved, loose = (facts.get(f"{name}_bytes") for name in ("allocated", "reserved", "unallocated"))
    if isinstance(allocated, int):
        if reserved is None and isinstance(loose, int):
            facts["reserved_bytes"] = allocated + loose
        elif loose is None and isinstance(reserved, int):
            facts["unallocated_bytes"] = max(0, reserved - allocated)
    return facts


def _size(pattern: re.Pattern[str], text: str) -> int | None:
    match = pattern.search(text)
    if match is None:
        return None
    number, unit = (group for group in match.groups() if group is not None)
    return _bytes(number, unit)


def _bytes(number: str, unit: str) -> int:
    return int(float(number) * _SIZES[unit])


def _collective(text: str) -> dict[str, Fact]:
    facts: dict[str, Fact] = {}
    for name, pattern in _COLLECTIVE.items():
        if match := pattern.search(text):
            said = next(group for group in match.groups() if group is not None)
            facts[name] = said if name == "collective" else int(said)
    return facts


def _batch(text: str) -> dict[str, Fact]:
    match = _BATCH.search(text)
    names = ("train_batch_size", "micro_batch", "accumulation", "world_size")
    return dict(zip(names, map(int, match.groups()), strict=True)) if match else {}


def _scale(text: str) -> dict[str, Fact]:
    match = _SCALE.search(text)
    if match is None:
        return {}
    try:
        return {"scale": float(match[2] or match[1])}
    except ValueError:
        return {}


def _differences(text: str) -> dict[str, Fact]:
    """Every value that a config and TrainingArguments have otherwise, the second as key_2, config_2 and so on."""
    facts: dict[str, Fact] = {}
    for number, match in enumerate(_DIFFERENCE.finditer(text), start=1):
        names = (f"{name}_{number}" if number > 1 else name for name in ("key", "config", "argument", "program"))
        facts |= dict(zip(names, map(_number, match.groups()), strict=True))
    return facts


def _number(said: str) -> Fact:
    return int(said) if said.isascii() and said.isdigit() else said


def _named(*names: str, of: re.Pattern[str]) -> Callable[[str], dict[str, Fact]]:
    """A reader whose pattern has a group for each name, or one of several for a single name."""

    def read(text: str) -> dict[str, Fact]:
        match = of.search(text)
        if match is None:
            return {}
        said = [group for group in match.groups() if group is not None]
        return {name: _number(one) for name, one in zip(names, said, strict=False)}

    return read


_READERS: Mapping[str, Callable[[str], dict[str, Fact]]] = {
    "gpu-out-of-memory": _memory,
    "host-out-of-memory": _named("asked_bytes", of=_HOST_ASKED),
    "nccl-timeout": _collective,
    "batch-mismatch": _batch,
    "overflow": _scale,
    "operator-missing": _named("operator", of=_OPERATOR),
    "cuda-mismatch": _named("toolkit", "torch", of=_VERSIONS),
    "config-mismatch": _differences,
    "world-size-changed": _named("saved", "now", of=_WORLDS),
    "port-in-use": _named("port", of=_PORT),
    "cache-flushes": _named("flushes", of=_FLUSHES),
    "package-missing": _named("package", of=_MISSING),
}
