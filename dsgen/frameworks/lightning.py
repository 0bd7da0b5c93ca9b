"""Lightning: the config without what its Trainer says itself, and that Trainer with its DeepSpeedStrategy.

Read in lightning 2.6.6: pytorch/strategies/deepspeed.py (`_format_batch_size_and_grad_accum_config` refuses
`gradient_accumulation_steps` in a config), pytorch/plugins/precision/deepspeed.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.frameworks.job_files import HEADER, Argument, JobFile, JobFiles, beside, python_value
from dsgen.frameworks.optimizer_starts import start
from dsgen.frameworks.saving import KEPT, save_steps
from dsgen.frameworks.training_arguments import in_numbers, training_arguments
from dsgen.frameworks.transformers_trainer import config_json
from dsgen.rendering import Config
from dsgen.targets.pytorch_lightning import LIGHTNING

__all__ = ["TRAINER", "lightning"]

TRAINER = "trainer.py"
_PRECISION = {"bf16": "bf16-mixed", "fp16": "16-mixed", "fp32": "32-true"}


def lightning(config: Config, path: str, resolve: bool) -> JobFiles:
    """The files of a job of Lightning.

    Args:
        config: The rendered config.
        path: Where the config's file will lie, as the Trainer names it.
        resolve: As for the Hugging Face Trainer; nothing changes.
    """
    tree = {key: value for key, value in in_numbers(config).items() if key not in LIGHTNING.refused}
    arguments = tuple(_arguments(config))
    return JobFiles(
        target="lightning",
        config=tree,
        files=(
            JobFile(path, config_json(tree), "the DeepSpeed config"),
            JobFile(beside(path, TRAINER), _python(config, arguments, path), "the Lightning Trainer"),
        ),
        arguments=arguments,
    )


def _arguments(config: Config) -> Iterator[Argument]:
    job, chosen = config.plan.job, config.plan.chosen.strategy
    yield Argument("accelerator", "gpu")
    yield Argument("devices", job.gpus_per_node, "GPUs of a node", "train_batch_size")
    yield Argument("num_nodes", job.nodes, "", "train_batch_size")
    yield Argument("precision", _PRECISION[chosen.precision], "", f"{chosen.precision}.enabled")
    told = {item.name: item for item in training_arguments(config)}
    steps = told["gradient_accumulation_steps"].value
    yield Argument("accumulate_grad_batches", steps, "Lightning refuses it in the config")
    if total := told.get("max_steps"):
        yield total._replace(reason="optimizer steps")
    yield Argument("log_every_n_steps", job.training.steps_per_print)


def _python(config: Config, arguments: tuple[Argument, ...], path: str) -> str:
    def line(item: Argument) -> str:
        words = "; ".join(part for part in (item.key and f"as {item.key} of the config", item.reason) if part)
        return f"        {python_value(item.name)}: {python_value(item.value)},{f'  # {words}' if words else ''}"

    total = next((item.value for item in arguments if item.name == "max_steps"), None)
    steps = save_steps(config.plan.chosen.cost.seconds)
    steps = steps if total is None else min(steps, total)
    return _PROGRAM.format(
        header=HEADER,
        path=python_value(path),
        asked=_ASKED[start(config.plan).optimizer],
        arguments="\n".join(map(line, arguments)),
        steps=steps,
        kept=KEPT,
    )


_ASKED = {
    True: "The config clips gradients and has an optimizer: configure_optimizers must be there, and is not asked",
    False: "The config clips gradients and has no optimizer: configure_optimizers must give one",
}
# A checkpoint is a folder; DeepSpeed writes `latest` in it behind every rank's part (deepspeed 0.19.8,
# runtime/engine.py). A `last.ckpt` beside them is a link to the newest.
_PROGRAM = '''\
{header}: the Lightning Trainer of this config, which saves, and what it goes on from.

import os
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.strategies import DeepSpeedStrategy

CONFIG = os.environ.get("PL_DEEPSPEED_CONFIG_PATH", {path})  # `dsgen launch` says where the run's own is
CHECKPOINTS = Path(CONFIG).parent / "checkpoints"


def trainer(**others: Any) -> pl.Trainer:
    """The Trainer; `others` win, and callbacks of theirs come beside the one that saves.

    {asked},
    and gradient_clip_val stays unsaid. The data loader's batch size is train_micro_batch_size_per_gpu.
    """
    arguments: dict[str, Any] = {{
{arguments}
    }}
    saving = ModelCheckpoint(
        CHECKPOINTS,
        filename="{{step}}",
        every_n_train_steps={steps},  # optimizer steps: half an hour of work, or the whole run
        monitor="step",
        mode="max",
        save_top_k={kept},  # the newest may be cut short by a crash
        save_last="link",
    )
    callbacks = [saving, *others.pop("callbacks", ())]
    return pl.Trainer(strategy=DeepSpeedStrategy(config=CONFIG), callbacks=callbacks, **{{**arguments, **others}})


def last() -> str | None:
    """The newest checkpoint that was written to its end: trainer().fit(module, loader, ckpt_path=last())."""
    whole = (one for one in CHECKPOINTS.glob("step=*.ckpt") if (one / "latest").is_file())
    newest = max(whole, key=lambda one: int(one.stem.partition("=")[2].partition("-")[0]), default=None)
    return None if newest is None else str(newest)
'''
