"""What activations take, measured on the simulation and how far `dsgen.memory.activations` is off.

`python benchmarks/activations.py measure` (with torch, DeepSpeed and transformers) fills tests/memory/activations.json,
a few minutes; with names of cases it measures those again. `python benchmarks/activations.py compare` needs neither of
them: it prints the worst error of every model type and the worst ten cases.

A case is run at stage 2 on 8 ranks with SGD, one step. Counted are activations, logits and temporaries, and the weight
gradients that autograd has made and not handed over; not what DeepSpeed itself makes.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

TABLE = Path(__file__).parent.parent / "tests" / "memory" / "activations.json"
PACKAGES = ("deepspeed", "torch", "transformers", "peft")
COUNTED = ("activations", "logits and loss", "temporaries", "gradients")
# What DeepSpeed makes there is the model's: the layers of AutoTP, and the linear product of stage 3.
LAYERS = ("deepspeed/module_inject/", "deepspeed/runtime/zero/linear.py")
NUMBERS = ("kept", "kept_logits", "forward", "backward", "backward_blocks")

_LLAMA = {
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "num_hidden_layers": 3,
    "vocab_size": 32000,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
}
_GPT = {"vocab_size": 50257, "n_positions": 8192, "n_embd": 1024, "n_layer": 3, "n_head": 16}
_GEMMA = {**_LLAMA, "head_dim": 128, "vocab_size": 64000, "tie_word_embeddings": True}
_MOE = {"num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 512}
_T5 = {"d_model": 1024, "d_kv": 64, "d_ff": 2816, "num_heads": 16, "num_layers": 3, "vocab_size": 32128}
_SHARED = {"shared_expert_intermediate_size": 1024}
MODELS: dict[str, dict[str, Any]] = {
    "bloom": {"hidden_size": 1024, "n_layer": 3, "n_head": 16, "vocab_size": 50000},
    "cohere": {**_LLAMA, "tie_word_embeddings": True},
    "deepseek_v2": {
        **_LLAMA,
        "num_key_value_heads": 16,
        "num_hidden_layers": 4,
        "first_k_dense_replace": 2,
        "n_routed_experts": 16,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 512,
        "n_shared_experts": 2,
        "topk_method": "group_limited_greedy",
        "n_group": 4,
        "topk_group": 2,
        "q_lora_rank": 384,
        "kv_lora_rank": 128,
        "qk_rope_head_dim": 32,
        "qk_nope_head_dim": 64,
        "v_head_dim": 64,
    },
    "deepseek_v3": {
        **_LLAMA,
        "num_key_value_heads": 16,
        "num_hidden_layers": 4,
        "first_k_dense_replace": 2,
        "n_routed_experts": 16,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 512,
        "n_shared_experts": 1,
        "n_group": 4,
        "topk_group": 2,
        "q_lora_rank": 384,
        "kv_lora_rank": 128,
        "qk_rope_head_dim": 32,
        "qk_nope_head_dim": 64,
        "v_head_dim": 64,
    },
    "falcon": {
        "hidden_size": 1024,
        "num_hidden_layers": 3,
        "num_attention_heads": 16,
        "vocab_size": 50000,
        "multi_query": True,
        "parallel_attn": True,
        "bias": False,
        "new_decoder_architecture": False,
    },
    "falcon-new": {
        "hidden_size": 1024,
        "num_hidden_layers": 3,
        "num_attention_heads": 16,
        "num_kv_heads": 4,
        "vocab_size": 50000,
        "parallel_attn": True,
        "bias": False,
        "new_decoder_architecture": True,
    },
    "gemma": _GEMMA,
    "gemma2": {**_GEMMA, "sliding_window": 1024, "query_pre_attn_scalar": 128},
    "gemma3_text": {**_GEMMA, "num_hidden_layers": 6, "sliding_window": 512, "query_pre_attn_scalar": 128},
    "glm4": _LLAMA,
    "glm4_moe": {
        **_LLAMA,
        "head_dim": 128,
        "num_hidden_layers": 4,
        "first_k_dense_replace": 2,
        "attention_bias": True,
        "use_qk_norm": True,
        "n_routed_experts": 16,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 512,
        "n_shared_experts": 1,
    },
    "gpt2": _GPT,
    "gpt_bigcode": _GPT,
    "gpt_neox": {
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 3,
        "num_attention_heads": 16,
        "vocab_size": 50432,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": False,
    },
    "gpt_oss": {
        **_LLAMA,
        "head_dim": 64,
        "intermediate_size": 1024,
        "num_local_experts": 16,
        "num_experts_per_tok": 4,
        "sliding_window": 128,
    },
    "gptj": {**_GPT, "rotary_dim": 64, "vocab_size": 50400, "tie_word_embeddings": False},
    "granite": {**_LLAMA, "residual_multiplier": 0.22, "logits_scaling": 8.0, "embedding_multiplier": 12.0},
    "granitemoe": {**_LLAMA, "intermediate_size": 512, "num_local_experts": 16, "num_experts_per_tok": 4},
    "llama": _LLAMA,
    "llama-bias": {**_LLAMA, "attention_bias": True, "mlp_bias": True, "num_key_value_heads": 16},
    "ministral3": {**_LLAMA, "head_dim": 96},
    "mistral": {**_LLAMA, "sliding_window": 4096},
    "mixtral": {**_LLAMA, "num_local_experts": 8, "num_experts_per_tok": 2},
    "mt5": {**_T5, "vocab_size": 50048},
    "olmoe": {**_LLAMA, "intermediate_size": 512, "num_experts": 16, "num_experts_per_tok": 4},
    "opt": {
        "hidden_size": 1024,
        "ffn_dim": 4096,
        "num_hidden_layers": 3,
        "num_attention_heads": 16,
        "vocab_size": 50272,
        "max_position_embeddings": 8192,
        "word_embed_proj_dim": 1024,
        "do_layer_norm_before": True,
    },
    "opt-350m": {
        "hidden_size": 1024,
        "ffn_dim": 4096,
        "num_hidden_layers": 3,
        "num_attention_heads": 16,
        "vocab_size": 50272,
        "max_position_embeddings": 8192,
        "word_embed_proj_dim": 512,
        "do_layer_norm_before": False,
    },
    "olmo2": _LLAMA,
    "phi": {**_LLAMA, "num_key_value_heads": 16, "head_dim": 64},
    "phi3": {**_LLAMA, "pad_token_id": None},
    "qwen2": _LLAMA,
    "qwen2_moe": {**_LLAMA, "num_hidden_layers": 4, "mlp_only_layers": [0, 1], **_MOE, **_SHARED},
    "qwen3": {**_LLAMA, "head_dim": 128},
    "qwen3_moe": {**_LLAMA, "head_dim": 128, **_MOE},
    "smollm3": {**_LLAMA, "num_hidden_layers": 6},
    "stablelm": {**_LLAMA, "num_key_value_heads": 16},
    "starcoder2": {**_LLAMA, "sliding_window": 4096},
    "starcoder2-dropout": {
        **_LLAMA,
        **dict.fromkeys(("attention_dropout", "embedding_dropout", "residual_dropout"), 0.1),
    },
    "t5": _T5,
    "t5-gated": {
        **_T5,
        "num_decoder_layers": 4,
        "feed_forward_proj": "gated-gelu",
        "dropout_rate": 0.0,
        "tie_word_embeddings": False,
    },
}
MODELS = {name: {**config, "model_type": name.partition("-")[0]} for name, config in MODELS.items()}

# precision, attention, tp, method, checkpointing, micro-batch, tokens, chunked loss
_RUNS = (
    ("bf16", "flash", 1, "full", False, 1, 2048, False),
    ("bf16", "flash", 1, "full", True, 1, 2048, False),
    ("bf16", "flash", 1, "full", False, 4, 512, False),
    ("bf16", "flash", 1, "full", True, 4, 512, False),
    ("bf16", "flash", 1, "full", False, 4, 8192, False),
    ("bf16", "flash", 1, "full", True, 4, 8192, False),
    ("fp32", "flash", 1, "full", False, 1, 2048, False),
    ("fp32", "flash", 1, "full", True, 4, 512, False),
    ("bf16", "sdpa", 1, "full", False, 1, 2048, False),
    ("bf16", "sdpa", 1, "full", True, 4, 2048, False),
    ("bf16", "eager", 1, "full", False, 1, 2048, False),
    ("bf16", "eager", 1, "full", False, 4, 512, False),
    ("bf16", "eager", 1, "full", True, 1, 8192, False),
    ("fp32", "eager", 1, "full", False, 1, 2048, False),
)
# What the simulation cannot run: torch's grouped_mm knows bf16 alone on a device of its own, and torch's engine ends
# with a crash in Falcon's `+=` under checkpointing.
_ONLY_16_BIT = (
    "deepseek_v2",
    "deepseek_v3",
    "glm4_moe",
    "gpt_oss",
    "granitemoe",
    "mixtral",
    "olmoe",
    "qwen2_moe",
    "qwen3_moe",
)
_ENDS = ("falcon", "falcon-new")

_BIASED = ("mt5", "t5", "t5-gated")  # with position biases that a fused attention would read

# The same, for some models only.
_MORE = (
    ("bf16", "flash", 2, "full", False, 1, 2048, False),
    ("bf16", "flash", 4, "full", True, 4, 512, False),
    ("bf16", "flash", 1, "lora", False, 1, 2048, False),
    ("bf16", "flash", 1, "lora", True, 4, 512, False),
    ("bf16", "flash", 1, "qlora", False, 1, 2048, False),
    ("bf16", "flash", 1, "qlora", True, 4, 512, False),
    ("bf16", "flash", 1, "full", False, 1, 2048, True),
    ("bf16", "flash", 1, "full", True, 4, 2048, True),
    ("bf16", "flash", 1, "lora", False, 4, 512, True),
)
_WITH_MORE = ("gpt_neox", "llama", "qwen3")
# With few targets, where what lies between encoder and decoder can be the highest of forward.
_SHORT = (
    ("bf16", "eager", 1, "full", False, 1, 512, False, 1),
    ("bf16", "eager", 1, "full", True, 1, 512, False, 1),
)
_WITH_SHORT = ("t5",)
# With Liger's SwiGLU or GeGLU, norms and RoPE, as of the releases that changed them; Mistral's are Llama's.
_WITH_LIGER = {
    "gemma": ("0.8.5",),
    "gemma2": ("0.8.5",),
    "llama": ("0.4.1", "0.8.5"),
    "qwen2": ("0.8.5",),
    "qwen3": ("0.4.1", "0.8.5"),
}
FIELDS = (
    "precision", "attention", "tp", "method", "checkpointing", "micro_batch", "seq_len", "chunked_loss", "target_len",
)  # fmt: skip


def cases() -> dict[str, dict[str, Any]]:
    """Every case by its name."""
    found = {}
    for model in MODELS:
        more = (*(_MORE if model in _WITH_MORE else ()), *(_SHORT if model in _WITH_SHORT else ()))
        for run in (*_RUNS, *more):
            case = {"model": model, **dict(zip(FIELDS, run, strict=False))}  # only some say the target's length
            refused = model in _ONLY_16_BIT and case["precision"] == "fp32"
            refused = refused or (model in _BIASED and case["attention"] == "sdpa")
            if not refused and not (model in _ENDS and case["checkpointing"]):
                found["/".join(str(part) for part in case.values())] = case
                for release in _WITH_LIGER.get(model, ()):
                    with_kernels = {**case, "liger_kernels": release}
                    found["/".join(str(part) for part in with_kernels.values())] = with_kernels
    return found


def request(case: dict[str, Any]) -> dict[str, Any]:
    """The simulation's request of a case."""
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": case["micro_batch"],
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {"stage": 2},
        "optimizer": {"type": "SGD", "params": {"lr": 1e-3}},
    }
    if case["precision"] != "fp32":
        config[case["precision"]] = {"enabled": True}
    if case["tp"] > 1:
        config["tensor_parallel"] = {"autotp_size": case["tp"]}
    asked = {
        "config": config,
        "model": MODELS[case["model"]],
        "world_size": 8,
        "seq_len": case["seq_len"],
        "steps": 1,
        "dtype": {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}[case["precision"]],
        "attention": case["attention"],
        "checkpointing": case["checkpointing"],
    }
    if case["method"] != "full":
        asked["method"] = case["method"]
    if case["chunked_loss"]:
        asked["chunked_loss"] = True
    asked |= {name: case[name] for name in ("target_len", "liger_kernels") if name in case}
    return asked


