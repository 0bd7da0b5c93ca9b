"""What a rule looks at: the config, the release that reads it, the program that loads it, and what is known besides."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import attrs

from dsgen import catalog
from dsgen.deepspeed.coercion import REFUSED, read_strict
from dsgen.deepspeed.keys import lookup
from dsgen.deepspeed.surface import Surface
from dsgen.documents.document import Document
from dsgen.linting.model_loads import ModelLoad
from dsgen.shapes.layers import fold
from dsgen.shapes.profiles import SECTIONS, Hardware, Model, Network, Training
from dsgen.targets import OPEN, Target

__all__ = ["OPEN", "Facts", "Subject"]


T = TypeVar("T")


@functools.lru_cache(maxsize=64)
def _profile(kind: str, name: str) -> Any:
    from dsgen.catalog.structure import structure
    from dsgen.jobs.assembly import canonical  # most files are linted without a profile

    folded = fold(canonical([catalog.find(kind, name).layer]))
    return structure(SECTIONS[kind], kind, folded.tree, folded.provenance)


def _hardware(said: Hardware | str | None) -> Hardware | None:
    hardware: Hardware | None = _profile("hardware", said) if isinstance(said, str) else said
    return hardware


def _network(said: Network | str | None) -> Network | None:
    network: Network | None = _profile("network", said) if isinstance(said, str) else said
    return network


def _model(said: Model | str | None) -> Model | None:
    model: Model | None = _profile("model", said) if isinstance(said, str) else said
    return model


@attrs.frozen(kw_only=True)
class Facts:
    """What stands in no config file; None or empty where nobody said.

    Attributes:
        world_size: Number of GPUs (ranks) in all.
        accelerator: "cuda", "cpu" or another name that DeepSpeed's accelerator has; a GPU is assumed without it.
        client_optimizer: What the program hands to deepspeed.initialize: "none", "torch" (any optimizer of torch) or
            "deepspeed" (one of DeepSpeed's own).
        missing: Python packages and system libraries that the training machine does not have: "wandb", "libaio".
        calls: What else the program calls: "checkpointing.configure", "engine.compile".
        parameters: Names of the model's parameters, as named_parameters() has them.
        hardware, network, model: Profiles, or the names or files of some.
        seq_len: Tokens per sequence.
        training: What is trained and how, where a job says it; all parameters without it.
        job_world: Number of GPUs of the scenario that the config is for.
        told: DeepSpeed's key -> what the program's arguments fill in where the config says "auto".
        launched: Whether a file of a launcher names the config, so that Accelerate may launch a Trainer, which fills in
            more than a loop of Accelerate's own.
        loads: How the program loads its model, where its text is given.
    """

    world_size: int | None = None
    accelerator: str | None = None
    client_optimizer: str | None = None
    missing: frozenset[str] = frozenset()
    calls: frozenset[str] = frozenset()
    parameters: tuple[str, ...] | None = None
    hardware: Hardware | None = attrs.field(default=None, converter=_hardware)
    network: Network | None = attrs.field(default=None, converter=_network)
    model: Model | None = attrs.field(default=None, converter=_model)
    seq_len: int | None = None
    training: Training | None = None
    job_world: int | None = None
    told: Mapping[str, Any] = attrs.field(factory=dict)
    launched: bool = False
    loads: tuple[ModelLoad, ...] = ()


@attrs.frozen(kw_only=True, eq=False, slots=False)
class Subject:
    """One config to lint. `config` is a map; a file whose top level is none never gets here."""

    config: Mapping[str, Any]
    surface: Surface
    target: Target
    document: Document
    facts: Facts = Facts()
    _memo: dict[str, Any] = attrs.field(init=False, factory=dict)
    _shared: dict[str, Any] = attrs.field(init=False, factory=dict)

    def written(self, path: str) -> bool:
        """Whether the config says something at a path, under this very name."""
        return lookup(self.config, path)[0]

    def raw(self, path: str) -> Any:
        """The value as written at a path; None where nothing is."""
        return lookup(self.config, path)[1]

    def section(self, path: str) -> Mapping[str, Any]:
        """The map at a path; an empty one where nothing or something else stands."""
        section = self.raw(path)
        return section if isinstance(section, Mapping) else {}

    def value(self, path: str) -> Any:
        """What will be in force at a path: as written (a text that DeepSpeed reads as a number or as true or false
        turned into it), under another name of the key, or the release's default.

        "auto" gives what the program is told where the target fills it in, OPEN where nobody said; the default in a
        section where DeepSpeed drops it, and stays "auto" where DeepSpeed keeps the word.
        """
        if path not in self._memo:
            self._memo[path] = self._value(path)
        return self._memo[path]

    def is_open(self, path: str) -> bool:
        """Whether the target fills the key in, so that no rule may judge its value."""
        return self.value(path) is OPEN

    def on(self, section: str) -> bool:
        """Whether a section with a switch `enabled` is switched on for certain.

        Outside the strict sections DeepSpeed only asks whether the value counts as true.
        """
        value = self.value(f"{section}.enabled")
        if self.surface.sections.get(section) == "strict" or value == "auto":
            return value is True
        return bool(value)

    @functools.cached_property
    def stage(self) -> int:
        """The ZeRO stage that DeepSpeed will run; 0 where the config has none or one that it refuses."""
        stage = self.value("zero_optimization.stage")
        return stage if stage in (0, 1, 2, 3) and not isinstance(stage, bool) else 0

    def offload(self, what: str) -> str:
        """Where the "optimizer" or "param" state is told to go: "none", "cpu" or "nvme"."""
        device = self.value(f"zero_optimization.offload_{what}.device")
        old = self.value(f"zero_optimization.cpu_offload{'_param' if what == 'param' else ''}")
        return device if device in ("cpu", "nvme") else "cpu" if old is True else "none"

    @functools.cached_property
    def optimizer(self) -> str:
        """The optimizer's type in small letters; "" where the config names none."""
        name = self.raw("optimizer.type")
        return name.lower() if isinstance(name, str) else ""

    @functools.cached_property
    def version(self) -> tuple[int, ...]:
        """The release that the config is linted for, as numbers: (0, 19, 8)."""
        return tuple(int(part) for part in self.surface.version.split("."))

    def once(self, name: str, compute: Callable[[], T]) -> T:
        """What several rules need and one of them works out; kept under a name of its own."""
        if name not in self._shared:
            self._shared[name] = compute()
        shared: T = self._shared[name]
        return shared

    def leaves(self) -> Iterator[tuple[str, Any]]:
        """Every path and value of the config, sections before what is in them; `dotted` keys are not among them."""
        dotted = self._dotted_paths
        yield from self.once("leaves", lambda: [leaf for leaf in _walk(self.config, "") if leaf[0] not in dotted])

    def dotted(self) -> Iterator[tuple[str, str, Any]]:
        """Section, path and value of every key with the dots of a path in its own name, so that nothing reads it."""
        yield from ((section, path, value) for path, (section, value) in self._dotted_paths.items())

    @functools.cached_property
    def _dotted_paths(self) -> Mapping[str, tuple[str, Any]]:
        known = self.surface
        return {
            f"{before}{name}": (before.rstrip("."), value)
            for before, name, value in _dotted_names(self.config, "")
            if known.sections.get(before.rstrip(".")) != "free"
            and (known.key(f"{before}{name}") is not None or f"{before}{name}" in known.sections)
        }

    def _value(self, path: str) -> Any:
        section = self.surface.sections.get(path.rpartition(".")[0])
        value = self.surface.value(path, self.config)
        if value == "auto":
            if self.written(path) and self.target.fills(path):
                return self.target.instead_of_auto(path, self.facts.told)
            return self.surface.default(path) if section == "strict" else value
        key = self.surface.key(path, self.config) if section == "strict" else None
        read = read_strict(key, value) if key is not None and self.written(path) else value
        return value if read is REFUSED else read


def _walk(config: Mapping[str, Any], before: str) -> Iterator[tuple[str, Any]]:
    for name, value in config.items():
        path = f"{before}{name}"
        yield path, value
        if isinstance(value, Mapping):
            yield from _walk(value, f"{path}.")
        elif isinstance(value, list):
            for number, item in enumerate(value):
                if isinstance(item, Mapping):
                    yield from _walk(item, f"{path}[{number}].")


def _dotted_names(config: Mapping[str, Any], before: str) -> Iterator[tuple[str, str, Any]]:
    """Section with its dot, name and value of every name with a dot in it."""
    for name, value in config.items():
        if "." in str(name):
            yield before, str(name), value
        elif isinstance(value, Mapping):
            yield from _dotted_names(value, f"{before}{name}.")
