"""Why DeepSpeed refuses a config, in one plain sentence made of the exception and of what was written."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator, Mapping
from types import NoneType
from typing import Any

from dsgen.deepspeed.keys import lookup, say
from dsgen.deepspeed.surface import Surface
from dsgen.shapes.near_misses import OFFERED, offer, same_words

__all__ = ["in_words", "nearest_key"]

_BATCH = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
# Functions of DeepSpeedConfig (runtime/config.py, 0.14 to 0.19) that compute with the batch keys and nothing else.
_BATCH_FUNCTIONS = {"_set_batch_related_parameters", "_batch_assertion", "_configure_train_batch_size"}
_UNEQUAL = re.compile(r"(\S+) != (\S+) \* (\S+) \* (\S+)$")
_MOST_FAULTS = 3
_LONGEST = 300  # characters
_FIXED = (
    ("Either train_batch_size or", "neither train_batch_size nor train_micro_batch_size_per_gpu is written"),
    ("bfloat16 and fp16 modes cannot", "fp16.enabled and bf16.enabled are both true; one of them must go"),
    ("GDS currently only", "aio.use_gds needs CUDA, and this loads on the CPU; a machine with a GPU may take it"),
)
# The section that each of DeepSpeed's pydantic models reads.
_MODELS = {
    "DeepSpeedZeroConfig": "zero_optimization",
    "DeepSpeedFP16Config": "fp16",
    "DeepSpeedBF16Config": "bf16",
    "TPTrainingConfig": "tensor_parallel",
    "CommsLoggerConfig": "comms_logger",
    "DeepSpeedMonitorConfig": "",
    "HybridEngineConfig": "hybrid_engine",
    "CompileConfig": "compile",
    "WeightQuantConfig": "weight_quantization",
    "DeepSpeedThroughputTimerConfig": "timers.throughput",
}
# What Python says of one key alone (runtime/config.py), and that key.
_OPERANDS = (
    ("unsupported operand type(s) for |", "wall_clock_breakdown", "true or false"),
    ("unsupported operand type(s) for /", "sequence_parallel_size", "a number"),
    ("is not a valid DtypeEnum", "torch_autocast.dtype", "float16 or bfloat16"),
)
_COMMON = 4  # a name that stands on more keys than this (enabled, device) does not say where it belongs
_NO_TEXT = {
    "UnicodeDecodeError": "the file is not text in UTF-8",
    "RecursionError": "the file nests too deep",
}


def in_words(refused: Mapping[str, Any], written: Any, ranks: int, known: Surface) -> str:
    """One sentence for a person.

    Args:
        refused: kind, message and faults (of pydantic) of the exception, and the functions that it passed through.
        written: The config as written; None where it could not be read.
        ranks: The number of ranks it was loaded for.
        known: What the release reads.
    """
    kind, message = str(refused["kind"]), " ".join(str(refused["message"]).split())
    if kind in _NO_TEXT:
        return _NO_TEXT[kind]
    if kind.endswith("DecodeError"):
        return f"the file is not {'HJSON' if kind.startswith('H') else 'JSON'}: {message}"
    if written is not None and not isinstance(written, Mapping):
        return f"the top level is {say(written)}; it must be a map"
    if isinstance(written, Mapping):
        said = (
            _faults(refused, written, known)
            or _batch(refused.get("functions", ()), message, written, ranks)
            or _section(message, written)
            or _operand(message, written)
        )
        if said:
            return said
    fixed = next((words for start, words in _FIXED if message.startswith(start)), None)
    return fixed or _shortened(_argument(message) or message)


def _faults(refused: Mapping[str, Any], written: Mapping[str, Any], known: Surface) -> str | None:
    """What pydantic says, each fault at its key."""
    said = []
    for fault in refused["faults"][:_MOST_FAULTS]:
        path = _place(refused.get("model"), fault["at"], written) if fault["at"] else None
        message = str(fault["message"])
        own = message.removeprefix("Value error, ").removeprefix("Assertion failed, ")
        if path is None or own != message:
            said.append(own)
        elif message.startswith("Extra inputs"):
            close = nearest_key(path, known)
            said.append(f"DeepSpeed knows no {path}" + (f" ({offer([close])})" if close else ""))
        else:
            must = re.sub(r", (\S+) or \1$", r" or \1", message.replace("Input should be", "it must be", 1))
            said.append(f"{path} is {say(lookup(written, path)[1])}; {must}")
    more = len(refused["faults"]) - len(said)
    return "; ".join(said) + (f"; and {more} more" if more > 0 else "") if said else None


def _place(model: object, at: list[str], written: Mapping[str, Any]) -> str | None:
    """The written path of pydantic's location, which leaves out the section that the model stands for."""
    section = _MODELS.get(str(model))
    if section is None:
        return None
    path = ".".join([section] * bool(section) + [part for part in at if not part.isdecimal()])
    return path if lookup(written, path)[0] else None


def nearest_key(path: str, known: Surface) -> str | None:
    """The key that was meant by one that nobody reads, where that is plain.

    One of almost the same name (`near_misses.OFFERED`), or one that people are known to write so.
    """
    section, _, name = path.rpartition(".")
    slips = (known.mistaken.get(path), known.mistaken.get(name))
    for close in known.nearest(path)[:1]:
        common = sum(other.rpartition(".")[2] == name for other in known.paths) > _COMMON
        elsewhere = close.rpartition(".")[0] != section
        near = close in slips or _likeness(name, close, known) >= OFFERED
        if near and not path.startswith(f"{close}.") and not (common and elsewhere) and not name.startswith("_"):
            return close
    return None


