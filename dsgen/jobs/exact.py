"""A config that is said whole: `deepspeed: null` takes away what a plan writes, and the keys beside it are the config.

As in RFC 7396 null deletes; the layer that deletes everything then says each key itself. So a config that exists stays
what it is, key by key: "auto" is left for the program that fills it in, what DeepSpeed ignores is kept, and null beside
the first null is JSON's, for there is nothing left that it could delete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import attrs

from dsgen.shapes.errors import DsgenError
from dsgen.shapes.layers import Layer, Override, Provenance
from dsgen.shapes.pins import PINNING
from dsgen.shapes.profiles import SECTIONS
from dsgen.shapes.value import Value

__all__ = ["WHOLE", "Exact", "exact", "written_nulls"]

WHOLE = "deepspeed"  # the path of every key of DeepSpeed's together
_PREFIX = f"{WHOLE}."
# Keys whose absence leaves a field open: DeepSpeed, or the program before it, makes it of the others.
_OPEN = frozenset(f"{_PREFIX}{key}" for key in ("train_batch_size", "train_micro_batch_size_per_gpu",
                                                "gradient_accumulation_steps"))  # fmt: skip


@attrs.frozen(kw_only=True, repr=False, eq=False)
class Exact(Value):
    """Layers of which one says the whole config, seen twice.

    Attributes:
        planned: What the search for a strategy follows: the keys that can be read as such, and null for each other
            one that a strategy decides.
        written: What is rendered, as it was said.
    """

    planned: tuple[Layer, ...]
    written: tuple[Layer, ...]


def exact(
    layers: tuple[Layer, ...],
    read: Callable[[Override], Override],
    idle: Callable[[str, Mapping[str, Any]], str | None],
) -> Exact | None:
    """The two views of layers of which one says the whole config; None where none does.

    Args:
        layers: In any order.
        read: The canonical form of an override; raises where dsgen cannot plan with it.
        idle: Why a key does nothing in a config; None where it does something.

    Raises:
        DsgenError: A path without `deepspeed.` before it that `read` refuses.
    """
    ordered = sorted(layers, key=lambda layer: layer.rank)  # stable, as the fold takes them
    last = max((place for place, layer in enumerate(ordered) if _null(layer) is not None), default=None)
    if last is None:
        return None
    planned, written = [], []
    for place, layer in enumerate(ordered):
        if place == last:
            planned.append(layer._replace(overrides=tuple(_followed(layer, read, idle))))
            written.append(layer._replace(overrides=tuple(_verbatim(layer))))
        elif place < last:
            kept = tuple(item for item in layer.overrides if not _of_deepspeed(item))
            planned.append(layer._replace(overrides=kept))
        else:
            above = layer._replace(overrides=tuple(read(item) for item in layer.overrides))
            planned.append(above)
            written.append(above)
    return Exact(planned=tuple(planned), written=tuple(written))


def written_nulls(layers: Iterable[Layer], provenance: Provenance) -> Iterator[str]:
    """The paths that a layer which says the whole config writes as null, and that nobody above it says otherwise.

    Args:
        layers: Those with keys of DeepSpeed's.
        provenance: What their fold says of each path.
    """
    for layer in layers:
        if _null(layer) is not None:
            for item in layer.overrides:
                if item.value is None and item.path != WHOLE and _in_force(item, provenance):
                    yield item.path


def _in_force(item: Override, provenance: Provenance) -> bool:
    """Whether nobody above says another thing of its path, or deletes a section around it."""
    parts = item.path.split(".")
    around = (".".join(parts[:size]) for size in range(2, len(parts)))
    deleted = any(history[-1].rank > item.rank for path in around if (history := provenance.history(path)))
    return not deleted and provenance.history(item.path)[-1:] == (item,)


def _null(layer: Layer) -> Override | None:
    return next((item for item in layer.overrides if item.path == WHOLE and item.value is None), None)


def _of_deepspeed(item: Override) -> bool:
    section = item.path.partition(".")[0]
    return section == WHOLE or section not in SECTIONS


def _verbatim(layer: Layer) -> Iterator[Override]:
    """Null for all, then each key as it was said."""
    for item in sorted(layer.overrides, key=lambda item: item.path != WHOLE):
        if _of_deepspeed(item):
            whole = item.path == WHOLE or item.path.startswith(_PREFIX)
            yield item if whole else item._replace(path=f"{_PREFIX}{item.path}")


def _followed(
    layer: Layer,
    read: Callable[[Override], Override],
    idle: Callable[[str, Mapping[str, Any]], str | None],
) -> Iterator[Override]:
    said = []
    for item in layer.overrides:
        if item.path == WHOLE:
            continue
        try:
            said.append(read(item))
        except DsgenError:
            if not item.path.startswith(_PREFIX):
                raise
    config = _tree(said)
    said = [item for item in said if not (item.path.startswith(_PREFIX) and idle(item.path[len(_PREFIX) :], config))]
    yield from said
    null = _null(layer)
    if null is not None:
        yield from (null._replace(path=path) for path in _unsaid({item.path for item in said}))


def _tree(said: Iterable[Override]) -> dict[str, Any]:
    """The config that keys make, as far as they can be read."""
    tree: dict[str, Any] = {}
    for item in said:
        if item.path.startswith(_PREFIX):
            *parents, key = item.path[len(_PREFIX) :].split(".")
            node = tree
            for parent in parents:
                node = node.setdefault(parent, {})
            node[key] = item.value
    return tree


def _unsaid(said: Iterable[str]) -> Iterator[str]:
    """The paths that decide a strategy's field and are not said, nor anything below or above them that is."""
    told = set(said)
    for path in PINNING:
        if path in _OPEN or not path.startswith(_PREFIX):
            continue
        near = (one == path or one.startswith(f"{path}.") or path.startswith(f"{one}.") for one in told)
        if not any(near):
            told.add(path)
            yield path
