"""The raw answers of a machine, asked or recorded: one JSON object, so that a node without a network can be sent."""

from __future__ import annotations

import datetime
import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dsgen.detecting import kfd, nvml, proc
from dsgen.documents.hjson import reader
from dsgen.shapes.errors import DsgenError, mistake
from dsgen.shapes.findings import Severity

__all__ = ["VISIBLE", "Answers", "ask", "read", "recorded"]

Answers = Mapping[str, Any]
"""host, date, environment, memory, cpus, disks, interfaces, pci, nvml and kfd, as `ask` makes them."""

_KEYS = ("host", "date", "environment", "memory", "cpus", "disks", "interfaces", "pci", "nvml", "kfd")
# What hides GPUs from a program; CUDA_DEVICE_ORDER says what its numbers mean.
VISIBLE = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


def ask(root: Path = Path("/")) -> Answers:
    """What this machine answers; nothing is measured, and no GPU is touched but for questions to its driver.

    Args:
        root: Where proc/ and sys/ lie.
    """
    return {
        "host": socket.gethostname(),
        "date": datetime.date.today().isoformat(),
        "environment": {name: os.environ[name] for name in VISIBLE if name in os.environ},
        "memory": proc.memory(root),
        "cpus": proc.cpus(root),
        "disks": proc.disks(root),
        "interfaces": proc.interfaces(root),
        "pci": proc.display_controllers(root),
        "nvml": nvml.ask(root),
        "kfd": kfd.ask(root),
    }


def recorded(answers: Answers) -> str:
    """Answers as the text of a file that `read` takes."""
    return json.dumps(answers, indent=1) + "\n"


def read(path: str) -> Answers:
    """Answers that `dsgen hardware detect --record` wrote, on this machine or on another; comments may stand in them.

    Raises:
        DsgenError: Unreadable, no JSON, or no such answers.
    """
    try:
        document = reader.read(Path(path).read_text(encoding="utf-8"), path)
    except (OSError, ValueError) as error:
        raise _no_answers(path, f"it cannot be read ({error})") from None
    answers = document.config
    broken = [fault.message for _, fault in document.faults if fault.severity is Severity.ERROR]
    if broken or not isinstance(answers, Mapping):
        raise _no_answers(path, f"it cannot be read ({broken[0] if broken else 'it is no map'})")
    missing = [key for key in _KEYS if key not in answers]
    if missing:
        raise _no_answers(path, f"it lacks {missing[0]}")
    return dict(answers)


def _no_answers(path: str, what: str) -> DsgenError:
    return mistake(
        what,
        must="it must be what dsgen hardware detect --record wrote",
        where=path,
        todo="On the machine itself: dsgen hardware detect --record FILE.",
        code="unreadable",
    )
