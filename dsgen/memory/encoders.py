"""What the instant memory model does not count yet of models with an encoder, which a simulation does."""

from __future__ import annotations

from dsgen.errors import mistake
from dsgen.profiles import Model

__all__ = ["check_encoder"]


def check_encoder(model: Model) -> None:
    """Refuse a model with an encoder.

    Raises:
        DsgenError: It has one.
    """
    if model.encoder_layers:
        raise mistake(
            f"{model.architecture} is a decoder behind an encoder",
            must="dsgen counts the memory of decoders alone by arithmetic",
            todo="Simulate it: dsgen simulate runs the real DeepSpeed with this model.",
        )
