"""A config to a Proof: a real deepspeed.initialize takes it and steps, and what it observed is checked."""

from __future__ import annotations

from dsgen.proving.prover import Proof, prove, prove_many

__all__ = ["Proof", "prove", "prove_many"]
