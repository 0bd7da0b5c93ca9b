"""Simulations without DeepSpeed: requests, what the program fills in, answers with limits, words about errors."""

from __future__ import annotations

import copy
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import attrs
import pytest
from simulated import ANSWER, CONFIG, GIB, MODEL, answering, asked, interpreter, refusal

import dsgen
from dsgen import simulating
from dsgen.memory import Verdict
from dsgen.memory.limits import RANK_PROCESS_BYTES
from dsgen.memory.overheads import overhead
from dsgen.report import simulation as simulation_report
from dsgen.shapes.errors import DsgenError
from dsgen.shapes.profiles import Hardware
from dsgen.simulating import Options, Request, Simulation, from_config, from_rendered, hardware_of
from dsgen.simulating.durations import divided


def hardware(**changes: Any) -> Hardware:
    return attrs.evolve(hardware_of(dsgen.profile("a100-40g").layers), **changes)


def request(config: dict[str, Any] | None = None, **more: Any) -> Request:
    return from_config(CONFIG if config is None else config, **{"model": MODEL, "world_size": 16, **more})


def simulated(folder: Path, answer: Any = ANSWER, **more: Any) -> Simulation:
    return simulating.simulate(request(**more), python=answering(folder, answer))


def test_a_rendered_config_is_asked_with_what_its_plan_says() -> None:
    layers = dsgen.profile("a100-40g") | dsgen.profile("7b") | {"training": {"zero_stage": 3, "seq_len": 2048}}
    rendered = dsgen.render(layers)

    engine = from_rendered(rendered, Options(rank=5, steps=1)).to_engine()

    chosen = rendered.plan.chosen.strategy
    assert engine["config"] == rendered.to_dict()
    assert (engine["world_size"], engine["gpus_per_node"], engine["rank"], engine["steps"]) == (8, 8, 5, 1)
    assert (engine["seq_len"], engine["dtype"], engine["attention"]) == (2048, "bfloat16", "flash")
    assert engine["checkpointing"] is chosen.checkpointing
    assert (engine["model"]["model_type"], engine["model"]["num_hidden_layers"]) == ("llama", 32)
    usable = rendered.plan.job.hardware.usable_memory_bytes
    assert engine["gpu_memory_bytes"] == usable - overhead(rendered.plan.job.hardware, 8).total


