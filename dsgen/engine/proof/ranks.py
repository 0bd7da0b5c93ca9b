"""One rank of a proof: real `deepspeed.initialize`, optimizer steps, a checkpoint save and load; facts as JSON."""

from __future__ import annotations

import copy
import functools
import json
import math
import os
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from dsgen.engine.proof import cpu_stand_ins, forced_overflows, observing, tensor_parallel, tiny_models
from dsgen.engine.witness import Witness

__all__ = ["run"]

_EIGHT_BITS = "AdamW8bit"  # bitsandbytes' optimizer with states in 8 bits, which runs on a CPU too
_SEED = 20  # any fixed number: the same model and data on every run
_TAG = "proof"
_ROOM_BYTES = 16384  # held on the disk for a rank's error: whole reports of golden configs take up to 7 KiB


def run(job: dict[str, Any], rank: int) -> dict[str, Any]:
    """Prove one config on one rank.

    The report is also written to `job["folder"]/rank<rank>.json` after every phase, so that a rank that hangs or
    crashes still tells how far it came.

    Args:
        job: config, read (the same after DeepSpeed's parse), ranks, tp, wide, model (for `tiny_models.load`), steps,
            device ("cpu" or "cuda"), folder, number (no other proof on this machine has it) and timeout_seconds.
        rank: 0-based.

    Returns:
        phase (the last one entered), observed, notes, error (None when all phases passed) and seconds per phase.
    """
    report: dict[str, Any] = {"rank": rank, "phase": "load", "observed": {}, "notes": [], "error": None, "seconds": {}}
    began = time.monotonic()

    def enter(phase: str) -> None:
        nonlocal began
        now = time.monotonic()
        report["seconds"][report["phase"]] = round(now - began, 3)
        report["phase"], began = phase, now
        write(job, report)

    # What a library leaves behind goes with the folder: a rank ends without the end of Python, which would remove it.
    os.environ["TMPDIR"] = tempfile.tempdir = job["folder"]
    try:
        _hold_room(job, rank)
        _phases(job, rank, report, enter)
        enter("done")
    except BaseException as error:  # a rank reports whatever ends it, SystemExit of a library included
        report["error"] = _error(error)
        _write_last(job, report)
    return report


def _hold_room(job: dict[str, Any], rank: int) -> None:
    """Take the place of a rank's error on the disk, which may be full when there is one to write."""
    _room(job, rank).write_bytes(b" " * _ROOM_BYTES)


def _room(job: dict[str, Any], rank: int) -> Path:
    return Path(job["folder"]) / f"rank{rank}.room"


def _write_last(job: dict[str, Any], report: dict[str, Any]) -> None:
    """Write a rank's error; where the disk is full, into the room that is held for it."""
    try:
        write(job, report)
    except OSError:
        said = json.dumps(report, default=str).encode()
        if len(said) > _ROOM_BYTES:
            said = json.dumps({**report, "observed": {}}, default=str).encode()
        room = _room(job, report["rank"])
        with room.open("r+b") as file:  # in place; what it held behind the report are blanks
            file.write(said)
        room.replace(_report(job, report["rank"]))


def _checkpoint(job: dict[str, Any]) -> Path:
    return Path(job["folder"]) / "checkpoint"


def _report(job: dict[str, Any], rank: int) -> Path:
    return Path(job["folder"]) / f"rank{rank}.json"


def write(job: dict[str, Any], report: dict[str, Any]) -> None:
    """Write one rank's report so that a reader never sees half of it."""
    path = _report(job, report["rank"])
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps(report, default=str), encoding="utf-8")
    draft.replace(path)


def _error(error: BaseException) -> dict[str, Any]:
    """The engine's own words, and the last site of its traceback, deepspeed's where it took part."""
    frames = traceback.extract_tb(error.__traceback__)
    inside = [frame for frame in frames if f"{os.sep}deepspeed{os.sep}" in frame.filename] or list(frames)
    last = inside[-1]
    return {
        "type": type(error).__name__,
        "message": str(error).strip() or "(no message)",
        "site": f"{_short(last.filename)}:{last.lineno} in {last.name}",
        "time": time.monotonic(),  # one clock for all processes of a machine, which nobody sets
    }


def _short(filename: str) -> str:
    """A path inside its package: `deepspeed/runtime/engine.py`."""
    return filename.rsplit(f"site-packages{os.sep}", 1)[-1]


