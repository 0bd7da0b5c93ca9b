"""Where embedding and head can be trained beside adapters: peft trains a copy of each (modules_to_save)."""

from __future__ import annotations

from typing import Any

__all__ = ["no_copies", "uncounted"]


def no_copies(job: Any, layout: Any) -> str | None:
    """Why embedding and head cannot be trained beside adapters under a layout; None where they can, or nobody asks.

    Args:
        job: Anything with training, as a Job has.
        layout: Anything with stage, offload_param, tp and precision.
    """
    training = job.training
    if training.method == "full" or not training.lora_train_embeddings:
        return None
    if layout.tp > 1:
        return (
            "AutoTP leaves the trained copies of embedding and head on the CPU (0.19.8, simulated): drop the one or the"
            " other"
        )
    mixed = training.method == "lora" and layout.precision != "fp32"
    if layout.stage == 3 and mixed and layout.offload_param == "none":
        return (
            "stage 3 takes trained tensors of one type, and peft's adapters are fp32 beside copies in 16 bits"
            " (AssertionError in 0.19.8); stage 2 runs, qlora does, and so does offload of parameters"
        )
    if training.optimizer == "Muon" or (training.optimizer == "Adagrad" and layout.stage == 3):
        return f"what {training.optimizer} holds for embedding and head beside adapters is not known; AdamW's is"
    return None


def uncounted(job: Any, layout: Any) -> str | None:
    """Why the memory of a layout is not counted where the model is a decoder behind an encoder; None where it is.

    Args:
        job: Anything with model and training.
        layout: Anything with stage, offload_param and tp.
    """
    if not job.model.encoder_layers:
        return None
    if layout.tp > 1:
        return f"AutoTP of {job.model.architecture} is not counted: simulate it"
    if layout.stage == 3 and layout.offload_param == "nvme":
        return f"what parameters of {job.model.architecture} on NVMe take is not counted: simulate it"
    if layout.stage == 3 and job.training.method == "lora":
        return f"what adapters of {job.model.architecture} take at stage 3 is not counted: simulate it"
    return None
