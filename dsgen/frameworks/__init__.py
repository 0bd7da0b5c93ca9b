"""From a config to what a framework is given: the config as it must have it, its arguments, and where they agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dsgen.frameworks.accelerate import accelerate
from dsgen.frameworks.job_files import CONFIG_FILE, FILL_IN, HEADER, Argument, JobFile, JobFiles, keep_filled
from dsgen.frameworks.lightning import lightning
from dsgen.frameworks.names import NAMES, check_name
from dsgen.frameworks.trainers import axolotl, llama_factory, ms_swift
from dsgen.frameworks.transformers_trainer import config_json, hf_trainer
from dsgen.rendering import Config

__all__ = [
    "CONFIG_FILE",
    "FILL_IN",
    "FRAMEWORKS",
    "HEADER",
    "Argument",
    "JobFile",
    "JobFiles",
    "job_files",
    "keep_filled",
]


def _deepspeed(config: Config, path: str, resolve: bool) -> JobFiles:
    """A program that calls deepspeed.initialize itself is given the config alone."""
    files = (JobFile(path, config_json(config.tree), "the DeepSpeed config"),)
    return JobFiles(target="deepspeed", config=config.tree, files=files)


_MAKERS = (_deepspeed, hf_trainer, accelerate, lightning, axolotl, llama_factory, ms_swift)  # in the order of NAMES
FRAMEWORKS: Mapping[str, Callable[[Config, str, bool], JobFiles]] = dict(zip(NAMES, _MAKERS, strict=True))


def job_files(config: Config, target: str, *, resolve: bool = False, path: str = CONFIG_FILE) -> JobFiles:
    """What a framework is given for a config.

    Args:
        config: The rendered config.
        target: One of FRAMEWORKS.
        resolve: Numbers where "auto" would stand, as the Hugging Face Trainer computes them.
        path: Where the config's file will lie, as the other files name it.

    Raises:
        DsgenError: No such framework, or one that does not train such a model.
    """
    check_name(target)
    return FRAMEWORKS[target](config, path, resolve)
