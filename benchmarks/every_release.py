"""Start what dsgen renders for older releases of DeepSpeed under those releases, and record it.

    python benchmarks/every_release.py FOLDER [--release V ...] [--update]

FOLDER holds an environment for each release (FOLDER/V/bin/python), which has the rest from this interpreter's own. What
starts and what does not is compared with benchmarks/every_release.json; --update renders the whole matrix for each
release and writes it anew. What may fail is listed here, with DeepSpeed's words: anything else that fails, and anything
listed that does not fail with just these words, ends it with exit code 1.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import attrs

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from dsgen.proving.prover import PROVED, Proof, prove_many  # noqa: E402
from dsgen.proving.worlds import open_world  # noqa: E402
from golden import releases  # noqa: E402
from golden.structures import structure  # noqa: E402

__all__ = ["LOAD_SWITCH", "RECORD", "SCENES", "UPSTREAM", "main"]

RECORD = ROOT / "benchmarks" / "every_release.json"
# On two gloo ranks: scenario -> the first line that has what it asks for.
SCENES = {
    "stage-0-350m": "0.14", "stage-1-1b": "0.14", "stage-2-3b": "0.14", "stage-3-7b": "0.14",
    "offload-optimizer-stage-1": "0.14", "offload-optimizer-stage-2": "0.14", "offload-optimizer-stage-3": "0.14",
    "offload-all": "0.14", "fp16-stage-1": "0.14", "fp16-v100-32g-stage-3": "0.14", "fp16-offload-all": "0.14",
    "fp16-static-scale": "0.14", "fp32-pinned": "0.14", "fp32-offload": "0.14", "lora-a10-7b": "0.14",
    "lora-stage-3-70b": "0.14", "schedule-cosine": "0.14", "schedule-decay": "0.14", "optimizer-sgd": "0.14",
    "moe-qwen3-30b": "0.14", "zeropp-hpz": "0.14",
    "tp2-stage-1": "0.16", "tp2-stage-2": "0.16", "tp2-offload": "0.16",
}  # fmt: skip
LOAD_SWITCH = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"  # torch's own: torch.load unpickles what it did before torch 2.6
UNSWITCHED = "stage-1-1b"  # the scenario that is proved without it too
UNLOADED = f"{UNSWITCHED}, without {LOAD_SWITCH}"
LONGEST = 160  # letters of what DeepSpeed says
AT_ONCE = 2  # releases; each takes one core most of the time


@attrs.frozen(kw_only=True)
class Upstream:
    """What a release does not do with the torch that is installed."""

    releases: tuple[str, ...]
    scenes: tuple[str, ...]
    words: str  # how its error begins
    why: str
    rule: str  # of dsgen lint, which foresees it; "" where it is no matter of the config


ABOUT = """\
The newest patch of each line, in an environment of its own; 0.19.8 is what stands above. Every
structure that `--deepspeed V` renders for the matrix is started under V at its declared world size, and
every tiny sibling and every world at least once. `nox -s releases` makes the starts, and fails where what is listed
below does not fail with these words; `nox -s releases -- update` renders all cells for each release and records
`benchmarks/every_release.json`. On two gloo ranks golden scenarios (`benchmarks/every_release.py`) are rendered for
V, started, stepped, saved and loaded, as `dsgen prove` does it, with the adapters of the plan and its activation
checkpointing: for LoRA at stage 3 the reentrant kind, without which none of these releases takes a step. NVMe is
started among twins alone: its operator takes minutes to build, and on a CPU 0.14 has none.

