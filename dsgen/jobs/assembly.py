"""Layers to a Job: known paths only, folded, typed, and consistent across sections."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs

from dsgen.catalog.structure import spelled, structure
from dsgen.catalog.wishes import follow
from dsgen.deepspeed import surface
from dsgen.deepspeed.autos import dropped, left_open
from dsgen.jobs.contradictions import contradictions, regrouped
from dsgen.jobs.exact import WHOLE, exact
from dsgen.jobs.fabrics import ASSUMED_NETWORK, assumed, named
from dsgen.jobs.fused_attention import why_scores
from dsgen.jobs.job import Job
from dsgen.jobs.methods import settled, with_method
from dsgen.jobs.releases import by_release, casts_adapters, uncounted_liger_kernels
from dsgen.jobs.said_releases import newer_than_known
from dsgen.shapes.errors import DsgenError, mistake, nearest
from dsgen.shapes.layers import DEEPEST, ENFORCED, Layer, Override, Provenance, Rank, contradiction, fold, same, show
from dsgen.shapes.limits import check_gpus
from dsgen.shapes.near_misses import offer
from dsgen.shapes.optimizer_names import is_paged
from dsgen.shapes.pins import collect
from dsgen.shapes.profiles import SECTIONS, Cluster, Hardware, Model, Network, Training, yaml_name

__all__ = ["SPREAD", "assemble", "canonical"]

OLD_BF16 = "bfloat16"  # DeepSpeed's old name of the section bf16
# Keys whose true and false stand for other keys: what to write, so that the search can follow it. (false, true)
INSTEAD = {
    "zero_optimization": ("zero_optimization.stage=0", "zero_optimization.stage=1"),
    "zero_optimization.cpu_offload": (
        "zero_optimization.offload_optimizer=null",
        "zero_optimization.offload_optimizer.device=cpu",
    ),
    "zero_optimization.cpu_offload_param": (
        "zero_optimization.offload_param=null",
        "zero_optimization.offload_param.device=cpu",
    ),
}
LONGEST_PATH = 1000  # letters; DeepSpeed's longest key has 90
SPREAD = "are taken as"  # by what a warning of nodes that nobody counted is found
_LISTED = 8  # keys of a section that an error names; more do not help
ONE_SERVER = 8  # GPUs that may be in one server; who has more counts nodes anyhow


def canonical(layers: Iterable[Layer], version: str | None = None) -> tuple[Layer, ...]:
    """Layers whose paths all start with a section: a DeepSpeed key may be written without `deepspeed.` before it.

    Raises:
        DsgenError: A path that no section and no DeepSpeed release knows, with the nearest valid ones.
    """
    known = surface.load(version)
    return tuple(
        _once(layer._replace(overrides=tuple(_canonical(item, known) for item in layer.overrides))) for layer in layers
    )


def _once(layer: Layer) -> Layer:
    """The layer, when no file in it says a key twice: as `zero_optimization:` and under `deepspeed:`."""
    seen: dict[tuple[str, str], Override] = {}
    for override in layer.overrides if layer.rank < Rank.USER else ():  # the fold judges those of a person
        earlier = seen.setdefault((override.path, override.origin.source), override)
        if not same(earlier.value, override.value):
            raise contradiction(earlier, override)
    return layer


def _canonical(written: Override, known: surface.Surface) -> Override:
    section, _, key = written.path.partition(".")
    _check_plain(written, written.value, written.path.count("."))
    if section in SECTIONS:
        _check_fact(section, key, written)
        return written._replace(value=spelled(section, key, written.value))
    if section == "deepspeed" and not key:
        if written.value == {}:
            return written
        raise mistake(
            f"deepspeed is {show(written.value)}", must="it must be a map of DeepSpeed keys", where=written.origin
        )
    path = key if section == "deepspeed" else written.path
    if path.partition(".")[0] == OLD_BF16:
        path = f"bf16{path[len(OLD_BF16) :]}"
    path = known.aliases.get(path, path)
    if known.key(path) is None:
        raise _unknown_path(written._replace(path=path), known)
    value = _deepspeed_value(path, written, known)
    return written._replace(path=f"deepspeed.{path}", value=value)


def _check_plain(written: Override, value: Any, depth: int) -> None:
    """Refuse what no JSON file or C library takes, wherever it was written."""
    wrong = None
    too_deep = depth >= DEEPEST or len(written.path) > LONGEST_PATH
    if too_deep:
        wrong = f"a path has at most {DEEPEST} levels and {LONGEST_PATH} letters"
    elif isinstance(value, str) and ("\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value)):
        wrong = "it must be text that UTF-8 can hold, without a null character"
    elif isinstance(value, float) and not math.isfinite(value):
        wrong = "it must be a finite number"
    if wrong:
        shown = written.path if too_deep else f"{written.path} is {show(value)}"
        raise mistake(shown, must=wrong, where=written.origin)
    if isinstance(value, (list, dict)):
        for item in (*value, *value.values()) if isinstance(value, dict) else value:
            _check_plain(written, item, depth + 1)


def _check_fact(section: str, key: str, written: Override) -> None:
    if not key:
        if written.value == {}:
            return
        if written.value is None:
            raise mistake(
                f"{section} is null",
                must=f"a section cannot be deleted; delete a key such as {section}.{next(iter(_keys(section)))}",
                where=written.origin,
            )
        raise mistake(f"{section} is {show(written.value)}", must="it must be a map", where=written.origin)
    if key not in _keys(section):
        raise _unknown_path(written, None)


def _deepspeed_value(key: str, written: Override, known: surface.Surface) -> Any:
    """The value of a key the release reads; 5e8, as DeepSpeed's own examples write it, is the whole number it means."""
    entry, value = known.key(key), written.value
    if entry is None or value is None or value == {}:
        return value
    if entry.removed:
        raise mistake(
            f"{key} was removed from DeepSpeed ({entry.removed})",
            where=written.origin,
            must=f"DeepSpeed {known.version} refuses it",
            todo="Drop it.",
            code="refused",
        )
    if key in INSTEAD and isinstance(value, bool):
        raise mistake(
            f"{key} is {show(value)}",
            must="it is a short form that dsgen does not plan with",
            where=written.origin,
            todo=f"Write {INSTEAD[key][value]} instead.",
        )
    if wrong := known.check_value(entry, value):
        raise mistake(f"{key} is {show(value)}", must=wrong, where=written.origin)
    return int(value) if isinstance(value, float) and entry.types == ("integer",) else value