def _likeness(name: str, key: str, known: Surface) -> float:
    """How much a name is like that of a key, 0 to 1: its own name, or another one under which it is read."""
    names = (name, key, *(other for other, meant in known.aliases.items() if meant == key))
    written, *others = (each.rpartition(".")[2].lower().replace("-", "_") for each in names)
    ratios = (difflib.SequenceMatcher(None, each, written).ratio() for each in others if same_words(written, each))
    return max(ratios, default=0.0)


def _batch(functions: Collection[str], message: str, written: Mapping[str, Any], ranks: int) -> str | None:
    """The batch keys: something else where numbers belong, or a product that is not the whole."""
    others = [key for key in _BATCH if not isinstance(written.get(key), (int, float, NoneType))]
    if others and not _BATCH_FUNCTIONS.isdisjoint(functions):
        auto = ' ("auto" is for the Hugging Face Trainer: --target hf-trainer)' if written[others[0]] == "auto" else ""
        return f"{others[0]} is {say(written[others[0]])}; it must be a number{auto}"
    if "has to be greater than 0" in message:
        return _nothing_left(written, ranks)
    numbers = _UNEQUAL.search(message) if message.startswith("Check batch") else None
    if numbers is None:
        return None
    train, micro, steps, world = numbers.groups()
    said = f"train_batch_size {train} is not micro-batch {micro} x {steps} steps x {_gpus(world)}"
    fits = _fitting(written)
    return f"{said}; the three keys need {_gpus(fits)}" if fits and fits != ranks else said


def _gpus(count: object) -> str:
    return f"{count} GPU{'' if str(count) == '1' else 's'}"


def _nothing_left(written: Mapping[str, Any], ranks: int) -> str | None:
    """A batch key that is 0 or less, or that is too small for the ranks."""
    train, micro, steps = (written.get(key) for key in _BATCH)
    for key, value in zip(_BATCH, (train, micro, steps), strict=True):
        if isinstance(value, (int, float)) and value <= 0:
            return f"{key} is {say(value)}; it must be above 0"
    parts = [f"micro-batch {micro}"] * (micro is not None) + [f"{steps} steps"] * (steps is not None)
    return f"train_batch_size {train} is less than {' x '.join([*parts, _gpus(ranks)])}" if train is not None else None


def _fitting(written: Mapping[str, Any]) -> int | None:
    """The number of ranks at which three written batch keys agree."""
    values = [written.get(key) for key in _BATCH]
    if not all(isinstance(value, int) and not isinstance(value, bool) and value > 0 for value in values):
        return None
    train, micro, steps = (int(value or 0) for value in values)
    return train // (micro * steps) if train % (micro * steps) == 0 else None


def _section(message: str, written: Mapping[str, Any]) -> str | None:
    """A section that is no map, which Python says of its arguments."""
    if "must be a mapping" not in message and "has no attribute" not in message and "not iterable" not in message:
        return None
    if "scheduler" not in message and "lr_schedul" in message and lookup(written, "scheduler.params")[1] is None:
        return "scheduler has no params; it must have them, even if none is set"
    named = re.search(r"not (\w+)$|'(\w+)'", message)
    kind = (named[1] or named[2]) if named else ""
    for path, value in _values(written):
        if type(value).__name__ == kind and not isinstance(value, Mapping) and path in _SECTIONS:
            return f"{path} is {say(value)}; it must be a section"
    return None


_SECTIONS = frozenset(
    ("zero_optimization", "fp16", "bf16", "bfloat16", "optimizer", "scheduler", "optimizer.params", "scheduler.params",
     "activation_checkpointing", "flops_profiler", "aio", "tensorboard", "wandb", "csv_monitor", "comet", "compile",
     "comms_logger", "tensor_parallel", "checkpoint", "data_types", "data_efficiency", "hybrid_engine", "pipeline",
     "timers", "timers.throughput", "torch_autocast", "autotuning", "weight_quantization")
)  # fmt: skip


def _operand(message: str, written: Mapping[str, Any]) -> str | None:
    """A key of the wrong type that only Python's arithmetic complains of."""
    for words, path, must in _OPERANDS:
        there, value = lookup(written, path)
        if words in message and there:
            return f"{path} is {say(value)}; it must be {must}"
    return None


def _values(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        yield str(key), value
        if isinstance(value, Mapping):
            yield from ((f"{key}.{name}", item) for name, item in value.items())


def _argument(message: str) -> str | None:
    """What a constructor says of its arguments."""
    unknown = re.search(r"(?:(\w+)\.__init__\(\) )?got an unexpected keyword argument '(\w+)'", message)
    if unknown:
        return f"{unknown[1] or 'its class'} takes no argument {unknown[2]}"
    missing = re.search(r"(\w+)\.__init__\(\) missing .* arguments?: (.+)$", message)
    if missing:
        return f"{missing[1]} needs {missing[2].replace(chr(39), '')}, and its params do not give it"
    twice = re.search(r"Duplicate keys in DeepSpeed config: \[(.+)\]", message)
    return f"a key stands twice in one section: {twice[1].replace(chr(39), '')}" if twice else None


def _shortened(text: str) -> str:
    """The message without links and issue numbers, cut at a length that one can read."""
    bare = re.sub(r"\s*See https?://\S+", "", text).strip()
    return bare if len(bare) <= _LONGEST else f"{bare[: _LONGEST - 3]}..."