def test_an_adopted_auto_is_filled_in_as_the_trainer_does_for_the_plan() -> None:
    autos = dict.fromkeys(("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"), "auto")
    buckets = {"stage": 3, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto"}
    wanted = {"hw": "a100-40g", "model": "1b", "gpus": 2, "micro_batch": 2, "accumulation": 3, "precision": "bf16"}
    kept = dsgen.adopt(wanted, {**autos, "bf16": {"enabled": "auto"}, "zero_optimization": buckets})

    told = from_rendered(kept.config)

    batch = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    assert [told.config[key] for key in batch] == [12, 2, 3]
    assert told.config["bf16"]["enabled"] is True
    hidden = kept.question.job.model.hidden_size
    assert told.config["zero_optimization"]["reduce_bucket_size"] == hidden * hidden
    assert "auto" not in json.dumps(told.config)
    assert "train_micro_batch_size_per_gpu" in {one.key for one in told.filled}
    assert not from_rendered(dsgen.render(wanted)).filled


@pytest.mark.parametrize(("meant", "says"), [(None, False), ("0.19", False), ("0.16", True)])
def test_a_config_for_another_release_than_runs_is_said(tmp_path: Path, meant: str | None, says: bool) -> None:
    layers = dsgen.profile("a100-40g") | dsgen.profile("7b")
    made = dsgen.render(layers, deepspeed=meant)

    told = simulating.simulate(from_rendered(made), python=answering(tmp_path, ANSWER))

    assert [note.partition(":")[0] for note in told.notes] == (
        [f"DeepSpeed {ANSWER['versions']['deepspeed']} ran, and the config is for {made.plan.job.version}"]
        if says
        else []
    )


def test_a_setting_of_the_allocator_that_is_not_followed_starts_no_process() -> None:
    request = from_rendered(dsgen.render({"hw": "a100-40g", "model": "125m"}), Options(alloc_conf="backend:native"))
    with pytest.raises(DsgenError, match="'backend:native' is no setting of torch's allocators"):
        simulating.simulate(request, python="no-python-is-asked")


def test_options_win_over_the_plan() -> None:
    layers = dsgen.profile("a100-40g") | dsgen.profile("7b")
    adapters = {"method": "lora", "lora_rank": 8, "lora_dropout": 0.05, "lora_train_embeddings": True}
    options = Options(attention="math", checkpointing="deepspeed", dtype="fp32", seq_len=64, **adapters)

    engine = from_rendered(dsgen.render(layers), options).to_engine()

    assert (engine["attention"], engine["checkpointing"]) == ("math", "deepspeed")
    assert (engine["method"], engine["lora_rank"], engine["lora_targets"]) == ("lora", 8, ["all-linear"])
    assert (engine["lora_dropout"], engine["lora_train_embeddings"]) == (0.05, True)
    assert (engine["dtype"], engine["seq_len"]) == ("float32", 64)


def test_a_config_is_asked_as_it_is() -> None:
    engine = request().to_engine()

    assert engine["config"] == CONFIG
    assert engine["model"] == MODEL
    assert engine["seq_len"] == 64  # as long as the model's positions reach
    assert "gpu_memory_bytes" not in engine


@pytest.mark.parametrize(
    ("config", "dtype"),
    [
        ({"bf16": {"enabled": True}}, "bfloat16"),
        ({"bfloat16": {"enabled": True}}, "bfloat16"),
        ({"fp16": {"enabled": True}}, "float16"),
        ({"fp16": {"enabled": False}}, "float32"),
        ({}, "float32"),
    ],
)
def test_weights_are_loaded_in_what_the_config_trains_in(config: dict[str, Any], dtype: str) -> None:
    assert request(config).to_engine()["dtype"] == dtype
    assert request(config, options=Options(dtype="fp16")).to_engine()["dtype"] == "float16"


def test_auto_is_filled_as_the_trainer_does() -> None:
    """transformers 5.23, integrations/deepspeed.py: buckets from hidden_size, batch from TrainingArguments."""
    written = {
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "bf16": {"enabled": "auto"},
        "fp16": {"enabled": "auto"},
        "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto"}},
        "zero_optimization": {
            "stage": 3,
            "reduce_bucket_size": "auto",
            "stage3_prefetch_bucket_size": "auto",
            "stage3_param_persistence_threshold": "auto",
        },
    }

    found = request(written, target="hf-trainer", micro_batch=2, accumulation=4)

    used = found.config
    assert (used["train_micro_batch_size_per_gpu"], used["gradient_accumulation_steps"]) == (2, 4)
    assert used["train_batch_size"] == 2 * 4 * 16
    assert (used["bf16"], used["fp16"]) == ({"enabled": True}, {"enabled": False})
    assert used["zero_optimization"] == {
        "stage": 3,
        "reduce_bucket_size": 64 * 64,
        "stage3_prefetch_bucket_size": int(0.9 * 64 * 64),
        "stage3_param_persistence_threshold": 640,
    }
    assert used["optimizer"]["params"] == {"lr": 5e-5, "betas": [0.9, 0.999]}
    assert {one.key: one.why for one in found.filled}["train_micro_batch_size_per_gpu"] == "--micro-batch"
    assert written["train_batch_size"] == "auto"  # what was given stays as it was


def test_auto_that_deepspeed_itself_gets_stays() -> None:
    written = {**CONFIG, "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto"}}

    assert request(written, target="deepspeed").config == written


def test_a_config_without_an_optimizer_gets_the_programs() -> None:
    bare = {key: value for key, value in CONFIG.items() if key != "optimizer"}
    found = request({**bare, "zero_optimization": {"stage": 3}})

    assert found.config["optimizer"] == {"type": "AdamW", "params": {"lr": 5e-5, "torch_adam": True}}
    assert [one.key for one in found.filled] == ["optimizer.type", "optimizer.params.torch_adam"]
    assert request().filled == ()


@pytest.mark.parametrize(("target", "foreach"), [("hf-trainer", None), ("deepspeed", False)])
def test_the_trainers_own_optimizer_is_fused(target: str, foreach: bool | None) -> None:
    bare = {key: value for key, value in CONFIG.items() if key not in ("optimizer", "zero_optimization")}
    found = request(bare, target=target, options=Options(foreach=foreach))

    assert "torch_adam" not in found.config["optimizer"]["params"]


