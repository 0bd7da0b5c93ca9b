"""What a release makes of a model: transformers of experts and logits, Liger of its loss, DeepSpeed of adapters.

In transformers 4 experts were a list of modules with linear layers (modeling_mixtral.py 4.48, MixtralSparseMoeBlock;
modeling_qwen3_moe.py 4.57, Qwen3MoeSparseMoeBlock), but for families that say otherwise. Until 4.48 a loss copied the
logits without the last token's, from 4.49 on it shifts the labels (loss/loss_utils.py, ForCausalLMLoss); before a class
of a model called that, its own forward did so, which most began by making the logits fp32 (OlderLoss of
dsgen.families.family, by family). What the Trainer does by itself hangs on the release too: how its AdamW steps, and
whether Liger's loss is chunked in an evaluation, and so do Liger's other kernels (families/tape/liger.py).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import attrs

from dsgen.families import FAMILIES, family_of
from dsgen.jobs.said_releases import before, checked, line_of
from dsgen.shapes.errors import mistake
from dsgen.shapes.layers import TOLD, Origin, Provenance
from dsgen.shapes.profiles import Model, Training

__all__ = [
    "ATTENTION",
    "WHY_REENTRANT",
    "as_switched_on",
    "brings_foreach",
    "by_release",
    "casts_adapters",
    "evaluates_in_chunks",
    "knows_liger_kernels",
    "loops_over_experts",
    "must_reenter",
    "obeys_zero3_init_flag",
    "recomputed",
    "reenters",
    "uncounted_liger_kernels",
    "unknown_leaf",
    "why_reenters",
    "with_liger_kernels",
]

_SHIFTS_LABELS = (4, 49)  # the first release whose loss shifts the labels and not the logits
# The first release of DeepSpeed that leaves the types of what zero.Init did not make, and so of peft's fp32 adapters
# (runtime/engine.py, _cast_module_mixed_precision); module.bfloat16() or half() cast them before. 0.19.2 itself fails
# in the first step, which 0.19.3 mends (deepspeedai/DeepSpeed#8072).
_KEEPS_ADAPTERS = (0, 19, 2)
# The first release of DeepSpeed whose stage 3 keeps frozen parameters that a recomputation gathers until its backward
# has run (runtime/zero/partitioned_param_coordinator.py, update_recompute_parameters; deepspeedai/DeepSpeed#8148).
# Forward hooks of the recomputation gave them back before: torch's checkpointing that is not reentrant compares the
# tensors with those of forward, has shapes of 0, and raises a CheckpointError. The reentrant one compares nothing.
_KEEPS_RECOMPUTED = (0, 19, 3)
# The first release of DeepSpeed that gathers mixtures of three classes whole by itself (runtime/zero/
# leaf_module_config.py): 0.17.6 has no such list, 0.18.0 has it.
_KNOWS_MIXTURES = (0, 18)
WHY_REENTRANT = (
    f"the other kind ends in a CheckpointError: before DeepSpeed {'.'.join(map(str, _KEEPS_RECOMPUTED))} stage 3 gives "
    "frozen weights back before its backward"
)
WHY_LETS_GO = "with the other kind bitsandbytes keeps every weight in 4 bits that stage 3 gathers until its backward"
_STACKED = 5  # the first major release with all experts in one tensor
# The first releases of which the Trainer's optim is adamw_torch_fused, adamw_torch before (training_args.py,
# default_optim): transformers 4.53.3 has not a word of it, 4.54.1 asks torch for 2.8.
_FUSED, _FUSED_TORCH = (4, 54), (2, 8)
# The first release whose Trainer says skip_logits to a model of Liger's in an evaluation (Trainer.prediction_step):
# 5.14.0 does not. Without it Liger's forward makes all logits when it does not train (liger-kernel 0.4.2 to 0.8.4,
# transformers/model/qwen2.py, lce_forward).
_SKIPS_LOGITS = (5, 15)
# The first release of transformers behind Accelerate 1.0, by their dates (1.0.0 is of 7 October 2024, 4.46.0 of the
# 24th, and 4.45.0 of the month before). Since then Accelerate says a stage 3 to from_pretrained whatever its
# zero3_init_flag is (utils/dataclasses.py, set_deepspeed_weakref, huggingface/accelerate#3097).
_BEHIND_ACCELERATE_1 = (4, 46)
_KNOWS_SKIPPING = (0, 6)  # the first release of Liger whose forwards have an argument of that name
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")  # matrices that get adapters where experts cannot
_OF_EXPERTS = ("all-linear", "gate_proj", "up_proj", "down_proj", "w1", "w2", "w3")


def by_release(model: Model, training: Training, provenance: Provenance) -> Model:
    """The model as a release loads it.

    Raises:
        DsgenError: No release, one that is too old, or adapters of experts that are linear layers of their own.
    """
    checked("torch", training.torch, provenance)
    model = _with_chunks(model, checked("liger", training.liger, provenance))
    if training.liger_kernels and not _asked(provenance):
        model = as_switched_on(model, training)
    elif training.liger_kernels:
        model = with_liger_kernels(model, training.liger, provenance.where("training.liger_kernels"))
    elif model.liger_kernels:  # a profile says so: it may be refused all the same
        with_liger_kernels(model, training.liger, provenance.where("model.liger_kernels"))
    release = checked("transformers", training.transformers, provenance)
    if release is None:
        return model
    where, major = provenance.where("training.transformers"), int(release.partition(".")[0])
    model = _with_loss(model, release)
    if major >= _STACKED or not model.experts or family_of(model).older_experts.stacked:
        return model
    adapted = [target for target in training.lora_targets if target in _OF_EXPERTS]
    if training.method != "full" and adapted:
        raise mistake(
            f"lora_targets has {adapted[0]}, and transformers is {release}",
            must="each expert of transformers 4 is linear layers of its own: adapters of them are not counted",
            where=where,
            todo=f"Name those of attention, --lora-targets {','.join(ATTENTION)}, or take transformers 5.",
            code="refused",
        )
    return attrs.evolve(model, experts_apart=True)


def casts_adapters(version: str) -> bool:
    """Whether a release of DeepSpeed, as of a job, makes adapters 16-bit under zero.Init too."""
    return _of_deepspeed(version) < _KEEPS_ADAPTERS


def must_reenter(method: str, stage: int, version: str) -> bool:
    """Whether activations can be recomputed by reentrant checkpointing alone.

    Args:
        method: full, lora or qlora; adapters freeze the base.
        stage: Of ZeRO.
        version: The release of DeepSpeed, as of a job.
    """
    return method != "full" and stage == 3 and _of_deepspeed(version) < _KEEPS_RECOMPUTED


def reenters(training: Training, stage: int, version: str) -> bool:
    """Whether blocks that run again do so by reentrant checkpointing.

    A release needs it, or a person says so; where nobody says, QLoRA at stage 3, whose weights in 4 bits bitsandbytes
    else keeps gathered from forward on: TRL 1.10 and LLaMA-Factory take it there too.

    Args:
        training: How it is trained.
        stage, version: As for `must_reenter`.
    """
    if must_reenter(training.method, stage, version):
        return True
    return training.method == "qlora" and stage == 3 if training.reentrant is None else training.reentrant


def why_reenters(training: Training, stage: int, version: str) -> str:
    """Why it is reentrant checkpointing, "" where it is not; arguments are as for `reenters`."""
    if must_reenter(training.method, stage, version):
        return WHY_REENTRANT
    if not reenters(training, stage, version):
        return ""
    return "training.reentrant asks for it" if training.reentrant else WHY_LETS_GO


def recomputed(training: Training, stage: int, version: str) -> Training:
    """How it is trained, where its `reentrant` is the kind that runs; arguments are as for `reenters`."""
    return training if training.reentrant or not reenters(training, stage, version) else _reentrant(training)


@functools.lru_cache(maxsize=64)
def _reentrant(training: Training) -> Training:
    return attrs.evolve(training, reentrant=True)


def loops_over_experts(model: Model, training: Training) -> bool:
    """Whether a release of transformers runs a mixture's experts one after another."""
    return bool(model.experts) and before(training.transformers, (_STACKED,))


