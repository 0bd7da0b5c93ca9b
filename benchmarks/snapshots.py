"""Memory snapshots that others published, played into dsgen's port of torch's allocator.

    python benchmarks/snapshots.py FILE...              say of each whether the port places every request where it lay
    python benchmarks/snapshots.py --update FOLDER      do so for the listed ones, and record it

A FILE is what torch.cuda.memory._dump_snapshot wrote, with its history. FOLDER holds the listed ones as
OWNER/REPOSITORY/PATH; nothing is fetched. benchmarks/snapshots.json says what came of each, docs/reserved.md is made of
it; benchmarks/data/allocations.json keeps four whole histories, which tests play: numbers alone, no code and no names.

The last state of a snapshot and its history backwards give the state before the first event. A block that was in use
then is as large as its request; a rest that was not split off belongs to it, and is known where no free block can
follow. Where one can, the start is not told and the snapshot is not compared.
"""

from __future__ import annotations

import argparse
import io
import json
import pickle
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from snapshots_played import MOST_SMALL, UNIT, differences  # benchmarks/, beside this script
from transcribe import ALLOCATIONS, CHECKSUMS, DATA, checksums

__all__ = ["RECORD", "record"]

RECORD = Path(__file__).resolve().parent / "snapshots.json"
SMALL_SEGMENT = 2 << 20  # bytes
_SIZES = ("128", "256", "512")
# Owner and repository -> the commit, the release of torch that its lock file names (empty without one), the snapshots.
SOURCES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "NiuHuangxiaozi/assignment2-systems": (
        "9d868b9b14635370edf772e4c348bb6f17a209f4",
        "2.6.0",
        tuple(
            f"cs336_systems/profile_memory/{passes}_memory_snapshot_{length}.pickle"
            for passes in ("forward", "forward_and_backward")
            for length in ("100", "150", "200", "200_mixed_precision")
        ),
    ),
    "silmont2000/assignment2-systems": (
        "75d09aad44d65bcf350114d4beaf1d3a7cde42db",
        "2.6.0",
        ("mem_snapshot.pickle", "memory_forward_bf16_128.pickle", "memory_forward_fp32_128.pickle"),
    ),
    "kkaitlyn111/cs336-a2-systems": (
        "c1272e189aa1b8ab6b0a02e08f3f2be1ae122c39",
        "2.6.0",
        (
            "cs336_systems/memory_logs/memory_ctx128_forward.pickle",
            "memory_files/memory_ctx128_forward.pickle",
            "memory_files/memory_ctx128_fullstep.pickle",
            *(f"memory_files/memory_ctx{size}_forward_.pickle" for size in _SIZES),
            *(f"memory_files/memory_ctx{size}_forward_mixed.pickle" for size in _SIZES),
            *(f"memory_files/memory_ctx{size}_fullstep_.pickle" for size in _SIZES),
        ),
    ),
    "LINYUNLinYun/CS336-assignment2-systems": (
        "d7b9b89129ddf4be5957b4bca1aa9fc4617fb288",
        "2.11.0",
        tuple(
            f"cs336_systems/results/memory_profiles/xl_ctx{length}_{passes}_{dtype}.pickle"
            for passes, lengths in (("forward", ("128", "512", "1024", "2048")), ("full_step", ("128", "512")))
            for length in lengths
            for dtype in ("bf16", "none")
        ),
    ),
    "Wedsonlin/assignment2-systems": (
        "87b086417ea831f54f7535eb3680f90da0952722",
        "2.11.0",
        tuple(
            f"results/medium_{length}_{passes}_memory_snapshot.pickle"
            for passes in ("inference", "training")
            for length in ("128", "256", "512", "1024")
        ),
    ),
    "cherryni2022/cs336-assignment2-system": (
        "3f4bcb75293c04eada37b2042f34f36dbe001f6c",
        "",
        (
            *(f"memory_nvtx_small_{length}_forward.pickle" for length in ("128", "256", "512", "1024")),
            *(f"memory_nvtx_medium_{length}_forward.pickle" for length in ("128", "256", "512", "1024")),
            *(f"memory_nvtx_large_{length}_forward.pickle" for length in ("128", "512", "1024")),
            "memory_nvtx_large_128_backward.pickle",
        ),
    ),
    "shreyansh26/MLSys-Experiments": (
        "b63fb8c71bc0019205404d1b979a519ee8a748d0",
        "",
        ("model_memory_usage/profile_grad.pkl", "model_memory_usage/profile_no_grad.pkl"),
    ),
    "Da1sypetals/tomi": ("f9e27956cc506b871b7fa2e4823aa6f911fb1219", "", ("snapshots/snapshot.pickle",)),
    "cranberrii/ftcourse": ("a8cedf28ee118bdd0d50773780885e0e3a4bf027", "", ("memory_snapshot.pickle",)),
    "bolongcheng/assignment2-systems": (
        "2baa5ff4177e6963a781ef38eca1487ba56156e1",
        "2.11.0",
        tuple(
            f"benchmarks/memory_snapshot_xl_fwd_cl{length}_dtypetorch.{dtype}.pickle"
            for length, dtype in (("128", "float32"), ("512", "float32"), ("512", "bfloat16"), ("2048", "float32"))
        ),
    ),
}
# The histories that tests play.
KEPT = (
    "silmont2000/assignment2-systems/mem_snapshot.pickle",
    "NiuHuangxiaozi/assignment2-systems/cs336_systems/profile_memory/"
    "forward_and_backward_memory_snapshot_200_mixed_precision.pickle",
    "kkaitlyn111/cs336-a2-systems/memory_files/memory_ctx256_forward_.pickle",
    "bolongcheng/assignment2-systems/benchmarks/memory_snapshot_xl_fwd_cl128_dtypetorch.float32.pickle",
)
Snapshot = Mapping[str, Any]
_MUST_BE = "it must be what torch.cuda.memory._dump_snapshot wrote"
_TOLD = ("free_requested", "snapshot")  # events that move nothing


