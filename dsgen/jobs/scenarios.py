"""A scenario: the options of the command line as data, from the command line or from a committed file."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import attrs

from dsgen import catalog
from dsgen.jobs.composed import plain_data
from dsgen.jobs.misplaced_files import of_config
from dsgen.jobs.token_amounts import amount
from dsgen.shapes import units
from dsgen.shapes.errors import DsgenError, mistake, nearest
from dsgen.shapes.layers import Layer, Origin, Override, Rank, contradiction, leaves, same, show
from dsgen.shapes.near_misses import offer
from dsgen.shapes.value import Value

__all__ = [
    "FIELDS",
    "NAMES",
    "Scenario",
    "ScenarioValue",
    "is_scenario",
    "layers",
    "merge",
    "of",
    "parse",
    "parse_set",
    "read",
]

# Wishes of a training that are fields of a scenario by the same name.
_WISHES = (
    "seq_len", "target_len", "mean_len", "packing", "padding_free", "micro_batch", "global_batch", "total_steps",
    "total_tokens", "precision", "zero_stage", "offload", "tp", "checkpointing", "reentrant", "activation_offloading",
    "objective", "accumulation", "method", "lora_rank", "lora_targets", "lora_dropout", "lora_train_embeddings",
    "lora_fp32", "double_quantization", "kbit_fp32", "optimizer", "attention", "chunked_loss", "loading", "zero_init",
    "foreach", "expandable_segments", "launcher", "torch", "transformers", "liger", "liger_kernels",
)  # fmt: skip
# Option -> path of the fact or wish it sets. `--seq-len` and `seq_len:` are the same field.
FIELDS = {
    "gpus": "cluster.gpus",
    "nodes": "cluster.nodes",
    **{name: f"training.{name}" for name in _WISHES},
    "gpu_memory": "hardware.gpu_memory",
    "gpu_memory_used": "hardware.gpu_memory_used",
    "host_memory": "hardware.host_memory",
}
USABLE = "hardware.usable_memory"
_KINDS = {"hw": "hardware", "model": "model", "network": "network", "training": "training"}
NAMES = (*_KINDS, *FIELDS, "deepspeed", "file", "set")  # of all fields
_PROGRAM = ".py"
_SHAPE = re.compile(r"generic-(\d+)g")  # names of the hardware profiles that stand for any card of a size


class ScenarioValue(NamedTuple):
    """One field of a scenario: its value and where it was written."""

    value: Any
    origin: Origin
    reason: str | None = None


@attrs.frozen(kw_only=True, repr=False, eq=False)
class Scenario(Value):
    """What a person said: profiles by kind, fields, override files, single overrides, and the release.

    Attributes:
        profiles: Kind -> names or paths of its profiles.
        fields: Field of FIELDS -> its value.
        files: Override files, in order.
        sets: Dotted path -> value; a path stands twice when it was said twice.
        deepspeed: The release the config is for; None is the newest known.
        named: Kind -> where its profiles are named; what the command line names is not in it.
        rank: SITE for a file, USER for the command line.
    """

    profiles: Mapping[str, tuple[str, ...]] = attrs.Factory(dict)
    fields: Mapping[str, ScenarioValue] = attrs.Factory(dict)
    files: tuple[str, ...] = ()
    sets: tuple[tuple[str, ScenarioValue], ...] = ()
    deepspeed: str | None = None
    named: Mapping[str, Origin] = attrs.Factory(dict)
    rank: Rank = Rank.USER
    below: "Scenario | None" = None


def merge(file: Scenario, options: Scenario) -> Scenario:
    """A scenario file with options of the command line on top: what both say, the command line decides."""
    return attrs.evolve(
        options,
        profiles={**file.profiles, **{kind: names for kind, names in options.profiles.items() if names}},
        deepspeed=options.deepspeed or file.deepspeed,
        named={kind: origin for kind, origin in file.named.items() if not options.profiles.get(kind)},
        below=file,
    )


def layers(scenario: Scenario) -> tuple[Layer, ...]:
    """The scenario's profiles, files and overrides as layers.

    Raises:
        DsgenError: An unknown profile or a broken file.
    """
    profiles = [
        _profile(kind, name, scenario.named.get(kind)).layer._replace(
            weights=catalog.weights_of(name) if kind == "model" else ""
        )
        for kind in catalog.KINDS
        for name in dict.fromkeys(scenario.profiles.get(kind, ()))
    ]
    said = _gpu_memory(scenario)
    if said is not None and not scenario.profiles.get("hardware"):
        profiles.append(_stated_shape(said).layer)
    written = [*profiles, *_overrides(scenario)]
    if said is not None:
        written += _usable(said, written)
    return tuple(written)


def _profile(kind: str, name: str, named: Origin | None) -> catalog.Profile:
    """A profile; one that is not known is told with the place where it is named."""
    try:
        return catalog.find(kind, name)
    except DsgenError as error:
        raise (error.inside(named) if named is not None and error.where is None else error) from None


def _gpu_memory(scenario: Scenario) -> ScenarioValue | None:
    """The field gpu_memory in force: that of the command line, else that of the file."""
    if "gpu_memory" in scenario.fields:
        return scenario.fields["gpu_memory"]
    return _gpu_memory(scenario.below) if scenario.below is not None else None


def _stated_shape(said: ScenarioValue) -> catalog.Profile:
    """The built-in profile without a card's name whose memory is nearest: it lends a nameless card its other facts."""
    shapes = {int(match[1]): match[0] for match in map(_SHAPE.fullmatch, catalog.names("hardware")) if match}
    wanted = max(1.0, _bytes(said.value) / 2**30)
    return catalog.find("hardware", shapes[min(shapes, key=lambda size: max(size / wanted, wanted / size))])


