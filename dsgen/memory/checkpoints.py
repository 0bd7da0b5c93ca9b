"""What saving a checkpoint and going on from one take, as the Trainer and Accelerate do it with DeepSpeed.

Read in transformers 5.23 (Trainer.save_model, _save_checkpoint), Accelerate 1.15 (Accelerator.get_state_dict) and
DeepSpeed 0.19.8 (runtime/engine.py: save_checkpoint, _zero3_consolidated_16bit_state_dict,
_replace_module_consolidated_state_dict, load_checkpoint; checkpoint/utils.py: clone_tensors_for_torch_save). What the
engine itself saves and loads is held against its simulation (tests/engine/test_simulate_checkpoint.py). No GPU was at
hand to measure it on.
"""

from __future__ import annotations

from dsgen.jobs.job import Job
from dsgen.memory.asked import asked_of, batchless, copied, felt, through_training
from dsgen.memory.backward import start
from dsgen.memory.conversions import scales_of, tied_elements
from dsgen.memory.estimates import PhaseMemory
from dsgen.memory.hosts import Host, Locked, adapter_bytes, host
from dsgen.memory.loading import Loaded, under_zero_init
from dsgen.memory.modules import modules
from dsgen.memory.older_releases import returns_wide
from dsgen.memory.states import FP32, States, states
from dsgen.memory.trained import wide_adapters
from dsgen.strategies.strategies import Strategy

__all__ = ["between_steps", "resuming", "saving"]

_WHOLE = 3  # the stage that cuts the weights too
COPIES, CHECKPOINT = "copies of the weights", "the checkpoint's files"
MOMENTS = "optimizer states"


def saving(job: Job, strategy: Strategy) -> PhaseMemory:
    """The save of weights in 16 bits, and of the checkpoint behind it.

    Below stage 3 every rank copies the whole model to RAM, though rank 0 alone writes it, and what is tied twice; at
    stage 3 and with AutoTP rank 0 gathers it module by module, and of adapters nothing else. Then every rank writes its
    states tensor by tensor, each through a copy in RAM where it lies on the GPU. What rank 0 has gathered at stage 3 is
    in RAM until Python collects it: a function that calls itself holds it. hpZ's copies are those an
    evaluation has left.
    """
    held = _held(job, strategy)
    wide = strategy.stage == _WHOLE and wide_adapters(job.training)
    trained = (FP32 if wide else held.size) * held.tensors.elements
    through = job.gpus_per_node * FP32 * _largest(held, strategy) if held.on_gpu else 0
    if strategy.stage == _WHOLE:
        copies = through + (trained if job.training.method != "full" else held.size * held.numbers.total)
    elif strategy.tp > 1:
        copies = max(held.size * held.numbers.total, through)
    else:
        copies = max(job.gpus_per_node * (held.weights + held.size * tied_elements(job.model)), through)
    gpu = _resident(strategy, held)
    if strategy.stage == _WHOLE:  # tensors that are always there are let go of, and come back when all is saved
        whole = _gathering(job, strategy, held.size, wide)
        whole += _sent(strategy, held, whole)
        gpu["gathered parameters"] = max(whole, _persistent(held, wide))
    there = between_steps(job, strategy).phases["training"]
    return _phase("save", gpu, there, {COPIES: copies})


def resuming(job: Job, strategy: Strategy) -> PhaseMemory:
    """Every rank reads what it had written, into RAM first: below stage 3 the weights of all, then its own states.

    Those of an optimizer that steps in RAM stay where they were read, those on NVMe are copied from file to file. At
    stage 0 in 16 bits DeepSpeed has made states when it is initialized: they are on the GPU until those that were read
    are there too.
    """
    held = _held(job, strategy)
    scales, own = scales_of(job, held), 0 if held.swaps else held.master + held.moments
    named = 0 if job.training.method == "full" else tied_elements(job.model)
    weights = held.size * (held.tensors.elements + named) + scales
    each = {0: weights + own, 3: max(scales, own)}.get(strategy.stage, max(weights, own))  # of stage 0 in one file
    read = job.gpus_per_node * each
    # No step has been; what is read is cast on its way to the GPU as what is stepped.
    there = dict(_node(job, strategy, held, accumulates=False).stepping)
    there.pop(MOMENTS, None)
    gpu = _resident(strategy, held, stepped=False)
    if strategy.stage == 0 and held.master:
        gpu[MOMENTS] += held.moments
    if strategy.stage == _WHOLE:
        gpu["gathered parameters"] = _back(job, strategy, held)
    return _phase("resume", gpu, there, {CHECKPOINT: read})


