"""What is not counted of models that are a decoder behind an encoder; most of it runs in a simulation."""

from __future__ import annotations

from dsgen.strategies.constraints.constraint import Constraint

__all__ = ["ENCODERS", "ENCODER_WISHES"]

_BEHIND = "of {at.architecture}, a decoder behind an encoder"
_SOURCE = "docs/memory-agreement.md: what was held against the simulation"
_COUNTED = (
    "Such a model is counted with its parameters on the GPU or in RAM, fully trained or with LoRA in both stacks, on"
    " whole GPUs, with attention flash or eager, and all logits.\n"
    "  Most else runs in dsgen simulate --config FILE: the real DeepSpeed on a virtual GPU."
)

# They hang on wishes and model alone.
ENCODER_WISHES = (
    Constraint(
        code="encoder-with-qlora",
        about="method",
        by="dsgen",
        stops=False,
        condition=lambda at: at.encoder and at.training.method == "qlora",
        reason=f"not counted: QLoRA {_BEHIND}",
        source=_SOURCE,
        todo=_COUNTED,
    ),
    Constraint(
        code="encoder-with-chunked-loss",
        about="chunked_loss",
        by="dsgen",
        stops=False,
        condition=lambda at: at.encoder and at.training.chunked_loss,
        reason=f"not counted: a chunked loss {_BEHIND}",
        source=_SOURCE,
        todo=_COUNTED,
    ),
    Constraint(
        code="encoder-with-muon",
        about="optimizer",
        by="dsgen",
        stops=False,
        condition=lambda at: at.encoder and at.training.optimizer == "Muon",
        reason=f"not counted: Muon {_BEHIND}",
        source=_SOURCE,
        todo=_COUNTED,
    ),
    Constraint(
        code="encoder-with-sdpa",
        about="attention",
        by="dsgen",
        stops=False,
        condition=lambda at: at.encoder and at.training.attention == "sdpa",
        reason=f"not counted: attention sdpa {_BEHIND}, which adds learned biases to its scores",
        source=_SOURCE,
        todo=_COUNTED,
    ),
    Constraint(
        code="encoder-with-dotted-targets",
        about="lora_targets",
        by="dsgen",
        stops=False,
        condition=lambda at: (
            at.encoder and at.training.method == "lora" and any("." in target for target in at.training.lora_targets)
        ),
        reason=f"not counted: targets of adapters with a point {_BEHIND}",
        source=_SOURCE,
        todo=_COUNTED,
    ),
)

ENCODERS = (
    Constraint(
        code="encoder-with-autotp",
        about="tp",
        by="dsgen",
        stops=False,
        condition=lambda at: at.encoder and at.tp > 1,
        reason=f"not counted: AutoTP over {{at.tp}} GPUs {_BEHIND}",
        source=_SOURCE,
        todo=_COUNTED,
    ),
    Constraint(
        code="encoder-on-nvme",
        about="offload_param",
        by="dsgen",
        stops=False,
        condition=lambda at: at.encoder and at.offload_param == "nvme",
        reason=f"not counted: parameters on NVMe {_BEHIND}",
        source=_SOURCE,
        todo=_COUNTED,
    ),
)
