"""Parts that the forwards of several families share, written on the tape."""

from __future__ import annotations
