"""One simulated run: load, initialize, forward, backward and step of the real engine in a world of one process."""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import os
from typing import Any

import torch

from dsgen.engine.serving import ask_cpu_once
from dsgen.engine.simulate import (
    activation_offloading,
    adapters,
    attention,
    checkpoint_files,
    checkpointing,
    devices,
    eight_bits,
    holders,
    kept_logits,
    models,
    passes,
    patches,
    watching,
)
from dsgen.engine.simulate.ledger import Ledger
from dsgen.engine.simulate.recorder import Recorder
from dsgen.engine.simulate.versions import check_tested

__all__ = ["facts", "prepare", "run"]

_FAKE = {"fake_mode", "constant", "pytype", "dispatch_keys", "real_tensor"}  # what a FakeTensor is (torch 2.13)
WEIGHTS = "model"  # the file that has them beside a checkpoint; in which format it is written does not matter
BATCHES = 2  # of an evaluation: at stage 3 the second one finds what the first one has left gathered, as all later ones


def run(request: dict[str, Any], versions: dict[str, str], progress: dict[str, str]) -> tuple[Ledger, Recorder, Any]:
    """Run a request.

    Args:
        request: As in `dsgen.engine.simulate`, with every default filled in.
        versions: Of deepspeed, torch and transformers.
        progress: Gets the phase that is running, for whoever reports an error.

    Returns:
        The ledger, the recorder and the engine.

    Raises:
        RuntimeError: The versions were not tested together, and the request does not force it.
        Exception: What DeepSpeed, torch or transformers raise.
    """
    check_tested(versions, request["force"])
    ledger = Ledger()
    recorder = Recorder(ledger, progress, timed=request["time"], node=request["gpus_per_node"])
    _world(request, recorder)
    adapters.load(request["method"])
    config = copy.deepcopy(request["config"])
    gc.freeze()  # DeepSpeed collects garbage often: the modules just loaded need not be looked through
    with devices.fake_mode(), recorder:
        engine = _initialize(request, config, recorder)
        away = activation_offloading.OffloadedActivations(recorder) if request["activation_offloading"] else None
        for step in range(1, request["steps"] + 1):
            _train(request, engine, recorder, step, away)
        if request["checkpoint"]:
            engines = [engine]
            del engine
            engine = _checkpoint(request, engines, recorder)
    return ledger, recorder, engine


def facts(engine: Any) -> dict[str, Any]:
    """What the engine is: classes, stage, degrees, batch, attention, and the numbers of the model's elements.

    4-bit weights count as what they stand for.
    """
    model = models.base(engine.module)
    return {
        "model": type(model).__name__,
        "attention": attention.word(model.config._attn_implementation),
        "wrapper": type(engine.optimizer).__name__,
        "optimizer": type(engine.basic_optimizer).__name__ if engine.basic_optimizer is not None else None,
        "stage": int(engine.zero_optimization_stage()),
        "data_parallel": int(engine.dp_world_size),
        "micro_batch": int(engine.train_micro_batch_size_per_gpu()),
        "accumulation": int(engine.gradient_accumulation_steps()),
        "train_batch": int(engine.train_batch_size()),
        "parameters": models.elements(engine.module.parameters()),
        "trained": models.elements(_trainable(engine.module)),
    }


@functools.cache
def prepare() -> None:
    """Load the libraries, and change what does not hang on a request: once a process, and forks of it have it too."""
    patches.patch_torch(_pin, _is_pinned)
    devices.register()
    import deepspeed  # noqa: F401

    patches.patch_deepspeed()
    attention.register()
    ask_cpu_once()


_recorders: list[Recorder] = []  # the one of this process's run, once it has one


def _pin(tensor: Any, shape: Any) -> Any:
    return _recorders[0].pin(tensor, shape)


def _is_pinned(tensor: Any) -> bool:
    return _recorders[0].is_pinned(tensor)


