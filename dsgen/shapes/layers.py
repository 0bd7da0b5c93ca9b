"""Named, ranked overrides, and the fold that merges them into one tree and remembers every loser."""

import enum
import functools
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from dsgen.shapes.errors import DsgenError, mistake

__all__ = [
    "DEEPEST",
    "ENFORCED",
    "TOLD",
    "UNTOLD",
    "Fold",
    "Layer",
    "Origin",
    "Override",
    "Provenance",
    "Rank",
    "contradiction",
    "fold",
    "leaves",
    "same",
    "show",
]

DEEPEST = 40  # maps and lists inside each other; DeepSpeed's deepest key has 7

Tree = dict[str, Any]


class Rank(enum.IntEnum):
    """Who wins: the higher rank, whatever the order in which layers were named."""

    DEFAULT = 0
    PLAN = 1
    HARDWARE = 2
    NETWORK = 3
    MODEL = 4
    TRAINING = 5
    SITE = 6
    USER = 7


class Origin(NamedTuple):
    """Where a value was written: a file and its line, `planner`, `--set`, a Python call; "" where it is only tried."""

    source: str
    line: int | None = None

    def __str__(self) -> str:
        return self.source if self.line is None else f"{self.source}:{self.line}"


ENFORCED = Origin("dsgen")  # of what runs whatever was asked
TOLD = "the training program is told so"  # why a file of its arguments says it
UNTOLD = "the training program's default"  # why one that says nothing of it does


class Override(NamedTuple):
    """One path, one value (None deletes), who wrote it where, and why."""

    path: str
    value: Any
    origin: Origin
    rank: Rank
    reason: str | None = None


class Layer(NamedTuple):
    """A named set of overrides of one rank: a profile, the plan, a site file, the command line.

    `weights` is where those of a model lie, if it was named so: a repository of the hub, or a folder. `doubt` says what
    else the name that was given may mean; "" where it means one thing.
    """

    name: str
    rank: Rank
    overrides: tuple[Override, ...]
    weights: str = ""
    doubt: str = ""


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The dotted path and value of every leaf: scalars, lists, None and empty maps."""
    for key, value in tree.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{path}.")
        else:
            yield path, value


class Provenance(NamedTuple):
    """Every override of every path, in the order of precedence; the last one won."""

    overrides: Mapping[str, tuple[Override, ...]]

    def history(self, path: str) -> tuple[Override, ...]:
        """All overrides of a path, losers first; empty when nobody wrote it."""
        return self.overrides.get(path, ())

    def winner(self, path: str) -> Override | None:
        """The override in force at a path, or the one that set or deleted a parent of it."""
        while path:
            if overrides := self.overrides.get(path):
                return overrides[-1]
            path = path.rpartition(".")[0]
        return None

    def where(self, path: str) -> Origin | None:
        """Where the value in force was written; None when it is a default."""
        winner = self.winner(path)
        return winner.origin if winner else None


class Fold(NamedTuple):
    """What folding gives: the merged tree, who wrote what, and overrides that changed nothing."""

    tree: Tree
    provenance: Provenance
    warnings: tuple[str, ...]


def fold(layers: Iterable[Layer]) -> Fold:
    """Merge layers as RFC 7396 merges patches: maps merge, scalars and lists replace, None deletes.

    Args:
        layers: In any order; a higher rank wins, and inside the SITE rank the later file.

    Raises:
        DsgenError: Two layers of one rank disagree on a path, or a map meets a scalar.
    """
    state = _Folding()
    for layer in sorted(layers, key=lambda layer: layer.rank):  # stable: files keep their order
        for override in layer.overrides:
            state.apply(layer, override)
    history = {path: tuple(overrides) for path, overrides in state.history.items()}
    return Fold(state.tree(), Provenance(history), tuple(state.warnings))


class _Folding:
    """The fold in progress: leaves in force and the history of each path."""

    def __init__(self) -> None:
        self.leaves: dict[str, tuple[Layer, Override]] = {}
        self.maps: set[str] = set()
        self.history: dict[str, list[Override]] = {}
        self.writers: dict[str, tuple[Layer, Override]] = {}
        self.warnings: list[str] = []

    def apply(self, layer: Layer, override: Override) -> None:
        path, value = override.path, override.value
        writer = self.writers.get(path)
        if writer and writer[0] is not layer and writer[1] != override and override in writer[0].overrides:
            return  # both extend the profile that says it, and the other has changed it already
        if writer and writer[0] is not layer and writer[1] == override and override.rank < Rank.SITE:
            return  # both extend the profile that says it: it says it once
        self._refuse_rivals(layer, override)
        self.writers[path] = (layer, override)
        if value is None:
            self._delete(layer, override)
        elif value == {} and path in self.maps:  # an empty map into a map: nothing to merge, and no mistake
            self._warn(override, "changes nothing; it is a map already")
            return
        else:
            self._write(layer, override)
        self.history.setdefault(path, []).append(override)

    def _write(self, layer: Layer, override: Override) -> None:
        path, parents = override.path, _parents(override.path)
        for parent in parents:
            if parent in self.leaves:
                if self.leaves[parent][1].value != {}:
                    raise _map_meets_scalar(self.leaves[parent][1], override)
                del self.leaves[parent]  # an empty map until now
        if path in self.maps:
            raise _map_meets_scalar(override, next(self.leaves[leaf][1] for leaf in self._below(path)))
        previous = self.leaves[path][1] if path in self.leaves else None
        if previous is not None:
            if (previous.value == {}) != (override.value == {}):
                scalar, empty = (override, previous) if previous.value == {} else (previous, override)
                raise _map_meets_scalar(scalar, empty)
            if same(previous.value, override.value) and not _affirms(override, previous):
                self._warn(override, f"changes nothing; it is so already ({previous.origin})")
        self.leaves[path] = (layer, override)
        self.maps.update(parents)

    def _refuse_rivals(self, layer: Layer, override: Override) -> None:
        """Refuse two layers of one rank that decide one path differently; files of a site are ordered instead."""
        if override.rank == Rank.SITE:
            return
        path, writers = override.path, self.writers
        written = [writers[path]] if path in writers else []
        if override.value is not None:  # a rival may have deleted the section around it
            around = [writers[parent] for parent in _parents(path) if parent in writers]
            written += [writer for writer in around if writer[1].value is None]
        else:  # or it deletes what a rival has set below it
            below = (writer for other, writer in writers.items() if other.startswith(f"{path}."))
            written += [writer for writer in below if writer[1].value is not None]
        for _, rival in written:
            if rival.rank != override.rank or same(rival.value, override.value):
                continue
            if layer.rank != Rank.USER and rival in layer.overrides:  # a child of `extends` overrides its parent
                continue
            raise _rivals(rival, override)

    def _delete(self, layer: Layer, override: Override) -> None:
        path = override.path
        below = [*([path] if path in self.leaves else []), *self._below(path)]
        # A key that the plan decides is not in the tree yet, so only known facts and wishes can be judged here.
        if not below and path not in self.history and not path.startswith("deepspeed"):
            self._warn(override, "deletes nothing; no layer sets it")
        for leaf in below:
            del self.leaves[leaf]
            if leaf != path:
                self.history[leaf].append(override)
                self.writers[leaf] = (layer, override)
        self.maps = {parent for leaf in self.leaves for parent in _parents(leaf)}

    def _below(self, path: str) -> list[str]:
        return [leaf for leaf in self.leaves if leaf.startswith(f"{path}.")]

    def _warn(self, override: Override, what: str) -> None:
        """Tell a person of an override without effect; a profile may repeat what another says."""
        if override.rank >= Rank.SITE:
            self.warnings.append(f"{override.origin}: {override.path} = {show(override.value)} {what}")

    def tree(self) -> Tree:
        tree: Tree = {}
        for path, (_, override) in self.leaves.items():
            *parents, key = path.split(".")
            node = tree
            for parent in parents:
                node = node.setdefault(parent, {})
            node[key] = {} if override.value == {} else override.value
        return tree


def _affirms(override: Override, previous: Override) -> bool:
    """Whether what a profile has is said on purpose, or to another program, which has no such profile.

    By an option of the command line: the profile may say otherwise some day.
    """
    return (override.origin.source.startswith("--") or override.reason in (TOLD, UNTOLD)) and previous.rank < Rank.SITE


@functools.lru_cache(maxsize=4096)
def _parents(path: str) -> tuple[str, ...]:
    return tuple(path[:index] for index, letter in enumerate(path) if letter == ".")


def same(left: Any, right: Any) -> bool:
    """Equal in type and value, at any depth: true is not 1, and 1.0 is not 1; not a number is itself."""
    if isinstance(left, (list, dict)):
        return json.dumps(left, sort_keys=True, default=repr) == json.dumps(right, sort_keys=True, default=repr)
    return type(left) is type(right) and (bool(left == right) or left != left)  # only a NaN differs from itself


def show(value: Any) -> str:
    """A value as a person writes it in YAML: null, true, 1.5, cpu; text that would read as something else is quoted."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(show(item) for item in value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {show(item)}' for key, item in value.items())}}}"
    if isinstance(value, str):
        return value if _reads_back(value) else json.dumps(value)
    return str(value)


