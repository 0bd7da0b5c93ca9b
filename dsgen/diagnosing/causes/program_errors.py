"""Causes that are about the program: checkpoints, and what DeepSpeed, torch and transformers stop at in training."""

from __future__ import annotations

from dsgen.diagnosing.causes.cause import SLOW, Cause, Sign

__all__ = ["PROGRAMS"]

_EMPTY = r"torch\.Size\(\[[01]?\]\)"  # what ZeRO-3 leaves in the place of a parameter that is in parts
# Where a step looks for the gradients that a backward of the engine has reduced, and there are none.
_REDUCED = r"\n[^\n]*self\.averaged_gradients\["

PROGRAMS = (
    Cause(
        code="world-size-changed",
        words="the checkpoint is of another number of GPUs",
        phase="resume",
        signs=(
            Sign("checkpoint being loaded used a DP world size"),
            Sign("Automatic adjustment of ZeRO's optimizer state"),
        ),
        why="ZeRO's optimizer states lie in one file for each rank of the run that saved them.",
        changes=(
            "resume on as many GPUs as saved it",
            "make it universal: python -m deepspeed.checkpoint.ds_to_universal, and "
            '"checkpoint": {"load_universal": true}',
        ),
        source="https://www.deepspeed.ai/tutorials/universal-checkpointing/",
    ),
    Cause(
        code="checkpoint-empty",
        words="a checkpoint and the model differ because ZeRO-3 holds the parameters in parts",
        phase="load",
        signs=(
            Sign("size mismatch for", _EMPTY),
            Sign("loading state_dict for", rf"size mismatch for[^\n]*{_EMPTY}"),
            Sign("Trying to set a tensor of shape", _EMPTY),
            Sign("size mismatch - ckpt:", _EMPTY),
        ),
        why="A shape of 0 or 1 is a parameter that was partitioned when it was saved or is to be loaded into.",
        changes=(
            'to save whole ones: "stage3_gather_16bit_weights_on_model_save": true; of a checkpoint that is there '
            "zero_to_fp32.py makes them",
            "to load whole ones: from_pretrained under the Trainer's config, not load_state_dict after zero.Init",
        ),
        source="https://github.com/huggingface/transformers/issues/20082",
    ),
    Cause(
        code="checkpoint-shapes",
        words="a checkpoint does not fit the model",
        phase="load",
        signs=(
            Sign("size mismatch for"),
            Sign("loading state_dict for"),
            Sign("Missing key(s) in state_dict"),
            Sign("ignore_mismatched_sizes"),
        ),
        why="It was saved from another model, with other tokens, adapters or parallel degree.",
        changes=(
            "the same model, tokenizer size, adapter rank and tensor parallelism as when it was saved",
            "resize_token_embeddings before loading, where tokens were added",
        ),
        source="https://pytorch.org/tutorials/beginner/saving_loading_models.html",
    ),
    Cause(
        code="checkpoint-not-plain",
        words="torch refuses to load a checkpoint that holds more than tensors",
        phase="resume",
        signs=(Sign("Weights only load failed"),),
        why="Since 2.6 torch.load takes tensors and plain values alone where nobody says weights_only=False; a "
        "checkpoint of DeepSpeed's and the Trainer's random states hold other objects.",
        changes=(
            "newer releases of DeepSpeed, transformers and accelerate, which say for their own files what is allowed",
            "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1, for files that you made yourself: loading others' runs their code",
        ),
        source="https://docs.pytorch.org/docs/stable/notes/serialization.html#weights-only",
    ),
    Cause(
        code="checkpoint-missing",
        words="there is no checkpoint to resume from",
        phase="resume",
        signs=(
            Sign("Can't find a valid checkpoint at"),
            Sign("Unable to find latest file at"),
            Sign("Can't find any checkpoint"),
            Sign("is not a valid DeepSpeed checkpoint"),
            Sign("failed to resume from checkpoint"),
            Sign("No valid checkpoint", r"(?i)output directory|found in"),
            Sign("FileNotFoundError", r"global_step\d+|optim_states|model_states|trainer_state\.json"),
        ),
        why="The folder holds no checkpoint of DeepSpeed's (`latest` and folders global_step*), or a part of one.",
        changes=(
            "name the folder of the checkpoint, not of all; a run that died while saving left a part: take the one "
            "before",
            "on several nodes all must see the same folder",
        ),
        source="https://deepspeed.readthedocs.io/en/latest/model-checkpointing.html",
    ),
    Cause(
        code="checkpoint-cut-off",
        words="a file of the checkpoint is not whole",
        phase="resume",
        signs=(
            Sign("PytorchStreamReader failed reading zip archive"),
            Sign("PytorchStreamReader failed reading file"),
            Sign("pickle data was truncated"),
        ),
        why="A rank that was killed while it saved, or a full disk, leaves half of a file. `latest` may name such a "
        "checkpoint: rank 0 writes it without waiting for the others' files (deepspeed/runtime/engine.py of 0.19.8, "
        "save_checkpoint).",
        changes=(
            "take the checkpoint before it: name its folder, or write its name into `latest`",
            "a file of weights that was downloaded: download it again",
        ),
        source="https://github.com/hiyouga/LlamaFactory/issues/6208",
    ),
    Cause(
        code="recomputation-differs",
        words="activation checkpointing recomputed something else",
        phase="backward",
        signs=(
            Sign("Recomputed values for the following tensors have different metadata"),
            Sign("different number of tensors was saved during the original forward and recomputation"),
            Sign("CheckpointError"),
        ),
        why="Recomputed tensors have other shapes. A shape of 0 is a parameter that ZeRO-3 gave back too early, as "
        "DeepSpeed before 0.19.3 does with frozen ones; others follow state that changes between the passes.",
        changes=(
            "with adapters, DeepSpeed 0.19.3 or newer",
            'gradient_checkpointing_kwargs={"use_reentrant": True}, with model.enable_input_require_grads() for '
            "adapters",
            "ZeRO-2, where nothing is gathered",
        ),
        source="https://github.com/huggingface/trl/issues/2514",
    ),
    Cause(
        code="no-gradient",
        words="the loss has no gradient",
        phase="backward",
        signs=(Sign("does not require grad and does not have a grad_fn"), Sign("loss must be a scalar tensor")),
        why="With reentrant checkpointing and frozen embeddings no input requires a gradient, so autograd stops there; "
        "or every parameter is frozen, or the loss is no scalar.",
        changes=(
            "model.enable_input_require_grads() before the adapters are added",
            'gradient_checkpointing_kwargs={"use_reentrant": False}, but not at stage 3 before DeepSpeed 0.19.3',
        ),
        source="https://github.com/huggingface/peft/issues/2742",
    ),
    Cause(
        code="backward-elsewhere",
        words="backward or forward ran beside DeepSpeed's engine",
        phase="backward",
        signs=(
            Sign("Direct calls to tensor.backward() are not supported"),
            Sign("but backward() was called directly without scaling the loss"),
            Sign("Optimizer' object has no attribute 'ipg_"),
            Sign("KeyError: ", r"\A[^\n]*KeyError: \d", below=_REDUCED),
        ),
        why="The engine scales the loss, divides it by the accumulation and reduces gradients in its own forward and "
        "backward. loss.backward(), or a model that is called in the engine's place, leaves that out, and a step "
        "finds nothing.",
        changes=(
            "loss = engine(batch); engine.backward(loss); engine.step(), with what deepspeed.initialize gave back",
            "with Accelerate: accelerator.backward(loss), with the model that accelerator.prepare gave back",
            "loss.backward() itself works at stages 1 to 3 in bf16 with a recent DeepSpeed; in fp16: "
            "engine.scale(loss).backward()",
        ),
        source="https://github.com/deepspeedai/DeepSpeed/issues/6995",
    ),
    Cause(
        code="dtype-mismatch",
        words="tensors of different dtypes meet",
        phase="forward",
        signs=(
            Sign("expected scalar type"),
            Sign("Found dtype"),
            Sign("to have the same dtype"),
            Sign("must have the same dtype"),
            Sign("should be the same", r"Input type .* and (?:weight|bias) type"),
        ),
        why="DeepSpeed casts the weights to bf16 or fp16; inputs, buffers and modules made later stay fp32.",
        changes=(
            "cast floating inputs to the model's dtype (next(model.parameters()).dtype)",
            'let autocast do it: "torch_autocast": {"enabled": true, "dtype": "bfloat16"}',
        ),
        source="https://github.com/deepspeedai/DeepSpeed/issues/1233",
    ),
    Cause(
        code="dtypes-in-one-gather",
        words="ZeRO-3 is to gather parameters of several dtypes together",
        phase="forward",
        signs=(Sign("expected there to be only one unique element in"),),
        why="A module's parameters are gathered in one call, and must have one dtype: an 8-bit base, or fp32 adapters "
        "beside 16-bit weights, have several.",
        changes=(
            "no load_in_8bit with ZeRO-3; adapters in the dtype of the model (autocast_adapter_dtype=False)",
            "ZeRO-2, where nothing is gathered",
        ),
        source="https://github.com/bigcode-project/starcoder/issues/96",
    ),
    Cause(
        code="adapters-in-fp32",
        words="DeepSpeed 0.19.2 gathers fp32 adapters into buffers of 16 bits",
        phase="step",
        signs=(Sign("output tensor must have the same type as input tensor"),),
        why="peft makes adapters fp32, which stage 3 leaves from 0.19.2 on; that release gathers what stays on every "
        "rank into buffers of the first one's dtype.",
        changes=(
            "DeepSpeed 0.19.3 or later",
            "get_peft_model(model, config, autocast_adapter_dtype=False)",
        ),
        source="https://github.com/deepspeedai/DeepSpeed/issues/8072",
    ),
    Cause(
        code="device-mismatch",
        words="tensors of different devices meet",
        signs=(Sign("Expected all tensors to be on the same device"),),
        why="Something was left on the CPU or on GPU 0: a batch, a buffer, a model with device_map, or states of an "
        "optimizer beside offload.",
        changes=(
            'no device_map="auto" with DeepSpeed; inputs to model.device; one GPU for each rank',
            "in the optimizer's step with offload: DeepSpeed's own CPU Adam instead of a client's optimizer",
        ),
        source="https://github.com/deepspeedai/DeepSpeed/issues/5634",
    ),
    Cause(
        code="parameter-not-gathered",
        words="ZeRO-3 met a parameter that is not where it must be",
        signs=(
            Sign("ZeroParamStatus.AVAILABLE"),
            Sign("'status': 'NOT_AVAILABLE'"),
            Sign("'status': 'INFLIGHT'"),
            Sign("still have inflight params"),
            Sign("inflight_param_registry"),
            Sign("already in registry"),
            Sign("non-inflight parameter"),
            Sign("assert not param.ds_active_sub_modules"),
            Sign("'weight' must be 2-D"),
            Sign("but got weight of shape [0]"),
            Sign("size mismatch, got input", r"vec \(0\)"),
            Sign("in the parameter fetch queue"),
            Sign("tracing error at step"),
        ),
        why="ZeRO-3 gathers parameters in hooks of each module's forward. A parameter used outside of its module, a "
        "module that runs in another order, or a forward that was interrupted breaks that.",
        changes=(
            "with deepspeed.zero.GatheredParameters(...) around uses outside of forward; "
            "deepspeed.utils.set_z3_leaf_modules for modules whose order changes (mixture of experts)",
            "ZeRO-2, where parameters stay whole",
        ),
        source="https://deepspeed.readthedocs.io/en/latest/zero3.html",
    ),
    Cause(
        code="gradient-twice",
        words="a gradient was reduced twice",
        phase="backward",
        signs=(Sign("has already been reduced"), Sign("Gradient computed twice for this partition")),
        why="A parameter got its gradient twice in one backward: reentrant checkpointing of shared modules, or "
        "backward called twice.",
        changes=('gradient_checkpointing_kwargs={"use_reentrant": False}', "one backward for each forward"),
        source="https://github.com/deepspeedai/DeepSpeed/issues",
    ),
    Cause(
        code="unused-parameters",
        words="some parameters got no gradient",
        phase="forward",
        signs=(Sign("Expected to have finished reduction in the prior iteration"),),
        why="DistributedDataParallel waits for the gradient of every parameter, and some were not used.",
        changes=("ddp_find_unused_parameters=True, or freeze what the loss does not use",),
        source="https://pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
    ),
    Cause(
        code="shape-mismatch",
        words="tensors whose shapes do not match meet",
        phase="forward",
        signs=(Sign("shapes cannot be multiplied"), Sign("must match the size of tensor b")),
        why="A module got an input of another size, or a weight that ZeRO-3 has not gathered (a size of 0).",
        changes=(
            "where a size is 0, at ZeRO-3: with deepspeed.zero.GatheredParameters([weight]) around what uses a weight "
            "outside of its module's forward",
            "else print the shapes of the batch: padding, truncation, and a tokenizer that is not the model's",
        ),
        source="https://deepspeed.readthedocs.io/en/latest/zero3.html",
    ),
    Cause(
        code="trace-invalid",
        words="ZeRO-3 throws its record of the module order away",
        level=SLOW,
        signs=(Sign("Invalidate trace cache"),),
        why="Modules run in another order than the step before, so parameters are gathered late and not ahead.",
        changes=(
            "harmless where it comes with each evaluation or generation; else deepspeed.utils.set_z3_leaf_modules for "
            "the modules whose order changes",
        ),
        source="https://github.com/deepspeedai/DeepSpeed/issues/6870",
    ),
)
