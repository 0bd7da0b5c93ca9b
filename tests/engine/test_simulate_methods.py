"""Simulated methods of training: adapters, 4-bit bases, checkpointing, a chunked loss, and models of every shape."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import simulations
from ruamel.yaml import YAML

from dsgen.families.hf_config import to_hf_config
from dsgen.families.parameters import lora_parameters
from dsgen.shapes.profiles import Model

pytestmark = pytest.mark.proof

REPOSITORY = Path(__file__).resolve().parents[2]
HIDDEN, FFN, VOCABULARY, LAYERS = 64, 128, 4096, 2
LLAMA = {
    "model_type": "llama",
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": FFN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}
MATRICES = [(HIDDEN, HIDDEN)] * 4 + [(HIDDEN, FFN)] * 3  # of a block
LINEAR = LAYERS * sum(rows * columns for rows, columns in MATRICES)
UNQUANTIZED = 2 * VOCABULARY * HIDDEN + (2 * LAYERS + 1) * HIDDEN  # embedding, head, norms
FREQUENCIES = 2 * 4 * HIDDEN // 4 // 2  # bytes of the rotary embedding's two buffers
TOKENS = 256


def simulate(stage: int, world: int = 1, model: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    config = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": {"stage": stage}}
    config["optimizer"] = {"type": "AdamW", "params": {"lr": 1e-3}}
    config.update(more.pop("config", {}))
    request = {"config": config, "model": model or LLAMA, "world_size": world, "seq_len": TOKENS, **more}
    return simulations.simulate(request)


def phase(found: dict[str, Any], name: str) -> dict[str, Any]:
    """The last phase of a name."""
    assert "error" not in found, found["error"]
    last: dict[str, Any] = [one for one in found["phases"] if one["phase"] == name][-1]
    return last


def adapters(rank: int) -> int:
    return LAYERS * sum(rank * (rows + columns) for rows, columns in MATRICES)


def test_adapters_are_fp32_until_deepspeed_casts_them():
    """peft keeps adapters on a bf16 base in fp32; DeepSpeed's engine casts every weight to the type of its config."""
    found = simulate(0, method="lora", lora_rank=8)

    trained = adapters(8)
    assert found["engine"]["trained"] == trained
    base = 2 * (LINEAR + UNQUANTIZED) + FREQUENCIES
    assert phase(found, "load")["host"]["end_parts"]["weights"] == base + 4 * trained
    end = phase(found, "step")["gpu"]["end_parts"]
    assert end["weights"] == base + 2 * trained
    assert end["fp32 master weights"] == 4 * trained
    assert end["optimizer states"] == 8 * trained


def test_named_targets_alone_are_adapted():
    found = simulate(2, world=2, method="lora", lora_rank=4, lora_targets=["q_proj", "down_proj"], checkpointing=True)

    assert phase(found, "step")
    assert found["engine"]["trained"] == LAYERS * 4 * (2 * HIDDEN + HIDDEN + FFN)


def test_a_dropout_keeps_what_each_adapter_reads_once_more_and_a_mask():
    """Without one the adapters keep the two norms' outputs and the feed-forward product; attention keeps its own.

    Nothing is trained before the first block, so its queries, keys and values get no gradient: they need no mask.
    """
    without, dropping = (simulate(0, method="lora", lora_rank=8, lora_dropout=share) for share in (0.0, 0.05))

    ends = [phase(found, "forward")["gpu"]["end_parts"]["activations"] for found in (without, dropping)]
    read = LAYERS * (6 * HIDDEN + FFN)
    masks = read - 3 * HIDDEN
    once = LAYERS * (2 * HIDDEN + FFN)
    assert ends[1] - ends[0] == TOKENS * (2 * read + masks - 2 * once)
    assert dropping["engine"]["trained"] == without["engine"]["trained"]