def _unknown_path(written: Override, known: surface.Surface | None) -> DsgenError:
    path = written.path
    section, _, tail = path.partition(".")
    for parent in _parents(path):
        if parent.partition(".")[2] in _keys(parent.partition(".")[0]) or (known and _holds_one_value(known, parent)):
            return mistake(
                f"{parent} is a map",
                must=f"it holds one value, and no {path[len(parent) + 1 :]}",
                where=written.origin,
                todo=f"Write a value, such as --set {parent}=VALUE.",
            )
    if section in SECTIONS:
        close = [f"{other}.{tail}" for other in SECTIONS if tail in _keys(other)]
        close = close or [f"{section}.{key}" for key in nearest(tail, _keys(section))]
    else:
        mine = {f"{other}.{key}": key for other in SECTIONS for key in _keys(other)}
        last = path.rpartition(".")[2]
        close = [full for full, key in mine.items() if key == last]
        theirs = known.nearest(path) if known else ()
        close += [full for full in theirs if not close or full.rpartition(".")[2] == last]
        close = close or list(nearest(path, mine))
    todo = offer(list(dict.fromkeys(close))[:3])
    return mistake(
        f"unknown path {path}",
        must="neither dsgen nor DeepSpeed reads it",
        where=written.origin,
        todo=todo or _there_is(section),
        code="unknown-name",
    )


def _there_is(section: str) -> str:
    """What may stand where something unknown does: the keys of a small section, or all sections."""
    keys = _keys(section)
    if 0 < len(keys) <= _LISTED:
        return f"{section} has {', '.join(keys)}."
    if keys:
        return f"dsgen profiles new {section} NAME shows all keys of {section}."
    return f"Sections: {', '.join(SECTIONS)}, deepspeed."


def _parents(path: str) -> Iterator[str]:
    while path := path.rpartition(".")[0]:
        yield path


def _holds_one_value(known: surface.Surface, path: str) -> bool:
    entry = known.key(path)
    return entry is not None and bool(entry.types) and "object" not in entry.types


@functools.cache
def _keys(section: str) -> dict[str, attrs.Attribute[Any]]:
    """The facts or wishes of a section; none of what is no section."""
    return {yaml_name(field.name): field for field in attrs.fields(SECTIONS[section])} if section in SECTIONS else {}


