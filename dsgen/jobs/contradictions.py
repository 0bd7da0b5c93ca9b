"""Facts of one job that cannot be true together, and those that only look so."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dsgen.jobs.fused_attention import running_attention
from dsgen.jobs.job import DEFAULT_SEQ_LEN
from dsgen.jobs.releases import casts_adapters
from dsgen.shapes.errors import mistake
from dsgen.shapes.layers import Provenance, Rank
from dsgen.shapes.profiles import Hardware, Model, Training
from dsgen.shapes.units import gib

__all__ = ["ADAPTERS", "contradictions", "idle_in_plans", "regrouped"]

_PACKED = ("double_quantization", "kbit_fp32")  # wishes that only a base in 4 bits has
ADAPTERS = (
    "lora_rank",
    "lora_targets",
    "lora_dropout",
    "lora_train_embeddings",
    "lora_fp32",
    *_PACKED,
)  # wishes that only adapters have
_AS_SOLD = re.compile(r"([0-9]+) ?GB")  # decimal: shops mean GiB by it


def contradictions(
    hardware: Hardware, model: Model, training: Training, provenance: Provenance, version: str
) -> Iterator[str]:
    """Warnings about facts that hardly go together, for a release of DeepSpeed.

    Raises:
        DsgenError: Facts that cannot: more usable memory than the card has, a card that others fill, GPUs of a node
            that nothing joins, adapters wider than the model, a decoder's targets, or samples that are packed where
            attention does not stop at their borders.
    """
    usable, sold = hardware.usable_memory_bytes, hardware.gpu_memory_bytes
    where = provenance.where("hardware.usable_memory")
    if usable > sold * 1.001:
        raise mistake(
            f"hardware.usable_memory is {gib(usable)} GiB and hardware.gpu_memory {gib(sold)} GiB",
            must="a driver cannot report more than the card has",
            where=provenance.where("hardware.gpu_memory"),
            todo="Set hardware.usable_memory too: it is the one that the plan uses.",
            code="contradiction",
        )
    if hardware.gpu_memory_used_bytes >= usable:
        raise mistake(
            f"hardware.gpu_memory_used is {gib(hardware.gpu_memory_used_bytes)} GiB",
            must=f"it must be less than the {gib(usable)} GiB of the card: nothing would be left for the training",
            where=provenance.where("hardware.gpu_memory_used"),
            code="contradiction",
        )
    _check_link(hardware, provenance)
    said, used = provenance.winner("hardware.gpu_memory"), provenance.winner("hardware.usable_memory")
    if said and said.rank >= Rank.SITE and (number := _AS_SOLD.fullmatch(str(said.value))):
        yield (
            f"{said.origin}: {said.value} is {gib(sold)} GiB; a card that is sold as {number[1]} GB has "
            f"{number[1]} GiB: write {number[1]}GiB"
        )
    if said and used and said.rank > used.rank:
        yield f"{said.origin}: hardware.gpu_memory changes no plan: usable_memory is {gib(usable)} GiB ({where})"
    yield from _idle(training, provenance, version)
    said = provenance.winner("training.lora_rank")
    if said and training.method != "full" and training.lora_rank > model.hidden_size:
        raise mistake(
            f"training.lora_rank is {training.lora_rank}",
            must=f"it must be at most {model.hidden_size}, the width of the model: no weight has a higher rank",
            where=said.origin,
            todo="Adapters have ranks of 8 to 64 as a rule; --method full trains the weights themselves.",
            code="contradiction",
        )
    if training.target_len and not model.encoder_layers:
        raise mistake(
            f"training.target_len is {training.target_len}",
            must=f"{model.architecture} is a decoder alone, whose targets are its own tokens: leave it out",
            where=provenance.where("training.target_len"),
            code="contradiction",
        )
    longest = training.seq_len or min(DEFAULT_SEQ_LEN, model.max_positions)
    if training.mean_len and training.mean_len > longest:
        raise mistake(
            f"training.mean_len is {training.mean_len}",
            must=f"it must be at most training.seq_len, the longest, which is {longest}",
            where=provenance.where("training.mean_len"),
            code="contradiction",
        )
    for name in ("packing", "padding_free"):
        if getattr(training, name):
            _check_borders(name, hardware, model, training, provenance)
    from dsgen.families import family_of  # it loads the operators of every family

    length = 0 if model.relative_buckets else training.seq_len or 0
    if length > model.max_positions and not family_of(model).learned_positions:
        yield f"{length} tokens are more than the {model.max_positions} of the model: its positions need scaling"


def _check_borders(name: str, hardware: Hardware, model: Model, training: Training, provenance: Provenance) -> None:
    """Samples share a row where a kernel of attention stops at their borders, and a decoder alone reads them."""
    runs = running_attention(hardware, model, training, training.precision)
    must, todo = "", ""
    if model.encoder_layers:
        must = f"{model.architecture} reads a sequence with an encoder, and each is one sample: leave it out"
    elif runs != "flash":
        why = f"training.attention is {training.attention}"
        todo = f"Say --attention flash, or --no-{name.replace('_', '-')} for a run without it."
        if training.attention == "flash":
            without = "fp32" if training.precision == "fp32" else "this GPU"
            why = f"{model.architecture if runs == 'eager' else without} has no FlashAttention, and {runs} runs"
            todo = f"--no-{name.replace('_', '-')} counts the run without it."
        must = f"{why}: only FlashAttention's kernels stop at borders of samples"
    if must:
        where = provenance.where(f"training.{name}")
        raise mistake(f"training.{name} is true", must=must, where=where, todo=todo, code="contradiction")


def _check_link(hardware: Hardware, provenance: Provenance) -> None:
    """A profile of one GPU to a node has no link, and whoever makes it a node of several has to say theirs."""
    count, link, rate = hardware.gpus_per_node, hardware.intra_node_link, hardware.intra_node_bandwidth_bytes_per_second
    if count == 1 or (link != "none" and rate > 0):
        return
    raise mistake(
        f"hardware.gpus_per_node is {count}, and hardware.intra_node_link {link} of {rate / 1e9:g} GB/s",
        must="GPUs of one node have a link between them, and a host for all of them",
        where=provenance.where("hardware.gpus_per_node"),
        todo=(
            "Say it too: four GH200 that NVLink joins are --set hardware.intra_node_link=nvlink, "
            "--set hardware.intra_node_bandwidth=450GB/s and --set hardware.intra_node_latency=1.9us, and their node "
            "has four times hardware.cpu_cores, numa_domains, host_memory and host_memory_bandwidth."
        ),
        code="contradiction",
    )


def regrouped(training: Training, world: int) -> Iterator[str]:
    """That a batch adds up only if GPUs share each sequence, which who wrote its three numbers did not ask for."""
    micro, steps, batch = training.micro_batch, training.accumulation, training.global_batch
    if micro and steps and batch and training.tp is None and batch < micro * steps * world:
        yield (
            f"micro-batch {micro} x accumulation {steps} x {world} GPUs are {micro * steps * world} sequences a step, "
            f"not {batch}: only tensor parallelism makes them so few; drop one of the three"
        )


def idle_in_plans(training: Training, provenance: Provenance) -> Iterator[str]:
    """What a person wishes that only a config of their own leaves open."""
    if training.foreach is not None:
        where = provenance.where("training.foreach")
        yield f"{where}: training.foreach does nothing in a plan, whose AdamW is DeepSpeed's and copies no moment"


def _idle(training: Training, provenance: Provenance, version: str) -> Iterator[str]:
    """What a person wishes that nothing reads beside the other wishes."""
    for path, why in _unread(training, version):
        winner = provenance.winner(path)
        if winner is not None and winner.rank >= Rank.SITE and winner.value is not None:
            yield f"{winner.origin}: {path} does nothing: {why}"


def _unread(training: Training, version: str) -> Iterator[tuple[str, str]]:
    if training.method == "full":
        why = "training.method is full, which has no adapters; --method lora has"
        yield from ((f"training.{name}", why) for name in ADAPTERS)
    elif training.method == "lora":
        why = "training.method is lora, whose base is not in 4 bits; --method qlora puts it so"
        yield from ((f"training.{name}", why) for name in _PACKED)
    if training.method != "full" and casts_adapters(version) and training.precision != "fp32":
        yield "training.lora_fp32", f"DeepSpeed {version} makes adapters 16-bit, whatever peft has made of them"
    if not (training.chunked_loss or training.liger_kernels):
        yield "training.liger", "training.chunked_loss is false, so no loss is Liger's; --chunked-loss"
    if training.scheduler in ("none", "program"):
        yield "training.warmup_steps", f"training.scheduler is {training.scheduler}"
    if training.scheduler in ("none", "WarmupLR"):
        why = f"training.scheduler is {training.scheduler}, which knows no end"
        yield from ((f"training.{name}", why) for name in ("total_steps", "total_tokens"))
    if training.global_batch is not None:
        why = f"training.global_batch is {training.global_batch}, which counts the sequences of a step"
        yield from ((f"training.{name}", why) for name in ("tokens_per_step", "tokens_per_gpu"))