@pytest.mark.parametrize("method", ["lora", "qlora"])
def test_embedding_and_head_are_copied_in_the_type_of_the_model_and_the_copies_trained(method):
    """The originals stay. Nothing else of the base is trained, and the first block now asks for all gradients."""
    without, beside = (
        simulate(0, method=method, lora_rank=8, lora_train_embeddings=wanted) for wanted in (False, True)
    )

    copies = 2 * LLAMA["vocab_size"] * HIDDEN
    assert beside["engine"]["trained"] - without["engine"]["trained"] == copies
    ends = [phase(found, "step")["gpu"]["end_parts"] for found in (without, beside)]
    for part, each in (("weights", 2), ("fp32 master weights", 4), ("optimizer states", 8)):
        assert ends[1][part] - ends[0][part] == pytest.approx(each * copies, abs=512), part
    kept = [phase(found, "forward")["gpu"]["end_parts"]["activations"] for found in (without, beside)]
    assert kept[1] > kept[0]


def test_stage_3_refuses_copies_in_16_bits_beside_adapters_in_32():
    """Parameters that wait on the CPU share one type, and fp32 is one type; a tied head is refused before."""
    more = {"method": "lora", "lora_train_embeddings": True}
    told = simulate(3, **more)
    tied = simulate(0, model={**LLAMA, "tie_word_embeddings": True}, **more)

    assert told["error"]["site"].endswith("in defragment")
    assert "tied to its embedding" in tied["error"]["message"]


