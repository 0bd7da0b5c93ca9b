"""What a program is told of adapters and of a base in 4 bits, whatever framework asks."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from dsgen.families.parameters import parameters
from dsgen.jobs.fused_attention import flash_release
from dsgen.jobs.job import Job
from dsgen.planning.assumptions import kernel_of
from dsgen.planning.planner import Plan

__all__ = ["ALPHA_PER_RANK", "Adapters", "adapters", "attention", "dtype"]

ALPHA_PER_RANK = 2  # lora_alpha by rank: QLoRA's scripts have 16 for 8 and Axolotl's examples 32 for 16
_FLASH = {1: "flash_attention_2", 2: "flash_attention_2", 3: "flash_attention_3", 4: "flash_attention_4"}
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


class Adapters(NamedTuple):
    """LoRA as peft's LoraConfig says it.

    Attributes:
        rank: r.
        alpha: lora_alpha; no plan depends on it.
        dropout: lora_dropout.
        targets: target_modules; ("all-linear",) for every linear layer but the head.
        saved: modules_to_save: embedding and head, where they are trained.
        quantized: The base lies in 4 bits.
        encodes: The model is a decoder behind an encoder.
    """

    rank: int
    alpha: int
    dropout: float
    targets: tuple[str, ...]
    saved: tuple[str, ...]
    quantized: bool
    encodes: bool = False

    @property
    def target_modules(self) -> Any:
        """As LoraConfig takes it: "all-linear" is a text, names are a list."""
        return self.targets[0] if self.targets == ("all-linear",) else list(self.targets)

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments of a LoraConfig."""
        said = {
            "r": self.rank,
            "lora_alpha": self.alpha,
            "lora_dropout": self.dropout,
            "target_modules": self.target_modules,
            "task_type": "SEQ_2_SEQ_LM" if self.encodes else "CAUSAL_LM",
        }
        return {**said, "modules_to_save": list(self.saved)} if self.saved else said


def adapters(job: Job) -> Adapters | None:
    """The adapters that a job trains; None where it trains all weights."""
    wishes = job.training
    if wishes.method == "full":
        return None
    saved: tuple[str, ...] = ()
    if wishes.lora_train_embeddings:
        outer = [item for item in parameters(job.model) if item.kind in ("embedding", "head")]
        saved = tuple(dict.fromkeys(item.name.rpartition(".")[0].rpartition(".")[2] for item in outer))
    return Adapters(
        rank=wishes.lora_rank,
        alpha=ALPHA_PER_RANK * wishes.lora_rank,
        dropout=wishes.lora_dropout,
        targets=wishes.lora_targets,
        saved=saved,
        quantized=wishes.method == "qlora",
        encodes=job.model.encoder_layers > 0,
    )


def attention(plan: Plan) -> str:
    """attn_implementation of from_pretrained that runs the kernel which a plan counts."""
    kernel = kernel_of(plan)
    return _FLASH[flash_release(plan.job.hardware, plan.job.training)] if kernel == "flash" else kernel


def dtype(precision: str) -> str:
    """The name of a precision's dtype in torch."""
    return DTYPES[precision]
