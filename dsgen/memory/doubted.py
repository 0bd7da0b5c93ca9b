"""Where DeepSpeed itself is not sure to run, so that nothing says for certain what it would take."""

from __future__ import annotations

from dsgen.families import family_of
from dsgen.families.parameters import expert_target
from dsgen.shapes.profiles import Model, Training

__all__ = ["doubted"]


def doubted(model: Model, training: Training, stage: int) -> str | None:
    """What a person should know of adapters at stage 3 that are counted less surely.

    Of experts, where DeepSpeed does not gather a mixture whole: its order of use then depends on the experts that are
    chosen, and DeepSpeed 0.19.8 mostly stops with a tracing error. Simulated runs that went on lay between 10 % below
    and 5 % above the count. And of a model with an encoder: simulated runs lay between 6 % below and 3 % above it.
    """
    if stage != 3 or training.method == "full":
        return None
    if model.encoder_layers:
        return (
            f"adapters of {model.architecture} at stage 3: what is gathered of a decoder behind an encoder is counted a"
            " few percent too high or too low, and this memory is less sure; stage 2 is counted exactly"
        )
    if family_of(model).leaf:
        return None
    adapted = expert_target(model, training.lora_targets)
    if adapted is None:
        return None
    return (
        f"adapters of experts ({adapted}) at stage 3: DeepSpeed 0.19.8 mostly stops with a tracing error for"
        f" {model.architecture}, and this memory is less sure; stage 2 runs, or name targets outside the experts"
    )
