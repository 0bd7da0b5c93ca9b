"""Accelerate: the config in numbers, and the YAML that `accelerate launch --config_file` takes."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.frameworks.job_files import HEADER, Argument, JobFile, JobFiles, beside, yaml_value
from dsgen.frameworks.training_arguments import resolved
from dsgen.frameworks.transformers_trainer import config_json
from dsgen.jobs.releases import unknown_leaf
from dsgen.rendering import Config

__all__ = ["ACCELERATE_FILE", "accelerate", "leaf_classes"]

ACCELERATE_FILE = "accelerate.yaml"


def accelerate(config: Config, path: str, resolve: bool) -> JobFiles:
    """The files of a job of Accelerate; its config has no "auto" anyway, because a program would have to fill it in.

    Args:
        config: The rendered config.
        path: Where the config's file will lie, as the YAML names it.
        resolve: As for the Trainer; nothing changes.
    """
    arguments, tree = tuple(_arguments(config, path)), resolved(config)
    name = beside(path, ACCELERATE_FILE)
    return JobFiles(
        target="accelerate",
        config=tree,
        files=(
            JobFile(path, config_json(tree), "the DeepSpeed config"),
            JobFile(name, _yaml(arguments), f"accelerate launch --config_file {name}"),
        ),
        arguments=arguments,
    )


def leaf_classes(config: Config) -> str:
    """Class of the mixture that stage 3 is to gather whole and that DeepSpeed does not know; "" for none."""
    if config.plan.chosen.strategy.stage != 3:
        return ""
    job = config.plan.job
    return unknown_leaf(job.model, job.version).rpartition(".")[2]


def _arguments(config: Config, path: str) -> Iterator[Argument]:
    job, chosen = config.plan.job, config.plan.chosen.strategy
    yield Argument("compute_environment", "LOCAL_MACHINE")
    yield Argument("distributed_type", "DEEPSPEED")
    yield Argument("deepspeed_config.deepspeed_config_file", path, "precision, batch and clipping")
    yield Argument(
        "deepspeed_config.zero3_init_flag",
        chosen.stage == 3,
        "from_pretrained shares the model out as it is read"
        if chosen.stage == 3
        else "stage 3 alone shares parameters",
    )
    if job.nodes > 1:
        yield Argument("deepspeed_config.deepspeed_multinode_launcher", "standard", "torchrun's, started on each node")
    if leaf := leaf_classes(config):
        yield Argument("deepspeed_config.deepspeed_moe_layer_cls_names", leaf, "stage 3 gathers a mixture whole")
    yield Argument("machine_rank", 0, "of this node; --machine_rank wins" if job.nodes > 1 else "")
    if job.nodes > 1:
        yield Argument("main_process_ip", "node-0", "name or address of the first node; --main_process_ip wins")
        yield Argument("main_process_port", 29500)
        yield Argument("rdzv_backend", "static")
        yield Argument("same_network", True)
    yield Argument("main_training_function", "main")
    yield Argument("num_machines", job.nodes)
    yield Argument("num_processes", job.world, "GPUs in all", "train_batch_size")
    yield Argument("use_cpu", False)


def _yaml(arguments: tuple[Argument, ...]) -> str:
    lines = [f"{HEADER}: what accelerate launch --config_file reads.", "# No mixed_precision: the config says it."]
    section = ""
    for item in arguments:
        head, _, name = item.name.rpartition(".")
        if head != section and head:
            lines.append(f"{head}:")
        section = head
        words = f"  # {item.reason}" if item.reason else ""
        lines.append(f"{'  ' if head else ''}{name}: {yaml_value(item.value)}{words}")
    return "\n".join(lines) + "\n"
