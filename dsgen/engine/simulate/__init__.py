"""The real engine at true size on a virtual GPU: every tensor recorded, none filled."""

from __future__ import annotations
