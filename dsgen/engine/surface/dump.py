"""Child process: what the installed DeepSpeed reads from a config, asked of the release itself; JSON on stdout.

Nothing is parsed from text. `DeepSpeedConfig._initialize_params` is run on a dictionary that notes every key it is
asked for, first empty, then with each noted key turned into a section of its own, until no new key turns up. Sections
that the release keeps as pydantic models are read from the models. Optimizers and schedulers come from signatures.

Run: python -m dsgen.engine.surface.dump > dump.json
"""

from __future__ import annotations

import inspect
import json
import os
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from dsgen.engine.pydantic_fields import as_json, fields_of, is_strict

__all__ = ["dump", "main"]

_PROBE = "dsgen_probe"  # a key that no release reads: the model that is handed it owns the section
_ABSENT = object()
_BASE = {"train_batch_size": 1}  # some sections first ask whether there is any config at all
_FREE_FORM = ".different_groups"  # its keys are names the user makes up

# Where the engine finds the class behind `optimizer.type`, and when (engine.py, _configure_basic_optimizer).
_OPTIMIZERS = (
    ("Adam", "deepspeed.ops.adam", "FusedAdam", "gpu"),
    ("Adam", "deepspeed.ops.adam", "DeepSpeedCPUAdam", "offload"),
    ("Adam", "torch.optim", "AdamW", "torch_adam"),
    ("AdamW", "deepspeed.ops.adam", "FusedAdam", "gpu"),
    ("AdamW", "deepspeed.ops.adam", "DeepSpeedCPUAdam", "offload"),
    ("AdamW", "torch.optim", "AdamW", "torch_adam"),
    ("Lion", "deepspeed.ops.lion", "FusedLion", "gpu"),
    ("Lion", "deepspeed.ops.lion", "DeepSpeedCPULion", "offload"),
    ("Lamb", "deepspeed.ops.lamb", "FusedLamb", "gpu"),
    ("Adagrad", "torch.optim", "Adagrad", "gpu"),
    ("Adagrad", "deepspeed.ops.adagrad", "DeepSpeedCPUAdagrad", "offload"),
    ("OneBitAdam", "deepspeed.runtime.fp16.onebit.adam", "OnebitAdam", "gpu"),
    ("ZeroOneAdam", "deepspeed.runtime.fp16.onebit.zoadam", "ZeroOneAdam", "gpu"),
    ("OneBitLamb", "deepspeed.runtime.fp16.onebit.lamb", "OnebitLamb", "gpu"),
)
# Arguments the engine fills in itself; a config that names one is a TypeError.
_ENGINE_ARGUMENTS = {"self", "params", "model_params", "optimizer", "deepspeed", "verbose", "adamw_mode"}


class _Noting(dict[str, Any]):
    """A dictionary that notes which keys it is asked for, and with which default."""

    def __init__(self, values: dict[str, Any], path: str, notes: dict[str, Any]) -> None:
        super().__init__({k: self._wrap(v, f"{path}{k}.", notes) for k, v in values.items()})
        self._path, self._notes = path, notes

    @staticmethod
    def _wrap(value: Any, path: str, notes: dict[str, Any]) -> Any:
        return _Noting(value, path, notes) if isinstance(value, dict) else value

    def _note(self, key: Any, default: Any = _ABSENT) -> None:
        path = f"{self._path}{key}"
        if self._notes.get(path, _ABSENT) is _ABSENT:
            self._notes[path] = default

    def get(self, key: str, default: Any = None) -> Any:
        self._note(key, default)
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self._note(key)
        return super().__contains__(key)

    def __getitem__(self, key: str) -> Any:
        self._note(key)
        return super().__getitem__(key)

    def keys(self) -> Any:
        return _NotingKeys(self)

    def __copy__(self) -> _Noting:
        return self

    def __deepcopy__(self, memo: Any) -> _Noting:
        return self


class _NotingKeys:
    """`config.keys()` of a noting dictionary: `in` notes the key."""

    def __init__(self, owner: _Noting) -> None:
        self._owner = owner

    def __contains__(self, key: object) -> bool:
        return key in self._owner

    def __iter__(self) -> Iterator[str]:
        return iter(self._owner)


def _nested(path: str, value: Any) -> dict[str, Any]:
    for part in reversed(path.split(".")):
        value = {part: value}
    assert isinstance(value, dict)
    return value


