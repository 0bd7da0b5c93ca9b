"""Launch scripts and environment files: the variables they set, the options they give, and where."""

from __future__ import annotations

from dsgen.linting.launch_files.commands import Assignment, Given, Launch
from dsgen.linting.launch_files.edits import edited
from dsgen.linting.launch_files.files import is_launch_file, read, scan, script_commands
from dsgen.linting.launch_files.starts import Passed, Started, starts

__all__ = [
    "Assignment",
    "Given",
    "Launch",
    "Passed",
    "Started",
    "edited",
    "is_launch_file",
    "read",
    "scan",
    "script_commands",
    "starts",
]
