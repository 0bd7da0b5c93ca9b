"""Text with the place of every key and value in it: JSON, HJSON, YAML; and edits that keep comments and layout."""

from __future__ import annotations

from dsgen.documents.document import Document, TextPlace, unwritten

__all__ = ["Document", "TextPlace", "unwritten"]
