"""The ranks of a proof: a tiny model under the real engine, and what it observes."""

from __future__ import annotations