def test_the_programs_optimizer_on_the_cpu_is_deepspeeds() -> None:
    bare = {key: value for key, value in CONFIG.items() if key != "optimizer"}
    zero = {"stage": 2, "offload_optimizer": {"device": "cpu"}}

    assert "torch_adam" not in request({**bare, "zero_optimization": zero}).config["optimizer"]["params"]


def test_a_model_is_a_profile_a_file_or_a_folder(tmp_path: Path) -> None:
    import json

    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(MODEL), encoding="utf-8")

    assert request(model="7b").model["hidden_size"] == 4096
    assert request(model=str(folder)).model == request(model=folder / "config.json").model == MODEL
    assert request(model=str(folder)).title.startswith("my-model with")


def test_of_a_multimodal_model_the_language_model_is_taken() -> None:
    whole = {
        "model_type": "gemma3",
        "tie_word_embeddings": True,
        "text_config": {**MODEL, "tie_word_embeddings": False},
    }

    found = request(model=whole)

    assert found.model == MODEL
    assert found.notes == ("the model is multimodal: its language model alone is taken",)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"options": Options(rank=16)}, "rank is 16; it must be from 0 to 15"),
        ({"options": Options(rank=-1)}, "rank is -1"),
        ({"options": Options(steps=0)}, "steps is 0"),
        ({"options": Options(attention="fast")}, "it must be one of flash, sdpa, math, eager"),
        ({"options": Options(checkpointing="all")}, "it must be one of none, full, deepspeed"),
        ({"options": Options(dtype="int8")}, "it must be one of bf16, fp16, fp32"),
        ({"world_size": 0}, "world_size is 0"),
        ({"world_size": True}, "world_size is True"),
        ({"micro_batch": "two"}, "micro_batch is 'two'"),
        ({"precision": "int8"}, "precision is 'int8'"),
        ({"world_size": 12}, "12 GPUs do not fill nodes of 8"),
        ({"config": {**CONFIG, "tensor_parallel": {"autotp_size": 5}}}, "autotp_size is 5; 16 GPUs do not divide into"),
        ({"model": {"hidden_size": 64}}, "no model_type"),
        ({"model": "7bb"}, "did you mean 7b"),
    ],
)
def test_what_cannot_be_is_refused_before_a_process_starts(more: dict[str, Any], words: str) -> None:
    with pytest.raises(DsgenError, match=words):
        request(**more)


def test_heads_that_autotp_shares_unevenly_are_simulated() -> None:
    """DeepSpeed 0.19.8 trains so: some ranks get more heads, or none."""
    assert request({**CONFIG, "tensor_parallel": {"autotp_size": 8}}).notes == ()


def test_what_would_be_compiled_is_said_to_run_as_it_is() -> None:
    (said,) = request({**CONFIG, "compile": {"deepcompile": True}}).notes

    assert said.startswith("compile.deepcompile: not simulated")
    assert request({**CONFIG, "compile": {"deepcompile": False}}).notes == ()


def test_the_host_is_what_a_rank_holds_times_the_ranks_of_a_node(tmp_path: Path) -> None:
    found = simulated(tmp_path)

    host = found.estimate.host
    assert (found.ranks_per_node, host.peak_bytes) == (8, 8 * 6 * GIB)
    assert dict(host.parts) == {"optimizer states": 8 * 5 * GIB, "fp32 master weights": 8 * GIB}
    assert (found.pinned_bytes, found.pinned_reserved_bytes) == (8 * 5 * GIB, 8 * 8 * GIB)
    assert host.high_bytes == 8 * (6 + 3) * GIB + 8 * RANK_PROCESS_BYTES
    assert found.largest["host"][0].count == 8
    assert found.estimate.phases[2].host_bytes == 8 * 6 * GIB


def test_files_are_those_of_every_rank_of_a_node(tmp_path: Path) -> None:
    found = simulated(tmp_path, {**ANSWER, "nvme": {"optimizer states": 3 * GIB, "parameters": GIB}})

    assert dict(found.estimate.nvme.parts) == {"optimizer states": 8 * 3 * GIB, "parameters": 8 * GIB}
    assert found.estimate.nvme.peak_bytes == 8 * 4 * GIB


