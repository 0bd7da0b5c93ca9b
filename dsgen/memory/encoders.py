"""What the instant memory model does not count of models with an encoder is refused."""

from __future__ import annotations

from dsgen.memory.asked import Plain
from dsgen.shapes.errors import mistake
from dsgen.shapes.profiles import Model, Training
from dsgen.strategies.constraints import ENCODERS, Setup, refusals

__all__ = ["check_encoder"]


def check_encoder(model: Model, training: Training, layout: Plain) -> None:
    """Refuse what is not counted of a model with an encoder.

    Raises:
        DsgenError: It has one, and is run in such a way.
    """
    if not model.encoder_layers:
        return
    at = Setup(
        offload_param=layout.offload_param,
        tp=layout.tp,
        training=training,
        model=model,
        architecture=model.architecture,
    )
    if refusal := next(refusals(at, ENCODERS), None):
        raise mistake(
            refusal.says(at),
            must="such a model is counted with its parameters on the GPU or in RAM, fully trained or with LoRA in both "
            "stacks, on whole GPUs, with attention flash or eager, and all logits",
            todo="Most else runs in dsgen simulate --config FILE: the real DeepSpeed on a virtual GPU.",
            code="refused",
        )
