"""The keys of a config whose value is judged one by one, and what a wrong value plainly says."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from dsgen.deepspeed.coercion import REFUSED, read_strict
from dsgen.deepspeed.keys import Key, check_value, say
from dsgen.linting.subjects import OPEN, Subject
from dsgen.shapes.findings import Assign, Fix, Remove

__all__ = ["counts_as_true", "idle_removal", "judged", "outdone", "rewriting"]

_LARGEST = 1e18  # no count of elements, steps or samples is larger
_OWN_RULES = ("optimizer.params.", "scheduler.params.")  # the arguments of a class are judged with its signature
_READ_ANYWAY = (  # the parse looks at these even where a switch around them is off
    "torch_autocast.dtype",
    "torch_autocast.lower_precision_safe_modules",
    "expert_parallel.load_balance_coeff",
    "data_efficiency.data_sampling.dynamic_batching.max_batch_size",
    "data_efficiency.data_sampling.dynamic_batching.min_batch_size",
)
_PREDIVIDE = "gradient_predivide_factor"
_OTHER_NAMES = {
    "float16": "fp16",
    "half": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float": "fp32",
    "gpu": "none",
}


def counts_as_true(subject: Subject, path: str) -> bool:
    """Whether DeepSpeed takes a value outside the strict sections for true: 1 too, and the texts "false" and "auto"."""
    return bool(subject.value(path))


def outdone(subject: Subject, path: str) -> bool:
    """Whether a path lies in the section bfloat16 and bf16 stands beside it, so that DeepSpeed never looks there."""
    return path.partition(".")[0] == "bfloat16" and subject.raw("bf16") is not None


def judged(subject: Subject) -> Iterator[tuple[str, Key, Any]]:
    """Path, key and value of everything known and living; of the sections only those inside others.

    A part of a loose section whose switch is off is left out, and so is bfloat16 beside bf16: DeepSpeed does not look.
    """
    yield from subject.once("judged values", lambda: list(_judged(subject)))


def _judged(subject: Subject) -> Iterator[tuple[str, Key, Any]]:
    known = subject.surface
    for path, value in subject.leaves():
        if outdone(subject, path):
            continue
        if path in subject.target.overwritten or (path == _PREDIVIDE and _divides_after(subject)):
            continue
        key = known.key(path, subject.config)
        if key is None or key.removed or value == "auto" or path.startswith(_OWN_RULES):
            continue
        if path in known.sections and ("." not in path or isinstance(value, Mapping)):
            continue
        if path not in known.sections and known.sections.get(path.rpartition(".")[0]) is None and "." in path:
            continue  # part of a value that is itself a wrong one
        if key.strict or path in _READ_ANYWAY or not _asleep(subject, path):
            yield path, key, value


def rewriting(path: str, key: Key, value: Any) -> Fix | None:
    """The fix that writes what a value plainly says as its key wants it; unsafe where that changes what happens."""
    meant = _meant(path, key, value)
    if isinstance(meant, (int, float)) and abs(meant) > _LARGEST:
        return None  # a slip of another kind
    if meant is REFUSED or (meant == value and type(meant) is type(value)) or check_value(key, meant) is not None:
        return None
    flips = "boolean" in key.types and not key.strict  # a text counts as true there, whatever it says
    return Fix(f"write {say(meant)}", (Assign(path, meant),), safe=not flips)


def idle_removal(path: str) -> Fix:
    """The fix for a key that asks for nothing: null, or a section that is false."""
    return Fix(f"remove {path.rpartition('.')[2]}, which asks for nothing", (Remove(path),))


def _divides_after(subject: Subject) -> bool:
    """Whether stage 1 runs with reduce_scatter, which never looks at gradient_predivide_factor."""
    return subject.stage == 1 and subject.value("zero_optimization.reduce_scatter") is True


def _meant(path: str, key: Key, value: Any) -> Any:
    if path.rpartition(".")[2] in ("offload_optimizer", "offload_param"):
        if value is True:
            return {"device": "cpu"}
        if value in ("none", "cpu", "nvme"):
            return {"device": value}
    read = read_strict(key, value)
    if read is REFUSED and key.elements and isinstance(value, float) and math.isfinite(value):
        return round(value)  # 0.9 * hidden * hidden; of so many elements a part of one is nothing
    if read is not REFUSED or not isinstance(value, str):
        return read
    text = value.strip().lower()
    names = {str(choice).lower(): choice for choice in key.enum if choice is not None}
    if text in names or _OTHER_NAMES.get(text) in names:
        return names.get(text, _OTHER_NAMES.get(text))
    try:
        number = float(text.replace("_", ""))
    except ValueError:
        return REFUSED
    return int(number) if math.isfinite(number) and number.is_integer() and "integer" in key.types else number


def _asleep(subject: Subject, path: str) -> bool:
    section = path.rpartition(".")[0]
    while section:
        switch = f"{section}.enabled"
        if path != switch and subject.surface.key(switch) is not None:
            value = subject.value(switch)
            if value is not OPEN and (not value or value == "auto"):
                return True
        section = section.rpartition(".")[0]
    return False