def test_two_ranks_on_a_node_of_eight_are_two(tmp_path: Path) -> None:
    found = simulated(tmp_path, world_size=2)

    assert found.estimate.host.peak_bytes == 2 * 6 * GIB


def test_the_gpu_is_its_tensors_the_allocator_and_what_lies_outside(tmp_path: Path) -> None:
    card = hardware()
    found = simulated(tmp_path, hardware=card)

    gpu, outside = found.estimate.gpu, overhead(card, 16)
    reserved = 13 * GIB + gpu.overhead["cuBLAS workspace"]
    assert (gpu.peak_bytes, gpu.low_bytes, gpu.reserved_bytes) == (12 * GIB, 12 * GIB, reserved)
    most = outside.total + outside.more_bytes
    assert gpu.high_bytes == 12 * GIB + 3 * GIB // 4 + most  # it gives back what lies between that and 13 GiB
    assert (found.least_bytes, found.expandable_least_bytes) == (12 * GIB + 3 * GIB // 4, 12 * GIB + GIB // 4)
    assert gpu.overhead == outside.parts
    assert gpu.phase == "backward 1 of step 1"
    assert found.allocated_bytes == 12 * GIB + 512


def test_what_lies_outside_is_named_and_shown_as_its_maker_does(tmp_path: Path) -> None:
    options = Options(alloc_conf="max_split_size_mb:512")
    found = simulated(tmp_path, hardware=hardware(vendor="amd", compute_capability=None), options=options)
    told = simulation_report.text(found)

    assert list(found.estimate.gpu.overhead) == ["HIP context", "RCCL buffers", "hipBLAS workspace"]
    assert "rocm-smi shows" in " ".join(told.split())
    assert "nvidia-smi" not in told
    assert "expandable_segments" not in told
    assert "PYTORCH_HIP_ALLOC_CONF=max_split_size_mb:512" in "".join(told.split())


@pytest.mark.parametrize(
    ("tensors_gib", "verdict"),
    [(11.9, Verdict.DOES_NOT_FIT), (12.7, Verdict.UNCERTAIN), (12.8, Verdict.UNCERTAIN), (12.9, Verdict.FITS)],
    ids=["too little", "less than the least", "without room for what may lie outside torch", "with it"],
)
def test_the_verdict_is_of_certain_and_of_plausible_bytes(tmp_path: Path, tensors_gib: float, verdict: Verdict) -> None:
    room = int(tensors_gib * GIB) + overhead(hardware(), 16).total

    found = simulated(tmp_path, hardware=hardware(usable_memory_bytes=room))

    assert found.estimate.gpu.verdict is verdict


@pytest.mark.parametrize(("least_gib", "verdict"), [(14, Verdict.FITS), (14.5, Verdict.UNCERTAIN)])
def test_what_is_reserved_and_not_needed_makes_no_job_uncertain_unless_the_allocator_runs_out(
    tmp_path: Path, least_gib: float, verdict: Verdict
) -> None:
    answer = copy.deepcopy(ANSWER)
    reserved = {"reserved_peak_bytes": 15 * GIB, "least_bytes": int(least_gib * GIB), "out_of_memory": least_gib > 14}
    answer["peak"]["gpu"]["allocator"] |= reserved
    outside = overhead(hardware(), 16)
    room = 14 * GIB + outside.total + outside.more_bytes

    found = simulated(tmp_path, answer, hardware=hardware(usable_memory_bytes=room))

    gpu = found.estimate.gpu
    assert gpu.reserved_bytes == 15 * GIB + gpu.overhead["cuBLAS workspace"]
    assert found.estimate.gpu.verdict is verdict


def test_the_parts_of_every_phase_and_sample_add_up(tmp_path: Path) -> None:
    found = simulated(tmp_path)

    assert [phase.gpu_bytes // GIB for phase in found.estimate.phases] == [2, 3, 10, 12, 10, 12, 3]
    assert [phase.gpu_bytes // GIB for phase in found.ends] == [2, 3, 3, 3, 3, 3, 3]
    assert max(sum(one.parts.values()) for one in found.timeline["gpu"]) == found.estimate.gpu.peak_bytes
    assert max(sum(one.parts.values()) for one in found.timeline["host"]) == found.estimate.host.peak_bytes


def test_what_observes_a_run_and_what_writes_is_kept_out(tmp_path: Path) -> None:
    swap = {"device": "nvme", "nvme_path": "/local_nvme"}
    config = {**CONFIG, "tensorboard": {"enabled": True, "output_path": "/nowhere"}, "comms_logger": {"enabled": False}}
    config["zero_optimization"] = {"stage": 3, "offload_optimizer": swap}

    simulated(tmp_path, config=config)

    used = asked(tmp_path)["config"]
    assert (used["tensorboard"]["enabled"], used["comms_logger"]["enabled"]) == (False, False)
    folder = used["zero_optimization"]["offload_optimizer"]["nvme_path"]
    assert Path(folder).name.startswith("dsgen-simulate-")
    assert not Path(folder).exists()  # removed with the process
    assert swap["nvme_path"] == "/local_nvme"


DS = "deepspeed/runtime"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"missing": "deepspeed"}, "a simulation needs deepspeed, which .* has not"),
        (refusal("ModuleNotFoundError", "No module named 'peft'", "dsgen/engine/x.py:1 in f"), "needs peft"),
        (refusal("UntestedVersionsError", "the simulation was not tested with torch 9", "x.py:1 in f"), "--force"),
        (
            refusal(
                "NoLanguageModelError",
                "transformers has no causal language model for model_type 'vit'",
                "dsgen/engine/x.py:1 in f",
            ),
            "model_type 'vit'; a simulation trains models that predict the next token\n  Take the config.json of a",
        ),
        (
            refusal(
                "StrictDataclassClassValidationError",
                "Class validation error for validator 'validate_architecture': ValueError: 250 is no multiple of 4.",
                "huggingface_hub/dataclasses.py:253 in validate",
                "load",
            ),
            r"^transformers refuses the model's config.json: 250 is no multiple of 4\.\n  Mend",
        ),
        (refusal("MemoryError", "", "torch/x.py:1 in f"), "this machine's own memory is too small"),
        (refusal("ValueError", "seq_len is 0", "dsgen/engine/x.py:1 in f"), "^seq_len is 0$"),
        (
            refusal(
                "NotImplementedError", "no stand-in for DeepSpeed's FusedX", "dsgen/engine/simulate/ops.py:1 in load"
            ),
            "^no stand-in for DeepSpeed's FusedX\n  Leave out the optimizer or the key that asks for it.$",
        ),
        (
            refusal("AssertionError", "stage 3 wants more", "deepspeed/runtime/engine.py:9 in f"),
            r"DeepSpeed refuses it in init: AssertionError: stage 3 wants more \(deepspeed/runtime/engine.py:9 in f\)",
        ),
        (
            refusal("IndexError", "list", "transformers/models/llama/modeling_llama.py:9 in f", "forward"),
            "the model refuses it in forward: IndexError: list",
        ),
        (
            refusal("RuntimeError", "tracing error at step 153: \nmodule id: 298", f"{DS}/zero/coordinator.py:9 in f"),
            "in another order than in its first step.*\n  A real run ends so too.*\n  its words: RuntimeError: tracing",
        ),
        (
            refusal("AssertionError", "(no message)", f"{DS}/swap_tensor/pipelined_optimizer_swapper.py:219 in f"),
            "too few buffers\n  Raise zero_optimization.offload_optimizer.buffer_count: for Adam to 8",
        ),
        (
            refusal(
                "AssertionError", "More elements 16384000 than buffer size 100000", f"{DS}/swap_tensor/x.py:1 in f"
            ),
            "offload_param.buffer_size is 100000; it must be at least 16384000",
        ),
        (
            refusal(
                "AssertionError", "AutoTP not supported for model. Please use", "deepspeed/module_inject/x.py:1 in f"
            ),
            "AutoTP does not know how to split this model\n  Leave tensor_parallel out",
        ),
        (
            refusal(
                "KeyError", "Parameter(FakeTensor(...))", f"{DS}/zero/stage_1_and_2.py:812 in _create_param_mapping"
            ),
            "their weights are lost to the optimizer .0.19.8.\n.*  Leave tensor_parallel out: adapters fit",
        ),
        (
            refusal("NoMatchingPeftModuleError", "Target modules {'x'} not found. Please", "peft/x.py:1 in f", "load"),
            "^peft refuses it in load: no module of the model has .*: Target modules {'x'} not found.*\n  Name modules",
        ),
        (
            refusal(
                "ValueError", "lora.ParamWrapper does not work with lora_dropout != 0.", "peft/x.py:1 in f", "load"
            ),
            "peft has no dropout for adapters of experts and their router.*\n  Name other modules",
        ),
        (
            refusal("AssertionError", "(no message)", "deepspeed/runtime/zero/utils.py:218 in defragment"),
            "stage 3 takes trained tensors of one type.*\n  A real run ends so too. Take stage 2, --method qlora",
        ),
        (
            refusal("TiedHeadError", "lora_train_embeddings is true, and the head is tied", "x.py:1 in f", "load"),
            "the head is tied.*\n  peft trains a copy of embedding and head each",
        ),
        (refusal("KeyError", "'gpus'", "somewhere/x.py:1 in f", "load"), "^the run fails in load: KeyError: 'gpus'"),
    ],
)
def test_the_childs_error_becomes_words_for_a_person(tmp_path: Path, answer: Any, words: str) -> None:
    with pytest.raises(DsgenError, match=words):
        simulated(tmp_path, answer)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ({"model_type": "lama"}, "has no model_type lama\n  did you mean llama"),
        ({"model_type": "mine", "auto_map": {"AutoConfig": "a.b"}}, "a simulation runs no code from a hub"),
    ],
)
def test_an_unknown_model_type_is_told_with_the_nearest(tmp_path: Path, model: dict[str, Any], words: str) -> None:
    answer = refusal(
        "UnknownModelError", f"transformers has no model_type '{model['model_type']}'", "dsgen/engine/x.py:1 in f"
    )

    with pytest.raises(DsgenError, match=words):
        simulated(tmp_path, answer, model=model)


