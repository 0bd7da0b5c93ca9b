"""The matrix: a row for every hardware, model and cluster, so that a change of the planner shows all that it moves."""

from __future__ import annotations

import contextlib
import csv
import gc
import hashlib
import io
import math
from collections.abc import Iterator, Sequence

from dsgen import catalog
from dsgen.jobs.assembly import assemble
from dsgen.jobs.scenarios import FIELDS
from dsgen.memory import Verdict
from dsgen.planning.candidates import Search
from dsgen.planning.planner import contenders, decide
from dsgen.rendering import Config, render
from dsgen.shapes.errors import DsgenError
from dsgen.shapes.layers import Layer, Origin, Override, Rank
from dsgen.strategies.strategies import describe

__all__ = ["CLUSTERS", "COLUMNS", "DESKS", "FILE_NAME", "cards", "config_of", "digest", "labels", "rows", "text",
           "unexpected"]  # fmt: skip

FILE_NAME = "matrix.csv"
CLUSTERS = ((1, None), (4, "ethernet-25g"), (4, "ib-hdr-200g"))  # nodes, and what joins them
COLUMNS = ("hardware", "model", "cluster", "strategy", "fit", "micro_batch", "accumulation", "gpu_gib", "host_gib",
           "tokens_per_second_per_gpu", "config_sha256")  # fmt: skip
# Cards of which one to four stand in a desk or at home, where people tune small models with adapters: each has a
# scenario of such a job (golden/scenarios/desk-*.yaml). Nobody asks how three clusters of them train each model whole.
DESKS = frozenset(
    {"rtx2080ti-11g", "rtx3060-12g", "rtx3080-10g", "rtx4000ada-20g", "rtx4060ti-16g", "rtx4070tisuper-16g",
     "rtx4080-16g", "rtx5070ti-16g", "rtx5080-16g", "rtxa4000-16g", "rtxa5000-24g"}
)  # fmt: skip
HASH_DIGITS = 16  # of sha256: enough to tell 11,000 configs apart, short enough to read
SPEED_DIGITS = 3  # significant; the cost model knows no more
# A render warns of these where nothing else fits, and the run trains: the second on the drives that it names.
_TOLD = ("optimizer-on-nvme-not-resumed", "nvme-loses-gradients")


def text(rendered: dict[str, str] | None = None) -> str:
    """The whole matrix as CSV; a row where nothing fits has its reason in place of the hash.

    A model that extends another is one more size of its kind: it has no rows. Neither has a card of DESKS.

    Args:
        rendered: Gets every config: hash -> JSON text.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    with _unsearched():
        writer.writerows(rows(catalog.names("model", whole=True), rendered))
    return out.getvalue()


@contextlib.contextmanager
def _unsearched() -> Iterator[None]:
    """Search for no garbage: what the matrix makes is kept for its next rows, and freed without a search else.

    Searches looked through it all again and again: a ninth of the matrix's CPU time, for 30 MB of 1,150. One at the
    end would take 2.4 s.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.freeze()
            gc.enable()


def cards() -> tuple[str, ...]:
    """The hardware that has rows, in their order."""
    return tuple(name for name in catalog.names("hardware") if name not in DESKS)


def digest(config: str) -> str:
    """The name of a config in the matrix."""
    return hashlib.sha256(config.encode()).hexdigest()[:HASH_DIGITS]


def rows(names: Sequence[str], rendered: dict[str, str] | None = None) -> Iterator[tuple[str, ...]]:
    """The rows of some models, in the order of the matrix; `rendered` gets their configs: hash -> JSON text."""
    hardware = [catalog.find("hardware", name) for name in cards()]
    models = [catalog.find("model", name) for name in names]
    clusters = labels()
    # Model by model, whose tensors and activations are then worked out once; shown hardware by hardware.
    answers = {
        (machine.name, model.name, label): _answer((machine.layer, model.layer, *layers), rendered)
        for model in models
        for machine in hardware
        for label, layers in clusters
    }
    for machine in hardware:
        for model in models:
            for label, _ in clusters:
                yield (machine.name, model.name, label, *answers[machine.name, model.name, label])


def labels() -> list[tuple[str, tuple[Layer, ...]]]:
    """The clusters' names in the matrix, in the order of CLUSTERS, and what a person would say for each."""
    return [_cluster(nodes, network) for nodes, network in CLUSTERS]


def _cluster(nodes: int, network: str | None) -> tuple[str, tuple[Layer, ...]]:
    """A cluster's name in the matrix, and what a person would say for it: `--nodes 4 --network ib-hdr-200g`."""
    if network is None:
        return "1 node", ()
    origin = Origin("--nodes")
    said = Layer("command line", Rank.USER, (Override(FIELDS["nodes"], nodes, origin, Rank.USER),))
    return f"{nodes} nodes {network}", (catalog.find("network", network).layer, said)


def unexpected(config: Config) -> list[str]:
    """The codes of what the linter warns of in a rendered config, but for what nobody can mend."""
    return [finding.code for finding in config.findings if finding.rule not in _TOLD]


def config_of(hardware: str, model: str, cluster: str) -> Config:
    """The config of a row that has one, with its plan; worked out anew."""
    layers = dict(labels())[cluster]
    job = assemble((catalog.find("hardware", hardware).layer, catalog.find("model", model).layer, *layers))
    return render(decide(job, contenders(job)))


def _answer(layers: tuple[Layer, ...], rendered: dict[str, str] | None = None) -> tuple[str, ...]:
    """The columns after the cluster. The search is asked first: a row where nothing fits needs no advice."""
    try:
        job = assemble(layers)
        found = contenders(job)
        if not found.fitting and not found.uncertain:
            return _nothing(_reason(found))
        config = render(decide(job, found))
    except DsgenError as error:
        return _nothing(str(error).splitlines()[0])
    if said := unexpected(config):  # a config that the linter has other words for is no answer
        return _nothing(f"lint: {', '.join(said)}")
    chosen = config.plan.chosen
    strategy, memory = chosen.strategy, chosen.memory
    whole = config.to_json()
    sha = digest(whole)
    if rendered is not None:
        rendered[sha] = whole
    return (
        describe(strategy),
        memory.verdict.value,
        str(strategy.micro_batch),
        str(strategy.accumulation),
        f"{memory.gpu.peak_bytes / 2**30:.2f}",
        f"{memory.host.peak_bytes / 2**30:.2f}",
        _speed(chosen.speed),
        sha,
    )


def _nothing(why: str) -> tuple[str, ...]:
    return ("none", Verdict.DOES_NOT_FIT.value, "", "", "", "", "", why)


def _reason(found: Search) -> str:
    """The strategy that lacks least, and how much."""
    if not found.nearest:
        return found.rejections[0].why
    least = found.nearest[0]
    return f"{least.layout} {least.why}"


def _speed(tokens: float) -> str:
    """Three significant digits without an exponent: 2450, 31.5, 0.123."""
    digits = SPEED_DIGITS - 1 - math.floor(math.log10(tokens)) if tokens > 0 else 0
    return f"{round(tokens, digits):.{max(0, digits)}f}"
