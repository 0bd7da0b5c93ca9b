"""YAML files that hold a DeepSpeed config or name one: Accelerate's, and the training files of Hugging Face's users.

A training file (axolotl, LLaMA-Factory, TrainingArguments) has a key `deepspeed` with a path or the config itself.
Those of other programs name a path in a section (`deepspeed: {config_file: ds.json}`) or as `deepspeed_config`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from dsgen.deepspeed.keys import lookup
from dsgen.documents.document import Document, TextPlace
from dsgen.documents.yaml import documents as yaml_documents
from dsgen.linting import accelerate_files, disagreements, statements
from dsgen.linting.statements import Statement
from dsgen.shapes.findings import Fault

__all__ = ["OURS", "Wrapped", "is_accelerates", "is_training", "named", "of", "read", "without_config"]

_KEY = "deepspeed"
_OTHERS = ("deepspeed_config", "deepspeed_config_file", "deepspeed_config_path")  # keys of programs of one's own
_INSIDE = ("config", "config_file", "config_path")  # and theirs in a section `deepspeed`
# One of these a config has; a map of another meaning under the same name has none of them.
OURS = frozenset(
    ("zero_optimization", "train_batch_size", "train_micro_batch_size_per_gpu", "bf16", "fp16", "optimizer")
)
# One of these a file of a training program's arguments has, and no config: transformers and TRL, Axolotl.
_PROGRAM_S = frozenset(("model_name_or_path", "per_device_train_batch_size", "output_dir", "base_model"))
_OTHER_S = "micro_batch_size"  # without any of those it is of a program that fills the config in, as ArcticTraining
_OLD = "fp16"  # which Accelerate's first files had as a switch (commands/config/config_args.py: process_config)
_SUFFIXES = (".json", ".hjson", ".yaml", ".yml", ".config")
_DEEPEST = 3  # sections around the key: training files group their arguments, but not further
_MOST = 10_000  # letters of a path that is looked for; a longer text is no path


@attrs.frozen(kw_only=True, eq=False)
class Wrapped:
    """What a YAML file says of DeepSpeed.

    Attributes:
        document: The config in it, in the terms of DeepSpeed; its `config` is None where the file only names one.
        wraps: Whether it is such a file at all.
        target: The program that reads the file; None where it wraps nothing, or is of a program that is not known.
        world_size: The number of ranks that it fixes.
        files: The config files that it names and that are there.
        key: Path of the key that names or holds the config, in a training file.
        said: What such a file says of a config that it holds, or Accelerate's of the one that it names too.
    """

    document: Document
    wraps: bool = False
    target: str | None = None
    world_size: int | None = None
    files: tuple[Path, ...] = ()
    key: str = ""
    said: tuple[Statement, ...] = ()

    def handed_over(self, started: str | None) -> str | None:
        """The program that hands the config over, of a file that what it starts may use: a Trainer takes what
        `accelerate launch` has made of its file, fills that in and compares it (integrations/deepspeed.py of
        transformers 5.23, propagate_args_to_deepspeed).

        Args:
            started: The program that is started with the file.
        """
        if started == "hf-trainer" and self.target == "accelerate":
            return started
        return self.target or started


def read(text: str, name: str) -> Wrapped:
    """What a YAML text holds; nothing is raised.

    Args:
        text: The file as text.
        name: Its path; the files it names are looked for from the working directory, beside it, and above it.
    """
    return of(yaml_documents.read(text, name))


def of(whole: Document) -> Wrapped:
    """What a file that was read already holds; see `read`."""
    if not isinstance(whole.config, Mapping):
        return Wrapped(document=whole)
    if accelerate_files.is_accelerate(whole.config):
        return _accelerate(whole, whole.config)
    for path, value in _named_configs(whole.config, "", 1):
        other = _is_other_s(whole.config, path)
        target = "hf-trainer" if path.rpartition(".")[2] == _KEY and not other else None
        if isinstance(value, Mapping):
            said = statements.of_training_file(whole, path) if target is not None else ()
            part = _part(whole, path, value, said, target)
            program = "deepspeed" if other else target  # an "auto" in it tells of no Trainer
            return Wrapped(document=part, wraps=True, target=program, key=path, said=said)
        file = named(value, whole.name)
        faults = (*whole.faults, *_missing(file, path, value))
        document = attrs.evolve(whole, config=None, whole=whole, faults=faults)
        return Wrapped(document=document, wraps=True, target=target, files=(file,) if file else (), key=path)
    return Wrapped(document=whole)


def is_training(config: Any) -> bool:
    """Whether a file holds the arguments of a training program, whether it names a config or not."""
    return isinstance(config, Mapping) and not _PROGRAM_S.isdisjoint(config)


def _is_other_s(config: Mapping[str, Any], path: str) -> bool:
    """Whether what stands beside a `deepspeed` are the arguments of a program that is not known."""
    beside = lookup(config, path.rpartition(".")[0])[1] if "." in path else config
    known = isinstance(beside, Mapping)  # a section whose name has a dot is not looked up
    return known and _OTHER_S in beside and _PROGRAM_S.isdisjoint((*config, *beside))


def is_accelerates(config: Any) -> bool:
    """Whether a file is Accelerate's, for DeepSpeed or for another way to train, and no config with a key too many."""
    if not isinstance(config, Mapping) or not isinstance(config.get("distributed_type"), str):
        return False
    ours = OURS.intersection(config)
    return not ours or (ours == {_OLD} and not isinstance(config[_OLD], Mapping))