@pytest.mark.parametrize("size", ["many", 0, -256, 4.5, True])
def test_a_size_that_cannot_be_is_refused_with_its_file(tmp_path: Path, size: Any) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**MODEL, "hidden_size": size}), encoding="utf-8")

    with pytest.raises(DsgenError, match=rf"config\.json: hidden_size is {size!r}; it must be a whole number"):
        from_config(CONFIG, model=path, world_size=8)
    path.write_text(json.dumps({**MODEL, "intermediate_size": [128, 256]}), encoding="utf-8")
    assert from_config(CONFIG, model=path, world_size=8).model["intermediate_size"] == [128, 256]


def test_what_pydantic_says_becomes_a_sentence(tmp_path: Path) -> None:
    words = "1 validation error for DeepSpeedZeroConfig stage Input should be 0, 1, 2 or 3"
    answer = refusal("ValidationError", words, "deepspeed/runtime/config_utils.py:57 in __init__")
    answer["error"] |= {"faults": [{"at": ["stage"], "message": "Input should be 0, 1, 2 or 3"}]}
    answer["error"] |= {"model": "DeepSpeedZeroConfig"}

    with pytest.raises(DsgenError, match=r"in init: zero_optimization\.stage is 5; it must be 0, 1, 2 or 3\n"):
        simulated(tmp_path, answer, config={**CONFIG, "zero_optimization": {"stage": 5}})