def _phases(job: dict[str, Any], rank: int, report: dict[str, Any], enter: Any) -> None:
    import torch

    torch.set_num_threads(1)
    import deepspeed
    from deepspeed.runtime.config import DeepSpeedConfig

    config = Witness(job["config"])
    observed = report["observed"]
    _allow_fp16(job, report)
    _name_device(job, report)
    _leave_uncompiled(job, report)
    _connect(job, rank)
    if job["device"] == "cuda":
        observed["card"] = torch.cuda.get_device_name()
    DeepSpeedConfig(copy.deepcopy(config))

    enter("initialize")
    torch.manual_seed(_SEED)
    subject = tiny_models.load(job)
    model = _model(job, subject, config, report)
    observed.update(observing.model_sizes(model))
    if tensor_parallel.split(model, job["config"], job["tp"]):
        why = "DeepSpeed before 0.18.6 splits nothing in initialize: the training program must call it first"
        report["notes"].append(["deepspeed.tp_model_init", None, f"tp_size={job['tp']}", why])
    given = _own_optimizer(job, model, report)
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=_trainable(model), config=config, **given)
    if job["device"] == "cpu":
        cpu_stand_ins.let_ranks_go_first()  # of the groups that it made
    observed.update(observing.engine_facts(engine, rank))
    observed["held_config"] = observing.held_config(engine._config)
    observed["learning_rate_start"] = _rate(engine)

    enter("step")
    before = observing.snapshot(engine)
    inputs = subject.batch(int(observed["micro_batch"]), _SEED + rank // job["tp"], engine.device)
    losses = [_step(engine, inputs) for _ in range(job["steps"])]
    observed["steps"] = len(losses)
    if forced_overflows.is_fp16(job["read"]):
        observed["steps"] += forced_overflows.step_until_one_counts(engine, lambda: _step(engine, inputs))
    after = observing.snapshot(engine)
    observed.update(observing.state_facts(engine))
    norm = engine.get_global_grad_norm()
    observed.update(
        losses=losses,
        gradient_norm=None if norm is None else float(norm),
        learning_rate=_rate(engine),
        global_steps=int(engine.global_steps),
        skipped_steps=int(engine.skipped_steps),
        moved=_moved(before, after),
        weights_sha256=_digest(after),
        checkpointing=", ".join(sorted(subject.recomputed)),
        finite=all(map(math.isfinite, losses)) and all(bool(t.isfinite().all()) for t in after["tensors"]),
    )

    enter("checkpoint")
    folder = str(_checkpoint(job))
    engine.save_checkpoint(folder, tag=_TAG)
    # Move on, so that a load that does nothing is seen.
    observed["loss_after"] = _step(engine, inputs)
    loaded, _ = engine.load_checkpoint(folder, tag=_TAG)
    observed["checkpoint_loaded"] = loaded is not None
    observed["checkpoint_differences"] = _differences(after, observing.snapshot(engine))
    if forced_overflows.is_fp16(job["read"]):
        scaled = functools.partial(_step, engine, inputs)
        observed["overflow"] = forced_overflows.force_overflow(engine, job["read"], scaled)
    observed["unread"] = sorted(observing.unread(job["config"], config.seen))


def _allow_fp16(job: dict[str, Any], report: dict[str, Any]) -> None:
    """Let the fp16 code of DeepSpeed run on a CPU that it thinks too weak for it."""
    from deepspeed.accelerator import get_accelerator

    accelerator = get_accelerator()
    if forced_overflows.is_fp16(job["read"]) and job["device"] == "cpu" and not accelerator.is_fp16_supported():
        cpu_stand_ins.allow_fp16(accelerator)
        report["notes"].append(
            ["accelerator.is_fp16_supported", False, True, "DeepSpeed refuses fp16 on this CPU; its fp16 code runs"]
        )


def _name_device(job: dict[str, Any], report: dict[str, Any]) -> None:
    """Let AutoTP of releases before 0.18 find the CPU, which they call by the rank's number."""
    from deepspeed.accelerator import get_accelerator

    if job["tp"] > 1 and job["device"] == "cpu" and cpu_stand_ins.name_device(get_accelerator()):
        why = "DeepSpeed before 0.18 asks torch for a device of the rank's number, which no CPU has"
        report["notes"].append(["accelerator.current_device", "0", "cpu", why])


def _leave_uncompiled(job: dict[str, Any], report: dict[str, Any]) -> None:
    """Let Muon's functions run as they are written."""
    if job["device"] == "cpu" and cpu_stand_ins.leave_uncompiled(job["config"]):
        why = "Muon's functions run as written: compiled for a CPU they would be other code than a GPU's"
        report["notes"].append(["torch.compile", "inductor", "eager", why])


def _connect(job: dict[str, Any], rank: int) -> None:
    """Join the ranks through a file: no port is chosen, so none can be taken by someone else."""
    from datetime import timedelta

    import deepspeed
    import torch

    # MASTER_PORT is never bound; DeepSpeed's shared-memory operator makes its file names from it.
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(job["ranks"]), LOCAL_SIZE=str(job["ranks"]),
        LOCAL_WORLD_SIZE=str(job["ranks"]), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(job["number"]),
    )  # fmt: skip
    if job["device"] == "cuda":
        torch.cuda.set_device(rank)
    deepspeed.init_distributed(
        dist_backend="nccl" if job["device"] == "cuda" else "gloo",
        init_method=f"file://{Path(job['folder']) / 'store'}",
        rank=rank,
        world_size=job["ranks"],
        timeout=timedelta(seconds=job["timeout_seconds"]),
        verbose=False,
    )
    if job["device"] == "cpu":
        cpu_stand_ins.let_ranks_go_first()


