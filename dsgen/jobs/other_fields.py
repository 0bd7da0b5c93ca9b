"""What a scenario's fields are called elsewhere, in the Trainer's arguments and plain words.

A key that tells a DeepSpeed config or a training file is told apart before (misplaced_files).
"""

from __future__ import annotations

import attrs

from dsgen.shapes.near_misses import offer
from dsgen.shapes.profiles import Training, yaml_name

__all__ = ["meant"]

_LENGTH = ("seq_len",)
_STEPS = ("total_steps", "total_tokens")
# Name elsewhere -> the field, or fields of which one is meant, with the value where that is another word.
_OTHERS: dict[str, tuple[str, ...]] = {
    "hardware": ("hw",),
    "batch_size": ("micro_batch", "global_batch"),
    **dict.fromkeys(("max_length", "max_seq_length", "sequence_length", "context_length", "cutoff_len"), _LENGTH),
    **dict.fromkeys(("epochs", "num_epochs", "num_train_epochs"), _STEPS),
    "max_steps": ("total_steps",),
    **dict.fromkeys(("zero", "stage"), ("zero_stage",)),
    **dict.fromkeys(("dtype", "mixed_precision"), ("precision",)),
    "lora": ("method: lora",),
    "qlora": ("method: qlora",),
    "load_in_4bit": ("method: qlora",),
    "lora_r": ("lora_rank",),
    "target_modules": ("lora_targets",),
    "gradient_checkpointing": ("checkpointing: full",),
    "activation_checkpointing": ("checkpointing: full",),
    "attn_implementation": ("attention",),
    "use_liger_kernel": ("chunked_loss: true",),
    **dict.fromkeys(("num_gpus", "world_size", "num_processes"), ("gpus",)),
    **dict.fromkeys(("num_nodes", "num_machines"), ("nodes",)),
    "learning_rate": ("set: {training.lr: 1e-5}",),
    "max_grad_norm": ("set: {training.gradient_clipping: 1.0}",),
}


def meant(name: str) -> str | None:
    """The sentence that offers what a field of another name is called here; None where nobody knows."""
    plain = name.replace("-", "_").casefold()
    if plain in _OTHERS:
        return offer(_OTHERS[plain])
    wishes = map(yaml_name, attrs.fields_dict(Training))
    return offer((f"set: {{training.{plain}: ...}}",)) if plain in wishes else None