def unknown_leaf(model: Model, version: str) -> str:
    """Class of a mixture that stage 3 is better told to gather whole, by its path; "" for none.

    Args:
        model: The model, as a release of transformers loads it.
        version: The release of DeepSpeed, as of a job.
    """
    family = family_of(model)
    known = family.leaf and (not model.experts_apart or _of_deepspeed(version) >= _KNOWS_MIXTURES)
    return "" if known else family.leaf_class


def _of_deepspeed(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:3])


def brings_foreach(trainer: bool, training: Training) -> bool:
    """Whether the AdamW that a program brings is torch's foreach one, which steps through copies.

    Args:
        trainer: The program is the Trainer, whose default hangs on releases; any other has torch's own default.
        training: How it is trained.
    """
    if training.foreach is not None or not trainer:
        return training.foreach is not False
    return before(training.transformers, _FUSED) or before(training.torch, _FUSED_TORCH)


def evaluates_in_chunks(training: Training) -> bool:
    """Whether an evaluation by the Trainer never holds all logits, as its training does not."""
    old = before(training.transformers, _SKIPS_LOGITS) or before(training.liger, _KNOWS_SKIPPING)
    return training.chunked_loss and not old


def obeys_zero3_init_flag(training: Training) -> bool:
    """Whether Accelerate is of a release that makes no model under zero.Init where zero3_init_flag is false."""
    return before(training.transformers, _BEHIND_ACCELERATE_1)