def _usable(said: ScenarioValue, written: list[Layer]) -> Iterator[Layer]:
    """How much of a memory that was said is usable: the share that the hardware's profile has; unless that was said."""
    values = {item.path: item for layer in written for item in layer.overrides if layer.rank <= Rank.HARDWARE}
    by_hand = any(item.path == USABLE for layer in written for item in layer.overrides if layer.rank > Rank.HARDWARE)
    sold, usable = values.get(FIELDS["gpu_memory"]), values.get(USABLE)
    wanted = _bytes(said.value)
    if by_hand or sold is None or usable is None or not (wanted and _bytes(sold.value)):
        return
    share = _bytes(usable.value) / _bytes(sold.value)
    reason = f"{share:.1%} of the memory sold, as on {sold.origin.source}"
    override = Override(USABLE, f"{int(wanted * share)} B", said.origin, Rank.USER, reason)
    yield Layer("usable memory", Rank.USER, (override,))


def _bytes(value: Any) -> float:
    """A quantity in bytes; 0 where it is none, which the assembly says better."""
    try:
        return units.parse(value, units.BYTES)
    except ValueError:
        return 0.0


def _overrides(scenario: Scenario) -> Iterator[Layer]:
    if scenario.below is not None:
        yield from _overrides(scenario.below)
    for file in scenario.files:
        yield catalog.override_layer(file)
    said = [
        *((FIELDS[field], setting) for field, setting in scenario.fields.items()),
        *scenario.sets,
    ]
    if not said:
        return
    overrides = tuple(
        Override(path, setting.value, setting.origin, scenario.rank, setting.reason) for path, setting in said
    )
    seen: dict[str, Override] = {}
    for override in overrides:
        earlier = seen.setdefault(override.path, override)
        if not same(earlier.value, override.value):
            raise contradiction(earlier, override)
    yield Layer("command line" if scenario.rank == Rank.USER else "scenario", scenario.rank, overrides)


def parse_set(text: str, source: str = "--set") -> tuple[str, ScenarioValue]:
    """One `path=value`; the value is JSON, or else text.

    Raises:
        DsgenError: No path, no `=`, or a list or map that is not JSON.
    """
    path, equals, written = text.partition("=")
    path, written = path.strip(), written.strip()
    if not equals or not path or path.strip(".") != path or ".." in path:
        raise mistake(show(text), must="it must be path=value, such as training.seq_len=8192", where=source)
    try:
        value = json.loads(written, parse_constant=str, object_pairs_hook=_pairs)
    except (ValueError, RecursionError) as error:
        if written[:1] in ("[", "{", '"'):
            raise mistake(
                f"{path}={written[:60]} is not JSON ({error})",
                where=source,
                todo="In a shell, quote it: --set 'path=[1, 2]'.",
                code="unreadable",
            ) from None
        value = written
    if isinstance(value, dict):
        raise mistake(
            f"{path} is a map",
            must="--set takes one value",
            where=source,
            todo=f"Say --set {path}.KEY=VALUE for each key, or put the map into a file for -f.",
        )
    if value == "":
        raise mistake(f"{path} has no value", must="write null to delete it", where=source, code="missing")
    return path, ScenarioValue(value, Origin(source))


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key stands twice in one map")
    return dict(pairs)


def is_scenario(path: str) -> bool:
    """Whether a file is a scenario (it names hardware or a model) rather than a DeepSpeed config."""
    if not path.endswith((".yaml", ".yml")):
        return False
    from dsgen.documents.yaml.reader import entries, read_text

    return any(entry.path in ("hw", "model") for entry in entries(read_text(Path(path)), path))


def read(path: str) -> Scenario:
    """A scenario file; paths in it are relative to its folder.

    Raises:
        DsgenError: Unreadable, broken, or an unknown field; with file and line.
    """
    from dsgen.documents.yaml.reader import read_text

    text = read_text(Path(path))
    if path.endswith(_PROGRAM):
        todo = f"--args {path} takes what it tells its trainer."
        raise mistake("it is a Python program", must="a scenario is YAML", where=path, todo=todo, code="unreadable")
    return parse(text, path)


