"""What `dsgen simulate` runs a config with where nobody says it: as `dsgen memory` chooses it for the same config."""

from __future__ import annotations

from dsgen.asking.memory_questions import ask_config
from dsgen.jobs.job import Job
from dsgen.linting.sources import Source
from dsgen.shapes.errors import DsgenError

__all__ = ["UNKNOWN", "checkpointing_of"]

UNKNOWN = (
    "without checkpointing: nobody says it, and dsgen memory chooses it by what there is (--hw, --gpu-memory); "
    "--checkpointing says it"
)
_CHOSEN = "as dsgen memory chooses it where nobody says it"
_NOT_COUNTED = "nobody says it, and dsgen memory, which chooses it, does not count such a run; --checkpointing says it"


def checkpointing_of(job: Job, source: Source) -> tuple[str, str]:
    """none or full for a config, and why; none of one that dsgen memory does not count.

    Args:
        job: What the options make: the hardware, the model and the wishes.
        source: The config.
    """
    try:
        chosen = ask_config(job, source).strategy.checkpointing
    except DsgenError:
        return "none", f"without checkpointing: {_NOT_COUNTED}"
    if chosen:
        return "full", f"with checkpointing, {_CHOSEN}; --checkpointing none does without"
    return "none", f"without checkpointing, {_CHOSEN}; --checkpointing full has it"