def _stage(config: dict[str, Any]) -> int:
    zero = config.get("zero_optimization")
    stage = zero.get("stage", 0) if isinstance(zero, dict) else 0
    return stage if isinstance(stage, int) else 0


def _model(job: dict[str, Any], subject: tiny_models.TinyModel, config: Witness, report: dict[str, Any]) -> Any:
    """The tiny model, born partitioned at stage 3 as a user's would be."""
    import deepspeed

    partitioned = _stage(job["read"]) == 3 and subject.partitions
    if partitioned and job["tp"] > 1:
        report["notes"].append(
            ["deepspeed.zero.Init", None, None, "not used: AutoTP must shard the whole parameter before ZeRO-3 does"]
        )
        partitioned = False
    if not partitioned:
        return subject.finish(subject.take(subject.build()))
    whole = subject.build() if subject.unset else None
    with deepspeed.zero.Init(config_dict_or_path=copy.deepcopy(config)):
        made = subject.take(subject.build())
    if whole is not None:
        subject.set_weights(made, whole)
    return subject.finish(made)


def _trainable(model: Any) -> list[Any]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def _own_optimizer(job: dict[str, Any], model: Any, report: dict[str, Any]) -> dict[str, Any]:
    """The optimizer a training program brings when the config names none."""
    config = job["read"]
    if "optimizer" in config:
        return {}
    if job["model"].get("optimizer") == _EIGHT_BITS:
        import bitsandbytes

        return {"optimizer": bitsandbytes.optim.AdamW8bit(_trainable(model), lr=1e-4)}
    import torch

    zero = config.get("zero_optimization")
    offload = zero.get("offload_optimizer") if isinstance(zero, dict) else None
    offloaded = isinstance(offload, dict) and offload.get("device") in ("cpu", "nvme")
    optimizer: Any
    if offloaded and config.get("zero_force_ds_cpu_optimizer", True):
        from deepspeed.ops.adam import DeepSpeedCPUAdam

        optimizer = DeepSpeedCPUAdam(_trainable(model), lr=1e-4)
    else:
        optimizer = torch.optim.AdamW(_trainable(model), lr=1e-4)
    report["notes"].append(
        ["optimizer", None, type(optimizer).__name__, "the config names none: the training program must bring one"]
    )
    return {"optimizer": optimizer}


def _rate(engine: Any) -> float:
    return observing.rates(engine)[0]


def _step(engine: Any, inputs: dict[str, Any], times: float = 1.0) -> float:
    """One optimizer step on the same batch, its losses times a number; the mean loss of its micro-batches."""
    total, micro_steps = 0.0, max(1, int(engine.gradient_accumulation_steps()))
    for _ in range(micro_steps):
        loss = tiny_models.loss_of(engine(**inputs))
        engine.backward(loss if times == 1.0 else loss * times)
        engine.step()
        total += float(loss.detach())
    return total / micro_steps


def _moved(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Whether the optimizer changed any master weight."""
    return any(not old.equal(new) for old, new in zip(before["tensors"], after["tensors"], strict=True))


def _digest(taken: dict[str, Any]) -> str:
    """One hash of all master weights, to compare ranks."""
    import hashlib

    digest = hashlib.sha256()
    for tensor in taken["tensors"]:
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()


def _differences(saved: dict[str, Any], loaded: dict[str, Any]) -> list[str]:
    """What a checkpoint did not bring back."""
    tensors = sum(not a.equal(b) for a, b in zip(saved["tensors"], loaded["tensors"], strict=True))
    differing = [f"{tensors} of {len(saved['tensors'])} weights"] if tensors else []
    return differing + [
        f"{key}: {saved[key]} saved, {loaded[key]} loaded"
        for key in ("learning_rate", "global_steps", "schedule")
        if saved[key] != loaded[key]
    ]