def test_a_refusal_says_what_the_linter_says_of_the_config(tmp_path: Path) -> None:
    config = {**CONFIG, "train_batch_size": 7}
    words = (
        "Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * "
        "world_size 7 != 1 * 2 * 16"
    )
    answer = refusal("AssertionError", words, "deepspeed/runtime/config.py:596 in f")

    with pytest.raises(DsgenError) as told:
        simulated(tmp_path, answer, config=config)

    assert "DeepSpeed refuses it in init: train_batch_size 7 is not micro-batch 1 x 2 steps x 16 GPUs" in str(
        told.value
    )
    assert "its words: AssertionError: Check batch related parameters" in str(told.value)
    assert "dsgen lint: " in str(told.value)
    assert "(DSG202)" in str(told.value)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            "import sys; sys.stdin.read(); sys.stderr.write('no torch here'); sys.exit(3)",
            "ended with code 3: no torch here",
        ),
        ("print('hello')", "ended with code 0: 'hello'"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "the system killed the process that simulates"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", "ended with signal SIGTERM"),
    ],
)
def test_a_child_that_ends_without_an_answer_is_a_clear_error(tmp_path: Path, body: str, words: str) -> None:
    with pytest.raises(DsgenError, match=words):
        simulating.simulate(request(), python=interpreter(tmp_path, body))