def assemble(layers: Iterable[Layer], version: str | None = None) -> Job:
    """Fold layers and build the Job.

    Args:
        layers: Profiles, files and overrides in any order.
        version: The DeepSpeed release the config is for; None is the newest known.

    Raises:
        DsgenError: All that is wrong, each with the place where it was written.
    """
    known = surface.load(version)
    given = with_method(tuple(layers))
    whole = exact(given, lambda item: _canonical(item, known), known.has_effect)
    said = canonical(given if whole is None else whole.planned, version)
    ranked = dropped(said, known)
    folded = fold(ranked)
    tree, provenance = folded.tree, folded.provenance
    for section, option in (("hardware", "--hw"), ("model", "--model")):
        if section not in tree:
            raise mistake(
                f"no {section} is named",
                must="a plan needs hardware and a model",
                todo=f"Name it with {option}; dsgen profiles list {section} shows the built-in ones.",
                code="missing",
            )
    tree["training"] = follow(tree.get("training", {}), provenance)
    wishes = settled(structure(Training, "training", tree, provenance), provenance)
    cluster = structure(Cluster, "cluster", tree, provenance)
    hardware = structure(Hardware, "hardware", tree, provenance)
    nodes, per_node = _shape(cluster, hardware, provenance)
    names = {kind: layer.name for layer in ranked for kind in (layer.rank.name.lower(),) if kind in SECTIONS}
    network, warnings = _network(tree, provenance, nodes, names.get("network"))
    names = {"network": ASSUMED_NETWORK, **names} if nodes > 1 else names
    if casts_adapters(known.version):
        wishes = attrs.evolve(wishes, lora_fp32=False)
        if wishes.method != "full":
            casts = "DeepSpeed before 0.19.2 makes adapters 16-bit with all else"
            provenance = _settled(provenance, "training.lora_fp32", False, casts)
    model = by_release(structure(Model, "model", tree, provenance), wishes, provenance)
    wishes, provenance = _with_scores(wishes, model, hardware, provenance)
    return Job(
        hardware=hardware,
        model=model,
        network=network,
        training=wishes,
        nodes=nodes,
        gpus_per_node=per_node,
        names=names,
        pins=collect(provenance),
        deepspeed=tree.get("deepspeed", {}),
        deepspeed_layers=_deepspeed_only(ranked if whole is None else whole.written),
        whole=whole is not None,
        weights=next((layer.weights for layer in ranked if layer.weights), ""),
        provenance=provenance,
        version=known.version,
        warnings=(
            *(left_open(said, known) if whole is None else ()),
            *folded.warnings,
            *_doubts(ranked, provenance),
            *_spread(cluster, nodes, per_node, hardware.gpus_per_node, names.get("hardware", "as it is said")),
            *_thinned(cluster, per_node, hardware.gpus_per_node, provenance),
            *warnings,
            *_paged(wishes, provenance),
            *newer_than_known(wishes, provenance),
            *uncounted_liger_kernels(model, wishes),
            *contradictions(hardware, model, wishes, folded.provenance, known.version),
            *regrouped(wishes, nodes * per_node),
        ),
    )


def _with_scores(
    wishes: Training, model: Model, hardware: Hardware, provenance: Provenance
) -> tuple[Training, Provenance]:
    """Scores are made where nothing serves a class and a GPU without them."""
    reason = why_scores(hardware, model, wishes)
    if not reason:
        return wishes, provenance
    return attrs.evolve(wishes, attention="eager"), _settled(provenance, "training.attention", "eager", reason)


def _settled(provenance: Provenance, path: str, value: Any, reason: str) -> Provenance:
    """The provenance where something else runs than what was asked, and why."""
    made = Override(path, value, ENFORCED, Rank.HARDWARE, reason)
    return Provenance({**provenance.overrides, path: (*provenance.history(path), made)})


def _deepspeed_only(layers: Iterable[Layer]) -> tuple[Layer, ...]:
    kept = []
    for layer in layers:
        overrides = tuple(item for item in layer.overrides if item.path == WHOLE or item.path.startswith(f"{WHOLE}."))
        if overrides:
            kept.append(layer._replace(overrides=overrides))
    return tuple(kept)


