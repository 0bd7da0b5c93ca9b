"""Real ranks that allocate everything hold, after every phase and by kind, exactly the bytes that the simulation says.

The real ranks run on the CPU, where the simulated ones have a GPU and a host: what is compared is the sum of both.
Differences that remain are in DIFFERENCES and LAYER_NORMS, with their reasons; three are kept away by what is run:
- their accelerator answers as CUDA's does (streams, page-locked memory, stand-ins for compiled operators);
- dropout is CUDA's operator, whose mask is one byte an element, where the CPU has one of its own; GPT-2 has none;
- attention is `eager`, whose operators are the same on every device.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from chosen import chosen

from dsgen.engine.simulate.requests import DEFAULTS

pytestmark = pytest.mark.proof

PROGRAM = Path(__file__).resolve().parents[1] / "helpers" / "held_bytes.py"
SECONDS = 900  # longer than the slowest machine of CI needs

LLAMA = {
    "model_type": "llama",
    "vocab_size": 500,
    "hidden_size": 64,
    "intermediate_size": 112,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}
TIED = {**LLAMA, "tie_word_embeddings": True}
GPT2 = {"model_type": "gpt2", "vocab_size": 301, "n_positions": 64, "n_embd": 48, "n_layer": 3, "n_head": 4}
GPT2 |= {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}

T5 = {"model_type": "t5", "vocab_size": 301, "d_model": 48, "d_kv": 16, "d_ff": 96, "num_heads": 4, "num_layers": 2}
T5 |= {"num_decoder_layers": 3, "dropout_rate": 0.0}

# Small enough that a model of a hundred thousand elements fills several buckets and does not fit the live parameters.
BUCKETS = {"reduce_bucket_size": 20_000, "allgather_bucket_size": 20_000}
STAGE_3 = {
    "stage": 3,
    "reduce_bucket_size": 20_000,
    "stage3_prefetch_bucket_size": 10_000,
    "stage3_max_live_parameters": 60_000,
    "stage3_max_reuse_distance": 60_000,
    "stage3_param_persistence_threshold": 100,
}
CPU = {"device": "cpu"}
FP16 = {"fp16": {"enabled": True, "loss_scale": 1}, "bf16": {"enabled": False}}
FP32 = {"bf16": {"enabled": False}}


def request(model: dict[str, Any], zero: dict[str, Any], accumulation: int = 1, **more: Any) -> dict[str, Any]:
    """A request without its world; what is not one of a request's own keys goes into the config."""
    own = {key: more.pop(key) for key in list(more) if key in DEFAULTS}
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": accumulation,
        "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
        "zero_optimization": zero,
        **more,
    }
    return {"config": config, "model": model, "seq_len": 16, "attention": "eager", **own}


