"""The Config: DeepSpeed's dictionary, its provenance, and what would explain each key."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from dsgen.catalog.wishes import decider
from dsgen.deepspeed import surface
from dsgen.deepspeed.keys import lookup
from dsgen.jobs.exact import written_nulls
from dsgen.planning.planner import Plan
from dsgen.rendering import batch, training, zero
from dsgen.rendering.combinations import cautions, refuse_combinations
from dsgen.rendering.judgement import PLANNER, judge, worded
from dsgen.rendering.planned_keys import PlannedKey
from dsgen.shapes.arguments import path_of
from dsgen.shapes.errors import mistake
from dsgen.shapes.layers import Fold, Layer, Override, Provenance, Rank, fold, leaves, show
from dsgen.shapes.near_misses import offer
from dsgen.shapes.value import Value

if TYPE_CHECKING:
    from dsgen.shapes.findings import Finding

__all__ = ["Config", "Explanation", "render"]

_PREFIX = "deepspeed."

# The order in which a person reads a config; sections not named here follow in DeepSpeed's own order.
_ORDER = (
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
    "bf16",
    "fp16",
    "tensor_parallel",
    "zero_optimization",
    "optimizer",
    "scheduler",
    "gradient_clipping",
)


@attrs.frozen(kw_only=True, repr=False, eq=False)
class Explanation(Value):
    """Why one key of a config is what it is.

    Attributes:
        path: Dotted DeepSpeed path.
        value: The value in force; None when the key is not written.
        overrides: Everyone who wrote it, losers first.
        default: What DeepSpeed does without the key.
        description: What the key means.
        dropped: Why it was left out, where it was.
    """

    path: str
    value: Any
    overrides: tuple[Override, ...]
    default: Any
    description: str
    dropped: str | None

    @property
    def reason(self) -> str:
        """The winner's reason: the comment beside it, or what the key means."""
        winner = self.overrides[-1] if self.overrides else None
        return (winner.reason if winner and winner.reason else None) or self.description


