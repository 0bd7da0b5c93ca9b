"""Questions about a job: what it would take, what else would fit, who decided a key, and how two configs differ."""

from __future__ import annotations
