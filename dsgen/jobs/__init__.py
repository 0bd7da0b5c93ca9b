"""Layers to a Job, the strictly typed whole that a plan is made for; and scenarios, a person's options as a file."""

from __future__ import annotations

from dsgen.jobs.assembly import assemble
from dsgen.jobs.job import Job

__all__ = ["Job", "assemble"]