@attrs.frozen(kw_only=True, eq=False)
class Config(Mapping[str, Any]):
    """A rendered DeepSpeed config: a mapping of DeepSpeed's keys that equals the dictionary of them.

    What is taken out of it is a copy; `dict(config)` and `to_dict()` are for programs that want a dict.

    Attributes:
        tree: The dictionary, plain JSON types only.
        plan: The plan it was rendered from.
        provenance: Who wrote each `deepspeed.` path.
        dropped: Keys left out because they would do nothing, and why.
        warnings: What a person should know of, the findings among it.
        findings: What the linter warns of, with the job at hand.
    """

    tree: dict[str, Any]
    plan: Plan = attrs.field(repr=False)
    provenance: Provenance = attrs.field(repr=False)
    dropped: dict[str, str]
    warnings: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = attrs.field(default=(), eq=False)

    def __getitem__(self, key: str) -> Any:
        return copy.deepcopy(self.tree[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self.tree)

    def __len__(self) -> int:
        return len(self.tree)

    def to_dict(self) -> dict[str, Any]:
        """A copy of the dictionary, ready for `deepspeed.initialize(config=...)`."""
        return copy.deepcopy(self.tree)

    def to_json(self) -> str:
        """The config as DeepSpeed reads it, indented, with a final newline."""
        return json.dumps(self.tree, indent=2, ensure_ascii=False) + "\n"

    def to_hjson(self) -> str:
        """The config as HJSON, which DeepSpeed reads too, each key with its reason beside it as a comment."""
        from dsgen.documents.hjson.writer import commented

        return commented(self.tree, {path: self.why(path).reason for path in self.paths()})

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the config as `dsgen render -o` does: as JSON that DeepSpeed reads, whole or not at all.

        Raises:
            DsgenError: The folder is missing or not writable, or the path is a folder; nothing is left behind.
        """
        from dsgen.documents.writing import write_atomically

        write_atomically(path_of(path, "it must be the path of a file"), self.to_json(), by="path")

    def paths(self) -> tuple[str, ...]:
        """Every key, dotted, in order."""
        return tuple(path for path, _ in leaves(self.tree))

    def why(self, path: str) -> Explanation:
        """Why a key is what it is.

        Args:
            path: Dotted DeepSpeed path, with or without `deepspeed.` before it.

        Raises:
            DsgenError: DeepSpeed has no such key; with the nearest ones.
        """
        path = path.removeprefix(_PREFIX)
        known = surface.load(self.plan.job.version)
        key = known.key(path, self.tree)
        there, node = lookup(self.tree, path)
        if key is None and there:  # a config that was said whole keeps what DeepSpeed does not read
            return Explanation(path=path, value=node, overrides=self._history(path), default=None,
                               description="DeepSpeed does not read it", dropped=None)  # fmt: skip
        if key is None:
            close = known.nearest(path)
            raise mistake(
                f"DeepSpeed {known.version} has no key {path}",
                todo=offer(close, "dsgen render shows the keys in use."),
                code="unknown-name",
            )
        return Explanation(
            path=path,
            value=node if there else None,
            overrides=self._history(path),
            default=key.default,
            description=key.description,
            dropped=self.dropped.get(path),
        )

    def _history(self, path: str) -> tuple[Override, ...]:
        return self.provenance.history(f"{_PREFIX}{path}")


def merged(plan: Plan) -> dict[str, Any]:
    """The keys of a plan with those that a person wrote or deleted, before anything is judged or left out."""
    tree: dict[str, Any] = _merge(plan).tree.get("deepspeed", {})
    return tree


def _merge(plan: Plan) -> Fold:
    known = surface.load(plan.job.version)
    planned = Layer("planner", Rank.PLAN, tuple(_override(plan, key) for key in _keys(plan) if known.key(key.path)))
    return fold([planned, *plan.job.deepspeed_layers])


def render(plan: Plan) -> Config:
    """The config of a plan.

    Every key is written by the plan, or by a layer above it; a key that the release does not read, or that would do
    nothing beside the others, is left out and said so.

    Raises:
        DsgenError: A key that cannot be beside the others, or an error that the linter finds.
    """
    job = plan.job
    known = surface.load(job.version)
    folded = _merge(plan)
    tree = folded.tree.get("deepspeed", {})
    dropped = {} if job.whole else dict(_ineffective(tree, known))
    warnings = [
        f"{override.origin}: {path} = {show(override.value)} is left out: {why}"
        for path, why in dropped.items()
        if (override := folded.provenance.winner(f"{_PREFIX}{path}")) and override.rank >= Rank.SITE
    ]
    for path in dropped:
        _remove(tree, path)
    for path in written_nulls(job.deepspeed_layers, folded.provenance):
        _write_null(tree, path)
    refuse_combinations(plan, tree, known, folded.provenance)
    values = _ordered(tree)
    findings = judge(plan, values, folded.provenance)
    return Config(
        tree=values,
        plan=plan,
        provenance=folded.provenance,
        dropped=dropped,
        warnings=(*plan.warnings, *warnings, *cautions(plan, tree), *worded(findings, folded.provenance)),
        findings=findings,
    )


def _keys(plan: Plan) -> Iterator[PlannedKey]:
    yield from batch.keys(plan)
    yield from zero.keys(plan)
    yield from training.keys(plan)


def _override(plan: Plan, key: PlannedKey) -> Override:
    """A key of the plan as an override; where it follows a wish, it names the place where the wish was written."""
    provenance = plan.job.provenance
    wish = decider(key.wish, provenance) if key.wish else None
    if wish is None or wish.path == f"{_PREFIX}{key.path}" or wish.value is None or wish.value == "auto":
        return Override(f"{_PREFIX}{key.path}", key.value, PLANNER, Rank.PLAN, key.reason)
    reason = f"{key.reason}; {wish.reason}" if wish.reason else key.reason
    return Override(f"{_PREFIX}{key.path}", key.value, wish.origin, Rank.PLAN, reason)


def _ineffective(tree: dict[str, Any], known: surface.Surface) -> Iterator[tuple[str, str]]:
    for path, _ in list(leaves(tree)):
        if known.key(path, tree) is None:
            yield path, f"DeepSpeed {known.version} does not read it here"
        elif why := known.has_effect(path, tree):
            yield path, why


def _remove(tree: dict[str, Any], path: str) -> None:
    *parents, key = path.split(".")
    trail = [tree]
    for parent in parents:
        trail.append(trail[-1][parent])
    del trail[-1][key]
    for node, parent in zip(reversed(trail[:-1]), reversed(parents), strict=True):
        if not node[parent]:
            del node[parent]


def _write_null(tree: dict[str, Any], path: str) -> None:
    *parents, key = path.removeprefix(_PREFIX).split(".")
    for parent in parents:
        tree = tree.setdefault(parent, {})
    tree[key] = None


def _ordered(tree: dict[str, Any]) -> dict[str, Any]:
    first = [key for key in _ORDER if key in tree]
    return {key: tree[key] for key in (*first, *(key for key in tree if key not in first))}
