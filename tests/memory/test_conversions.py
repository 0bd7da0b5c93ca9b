"""What a checkpoint takes on disk, and what turning it into another takes: by hand, and by DeepSpeed's own scripts."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import dsgen
from dsgen.asking.memory_questions import Footprint
from dsgen.frameworks.needs import needs
from dsgen.memory import conversions as counted
from dsgen.memory.conversions import TO_FP32, UNIVERSAL, Conversion
from dsgen.report import memory, memory_page
from dsgen.shapes.units import gib

PROGRAMS = Path(__file__).parent / "programs"
MIB = 2**20
RANKS = 2
WIDTH, VOCABULARY, BLOCKS = 512, 32_000, 4
EMBEDDING = VOCABULARY * WIDTH
ADAPTED = BLOCKS * (4 * 2 * WIDTH + 3 * 3 * WIDTH)  # inputs and outputs of its linear layers
RANK = 512  # of adapters: those of such a small model are as large as its blocks
SCALES = BLOCKS * (4 * WIDTH * WIDTH + 3 * WIDTH * 2 * WIDTH) // 64
LINEAR = 7 * BLOCKS  # layers
TRAINED = EMBEDDING + BLOCKS * (4 * WIDTH * WIDTH + 3 * WIDTH * 2 * WIDTH + 2 * WIDTH) + WIDTH  # with a tied head
# Of the measured peaks: what a process takes beside tensors changes by some MiB from run to run.
SLACK_BYTES = 32 * MIB
# A tensor of a real model is larger than the 32 MiB above which glibc's malloc always maps and gives back; below, it
# keeps what was freed in a heap whose holes change from run to run (mallopt(3), M_MMAP_THRESHOLD).
MAPPED_BYTES = MIB
FILE_BYTES = 2048  # what torch.save writes beside a tensor, at most
SECONDS = 0.01  # between two looks


def config(folder: Path, tied: bool) -> str:
    """The config.json of a small Llama most of which is its embedding."""
    folder.mkdir(exist_ok=True)
    written = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": VOCABULARY,
        "hidden_size": WIDTH,
        "intermediate_size": 2 * WIDTH,
        "num_hidden_layers": BLOCKS,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "max_position_embeddings": 128,
        "tie_word_embeddings": tied,
        "torch_dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(written))
    return str(folder / "config.json")


def asked(model: str, stage: int, **more: object) -> Footprint:
    said = {"hw": "a100-80g", "model": model, "gpus": RANKS, "zero_stage": stage, "offload": "none", "tp": 1, **more}
    return dsgen.memory(said)


def made(footprint: Footprint) -> dict[str, Conversion]:
    return {one.name: one for one in footprint.conversions}


def test_the_bytes_of_a_tied_model_by_hand(tmp_path: Path) -> None:
    model = config(tmp_path, True)
    at_2, at_3 = asked(model, 2), asked(model, 3)

    assert dict(at_2.written) == {  # the Trainer's weights, and the checkpoint's
        "weights": 2 * 2 * TRAINED,
        "fp32 master weights": 4 * TRAINED,
        "optimizer states": 8 * TRAINED,
    }
    assert at_3.written["weights"] == 2 * TRAINED
    one = made(at_2)[TO_FP32]
    assert (one.ram_bytes, one.disk_bytes, one.left_bytes, one.files) == (4 * TRAINED,) * 3 + (1,)
    universal = made(at_2)[UNIVERSAL]  # the head's second name comes as fp32 too, and the weights beside
    assert universal.ram_bytes == RANKS * (12 * TRAINED // 2 + 4 * TRAINED // 2)
    assert universal.disk_bytes == 24 * TRAINED + 4 * EMBEDDING
    assert universal.left_bytes == 12 * TRAINED + 4 * EMBEDDING + 2 * TRAINED
    universal = made(at_3)[UNIVERSAL]  # rank 0's states stay beside
    assert universal.ram_bytes == RANKS * (12 * TRAINED // 2 + 4 * EMBEDDING // 2)
    assert universal.disk_bytes == 24 * TRAINED + 12 * TRAINED // 2
    assert universal.left_bytes == 12 * TRAINED + 12 * TRAINED // 2


def test_of_many_ranks_the_weights_or_the_largest_tensors_take_most(tmp_path: Path) -> None:
    few, many = (
        made(asked("llama-3.1-70b", 2, gpus=gpus, checkpointing="full", micro_batch=1))[UNIVERSAL] for gpus in (8, 64)
    )
    assert set(few.parts) == {"optimizer states", "copies of tensors"}
    assert many.parts == {"weights": 2 * 70_553_706_496}  # two bytes each, read for what no optimizer has
    embedding = 128_256 * 4096  # and the head, merged at once: five copies of both in fp32
    assert made(asked("llama-3.1-8b", 2, gpus=128))[UNIVERSAL].parts == {"copies of tensors": 40 * embedding}
    assert made(asked("llama-3.1-8b", 3, gpus=128))[UNIVERSAL].ram_bytes == 32 * embedding


def test_below_stage_3_each_file_of_5_gb_has_all_weights() -> None:
    whole = 4 * 8_030_261_248
    one = made(asked("llama-3.1-8b", 2, gpus=8))[TO_FP32]
    assert (one.ram_bytes, one.left_bytes) == (whole, one.files * whole)
    assert one.files == 7
    cut = made(asked("llama-3.1-8b", 3, gpus=8))[TO_FP32]
    assert (cut.left_bytes, cut.files) == (whole, 7)
    assert 4 * 10**9 < cut.ram_bytes <= 5 * 10**9
    older = made(asked("llama-3.1-8b", 3, gpus=8, deepspeed="0.15"))[TO_FP32]
    assert (older.ram_bytes, older.left_bytes, older.files) == (whole, whole, 1)


STAGE_0 = "at stage 0 it has no shards, but one file with weights and states"
ON_NVME = "it has the states of an optimizer on NVMe as bare files (offloaded_tensors), which neither script reads"
WITH_AUTOTP = (
    "with AutoTP it has more files of states than data-parallel ranks; dsgen needs has the call that joins the weights"
)
STOPPED = [
    ({"zero_stage": 0}, {TO_FP32: STAGE_0, UNIVERSAL: STAGE_0}),
    ({"zero_stage": 3, "offload": "nvme"}, {TO_FP32: ON_NVME, UNIVERSAL: ON_NVME}),
    ({"tp": 2}, {TO_FP32: WITH_AUTOTP}),
]


@pytest.mark.parametrize(("more", "reasons"), STOPPED)
def test_where_a_script_stops_it_is_said_why(more: dict[str, object], reasons: dict[str, str]) -> None:
    footprint = asked("llama-3.1-8b", **{"stage": 2, "gpus": 8, **_stage(more)})
    told, text = memory.data(footprint), memory.text(footprint, 500)
    page = html.unescape(memory_page.html(footprint))

    assert not footprint.conversions
    assert {one["name"]: one["reason"] for one in told["unconverted"]} == reasons
    names = f"{TO_FP32} and {UNIVERSAL} stop" if len(reasons) > 1 else f"{TO_FP32} stops"
    line = f"{names} at its checkpoint: {reasons[TO_FP32]}"
    assert line in text
    assert line in page
    assert line in told["warnings"]


def test_what_is_not_known_of_a_script_is_not_told() -> None:
    """Releases that share out states at stage 0, and states in 16 bits."""
    older = asked("llama-3.1-8b", 0, gpus=8, deepspeed="0.16")
    assert not (older.conversions or older.unconverted)


def test_the_bytes_of_adapters_by_hand(tmp_path: Path) -> None:
    """Nothing of the base is saved, but the scales of one in 4 bits, which are no parameters."""
    model = config(tmp_path, True)
    adapters = RANK * ADAPTED
    at_2, at_3 = (asked(model, stage, method="lora", lora_rank=RANK) for stage in (2, 3))

    states = {"fp32 master weights": 4 * adapters, "optimizer states": 8 * adapters}
    assert dict(at_2.written) == {"weights": 2 * 2 * adapters + 2 * EMBEDDING, **states}  # under its second name
    assert dict(at_3.written) == {"weights": 4 * adapters, **states}  # adapters beside zero.Init are in fp32
    for footprint in (at_2, at_3):
        one = made(footprint)[TO_FP32]
        assert (one.ram_bytes, one.disk_bytes, one.files) == (4 * adapters, 4 * adapters, 1)
        assert made(footprint)[UNIVERSAL].disk_bytes >= 24 * adapters
    assert made(at_2)[UNIVERSAL].left_bytes == (12 + 2) * adapters + (2 + 4) * EMBEDDING
    assert made(at_3)[UNIVERSAL].left_bytes == (12 + 12 // RANKS) * adapters
    four = asked(model, 2, method="qlora", lora_rank=RANK)
    assert four.written["scales of the base"] == SCALES + 4 * (SCALES // 256)
    assert asked(model, 3, method="qlora", lora_rank=RANK).written["scales of the base"] == RANKS * (
        SCALES + 4 * (SCALES // 256)
    )
    more = made(four)[UNIVERSAL].left_bytes - made(at_2)[UNIVERSAL].left_bytes
    assert more == SCALES + 4 * (SCALES // 256) + 4 * (SCALES + SCALES // 256)  # as they are, and once more in fp32


def _stage(more: dict[str, object]) -> dict[str, object]:
    return {("stage" if name == "zero_stage" else name): value for name, value in more.items()}


def test_one_moment_is_not_enough_for_a_universal_checkpoint() -> None:
    alone = asked("llama-3.1-8b", 2, gpus=8, optimizer="Lion")
    assert set(made(alone)) == {TO_FP32}
    reason = "it reads the two moments of Adam, and Lion has other states"
    assert f"{UNIVERSAL} stops at its checkpoint: {reason}" in memory.text(alone, 500)
    on_cpu = asked("llama-3.1-8b", 2, gpus=8, optimizer="Lion", offload="optimizer")
    assert (set(made(on_cpu)), on_cpu.unconverted) == ({TO_FP32, UNIVERSAL}, ())


@pytest.mark.parametrize("stage", [2, 3])
def test_text_page_and_json_tell_the_same(stage: int) -> None:
    footprint = asked("llama-3.1-8b", stage, gpus=8, host_memory="100GiB")
    text, told = memory.text(footprint, 500), memory.data(footprint)
    page = " ".join(re.sub(r"<[^>]+>", " ", memory_page.html(footprint)).split())
    lines = {" ".join(line.split()) for line in text.splitlines()}

    saved = told["saved"]
    assert sum(saved["disk_parts"].values()) == saved["disk_bytes"]
    assert [line for line in lines if line.startswith("save ") and line.endswith(f" {gib(saved['disk_bytes'])}")]
    assert [one["name"] for one in told["conversions"]] == [TO_FP32, UNIVERSAL]
    for one in told["conversions"]:
        row = f"{one['name']} 0.00 {gib(one['host_bytes'])} {gib(one['disk_bytes'])}"
        assert row in lines
        assert row in page
    warned = f"zero_to_fp32 writes all 29.9 GiB into each of its 7 files, {gib(7 * 4 * 8_030_261_248)} GiB of disk"
    assert (warned in text) == (warned in page) == (stage == 2)


def test_what_has_no_room_in_a_node_is_said() -> None:
    footprint = asked("llama-3.1-70b", 2, gpus=8, host_memory="200GiB")
    told = {one["name"]: one for one in memory.data(footprint)["conversions"]}
    words = "takes 263 of 190 GiB of RAM: run it behind training on a machine that has them"

    assert told[TO_FP32]["verdict"] == "does not fit"
    assert f"{TO_FP32} {words}" in memory.text(footprint, 500)
    assert "on a machine that has them" not in memory.text(asked("llama-3.1-8b", 2, gpus=8), 500)


def said(**more: object) -> dict[str, tuple[str, str]]:
    plan = dsgen.plan({"hw": "a100-80g", "model": "llama-3.1-8b", "gpus": 8, "zero_stage": 3, **more})
    return {item.code: (item.words, item.snippet) for item in needs(plan, str(more.get("target", "deepspeed")))}


def test_needs_say_the_commands_and_what_they_take() -> None:
    words, code = said()["universal"]

    assert words.endswith("45.9 GiB of RAM and 191 of disk while it is made, 101 after")
    assert "--inject_missing_state" not in code
    assert "--input_folder checkpoints/$(cat checkpoints/latest) --output_folder checkpoints/universal" in code
    assert '"checkpoint": {"load_universal": true}' in code
    assert "4.7 GiB of RAM and 29.9 of disk" in said()["one-file"][0]
    assert "--max_shard_size" not in said()["one-file"][1]
    words, code = said(zero_stage=2)["one-file"]
    assert "29.9 GiB of RAM and 29.9 of disk" in words  # as one file, which the command asks for
    assert code.endswith("--max_shard_size 33GB")
    assert "--inject_missing_state" in said(zero_stage=2)["universal"][1]


@pytest.mark.parametrize("more", [{"gpus": 1, "zero_stage": 2}, {"optimizer": "Lion"}])
def test_it_is_not_said_where_the_script_does_not_do_it(more: dict[str, object]) -> None:
    assert "universal" not in said(**more)


def family(pid: int) -> list[int]:
    """A process and those below it."""
    try:
        said = [file.read_text() for file in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:  # it has just ended
        return [pid]
    return [pid, *(one for text in said for child in text.split() for one in family(int(child)))]


def own_bytes(pid: int) -> int:
    """Memory of a process that no file backs, its share of what it shares."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss_Anon"))