def measure(case: dict[str, Any]) -> dict[str, int]:
    """The simulated numbers of a case, in bytes."""
    from dsgen.engine.simulate import requests, runs
    from dsgen.engine.simulate.ledger import GPU

    versions = {name: metadata.version(name) for name in PACKAGES}
    ledger, _, _ = runs.run(requests.filled(request(case)), versions, {"phase": "load"})

    def kind(number: int) -> str | None:
        name = ledger.kind(number)
        site = ledger.descriptions[ledger.notes[number]][1]
        own = (
            ledger.places[number] == GPU
            and name in COUNTED
            and (not site.startswith("deepspeed/") or site.startswith(LAYERS))
        )
        return name if own else None

    found: dict[str, int] = {}
    sums, begin = dict.fromkeys(COUNTED, 0), 0
    for phase, _, _, until in ledger.marks:
        base = dict(sums)
        top = blocks = 0
        gradient_made = False
        for code in ledger.events[begin:until]:
            number = abs(code) - 1
            name = kind(number) if code else None
            if name is None:
                continue
            sums[name] += ledger.sizes[number] if code > 0 else -ledger.sizes[number]
            gradient_made = gradient_made or name == "gradients"
            total = sum(sums.values())
            top = max(top, total)
            if code > 0 and gradient_made and not sums["logits and loss"]:
                blocks = max(blocks, total)
        begin = until
        if phase == "forward":
            before = base["activations"] + base["temporaries"] + base["gradients"]
            found |= {
                "kept": sums["activations"] - base["activations"],
                "kept_logits": sums["logits and loss"],
                "forward": top - before,
            }
        elif phase == "backward":
            found |= {"backward": top - before, "backward_blocks": blocks - before}
    return found