On a CPU four things are put right first, which no GPU needs: fp16 is allowed; AutoTP before 0.18 gets a name for the
device; gloo's collectives end in the order in which they are asked for, as NCCL's do, for at stage 3 a DeepSpeed before
0.19.8 waits for the last of several alone; and among twins memory counts as page-locked once it was asked to be, and
0.14 gets the builder of asynchronous files that it has for GPUs. Before 0.18.6 AutoTP splits nothing in
`deepspeed.initialize`: the program must call `deepspeed.tp_model_init` first, as the Trainer does and as the starts
here do."""
_GRADUAL = ("stage-1-1b", "stage-2-3b", "offload-optimizer-stage-1", "offload-optimizer-stage-2", "fp16-stage-1",
            "fp32-pinned", "fp32-offload", "lora-a10-7b", "schedule-cosine", "schedule-decay", "optimizer-sgd",
            "fp16-static-scale")  # fmt: skip
UPSTREAM = (
    Upstream(
        releases=("0.14.5", "0.15.4"),
        scenes=(UNLOADED,),
        words="checkpoint: UnpicklingError: Weights only load failed.",
        why="Its `load_checkpoint` calls `torch.load` as torch before 2.6 had it. A checkpoint loads with "
        f"`{LOAD_SWITCH}=1`, torch's own switch, with which its other starts are made.",
        rule="",  # of every config alike: the release and torch decide, and lint is told of no torch
    ),
    Upstream(
        releases=("0.17.6",),
        scenes=("stage-0-350m",),
        words="checkpoint: AttributeError: 'FP16_Optimizer' object has no attribute 'dp_process_group'",
        why="At stage 0 in bf16 a checkpoint that was saved does not load (runtime/engine.py:3351); 0.17.5 and 0.18.0 "
        "load theirs.",
        rule="stage-0-in-bf16-not-resumed",
    ),
    Upstream(
        releases=("0.18.9",),
        scenes=(*_GRADUAL, UNLOADED),
        words="step: RuntimeError: Output 0 of Split is a view and is being modified inplace.",
        why="On a CPU stages 1 and 2 of 0.18.7 to 0.18.9 gather the updated weights into views that autograd follows; "
        "stages 0 and 3 start.",
        rule="gradual-stages-on-cpu",
    ),
)


def words(proof: Proof) -> str:
    """How a proof ended, on one line: "proved", or the phase and the words."""
    if proof.outcome == PROVED:
        return PROVED
    failed = "; ".join(f"{one.name}: not {one.expected} but {one.observed}" for one in proof.failed_checks)
    said = f"{proof.phase}: {proof.error or failed}"
    return "".join(letter for letter in said if letter.isprintable())[:LONGEST]


def started(release: str, folder: Path, places: Sequence[releases.Place] | None) -> dict[str, Any]:
    """What came of one release, in a process of its own: what torch and DeepSpeed read from the environment is its.

    Args:
        release: Of DeepSpeed.
        folder: Where its environment lies.
        places: The cells to start; None: render the whole matrix and choose.
    """
    python = str(folder / release / "bin" / "python")
    os.environ["TORCH_EXTENSIONS_DIR"] = str(folder / release / "torch_extensions")
    configs = releases.rendered(release, places)
    told: dict[str, Any] = {}
    if places is None:
        told["configs"] = len({json.dumps(config) for config in configs.values()})
        told["cells"] = len(configs)
        places = releases.stands(configs)
    places = [place for place in places if place in configs]  # others differ from the record then
    told["structures"] = len({structure(configs[place]) for place in places})
    told["forms"] = hashlib.sha256(repr(sorted({structure(configs[place]) for place in places})).encode()).hexdigest()
    told["places"] = [list(place) for place in places]
    wrong = {}
    with open_world(python) as world:
        told["versions"] = world.versions
        for place in places:
            if why := world.start(releases.chosen(place, configs[place])).why:
                wrong[", ".join(place)] = why
    told["not_started"] = wrong
    names = [name for name, since in SCENES.items() if _numbers(release) >= _numbers(since)]
    asked = [releases.rendered_scene(name, release) for name in [*names, UNSWITCHED]]
    scenes, models = [config for config, _ in asked], [trained for _, trained in asked]
    plain = prove_many(scenes[-1:], trained=models[-1], device="cpu", python=python)
    os.environ[LOAD_SWITCH] = "1"
    proofs = prove_many(scenes[:-1], trained=models[:-1], device="cpu", python=python)
    told["scenes"] = {name: words(proof) for name, proof in zip(names, proofs, strict=True)}
    told["unswitched"] = words(plain[0])
    return told


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))[:2]


def unlisted(release: str, told: Mapping[str, Any]) -> Iterator[str]:
    """What failed and is not listed, and what is listed and did not fail with these words."""
    yield from (f"{release}: {place}: {why}" for place, why in told["not_started"].items())
    if told["versions"]["deepspeed"] != release:
        yield f"{release}: its environment has {told['versions']['deepspeed']}"
    ended = {**told["scenes"], UNLOADED: told["unswitched"]}
    for name, said in ended.items():
        mine = [one for one in UPSTREAM if release in one.releases and name in one.scenes]
        expected = mine[0].words if mine else PROVED
        if not said.startswith(expected):
            yield f"{release}: {name}: not {expected!r} but {said!r}"


def section(record: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """The part of docs/proven.md that is about other releases."""
    torches = sorted({one["versions"]["torch"] for one in record.values()})
    yield from ("", "## Other releases", "", f"With torch {', '.join(torches)}. {ABOUT}", "")
    yield "| DeepSpeed | cells | configs | structures | started as twins | proved on two ranks | not |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for release, told in record.items():
        proved = sum(said == PROVED for said in told["scenes"].values())
        yield (
            f"| {release} | {told['cells']:,} | {told['configs']:,} | {told['structures']} | {len(told['places'])} "
            f"| {proved} | {len(told['scenes']) - proved} |"
        )
    yield from ("", "What a release does not do, in its own words:", "", "| DeepSpeed | what | its words | why |")
    yield "|---|---|---|---|"
    for one in UPSTREAM:
        yield f"| {', '.join(one.releases)} | {', '.join(one.scenes)} | {one.words} | {one.why} |"


def main() -> None:
    """Start all releases, two at a time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the environments lie")
    parser.add_argument("--release", action="append", choices=releases.RELEASES, help="only this; may be repeated")
    parser.add_argument("--update", action="store_true", help="render the whole matrix, and write the record")
    said = parser.parse_args()
    chosen = said.release or list(releases.RELEASES)
    known = json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {}
    began = time.monotonic()
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(AT_ONCE, mp_context=fresh, max_tasks_per_child=1) as pool:
        asked = {release: None if said.update else tuple(map(tuple, known[release]["places"])) for release in chosen}
        made = dict(zip(asked, pool.map(started, asked, [said.folder] * len(asked), asked.values()), strict=True))
    print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)
    wrong = [why for release, told in made.items() for why in unlisted(release, told)]
    if said.update and not wrong:
        RECORD.write_text(json.dumps(dict(sorted({**known, **made}.items())), indent=1) + "\n", "utf-8")
    elif not said.update:
        wrong += [f"{release}: {key} is {value!r}, recorded {known[release][key]!r}. Run it with --update."
                  for release, told in made.items() for key, value in told.items()
                  if key != "versions" and known[release][key] != value]  # fmt: skip
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
