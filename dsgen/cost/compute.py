"""Time of one micro-batch's arithmetic on one GPU: matrix multiplications, and the passes over memory between them."""

from __future__ import annotations

import functools

from dsgen.families.parameters import active_parameter_count, encoder_parameter_count, routed_parameter_count
from dsgen.jobs.job import Job
from dsgen.memory.activations import activations
from dsgen.memory.states import widths
from dsgen.shapes.profiles import Model, Training
from dsgen.strategies.strategies import Strategy

__all__ = ["adam_bytes", "micro_step_seconds", "update_seconds"]

# Share of the dense peak that large 16-bit matrix products reach inside a Hugging Face model. Fitted so that whole
# steps give the median hardware FLOPs utilisation of published DeepSpeed and FSDP tables: 0.46 to 0.55 on A100
# (BLOOM's logs, llm-foundry's benchmarking table), 0.42 on H100 (the same table).
MATMUL_EFFICIENCY = 0.62
MATMUL_EFFICIENCY_HOPPER = 0.50  # from Hopper on, 16-bit tensor cores outrun memory and power
MATMUL_EFFICIENCY_CPU = 0.05  # of the node's AMX peak: eager kernels are small, clocks fall, and blocks wait for memory
HOPPER_FLOPS = 600e12  # bf16 FLOP/s above which a GPU counts as such
HALF_TOKENS = 512  # tokens of a micro-batch at which products reach half that share: smaller ones leave units idle
MEMORY_EFFICIENCY = 0.8  # share of peak memory bandwidth that element-wise kernels reach (STREAM-like, A100 0.8 to 0.9)
PASSES = 3  # times each kept activation byte moves: written forward, read and its gradient written backward
FORWARD = 2  # FLOPs per parameter and token forward: a multiply and an add
BACKWARD_INPUT = 2  # gradient of the input
BACKWARD_WEIGHT = 2  # gradient of the weight; frozen weights have none
WEIGHT_MOVES, MOMENT_MOVES = 3, 4  # of an element that Adam updates: it reads a gradient, and reads and writes the rest
COPY_BYTES = 2  # of it that a GPU writes besides: the 16-bit copy


def micro_step_seconds(job: Job, strategy: Strategy, tokens: int) -> tuple[float, float]:
    """Forward and backward of one micro-batch.

    Args:
        job: The job.
        strategy: How it runs.
        tokens: Tokens per sequence.

    Returns:
        Seconds on matrix products and on memory traffic.
    """
    model, training = job.model, job.training
    batch = strategy.micro_batch * tokens
    weights, routed, kept = _facts(model, training, strategy.precision, strategy.tp, tokens)
    backward = BACKWARD_INPUT + (BACKWARD_WEIGHT if training.method == "full" else 0)
    passes = FORWARD + backward + (FORWARD if strategy.checkpointing else 0)
    # Causal attention: two products of seq_len x head over half the positions, three times as dear with backward.
    positions = _attended(model, tokens, job.target_len)
    attention = 2 * model.attention_heads * model.head_size * positions * (4 if strategy.checkpointing else 3)
    if model.sliding_window and model.sliding_window < tokens:
        attention = attention * model.sliding_window // tokens
    dense = float(batch) * ((weights - routed) * passes + attention) / strategy.tp
    seconds = dense / _rate(job, strategy.precision, batch)
    if routed:  # each expert is a product of its own, over the tokens routed to it
        per_expert = max(1, batch * model.experts_per_token // model.experts)
        seconds += float(batch) * routed * passes / _rate(job, strategy.precision, per_expert)
    moved = float(strategy.micro_batch) * kept * PASSES
    if strategy.checkpointing:
        moved *= (PASSES + 1) / PASSES
    return seconds, moved / (job.hardware.memory_bandwidth_bytes_per_second * MEMORY_EFFICIENCY)


def _attended(model: Model, tokens: int, targets: int) -> int:
    """Twice the positions that a token attends to, in all blocks; those of a target's tokens with it."""
    if not model.encoder_layers:
        return model.layers * tokens
    # The encoder reads all positions, the decoder those of its past and all that is encoded.
    both = 2 * model.encoder_layers * tokens**2 + model.layers * targets * (targets + 2 * tokens)
    return both // tokens


@functools.lru_cache(maxsize=4096)
def _facts(model: Model, training: Training, precision: str, tp: int, tokens: int) -> tuple[int, int, int]:
    """Parameters that a token uses, those of them that it is routed to, and bytes that forward keeps of a sequence:
    activations of the blocks, and logits."""
    recorded = activations(
        model,
        precision=precision,
        attention=training.attention,
        seq_len=tokens,
        tp=tp,
        method=training.method,
        chunked_loss=training.chunked_loss,
        lora_rank=training.lora_rank,
        lora_targets=training.lora_targets,
        drops=training.lora_dropout > 0,
        embeddings=training.lora_train_embeddings,
        target_len=training.target_len,
    )
    logits = max(moment.logits[1] for moment in recorded.backward)
    kept = sum(run.repeats * run.kept[1] for run in recorded.blocks) + logits
    passed = active_parameter_count(model)
    if training.target_len:  # a target's tokens pass the decoder, and those of the sequence the rest
        encodes = encoder_parameter_count(model)
        passed = encodes + (passed - encodes) * training.target_len // tokens
    return passed, routed_parameter_count(model), kept


def adam_bytes(job: Job, strategy: Strategy) -> int:
    """Bytes that Adam moves for an element: 28, or fewer where what it holds is in 16 bits."""
    weight, moment = widths(job, strategy)
    return WEIGHT_MOVES * weight + MOMENT_MOVES * moment


def update_seconds(job: Job, strategy: Strategy, elements: int) -> float:
    """The fused optimizer's pass over this rank's elements, on the GPU."""
    moved = adam_bytes(job, strategy) + COPY_BYTES
    return elements * moved / (job.hardware.memory_bandwidth_bytes_per_second * MEMORY_EFFICIENCY)


def _rate(job: Job, precision: str, batch: int) -> float:
    """FLOP/s that matrix products reach at a batch of this many tokens."""
    hardware = job.hardware
    peak = {
        "bf16": hardware.bf16_flops_per_second,
        "fp16": hardware.fp16_flops_per_second,
        "fp32": hardware.fp32_flops_per_second,  # torch leaves TF32 off for matrix products by default
    }[precision]
    if hardware.vendor == "cpu":
        share = MATMUL_EFFICIENCY_CPU
    else:
        share = MATMUL_EFFICIENCY_HOPPER if peak > HOPPER_FLOPS else MATMUL_EFFICIENCY
    return peak * share * batch / (batch + HALF_TOKENS)
