"""The request of a simulation with every default filled in, checked as far as it is the simulation's own.

What DeepSpeed, transformers or peft refuse is said before a child starts: dsgen/strategies/constraints.
"""

from __future__ import annotations

from typing import Any

from dsgen.allocators import allocator_settings

__all__ = ["ATTENTION", "DEFAULTS", "DTYPES", "LIGERS", "LIGER_KERNELS", "METHODS", "filled"]

DEFAULTS: dict[str, Any] = {
    "rank": 0,
    "gpus_per_node": 8,
    "gpu_memory_bytes": 80 * 2**30,  # DeepSpeed flattens on the host where less than the weights is free
    # Of cuBLAS, one for each thread and stream that multiplies; the GPU's memory is without them.
    "workspace_bytes": 0,
    "seq_len": 2048,
    "lengths": None,  # tokens per sequence of each step in turn, a list; None: seq_len in every step
    "target_len": None,  # tokens of the targets where a model has an encoder; None: as many as seq_len
    "steps": 2,  # the first makes the optimizer states, the second is like all later ones
    "dtype": "bfloat16",  # of the parameters before initialize
    "attention": "flash",
    "checkpointing": False,  # True: Hugging Face's; "deepspeed": deepspeed.checkpointing in Hugging Face's blocks
    "reentrant": False,  # True: Hugging Face's checkpointing is torch's reentrant kind
    "activation_offloading": False,  # what autograd keeps waits in RAM, as TRL's activation_offloading moves it
    "method": "full",
    "lora_rank": 16,
    "lora_targets": ["all-linear"],  # or names of modules, as peft takes them
    "lora_dropout": 0.0,  # the probability with which an adapter drops an element of its input
    "lora_train_embeddings": False,  # the input embedding and the output head are trained beside the adapters
    "own_optimizer": "",  # that the program makes: AdamW8bit of bitsandbytes; "": the config's
    "double_quantization": True,  # of a base in 4 bits: its scales are quantized too
    "kbit_fp32": "always",  # whether peft prepares it: never, always, or below-3, where stage 3 does not run
    "lora_fp32": True,  # peft makes adapters fp32 (autocast_adapter_dtype)
    "zero_init": True,  # at stage 3 the model is made under zero.Init
    "chunked_loss": False,  # head and loss as Liger's fused linear cross entropy
    # That of older transformers, {"upcast": loss, model or none, "shifted": true or false}, and of a chunked one the
    # release that it is as, "liger".
    "older_loss": None,
    "liger_kernels": "",  # Liger's SwiGLU, norms and RoPE as of one of LIGER_KERNELS; "": Hugging Face's
    "alloc_conf": "",  # PYTORCH_CUDA_ALLOC_CONF
    "empty_cache_steps": None,  # the Trainer's torch_empty_cache_steps: between forward and backward of every so many
    "evaluation": None,  # sequences that are evaluated after every step, a forward without gradients; None: none are
    "kept": None,  # batches of it whose logits stay on the GPU, those of all ranks; None: the loss alone
    "checkpoint": False,  # True: behind the last step a checkpoint is saved, and loaded again
    "every_pass": False,  # True: run also the passes of accumulation that do the same as the one before
    "time": False,  # True: the answer has the program of the last step, from which its time is computed
    "force": False,  # run with versions that were not tested
}
ATTENTION = ("flash", "sdpa", "masked", "grouped", "math", "eager")
UPCASTS = ("loss", "model", "none")
LIGERS = ("0.3.0", "0.5.0", "0.5.3", "0.5.6", "0.6.2")  # releases of Liger that changed its loss, the newest last
LIGER_KERNELS = ("0.4.1", "0.8.5")  # releases that changed what its other kernels hold, likewise
METHODS = ("full", "lora", "qlora")
KBIT = ("always", "below-3", "never")
OPTIMIZERS = ("", "AdamW8bit")
DTYPES = ("bfloat16", "float16", "float32")
_NEEDED = {"config": dict, "model": dict, "world_size": int}
_COUNTS = ("world_size", "gpus_per_node", "gpu_memory_bytes", "seq_len", "steps", "lora_rank")