def size(folder: Path) -> int:
    """Bytes of the files in a folder, of those that stay while they are counted."""
    try:
        return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    except OSError:  # one was just taken away
        return 0


def peaks(words: list[str], output: Path, log: Path) -> tuple[dict[int, int], int]:
    """The most RAM that a command takes in each phase that it prints, from 0; and the most disk."""
    environment = {**os.environ, "DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    environment["MALLOC_MMAP_THRESHOLD_"] = str(MAPPED_BYTES)
    ram: dict[int, int] = {}
    disk = 0
    with (
        log.open("w") as written,
        subprocess.Popen([sys.executable, "-u", *words], env=environment, stdout=written, stderr=written) as run,
    ):
        while run.poll() is None:
            phase = log.read_text().count("\n*** ")
            ram[phase] = max(ram.get(phase, 0), sum(map(own_bytes, family(run.pid))))
            disk = max(disk, size(output))
            time.sleep(SECONDS)
    assert run.returncode == 0, log.read_text()[-3000:]
    return ram, disk


def start(program: str, ranks: int, *words: str) -> None:
    rendezvous = ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
    launched = ["-m", "torch.distributed.run", f"--nproc-per-node={ranks}", *rendezvous, str(PROGRAMS / program)]
    environment = {**os.environ, "DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, *launched, *words], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.proof
@pytest.mark.parametrize(("stage", "tied"), [(2, True), (3, False)])
def test_checkpoint_and_both_scripts_take_what_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: int, tied: bool
) -> None:
    model = config(tmp_path, tied)
    start("saves_model.py", RANKS, str(tmp_path), str(tmp_path / "saved"), str(stage))
    saved = tmp_path / "saved" / (tmp_path / "saved" / "latest").read_text().strip()
    footprint = asked(model, stage)
    elements = TRAINED if tied else TRAINED + EMBEDDING
    files = len(list(saved.iterdir()))
    checkpoint = sum(footprint.written.values()) - 2 * elements  # beside what the Trainer writes
    assert 0 <= size(saved) - checkpoint <= files * 64 * FILE_BYTES

    start("saves.py", RANKS, str(tmp_path / "small"), str(stage), "32")  # what the scripts take beside tensors
    small = tmp_path / "small" / (tmp_path / "small" / "latest").read_text().strip()
    # Files of 40 MB: below stage 3 each has all weights.
    monkeypatch.setattr(counted, "SHARD_BYTES", 40 * 10**6)
    one = made(asked(model, stage))[TO_FP32]
    whole = tmp_path / "whole"
    words = ["-m", "deepspeed.utils.zero_to_fp32", "--max_shard_size", "40MB"]
    base, _ = peaks([*words, str(tmp_path / "small"), str(small / "whole")], small, tmp_path / "small.log")
    ram, _ = peaks([*words, str(tmp_path / "saved"), str(whole)], whole, tmp_path / "whole.log")
    weights = list(whole.glob("*.bin"))
    assert len(weights) == one.files > 2
    assert 0 <= sum(file.stat().st_size for file in weights) - one.left_bytes <= 40 * FILE_BYTES
    assert one.left_bytes == (4 * elements if stage == 3 else one.files * 4 * elements)
    assert ram[0] - base[0] == pytest.approx(one.ram_bytes, abs=SLACK_BYTES)

    # One process, so that each phase has its own peak: reading a rank's file, and merging the embedding.
    words = ["-m", "deepspeed.checkpoint.ds_to_universal", *([] if stage == 3 else ["--inject_missing_state"])]
    words += ["--num_extract_workers", "1", "--num_merge_workers", "1"]
    universal, output = made(footprint)[UNIVERSAL], tmp_path / "universal"
    paths = ["--input_folder", str(small), "--output_folder", str(small / "universal")]
    base, _ = peaks([*words, *paths], small, tmp_path / "small.log")
    paths = ["--input_folder", str(saved), "--output_folder", str(output)]
    ram, disk = peaks([*words, *paths], output, tmp_path / "universal.log")
    tensors = 9 * BLOCKS + (2 if tied else 3)
    assert disk == pytest.approx(universal.disk_bytes, rel=0.02)
    assert 0 <= size(output) - universal.left_bytes <= tensors * 8 * FILE_BYTES
    assert ram[1] - base[1] == pytest.approx(universal.ram_bytes / RANKS, abs=SLACK_BYTES)
    most = counted._MERGED_CUT if stage == 3 else counted._MERGED  # and one less where Python has collected
    merged = ram[2] - base[2]
    assert 4 * (most - 1) * EMBEDDING - SLACK_BYTES <= merged <= 4 * most * EMBEDDING + SLACK_BYTES


@pytest.mark.proof
@pytest.mark.parametrize(("stage", "four"), [(3, False), (2, True)])
def test_checkpoints_of_adapters_take_what_is_said(tmp_path: Path, stage: int, four: bool) -> None:
    """As the Trainer saves them; what both scripts make of them; and one rank goes on from what two had saved."""
    tied = four  # below stage 3 DeepSpeed leaves out a tied embedding under one of its names alone
    model = config(tmp_path, tied)
    options: dict[str, object] = {"rank": RANK}
    if four:
        options["base"] = str(tmp_path)
        whole = "import sys, transformers as t; c = t.AutoConfig.from_pretrained(sys.argv[1]); "
        whole += "t.AutoModelForCausalLM.from_config(c).save_pretrained(sys.argv[1])"
        subprocess.run([sys.executable, "-c", whole, str(tmp_path)], check=True, capture_output=True)
    folder = tmp_path / "saved"
    start("saves_model.py", RANKS, model, str(folder), str(stage), json.dumps(options))
    saved = folder / (folder / "latest").read_text().strip()
    footprint = asked(model, stage, method="qlora" if four else "lora", lora_rank=RANK)
    adapters = RANK * ADAPTED
    alone = (folder / "adapters" / "adapter_model.safetensors").stat().st_size
    wide = 4 if stage == 3 else 2
    assert 0 <= alone - wide * adapters <= 2 * LINEAR * FILE_BYTES
    of_base = LINEAR * 4 * FILE_BYTES if four else 0  # tables and flags of each layer
    checkpoint = sum(footprint.written.values()) - wide * adapters
    files = len(list(saved.iterdir()))
    assert 0 <= size(saved) - checkpoint <= files * 64 * FILE_BYTES + of_base

    small = tmp_path / "small"
    start("saves.py", RANKS, str(small), str(stage), "32")
    words = ["-m", "deepspeed.utils.zero_to_fp32"]
    base, _ = peaks([*words, str(small), str(tmp_path / "one")], small, tmp_path / "small.log")
    ram, disk = peaks([*words, str(folder), str(tmp_path / "whole")], tmp_path / "whole", tmp_path / "whole.log")
    one, universal = made(footprint)[TO_FP32], made(footprint)[UNIVERSAL]
    assert 0 <= disk - one.left_bytes <= 2 * LINEAR * FILE_BYTES
    assert ram[0] - base[0] == pytest.approx(one.ram_bytes, abs=SLACK_BYTES)

    words = ["-m", "deepspeed.checkpoint.ds_to_universal", *([] if stage == 3 else ["--inject_missing_state"])]
    words += ["--num_extract_workers", "1", "--num_merge_workers", "1"]
    tag = (small / "latest").read_text().strip()
    paths = ["--input_folder", str(small / tag), "--output_folder", str(tmp_path / "less")]
    base, _ = peaks([*words, *paths], tmp_path / "less", tmp_path / "small.log")
    output = folder / "universal"
    paths = ["--input_folder", str(saved), "--output_folder", str(output)]
    ram, disk = peaks([*words, *paths], output, tmp_path / "universal.log")
    tensors = 2 * LINEAR + (6 * LINEAR if four else 0)
    assert 0 <= size(output) - universal.left_bytes <= tensors * 8 * FILE_BYTES
    assert disk == pytest.approx(universal.disk_bytes, rel=0.03)
    assert ram[1] - base[1] == pytest.approx(universal.ram_bytes / RANKS, abs=SLACK_BYTES)

    import torch

    options |= {"config": {"checkpoint": {"load_universal": True}}, "loaded": str(tmp_path / "loaded.pt")}
    start("saves_model.py", 1, model, str(folder), str(stage), json.dumps(options))
    loaded, right = torch.load(tmp_path / "loaded.pt"), {}
    for file in (tmp_path / "whole").glob("*.bin"):
        right |= torch.load(file)
    assert len(right) == len(loaded) == 2 * LINEAR
    for name, tensor in right.items():
        assert torch.equal(loaded[name].bfloat16(), tensor.bfloat16())


@pytest.mark.proof
@pytest.mark.parametrize("case", ["stage 0", "AutoTP", "NVMe", "SGD"])
def test_the_scripts_stop_where_it_is_said(tmp_path: Path, case: str) -> None:
    """And nowhere else: each in DeepSpeed's own words."""
    drive = {"offload_optimizer": {"device": "nvme", "nvme_path": str(tmp_path / "drive")}}
    (tmp_path / "drive").mkdir()
    untested = {"zero_allow_untested_optimizer": True, "optimizer": {"type": "SGD", "params": {"lr": 0.001}}}
    adam = {"optimizer": {"type": "AdamW", "params": {"lr": 0.001}}}
    stage, more, said, words = {
        "stage 0": (0, {}, {"stage": 0}, {TO_FP32: "TypeError", UNIVERSAL: "can't find *_optim_states.pt files"}),
        "AutoTP": (2, {"tensor_parallel": {"autotp_size": 2}}, {"stage": 2, "tp": 2}, {TO_FP32: "but found 2 files"}),
        "NVMe": (
            3,
            {"zero_optimization": drive, **adam},
            {"stage": 3, "offload": "nvme"},
            {TO_FP32: "something is wrong", UNIVERSAL: "exceeds dimension size (0)"},
        ),
        "SGD": (2, untested, {"stage": 2, "optimizer": "SGD"}, {UNIVERSAL: "KeyError: 'exp_avg'"}),
    }[case]
    model, folder = config(tmp_path, False), tmp_path / "saved"
    start("saves_model.py", RANKS, model, str(folder), str(stage), json.dumps({"config": more}))
    saved = folder / (folder / "latest").read_text().strip()
    footprint = asked(model, **said)
    assert {one.name for one in footprint.unconverted} == set(words)
    trainers = footprint.written["weights"] // (1 if stage == 3 else 2)  # what the Trainer writes besides
    assert sum(footprint.written.values()) - trainers == pytest.approx(size(saved), rel=0.001)
    commands = {
        TO_FP32: ["deepspeed.utils.zero_to_fp32", str(folder), str(tmp_path / "whole")],
        UNIVERSAL: [
            *("deepspeed.checkpoint.ds_to_universal", *(["--inject_missing_state"] if stage < 3 else [])),
            *("--input_folder", str(saved), "--output_folder", str(tmp_path / "universal")),
        ],
    }
    environment = {**os.environ, "DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    for name, command in commands.items():
        run = [sys.executable, "-m", *command]
        done = subprocess.run(run, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode == 0) == (name not in words), done.stderr[-2000:]
        assert words.get(name, "") in done.stderr


@pytest.mark.proof
@pytest.mark.parametrize("stage", [2, 3])
def test_a_universal_checkpoint_loads_on_another_number_of_ranks(tmp_path: Path, stage: int) -> None:
    import torch

    width = "128"
    folder = tmp_path / "saved"
    start("saves.py", RANKS, str(folder), str(stage), width)
    tag = (folder / "latest").read_text().strip()
    words = ["-m", "deepspeed.checkpoint.ds_to_universal", *([] if stage == 3 else ["--inject_missing_state"])]
    paths = ["--input_folder", str(folder / tag), "--output_folder", str(folder / "universal")]
    peaks([*words, *paths], folder, tmp_path / "universal.log")
    peaks(["-m", "deepspeed.utils.zero_to_fp32", str(folder), str(tmp_path / "whole")], folder, tmp_path / "whole.log")
    start("saves.py", 1, str(folder), str(stage), width, str(tmp_path / "loaded.pt"))
    loaded = torch.load(tmp_path / "loaded.pt")
    for file in (tmp_path / "whole").glob("*.bin"):
        for name, tensor in torch.load(file).items():
            assert torch.equal(loaded[name], tensor.bfloat16().float())