def test_a_child_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    note = tmp_path / "grandchild"
    body = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(note)!r}, 'w').write(str(child.pid))\ntime.sleep(600)"
    )

    with pytest.raises(DsgenError, match="was not done within 3 s"):
        simulating.simulate(request(), python=interpreter(tmp_path, body), timeout_seconds=3)

    assert _ended(int(note.read_text()))


ASKERS = {
    "simulate": "from dsgen import simulating; simulating.simulate(request(), python={python!r})",
    "prove": "from dsgen.proving.prover import prove; prove({{}}, python={python!r})",
    "effective": "from dsgen.effective import load; load({{}}, python={python!r})",
}


@pytest.mark.parametrize("asker", ASKERS)
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_ends_the_child_and_its_folder(tmp_path: Path, name: str, asker: str) -> None:
    note = tmp_path / "child"
    process = _asking(tmp_path, ASKERS[asker])
    deadline = time.monotonic() + 60
    while not (note.exists() and note.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.05)

    assert list((tmp_path / "folders").iterdir())
    process.send_signal(getattr(signal, name))
    _, words = process.communicate(timeout=60)

    _all_over(tmp_path, process.returncode, words, name)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_amid_the_start_of_the_child_ends_it_too(tmp_path: Path, name: str) -> None:
    note = tmp_path / "child"
    hurt = (
        "import os, subprocess\n"
        "class Popen(subprocess.Popen):\n"
        "    def __init__(self, *parts, **named):\n"
        "        super().__init__(*parts, **named)\n"
        f"        open({str(note)!r}, 'w').write(str(self.pid))\n"
        f"        os.kill(os.getpid(), signal.{name})\n"
        "subprocess.Popen = Popen\n"
    )
    process = _asking(tmp_path, hurt + ASKERS["simulate"])

    _, words = process.communicate(timeout=60)

    _all_over(tmp_path, process.returncode, words, name)


def _asking(folder: Path, question: str) -> subprocess.Popen[bytes]:
    """A program that asks a child which notes its process id in `child` and never answers; its folder in `folders`."""
    note = folder / "child"
    python = interpreter(folder, f"import os, time\nopen({str(note)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)")
    program = (
        # A job in the background of a script inherits that interrupts are ignored; a terminal's does not.
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "signal.signal(signal.SIGHUP, signal.SIG_DFL); sys.path += ['tests/simulating', 'tests/helpers']; "
        f"from test_simulator import request\n{question.format(python=python)}"
    )
    folders = folder / "folders"
    folders.mkdir()
    environment = {**os.environ, "TMPDIR": str(folders)}
    house = Path(__file__).parents[2]
    return subprocess.Popen([sys.executable, "-c", program], cwd=house, stderr=subprocess.PIPE, env=environment)


def _all_over(folder: Path, code: int, words: bytes, name: str) -> None:
    """A signal has ended the program, and nothing of its child is left."""
    assert (b"KeyboardInterrupt" in words) == (name == "SIGINT")
    assert code == -getattr(signal, name)
    assert _ended(int((folder / "child").read_text()))
    assert not list((folder / "folders").iterdir())