@pytest.mark.parametrize("stage", [0, 3])
def test_a_4_bit_base_has_half_a_byte_an_element_and_its_scales(stage):
    """One byte of scale for 64 elements, 4 bytes for 256 scales, and 1092 bytes of tables a matrix."""
    found = simulate(stage, method="qlora", lora_rank=8, checkpointing=True)

    trained = adapters(8)
    scales = sum(rows * columns // 64 + 4 * -(-rows * columns // 64 // 256) + 1092 for rows, columns in MATRICES)
    base = LINEAR // 2 + LAYERS * scales
    end = phase(found, "init")["gpu"]["end_parts"]
    assert found["engine"]["parameters"] == LINEAR + UNQUANTIZED + trained
    assert end["weights"] == pytest.approx(base + 2 * (UNQUANTIZED + trained), abs=1024)


def test_without_double_quantization_each_scale_is_fp32():
    """4 bytes of scale for 64 elements, and the 64 bytes of one table a matrix."""
    found = simulate(0, method="qlora", lora_rank=8, checkpointing=True, double_quantization=False)

    scales = sum(4 * (rows * columns // 64) + 64 for rows, columns in MATRICES)
    end = phase(found, "init")["gpu"]["end_parts"]
    base = LINEAR // 2 + LAYERS * scales
    assert end["weights"] == pytest.approx(base + 2 * (UNQUANTIZED + adapters(8)), abs=1024)


@pytest.mark.parametrize(("said", "stage", "lifts"), [("never", 0, False), ("below-3", 3, False), ("below-3", 2, True)])
def test_a_program_may_leave_the_base_in_its_type(said, stage, lifts):
    """What is not in 4 bits is fp32 between load and initialize, or never is; training is the same."""
    found, always = (
        simulate(stage, method="qlora", lora_rank=8, checkpointing=True, kbit_fp32=way) for way in (said, "always")
    )

    peaks = [phase(one, "load")["gpu"]["peak_bytes"] for one in (found, always)]
    beside = 2 * LLAMA["vocab_size"] * HIDDEN - 4 * adapters(8)  # the head in both types, before there are adapters
    assert peaks[1] - peaks[0] == pytest.approx(0 if lifts else 2 * UNQUANTIZED + beside, abs=4 * 256 * HIDDEN)
    for name in ("forward", "backward", "step"):
        assert phase(found, name)["gpu"]["end_bytes"] == phase(always, name)["gpu"]["end_bytes"], name


def test_a_4_bit_matrix_is_whole_in_16_bits_while_it_is_used():
    wide = {**LLAMA, "vocab_size": 256, "intermediate_size": 8192}
    found = simulate(0, model=wide, method="qlora", lora_targets=["q_proj"], seq_len=8, steps=1)

    for name in ("forward", "backward"):
        assert phase(found, name)["gpu"]["peak_parts"]["temporaries"] >= 2 * 8192 * HIDDEN


def test_deepspeeds_checkpointing_keeps_less_than_none():
    kept = {
        kind: phase(simulate(1, checkpointing=kind, chunked_loss=True), "forward")["gpu"]["end_parts"]["activations"]
        for kind in (False, True, "deepspeed")
    }

    assert kept["deepspeed"] < kept[False] / 2
    assert kept["deepspeed"] == pytest.approx(kept[True], rel=0.1)


@pytest.mark.parametrize(
    "more",
    [{}, {"partition_activations": True, "contiguous_memory_optimization": True, "number_checkpoints": LAYERS}],
)
def test_checkpoints_on_the_host_are_there_and_not_on_the_gpu(more):
    section = {"cpu_checkpointing": True, **more}
    found = simulate(1, config={"activation_checkpointing": section}, checkpointing="deepspeed")

    block = 2 * TOKENS * HIDDEN
    assert phase(found, "forward")["host"]["end_parts"]["activations"] >= (LAYERS - (0 if more else 1)) * block


def test_a_chunked_loss_never_holds_all_logits():
    """ceil(4096 / 64) = 64 chunks of 4 tokens; the gradient of the head is there when forward ends."""
    whole, chunked = (simulate(1, chunked_loss=chunks, steps=1) for chunks in (False, True))

    logits = 2 * TOKENS * VOCABULARY
    assert phase(whole, "forward")["gpu"]["peak_parts"]["logits and loss"] >= 3 * logits
    head = 2 * VOCABULARY * HIDDEN
    assert phase(chunked, "forward")["gpu"]["end_parts"]["gradients"] == head
    # The head's gradient of one chunk in bf16 and fp32, logits of 4 tokens, the hidden states' gradient, losses, mask.
    most = 3 * head + 2 * 4 * VOCABULARY + 2 * TOKENS * HIDDEN + (4 + 1) * TOKENS
    assert phase(chunked, "forward")["gpu"]["peak_parts"]["logits and loss"] <= most


@pytest.mark.parametrize(
    ("liger", "chunks"),
    [
        ("0.3.0", 4 + 2 + 2),  # fp32, narrow again, and the gradient of the chunk before
        ("0.5.0", 2 + 2 + 2),  # logits, their gradient, and that of the chunk before
        ("0.5.6", 2 + 2),  # logits, and those of the chunk before
    ],
)
def test_a_chunked_loss_is_that_of_an_older_liger(liger, chunks):
    """What the loops of its wheels hold on the CPU: the head's gradient is added to where it is kept."""
    older = {"upcast": "loss", "shifted": False, "liger": liger}
    found = simulate(1, chunked_loss=True, older_loss=older, steps=1)

    held = 2 * TOKENS * HIDDEN + 4 * TOKENS + chunks * 4 * VOCABULARY
    assert phase(found, "forward")["gpu"]["end_parts"]["gradients"] == 2 * VOCABULARY * HIDDEN
    assert phase(found, "forward")["gpu"]["peak_parts"]["logits and loss"] == pytest.approx(held, rel=0.02)


@pytest.mark.parametrize(
    ("upcast", "shifted", "forward"),
    [
        ("loss", False, 2 + 4 + 4),  # bf16 of the model, fp32 of the loss, log-softmax
        ("loss", True, 2 + 4 + 4 + 4),  # and a copy without the last token
        ("model", True, 4 + 4 + 4),
        ("none", True, 2 + 2 + 2),
    ],
)
def test_losses_of_older_transformers_hold_as_many_copies_of_the_logits(upcast, shifted, forward):
    older = {"upcast": upcast, "shifted": shifted}
    found = simulate(0, config={"train_micro_batch_size_per_gpu": 2}, older_loss=older, steps=1)

    logits = 2 * TOKENS * VOCABULARY
    assert phase(found, "forward")["gpu"]["peak_parts"]["logits and loss"] == pytest.approx(forward * logits, rel=0.01)


def test_stage_3_gathers_the_head_for_a_chunked_loss():
    found = simulate(3, world=4, chunked_loss=True)

    head = 2 * VOCABULARY * HIDDEN
    assert phase(found, "forward")["gpu"]["peak_parts"]["gathered parameters"] >= head
    assert phase(found, "step")["gpu"]["end_parts"].get("gathered parameters", 0) < head


def profile(name: str) -> dict[str, Any]:
    """The facts of a built-in profile, with few layers."""
    sheet = YAML(typ="safe").load((REPOSITORY / "profiles" / "model" / f"{name}.yaml").read_text(encoding="utf-8"))
    return {**sheet["model"], "layers": LAYERS, **({"dense_layers": 1} if "dense_layers" in sheet["model"] else {})}


# A profile of every kind of model that needs something of its own.
KINDS = ("bloom-560m", "deepseek-v3", "falcon-7b", "gemma-3-1b", "gpt-j-6b")


@pytest.mark.parametrize("name", KINDS)
def test_models_of_every_kind_are_simulated(name):
    found = simulate(3, world=8, model=to_hf_config(profile(name)), steps=1)

    assert phase(found, "step")
    assert found["engine"]["attention"] == ("eager" if name == "bloom-560m" else "fused")  # it has no other


_COUNT = """
import json, sys, torch, peft
from transformers import AutoConfig, AutoModelForCausalLM
found = {}
for name, (config, targets) in json.load(sys.stdin).items():
    ids = {"pad_token_id": None, "bos_token_id": None, "eos_token_id": None}
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(config.pop("model_type"), **{**ids, **config}))
    lora = peft.LoraConfig(r=16, target_modules=targets, task_type="CAUSAL_LM")
    model = peft.get_peft_model(model, lora, low_cpu_mem_usage=True)
    found[name] = sum(one.numel() for one in model.parameters() if one.requires_grad)
json.dump(found, sys.stdout)
"""
ADAPTED = {
    "llama-3.2-1b": "q_proj",
    "qwen2.5-0.5b": "k_proj",
    "mistral-7b": "gate_proj",
    "gemma-2-2b": "o_proj",
    "gpt2": "c_attn",
    "phi-3-mini": "qkv_proj",
    "mixtral-8x7b": "v_proj",
    "falcon-7b": "query_key_value",
    "bloom-560m": "dense_4h_to_h",
    "opt-125m": "fc1",
    "pythia-6.9b": "dense",
    "deepseek-v3": "kv_b_proj",
}
MIXTURES = (
    "deepseek-v3",
    "gpt-oss-120b",
    "gpt-oss-20b",
    "mixtral-8x22b",
    "mixtral-8x7b",
    "qwen3-235b-a22b",
    "qwen3-30b-a3b",
)
# Names of experts and routers that peft still takes, with linear layers and without.
FUSED = (
    ("mixtral-8x7b", ("gate", "q_proj")),
    ("mixtral-8x7b", ("w1", "w2", "w3")),
    ("qwen3-30b-a3b", ("gate_proj", "up_proj", "down_proj")),
    ("qwen3-30b-a3b", ("down_proj", "self_attn.q_proj")),
    ("deepseek-v3", ("down_proj",)),
    ("deepseek-v3", ("shared_experts.gate_proj", "up_proj", "q_b_proj")),
)


def peft_counts(cases: dict[str, tuple[dict[str, Any], tuple[str, ...]]]) -> dict[str, int]:
    """Elements that peft trains, for models and the targets of each."""
    asked = {
        case: (to_hf_config(facts), "all-linear" if targets == ("all-linear",) else targets)
        for case, (facts, targets) in cases.items()
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _COUNT],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    counts: dict[str, int] = json.loads(done.stdout)
    return counts


def test_adapters_have_as_many_elements_as_peft_makes():
    """`lora_parameters` against peft's own adapters, for all matrices and for one of every model."""
    every = [(name, targets) for name, one in ADAPTED.items() for targets in (("all-linear",), (one,))]
    cases = {f"{name} {targets}": (profile(name), targets) for name, targets in every}
    mine = {case: lora_parameters(Model(**facts), 16, targets) for case, (facts, targets) in cases.items()}
    assert mine == peft_counts(cases)


def test_adapters_of_experts_and_routers_have_as_many_elements_as_peft_makes():
    """peft adapts the grouped experts of transformers 5 as well, but where it does not know the model type."""
    every = [*((name, ("all-linear",)) for name in MIXTURES), *FUSED]
    cases = {f"{name} {targets}": (profile(name), targets) for name, targets in every}
    mine = {case: lora_parameters(Model(**facts), 16, targets) for case, (facts, targets) in cases.items()}
    assert mine == peft_counts(cases)


@pytest.mark.parametrize("stage", [1, 3])
def test_automatic_tensor_parallelism_halves_a_rank(stage):
    """The head and, with tied embeddings, the embedding are cut too; norms are not."""
    tied = {**LLAMA, "tie_word_embeddings": True}
    found = simulate(stage, world=2, model=tied, config={"tensor_parallel": {"autotp_size": 2}})

    matrices = LINEAR + VOCABULARY * HIDDEN
    assert phase(found, "step")["gpu"]["end_parts"]["weights"] == pytest.approx(matrices, rel=0.01)


FALCON = {
    "model_type": "falcon",
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_kv_heads": 2,
    "new_decoder_architecture": True,
    "alibi": False,
}
MIXTRAL = {
    "model_type": "mixtral",
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": FFN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
}


@pytest.mark.parametrize("stage", [1, 3])
def test_a_block_that_indexes_with_a_list_is_recomputed(stage):
    """The list becomes a tensor in C++, in the thread of backward, where the device has no kernels."""
    kept = simulate(stage, world=2, model=FALCON, steps=1)
    recomputed = simulate(stage, world=2, model=FALCON, steps=1, checkpointing=True)

    forward = [phase(found, "forward")["gpu"]["end_parts"]["activations"] for found in (kept, recomputed)]
    assert forward[1] < forward[0] / 2
    assert phase(recomputed, "step")


@pytest.mark.parametrize(("dtype", "size"), [("bfloat16", 2), ("float16", 2), ("float32", 4)])
def test_experts_are_multiplied_in_every_type_that_cuda_takes(dtype, size):
    own = {"bf16": {"enabled": dtype == "bfloat16"}, "fp16": {"enabled": dtype == "float16"}}
    found = simulate(0, model=MIXTRAL, dtype=dtype, config=own, steps=1)

    inner = size * 2 * TOKENS * 2 * FFN  # gate and up of every token's two experts
    most = [one for one in found["peak"]["gpu"]["largest"] if one["operator"] == "aten._grouped_mm.default"]
    assert phase(found, "step")
    assert inner in {one["each_bytes"] for one in most}


def test_lamb_keeps_two_moments_of_every_weight():
    found = simulate(0, config={"optimizer": {"type": "Lamb", "params": {"lr": 1e-3}}})

    assert found["engine"]["optimizer"] == "FusedLamb"
    assert phase(found, "step")["gpu"]["end_parts"]["optimizer states"] == 8 * (LINEAR + UNQUANTIZED)


def test_lion_keeps_a_moment_on_the_gpu_and_two_on_the_cpu():
    """DeepSpeedCPULion makes a second one of zeros, which nothing reads; memory.states counts it."""
    lion = {"optimizer": {"type": "Lion", "params": {"lr": 1e-3}}}
    away = {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}
    near, far = simulate(2, config=lion), simulate(2, config={**lion, **away})

    assert (near["engine"]["optimizer"], far["engine"]["optimizer"]) == ("FusedLion", "DeepSpeedCPULion")
    one = phase(near, "step")["gpu"]["end_parts"]["optimizer states"]
    assert one == 4 * (LINEAR + UNQUANTIZED)
    assert phase(far, "step")["host"]["end_parts"]["optimizer states"] == 2 * one


def moved(found: dict[str, Any], name: str, kind: str) -> dict[int, int]:
    """Bytes of a rank's collectives of a kind in a phase, by the number of ranks that take part."""
    assert "error" not in found, found["error"]
    sums: dict[int, int] = {}
    for one in found["collectives"]:
        if (one["phase"], one["kind"]) == (name, kind):
            sums[one["ranks"]] = sums.get(one["ranks"], 0) + one["bytes"] * one["count"]
    return sums


@pytest.mark.parametrize(
    ("world", "more", "ranks"),
    [(2, {}, 2), (2, {"offload_param": {"device": "cpu"}}, 2), (4, {"zero_hpz_partition_size": 2}, 2)],
    ids=["on the GPU", "offloaded", "of a second partition"],
)
def test_quantized_weights_are_gathered_in_8_bits(world, more, ranks):
    """ZeRO++: a byte for an element, and a scale for every group; forward and backward gather, the step does not."""
    whole, packed = (
        simulate(3, world, config={"zero_optimization": {"stage": 3, "zero_quantized_weights": quantized, **more}})
        for quantized in (False, True)
    )

    for name in ("forward", "backward"):
        before, after = moved(whole, name, "all-gather")[ranks], moved(packed, name, "all-gather")[ranks]
        assert before / 2 < after < 1.01 * before / 2
    assert moved(packed, "step", "all-gather") == moved(whole, "step", "all-gather")


def test_quantized_gradients_are_reduced_in_4_bits_in_a_node_and_then_among_nodes():
    """ZeRO++: half a byte for an element among the 8 of a node, an eighth of that among 2 nodes; norms go whole."""
    config = {"zero_optimization": {"stage": 3, "zero_quantized_gradients": True}}
    found = simulate(3, 16, config=config, steps=1)

    sent = moved(found, "backward", "all-to-all")
    elements = LINEAR + 2 * VOCABULARY * HIDDEN
    assert elements / 2 < sent[8] < 1.15 * elements / 2  # with the scales of its groups
    assert sent[2] == sent[8] / 8
    assert moved(found, "backward", "reduce-scatter") == {16: 2 * (2 * LAYERS + 1) * HIDDEN}


def test_an_error_of_a_hook_in_backward_is_told():
    """torch's C++ ends the process where the device cannot be left while an error waits."""
    program = """
import os
import torch
from dsgen.engine.simulate import devices

def fail(gradient):
    raise ValueError("a hook has failed")

devices.register()
with devices.fake_mode():
    weight = torch.ones(2, device=devices.NAME, requires_grad=True)
    product = weight * 2
    product.register_hook(fail)
    try:
        with devices.telling():
            product.sum().backward()
    except ValueError as error:
        print(error, flush=True)
os._exit(0)  # as the child does: nothing is torn down
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=REPOSITORY, timeout=300, check=False
    )

    assert done.stdout == "a hook has failed\n", done.stderr[-500:]
    assert done.returncode == 0


def test_optimizers_of_torch_update_all_tensors_at_once():
    """As on CUDA: the root of the second moments is divided in place; one tensor at a time there would be two."""
    optimizer = {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}}
    found = simulate(1, config={"optimizer": optimizer}, steps=1)

    root = 4 * found["engine"]["parameters"]
    assert root <= phase(found, "step")["gpu"]["peak_parts"]["temporaries"] < root + 1024


@pytest.mark.parametrize(
    ("model", "more", "words"),
    [
        ({"model_type": "own", "auto_map": {"AutoModel": "x.Y"}}, {}, "code of the model's folder, which is never run"),
        ({"model_type": "own"}, {}, "transformers has no model_type 'own'"),
        ({"model_type": "vit"}, {}, "no causal language model for model_type 'vit'"),
        ({"model_type": "bert", "num_hidden_layers": 1}, {}, "is an encoder"),
        ({**LLAMA, "hidden_size": 66}, {}, "66"),
        (LLAMA, {"method": "lora", "lora_targets": ["nowhere"]}, "nowhere"),
        (LLAMA, {"target_len": 8}, "target_len is 8; it must be left out where a model is a decoder alone"),
        (
            {**LLAMA, "model_type": "mixtral"},
            {"method": "lora", "lora_dropout": 0.1},
            "does not work with lora_dropout",
        ),
    ],
)
def test_what_cannot_be_trained_is_told(model, more, words):
    found = simulate(0, model=model, **more)

    assert words in found["error"]["message"]
    assert set(found["error"]) == {"type", "message", "site", "phase"}
