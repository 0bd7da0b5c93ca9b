"""LLaMA-Factory, Axolotl and ms-swift: trainers on top of Hugging Face's, each with its YAML and its own names.

All three hand the config to TrainingArguments, so "auto" is filled in as by the Trainer. Argument names read in
LLaMA-Factory ff6d4d1 (2026-08-18; src/llamafactory/hparams), Axolotl 0.18.0 (src/axolotl/utils/schemas) and ms-swift
4.6.0.dev0 (3602360, 2026-08-22; swift/arguments).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import attrs

from dsgen.frameworks import recomputation
from dsgen.frameworks.adapters import adapters, attention, dtype
from dsgen.frameworks.job_files import FILL_IN, Argument, JobFile, JobFiles, beside, yaml_text
from dsgen.frameworks.training_arguments import autos, resolved, training_arguments, with_autos
from dsgen.frameworks.transformers_trainer import config_json
from dsgen.jobs.job import Job
from dsgen.rendering import Config
from dsgen.shapes.errors import mistake

__all__ = ["OF_NO_PLAN", "TRAINERS", "axolotl", "llama_factory", "ms_swift", "trainer_arguments", "trainer_text"]

# LLaMA-Factory's names (extras/constants.py, AttentionFunction); it has none for FlashAttention 4.
_FLASH = {
    "flash_attention_2": "fa2", "flash_attention_3": "fa3", "flash_attention_4": "fa2", "sdpa": "sdpa",
    "eager": "disabled",
}  # fmt: skip
_AXOLOTLS = {"flash_attention_4": "kernels-community/flash-attn4"}  # else a kernel of the hub
OF_NO_PLAN = ("lora_alpha",)  # what dsgen writes, nothing of a plan depends on, and a program's own file decides
_PACKED = "samples fill a sequence, and attention stops at their borders"
_FOUR_BITS = "the base lies in 4 bits: pip install bitsandbytes"


@attrs.frozen
class _Trainer:
    """How one of the three is told its arguments: which, in which file, what reads it, and what only a person knows."""

    told: Callable[[Config, str], Iterator[Argument]]
    file: str
    run: str
    unknown: tuple[Argument, ...]


def llama_factory(config: Config, path: str, resolve: bool) -> JobFiles:
    """The files of a job of LLaMA-Factory: `llamafactory-cli train llama_factory.yaml`."""
    return _files("llama-factory", config, path, resolve)


def axolotl(config: Config, path: str, resolve: bool) -> JobFiles:
    """The files of a job of Axolotl: `axolotl train axolotl.yaml`."""
    return _files("axolotl", config, path, resolve)


def ms_swift(config: Config, path: str, resolve: bool) -> JobFiles:
    """The files of a job of ms-swift: `swift sft ms_swift.yaml`."""
    return _files("ms-swift", config, path, resolve)


def _files(target: str, config: Config, path: str, resolve: bool) -> JobFiles:
    tree = resolved(config) if resolve else with_autos(config)
    arguments = trainer_arguments(target, config, path, (Argument("output_dir", "output", "checkpoints and logs"),))
    name = beside(path, TRAINERS[target].file)
    run = f"{TRAINERS[target].run} {name}"
    return JobFiles(
        target=target,
        config=tree,
        files=(
            JobFile(path, config_json(tree), "the DeepSpeed config"),
            JobFile(name, trainer_text(target, arguments, name), run),
        ),
        arguments=arguments,
        autos={} if resolve else autos(config),
    )


def trainer_arguments(target: str, config: Config, path: str, run: tuple[Argument, ...]) -> tuple[Argument, ...]:
    """Every argument of a run: first what only a person knows, which says FILL_IN.

    Args:
        target: One of TRAINERS.
        config: The rendered config.
        path: Where it lies, as the program finds it.
        run: Where checkpoints go, and what else belongs to this run alone.

    Raises:
        DsgenError: A model with an encoder; activation offloading where a program has no argument for it.
    """
    if config.plan.job.model.encoder_layers:
        raise mistake(
            f"{config.plan.job.names.get('model', 'the model')} has an encoder",
            must=f"{target} fine-tunes decoders: take --target hf-trainer or accelerate",
            code="refused",
        )
    if config.plan.job.training.activation_offloading and not recomputation.offloads(target, config.plan.job):
        axolotl = "axolotl recomputes nothing of adapters where activations go to RAM, and moves all that blocks keep"
        raise mistake(
            axolotl if target == "axolotl" else f"{target} has no argument that moves activations to RAM as TRL does",
            must="the plan counts on what TRL does: take --target hf-trainer with TRL's SFTConfig",
            todo="Or keep activations on the GPU: --no-activation-offloading.",
            code="refused",
        )
    known = TRAINERS[target]
    model = config.plan.job.names.get("model", "the model")
    weights = config.plan.job.weights
    asked = tuple(
        item._replace(value=weights, reason="")
        if weights and item.reason is _MODEL
        else item._replace(reason=item.reason.format(model=model))
        for item in known.unknown
    )
    return (*asked, *run, *known.told(config, path))


def trainer_text(target: str, arguments: tuple[Argument, ...], name: str) -> str:
    """The YAML of arguments, which says what is still to be filled in."""
    open_ones = tuple(item.name for item in arguments if FILL_IN in str(item.value))
    notes = (f"Where it says {FILL_IN} only you know the value: {target} stops there.",) if open_ones else ()
    return yaml_text(f"{TRAINERS[target].run} {name} reads it.", arguments, notes)


def _renamed(config: Config, names: Mapping[str, str], without: tuple[str, ...] = ()) -> Iterator[Argument]:
    """TrainingArguments under a framework's own names, less those that it says otherwise."""
    for item in training_arguments(config):
        if item.name not in without:
            yield item._replace(name=names.get(item.name, item.name))