def _measure_all(names: list[str]) -> None:
    """Measure cases, each in a fork of one process that has loaded the libraries."""
    import torch
    import transformers.modeling_utils  # noqa: F401 - every fork needs it

    torch.set_num_threads(1)
    table = json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else {"cases": {}}
    table["versions"] = {name: metadata.version(name) for name in PACKAGES}
    wanted = cases()
    table["cases"] = {name: row for name, row in table["cases"].items() if name in wanted}
    for name, case in wanted.items():
        asked = name in names or case["model"] in names
        if not asked and (names or name in table["cases"]):
            continue
        answer = _in_a_fork(case)
        if isinstance(answer, str):
            print(f"{name}: {answer}", file=sys.stderr)
            continue
        table["cases"][name] = [answer[number] for number in NUMBERS]
        _write(table)


def _in_a_fork(case: dict[str, Any]) -> Any:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        try:
            answer: Any = measure(case)
        except BaseException as error:  # the child's end is the answer
            answer = f"{type(error).__name__}: {error}"
        with os.fdopen(writing, "w") as file:
            json.dump(answer, file)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        text = file.read()
    os.waitpid(child, 0)
    return json.loads(text or '"died"')


def _write(table: dict[str, Any]) -> None:
    rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in sorted(table["cases"].items()))
    versions = json.dumps(table["versions"])
    TABLE.write_text(f'{{\n "versions": {versions},\n "cases": {{\n{rows}\n }}\n}}\n', encoding="utf-8")


