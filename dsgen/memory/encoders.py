"""What the instant memory model does not count yet of models with an encoder, which a simulation does."""

from __future__ import annotations

from dsgen.errors import mistake
from dsgen.memory.asked import Plain
from dsgen.profiles import Model, Training

__all__ = ["check_encoder"]


def check_encoder(model: Model, training: Training, layout: Plain) -> None:
    """Refuse what is not counted of a model with an encoder.

    Raises:
        DsgenError: It has one, and is run in such a way.
    """
    if not model.encoder_layers:
        return
    wrong = {
        "parameters on NVMe": layout.offload_param == "nvme",
        f"AutoTP over {layout.tp} GPUs": layout.tp > 1,
        "attention sdpa": training.attention == "sdpa",
        f"method {training.method}": training.method == "qlora",
        "adapters at stage 3": training.method == "lora" and layout.stage == 3,
        "adapters of one stack alone": training.method == "lora" and any("." in one for one in training.lora_targets),
        "a chunked loss": training.chunked_loss,
        "Muon": training.optimizer == "Muon",
    }
    for what, there in wrong.items():
        if there:
            raise mistake(
                f"{what} of {model.architecture}, a decoder behind an encoder",
                must="dsgen counts the memory of such a model by arithmetic with its "
                "parameters on the GPU or in RAM, fully trained or, below stage 3, with adapters in both stacks, "
                "on whole GPUs, with eager attention and all logits",
                todo="Simulate it: dsgen simulate runs the real DeepSpeed with this model.",
            )
