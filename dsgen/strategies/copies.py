"""What does not run with trained copies of embedding and head (modules_to_save), or is not counted of encoders."""

from __future__ import annotations

from typing import Any

__all__ = ["no_copies", "uncounted_encoder"]


def no_copies(job: Any, layout: Any) -> str | None:
    """Why embedding and head cannot be trained beside adapters under a layout; None where they can, or nobody asks.

    Args:
        job: Anything with training, as a Job has.
        layout: Anything with stage, offload_param and precision.
    """
    training = job.training
    if training.method == "full" or not training.lora_train_embeddings:
        return None
    mixed = training.method == "lora" and layout.precision != "fp32"
    if layout.stage == 3 and mixed and layout.offload_param == "none":
        return (
            "stage 3 takes trained tensors of one type, and peft's adapters are fp32 beside copies in 16 bits"
            " (AssertionError in 0.19.8); stage 2 runs, qlora does, and so does offload of parameters"
        )
    if training.optimizer == "Muon" or (training.optimizer == "Adagrad" and layout.stage == 3):
        return f"what {training.optimizer} holds for embedding and head beside adapters is not known; AdamW's is"
    return None


def uncounted_encoder(model: Any, training: Any, layout: Any) -> str | None:
    """Why memory is not counted where a model is a decoder behind an encoder; None where it is.

    Args:
        model: Anything with architecture and encoder_layers.
        training: Anything with method, lora_targets, attention, chunked_loss and optimizer.
        layout: Anything with offload_param and tp.
    """
    if not model.encoder_layers:
        return None
    dotted = any("." in target for target in training.lora_targets)
    reasons = {
        "QLoRA": training.method == "qlora",
        "a chunked loss": training.chunked_loss,
        "Muon": training.optimizer == "Muon",
        "attention sdpa": training.attention == "sdpa",
        "targets of adapters with a point": training.method == "lora" and dotted,
        f"AutoTP over {layout.tp} GPUs": layout.tp > 1,
        "parameters on NVMe": layout.offload_param == "nvme",
    }
    what = next((what for what, there in reasons.items() if there), None)
    return what and f"not counted: {what} of {model.architecture}, a decoder behind an encoder"