class _Numbers(pickle.Unpickler):
    """Reads lists, dicts, numbers and text; a snapshot has nothing else, and any class is refused."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"a snapshot has no {module}.{name}")


def main() -> None:
    """Compare the named files, or record the listed ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="snapshots to compare")
    parser.add_argument("--update", type=Path, metavar="FOLDER", help="record the listed snapshots, which lie there")
    options = parser.parse_args()
    if options.update:
        _update(options.update)
    for path in options.files:
        for device, made in _histories(path):
            print(f"{path} GPU {device}: {_said(made)}")


def _update(folder: Path) -> None:
    rows, kept = [], []
    for repository, (commit, torch, paths) in SOURCES.items():
        for path in paths:
            ((_, made),) = _histories(folder / repository / path)
            source = f"https://github.com/{repository}/blob/{commit}/{path}"
            told = not made.pop("untold")
            row = {"source": source, "torch": torch, "settings": made["settings"], **_counted(made)}
            rows.append({**row, "differences": len(differences(made)) if told else None})
            print(source, _said({**made, "untold": not told}), flush=True)
            name = f"{repository}/{path}"
            if name in KEPT:
                kept.append({"source": source, "torch": torch, **made})
    RECORD.write_text(_lines(rows), "utf-8")
    (DATA / ALLOCATIONS).write_text(_lines(kept), "utf-8")
    texts = {path.name: path.read_text("utf-8") for path in DATA.glob("*.json")}
    (DATA / CHECKSUMS).write_text(checksums(texts), "utf-8")


def _lines(rows: list[dict[str, Any]]) -> str:
    return "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n"


def _counted(made: Mapping[str, Any]) -> dict[str, int]:
    events = made["events"].split()
    return {
        "events": len(events),
        "requests": sum(event[0] not in "-+*" for event in events),
        "opened": sum(event[0] == "+" for event in events),
        "released": sum(event[0] == "*" for event in events),
        "reserved": made["reserved"],
    }


def _said(made: Mapping[str, Any]) -> str:
    counts = ", ".join(f"{count} {name}" for name, count in _counted(made).items())
    if made["untold"]:
        return f"{counts}; not compared, the state before the first event is not told"
    unlike = differences(made)
    return f"{counts}; " + ("alike" if not unlike else f"{len(unlike)} differences, the first: {unlike[0]}")


