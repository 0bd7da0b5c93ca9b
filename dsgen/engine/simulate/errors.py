"""What the simulation itself refuses: the parent knows each by its class, and its text is for a person."""

from __future__ import annotations

__all__ = ["NoLanguageModelError", "TiedHeadError", "UnknownModelError", "UntestedVersionsError"]


class UntestedVersionsError(RuntimeError):
    """Releases with which the simulation was never compared with a real run."""


class UnknownModelError(ValueError):
    """A model_type that the installed transformers has not."""


class NoLanguageModelError(ValueError):
    """A model that does not predict the next token."""


class TiedHeadError(ValueError):
    """Embedding and output head are one tensor, and each was to be trained as a copy."""
