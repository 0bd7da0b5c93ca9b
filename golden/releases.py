"""Older releases of DeepSpeed: what `dsgen render --deepspeed V` writes, and which of it stands for the rest.

The newest patch of each line before the newest. A cell stands for others as in `golden.starts`, but for fewer of them
here: every structure is started once, and every tiny sibling and every world at least once, not each with each.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from dsgen import catalog
from dsgen.asking.proofs import of_rendered
from dsgen.jobs import scenarios
from dsgen.jobs.assembly import assemble
from dsgen.planning.planner import contenders, decide, plan
from dsgen.proving.proven_models import ProvenModel
from dsgen.rendering import render
from dsgen.shapes.errors import DsgenError
from golden import cells, matrix, scenes, starts
from golden.structures import structure

__all__ = ["RELEASES", "chosen", "rendered", "rendered_scene", "stands"]

_TOLD = {"DSG353"}  # 0.17.6 trains at stage 0 in bf16 and does not resume; a render warns of it
RELEASES = ("0.14.5", "0.15.4", "0.16.9", "0.17.6", "0.18.9")  # 0.19.8 is what tests/proving starts
Place = tuple[str, str, str]  # hardware, model, cluster


@functools.cache
def _clusters() -> dict[str, Any]:
    return dict(matrix.labels())


def rendered(release: str, places: Iterable[Place] | None = None) -> dict[Place, dict[str, Any]]:
    """The configs of cells, by default all that have one.

    Args:
        release: Of DeepSpeed.
        places: Which; one whose config the linter has words for is left out.

    Raises:
        DsgenError: A cell asked for has no config.
    """
    found = {}
    for place in places or _everywhere():
        hardware, model, cluster = place
        layers = (catalog.find("hardware", hardware).layer, catalog.find("model", model).layer, *_clusters()[cluster])
        try:
            job = assemble(layers, release)
            search = contenders(job)
            if places is None and not search.fitting and not search.uncertain:
                continue
            config = render(decide(job, search))
        except DsgenError:
            if places is None:
                continue
            raise
        if not set(matrix.unexpected(config)) - _TOLD:
            found[place] = json.loads(config.to_json())
    return found


def _everywhere() -> Iterable[Place]:
    """Every row of the matrix, model by model."""
    for model in catalog.names("model", whole=True):
        for hardware in matrix.cards():
            for cluster in _clusters():
                yield hardware, model, cluster


def rendered_scene(name: str, release: str) -> tuple[dict[str, Any], ProvenModel]:
    """The config of a golden scenario for another release than its own, and what its proof trains.

    That is the tiny Llama, with the adapters of the plan, and checkpointed as its program does it.

    Raises:
        DsgenError: The release has no such key.
    """
    said = scenarios.read(str(scenes.SCENARIOS / f"{name}.yaml"))
    config = render(plan(assemble(scenarios.layers(said), release)))
    trained = attrs.evolve(of_rendered(config).trained, name=None, config=None)
    return json.loads(config.to_json()), trained


def stands(all_of_them: Mapping[Place, Mapping[str, Any]]) -> tuple[Place, ...]:
    """Cells in which each structure, each sibling and each world is."""
    seen: set[Any] = set()
    kept = []
    for new in (lambda place: structure(all_of_them[place]), lambda place: starts.model_of(place[1]), _world):
        for place in all_of_them:
            if new(place) not in seen:
                seen |= {structure(all_of_them[place]), starts.model_of(place[1]), _world(place)}
                kept.append(place)
    return tuple(kept)


def _world(place: Place) -> tuple[int, int]:
    return starts.worlds(cells.Cell(*place, sha=""))


def chosen(place: Place, config: Mapping[str, Any]) -> starts.WorldStart:
    """The start of a cell at its declared world."""
    ranks, local = _world(place)
    model = json.loads(starts.model_of(place[1]))
    return starts.WorldStart(config=config, model=model, world=ranks, local_ranks=local, rank=0)
