"""What a training program holds or does, by its arguments, that no plan counts, and what of it can be said instead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dsgen.asking.training_programs import LLAMA_FACTORY, SWIFT, program_of, shares_rows, trained_whole
from dsgen.linting.python_programs import CONFIG_OF_TRL
from dsgen.shapes.optimizer_names import is_paged, meant

__all__ = ["GONE", "said_of_gone", "said_of_paging", "uncounted"]

# What says how a model is aligned: Axolotl, ms-swift, LLaMA-Factory, a program's class of TRL's arguments; and the
# arguments of TRL's trainers that do.
_ALIGNED = ("rl", "rlhf_type", "stage", CONFIG_OF_TRL)
# Training on preferences -> whether a reference model stays beside the one that learns, unless adapters do.
_PAIRS = {"dpo": True, "ipo": True, "kto": True, **dict.fromkeys(("rm", "reward", "orpo", "cpo", "simpo"), False)}
_GENERATE = ("grpo", "ppo", "rloo", "gkd")
_OF_GRPO = ("num_generations",)
_OF_DPO = ("max_prompt_length", "precompute_ref_log_probs", "ref_model", "pref_beta")
# Arguments of the Trainer's that are not counted -> what of them.
_SWITCHED_ON = {
    "torch_compile": "torch.compile is not counted: it may take less for what it fuses, and more while it compiles",
    "predict_with_generate": "what an evaluation generates is not counted without --generate TOKENS of dsgen memory: "
    "keys and values of all tokens; nor, at stage 3, a gathering of all weights for each token",
    **dict.fromkeys(("use_dora", "peft_use_dora"), "DoRA is not counted: its adapters take more, and are slower"),
    "use_unsloth": "Unsloth's kernels are not counted: they take less, and are faster",
    **dict.fromkeys(
        ("use_galore", "use_apollo", "use_badam"),
        "an optimizer that keeps states of a part alone is not counted: AdamW's of all weights are",
    ),
}
# Of a base's weights, where it is not 4: LLaMA-Factory, ms-swift, QLoRA's own script; and a switch of Axolotl and TRL.
_BITS, _COUNTED_BITS, _EIGHT_BITS = ("quantization_bit", "quant_bits", "bits"), (4, 16, 32), "load_in_8bit"
# Arguments that TrainingArguments of transformers 5.23 has no more -> what says the same there; "": nothing does.
GONE = {
    "warmup_ratio": "warmup_steps",
    "evaluation_strategy": "eval_strategy",
    "group_by_length": "train_sampling_strategy",
    "no_cuda": "use_cpu",
    "per_gpu_train_batch_size": "per_device_train_batch_size",
    "per_gpu_eval_batch_size": "per_device_eval_batch_size",
    "push_to_hub_token": "hub_token",
    "torchdynamo": "torch_compile_backend",
    "include_inputs_for_metrics": "include_for_metrics",
    "include_tokens_per_second": "include_num_input_tokens_seen",
    "push_to_hub_model_id": "hub_model_id",
    "push_to_hub_organization": "hub_model_id",
    "adafactor": "optim",
    "sharded_ddp": "fsdp",
    "xpu_backend": "ddp_backend",
    **dict.fromkeys(("fsdp_min_num_params", "fsdp_transformer_layer_cls_to_wrap"), "fsdp_config"),
    **dict.fromkeys(("dispatch_batches", "split_batches"), "accelerator_config"),
    **dict.fromkeys(("overwrite_output_dir", "save_safetensors", "logging_dir", "use_mps_device", "jit_mode_eval"), ""),
    **dict.fromkeys(("fp16_backend", "half_precision_backend", "fp16_opt_level", "use_ipex", "ray_scope"), ""),
    **dict.fromkeys(("past_index", "mp_parameters", "tpu_num_cores", "tpu_metrics_debug"), ""),
    "use_legacy_prediction_loop": "",
}
_NEWEST = "5.23"  # the release that it was read of
_SHARDED = ("fsdp", "fsdp_version")  # the Trainer's, Axolotl's
# GPUs that share a sequence: Axolotl's word, its older one, ms-swift's.
_TOGETHER = ("context_parallel_size", "sequence_parallel_degree", "sequence_parallel_size")
# Weights that stay as they are where all could be trained: Axolotl's list of the others, a share of ms-swift's.
_FROZEN = ("unfrozen_parameters", "freeze_parameters_ratio")
_EMPTIED = "torch_empty_cache_steps"


def uncounted(values: Mapping[str, Any], file: str, fields: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for each.

    Args:
        values: All arguments.
        file: Where they stand.
        fields: What a scenario has of them.
    """
    yield from (f"{file}: {words}" for name, words in _SWITCHED_ON.items() if values.get(name) is True)
    if values.get(_EMPTIED):
        yield (
            f"{file}: {_EMPTIED} is not counted: what is reserved is less than is said, and dsgen simulate "
            f"--empty-cache-steps {values[_EMPTIED]} says it"
        )
    yield from (f"{file}: {words}" for words in _otherwise(values, fields))
    kind = _aligned(values)
    if kind in _GENERATE:
        yield (
            f"{file} is of {kind.upper()}: what generates its answers, and a reference model where one is, are not "
            "counted; --gpu-memory-used SIZE says what they take of every GPU"
        )
        return
    pairs, reference = kind in _PAIRS and kind != "kto", _PAIRS.get(kind, False) and "method" not in fields
    if not (pairs or reference):
        return
    batch = fields.get("micro_batch")
    held = ["the second answer of each pair"] * pairs + ["its reference model"] * reference
    ways = [f"--micro-batch {2 * batch if batch else 'N'} counts both answers"] * pairs
    ways += ["--gpu-memory-used SIZE the reference (at stage 3 its share)"] * reference
    verb = "is" if len(held) == 1 else "are"
    yield f"{file} is of {kind.upper()}: {' and '.join(held)} {verb} not counted; {', '.join(ways)}"