def _reads_back(text: str) -> bool:
    """Whether YAML reads unquoted text as text; nothing that a terminal would act on does."""
    if text.lower() in ("", "~", "null", "true", "false") or text != text.strip() or not text.isprintable():
        return False
    try:
        float(text.replace("_", ""))
    except ValueError:
        return True
    return False


def contradiction(first: Override, second: Override) -> DsgenError:
    """The error for two values of one path from a place that may say a thing once."""
    return mistake(
        f"{first.path} = {show(first.value)} ({first.origin}) and {show(second.value)} ({second.origin})",
        must="it can have one value",
        todo="Drop one of the two.",
        code="contradiction",
    )


def _rivals(first: Override, second: Override) -> DsgenError:
    named = f"{second.path} = " if second.path != first.path else ""
    return mistake(
        f"{first.path} = {show(first.value)} ({first.origin}) and {named}{show(second.value)} "
        f"({second.origin}) have the same rank ({second.rank.name.lower()})",
        must="one value must win",
        todo=f"Drop one of the two, or decide it above them: -f a file or --set {second.path}=VALUE."
        if second.rank < Rank.SITE
        else "Drop one of the two; the command line and Python may say a thing once.",
        code="contradiction",
    )


def _map_meets_scalar(scalar: Override, inner: Override) -> DsgenError:
    return mistake(
        f"{scalar.path} = {show(scalar.value)} ({scalar.origin}) is a value, "
        f"and {inner.path} = {show(inner.value)} ({inner.origin}) makes it a map",
        must="it must be one or the other",
        todo=f"Drop one of the two, or put {scalar.path}: null into a layer between them, such as a -f file.",
        code="contradiction",
    )
