"""How many requests to a drive the ranks of a node ask Linux for, and how many it grants."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.batch_sizes import whole
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["too_many"]

_GRANTED = 65_536  # Linux's fs.aio-max-nr where nobody raised it: Documentation/admin-guide/sysctl/fs.rst
_RANKS = 8  # of a node at most, where no hardware says it: GPUs of an HGX or DGX
_DEPTH, _THREADS = "aio.queue_depth", "aio.intra_op_parallelism"
_PIPELINES = ("pipeline_read", "pipeline_write")
_USUAL_DEPTH = 8  # DeepSpeed's default


def too_many(subject: Subject) -> Iterator[Fault]:
    """A depth of the queue with which a node asks for more requests than Linux usually grants to all together.

    Each handle asks for the depth, and so does each of its threads (csrc/aio/py_lib/deepspeed_py_io_handle.cpp,
    0.19.8). Parameters take a handle to read and one to write, an optimizer one, or two in a pipeline.
    """
    depth, threads = (
        None if isinstance(subject.raw(key), str) else whole(subject.value(key)) for key in (_DEPTH, _THREADS)
    )
    if depth is None or threads is None or min(depth, threads) <= 0:
        return
    hardware = subject.facts.hardware
    ranks = min(subject.facts.world_size or 1, hardware.gpus_per_node if hardware is not None else _RANKS)
    handles = 0
    if subject.offload("optimizer") == "nvme":
        handles += 1 + any(subject.value(f"zero_optimization.offload_optimizer.{way}") is True for way in _PIPELINES)
    if subject.offload("param") == "nvme":
        handles += 2
    askers = ranks * handles * (1 + threads)
    if askers * depth <= _GRANTED:
        return
    most = _GRANTED // askers
    path = _DEPTH if subject.written(_DEPTH) else _THREADS
    message = (
        f"{askers} contexts of a node ({ranks} x {handles} x {1 + threads}: ranks, handles, each with its threads) ask "
        f"for a queue_depth of {depth} each; Linux grants {_GRANTED} in all where nobody raised fs.aio-max-nr, and the "
        f"process is aborted: at most {most}, or raise it (`cat /proc/sys/fs/aio-max-nr` tells it)"
    )
    fits = path == _DEPTH and most >= _USUAL_DEPTH
    fix = Fix(f"write {_USUAL_DEPTH}", (Assign(path, _USUAL_DEPTH),), safe=False) if fits else None
    yield Fault(path, message, fix, on="value", severity=Severity.WARNING)