def predicted(case: dict[str, Any]) -> dict[str, int]:
    """The numbers of a case as `dsgen.memory.activations` has them."""
    import attrs

    from dsgen.families.hf_config import model_from_hf
    from dsgen.memory.activations import activations
    from dsgen.shapes.profiles import Model, yaml_name

    facts = model_from_hf(MODELS[case["model"]], "config.json")
    model = Model(**{field.name: facts[yaml_name(field.name)] for field in attrs.fields(Model) if field.name in facts})
    model = attrs.evolve(model, liger_kernels=case.get("liger_kernels", ""))
    asked = {name: case[name] for name in FIELDS if name != "micro_batch" and name in case}
    batch = case["micro_batch"]
    found = activations(model, **asked, single=batch == 1)
    return {
        "kept": found.kept[0] + batch * found.kept[1],
        "kept_logits": found.kept_logits[0] + batch * found.kept_logits[1],
        "forward": max(moment.total(batch) for moment in found.forward),
        "backward": max(moment.total(batch) for moment in found.backward),
        "backward_blocks": max(
            moment.total(batch)
            for moment in found.backward
            if moment.logits == (0, 0) and (moment.gradients or moment.fresh)
        ),
    }


def errors() -> dict[str, dict[str, float]]:
    """Signed error of every number of every measured case: predicted / simulated - 1."""
    wanted = cases()
    found = {}
    for name, row in json.loads(TABLE.read_text(encoding="utf-8"))["cases"].items():
        told = predicted(wanted[name])
        found[name] = {
            number: told[number] / simulated - 1 if simulated else float(told[number] != 0)
            for number, simulated in zip(NUMBERS, row, strict=True)
        }
    return found


def _compare() -> None:
    found = errors()
    worst: dict[str, tuple[float, str]] = {}
    flat = []
    for name, row in found.items():
        for number, error in row.items():
            flat.append((abs(error), error, name, number))
            model = name.partition("/")[0]
            worst[model] = max(worst.get(model, (0.0, "")), (abs(error), f"{error:+.2%} {number} of {name}"))
    print("worst of every model:")
    for model, (_, text) in sorted(worst.items()):
        print(f"  {model:12} {text}")
    print("worst ten:")
    for _, error, name, number in sorted(flat, reverse=True)[:10]:
        print(f"  {error:+8.2%} {number:16} {name}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        os.environ.update(HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1", DS_ACCELERATOR="cpu")
        _measure_all(sys.argv[2:])
    else:
        _compare()
