"""Values to text for a person and to JSON for a program; nothing here prints.

A module for each thing that is shown, with `text` and mostly `data`; each is taken from its module.
"""

from __future__ import annotations
