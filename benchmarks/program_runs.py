"""Child process of program_verdicts.py: whole programs that load a config, each run in a fork of its own.

One JSON object per line on stdin: `program` (deepspeed, hf-trainer, accelerate, lightning), `file` (the config as it
lies) and `world` (ranks: one is a real process group, for more a fake one stands in for the others). One line per
answer on stdout: `verdict` ("runs", "stops" or "no answer"), `error` (class and first line), `where` (the last function
of a library that raised) and `told` (what the program was told: what the config fixes, repeated, as the Trainer
demands).

The fork comes before any thread pool: torch computes with one thread, and no operator runs before it.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dsgen.engine.proof import ops as proof_ops

__all__ = ["PROGRAMS", "verdict"]

SECONDS = 60.0  # for one config; most take two
BUILD_SECONDS = 900.0  # how long to wait for another process that builds
STEPS = 2  # of the optimizer
LETTERS = 300  # of an error's first line
MICRO = "train_micro_batch_size_per_gpu"
GAS = "gradient_accumulation_steps"
BATCH = "train_batch_size"
MOST = 4096  # sequences there are
OPERATORS = ("FusedAdamBuilder", "CPUAdamBuilder")  # that a CPU can build
SIZES = {
    "vocab_size": 32, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 2, "max_position_embeddings": 16,
}  # fmt: skip
_told: dict[str, Any] = {}


class Enough(Exception):  # noqa: N818 - it is no error
    """The steps that were to be made are made."""


def lenient(file: str) -> Mapping[str, Any]:
    """The config as far as it can be read at all; an empty one where it cannot: then the program says so itself."""
    import hjson

    try:
        read = hjson.loads(Path(file).read_text(encoding="utf-8-sig"))
    except Exception:  # what is wrong with it is the program's to say
        return {}
    return read if isinstance(read, Mapping) else {}


def at(config: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted key; None where there is none."""
    value: Any = config
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def number(value: Any) -> float | None:
    """A value that a program's argument can repeat; None for one that it cannot."""
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def count(value: Any) -> int | None:
    """A whole number above 0; None for anything else."""
    return int(value) if (number(value) or 0) >= 1 else None