# Every stage and every place of offload, in worlds of 1, 2 and 4.
MAIN = {
    "stage 0": request(LLAMA, {"stage": 0}),
    "stage 1, tied, accumulated": request(GPT2, {"stage": 1, **BUCKETS}, 2),
    "stage 2, tied, overlapped": request(TIED, {"stage": 2, "overlap_comm": True, **BUCKETS}),
    "stage 3": request(LLAMA, STAGE_3),
    "stage 1, optimizer offloaded": request(GPT2, {"stage": 1, "offload_optimizer": CPU, **BUCKETS}),
    "stage 2, optimizer offloaded, accumulated": request(LLAMA, {"stage": 2, "offload_optimizer": CPU, **BUCKETS}, 2),
    "stage 3, optimizer offloaded, accumulated": request(GPT2, {**STAGE_3, "offload_optimizer": CPU}, 2),
    "stage 3, all offloaded": request(
        LLAMA, {**STAGE_3, "offload_optimizer": {**CPU, "pin_memory": True}, "offload_param": CPU}
    ),
}
# Other wrappers, types and ways through the engine, in a world of 2.
MORE = {
    "stage 0, fp16": request(LLAMA, {"stage": 0}, dtype="float16", **FP16),
    "stage 2, fp16": request(LLAMA, {"stage": 2, **BUCKETS}, dtype="float16", **FP16),
    "stage 1, fp32": request(LLAMA, {"stage": 1, **BUCKETS}, dtype="float32", **FP32),
    "stage 3, fp32": request(LLAMA, STAGE_3, dtype="float32", **FP32),
    "stage 1, fp32 gradients": request(LLAMA, {"stage": 1, **BUCKETS}, 2, data_types={"grad_accum_dtype": "fp32"}),
    "stage 2, round robin, clipped": request(
        LLAMA,
        {"stage": 2, "round_robin_gradients": True, "contiguous_gradients": False, **BUCKETS},
        gradient_clipping=1.0,
    ),
    "stage 3, small groups, checkpointed": request(
        LLAMA, {**STAGE_3, "sub_group_size": 20_000}, 2, checkpointing=True, gradient_clipping=1.0
    ),
    "stage 3, a part offloaded": request(
        LLAMA, {**STAGE_3, "sub_group_size": 20_000, "offload_optimizer": {**CPU, "ratio": 0.4}}
    ),
    "stage 3, secondary partitions": request(LLAMA, {**STAGE_3, "zero_hpz_partition_size": 2}),
    "stage 0, adapters that drop": request(LLAMA, {"stage": 0}, method="lora", lora_rank=4, lora_dropout=0.1),
    "stage 2, adapters that drop, checkpointed": request(
        LLAMA, {"stage": 2, **BUCKETS}, method="lora", lora_rank=4, lora_dropout=0.1, checkpointing=True
    ),
    "stage 3, adapters that drop": request(LLAMA, STAGE_3, method="lora", lora_rank=4, lora_dropout=0.1),
    "stage 2, adapters, embedding and head": request(
        LLAMA, {"stage": 2, **BUCKETS}, method="lora", lora_rank=4, lora_train_embeddings=True, checkpointing=True
    ),
    "stage 3, adapters, embedding and head": request(
        LLAMA, {**STAGE_3, "offload_param": CPU}, method="lora", lora_rank=4, lora_train_embeddings=True
    ),
    "stage 2, Liger's kernels": request(LLAMA, {"stage": 2, **BUCKETS}, liger_kernels="0.8.5"),
    "stage 3, Liger's kernels, checkpointed": request(TIED, STAGE_3, liger_kernels="0.4.1", checkpointing=True),
    "stage 3, Liger's kernels, adapters": request(LLAMA, STAGE_3, method="lora", lora_rank=4, liger_kernels="0.4.1"),
    "stage 2, with an encoder": request(T5, {"stage": 2, **BUCKETS}, target_len=5, checkpointing=True),
    "stage 3, with an encoder": request(T5, STAGE_3, 2, target_len=24),
    "stage 1, torch's Adam": request(
        LLAMA, {"stage": 1, **BUCKETS}, optimizer={"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}}
    ),
}


def eight_bits(model: dict[str, Any], zero: dict[str, Any], accumulation: int = 1) -> dict[str, Any]:
    """The program makes bitsandbytes' AdamW8bit: real ranks run the real one, on the CPU."""
    asked = request(model, zero, accumulation, own_optimizer="AdamW8bit", zero_allow_untested_optimizer=True)
    del asked["config"]["optimizer"]
    return asked


MORE |= {
    "stage 0, states in 8 bits": eight_bits(LLAMA, {"stage": 0}),
    "stage 1, states in 8 bits": eight_bits(LLAMA, {"stage": 1, **BUCKETS}, 2),
    "stage 2, states in 8 bits": eight_bits(TIED, {"stage": 2, **BUCKETS}),
    "stage 3, states in 8 bits": eight_bits(LLAMA, STAGE_3),
    "stage 3, states in 8 bits, small groups": eight_bits(LLAMA, {**STAGE_3, "sub_group_size": 20_000}),
}

# AutoTP beside ZeRO: what is split and what is not are cut among different ranks at stage 3.
SPLIT = {"autotp_size": 2}
MORE_OF_4 = {
    "stage 2, split": request(LLAMA, {"stage": 2, **BUCKETS}, tensor_parallel=SPLIT),
    "stage 3, split": request(LLAMA, STAGE_3, 2, tensor_parallel=SPLIT),
    "stage 3, split, tied, checkpointed": request(TIED, STAGE_3, checkpointing=True, tensor_parallel=SPLIT),
}

# (request, world) -> kinds that the CPU holds other bytes of, and why.
DIFFERENCES = {
    ("stage 3, all offloaded", 1): (
        {"gathered parameters"},
        "A world of one gathers with `.to(device)`, which is a copy on a GPU and the parameter itself on the CPU.",
    ),
    ("stage 3, a part offloaded", 2): (
        {"optimizer states", "temporaries"},
        "The part on the GPU is stepped by torch's AdamW, whose state counts its steps in a tensor; the CPU is called "
        "`cpu` as the offloaded part is, so all of it is stepped by DeepSpeed's.",
    ),
}
# Bytes of GPT-2's activations that the CPU does not hold: the mean and the deviation of every LayerNorm (two in each of
# three blocks and a last one) for 2 sequences of 16 tokens are bf16 there and fp32 on a GPU.
LAYER_NORMS = (2 * 3 + 1) * 2 * (2 * 16) * (4 - 2)

# Kinds that the holders name: the engine keeps them from one phase to the next.
KEPT = (
    "weights",
    "fp32 master weights",
    "optimizer states",
    "gradients",
    "communication buckets",
    "offload buffers",
)
# Bytes: `torch.tensor(number)` on the way to the GPU is a storage of the host for a moment.
NUMBERS = 8


def case(name: str, asked: dict[str, Any], world: int, ranks: list[int], **more: Any) -> dict[str, Any]:
    """What the program is asked."""
    return {"name": f"{name}, world {world}", "request": {**asked, "world_size": world}, "ranks": ranks, **more}


CASES = [
    *(case(name, MAIN[name], world, ranks) for name in MAIN for world, ranks in ((1, [0]), (2, [1]), (4, [0, 3]))),
    case("stage 3", MAIN["stage 3"], 3, [0, 2]),  # divides no tensor: the last rank's parts are padded
    *(case(name, MORE[name], 2, [0]) for name in MORE),
    *(case(name, MORE_OF_4[name], 4, [1]) for name in MORE_OF_4),
]
NAMES = [one["name"] for one in CASES]
SILENT = [case(f"silent, {name}", MAIN[name], world, [0], silent=True) for name in list(MAIN)[:4] for world in (1, 4)]
SILENT += [case(f"silent, {name}", MORE[name], 2, [0], silent=True) for name in MORE if "that drop" in name]
WHOLE = [case(f"whole, {name}", MAIN[name], 4, [0], whole=True) for name in MAIN if "stage 3" in name]
WHOLE += [case("whole, stage 3", MAIN["stage 3"], 3, [0], whole=True)]


# name -> rank -> phases, of the real ranks and of the simulated ones
Answers = tuple[dict[str, Any], dict[str, Any]]


@pytest.fixture(scope="module")
def answers(request: pytest.FixtureRequest) -> Answers:
    """Of the cases that are run and of those that they are compared with; both modes run at the same time."""
    names = set(chosen(request))
    likes = {name.removeprefix("silent, ").removeprefix("whole, ") for name in names}
    told = {
        "real": [case for case in (*CASES, *SILENT) if case["name"] in names],
        "simulated": [case for case in (*CASES, *WHOLE) if case["name"] in names | likes],
    }
    running = {}
    for mode, cases in told.items():
        running[mode] = subprocess.Popen(
            [sys.executable, "-W", "ignore", str(PROGRAM), mode],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        pipe = running[mode].stdin
        assert pipe is not None
        with pipe:
            json.dump(cases, pipe)
        running[mode].stdin = None
    found = {mode: ended(process) for mode, process in running.items()}
    return found["real"], found["simulated"]


def ended(process: subprocess.Popen[str]) -> Any:
    """The answers of the program; none where it hangs, so that every case fails at once and no rank is left behind."""
    try:
        return json.loads(process.communicate(timeout=SECONDS)[0] or "{}")
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return {}


def both(phase: dict[str, Any], moment: str) -> dict[str, int]:
    """Bytes by kind of the GPU and the host together."""
    sums: dict[str, int] = {}
    for place in ("gpu", "host"):
        for kind, size in phase[place][f"{moment}_parts"].items():
            sums[kind] = sums.get(kind, 0) + size
    return sums


def less(parts: dict[str, int], name: str) -> dict[str, int]:
    """Parts without those that are known to differ in a case."""
    stem, _, world = name.rpartition(", world ")
    kinds, _ = DIFFERENCES.get((stem, int(world)), (set(), ""))
    return {kind: size for kind, size in parts.items() if kind not in kinds}


def is_gpt2(name: str) -> bool:
    """Whether a case has GPT-2's norms."""
    model = next(one for one in [*CASES, *SILENT] if one["name"] == name)["request"]["model"]
    return bool(model["model_type"] == "gpt2")


def pairs(answers: Answers, name: str, like: str = "") -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """(where, a real phase, the simulated one) of every rank of a case; `like` names it among the simulated ones."""
    real, simulated = answers
    found = []
    for rank in real[name]:
        told = simulated[like or name][rank]
        assert "error" not in real[name][rank], real[name][rank]
        assert "error" not in told, told["error"]
        for one, kept, other in zip(real[name][rank]["phases"], real[name][rank]["held"], told["phases"], strict=True):
            where = f"rank {rank}, {other['phase']} {other['step']}.{other['micro_batch']}"
            assert where == f"rank {rank}, {one['phase']} {one['step']}.{one['micro_batch']}"
            found.append((where, {**one, "held": kept}, other))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_phase_ends_with_the_same_bytes_of_every_kind(name, answers):
    """Every storage that lives, whoever holds it."""
    places = []
    for where, real, simulated in pairs(answers, name):
        ends = [both(one, "end") for one in (real, simulated)]
        if is_gpt2(name) and real["phase"] == "forward":
            ends[0]["activations"] += LAYER_NORMS
        assert (where, less(ends[0], name)) == (where, less(ends[1], name))
        places.append(where.partition(", ")[2])

    assert places[:3] == ["load 0.0", "init 0.0", "forward 1.1"]


@pytest.mark.parametrize("name", NAMES)
def test_the_engine_keeps_what_the_simulation_says(name, answers):
    """The same from the other side: what the attributes of model and engine lead to, in the real ranks only.

    `load` is left out: the weight that tying replaces is in no attribute then and lives until Python collects it.
    """
    phases = [(where, real["held"], both(simulated, "end")) for where, real, simulated in pairs(answers, name)]
    phases = [phase for phase in phases if ", load " not in phase[0]]

    for where, held, ended in phases:
        sides = [{kind: size for kind, size in less(one, name).items() if kind in KEPT} for one in (held, ended)]
        assert (where, sides[0]) == (where, sides[1])
        assert sides[1]["weights"] > 0


@pytest.mark.parametrize("name", NAMES)
def test_the_garbage_collector_finds_what_the_record_says(name, answers):
    """After the last step no tensor lives that the record of a real rank does not have."""
    real, _ = answers

    for rank in real[name].values():
        assert rank["found"] == sum(both(rank["phases"][-1], "end").values())


@pytest.mark.parametrize("name", [one["name"] for one in SILENT])
def test_peaks_of_training_are_the_same(name, answers):
    """Real tensors whose collectives move nothing: what real ones keep besides depends on the moment."""
    training = pairs(answers, name, name.removeprefix("silent, "))
    phases = [pair for pair in training if pair[1]["phase"] not in ("load", "init")]

    for where, real, simulated in phases:
        peaks = [one["gpu"]["peak_bytes"] + one["host"]["peak_bytes"] for one in (real, simulated)]
        norms = LAYER_NORMS if is_gpt2(name) and real["phase"] != "step" else 0
        assert (where, peaks[1]) == (where, pytest.approx(peaks[0] + norms, abs=NUMBERS))
    assert len(phases) >= 6


@pytest.mark.parametrize("name", [one["name"] for one in WHOLE])
def test_shortcuts_change_no_peak(name, answers):
    """shortcuts.py against DeepSpeed's own functions."""
    _, simulated = answers
    whole, shortcut = (simulated[one]["0"] for one in (name, name.removeprefix("whole, ")))

    assert "error" not in whole, whole["error"]
    assert whole["phases"] == shortcut["phases"]
    for place in ("gpu", "host"):
        assert whole["peak"][place]["parts"] == shortcut["peak"][place]["parts"]


def test_every_kind_is_compared(answers):
    """A kind that no case holds would be equal in all of them."""
    names = [name for name in NAMES if name in answers[0]]
    seen = {
        kind for name in names for _, real, _ in pairs(answers, name) for kind, size in real["held"].items() if size
    }

    assert seen >= set(KEPT)


@pytest.mark.parametrize("name", [f"{stem}, world {world}" for stem, world in DIFFERENCES])
def test_differences_are_differences(name, answers):
    """A named difference that is none any more is to be struck out."""
    stem, _, world = name.rpartition(", world ")
    kinds, reason = DIFFERENCES[stem, int(world)]
    ends = [[both(one, "end") for one in pair[1:]] for pair in pairs(answers, name)]

    for kind in kinds:
        assert any(real.get(kind, 0) != simulated.get(kind, 0) for real, simulated in ends), reason
