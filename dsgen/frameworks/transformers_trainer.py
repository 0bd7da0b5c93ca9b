"""The Hugging Face Trainer, and what is built on it (TRL's SFTTrainer): the config and its TrainingArguments."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dsgen.frameworks.job_files import HEADER, Argument, JobFile, JobFiles, beside, python_value, yaml_text
from dsgen.frameworks.recomputation import input_gradients
from dsgen.frameworks.training_arguments import autos, resolved, training_arguments, with_autos
from dsgen.rendering import Config

__all__ = ["ARGUMENTS", "PROGRAM", "config_json", "hf_trainer"]

ARGUMENTS, PROGRAM = "training_args.yaml", "training_args.py"


def hf_trainer(config: Config, path: str, resolve: bool) -> JobFiles:
    """The files of a job of the Trainer.

    Args:
        config: The rendered config.
        path: Where the config's file will lie, as the arguments name it.
        resolve: Numbers instead of "auto".
    """
    tree: Mapping[str, Any] = resolved(config) if resolve else with_autos(config)
    arguments = (
        Argument("output_dir", "output", "checkpoints and logs"),
        Argument("deepspeed", path, "as seen from where the run starts"),
        *training_arguments(config),
    )
    asked = input_gradients(config.plan)
    left = all(item.name != "lr_scheduler_type" for item in arguments)
    notes = (
        "HfArgumentParser(TrainingArguments).parse_yaml_file(...) reads it; so does TRL's SFTConfig",
        *(("lr_scheduler_type, warmup_steps and num_train_epochs are left to your own arguments",) if left else ()),
        *((f"The program calls {asked}",) if asked else ()),
    )
    return JobFiles(
        target="hf-trainer",
        config=tree,
        files=(
            JobFile(path, config_json(tree), "the DeepSpeed config"),
            JobFile(
                beside(path, ARGUMENTS), yaml_text("TrainingArguments of this config", arguments, notes), "as YAML"
            ),
            JobFile(beside(path, PROGRAM), _python(arguments, asked), "the same as Python"),
        ),
        arguments=arguments,
        autos={} if resolve else autos(config),
    )


def config_json(tree: Mapping[str, Any]) -> str:
    """A config as DeepSpeed reads it."""
    return json.dumps(tree, indent=2, ensure_ascii=False) + "\n"


def _python(arguments: tuple[Argument, ...], asked: str) -> str:
    lines = [
        f"{HEADER}: TrainingArguments of this config.",
        "",
        "from typing import Any",
        "",
        "from transformers import TrainingArguments",
        "",
        "",
        "def training_args(kind: type = TrainingArguments, **others: Any) -> Any:",
        '    """The arguments; make them before the model is loaded, so that ZeRO-3 can share it out as it is read.',
        "",
        "    `kind` may be a class that adds arguments of its own, as TRL's SFTConfig; `others` win.",
        *(("", f"    The program calls {asked}.") if asked else ()),
        '    """',
        "    arguments: dict[str, Any] = {",
        *(f"        {python_value(item.name)}: {python_value(item.value)}," for item in arguments),
        "    }",
        "    return kind(**{**arguments, **others})",
    ]
    return "\n".join(lines) + "\n"
