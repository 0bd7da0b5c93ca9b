"""Every cell of the matrix started: which cells share a start, what is started, and a record that can be resumed.

Two cells share a start where three things are equal:

1. the structure of their configs (`golden.structures`): the same keys, with the same values wherever a value chooses
   code (booleans, texts, stage, tensor-parallel degree, zero or not where that is a switch);
2. their world: ranks in all, and ranks of a node;
3. the tiny sibling of their model (`dsgen.proving.sizeless`): a family and its choices, without its sizes.

So they differ in numbers alone. The numbers of each cell are then checked without a start: DeepSpeed's own parser is
given every distinct config at its declared world, as rendered and as Accelerate's plugin hands it on.
"""

from __future__ import annotations

import functools
import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from dsgen import catalog
from dsgen.catalog.structure import structure as structured
from dsgen.jobs.assembly import canonical
from dsgen.proving.sizeless import sibling
from dsgen.proving.worlds import StartVerdict, World, WorldStart
from dsgen.rendering import Config
from dsgen.shapes.layers import fold
from dsgen.shapes.profiles import Hardware, Model
from dsgen.targets.hf_accelerate import ACCELERATE
from golden import cells, matrix, targets
from golden.structures import structure

__all__ = [
    "Record",
    "Share",
    "cover",
    "declared",
    "model_of",
    "one_of_each",
    "parse_all",
    "parse_filled",
    "progress",
    "python_files",
    "rendered",
    "shares",
    "start_of",
    "worlds",
]

ROOT = Path(__file__).resolve().parent.parent
RESUMED = 0.01  # seconds: what takes less was not started, and says nothing of what is to come
# What a verdict hangs on beside the config, the model and the versions: a change of these files starts everything anew.
SOURCES = ("dsgen/engine/proof", "dsgen/engine/children.py", "dsgen/engine/serving.py", "dsgen/engine/witness.py",
           "dsgen/proving")  # fmt: skip


@attrs.frozen(kw_only=True)
class Share:
    """Cells that share one start, of which the first is started."""

    key: str
    cells: tuple[cells.Cell, ...]


@functools.cache
def model_of(name: str) -> str:
    """The tiny sibling of a model of the catalog, a config.json."""
    folded = fold(canonical((catalog.find("model", name).layer,)))
    return json.dumps(sibling(structured(Model, "model", folded.tree, folded.provenance)), sort_keys=True)


@functools.cache
def _gpus(name: str) -> int:
    folded = fold(canonical((catalog.find("hardware", name).layer,)))
    return structured(Hardware, "hardware", folded.tree, folded.provenance).gpus_per_node


_NODES = {label: nodes for (nodes, _), (label, _) in zip(matrix.CLUSTERS, matrix.labels(), strict=True)}


def worlds(cell: cells.Cell) -> tuple[int, int]:
    """Ranks in all and of a node, as the profiles say them, not as the config does."""
    return _NODES[cell.cluster] * _gpus(cell.hardware), _gpus(cell.hardware)


def shares(configs: Mapping[str, Mapping[str, Any]]) -> tuple[Share, ...]:
    """All cells, by what they share."""
    forms = {sha: structure(config) for sha, config in configs.items()}
    groups: dict[tuple[Any, ...], list[cells.Cell]] = {}
    for cell in cells.cells():
        groups.setdefault((forms[cell.sha], worlds(cell), model_of(cell.model)), []).append(cell)
    return tuple(Share(key=_digest(key), cells=tuple(group)) for key, group in groups.items())


def cover(all_of_them: Sequence[Share], configs: Mapping[str, Mapping[str, Any]]) -> tuple[Share, ...]:
    """As few as can be: every structure with each world and each sibling that it has, not all three together."""
    forms: dict[Any, dict[Any, dict[str, Share]]] = {}
    for share in all_of_them:
        first = share.cells[0]
        worlds_of = forms.setdefault(structure(configs[first.sha]), {})
        worlds_of.setdefault(worlds(first), {})[model_of(first.model)] = share
    keys = {share.key for form in forms.values() for share in _least(form)}
    return tuple(share for share in all_of_them if share.key in keys)


def _least(pairs: Mapping[Any, Mapping[str, Share]]) -> Iterator[Share]:
    """The fewest pairs of world and sibling in which each is once: a largest matching, and one for who is left over."""
    partner: dict[str, Any] = {}

    def match(world: Any, tried: set[str]) -> bool:
        for model in pairs[world]:
            if model not in tried:
                tried.add(model)
                if model not in partner or match(partner[model], tried):
                    partner[model] = world
                    return True
        return False

    for world in pairs:
        match(world, set())
    for world, models in pairs.items():
        own = [model for model in models if partner.get(model) == world]
        yield models[own[0] if own else next(iter(models))]
        yield from (models[model] for model in models if partner.setdefault(model, world) == world and model not in own)


