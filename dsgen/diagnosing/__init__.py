"""What went wrong in a run: its log is read once, the cause is named, and the next changes get this job's numbers."""

from __future__ import annotations

from dsgen.diagnosing.diagnoses import SLOW_STEPS, Diagnosis, diagnose
from dsgen.diagnosing.logs import STDIN, blocks
from dsgen.diagnosing.next_changes import NextChange
from dsgen.diagnosing.paces import Pace
from dsgen.diagnosing.records import UNKNOWN_ERROR, RunRecord, Symptom, read

__all__ = [
    "SLOW_STEPS",
    "STDIN",
    "UNKNOWN_ERROR",
    "Diagnosis",
    "NextChange",
    "Pace",
    "RunRecord",
    "Symptom",
    "blocks",
    "diagnose",
    "read",
]