def _world(request: dict[str, Any], recorder: Recorder) -> None:
    """The fake process group and the accelerator."""
    # Whatever the rank, its GPU is the one of this process.
    os.environ.update(RANK=str(request["rank"]), WORLD_SIZE=str(request["world_size"]), LOCAL_RANK="0")
    prepare()
    _recorders.append(recorder)
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group(
        "fake", store=FakeStore(), rank=request["rank"], world_size=request["world_size"]
    )
    import deepspeed
    from deepspeed.accelerator import set_accelerator

    from dsgen.engine.simulate.accelerator import VirtualAccelerator

    accelerator = VirtualAccelerator(
        memory_bytes=request["gpu_memory_bytes"],
        devices=request["gpus_per_node"],
        allocated=lambda: recorder.live[0],
        emptied=recorder.ledger.emptied,
        pin=recorder.pin,
        is_pinned=recorder.is_pinned,
    )
    set_accelerator(accelerator)
    deepspeed.init_distributed(dist_backend="fake", verbose=False)
    if request["time"]:
        watching.watch()


def _initialize(request: dict[str, Any], config: dict[str, Any], recorder: Recorder) -> Any:
    """The engine of the request's model."""
    import deepspeed

    model = models.build(request, config)
    recorder.vocabularies, recorder.head_shape = models.head(model)
    _end(recorder, model, None)
    recorder.enter("init")
    engine, *_ = deepspeed.initialize(model=model, config=config, **_trained(request, model))
    patches.no_input_check(engine)
    widths, recorder.head_shape = models.head(engine.module)  # AutoTP may have cut the head
    recorder.vocabularies |= widths
    if request["activation_offloading"]:
        activation_offloading.head_stays(models.base(engine.module))
    if request["checkpointing"] == checkpointing.DEEPSPEED:
        checkpointing.use_deepspeed(engine, models.base(engine.module), request["config"])
    for parameter in _trainable(engine.module):
        parameter.register_hook(functools.partial(_gradient, recorder))
    if recorder.program is not None:
        recorder.modules.watch(engine.module)
    _end(recorder, engine.module, engine)
    return engine


def _trained(request: dict[str, Any], model: Any) -> dict[str, Any]:
    """What DeepSpeed's own optimizer is to train, or the optimizer that the program makes."""
    if request["own_optimizer"] == eight_bits.NAME:
        return {"optimizer": eight_bits.AdamW8bit(_trainable(model))}
    return {"model_parameters": _trainable(model)}


def _trainable(model: Any) -> list[Any]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def _gradient(recorder: Recorder, gradient: Any) -> None:
    """A weight's gradient is told from other results of backward when it reaches the weight."""
    recorder.claim(gradient, "gradients")


def _train(request: dict[str, Any], engine: Any, recorder: Recorder, step: int, away: Any = None) -> None:
    """One optimizer step: forward and backward of every micro-batch, but for those that would do the same once more.

    What autograd keeps meanwhile is `away`, unless that is None.

    Of a pass's number the engine asks no more than whether it is the last one, which reduces and steps: that one runs.
    """
    recorder.step = step
    if step == request["steps"]:
        devices.streams.program = recorder.program
    accumulation = engine.gradient_accumulation_steps()
    starts: list[passes.Start] = []
    micro_batch = 1
    while micro_batch <= accumulation:
        starts.append(recorder.start())
        with away or contextlib.nullcontext():
            if away is not None and _imports_bitsandbytes(request):  # then TRL empties the allocator's cache
                recorder.ledger.emptied()
            _pass(request, engine, recorder, micro_batch)
        left = accumulation - micro_batch - 1
        if left > 0 and len(starts) > 1 and not request["every_pass"] and recorder.repeat(starts[-2], starts[-1], left):
            engine.micro_steps += left
            micro_batch += left
        micro_batch += 1
    devices.streams.program = None
    _end(recorder, engine.module, engine)
    if request["evaluation"] is not None:
        _evaluate(request, engine, recorder)


def _imports_bitsandbytes(request: dict[str, Any]) -> bool:
    return bool(request["method"] == "qlora" or request["own_optimizer"] == eight_bits.NAME)