def batch(config: Mapping[str, Any], world: int) -> tuple[int, int]:
    """Micro-batch and accumulation that agree with what the config fixes."""
    whole, micro, steps = (count(config.get(name)) for name in (BATCH, MICRO, GAS))
    if micro is None:
        micro = max(1, whole // (steps or 1) // world) if whole else 1
    if steps is None:
        # Absent, Accelerate's plugin writes 1, whatever the arguments say; "auto" takes the argument.
        steps = max(1, whole // micro // world) if whole and config.get(GAS) == "auto" else 1
    return micro, steps


def precision(config: Mapping[str, Any]) -> str:
    """The precision that a config says, or leaves to the program's argument: "bf16", "fp16" or "no"."""
    bf16, fp16 = at(config, "bf16.enabled"), at(config, "fp16.enabled")
    if fp16 is True or (fp16 == "auto" and bf16 not in ("auto", True)):
        return "fp16"
    return "bf16" if bf16 in ("auto", True) else "no"


def trainer_arguments(config: Mapping[str, Any], world: int) -> dict[str, Any]:
    """TrainingArguments that repeat what the config fixes, so that no difference stops the Trainer."""
    micro, steps = batch(config, world)
    told: dict[str, Any] = {"per_device_train_batch_size": micro, "gradient_accumulation_steps": steps}
    numbers = {
        "max_grad_norm": "gradient_clipping",
        "learning_rate": "optimizer.params.lr",
        "weight_decay": "optimizer.params.weight_decay",
        "adam_epsilon": "optimizer.params.eps",
        "warmup_steps": "scheduler.params.warmup_num_steps",
        "max_steps": "scheduler.params.total_num_steps",
    }
    for name, key in numbers.items():
        if (value := number(at(config, key))) is not None:
            told[name] = value
    told.setdefault("max_steps", 100)
    peak = number(at(config, "scheduler.params.warmup_max_lr"))
    if "learning_rate" not in told and peak is not None:
        told["learning_rate"] = peak
    betas = at(config, "optimizer.params.betas")
    if isinstance(betas, list) and len(betas) == 2:
        told.update(adam_beta1=betas[0], adam_beta2=betas[1])
    said = precision(config)
    return {**told, **({said: True} if said != "no" else {})}


def tokens() -> Any:
    """Random sequences."""
    import torch

    rows = torch.randint(0, SIZES["vocab_size"], (MOST, 8))
    return [{"input_ids": row, "labels": row} for row in rows]


def llama() -> Any:
    """A model that every library of this file can train."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZES))


def offloads(config: Mapping[str, Any]) -> bool:
    """Whether the optimizer's states are to lie on the CPU."""
    device = at(config, "zero_optimization.offload_optimizer.device")
    return device in ("cpu", "nvme") or at(config, "zero_optimization.cpu_offload") is True


def own_optimizer(config: Mapping[str, Any], model: Any) -> Any:
    """What a program hands over where the config names no optimizer."""
    import torch
    from deepspeed.ops.adam import DeepSpeedCPUAdam

    if offloads(config):
        return DeepSpeedCPUAdam(model.parameters(), lr=1e-3)
    return torch.optim.AdamW(model.parameters(), lr=1e-3)


def with_deepspeed(file: str, config: Mapping[str, Any], world: int) -> None:
    """deepspeed.initialize with the file, and steps."""
    import deepspeed
    import torch

    del world
    model = llama()
    own = None if "optimizer" in config else own_optimizer(config, model)
    tell({"client_optimizer": type(own).__name__ if own is not None else "none"})
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=file, optimizer=own)
    rows = tokens()
    size = min(int(engine.train_micro_batch_size_per_gpu()), len(rows))
    ids = torch.stack([row["input_ids"] for row in rows[:size]])
    for _ in range(STEPS * max(1, int(engine.gradient_accumulation_steps()))):
        engine.backward(engine(input_ids=ids, labels=ids).loss)
        engine.step()


def with_trainer(file: str, config: Mapping[str, Any], world: int) -> None:
    """The Trainer, through Accelerate's prepare."""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    told = trainer_arguments(config, world)
    tell(told)

    class Ends(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step >= STEPS:
                raise Enough

    args = TrainingArguments(
        output_dir="out", use_cpu=True, report_to="none", save_strategy="no", disable_tqdm=True, deepspeed=file, **told
    )
    Trainer(model=llama(), args=args, train_dataset=tokens(), callbacks=[Ends()]).train()


def with_accelerate(file: str, config: Mapping[str, Any], world: int) -> None:
    """A loop of Accelerate's own, over Accelerator with DeepSpeedPlugin(hf_ds_config=...)."""
    from accelerate import Accelerator, PartialState
    from accelerate.utils import DeepSpeedPlugin, DummyOptim, DummyScheduler
    from torch.optim.lr_scheduler import LambdaLR
    from torch.utils.data import DataLoader

    micro, steps = batch(config, world)
    mixed = precision(config) if "auto" in (at(config, "bf16.enabled"), at(config, "fp16.enabled")) else None
    told = {"mixed_precision": mixed} if mixed else {}
    plugin = {"gradient_accumulation_steps": steps} if config.get(GAS) == "auto" else {}
    tell({**told, **plugin, "batch_size": micro})
    if world > 1:
        PartialState(cpu=True)  # without a GPU Accelerate knows of no other ranks unless it is told
    accelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=file, **plugin), **told)
    model = llama()
    optimizer = DummyOptim(model.parameters()) if "optimizer" in config else own_optimizer(config, model)
    given = [model, optimizer, DataLoader(tokens(), batch_size=micro)]
    if "scheduler" in config:
        given.append(DummyScheduler(optimizer, total_num_steps=100, warmup_num_steps=1))
    elif "optimizer" not in config:
        given.append(LambdaLR(optimizer, lambda _: 1.0))
    model, optimizer, loader, *_ = accelerator.prepare(*given)
    for done, rows in enumerate(loader, 1):
        with accelerator.accumulate(model):
            accelerator.backward(model(**rows).loss)
            optimizer.step()
            optimizer.zero_grad()
        if done >= STEPS * steps:
            break


def with_lightning(file: str, config: Mapping[str, Any], world: int) -> None:
    """Lightning's DeepSpeedStrategy, which asks for GPUs first of all: what follows that question runs without."""
    import lightning.pytorch as pl
    import lightning.pytorch.strategies.deepspeed as strategy
    import torch
    from torch.utils.data import DataLoader

    micro, steps = batch(config, world)
    said = {"fp16": "16-mixed", "bf16": "bf16-mixed", "no": "32-true"}[precision(config)]
    tell({"precision": said, "batch_size": micro, "accumulate_grad_batches": steps})

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = llama()

        def training_step(self, rows: Any, _: int) -> Any:
            return self.model(**rows).loss

        def configure_optimizers(self) -> Any:
            return own_optimizer(config, self.model)

    strategy.CUDAAccelerator = pl.accelerators.CPUAccelerator
    strategy._validate_device_index_selection = lambda devices: None
    strategy.DeepSpeedStrategy.root_device = torch.device("cpu", 0)
    trainer = pl.Trainer(
        strategy=strategy.DeepSpeedStrategy(config=file, process_group_backend="gloo"), accelerator="cpu", devices=1,
        precision=said, accumulate_grad_batches=steps, max_steps=STEPS, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Module(), DataLoader(tokens(), batch_size=micro))


