"""Accelerate's config file: the DeepSpeed config that `accelerate launch` makes of it, and what it refuses or loses.

Read in accelerate 1.15.0: commands/config/config_args.py (`ClusterConfig`), commands/launch.py
(`_validate_launch_command`, `launch_command`), utils/launch.py (`prepare_deepspeed_cmd_env`), utils/dataclasses.py
(`DeepSpeedPlugin`). The launcher hands every key over as an environment variable of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dsgen.documents.document import Document, TextPlace
from dsgen.shapes.findings import Fault, Fix, Move, Remove, Severity
from dsgen.shapes.near_misses import alike

__all__ = ["config_file", "faults", "is_accelerate", "paths", "places", "processes", "translated"]

_SECTION = "deepspeed_config"
_FILE = "deepspeed_config_file"
_ZERO = "zero_optimization"
# Key of the section -> the DeepSpeed key that the plugin makes of it.
_MEANS = {
    "zero_stage": f"{_ZERO}.stage",
    "offload_optimizer_device": f"{_ZERO}.offload_optimizer.device",
    "offload_param_device": f"{_ZERO}.offload_param.device",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "gradient_clipping": "gradient_clipping",
    "zero3_save_16bit_model": f"{_ZERO}.stage3_gather_16bit_weights_on_model_save",
}
_OFFLOADS = ("offload_optimizer", "offload_param")
_NVME = ("offload_optimizer_nvme_path", "offload_param_nvme_path")
_LAUNCH = (
    *("zero3_init_flag", "deepspeed_hostfile", "deepspeed_exclusion_filter", "deepspeed_inclusion_filter"),
    *("deepspeed_multinode_launcher", "deepspeed_moe_layer_cls_names"),
)
_KEYS = (_FILE, *_MEANS, *_NVME, *_LAUNCH)
_TOP = (
    *("compute_environment", "distributed_type", "mixed_precision", "use_cpu", "debug", "num_processes", "fp16"),
    *("machine_rank", "num_machines", "gpu_ids", "main_process_ip", "main_process_port", "rdzv_backend"),
    *("same_network", "main_training_function", "enable_cpu_affinity", "fp8_config", _SECTION, "fsdp_config"),
    *("parallelism_config", "megatron_lm_config", "mpirun_config", "downcast_bf16", "tpu_name", "tpu_zone"),
    *("tpu_use_cluster", "tpu_use_sudo", "command_file", "commands", "tpu_vm", "tpu_env", "dynamo_config"),
    "dynamo_backend",
)
_PRECISIONS = ("no", "fp8", "fp16", "bf16")
_STAGE = 2  # ACCELERATE_DEEPSPEED_ZERO_STAGE where nobody sets it


def is_accelerate(config: Any) -> bool:
    """Whether a file is Accelerate's and speaks of DeepSpeed."""
    if not isinstance(config, Mapping) or "distributed_type" not in config:
        return False
    return isinstance(config.get(_SECTION), Mapping) or config["distributed_type"] == "DEEPSPEED"


def config_file(config: Mapping[str, Any]) -> str | None:
    """The path of the DeepSpeed config that the file names, as written; None where it names none."""
    named = _section(config).get(_FILE)
    return named if isinstance(named, str) and named not in ("", "none") else None


def processes(config: Mapping[str, Any]) -> int | None:
    """The number of ranks that the file fixes."""
    ranks = config.get("num_processes")
    return ranks if isinstance(ranks, int) and not isinstance(ranks, bool) and ranks > 0 else None


def translated(config: Mapping[str, Any]) -> dict[str, Any]:
    """The DeepSpeed config that the plugin builds where the file names none, without the switches it sets to off."""
    section = _section(config)
    made: dict[str, Any] = {
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        _ZERO: {"stage": _STAGE},
    }
    for name, path in _MEANS.items():
        if section.get(name) is not None:
            _put(made, path, _read(name, section[name]))
    for name in _OFFLOADS:
        if section.get(f"{name}_device") == "nvme":
            _put(made, f"{_ZERO}.{name}.nvme_path", "none")  # its own path never arrives: see `faults`
    old = "fp16" if config.get("fp16") else None  # the switch of its first files, which process_config still reads
    precision = str(config.get("mixed_precision", old)).lower()
    if precision == "fp16":
        made["fp16"] = {"enabled": True, "auto_cast": True}
    elif precision in ("bf16", "fp8"):
        made["bf16"] = {"enabled": True}
    return made


def paths(config: Mapping[str, Any]) -> dict[str, str]:
    """Path in the translated config -> path in the file; the file's own paths stand for themselves."""
    made = translated(config)
    own = {name: name for name in (_SECTION, *config) if name not in made and name not in _MEANS.values()}
    sections = {f"{_ZERO}.{name}": f"{_SECTION}.{name}_device" for name in _OFFLOADS}
    return {**own, **sections, **{path: f"{_SECTION}.{name}" for name, path in _MEANS.items()}}