def _back(job: Job, strategy: Strategy, held: States) -> int:
    """What is always there, when stage 3 has read its shares: it comes in one piece, of which each tensor is a copy.

    One rank alone gathers nothing. Its tensors are its shares, and all that are trained are new ones.
    """
    wide = wide_adapters(job.training)
    there = _persistent(held, wide)
    if held.among > 1:
        return 2 * there + _sent(strategy, held, there)
    if strategy.offload_param != "none":
        return there + _sent(strategy, held, there)
    full = job.training.method == "full"
    frozen = 0 if full else held.size * (held.numbers.persistent - held.numbers.persistent_adapters)
    return (FP32 if wide else held.size) * held.tensors.elements + frozen


def _sent(strategy: Strategy, held: States, whole: int) -> int:
    """Bytes of a rank's share of what is gathered, where it must first come from elsewhere."""
    return 0 if strategy.offload_param == "none" else -(-whole // held.among)


def between_steps(job: Job, strategy: Strategy) -> Host:
    """What a node has in its RAM and on its drives from the first step on: what a save and an evaluation lie beside."""
    return _node(job, strategy, _held(job, strategy), accumulates=strategy.accumulation > 1)


def _held(job: Job, strategy: Strategy) -> States:
    return states(asked_of(job, strategy), batchless(strategy), felt(strategy.buffers, strategy.stage))


def _resident(strategy: Strategy, held: States, stepped: bool = True) -> dict[str, int]:
    """What is on the GPU between two steps; stage 3 keeps its shares of gradients and its bucket."""
    there = through_training(batchless(strategy), held)
    if held.copies:  # all that loading has made, or those of a pass
        there = copied(there, held.copies, True)[stepped]
    gradients, bucket = start(held, strategy.stage, felt(strategy.buffers, strategy.stage), False)
    return {
        "weights": there.weights,
        "fp32 master weights": there.master,
        MOMENTS: there.optimizer + there.staged,
        "offload buffers": there.offload,
        "gradients": gradients,
        "communication buckets": bucket,
    }


def _gathering(job: Job, strategy: Strategy, size: int, wide: bool) -> int:
    """Bytes of the module whose tensors take most when they are whole; an adapter's matrices are modules each."""
    training = job.training
    adapted = training.method, training.lora_rank, training.lora_targets
    parts = modules(job.model, *adapted, strategy.tp, training.lora_train_embeddings).parts
    full, sizes = training.method == "full", [0]
    for one in (one for _, row in parts for one in row):
        sizes.append(sum(item.extent(wide) for item in one.tensors if full or item.frozen))
        sizes += [item.extent(wide) for item in one.tensors if not item.frozen]
    return size * max(sizes)


def _persistent(held: States, wide: bool) -> int:
    """Bytes of the tensors at or below stage3_param_persistence_threshold, whole."""
    adapters = held.numbers.persistent_adapters
    return held.size * (held.numbers.persistent - adapters) + (FP32 if wide else held.size) * adapters


def _node(job: Job, strategy: Strategy, held: States, accumulates: bool) -> Host:
    swapped = strategy.buffers.swap_buffers if strategy.offload_optimizer == "nvme" else 0
    place = swapped, strategy.buffers.sub_group, strategy.buffers.pipelined
    back = 0 if returns_wide(job.version) else held.size * held.own
    buffers, adapters = strategy.buffers, adapter_bytes(job.training, held.size)
    made = under_zero_init(job.training, strategy.stage)
    locked = Locked(buffers.locked, buffers.locked_shares, job.model, adapters, made)
    ranks = job.gpus_per_node
    return host(ranks, batchless(strategy), place, held, accumulates, Loaded(0, 0), 0, back, locked)


def _largest(held: States, strategy: Strategy) -> int:
    """Elements of the largest tensor of a rank's states: its whole part, at stage 3 a group of it."""
    return min(held.own, strategy.buffers.sub_group) if strategy.stage == 3 else held.own


def _phase(name: str, gpu: dict[str, int], training: dict[str, int], more: dict[str, int]) -> PhaseMemory:
    ram = {**training, **more}
    return PhaseMemory(
        phase=name,
        step=0,
        micro_batch=0,
        gpu={part: size for part, size in gpu.items() if size},
        host={part: size for part, size in ram.items() if size},
    )