def _shape(cluster: Cluster, hardware: Hardware, provenance: Provenance) -> tuple[int, int]:
    """Nodes and GPUs per node from what was said of them."""
    full = hardware.gpus_per_node
    said = "cluster.nodes" if cluster.gpus is None else "cluster.gpus"
    nodes = cluster.nodes or 1
    check_gpus(nodes * full if cluster.gpus is None else cluster.gpus, provenance.where(said))
    if cluster.gpus is None:
        return nodes, full
    # As few nodes as share the GPUs evenly.
    nodes = cluster.nodes or cluster.gpus // next(each for each in range(full, 0, -1) if cluster.gpus % each == 0)
    where = provenance.where("cluster.gpus")
    if cluster.gpus % nodes:
        raise mistake(
            f"{cluster.gpus} GPUs do not share evenly among {nodes} nodes",
            where=where,
            must=f"gpus must be a multiple of nodes, such as {nodes * math.ceil(cluster.gpus / nodes)}",
            code="contradiction",
        )
    if cluster.gpus // nodes > full:
        raise mistake(
            f"{cluster.gpus // nodes} GPUs in a node",
            where=where,
            must=f"a node of it has {full}",
            todo=f"Use --nodes {math.ceil(cluster.gpus / full)}, or set hardware.gpus_per_node.",
            code="contradiction",
        )
    return nodes, cluster.gpus // nodes


def _spread(cluster: Cluster, nodes: int, per_node: int, full: int, hardware: str) -> tuple[str, ...]:
    """Over how many nodes GPUs are spread that may be in one server, where nobody counts the nodes."""
    if nodes == 1 or cluster.nodes is not None or nodes * per_node > ONE_SERVER:
        return ()
    has = "" if per_node == full else f", where one has {full}"
    otherwise = "say --nodes, or --set hardware.gpus_per_node=N for nodes of another size"
    return (f"{cluster.gpus} GPUs {SPREAD} {nodes} nodes of {per_node}{has}, by the hardware {hardware}; {otherwise}",)


def _doubts(layers: Iterable[Layer], provenance: Provenance) -> Iterator[str]:
    """What else the names of profiles may mean; of a card nothing where somebody says its memory."""
    said = provenance.winner("hardware.gpu_memory")
    known = said is not None and said.rank > Rank.HARDWARE
    yield from (layer.doubt for layer in layers if layer.doubt and not (known and layer.rank == Rank.HARDWARE))


def _thinned(cluster: Cluster, per_node: int, full: int, provenance: Provenance) -> tuple[str, ...]:
    """That fewer GPUs than may be meant stand in a node, where a stronger layer says GPUs, and a weaker one nodes."""
    gpus, nodes = provenance.winner("cluster.gpus"), provenance.winner("cluster.nodes")
    if gpus is None or nodes is None or gpus.rank <= nodes.rank or per_node == full or cluster.gpus is None:
        return ()
    whole = math.ceil(cluster.gpus / full)
    said = f"{nodes.origin} says {cluster.nodes} nodes, so {cluster.gpus} GPUs are {per_node} in each"
    return (f"{said}, where one has {full}; --nodes {whole} for whole ones",)


def _paged(wishes: Training, provenance: Provenance) -> Iterator[str]:
    """That the states of a paged optimizer are counted where they are as long as there is room."""
    winner = provenance.winner("training.optimizer")
    if winner is not None and is_paged(winner.value):
        yield (
            f"{winner.value} ({winner.origin}) is counted as {wishes.optimizer}, its states on the GPU: what is paged "
            "leaves for RAM where the GPU is full, and steps more slowly"
        )


def _network(
    tree: Mapping[str, Any], provenance: Provenance, nodes: int, name: str | None
) -> tuple[Network, tuple[str, ...]]:
    """The network between nodes; a stated assumption when there are several and none was named."""
    if "network" in tree:
        network = structure(Network, "network", tree, provenance)
        place = provenance.where("network.fabric")
        said = f"network {name}" if name else f"network.fabric = {network.fabric} ({place})"
        if nodes == 1 and network.fabric != "none":
            raise mistake(
                f"{said} is named for one node",
                must="a network joins nodes",
                todo="Drop it, or say how many nodes there are: --nodes 2.",
                code="contradiction",
            )
        if nodes > 1 and (network.fabric == "none" or not network.bandwidth_bytes_per_second):
            raise mistake(
                f"{said} joins nothing, and there are {nodes} nodes",
                must="it must join the nodes",
                todo="dsgen profiles list network",
                code="contradiction",
            )
        return network, ()
    if nodes == 1:
        return Network(fabric="none", bandwidth_bytes_per_second=0.0, latency_seconds=0.0, rdma=False), ()
    return named(ASSUMED_NETWORK), (assumed(nodes),)
