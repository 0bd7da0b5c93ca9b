"""A config's question where a record or a scenario says whether blocks run again: dsgen would choose, to be overruled.

To choose, it counts memory and time of both ways: two fifths of the time of all published records.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from dsgen.asking.memory_questions import Question, ask_config, given
from dsgen.jobs.job import Job
from dsgen.shapes.layers import Origin, Override, Rank
from dsgen.shapes.pins import Pin

__all__ = ["stated_question"]

_PATH, _FIELD = "training.checkpointing", "checkpointing"


def stated_question(job: Job, config: Mapping[str, Any], checkpointing: bool) -> Question:
    """The question that a config asks for a job, with blocks that run again in backward or not.

    Raises:
        DsgenError: As `ask_config`.
    """
    said = Override(_PATH, "full" if checkpointing else "none", Origin("what was run"), Rank.SITE)
    others = tuple(pin for pin in job.pins if pin.field != _FIELD)
    told = attrs.evolve(job, pins=(*others, Pin(_FIELD, (bool(checkpointing),), said)))
    question = ask_config(told, given(config))
    strategy = attrs.evolve(question.strategy, checkpointing=checkpointing)
    return attrs.evolve(question, job=attrs.evolve(question.job, pins=job.pins), strategy=strategy)
