"""Child processes that run torch, DeepSpeed and transformers: JSON in, JSON out. They import nothing of the house."""

from __future__ import annotations