def _evaluate(request: dict[str, Any], engine: Any, recorder: Recorder) -> None:
    """Batches as the Trainer evaluates them: forward with labels, of which the loss is kept, and maybe the logits."""
    engine.eval()

    recorder.enter("evaluate")
    most, kept = request["kept"] or 0, None
    for batch in range(max(BATCHES, most)):
        tokens, labels = _tokens(request, request["evaluation"], recorder.step)
        with torch.no_grad():
            out = engine(input_ids=tokens, labels=labels)
        loss = out.loss.detach().mean()
        logits = out.logits if most else None
        del out, tokens, labels
        if logits is not None:  # a chunked loss has none
            logits = kept_logits.gathered(logits)
            kept = kept_logits.behind(kept, logits)
        del logits
        if most and not (batch + 1) % most:  # they go to the CPU
            kept = None
    del loss, kept
    _end(recorder, engine.module, engine)
    engine.train()


def _checkpoint(request: dict[str, Any], engines: list[Any], recorder: Recorder) -> Any:
    """A checkpoint as the one engine writes it; and going on from it with another one, when the first is gone."""
    engine = engines.pop()
    with checkpoint_files.folder() as (files, path):
        files.serve(engine)
        recorder.enter("save")
        saved = checkpoint_files.weights(engine, request["method"] != "full")
        if saved is not None and request["rank"] == 0:
            files.save(saved, f"{path}/{WEIGHTS}")
        del saved
        engine.save_checkpoint(path, exclude_frozen_parameters=True)
        _end(recorder, engine.module, engine)
        _end_process(engine)
        del engine
        gc.collect()
        recorder.step = 0
        recorder.enter("load")
        again = _initialize(request, copy.deepcopy(request["config"]), recorder)
        files.serve(again)
        recorder.enter("resume")
        again.load_checkpoint(path, load_module_strict=False)
        _end(recorder, again.module, again)
    recorder.written = files.sizes
    return again


def _end_process(engine: Any) -> None:
    """Let go of what an engine holds, as the end of its process does: hooks of torch would keep it for ever."""
    engine.destroy()
    for optimizer in (engine.basic_optimizer, engine.optimizer):
        vars(optimizer).clear()
    for module in engine.module.modules():
        module._buffers.clear()
    for parameter in engine.module.parameters():
        for name in vars(parameter).keys() - _FAKE:
            delattr(parameter, name)


def _pass(request: dict[str, Any], engine: Any, recorder: Recorder, micro_batch: int) -> None:
    """Forward and backward of one micro-batch, and the engine's step, which is one only after the last."""
    recorder.enter("input", micro_batch)
    tokens, labels = _tokens(request, engine.train_micro_batch_size_per_gpu(), recorder.step)
    recorder.enter("forward", micro_batch)
    out = engine(input_ids=tokens, labels=labels)
    loss = out.loss
    del out  # a training loop keeps the loss alone
    every = request["empty_cache_steps"]
    if every and (recorder.step - 1) % every == 0:  # as transformers/trainer.py does in training_step
        recorder.ledger.emptied()
    _end(recorder, engine.module, engine, micro_batch)
    recorder.enter("backward", micro_batch)
    with devices.telling():
        engine.backward(loss)
    _end(recorder, engine.module, engine, micro_batch)
    recorder.enter("step", micro_batch)
    engine.step()
    del loss, tokens, labels  # a training loop refers to them while it steps


def _tokens(request: dict[str, Any], samples: int, step: int) -> tuple[Any, Any]:
    """Token ids and labels of a micro-batch: one tensor, unless targets have another length."""
    turns = request["lengths"] or [request["seq_len"]]
    length = turns[(step - 1) % len(turns)]
    lengths = dict.fromkeys((length, request["target_len"] or length))
    made = [torch.zeros(samples, length, dtype=torch.long, device=devices.NAME) for length in lengths]
    return made[0], made[-1]


def _end(recorder: Recorder, module: Any, engine: Any, micro_batch: int = 0) -> None:
    """Close the phase: ask who holds what by now."""
    for tensor, kind in holders.held(module, engine):
        recorder.claim(tensor, kind)
    recorder.ledger.mark(recorder.phase, recorder.step, micro_batch)
