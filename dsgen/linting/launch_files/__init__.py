"""Launch scripts and environment files: the variables they set, the options they give, and where."""

from __future__ import annotations

from dsgen.linting.launch_files.commands import Given, Launch, Setting
from dsgen.linting.launch_files.edits import edited
from dsgen.linting.launch_files.files import is_launch_file, read, scan

__all__ = ["Given", "Launch", "Setting", "edited", "is_launch_file", "read", "scan"]