def _histories(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each GPU of a snapshot that has a history; it ends the program with what is wrong where the file is none."""
    try:
        snapshot = _Numbers(io.BytesIO(path.read_bytes())).load()
        traces = snapshot["device_traces"]
    except OSError as error:
        raise SystemExit(f"{path}: {error.strerror}; {_MUST_BE}") from None
    except (pickle.UnpicklingError, EOFError, ValueError, LookupError, TypeError, AttributeError):
        raise SystemExit(f"{path}: no memory snapshot; {_MUST_BE}") from None
    for device, history in enumerate(traces):
        if history:
            yield device, record(snapshot, device)


def record(snapshot: Snapshot, device: int) -> dict[str, Any]:
    """One GPU's history, as benchmarks/data/README.md describes it.

    Args:
        snapshot: As torch.cuda.memory._dump_snapshot pickles it.
        device: The GPU's number.

    Raises:
        SystemExit: It has what is not followed here: an expandable segment that grew meanwhile, or with a hole.
    """
    segments, used = _start(snapshot, device)
    history = snapshot["device_traces"][device]
    settings = snapshot.get("allocator_settings", {}).get("PYTORCH_CUDA_ALLOC_CONF", "")
    ends = [segment for segment in snapshot["segments"] if segment["device"] == device]
    expandable = "expandable_segments:True" in settings
    if expandable and len(segments) > len({small for _, small in segments.values()}):
        raise SystemExit("an expandable segment with a hole is not followed")
    sizes, untold = _sizes(segments, used, expandable)
    lowest = min([*segments, *(event["addr"] for event in history if event["action"] == "segment_alloc")])
    numbers: dict[tuple[int, int], int] = {}

    def number(size: int, address: int) -> str:
        return f"{numbers.setdefault((size, (address - lowest) // UNIT), len(numbers)):x}"

    held = [("+" if small else "") + number(size, at) for at, (size, small) in sorted(segments.items())]
    live = {at: number(size, at) for at, size in sorted(sizes.items())}
    before = " ".join(live.values())
    events = []
    for event in history:
        action = event["action"]
        if action == "alloc":
            live[event["addr"]] = number(event["size"], event["addr"])
            events.append(live[event["addr"]])
        elif action == "free_completed":
            events.append("-" + live.pop(event["addr"]))
        elif action not in _TOLD:
            events.append(("+" if action == "segment_alloc" else "*") + number(event["size"], event["addr"]))
    return {
        "settings": settings,
        "places": " ".join(f"{size:x}@{address:x}" for size, address in numbers),
        "held": " ".join(held),
        "used": before,
        "events": " ".join(events),
        "allocated": sum(segment["active_size"] for segment in ends),
        "reserved": sum(segment["total_size"] for segment in ends),
        "untold": untold,
    }


def _start(snapshot: Snapshot, device: int) -> tuple[dict[int, tuple[int, bool]], dict[int, tuple[int, int | None]]]:
    """The state before the first event.

    Returns:
        Address of each segment -> its size, and whether it is small.
        Address of each block in use -> what was asked, and its size where the last state still has it.
    """
    segments: dict[int, tuple[int, bool]] = {}
    used: dict[int, tuple[int, int | None]] = {}
    for segment in snapshot["segments"]:
        if segment["device"] != device:
            continue
        at = segment["address"]
        segments[at] = segment["total_size"], segment["segment_type"] == "small"
        for block in segment["blocks"]:
            if block["state"] != "inactive":
                used[at] = block.get("requested_size", block["size"]), block["size"]
            at += block["size"]
    for event in reversed(snapshot["device_traces"][device]):
        action = event["action"]
        if action == "alloc":
            del used[event["addr"]]
        elif action == "free_completed":
            used[event["addr"]] = event["size"], None
        elif action == "segment_alloc":
            del segments[event["addr"]]
        elif action == "segment_free":
            segments[event["addr"]] = event["size"], event["size"] == SMALL_SEGMENT
        elif action not in _TOLD:
            raise SystemExit(f"{action} is not followed")
    return segments, used


def _sizes(
    segments: Mapping[int, tuple[int, bool]], used: Mapping[int, tuple[int, int | None]], expandable: bool
) -> tuple[dict[int, int], bool]:
    """The size of each block in use before the first event, and whether one of them is not told.

    A free block of a large segment is larger than 1 MiB, and so is not what a smaller gap behind a block is; a rest of
    1 MiB and less is not split off. Between 1 and 2 MiB a gap can be a free block, or a rest and a free block.
    """
    sizes: dict[int, int] = {}
    untold = False
    for start, (size, small) in segments.items():
        blocks = sorted(at for at in used if start <= at < start + size)
        for at, following in zip(blocks, [*blocks, start + size][1:], strict=True):
            asked, known = used[at]
            least = known or -(-asked // UNIT) * UNIT
            rest = following - at - least
            may_have = not (known or small or expandable)
            sizes[at] = least + rest if may_have and rest <= MOST_SMALL else least
            untold = untold or (may_have and MOST_SMALL < rest <= 2 * MOST_SMALL)
    return sizes, untold


if __name__ == "__main__":
    sys.exit(main())