def _check_padded(job: Job, program: str, switch: str) -> None:
    """Refuse samples end to end of a program that knows them packed alone."""
    if job.training.padding_free and not job.training.packing:
        raise mistake(
            "training.padding_free is true",
            must=f"{program} has no switch for it",
            where=job.provenance.where("training.padding_free"),
            todo=f"--packing instead is its {switch}.",
            code="refused",
        )


def _of_llama_factory(config: Config, path: str) -> Iterator[Argument]:
    job, chosen = config.plan.job, config.plan.chosen.strategy
    _check_padded(job, "LLaMA-Factory", "neat_packing")
    lora = adapters(job)
    yield Argument("stage", "sft")
    yield Argument("do_train", True)
    yield Argument("finetuning_type", "lora" if lora else "full")
    if lora:
        yield Argument("lora_rank", lora.rank)
        yield Argument("lora_alpha", lora.alpha)
        yield Argument("lora_dropout", lora.dropout)
        yield Argument("lora_target", "all" if lora.targets == ("all-linear",) else ",".join(lora.targets))
        if lora.saved:
            yield Argument("additional_target", ",".join(lora.saved), "trained whole beside the adapters")
        if lora.quantized:
            yield Argument("quantization_bit", 4, _FOUR_BITS)
            yield Argument("quantization_method", "bnb")
            yield Argument("quantization_type", "nf4")
            yield Argument("double_quantization", job.training.double_quantization)
    yield Argument("deepspeed", path, "as seen from where the run starts")
    yield Argument("cutoff_len", job.seq_len, "tokens of a sequence")
    if job.training.packing:
        yield Argument("neat_packing", True, _PACKED)
    asked = attention(config.plan)
    yield Argument("flash_attn", _FLASH[asked], "it has no name for 4" if asked == "flash_attention_4" else "")
    said = ("gradient_checkpointing", "gradient_checkpointing_kwargs", "liger_kernel_config")
    yield from _renamed(config, {"use_liger_kernel": "enable_liger_kernel"}, said)
    yield Argument("disable_gradient_checkpointing", not chosen.checkpointing)
    if chosen.checkpointing:
        reenters = recomputation.reenters(config.plan)
        yield Argument("use_reentrant_gc", reenters, recomputation.reason(config.plan) if reenters else "")


