"""A number of the aio section with which nothing can be swapped to NVMe, or with which what comes back is wrong."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.deepspeed.keys import say
from dsgen.linting.rules.io_requests import too_many
from dsgen.linting.rules.rule import OF_ANOTHER_TYPE, Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]

_SECTOR_BYTES = 512  # the file is opened with O_DIRECT, which takes whole sectors: open(2)
_USUAL = {"block_size": 1_048_576, "queue_depth": 8, "intra_op_parallelism": 1}  # DeepSpeed's defaults
_SWITCHES = ("single_submit", "overlap_events")


def check(subject: Subject) -> Iterator[Fault]:
    """Every value of aio that a swap to NVMe at stage 3 cannot work with."""
    if subject.stage != 3 or "nvme" not in (subject.offload("optimizer"), subject.offload("param")):
        return
    for name in (name for name in (*_USUAL, *_SWITCHES) if subject.written(f"aio.{name}")):
        path, value = f"aio.{name}", subject.raw(f"aio.{name}")
        if name in _SWITCHES:
            if isinstance(value, str):
                said = f"{name} is the text {say(value)}, and DeepSpeed's operator stops; it must be true or false"
                yield Fault(path, said, on="value")
        elif type(value) is not int:
            whole = isinstance(value, str) and value.isdecimal() and not _wrong(name, int(value))
            fix = Fix(f"write {int(value)}", (Assign(path, int(value)),)) if whole else None
            said = f"{name} is {say(value)}, and DeepSpeed's operator stops; it must be a whole number"
            yield Fault(path, said, fix, on="value")
        elif said := _wrong(name, value):
            fix = Fix(f"write {_USUAL[name]}", (Assign(path, _USUAL[name]),), safe=False)
            yield Fault(path, f"{name} is {value}, and {said}", fix, on="value")
    yield from too_many(subject)


def _wrong(name: str, value: int) -> str:
    """What happens with a whole number, and what it must be; "" where it swaps."""
    if name == "block_size" and (value <= 0 or value % _SECTOR_BYTES):
        must = f"it must be a multiple of {_SECTOR_BYTES} bytes, such as 1048576"
        return f"the drive refuses such blocks, of which DeepSpeed tells nothing or stops later; {must}"
    if value <= 0:
        return "the process is aborted; it must be at least 1"
    return ""


RULE = Rule(
    code="DSG358",
    name="nvme-io-refused",
    severity=Severity.ERROR,
    what="A number of the aio section is none with which a state can be swapped to NVMe.",
    why=(
        "Files are opened with O_DIRECT: blocks that are not whole sectors are refused, and DeepSpeed does not look: "
        "nothing is written, and what is read back is wrong, or an assertion on the file's size ends the process. A "
        "depth or parallelism of 0 aborts it too; a text or 1.5 is refused by the operator. A "
        "depth for which Linux has not enough requests aborts it as well: a warning, for the limit can be raised."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme"}},
  "aio": {"block_size": 1000000}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme"}},
  "aio": {"block_size": 1048576}
}""",
    evidence=("DeepSpeed 0.19.8's aio_handle, a tensor written and read back with each value", "open(2): O_DIRECT"),
    check=check,
    shows=(*OF_ANOTHER_TYPE, "incompatible constructor arguments", "file_offset", "submit_ret", "modulo by zero"),
)
