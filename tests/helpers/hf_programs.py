"""A child process: what the real Trainer, Accelerate and its launcher hand to deepspeed.initialize, for `test_targets`.

Reads a list of questions as JSON from stdin, writes as many answers: the config that arrived, or the error as text.
"""

from __future__ import annotations

import copy
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

BATCH, SEQUENCE, HIDDEN, STEPS = 8, 4, 8, 2


class ArrivedError(Exception):
    """Carries what deepspeed.initialize was called with."""


def arrive(**given: Any) -> None:
    """Stands in deepspeed.initialize's place."""
    raise ArrivedError(given)


def model() -> Any:
    """The smallest Llama."""
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=16,
            hidden_size=HIDDEN,
            intermediate_size=8,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=2,
        )
    )


def data() -> list[dict[str, Any]]:
    """A data set of one batch."""
    import torch

    row = {"input_ids": torch.zeros(SEQUENCE, dtype=torch.long), "labels": torch.zeros(SEQUENCE, dtype=torch.long)}
    return [row] * BATCH


def trainer(config: Mapping[str, Any]) -> None:
    """transformers.Trainer with its default arguments."""
    from transformers import Trainer, TrainingArguments

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, deepspeed=copy.deepcopy(config), report_to=[], max_steps=STEPS, disable_tqdm=True
        )
        Trainer(model=model(), args=arguments, train_dataset=data()).train()


def accelerate(config: Mapping[str, Any]) -> None:
    """A loop of Accelerate's own, with its stand-ins for optimizer and schedule."""
    import torch
    from accelerate import Accelerator
    from accelerate.utils import DeepSpeedPlugin, DummyOptim, DummyScheduler

    accelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=copy.deepcopy(config)))
    ours = model()
    optimizer = DummyOptim(ours.parameters()) if "optimizer" in config else torch.optim.AdamW(ours.parameters())
    schedule = [DummyScheduler(optimizer, total_num_steps=10, warmup_num_steps=1)] if "scheduler" in config else []
    accelerator.prepare(ours, optimizer, torch.utils.data.DataLoader(data(), batch_size=BATCH), *schedule)


def launched(text: str) -> dict[str, Any]:
    """The config that Accelerate's plugin builds behind `accelerate launch` with a config file of this text."""
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils import DeepSpeedPlugin
    from accelerate.utils.launch import prepare_deepspeed_cmd_env

    before = dict(os.environ)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "accelerate.yaml")
        file.write_text(text, "utf-8")
        Path(folder, "ds_config.json").write_text('{"zero_optimization": {"stage": 2}}', "utf-8")
        os.chdir(folder)
        parsed = launch_command_parser().parse_args(
            ["--config_file", str(file), "--main_process_port", "0", "train.py"]
        )
        arguments, defaults, from_file = _validate_launch_command(parsed)
        fields = [*defaults.deepspeed_config, *(["mixed_precision"] if from_file else [])]
        arguments.deepspeed_fields_from_accelerate_config = ",".join(fields)
        try:
            _, environment = prepare_deepspeed_cmd_env(arguments)
            os.environ.update(environment)
            plugin = DeepSpeedPlugin()
            plugin.set_mixed_precision(environment["ACCELERATE_MIXED_PRECISION"])
        finally:
            os.chdir("/")
            os.environ.clear()
            os.environ.update(before)
    return dict(plugin.deepspeed_config)


PROGRAMS: dict[str, Callable[[Any], Any]] = {"hf-trainer": trainer, "accelerate": accelerate, "launch": launched}


def answer(program: str, config: Any) -> Any:
    """What one program makes of one config."""
    import transformers
    from accelerate.state import AcceleratorState, GradientState

    AcceleratorState._reset_state(True)
    GradientState._reset_state()
    os.environ.pop("ACCELERATE_USE_DEEPSPEED", None)
    transformers.integrations.deepspeed.unset_hf_deepspeed_config()
    try:
        return PROGRAMS[program](config)
    except ArrivedError as arrived:
        return arrived.args[0]["config_params"]
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def main() -> None:
    """Answer everything on stdin."""
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="29641")
    out = os.dup(1)
    os.dup2(2, 1)  # whatever else is printed goes to stderr
    import deepspeed
    import deepspeed.ops

    deepspeed.initialize = arrive
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # nothing here needs an operator to be built
    deepspeed.init_distributed("gloo")
    answers = [answer(program, config) for program, config in json.load(sys.stdin)]
    with os.fdopen(out, "w", encoding="utf-8") as file:
        json.dump(answers, file, default=str)
    os._exit(0)


if __name__ == "__main__":
    main()