class _KeyRecorder:
    """Runs the release's own parsing and keeps what it asked for."""

    def __init__(self) -> None:
        config, utils = import_module("deepspeed.runtime.config"), import_module("deepspeed.runtime.config_utils")
        self.module = config
        self.models: dict[str, type] = {}
        self._built: list[type] = []
        self._listen(utils.DeepSpeedConfigModel)
        comms = getattr(import_module("deepspeed.comm.config"), "CommsConfig", None)  # a base of its own, up to 0.14
        if comms is not None:
            self._listen(comms)

    def _listen(self, base: Any) -> None:
        """Note every model below a base that is built from a probe."""
        original, built = base.__init__, self._built

        def noting_init(model: Any, *arguments: Any, **data: Any) -> None:
            if _PROBE in data:
                built.append(type(model))
            original(model, *arguments, **data)

        base.__init__ = noting_init

    def ask(self, values: dict[str, Any]) -> dict[str, Any]:
        """The keys one parse of a config asks for; an error ends the parse, not the question."""
        notes: dict[str, Any] = {}
        self._built.clear()
        parsed = object.__new__(self.module.DeepSpeedConfig)
        parsed.global_rank, parsed.world_size = 0, 1
        try:
            parsed._param_dict = _Noting(values, "", notes)
            parsed._initialize_params(parsed._param_dict)
            parsed._do_warning_check()
        except Exception as error:  # a probe is wrong on purpose; what it was asked for is the answer
            notes.setdefault(f"!{type(error).__name__}", str(error))
        return {key: value for key, value in notes.items() if not key.startswith("!")}

    def walk(self) -> dict[str, Any]:
        """Every key the parse asks for in any section, and the model behind each pydantic section."""
        defaults = self.ask(_BASE)
        waiting = sorted(defaults)
        while waiting:
            path = waiting.pop(0)
            if path.endswith(_FREE_FORM) or self._model_of(path):
                continue
            below: dict[str, Any] = {}
            for value in ({}, {"enabled": True}, {"type": "x", "params": {}}):
                asked = self.ask(_BASE | _nested(path, value))
                inside = {key: default for key, default in asked.items() if key.startswith(f"{path}.")}
                below |= {key: v for key, v in inside.items() if below.get(key) in (None, _ABSENT)}
            new = sorted(set(below) - set(defaults))
            defaults |= {k: v for k, v in below.items() if k not in defaults or defaults[k] is _ABSENT}
            waiting += new
        return defaults

    def _model_of(self, path: str) -> bool:
        self.ask(_BASE | _nested(path, {_PROBE: 0}))
        if self._built:
            self.models[path] = self._built[-1]
        return bool(self._built)


def _loose(defaults: dict[str, Any]) -> dict[str, dict[str, Any]]:
    keys: dict[str, dict[str, Any]] = {}
    for path, default in defaults.items():
        known = default is not _ABSENT and not isinstance(default, dict)
        keys[path] = {"default": as_json(default) if known else None}
    return keys


def _signature(module: str, name: str) -> dict[str, Any] | None:
    try:
        parameters = inspect.signature(getattr(import_module(module), name).__init__).parameters
    except (ImportError, AttributeError):
        return None
    taken = [p for p in parameters.values() if p.name not in _ENGINE_ARGUMENTS and p.kind is not p.VAR_KEYWORD]
    return {
        "class": f"{module}.{name}",
        "params": {p.name: None if p.default is p.empty else as_json(p.default) for p in taken},
        "required": [p.name for p in taken if p.default is p.empty],
    }


def _classes(module: str, base: str) -> dict[str, Any]:
    """Signatures of a module's public classes below a base: those a config may name."""
    space = import_module(module)
    parent = getattr(space, base)
    classes = [n for n, c in vars(space).items() if inspect.isclass(c) and issubclass(c, parent) and c is not parent]
    return {name: _signature(module, name) for name in sorted(classes) if not name.startswith("_")}


def _optimizers(config: Any) -> dict[str, Any]:
    names = [name.lower() for name in config.DEEPSPEED_OPTIMIZERS]
    table: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for name, module, cls, when in _OPTIMIZERS:
        signature = _signature(module, cls) if name.lower() in table else None
        if signature is not None:
            table[name.lower()].append({"when": when, **signature})
    return table


def _muon_keys() -> list[str]:
    """What the engine takes from Muon's params: it names them in its source and drops the rest."""
    engine = import_module("deepspeed.runtime.engine").DeepSpeedEngine
    halves = [getattr(engine, name, ()) for name in ("_MUON_HALF_KEYS", "_ADAM_HALF_KEYS")]
    source = inspect.getsource(engine._configure_basic_optimizer)
    muon = source.partition("MUON_OPTIMIZER")[2]
    literal = re.findall(r"""["'](\w+_lr|lr|momentum|weight_decay|betas|eps|ns_method)["']""", muon)
    return sorted({*halves[0], *halves[1], *literal} | ({"muon_lr", "adam_lr"} if halves[0] else set()))


def dump() -> dict[str, Any]:
    """The surface of the installed release, with plain JSON types only."""
    import deepspeed
    import torch

    reader = _KeyRecorder()
    keys = _loose(reader.walk())
    sections: dict[str, bool] = {}
    for path, model in sorted(reader.models.items()):
        keys[path] = {"default": None, "types": ["object"]}
        sections[path] = is_strict(model)
        for name, field in fields_of(model, path):
            keys[name] = field
            if "strict" in field:
                sections[name] = field.pop("strict")
    config, schedules = reader.module, import_module("deepspeed.runtime.lr_schedules")
    signatures = {name: _signature(schedules.__name__, name) for name in schedules.VALID_LR_SCHEDULES}
    zero_removed = getattr(config, "_REMOVED_ZERO_CONFIG_KEYS", {})
    return {
        "deepspeed": deepspeed.__version__.partition("+")[0].strip(),
        "torch": torch.__version__.partition("+")[0],
        "keys": dict(sorted(keys.items())),
        "models": sections,
        "removed": sorted(getattr(config, "_REMOVED_TOP_LEVEL_CONFIG_KEYS", {}))
        + [f"zero_optimization.{key}" for key in sorted(zero_removed)],
        "optimizers": _optimizers(config),
        "muon": _muon_keys() if "muon" in config.DEEPSPEED_OPTIMIZERS else [],
        "schedulers": signatures,
        "torch_optimizers": _classes("torch.optim", "Optimizer"),
        "torch_schedulers": _classes("torch.optim.lr_scheduler", "LRScheduler"),
    }


def main() -> None:
    """Print the dump; whatever DeepSpeed itself prints goes to stderr."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    out, sys.stdout = sys.stdout, sys.stderr
    text = json.dumps(dump(), sort_keys=True, allow_nan=False)
    target = sys.argv[1] if len(sys.argv) > 1 else None
    if target:
        Path(target).write_text(text, encoding="utf-8")
    else:
        out.write(text)


if __name__ == "__main__":
    main()