PROGRAMS = {
    "deepspeed": with_deepspeed,
    "hf-trainer": with_trainer,
    "accelerate": with_accelerate,
    "lightning": with_lightning,
}


def tell(told: Mapping[str, Any]) -> None:
    """Keep what the program is told, for the answer."""
    _told.update(told)


def free_port() -> str:
    """A port that nobody listens on."""
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def verdict(asked: Mapping[str, Any]) -> dict[str, Any]:
    """One program with one config on rank 0 of `world`."""
    world = int(asked["world"])
    os.environ.update(
        RANK="0", LOCAL_RANK="0", WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(world), LOCAL_SIZE=str(world),
        MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port(),
    )  # fmt: skip
    config = lenient(asked["file"])
    try:
        import deepspeed
        import torch

        type(deepspeed.accelerator.get_accelerator()).is_fp16_supported = lambda _: True  # as on a GPU
        if world > 1:
            from torch.testing._internal.distributed.fake_pg import FakeStore

            torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
            deepspeed.init_distributed(dist_backend="fake", verbose=False)
        PROGRAMS[asked["program"]](asked["file"], config, world)
    except BaseException as error:
        if isinstance(error, Enough):
            return {"verdict": "runs", "error": "", "where": "", "told": _told}
        traceback.print_exc()
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        line = " ".join(lines[:3])
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "site-packages" in frame.filename]
        last = frames[-1] if frames else None
        where = f"{last.filename.partition('site-packages/')[2]}:{last.name}" if last else ""
        said = f"{type(error).__name__}: {line}"[:LETTERS]
        return {"verdict": "stops", "error": said, "where": where, "told": _told}
    return {"verdict": "runs", "error": "", "where": "", "told": _told}


def answered(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The verdict from a fork in a folder of its own."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        return forked(asked, folder)


def forked(asked: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """The verdict from a fork, which is killed with all that it started when it takes too long."""
    read, write = os.pipe()
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        os.close(read)
        name = f"{asked['program']}-{Path(asked['file']).stem}.log"
        log = os.open(Path(os.environ.get("VERDICTS_LOGS") or folder, name), os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.chdir(folder)
        warnings.simplefilter("ignore")
        try:
            os.write(write, json.dumps(verdict(asked), default=str).encode())
        finally:
            os._exit(0)
    with contextlib.suppress(OSError):
        os.setpgid(child, child)
    os.close(write)
    ready = select.select([read], [], [], SECONDS)[0]
    said = os.read(read, 60_000).decode(errors="replace") if ready else ""
    os.close(read)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    none = {
        "verdict": "no answer", "where": "", "told": {},
        "error": "died without a word" if ready else f"no answer in {SECONDS:g} s",
    }  # fmt: skip
    return {**(json.loads(said) if said else none), "seconds": round(time.monotonic() - began, 1)}


def main() -> None:
    """Answer until stdin ends."""
    os.environ.update(
        OMP_NUM_THREADS="1", DS_ACCELERATOR="cpu", TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1",
        TORCHINDUCTOR_COMPILE_THREADS="1", HF_DATASETS_OFFLINE="1", CUDA_VISIBLE_DEVICES="",
    )  # fmt: skip
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    import cpuinfo
    import deepspeed
    import torch

    torch.set_num_threads(1)
    cpuinfo.get_cpu_info = functools.cache(cpuinfo.get_cpu_info)
    cpuinfo.get_cpu_info()
    with tempfile.TemporaryDirectory() as folder:  # before the forks: one killed in a build would leave a lock
        proof_ops.build(list(OPERATORS), BUILD_SECONDS, Path(folder) / "report.json")
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # a minute of building that one rank does not need
    for name in ("transformers.models.llama.modeling_llama", "transformers.trainer", "accelerate",
                 "lightning.pytorch.strategies.deepspeed", "deepspeed.runtime.zero.stage3",
                 "deepspeed.runtime.zero.stage_1_and_2"):  # fmt: skip
        with contextlib.suppress(ImportError):
            __import__(name)
    releases = {name: __import__(name).__version__ for name in ("torch", "deepspeed", "transformers", "accelerate")}
    with contextlib.suppress(ImportError):
        releases["lightning"] = __import__("lightning").__version__
    threads = len(list(Path("/proc/self/task").iterdir()))
    print(json.dumps({"releases": releases, "threads": threads}), file=channel, flush=True)
    for line in sys.stdin:
        print(json.dumps(answered(json.loads(line))), file=channel, flush=True)


if __name__ == "__main__":
    main()