def filled(request: dict[str, Any]) -> dict[str, Any]:
    """The request with its defaults.

    Raises:
        ValueError: A value cannot be, or asks for what a simulation does not follow.
    """
    for name, kind in _NEEDED.items():
        if not isinstance(request.get(name), kind):
            raise ValueError(f"the request has no {name}, or it is no {kind.__name__}")
    if unknown := sorted(set(request) - set(DEFAULTS) - set(_NEEDED)):
        raise ValueError(f"the request has unknown keys: {', '.join(unknown)}")
    asked = {**DEFAULTS, **request}
    counts = (
        *_COUNTS,
        *(name for name in ("target_len", "empty_cache_steps", "evaluation", "kept") if asked[name] is not None),
    )
    for name in counts:
        if not _is_count(asked[name]):
            raise ValueError(f"{name} is {asked[name]!r}; it must be a whole number of at least 1")
    workspace = asked["workspace_bytes"]
    if not (_is_count(workspace) or workspace == 0):
        raise ValueError(f"workspace_bytes is {workspace!r}; it must be a whole number of at least 0")
    if not 0 <= asked["rank"] < asked["world_size"]:
        raise ValueError(f"rank is {asked['rank']}; it must be from 0 to {asked['world_size'] - 1}")
    choices = {"attention": ATTENTION, "dtype": DTYPES, "method": METHODS, "own_optimizer": OPTIMIZERS}
    choices |= {"kbit_fp32": KBIT, "liger_kernels": ("", *LIGER_KERNELS)}
    for name, allowed in choices.items():
        if asked[name] not in allowed:
            raise ValueError(f"{name} is {asked[name]!r}; it must be one of {', '.join(allowed)}")
    if not isinstance(asked["model"].get("model_type"), str):
        raise ValueError("the model has no model_type: it is not a config.json of transformers")
    lengths = asked["lengths"]
    if lengths is not None and not (isinstance(lengths, list) and lengths and all(map(_is_count, lengths))):
        raise ValueError(f"lengths is {lengths!r}; it must be a list of whole numbers of at least 1")
    if not isinstance(asked["alloc_conf"], str):
        raise ValueError(f"alloc_conf is {asked['alloc_conf']!r}; it must be text")
    allocator_settings.parse(asked["alloc_conf"])
    _switches(asked)
    _followed(asked["config"])
    return asked


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _switches(asked: dict[str, Any]) -> None:
    """Keys that are no counts: on, off, a list of names, a probability."""
    names = ("chunked_loss", "double_quantization", "every_pass", "lora_fp32", "lora_train_embeddings", "reentrant")
    for name in (*names, "activation_offloading", "time", "zero_init"):
        if not isinstance(asked[name], bool):
            raise ValueError(f"{name} is {asked[name]!r}; it must be true or false")
    older = asked["older_loss"]
    if older is not None and not (
        isinstance(older, dict)
        and sorted({"liger": LIGERS[-1], **older}) == ["liger", "shifted", "upcast"]
        and older["upcast"] in UPCASTS
        and isinstance(older["shifted"], bool)
        and older.get("liger", LIGERS[-1]) in LIGERS
    ):
        raise ValueError(
            f"older_loss is {older!r}; it must be left out, or have upcast, one of {', '.join(UPCASTS)}, shifted, "
            f"true or false, and, if it is said, liger, one of {', '.join(LIGERS)}"
        )
    checkpointing, targets, dropout = asked["checkpointing"], asked["lora_targets"], asked["lora_dropout"]
    if not isinstance(checkpointing, bool) and checkpointing != "deepspeed":
        raise ValueError(f"checkpointing is {checkpointing!r}; it must be true, false or 'deepspeed'")
    if not isinstance(targets, list) or not targets or not all(isinstance(one, str) and one for one in targets):
        raise ValueError(f"lora_targets is {targets!r}; it must be a list of names of modules, or ['all-linear']")
    if isinstance(dropout, bool) or not isinstance(dropout, (int, float)) or not 0 <= dropout < 1:
        raise ValueError(f"lora_dropout is {dropout!r}; it must be a number of at least 0 and below 1")
    if asked["method"] == "qlora" and asked["dtype"] == "float32":
        raise ValueError("method is 'qlora' with dtype 'float32'; it must be a 16-bit type, in which weights are used")


def _followed(config: dict[str, Any]) -> None:
    """Features that hang on values, on other processes, or on code that the training program brings."""
    degree = config.get("sequence_parallel_size", 1)
    if degree not in (None, 1):
        raise ValueError(
            f"sequence_parallel_size is {degree!r}; it must be left out of a simulation: the training program cuts the "
            f"sequences, not the config. Simulate a rank's part instead: seq_len divided by {degree!r}"
        )
    autocast = config.get("torch_autocast")
    if isinstance(autocast, dict) and autocast.get("enabled"):
        raise ValueError(
            "torch_autocast.enabled is true; it must be left out of a simulation: torch casts by the kernels of a GPU, "
            "which a simulation has not. `dsgen memory` counts the weights in fp32, and what is cast as an interval"
        )
    zero = config.get("zero_optimization")
    if not isinstance(zero, dict):
        return
    if zero.get("zenflow"):
        raise ValueError(
            "zero_optimization.zenflow is set; it must be left out of a simulation: ZenFlow chooses by the values of "
            "gradients which of them stay on the GPU, and a simulation has no values"
        )
    offload = zero.get("offload_optimizer")
    if isinstance(offload, dict) and offload.get("super_offload"):
        raise ValueError(
            "zero_optimization.offload_optimizer.super_offload is true; it must be false in a simulation: SuperOffload "
            "steps in a process of its own, which is not followed"
        )