def parse(text: str, path: str) -> Scenario:
    """A scenario file from its text, as `read` reads it.

    Args:
        text: Its YAML.
        path: Where it lies or will lie.

    Raises:
        DsgenError: Broken, or an unknown field; with file and line.
    """
    from dsgen.documents.yaml.reader import entries

    said = (
        (entry.path, ScenarioValue(entry.value, Origin(path, entry.line), entry.comment))
        for entry in entries(text, path)
    )
    return _scenario(said, Path(path).parent, Rank.SITE)


def of(values: Mapping[str, Any], source: str) -> Scenario:
    """A scenario said as a dict: the fields of a scenario file, with plain values.

    Args:
        values: Field -> value; under `set` a map of paths.
        source: Who said it, for errors and `why`.

    Raises:
        DsgenError: An unknown field, or a field whose value it cannot be.
    """
    values, origin = plain_data(values, source), Origin(source)
    whole = {name: value for name, value in values.items() if not (name == "set" and isinstance(value, Mapping))}
    paths = values["set"] if len(whole) < len(values) else {}
    said = [*whole.items(), *((f"set.{path}", value) for path, value in leaves(paths))]
    return _scenario(((path, ScenarioValue(value, origin)) for path, value in said), None, Rank.USER)


def _scenario(said: Iterable[tuple[str, ScenarioValue]], folder: Path | None, rank: Rank) -> Scenario:
    """A scenario of its fields, each with the place where it was written; names of files may start at a folder."""
    profiles: dict[str, tuple[str, ...]] = {}
    named: dict[str, Origin] = {}
    fields: dict[str, ScenarioValue] = {}
    sets: list[tuple[str, ScenarioValue]] = []
    files: tuple[str, ...] = ()
    deepspeed: str | None = None
    seen: dict[str, Origin] = {}
    for path, setting in said:
        value, origin = setting.value, setting.origin
        top, _, rest = path.partition(".")
        name = path.replace("-", "_")
        if name in seen:
            first = f", first in line {seen[name].line}" if seen[name].line else ""
            raise mistake(
                f"{name} is given twice{first}",
                where=origin,
                must="a field stands once",
                todo="Drop one of the two.",
                code="contradiction",
            )
        seen[name] = origin
        if name in _KINDS:
            texts = _texts(value, name, origin)
            profiles[_KINDS[name]] = tuple(_beside(folder, item) for item in texts) if folder else texts
            if origin.line:
                named[_KINDS[name]] = origin
        elif name in FIELDS:
            fields[name] = setting._replace(value=amount(name, value))
        elif name == "deepspeed":
            deepspeed = _release(value, origin)
        elif name == "file":
            files = tuple(str(folder / item) if folder else item for item in _texts(value, name, origin))
        elif top == "set" and rest:
            sets.append((rest, setting))
        elif name == "set" and isinstance(value, list):
            sets.extend(parse_set(str(item), str(origin)) for item in value)
        elif name == "set":
            raise mistake(
                f"set is {show(value)}", must="it must be a map of paths, or a list of path=value", where=origin
            )
        else:
            raise _unknown(path, name, origin)
    return Scenario(
        profiles=profiles,
        named=named,
        fields=fields,
        files=files,
        sets=tuple(sets),
        deepspeed=deepspeed,
        rank=rank,
    )


def _unknown(path: str, name: str, origin: Origin) -> DsgenError:
    if (misplaced := of_config(path, origin)) is not None:
        return misplaced
    from dsgen.jobs.other_fields import meant  # most fields are right

    if (known := meant(path)) is not None:
        return mistake(f"unknown field {path}", where=origin, todo=known, code="unknown-name")
    return mistake(
        f"unknown field {path}",
        must=f"a scenario has {', '.join(NAMES)}",
        where=origin,
        todo=offer(nearest(name, NAMES), "Other paths go under set:."),
        code="unknown-name",
    )


def _texts(value: Any, name: str, origin: Origin) -> tuple[str, ...]:
    items = value if isinstance(value, list) else [value]
    if not items or not all(isinstance(item, str) and item for item in items):
        quoted = isinstance(value, (int, float)) and not isinstance(value, bool)
        value_is_map = isinstance(value, Mapping)
        raise mistake(
            f"{name} is {show(value)}",
            must="it must be a name, or a list of names",
            where=origin,
            todo=f'Quote it: {name}: "{value}".' if quoted else "Paths go under set:." if value_is_map else None,
        )
    return tuple(items)


def _release(value: Any, origin: Origin) -> str:
    if not isinstance(value, str):
        raise mistake(
            f"deepspeed is {show(value)}",
            must="it must be one release, quoted: 0.10 would read as 0.1",
            where=origin,
            todo='Write deepspeed: "0.19".',
        )
    return value


def _beside(folder: Path, name: str) -> str:
    """A relative path in a scenario starts at the scenario's folder; a name stays a name."""
    return str(folder / name) if name.startswith(".") or (folder / name).is_file() else name