def _ended(pid: int) -> bool:
    """Whether a process is gone, or dead and only not yet waited for."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("package", ["torch", "deepspeed", "transformers"])
def test_a_missing_package_says_what_to_install(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulating, "find_spec", lambda name: None if name == package else object())

    with pytest.raises(DsgenError, match=rf'needs {package}, which .*\n  pip install "dsgen\[simulate\]"'):
        simulating.simulate(request())


def test_a_timeout_of_nothing_is_refused() -> None:
    with pytest.raises(DsgenError, match="timeout_seconds is 0"):
        simulating.simulate(request(), timeout_seconds=0)


def test_the_face_takes_layers_or_a_dict(tmp_path: Path) -> None:
    python = answering(tmp_path)

    from_layers = dsgen.simulate(dsgen.profile("a100-40g") | dsgen.profile("7b"), python=python, steps=1)
    from_dict = dsgen.simulate(CONFIG, model="7b", world_size=16, hardware="a100-40g", python=python)

    assert (from_layers.run.steps, from_layers.limits) == (1, True)
    assert from_dict.estimate.gpu.limit_bytes == hardware().usable_memory_bytes
    with pytest.raises(DsgenError, match="needs model and world_size"):
        dsgen.simulate(CONFIG, model="7b")
    with pytest.raises(DsgenError, match="world_size is for a config as a dict"):
        dsgen.simulate(dsgen.profile("a100-40g") | dsgen.profile("7b"), world_size=8)


@pytest.mark.parametrize(
    ("said", "settings"),
    [({}, "expandable_segments:True"), ({"expandable_segments": False}, ""), ({"hw": "mi300x-192g"}, "")],
)
def test_a_scenario_runs_with_the_allocator_that_it_is_planned_for(said: dict[str, Any], settings: str) -> None:
    rendered = dsgen.render({"hw": "a100-80g", "gpus": 8, "model": "llama-3.1-8b", **said})

    assert from_rendered(rendered).run.alloc_conf == settings
    own = Options(alloc_conf="max_split_size_mb:128")
    assert from_rendered(rendered, own).run.alloc_conf == "max_split_size_mb:128"


@pytest.mark.parametrize("model", ["mixtral-8x7b", "gpt-oss-20b"])
def test_a_release_of_transformers_that_is_not_installed_is_no_simulation(model: str) -> None:
    job = {"hw": "a100-80g", "model": model, "method": "qlora", "lora_targets": ["q_proj"], "gpus": 8}
    with pytest.raises(DsgenError, match="a simulation runs the release that is installed"):
        from_rendered(dsgen.render({**job, "transformers": "4.57"}))


@pytest.mark.parametrize(
    ("micro_batch", "mean_len", "attention"),
    [(2, 128, "masked"), (1, 128, "sdpa"), (2, 512, "sdpa"), (2, None, "sdpa")],
)
def test_sdpa_gets_a_mask_where_several_sequences_have_padding(micro_batch, mean_len, attention) -> None:
    config = {"train_micro_batch_size_per_gpu": micro_batch, "zero_optimization": {"stage": 2}}
    asked = request(config, options=Options(seq_len=512, mean_len=mean_len, attention="sdpa"))

    assert asked.to_engine()["attention"] == attention


def test_a_mean_length_makes_steps_of_several_lengths_with_the_longest_last() -> None:
    config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}}
    engine = request(config, options=Options(seq_len=512, mean_len=128, steps=25)).to_engine()
    assert len(engine["lengths"]) == engine["steps"] == 25
    assert engine["lengths"][-1] == 512
    assert engine["lengths"][4] == 512  # and once before, 20 steps earlier
    assert len(set(engine["lengths"])) > 10
    assert request(config, options=Options(seq_len=512)).to_engine()["lengths"] is None
    with pytest.raises(DsgenError, match="mean_len is 513; it must be at most seq_len"):
        request(config, options=Options(seq_len=512, mean_len=513))


def test_packed_samples_fill_every_step_and_attention_sees_each_alone() -> None:
    """The engine runs whole sequences; the time of their attention is that of the samples."""
    config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}}
    packed = Options(seq_len=512, mean_len=128, packing=True)
    engine = request(config, options=packed).to_engine()
    assert engine["lengths"] is None
    assert engine["seq_len"] == 512
    for wrong in (Options(packing=True, attention="sdpa"), Options(packing=True, target_len=8)):
        with pytest.raises(DsgenError, match="packing is true; samples are packed where attention is flash"):
            request(config, options=wrong)

    call = ["attention", 0, 0, "layers", "forward", 2, 8, 4, 512, 512, 64, True, 0, "bf16"]
    crossed, product = [*call[:9], 300, *call[10:]], ["product", 0, 0, "layers", 8, 8, 8, 1, "bf16"]
    program = {"entries": [call, crossed, product], "order": [0, 1, 2]}
    told = divided(program, 128)
    assert told["entries"] == [[*call[:5], 8, 8, 4, 128, 128, *call[10:]], crossed, product]
    assert divided(program, 0) is program
    [(*_, batch, _, _, queries, _, _, _, _, _), *_] = divided(program, 400)["entries"]
    assert batch * queries == 2 * 512  # no token more or less