def places(config: Mapping[str, Any], document: Document) -> dict[str, TextPlace]:
    """Where the keys of the translated config stand in the file, beside the file's own places."""
    by_path = dict(document.places)
    section = by_path.get(_SECTION)
    if section is not None:
        by_path.update(dict.fromkeys(("", _ZERO), section))
    for name, path in _MEANS.items():
        if (place := document.places.get(f"{_SECTION}.{name}")) is not None:
            by_path[path] = place
            if name.endswith("_device"):
                by_path[path.removesuffix(".device")] = place
    if (place := document.places.get("mixed_precision") or document.places.get("fp16")) is not None:
        by_path.update(dict.fromkeys(("fp16", "bf16"), place))
    return by_path


def faults(config: Mapping[str, Any], document: Document) -> Iterator[tuple[str, Fault]]:
    """What Accelerate refuses, does not read or loses of its file, by the name of the rule that says it."""
    section = _section(config)
    kind = config.get("distributed_type")
    if isinstance(kind, str) and kind != "DEEPSPEED":
        if section:
            message = f"distributed_type is {kind}, so Accelerate does not look at {_SECTION}; it must be DEEPSPEED"
            yield "accelerate-without-deepspeed", Fault("distributed_type", message, on="value")
        return
    yield from _unknown(config, section)
    yield from _precision(config, document)
    if config_file(config) is not None:
        yield from _beside(config, section)
        return
    for name in _NVME:
        device = section.get(name.replace("nvme_path", "device"))
        if section.get(name) is not None and device == "nvme":
            message = f"{name} does not reach DeepSpeed: accelerate launch drops it, and the path becomes none"
            yield "accelerate-nvme-path", Fault(f"{_SECTION}.{name}", message)


def _beside(config: Mapping[str, Any], section: Mapping[str, Any]) -> Iterator[tuple[str, Fault]]:
    """Keys that Accelerate refuses beside a file: those that the file itself must say."""
    doubled = [f"{_SECTION}.{name}" for name in (*_MEANS, *_NVME) if name in section]
    if config.get("mixed_precision") is not None:
        doubled.append("mixed_precision")
    for path in doubled:
        message = f"{path} stands beside {_FILE}; Accelerate refuses that (ValueError), the file must say it"
        fix = Fix(f"remove {path.rpartition('.')[2]}", (Remove(path),), safe=False)
        yield "accelerate-keys-beside-file", Fault(path, message, fix)


def _unknown(config: Mapping[str, Any], section: Mapping[str, Any]) -> Iterator[tuple[str, Fault]]:
    rule = "accelerate-unknown-key"
    if config.get("compute_environment", "LOCAL_MACHINE") == "LOCAL_MACHINE":
        for name in config:
            if name not in _TOP:
                message = f"{name} is no key of an Accelerate config file; Accelerate refuses the file (ValueError)"
                yield rule, Fault(name, message, _renaming(name, "", config, _TOP), Severity.ERROR)
    for name in section:
        if name not in (*_KEYS, *_TOP):
            message = f"Accelerate does not read {_SECTION}.{name}, and nothing tells DeepSpeed of it"
            yield rule, Fault(f"{_SECTION}.{name}", message, _renaming(name, f"{_SECTION}.", section, _KEYS))


def _renaming(name: str, before: str, there: Mapping[str, Any], names: tuple[str, ...]) -> Fix | None:
    close = [other for other in alike(name, names) if other not in there][:1]
    return Fix(f"rename to {close[0]}", (Move(before + name, before + close[0]),), safe=False) if close else None


def _precision(config: Mapping[str, Any], document: Document) -> Iterator[tuple[str, Fault]]:
    value = config.get("mixed_precision")
    place = document.places.get("mixed_precision")
    bare = place is not None and document.text[place.value.start : place.value.start + 1] not in "\"'"
    if value == "no" and bare:  # PyYAML reads YAML 1.1, where the bare word is false
        message = "mixed_precision is no without quotes, which Accelerate's YAML reader takes for false and dies of"
        yield "accelerate-precision", Fault("mixed_precision", f"{message}; write 'no'", on="value")
    elif value is not None and (not isinstance(value, str) or value.lower() not in _PRECISIONS):
        message = f"mixed_precision is {value}; Accelerate knows {', '.join(_PRECISIONS)}"
        yield "accelerate-precision", Fault("mixed_precision", message, on="value")


def _section(config: Mapping[str, Any]) -> Mapping[str, Any]:
    section = config.get(_SECTION)
    return section if isinstance(section, Mapping) else {}


def _read(name: str, value: Any) -> Any:
    """A value after its way through an environment variable: text, then what the plugin makes of it."""
    text = str(value).lower()
    if name == "zero3_save_16bit_model":
        return text == "true"
    if name.endswith("_device"):
        return text
    if isinstance(value, str):
        try:
            return float(text) if name == "gradient_clipping" else int(text)
        except ValueError:
            return value
    return value


def _put(config: dict[str, Any], path: str, value: Any) -> None:
    *sections, last = path.split(".")
    for name in sections:
        config = config.setdefault(name, {})
    config[last] = value
