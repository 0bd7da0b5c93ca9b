"""LoRA adapters through the real peft, on a base in 16 bits or in 4."""

from __future__ import annotations

from typing import Any

import torch

from dsgen.engine.simulate import quantized
from dsgen.engine.simulate.errors import TiedHeadError

__all__ = ["ALL_LINEAR", "adapt", "load"]

ALL_LINEAR = "all-linear"


def load(method: str) -> None:
    """Import peft before anything is recorded: bitsandbytes, which it imports where it is installed, makes tables."""
    if method == "qlora":
        quantized.stand_in()
    if method != "full":
        import peft  # noqa: F401


def adapt(model: Any, request: dict[str, Any], stage: int) -> Any:
    """The model with adapters, the base frozen: `get_peft_model`, as a training program calls it.

    QLoRA calls `prepare_model_for_kbit_training` first, as peft's guide says: it casts what is not in 4 bits (the
    embedding, the norms, the head and, in transformers 5, grouped experts) to fp32. `deepspeed.initialize` then casts
    every weight to the type of its config. Programs that do not call it (kbit_fp32) freeze the base and ask for
    checkpointing all the same. peft keeps adapters on a 16-bit base in fp32 (`autocast_adapter_dtype`);
    DeepSpeed casts those too, but not where the base was made under zero.Init.

    Args:
        model: The Hugging Face model; with `qlora` one that `quantized.quantize` has changed.
        request: method, lora_rank, lora_targets, lora_dropout, lora_train_embeddings, lora_fp32, kbit_fp32,
            checkpointing, reentrant, dtype.
        stage: ZeRO stage.

    Raises:
        ModuleNotFoundError: peft is not installed.
        ValueError: A target is no module of the model, or experts have a dropout, in peft's words.
    """
    load(request["method"])
    import peft

    lifts = {"always": True, "below-3": stage < 3, "never": False}[request["kbit_fp32"]]
    if request["method"] == "qlora" and lifts:
        model = peft.prepare_model_for_kbit_training(
            model,
            use_gradient_checkpointing=bool(request["checkpointing"]),
            gradient_checkpointing_kwargs={"use_reentrant": request["reentrant"]},
        )
    if request["method"] == "qlora" and stage == 3:
        quantized.pack(model, getattr(torch, request["dtype"]))
    targets = request["lora_targets"]
    return peft.get_peft_model(
        model,
        peft.LoraConfig(
            r=request["lora_rank"],
            target_modules=ALL_LINEAR if ALL_LINEAR in targets else list(targets),
            lora_dropout=request["lora_dropout"],
            modules_to_save=_embeddings(model) if request["lora_train_embeddings"] else None,
            task_type="CAUSAL_LM",
        ),
        autocast_adapter_dtype=request["lora_fp32"],
    )


def _embeddings(model: Any) -> list[str]:
    """Names of the input embedding and of the output head, as peft's `modules_to_save` takes them.

    peft leaves the modules where they are, frozen, and trains a copy beside each, in the type of the original.

    Raises:
        TiedHeadError: They are one tensor, of which peft would train two copies.
    """
    both = model.get_input_embeddings(), model.get_output_embeddings()
    if both[0].weight is both[1].weight:
        raise TiedHeadError("lora_train_embeddings is true, and the model's head is tied to its embedding")
    return [name.rpartition(".")[2] for name, module in model.named_modules() if module in both]