def start_of(cell: cells.Cell, configs: Mapping[str, Mapping[str, Any]]) -> WorldStart:
    """The start of one cell, as rank 0: the root of every broadcast, who alone knows what is sent.

    ZeRO pads its partitions, so every rank holds as much.
    """
    world, local = worlds(cell)
    return WorldStart(
        config=configs[cell.sha],
        model=json.loads(model_of(cell.model)),
        world=world,
        local_ranks=local,
        rank=0,
    )


def declared() -> dict[tuple[str, int], cells.Cell]:
    """Every distinct config at every world that a cell declares for it -> the first cell that does."""
    first: dict[tuple[str, int], cells.Cell] = {}
    for cell in cells.cells():
        first.setdefault((cell.sha, worlds(cell)[0]), cell)
    return dict(sorted(first.items()))


def parse_all(
    world: World, configs: Mapping[str, Mapping[str, Any]], target: str
) -> dict[tuple[str, int], StartVerdict]:
    """Every distinct config at every world that a cell declares for it, through DeepSpeed's own parser.

    For Accelerate it is what `dsgen render --target accelerate` and `--target hf-trainer --resolve` write.
    """
    asked = declared()
    handed = ACCELERATE.as_taken if target == "accelerate" else dict
    given = [(handed(configs[sha]), ranks) for sha, ranks in asked]
    return dict(zip(asked, world.parse(given, target), strict=True))


def rendered(some: Iterable[tuple[str, int]]) -> dict[tuple[str, int], Config]:
    """The cells of `declared`, or some of them, worked out anew: with the plans that a target's arguments need."""
    first = declared()
    return {one: matrix.config_of(first[one].hardware, first[one].model, first[one].cluster) for one in some}


def one_of_each(configs: Mapping[str, Mapping[str, Any]]) -> tuple[tuple[str, int], ...]:
    """Of `declared`, the first of each structure."""
    first: dict[Any, tuple[str, int]] = {}
    for sha, ranks in declared():
        first.setdefault(structure(configs[sha]), (sha, ranks))
    return tuple(first.values())


def parse_filled(world: World, made: Mapping[tuple[str, int], Config]) -> dict[tuple[str, int], StartVerdict]:
    """What `dsgen render --target hf-trainer` writes, as the Trainer fills it in from its arguments."""
    asked = [(targets.written(config, "hf-trainer"), ranks) for (_, ranks), config in made.items()]
    said = [targets.arguments(config, "hf-trainer") for config in made.values()]
    return dict(zip(made, world.parse(asked, "hf-trainer", said), strict=True))


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, default=str).encode()).hexdigest()[:16]


class Record:
    """Starts that came through, in a file: one that is broken off goes on where it was."""

    def __init__(self, path: Path, versions: Mapping[str, str]) -> None:
        self._path = path
        files = sorted(file for name in SOURCES for file in python_files(ROOT / name))
        self._about = _digest([dict(versions), [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]])
        self._proved = set(path.read_text("utf-8").split()) if path.exists() else set()

    def name(self, one: WorldStart) -> str:
        """Of a start: its config, model, world, rank, the versions and the sources."""
        return _digest([attrs.asdict(one), self._about])

    def __contains__(self, one: WorldStart) -> bool:
        return self.name(one) in self._proved

    def keep(self, one: WorldStart) -> None:
        """Write down that it came through."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{self.name(one)}\n")
        self._proved.add(self.name(one))


def python_files(path: Path) -> Iterable[Path]:
    """A module, or those of a package."""
    return path.rglob("*.py") if path.is_dir() else (path,)


def progress(items: Sequence[Any], say: Callable[[str], object] = sys.stderr.write) -> Iterator[Any]:
    """Each item, with a line on stderr now and then: how many are done, and the time left."""
    told, last, spent, slow = time.monotonic(), time.monotonic(), 0.0, 0
    for number, item in enumerate(items):
        yield item
        now = time.monotonic()
        if now - last > RESUMED:
            spent, slow = spent + now - last, slow + 1
        last = now
        if now - told > 5 or number + 1 == len(items):
            left, told = spent / max(1, slow) * (len(items) - number - 1), now
            say(f"\rstarts: {number + 1} of {len(items)}, {left:.0f} s left  ")
    say("\n")