def _of_axolotl(config: Config, path: str) -> Iterator[Argument]:
    job = config.plan.job
    _check_padded(job, "Axolotl", "sample_packing")
    lora = adapters(job)
    if lora:
        yield Argument("adapter", "qlora" if lora.quantized else "lora")
        yield Argument("lora_r", lora.rank)
        yield Argument("lora_alpha", lora.alpha)
        yield Argument("lora_dropout", lora.dropout)
        if lora.targets == ("all-linear",):
            yield Argument("lora_target_linear", True)
        else:
            yield Argument("lora_target_modules", list(lora.targets))
        if lora.saved:
            yield Argument("lora_modules_to_save", list(lora.saved), "trained whole beside the adapters")
        if lora.quantized:
            yield Argument("load_in_4bit", True, _FOUR_BITS)
    yield Argument("deepspeed", path, "as seen from where the run starts")
    yield Argument("sequence_len", job.seq_len, "tokens of a sequence")
    if job.training.packing:
        yield Argument("sample_packing", True, _PACKED)
    yield Argument("attn_implementation", _AXOLOTLS.get(asked := attention(config.plan), asked))
    if job.training.chunked_loss or job.training.liger_kernels:
        yield Argument("plugins", ["axolotl.integrations.liger.LigerPlugin"])
    if job.training.chunked_loss:
        yield Argument("liger_fused_linear_cross_entropy", True, "a loss that never holds all logits")
    if job.training.activation_offloading:
        yield Argument(recomputation.OFFLOADING, True, "what backward needs waits in RAM")
    if job.training.liger_kernels:
        yield from (Argument(name, True) for name in ("liger_glu_activation", "liger_rms_norm", "liger_rope"))
    names = {
        "per_device_train_batch_size": "micro_batch_size",
        "per_device_eval_batch_size": "eval_batch_size",
        "lr_scheduler_type": "lr_scheduler",
        "optim": "optimizer",
    }
    if config.tree.get("optimizer"):
        yield Argument("optimizer", "adamw_torch", "the config's own optimizer runs")
    yield from _renamed(config, names, ("use_liger_kernel", "liger_kernel_config"))


def _of_ms_swift(config: Config, path: str) -> Iterator[Argument]:
    job, chosen = config.plan.job, config.plan.chosen.strategy
    lora = adapters(job)
    yield Argument("tuner_type", "lora" if lora else "full")
    if lora:
        yield Argument("lora_rank", lora.rank)
        yield Argument("lora_alpha", lora.alpha)
        yield Argument("lora_dropout", lora.dropout)
        yield Argument("target_modules", list(lora.targets))
        if lora.saved:
            yield Argument("modules_to_save", list(lora.saved), "trained whole beside the adapters")
        if lora.quantized:
            yield Argument("quant_method", "bnb", _FOUR_BITS)
            yield Argument("quant_bits", 4)
            yield Argument("bnb_4bit_compute_dtype", dtype(chosen.precision), "fp32 where nobody says it")
            yield Argument("bnb_4bit_quant_type", "nf4")
            yield Argument("bnb_4bit_use_double_quant", job.training.double_quantization)
            if chosen.stage == 3:
                yield Argument("bnb_4bit_quant_storage", dtype(chosen.precision), "stage 3 shares out one dtype")
    yield Argument("torch_dtype", dtype(chosen.precision))
    yield Argument("deepspeed", path, "as seen from where the run starts")
    yield Argument("max_length", job.seq_len, "tokens of a sequence")
    if job.training.packing:
        yield Argument("packing", True, _PACKED)
    elif job.training.padding_free:
        yield Argument("padding_free", True, "samples lie end to end, and attention stops at their borders")
    yield Argument("attn_impl", attention(config.plan))
    yield from _renamed(config, {})


_MODEL = "folder or hub name of {model}"
# Of LLaMA-Factory a run without `template` would take whatever the tokenizer has, or none, and say so in a log only.
TRAINERS: Mapping[str, _Trainer] = {
    "axolotl": _Trainer(
        _of_axolotl,
        "axolotl.yaml",
        "axolotl train",
        (
            Argument("base_model", FILL_IN, _MODEL),
            Argument(
                "datasets", [{"path": FILL_IN, "type": FILL_IN}], "file, folder or hub name, and its prompt format"
            ),
        ),
    ),
    "llama-factory": _Trainer(
        _of_llama_factory,
        "llama_factory.yaml",
        "llamafactory-cli train",
        (
            Argument("model_name_or_path", FILL_IN, _MODEL),
            Argument("template", FILL_IN, "the chat format of that model, such as llama3 or qwen"),
            Argument("dataset", FILL_IN, "a name of dataset_info.json in dataset_dir"),
        ),
    ),
    "ms-swift": _Trainer(
        _of_ms_swift,
        "ms_swift.yaml",
        "swift sft",
        (
            Argument("model", FILL_IN, _MODEL),
            Argument("dataset", [FILL_IN], "files, or names on a hub"),
        ),
    ),
}
