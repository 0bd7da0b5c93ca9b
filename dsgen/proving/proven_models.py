"""What a proof trains: a tiny Llama, the tiny sibling of a named model, or what a person's own function makes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from dsgen.shapes.errors import mistake

__all__ = ["CHECKPOINTING", "METHODS", "TINY_LLAMA", "Lora", "ProvenModel", "is_factory", "of_factory"]

TINY_LLAMA = "a tiny Llama"
METHODS = ("full", "lora", "qlora")
CHECKPOINTING = ("", "non-reentrant", "reentrant")  # torch's kinds, and none
_FACTORY = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_TINY_HIDDEN = 64  # of the tiny Llama (engine.proof.tiny_llama)
_RANK = 8  # the most that adapters of a tiny model have: its matrices have 64 rows
_HOW = ("optimizer", "checkpointing")  # what is said only where it is not ""
_HIDDEN_KEYS = ("hidden_size", "n_embd", "d_model")


@attrs.frozen(kw_only=True)
class Lora:
    """LoRA adapters on a frozen base: in 16 bits, or with 4-bit weights (`method` "qlora")."""

    method: str
    rank: int = 16
    targets: tuple[str, ...] = ("all-linear",)
    dropout: float = 0.0
    train_embeddings: bool = False
    fp32: bool = True
    kbit_fp32: str = "always"

    def to_engine(self) -> dict[str, Any]:
        """As the child process takes them; a certificate's hash of them is as it was where peft prepares a base."""
        made = {
            "method": self.method,
            "lora_rank": min(self.rank, _RANK),
            "lora_targets": list(self.targets),
            "lora_dropout": self.dropout,
            "lora_train_embeddings": self.train_embeddings,
            "lora_fp32": self.fp32,
        }
        return made if self.kbit_fp32 == "always" else {**made, "kbit_fp32": self.kbit_fp32}


@attrs.frozen(kw_only=True)
class ProvenModel:
    """The model of a proof.

    Attributes:
        name: What a person called it; None is the tiny Llama.
        config: Its config.json at full size.
        factory: "package.module:function" instead, run in the child process.
        folder: Where that package is looked for first.
        adapters: What is trained instead of all of it.
        optimizer: One that the program brings: AdamW8bit; "" for DeepSpeed's, or where the config has none torch's.
        checkpointing: How the program recomputes activations, one of CHECKPOINTING; a person's own function does it.
    """

    name: str | None = None
    config: Mapping[str, Any] | None = None
    factory: str | None = None
    folder: str | None = None
    adapters: Lora | None = None
    optimizer: str = ""
    checkpointing: str = ""

    @property
    def is_plain(self) -> bool:
        """Whether it is the tiny Llama, of which every size is known."""
        return self.config is None and self.factory is None and self.adapters is None

    @property
    def packages(self) -> tuple[str, ...]:
        """What its training needs beside DeepSpeed."""
        return (*(("peft",) if self.adapters else ()), *(("bitsandbytes",) if self.optimizer else ()))

    @property
    def hidden_size(self) -> int:
        """What a program that fills in "auto" takes bucket sizes from: the full model's, else the tiny one's."""
        for key in _HIDDEN_KEYS:
            if isinstance(size := (self.config or {}).get(key), int):
                return size
        return _TINY_HIDDEN

    @property
    def title(self) -> str:
        """What was trained, in words."""
        if self.factory is not None:
            model = f"what {self.factory} makes"
        elif self.config is not None:
            model = f"a tiny sibling of {self.name} ({self.config.get('model_type')})"
        else:
            model = TINY_LLAMA
        kind = {"reentrant": "reentrant "}.get(self.checkpointing, "")
        recomputed = f", with {kind}activation checkpointing" if self.checkpointing else ""
        if self.adapters is None:
            return f"{model}{recomputed}"
        base = ", its weights in 4 bits" if self.adapters.method == "qlora" else ""
        return f"LoRA adapters on {model}{base}{recomputed}"

    @property
    def sha256(self) -> str:
        """The hash of what is trained: the model's config.json or function, its adapters, and how; not its name."""
        adapters = None if self.adapters is None else attrs.asdict(self.adapters)
        said = {"config": self.config, "factory": self.factory, "adapters": adapters}
        said |= {name: value for name in _HOW if (value := getattr(self, name))}
        return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()

    @property
    def hashes(self) -> tuple[str, ...]:
        """The hashes that a claim of it accepts: of every kind of checkpointing, where none is said."""
        kinds = (self.checkpointing,) if self.checkpointing else CHECKPOINTING
        return tuple(attrs.evolve(self, checkpointing=kind).sha256 for kind in kinds)

    def to_engine(self) -> dict[str, Any]:
        """As the child process takes it, which makes it tiny."""
        asked: dict[str, Any] = {"kind": "tiny"}
        if self.factory is not None:
            asked = {"kind": "factory", "factory": self.factory, "folder": self.folder}
        elif self.config is not None:
            asked = {"kind": "sibling", "config": dict(self.config)}
        asked |= {name: value for name in _HOW if (value := getattr(self, name))}
        return asked if self.adapters is None else {**asked, "adapters": self.adapters.to_engine()}


def is_factory(said: str) -> bool:
    """Whether a model is said as package.module:function."""
    return _FACTORY.fullmatch(said) is not None and not Path(said).exists()


def of_factory(said: str, adapters: Lora | None = None) -> ProvenModel:
    """The model that a person's own function makes; it is looked for in the working folder first.

    Raises:
        DsgenError: It is no package.module:function.
    """
    if not is_factory(said):
        raise mistake(f"model is {said!r}", must="a function is said as package.module:function")
    return ProvenModel(name=said, factory=said, folder=str(Path.cwd()), adapters=adapters)
