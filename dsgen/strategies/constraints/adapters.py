"""What peft and DeepSpeed refuse of adapters, and what of trained copies and a chunked loss beside them is lost."""

from __future__ import annotations

from dsgen.families.parameters import adapts_head, expert_target
from dsgen.strategies.constraints.constraint import Constraint
from dsgen.strategies.constraints.setup import Setup

__all__ = ["ADAPTERS", "COPIES", "EXPERTS"]


def _copies(at: Setup) -> bool:
    return at.adapters and at.training.lora_train_embeddings


def _mixed(at: Setup) -> bool:
    """Whether stage 3 gets adapters in fp32 beside copies in 16 bits; parameters that are offloaded become alike."""
    return _copies(at) and at.stage == 3 and at.training.method == "lora" and at.sixteen and at.offload_param == "none"


def _uncounted_states(at: Setup) -> bool:
    optimizer = at.training.optimizer
    return _copies(at) and (optimizer == "Muon" or (optimizer == "Adagrad" and at.stage == 3))


COPIES = (
    Constraint(
        code="copies-at-stage-3",
        about="lora_train_embeddings",
        by="deepspeed",
        stops=True,
        condition=_mixed,
        reason="stage 3 takes trained tensors of one type, and peft's adapters are fp32 beside copies in 16 bits"
        " (AssertionError in 0.19.8); stage 2 runs, qlora does, and so does offload of parameters",
        source="deepspeed/runtime/zero/utils.py (0.19.8): defragment; tests/engine/test_simulate_methods.py",
    ),
    Constraint(
        code="copies-not-counted",
        about="lora_train_embeddings",
        by="dsgen",
        stops=False,
        condition=_uncounted_states,
        reason="what {at.training.optimizer} holds for embedding and head beside adapters is not known; AdamW's is",
        source="docs/memory-agreement.md: what was held against the simulation",
    ),
)

# A plan goes on all the same: it runs where every expert is chosen in every step.
EXPERTS = (
    Constraint(
        code="adapters-of-experts-at-stage-3",
        about="lora_targets",
        by="deepspeed",
        stops=False,
        condition=lambda at: at.stage == 3 and at.experts != "",
        reason="adapters of experts ({at.experts}) at stage 3: DeepSpeed 0.19.8 mostly stops with a tracing error for"
        " {at.architecture}",
        source="deepspeed/runtime/zero/partitioned_param_coordinator.py (0.19.8): trace; docs/memory-agreement.md",
        todo="stage 2 runs, or name targets outside the experts",
    ),
)

# They hang on wishes and model alone.
ADAPTERS = (
    Constraint(
        code="dropout-of-experts",
        about="lora_dropout",
        by="peft",
        stops=True,
        condition=lambda at: (
            at.adapters
            and at.training.lora_dropout > 0
            and at.model is not None
            and expert_target(at.model, at.training.lora_targets) is not None
        ),
        reason="peft has no dropout for adapters of experts and their router",
        source="peft 0.21, tuners/lora/layer.py: ParamWrapper",
        todo="Leave it 0, or name as lora_targets only others of: {at.unfused}.",
    ),
    Constraint(
        code="copies-of-tied-weights",
        about="lora_train_embeddings",
        by="peft",
        stops=True,
        condition=lambda at: _copies(at) and at.model is not None and at.model.tied_embeddings,
        reason="peft trains a copy of embedding and head each, and a head that is tied to its embedding is then no"
        " longer one tensor with it",
        source="peft 0.21, utils/other.py: ModulesToSaveWrapper",
        todo="Train the adapters alone, or the whole model.",
    ),
    Constraint(
        code="head-copied-and-adapted",
        about="lora_train_embeddings",
        by="dsgen",
        stops=False,
        condition=lambda at: (
            _copies(at)
            and at.model is not None
            and not at.model.tied_embeddings
            and adapts_head(at.model, at.training.lora_targets)
        ),
        reason="the head must get one of the two: a trained copy or an adapter",
        source="peft 0.21, tuners/tuners_utils.py: what modules_to_save names gets no adapter",
        todo="Leave the head out of lora_targets.",
    ),
    Constraint(
        code="head-adapted-and-chunked",
        about="chunked_loss",
        by="dsgen",
        stops=False,
        condition=lambda at: (
            at.adapters
            and at.training.chunked_loss
            and at.model is not None
            and adapts_head(at.model, at.training.lora_targets)
        ),
        reason="a chunked loss takes the head's own weight, so the head's adapter would learn nothing",
        source="liger_kernel/ops/fused_linear_cross_entropy.py takes lm_head.weight; peft 0.21, tuners/lora/layer.py",
        todo="Leave the head out of lora_targets, or set chunked_loss to false.",
    ),
)