def _with_chunks(model: Model, release: str | None) -> Model:
    """The model with the chunked loss of a release of Liger: as it has been since the last that changed it."""
    return model if release is None else attrs.evolve(model, liger=_changed("liger", release))


def _changed(name: str, release: str | None) -> str:
    """The last release of Liger that changed what a fact of a model is about, of those that a release has."""
    changes = [one for one in attrs.fields_dict(Model)[name].metadata["choices"] if one]
    return str([one for one in changes if not before(release, line_of(one, 3))][-1])


def knows_liger_kernels(model: Model, release: str | None) -> bool:
    """Whether what a release of Liger puts in the place of a model's SwiGLU, norms and RoPE is known."""
    known = getattr(family_of(model).forward, "liger_norm", None) and not (model.litgpt or model.head_chunk)
    return bool(known) and not before(release, family_of(model).liger_since)


def as_switched_on(model: Model, training: Training) -> Model:
    """The model where a training file switches Liger on: with what is known of it, else as Hugging Face has it."""
    known = training.liger_kernels and knows_liger_kernels(model, training.liger)
    return with_liger_kernels(model, training.liger) if known else model


def uncounted_liger_kernels(model: Model, training: Training) -> Iterator[str]:
    """That a program switches Liger on, and what it puts in the place of this model's norms is not known."""
    if training.liger_kernels and not knows_liger_kernels(model, training.liger):
        yield (
            f"Liger is switched on, and its kernels are not known of {model.architecture}: Hugging Face's gate, "
            "norms and RoPE are counted, which hold more and are slower"
        )


def with_liger_kernels(model: Model, release: str | None, where: Origin | None = None) -> Model:
    """The model with the SwiGLU, norms and RoPE of a release of Liger.

    Raises:
        DsgenError: They are not known for the model or the release.
    """
    if not knows_liger_kernels(model, release):
        oldest = family_of(model).liger_since
        of = f" in Liger {release}" if before(release, oldest) else ""
        known = (name for name, family in FAMILIES.items() if getattr(family.forward, "liger_norm", None))
        raise mistake(
            f"liger_kernels is true, and the model is of type {model.architecture}{of}",
            must=f"its SwiGLU, norms and RoPE are counted for {', '.join(known)} alone, "
            f"from release {'.'.join(map(str, oldest))} on",
            where=where,
            todo="Leave liger_kernels out: what is counted is then Hugging Face's, which holds more.",
            code="refused",
        )
    return attrs.evolve(model, liger_kernels=_changed("liger_kernels", release))


def _asked(provenance: Provenance) -> bool:
    """Whether a person asks for Liger's kernels; a program's switch means those that it has for the model."""
    winner = provenance.winner("training.liger_kernels")
    return winner is None or winner.reason != TOLD


def _with_loss(model: Model, release: str) -> Model:
    """The model with the loss of a release; `4.48` means all of that line, and `4` its last, as `5` does."""
    line = line_of(release)
    if line >= (_STACKED, 0) or family_of(model).encodes:  # T5's targets are not shifted
        return model
    older, upcast = family_of(model).older_loss, "loss"
    if line < max(older.until, older.wide_until):
        upcast = "model" if older.wide else "none"
    return attrs.evolve(model, logits_upcast=upcast, logits_shifted=line < _SHIFTS_LABELS or line < older.until)
