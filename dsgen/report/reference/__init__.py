"""The generated documentation: a Markdown page per profile, an index per kind, and the reference of the commands."""

from __future__ import annotations

from dsgen.report.reference.commands import commands_page
from dsgen.report.reference.pages import pages

__all__ = ["commands_page", "pages"]