def without_config(wrapped: Wrapped) -> Wrapped:
    """A file that neither holds a config nor names one, with what it holds as the whole of it."""
    return attrs.evolve(wrapped, document=attrs.evolve(wrapped.document, config=None, whole=wrapped.document))


def _accelerate(whole: Document, config: Mapping[str, Any]) -> Wrapped:
    faults = [*whole.faults, *accelerate_files.faults(config, whole)]
    files: tuple[Path, ...] = ()
    made: dict[str, Any] | None = None
    if (written := accelerate_files.config_file(config)) is not None:
        file = named(written, whole.name)
        files = (file,) if file else ()
        faults += _missing(file, "deepspeed_config.deepspeed_config_file", written)
    elif config["distributed_type"] == "DEEPSPEED":
        made = accelerate_files.translated(config)
    document = attrs.evolve(
        whole,
        config=made,
        places=accelerate_files.places(config, whole) if made is not None else whole.places,
        faults=tuple(faults),
        whole=whole,
        paths=accelerate_files.paths(config),
    )
    ranks = accelerate_files.processes(config)
    said = statements.of_accelerate(whole, ranks)
    return Wrapped(document=document, wraps=True, target="accelerate", world_size=ranks, files=files, said=said)


def _part(
    whole: Document, path: str, config: Mapping[str, Any], said: Sequence[Statement], target: str | None
) -> Document:
    """The config at a path of a file, as a document of its own with the places of the file."""
    before = f"{path}."
    places: dict[str, TextPlace] = {
        inner.removeprefix(before): place for inner, place in whole.places.items() if inner.startswith(before)
    }
    if path in whole.places:
        places[""] = whole.places[path]
    part = attrs.evolve(whole, config=config, places=places, whole=whole, paths={"": path})
    if target is None:  # what the keys of other programs mean is not known
        return part
    beside = (
        *disagreements.in_config(part, said, target),
        *disagreements.in_statements(said, part, target, whole.name),
    )
    return attrs.evolve(part, faults=(*part.faults, *beside))


def _named_configs(config: Mapping[str, Any], before: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Path and value of every `deepspeed` that is a config or a path, or has one inside."""
    ours = before.rpartition(".")[0].rpartition(".")[2] == _KEY
    for name, value in config.items():
        path = f"{before}{name}"
        named = name == _KEY or name in _OTHERS or (ours and name in _INSIDE)
        if named and (_is_path(value) or (isinstance(value, Mapping) and not OURS.isdisjoint(value))):
            yield path, value
        elif isinstance(value, Mapping) and depth < _DEEPEST:
            yield from _named_configs(value, f"{path}.", depth + 1)


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and value.lower().endswith(_SUFFIXES) and len(value) < _MOST


def named(written: str, name: str, places: Iterable[Path] = ()) -> Path | None:
    """The file that a path in another file means: programs start in the project's folder, wherever that file lies.

    Args:
        written: The path as it stands there.
        name: The file that names it.
        places: Other folders that it may start from.
    """
    folder = Path(name).absolute().parent
    try:
        for start in (Path(), folder, *folder.parents, *places):
            if (path := start / written).is_file():
                return path
    except (OSError, ValueError):  # a name that no file can have
        return None
    return None


def _missing(there: Path | None, path: str, written: str) -> Iterator[tuple[str, Fault]]:
    if there is None and "$" not in written and "{{" not in written:  # a placeholder is filled in by another program
        message = f"{written} is not there, seen from here, from this file's folder and from the folders above it"
        yield "named-config-missing", Fault(path, message, on="value")
