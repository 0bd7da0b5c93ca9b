"""Where DeepSpeed itself is not sure to run, so that nothing says for certain what it would take."""

from __future__ import annotations

from dsgen.shapes.profiles import Model, Training
from dsgen.strategies.constraints import EXPERTS, Setup, refusals

__all__ = ["doubted"]


def doubted(model: Model, training: Training, stage: int) -> str | None:
    """What a person should know of adapters at stage 3 that are counted less surely.

    Of experts, where DeepSpeed does not gather a mixture whole: its order of use then depends on the experts that are
    chosen, and DeepSpeed 0.19.8 mostly stops with a tracing error. Simulated runs that went on lay between 10 % below
    and 5 % above the count. And of a model with an encoder: simulated runs lay between 6 % below and 3 % above it.
    """
    if stage == 3 and model.experts_apart:  # seen with transformers 5 alone
        return (
            "a mixture of transformers 4 at stage 3: which experts are gathered follows the tokens, and this memory is"
            " less sure; stage 2 gathers none"
        )
    if stage != 3 or training.method == "full":
        return None
    if model.encoder_layers:  # nobody refuses this: it is a doubt of our own count, and no constraint
        return (
            f"adapters of {model.architecture} at stage 3: what is gathered of a decoder behind an encoder is counted a"
            " few percent too high or too low, and this memory is less sure; stage 2 is counted exactly"
        )
    at = Setup(stage=stage, training=training, model=model, architecture=model.architecture)
    item = next(refusals(at, EXPERTS), None)
    return f"{item.says(at)}, and this memory is less sure; {item.helps(at)}" if item is not None else None
