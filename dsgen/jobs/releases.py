"""What a release of transformers makes of a model: how a mixture's experts are kept.

In transformers 4 they were a list of modules with linear layers (modeling_mixtral.py 4.48, MixtralSparseMoeBlock;
modeling_qwen3_moe.py 4.57, Qwen3MoeSparseMoeBlock), but for families that say otherwise.
"""

from __future__ import annotations

import re

import attrs

from dsgen.families import family_of
from dsgen.shapes.errors import mistake
from dsgen.shapes.layers import Provenance
from dsgen.shapes.profiles import Model, Training

__all__ = ["by_release"]

_VERSION = re.compile(r"(\d+)(?:\.\d+)*")
_OLDEST, _STACKED = 4, 5  # major releases: the first that is known, and the first that keeps all experts in one tensor
_OF_EXPERTS = ("all-linear", "gate_proj", "up_proj", "down_proj", "w1", "w2", "w3")


def by_release(model: Model, training: Training, provenance: Provenance) -> Model:
    """The model as a release loads it.

    Raises:
        DsgenError: No release, one that is too old, or adapters of experts that are linear layers of their own.
    """
    release = training.transformers
    if release is None:
        return model
    where = provenance.where("training.transformers")
    match = _VERSION.fullmatch(str(release))
    if match is None or int(match[1]) < _OLDEST:
        raise mistake(
            f"transformers is {release!r}",
            must=f"it must be a release from {_OLDEST} on, such as 4.57 or 5.23.0",
            where=where,
            code="bad-value",
        )
    if int(match[1]) >= _STACKED or not model.experts or family_of(model).experts_ever_stacked:
        return model
    adapted = [target for target in training.lora_targets if target in _OF_EXPERTS]
    if training.method != "full" and adapted:
        raise mistake(
            f"lora_targets has {adapted[0]}, and transformers is {release}",
            must="each expert of transformers 4 is linear layers of its own: adapters of them are not counted",
            where=where,
            todo="Name those of attention, --lora-targets q_proj,k_proj,v_proj,o_proj, or take transformers 5.",
            code="refused",
        )
    return attrs.evolve(model, experts_apart=True)
