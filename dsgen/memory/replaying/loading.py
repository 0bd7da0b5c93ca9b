"""The requests of a model that is loaded and of `deepspeed.initialize`, in their order.

Followed from transformers 5.23 (modeling_utils, the quantizer of bitsandbytes), peft 0.21
(prepare_model_for_kbit_training) and DeepSpeed 0.19.8 (runtime/engine.py, runtime/fp16/fused_optimizer.py and, in
runtime/zero, partition_parameters.py, stage_1_and_2.py and stage3.py).
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from dsgen.families.parameters import added, stretches
from dsgen.memory.asked import through_training
from dsgen.memory.cuts import cut
from dsgen.memory.numbers import PACKED, linear, quantized
from dsgen.memory.quantized_base import BITS, lifts, scale_bits
from dsgen.memory.replaying.requests import Handle, Requests
from dsgen.memory.shares import FP32, sub_groups
from dsgen.memory.states import States
from dsgen.memory.trained import wide_adapters
from dsgen.shapes.profiles import Model, Training
from dsgen.strategies.buffers import MOMENTS, Buffers

__all__ = ["load"]

_BITS = 8  # of a byte


class _Tensor(NamedTuple):
    """A tensor of the model: its elements, whether it is in 4 bits, and those of its adapters."""

    numel: int
    packed: bool
    adapters: tuple[int, ...]


def load(
    requests: Requests,
    model: Model,
    training: Training,
    layout: Any,
    buffers: Buffers,
    states: States,
    flattens: bool,
    clones_first: bool = False,
) -> None:
    """The model and the states come.

    Args:
        requests: Where they ask.
        model, training: What they are of.
        layout: Anything with stage, offload_optimizer, offload_param and tp.
        buffers: Those of the layout.
        states: The states.
        flattens: Stages 1 and 2 flatten weights on the GPU, not on the CPU.
        clones_first: Stage 3 clones flat weights before it makes them fp32.
    """
    tensors = list(_tensors(model, training, layout.tp if layout.stage < 3 else 1))
    if layout.stage == 3 and training.method != "qlora":
        _cut(requests, training, layout, states, tensors)
    else:
        trained = _whole(requests, training, layout, states, tensors)
    if layout.stage == 3:
        _initialize_cut(requests, training, layout, buffers, states, clones_first)
    elif layout.stage:
        _flatten(requests, layout, states, trained, flattens)
    elif states.size < FP32:
        _flatten_whole(requests, training, states, trained)


def _tensors(model: Model, training: Training, tp: int) -> Iterator[_Tensor]:
    full, packed = training.method == "full", quantized(model, training.method)
    rest = training.lora_rank, training.lora_targets, training.lora_train_embeddings
    beside = {} if full else added(model, *rest)
    for stretch in stretches(model):
        part = [
            _Tensor(item.sharded(tp), packed and linear(model, item), beside.get(item.name, ()))
            for item in stretch.parameters
        ]
        for _ in range(stretch.repeats):
            yield from part


def _whole(requests: Requests, training: Training, layout: Any, states: States, tensors: list[_Tensor]) -> list[Handle]:
    """Every tensor is loaded whole: those that are trained."""
    size, quantizes = states.size, training.method == "qlora" and states.size < FP32
    lifted, bits = quantizes and lifts(training, layout.stage), BITS + scale_bits(training)
    packed = [one for one in tensors if one.packed]  # bitsandbytes makes room for its 4 bits first
    four = requests.together(int(one.numel * bits / _BITS) for one in packed)
    plain = [one for one in tensors if not one.packed]
    handles = [requests.take(size * one.numel) for one in plain]
    if lifted:  # prepare_model_for_kbit_training makes all others fp32, and initialize makes them 16 bits again
        handles = _cast(requests, handles, [FP32 * one.numel for one in plain])
    adapters = [requests.take((FP32 if quantizes else size) * numel) for one in tensors for numel in one.adapters]
    if quantizes:
        numels = [size * numel for one in tensors for numel in one.adapters]
        if lifted:
            handles = _cast(requests, handles, [size * one.numel for one in plain])
        adapters = _cast(requests, adapters, numels)
    requests.take(states.tables)
    if layout.stage == 3:  # what is frozen is cut; what is trained leaves for the CPU to be flattened
        ranks, here = states.among, layout.offload_param == "none"
        shares = [-(-one.numel // (PACKED if one.packed else 1) // ranks) for one in (*packed, *plain)]
        for whole, share in zip((*four, *handles), shares, strict=True):
            requests.take(size * share if here else 0)
            requests.give(whole)
        requests.give(*adapters)
        _defragment(requests, layout)
    return handles if training.method == "full" else adapters


def _cast(requests: Requests, handles: list[Handle], sizes: list[int]) -> list[Handle]:
    """Tensors get another type, one by one."""
    made = []
    for handle, size in zip(handles, sizes, strict=True):
        made.append(requests.take(size))
        requests.give(handle)
    return made


def _flatten(requests: Requests, layout: Any, states: States, trained: list[Handle], here: bool) -> None:
    """Stages 1 and 2: flat weights beside the loaded ones, then master weights group by group."""
    groups = cut(states.tensors, states.ranks)
    if not here:
        requests.give(*trained)
    requests.empty_cache()
    for one in groups:
        requests.take(states.size * one.share * states.ranks)
    if here:
        requests.give(*trained)
    for one in groups:
        narrow = requests.take(states.size * one.share if states.size != states.wide else 0)
        requests.take(states.wide * one.share if states.on_gpu else 0)
        requests.give(narrow)
    if states.on_gpu:
        for one in groups:
            requests.borrow(states.wide * one.share)
    requests.take(through_training(layout, states).offload)


def _flatten_whole(requests: Requests, training: Training, states: States, trained: list[Handle]) -> None:
    """Stage 0 in 16 bits: a clone of every weight, a flat one, its master, and the states."""
    clones = requests.together(states.size * numel for numel in states.tensors.numels)
    requests.take(states.size * states.own)
    requests.give(*clones, *trained)
    flat = requests.take(states.size * states.own)
    requests.take(states.master)
    requests.give(flat)
    gradients = requests.take(FP32 * states.own)
    count = MOMENTS[training.optimizer]
    requests.together([states.moments // count] * count if count else ())
    requests.give(gradients)


def _cut(requests: Requests, training: Training, layout: Any, states: States, tensors: list[_Tensor]) -> None:
    """Under zero.Init every tensor is cut as soon as it is made; what is trained leaves for the CPU to be flattened."""
    size, ranks, here = states.size, states.among, layout.offload_param == "none"
    shares: list[Handle] = []
    for one in tensors:
        whole = requests.take(size * one.numel)
        share = requests.take(size * -(-one.numel // ranks) if here else 0)
        requests.give(whole)
        shares += [share] if training.method == "full" else []
    width = FP32 if wide_adapters(training) else size
    for one in tensors:
        shares += [requests.take(width * -(-numel // ranks) if here else 0) for numel in one.adapters]
    requests.give(*shares)
    _defragment(requests, layout)


def _defragment(requests: Requests, layout: Any) -> None:
    """Shares that wait on the GPU are put together, with an empty cache (stage3.py, defragment)."""
    if layout.offload_param == "none":
        requests.empty_cache()


def _initialize_cut(
    requests: Requests, training: Training, layout: Any, buffers: Buffers, states: States, clones_first: bool
) -> None:
    """Stage 3: flat shares of what is trained, master weights sub-group by sub-group, the bucket, and gradients."""
    if layout.offload_param == "none":
        requests.take((FP32 if wide_adapters(training) else states.size) * states.own)
    numels = states.cut_up.numels
    groups = [
        sum(-(-numels[index] // states.among) for index in group)
        for group in sub_groups(states.cut_up, states.among, buffers.sub_group, states.split)
    ]
    if states.on_gpu:
        _masters(requests, states, groups, clones_first)
        requests.borrow(states.wide * max(groups, default=0))  # a gradient for the optimizer's first step
    requests.take(states.size * buffers.reduce_bucket if buffers.contiguous else 0)
    requests.take(states.size * states.own if states.on_gpu else 0)
    for numel in numels:  # each of them is gathered once
        requests.borrow(states.size * numel)


def _masters(requests: Requests, states: States, groups: list[int], clones_first: bool) -> None:
    """Master weights, sub-group by sub-group: converted and then cloned, and the name of what was converted keeps it
    until the next one is; in older releases cloned and then converted (stage3.py, _create_fp32_partitions)."""
    before: Handle = 0
    first = (states.size if clones_first else states.wide) if states.size != states.wide else 0
    for share in groups:
        made = requests.take(first * share)
        requests.give(before)
        requests.take(states.wide * share)
        if clones_first:
            requests.give(made)
        before = 0 if clones_first else made
    requests.give(before)
