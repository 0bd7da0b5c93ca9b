"""A config as the constraints of strategies see it, and their sentences for the rules that say the same."""

from __future__ import annotations

from typing import Any

from dsgen.linting import meanings
from dsgen.linting.subjects import Subject
from dsgen.shapes.profiles import Training
from dsgen.strategies.constraints import BY_CODE, Keys, Setup, keys

__all__ = ["of_subject", "refused", "sentence"]


def of_subject(subject: Subject) -> Setup:
    """The way to run that a config asks for; what it leaves open, or no fact says, is not known."""
    return subject.once("setup", lambda: _of_subject(subject))


def refused(subject: Subject, code: str, **known: Any) -> str | None:
    """The sentence of a constraint that a config breaks; None where it does not.

    Args:
        subject: The config.
        code: Of the constraint.
        known: Fields of the Setup that the rule knows better.
    """
    breaks = BY_CODE[code].refuses(of_subject(subject)._replace(**known))
    return sentence(subject, code, **known) if breaks else None


def sentence(subject: Subject, code: str, **known: Any) -> str:
    """The sentence of a constraint for a config, whether it breaks it or not: a rule may know more than the table.

    Args:
        subject, code, known: As for `refused`.
    """
    return BY_CODE[code].says(of_subject(subject)._replace(**known))


def _of_subject(subject: Subject) -> Setup:
    facts, asked = subject.facts, _keys(subject)
    model, hardware = facts.model, facts.hardware
    return Setup(
        version=subject.surface.version,
        stage=subject.stage,
        offload_optimizer=subject.offload("optimizer"),
        offload_param=subject.offload("param"),
        tp=meanings.degree(subject),
        precision=meanings.precision(subject),
        training=Training(optimizer=meanings.optimizer(subject) or "", seq_len=facts.seq_len),
        hardware=hardware,
        model=model,
        architecture=model.architecture if model is not None else "",
        heads=(model.attention_heads, model.kv_heads) if model is not None else None,
        world=facts.world_size,
        gpus_per_node=hardware.gpus_per_node if hardware is not None else None,
        narrow=bool(asked.masters),
        keys=asked,
    )


def _keys(subject: Subject) -> Keys:
    """The keys in force, with what the program brings beside them."""
    asked, brought = keys(subject.value), subject.facts.client_optimizer
    if asked.clipping and not subject.written("gradient_clipping"):
        asked = asked._replace(clipping=f"{asked.clipping}, the default")
    if brought in ("torch", "deepspeed"):
        asked = asked._replace(own=brought == "torch", named="")
    return asked
