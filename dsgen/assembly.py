"""Layers to a Job: known paths only, folded, typed, and consistent across sections."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from dsgen import catalog, surface
from dsgen.errors import DsgenError, mistake, nearest
from dsgen.jobs import Job
from dsgen.layers import Layer, Override, Provenance, Rank, fold, show
from dsgen.pins import collect
from dsgen.profiles import SECTIONS, Cluster, Hardware, Model, Network, Training, yaml_name
from dsgen.structure import structure
from dsgen.wishes import follow

__all__ = ["assemble", "canonical"]

STANDARD_TRAINING = "standard"  # the training profile of a job that names none
ASSUMED_NETWORK = "ethernet-25g"  # the slowest fabric still rented with GPUs: a plan made for it holds on a better one


def canonical(layers: Iterable[Layer], version: str | None = None) -> tuple[Layer, ...]:
    """Layers whose paths all start with a section: a DeepSpeed key may be written without `deepspeed.` before it.

    Raises:
        DsgenError: A path that no section and no DeepSpeed release knows, with the nearest valid ones.
    """
    known = surface.load(version)
    return tuple(
        attrs.evolve(layer, overrides=tuple(_canonical(override_, known) for override_ in layer.overrides))
        for layer in layers
    )


def _canonical(written: Override, known: surface.Surface) -> Override:
    section, _, key = written.path.partition(".")
    if section == "deepspeed":
        if not key:
            raise mistake(f"deepspeed is {show(written.value)}", must="it must be a map of DeepSpeed keys",
                          where=written.origin)
        _check_deepspeed(key, written, known)
        return written
    if section in SECTIONS:
        _check_fact(section, key, written)
        return written
    if known.key(written.path) is not None:
        _check_deepspeed(written.path, written, known)
        return attrs.evolve(written, path=f"deepspeed.{written.path}")
    raise _unknown_path(written, known)


def _check_fact(section: str, key: str, written: Override) -> None:
    if not key:
        if written.value == {}:
            return
        if written.value is None:
            raise mistake(f"{section} is null", must=f"a section cannot be deleted; delete a key such as {section}."
                          f"{next(iter(_keys(section)))}", where=written.origin)
        raise mistake(f"{section} is {show(written.value)}", must="it must be a map", where=written.origin)
    if key not in _keys(section):
        raise _unknown_path(written, None)


def _check_deepspeed(key: str, written: Override, known: surface.Surface) -> None:
    found = known.key(key)
    if found is None:
        raise _unknown_path(attrs.evolve(written, path=key), known)
    if found.removed:
        raise mistake(f"{key} was removed from DeepSpeed ({found.removed})", where=written.origin,
                      must=f"DeepSpeed {known.version} refuses it", todo="Drop it.")
    if written.value is None or written.value == {}:
        return
    if wrong := known.check_value(found, written.value):
        raise mistake(f"{key} is {show(written.value)}", must=wrong, where=written.origin)


def _unknown_path(written: Override, known: surface.Surface | None) -> DsgenError:
    path = written.path
    mine = [f"{section}.{key}" for section in SECTIONS for key in _keys(section)]
    tail = path.rpartition(".")[2]
    close = [valid for valid in mine if valid.rpartition(".")[2] == tail]
    if known is not None:
        close += known.nearest(path)
    section = path.partition(".")[0]
    near_mine = nearest(path, mine)
    if section in SECTIONS:
        close = [*close, *near_mine]
    elif not close:
        close = list(near_mine)
    close = list(dict.fromkeys(close))[:3]
    todo = f"did you mean {' or '.join(close)}?" if close else f"Sections: {', '.join(SECTIONS)}, deepspeed."
    return mistake(f"unknown path {path}", must="neither dsgen nor DeepSpeed reads it", where=written.origin, todo=todo)


@functools.lru_cache(maxsize=None)
def _keys(section: str) -> dict[str, attrs.Attribute[Any]]:
    return {yaml_name(field.name): field for field in attrs.fields(SECTIONS[section])}


def assemble(layers: Iterable[Layer], version: str | None = None) -> Job:
    """Fold layers and build the Job.

    Args:
        layers: Profiles, files and overrides in any order.
        version: The DeepSpeed release the config is for; None is the newest known.

    Raises:
        DsgenError: All that is wrong, each with the place where it was written.
    """
    known = surface.load(version)
    named = tuple(layers)
    if not any(layer.rank == Rank.TRAINING for layer in named):
        named = (*named, catalog.find("training", STANDARD_TRAINING).layer)
    ranked = canonical(named, version)
    folded = fold(ranked)
    tree, provenance = folded.tree, folded.provenance
    for section, option in (("hardware", "--hw"), ("model", "--model")):
        if section not in tree:
            raise mistake(f"no {section} is named", must="a plan needs hardware and a model",
                          todo=f"Name it with {option}; dsgen profiles list {section} shows the built-in ones.")
    tree["training"] = follow(tree.get("training", {}), provenance)
    wishes = structure(Training, "training", tree, provenance)
    cluster = structure(Cluster, "cluster", tree, provenance)
    hardware = structure(Hardware, "hardware", tree, provenance)
    nodes, per_node = _shape(cluster, hardware, provenance)
    names = {kind: layer.name for layer in ranked for kind in (layer.rank.name.lower(),) if kind in SECTIONS}
    network, warnings = _network(tree, provenance, nodes)
    if nodes > 1:
        names.setdefault("network", ASSUMED_NETWORK)
    deepspeed = tree.get("deepspeed", {})
    return Job(
        hardware=hardware,
        model=structure(Model, "model", tree, provenance),
        network=network,
        training=wishes,
        nodes=nodes,
        gpus_per_node=per_node,
        names=names,
        pins=collect(provenance),
        deepspeed=deepspeed,
        deepspeed_layers=_deepspeed_only(ranked),
        provenance=provenance,
        version=known.version,
        warnings=(*folded.warnings, *warnings),
    )


def _deepspeed_only(layers: Iterable[Layer]) -> tuple[Layer, ...]:
    kept = []
    for layer in layers:
        overrides = tuple(item for item in layer.overrides if item.path.startswith("deepspeed."))
        if overrides:
            kept.append(attrs.evolve(layer, overrides=overrides))
    return tuple(kept)


def _shape(cluster: Cluster, hardware: Hardware, provenance: Provenance) -> tuple[int, int]:
    """Nodes and GPUs per node from what was said of them."""
    full = hardware.gpus_per_node
    if cluster.gpus is None:
        return cluster.nodes or 1, full
    nodes = cluster.nodes
    if nodes is None:
        nodes = math.ceil(cluster.gpus / full)
        while cluster.gpus % nodes:  # the fewest nodes that share the GPUs evenly
            nodes += 1
    where = provenance.where("cluster.gpus")
    if cluster.gpus % nodes:
        raise mistake(f"{cluster.gpus} GPUs do not share evenly among {nodes} nodes", where=where,
                      must=f"gpus must be a multiple of nodes, such as {nodes * math.ceil(cluster.gpus / nodes)}")
    if cluster.gpus // nodes > full:
        raise mistake(f"{cluster.gpus // nodes} GPUs in a node", must=f"a node of this hardware has {full}", where=where,
                      todo=f"Use --nodes {math.ceil(cluster.gpus / full)}, or set hardware.gpus_per_node.")
    return nodes, cluster.gpus // nodes


def _network(tree: Mapping[str, Any], provenance: Provenance, nodes: int) -> tuple[Network, tuple[str, ...]]:
    """The network between nodes; a stated assumption when there are several and none was named."""
    if "network" in tree:
        network = structure(Network, "network", tree, provenance)
        where = provenance.where("network.fabric")
        if nodes == 1 and network.fabric != "none":
            raise mistake("a network is named, but there is one node", where=where,
                          must="a network joins nodes", todo="Drop it, or say how many: --nodes 2.")
        if nodes > 1 and network.fabric == "none":
            raise mistake(f"{nodes} nodes, and a network that joins none", must="name what joins the nodes",
                          where=where, todo="dsgen profiles list network")
        return network, ()
    if nodes == 1:
        return Network(fabric="none", bandwidth_bytes_per_second=0.0, latency_seconds=0.0, rdma=False), ()
    layer = catalog.find("network", ASSUMED_NETWORK).layer
    assumed = fold([layer])
    warning = f"no network named for {nodes} nodes: assumed {ASSUMED_NETWORK}; name yours with --network"
    return structure(Network, "network", assumed.tree, assumed.provenance), (warning,)