def said_of_gone(keywords: Iterable[str], file: str) -> str | None:
    """At which arguments of a Python program the newest transformers stops; None where it has them all.

    Args:
        keywords: By which the program makes the arguments; none of any other file.
        file: Where they stand.
    """
    names = [name for name in keywords if name in GONE]
    if not names:
        return None
    told = ", ".join(f"{name} (now {GONE[name]})" if GONE[name] else name for name in names)
    return f"{file}: TrainingArguments of transformers {_NEWEST} stops (TypeError) at what it has no more: {told}"


def said_of_paging(optimizer: str | None, file: str) -> str | None:
    """What is to be known of an optimizer whose states leave for RAM by themselves; None of any other.

    Args:
        optimizer: Its name in the arguments.
        file: Where they stand.
    """
    known = meant(optimizer) if optimizer is not None and is_paged(optimizer) else None
    if known is None:
        return None
    return (
        f"{file}: {optimizer} is counted and written as {known}, its states on the GPU: what is paged leaves for RAM "
        "where the GPU is full"
    )


def _otherwise(values: Mapping[str, Any], fields: Mapping[str, Any]) -> Iterator[str]:
    """What is counted as something else."""
    bits = next((values[name] for name in _BITS if _is_whole(values.get(name))), None)
    bits = 8 if values.get(_EIGHT_BITS) is True else bits
    if bits is not None and bits not in _COUNTED_BITS:
        yield f"a base in {bits} bits is counted as one in 16: its weights take less; --method qlora is one in 4 bits"
    shared = [] if fields.get("attention", "flash") == "flash" else [*shares_rows(values)]
    if shared:
        yield _whole_rows(shared[0], fields["attention"], program_of(values))
    if any(values.get(name) for name in _SHARDED) and not values.get("deepspeed"):
        yield "it trains with FSDP: what is said is what DeepSpeed does in its place"
    if among := next((values[name] for name in _TOGETHER if _is_whole(values.get(name)) and values[name] > 1), None):
        yield f"{among} GPUs share each sequence: every GPU is counted with whole ones, and takes less"
    if values.get("finetuning_type") == "freeze" or any(values.get(name) for name in _FROZEN):
        yield "weights that are frozen are counted as trained ones: their gradients and states are not there"
    names = trained_whole(values) if "method" in fields and "lora_train_embeddings" not in fields else ()
    if names:
        yield (
            f"{', '.join(names)}, trained whole beside the adapters, {'is' if len(names) == 1 else 'are'} not counted; "
            "--lora-train-embeddings counts embedding and head"
        )


def _whole_rows(shared: str, attention: str, program: str | None) -> str:
    """That rows of several samples are counted as whole sequences beside an attention that is not FlashAttention."""
    if program == SWIFT:
        return f"ms-swift stops at {shared} without FlashAttention: it must have attn_impl: flash_attn"
    asked = "flash_attn: fa2" if program == LLAMA_FACTORY else 'attn_implementation="flash_attention_2"'
    return (
        f"{shared} without FlashAttention is counted as whole sequences: {attention} gets a mask over all tokens of a "
        f"row and computes every pair of them; {asked} stops at the borders"
    )


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _aligned(values: Mapping[str, Any]) -> str:
    """How the model is aligned, in small letters; empty where it is not."""
    words = [str(values[name]).lower() for name in _ALIGNED if values.get(name)]
    known = next((word for word in words if word in (*_PAIRS, *_GENERATE)), "")
    if known:
        return known
    if any(name in values for name in _OF_GRPO):
        return "grpo"
    return "dpo" if any(values.get(name) for name in _OF_DPO) else ""
