"""Model families: how each writes its facts in config.json, and the tensors that these facts make."""

from __future__ import annotations
