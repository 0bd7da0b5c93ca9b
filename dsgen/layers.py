"""Named, ranked overrides, and the fold that merges them into one tree and remembers every loser."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs

from dsgen.errors import DsgenError, mistake

__all__ = ["Fold", "Layer", "Origin", "Override", "Provenance", "Rank", "fold", "leaves"]

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


@attrs.frozen
class Origin:
    """Where a value was written: a file and its line, `planner`, `--set`, a Python call."""

    source: str
    line: int | None = None

    def __str__(self) -> str:
        return self.source if self.line is None else f"{self.source}:{self.line}"


@attrs.frozen
class Override:
    """One path, one value (None deletes), who wrote it where, and why."""

    path: str
    value: Any
    origin: Origin
    rank: Rank
    reason: str | None = None


@attrs.frozen
class Layer:
    """A named set of overrides of one rank: a profile, the plan, a site file, the command line."""

    name: str
    rank: Rank
    overrides: tuple[Override, ...]


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The dotted path and value of every leaf: scalars, lists, None and empty maps."""
    for key, value in tree.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{path}.")
        else:
            yield path, value


@attrs.frozen
class Provenance:
    """Every override of every path, in the order of precedence; the last one won."""

    overrides: Mapping[str, tuple[Override, ...]]

    def history(self, path: str) -> tuple[Override, ...]:
        """All overrides of a path, losers first; empty when nobody wrote it."""
        return self.overrides.get(path, ())

    def winner(self, path: str) -> Override | None:
        """The override in force at a path, or the one that set or deleted a parent of it."""
        while path:
            if found := self.overrides.get(path):
                return found[-1]
            path = path.rpartition(".")[0]
        return None

    def where(self, path: str) -> Origin | None:
        """Where the value in force was written; None when it is a default."""
        winner = self.winner(path)
        return winner.origin if winner else None


@attrs.frozen
class Fold:
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
    state = _State()
    for layer in sorted(layers, key=lambda layer: layer.rank):  # stable: files keep their order
        for override in layer.overrides:
            state.apply(layer, override)
    return Fold(state.tree(), Provenance({path: tuple(all_) for path, all_ in state.history.items()}), tuple(state.warnings))


class _State:
    """The fold in progress: leaves in force and the history of each path."""

    def __init__(self) -> None:
        self.leaves: dict[str, tuple[Layer, Override]] = {}
        self.maps: set[str] = set()
        self.history: dict[str, list[Override]] = {}
        self.writers: dict[str, tuple[Layer, Override]] = {}
        self.warnings: list[str] = []

    def apply(self, layer: Layer, override: Override) -> None:
        path, value = override.path, override.value
        self._refuse_rivals(layer, override)
        if value is None:
            self._delete(layer, override)
        else:
            parents = _parents(path)
            for parent in parents:
                if parent in self.leaves:
                    if self.leaves[parent][1].value != {}:
                        raise _map_meets_scalar(self.leaves[parent][1], override)
                    del self.leaves[parent]  # an empty map until now
            if path in self.maps:
                if value == {}:  # an empty map into a map: nothing to merge, and no mistake
                    return
                child = next(self.leaves[leaf][1] for leaf in self.leaves if leaf.startswith(f"{path}."))
                raise _map_meets_scalar(override, child)
            previous = self.leaves.get(path)
            if previous is not None and override.rank >= Rank.SITE and _same(previous[1].value, value):
                self.warnings.append(
                    f"{override.origin}: {path} = {show(value)} changes nothing; it is so already ({previous[1].origin})"
                )
            self.leaves[path] = (layer, override)
            self.maps.update(parents)
        self.writers[path] = (layer, override)
        self.history.setdefault(path, []).append(override)

    def _refuse_rivals(self, layer: Layer, override: Override) -> None:
        """Two layers of one rank that set one path to different values; files of a site are ordered instead."""
        if override.rank == Rank.SITE:
            return
        writer = self.writers.get(override.path)
        if writer is None:
            return
        rival_layer, rival = writer
        same_profile = rival_layer is layer and layer.rank != Rank.USER  # a child of `extends` overrides its parent
        if rival.rank == override.rank and not same_profile and not _same(rival.value, override.value):
            raise mistake(
                f"{override.path} = {show(rival.value)} ({rival.origin}) and {show(override.value)} "
                f"({override.origin}) have the same rank ({override.rank.name.lower()})",
                must="one value must win",
                todo=f"Drop one of the two, or decide it above them: -f a file or --set {override.path}=VALUE."
                if override.rank < Rank.SITE
                else "Drop one of the two; the command line and Python may say a thing once.",
            )

    def _delete(self, layer: Layer, override: Override) -> None:
        path = override.path
        below = [leaf for leaf in self.leaves if leaf == path or leaf.startswith(f"{path}.")]
        if not below and path not in self.writers and override.rank >= Rank.SITE and "." in path:
            # A key that the plan decides is not in the tree yet, so only known facts and wishes can be judged here.
            if not path.startswith("deepspeed."):
                self.warnings.append(f"{override.origin}: {path} = null deletes nothing; no layer sets it")
        for leaf in below:
            del self.leaves[leaf]
            if leaf != path:
                self.history[leaf].append(override)
                self.writers[leaf] = (layer, override)
        self.maps = {parent for leaf in self.leaves for parent in _parents(leaf)}

    def tree(self) -> Tree:
        tree: Tree = {}
        for path, (_, override) in self.leaves.items():
            *parents, key = path.split(".")
            node = tree
            for parent in parents:
                node = node.setdefault(parent, {})
            node[key] = {} if override.value == {} else override.value
        return tree


def _parents(path: str) -> tuple[str, ...]:
    cuts = [index for index, letter in enumerate(path) if letter == "."]
    return tuple(path[:cut] for cut in cuts)


def _same(left: Any, right: Any) -> bool:
    """Equal in type and value: true is not 1, and 1.0 is not 1."""
    return type(left) is type(right) and bool(left == right)


def show(value: Any) -> str:
    """A value as a person writes it in YAML: null, true, 1.5, cpu."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(show(item) for item in value)}]"
    return str(value)


def _map_meets_scalar(scalar: Override, inner: Override) -> DsgenError:
    return mistake(
        f"{scalar.path} = {show(scalar.value)} ({scalar.origin}) is a value, "
        f"and {inner.path} = {show(inner.value)} ({inner.origin}) makes it a map",
        must="it must be one or the other",
        todo=f"Drop one of the two, or delete the value first with {scalar.path}: null in a lower layer.",
    )
