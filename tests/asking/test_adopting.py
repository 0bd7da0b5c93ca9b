"""Configs that exist become scenarios that render back to them; and what cannot is refused in a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from adopting import adopted, again, said, same_data
from command_line import run
from hypothesis import given, settings
from hypothesis import strategies as st
from own_configs import CAUSES, GOLDEN

import dsgen
from dsgen.asking.adopting import adopt, read_arguments
from dsgen.asking.memory_questions.config_questions import given as held
from dsgen.linting import config_reader
from dsgen.linting.linter import lint
from dsgen.report.adopted import text
from dsgen.shapes.errors import DsgenError
from dsgen.shapes.findings import Severity

SMALL: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 2,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 2},
    "optimizer": {"type": "AdamW", "params": {"lr": 3e-5, "betas": [0.9, 0.95]}},
}
# What the Trainer is given most: every number that it knows better is "auto" (transformers' own example, its keys).
TRAINER: dict[str, Any] = {
    "fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000, "min_loss_scale": 1},
    "bf16": {"enabled": "auto"},
    "optimizer": {"type": "AdamW", "params": dict.fromkeys(("lr", "betas", "eps", "weight_decay"), "auto")},
    "scheduler": {
        "type": "WarmupDecayLR",
        "params": dict.fromkeys(("total_num_steps", "warmup_min_lr", "warmup_max_lr", "warmup_num_steps"), "auto"),
    },
    "zero_optimization": {
        "stage": 3,
        "offload_optimizer": {"device": "cpu", "pin_memory": True},
        "offload_param": {"device": "none"},
        "sub_group_size": 1e9,
        "reduce_bucket_size": "auto",
        "stage3_prefetch_bucket_size": "auto",
        "stage3_max_live_parameters": 1e9,
    },
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
}  # fmt: skip


def made(config: dict[str, Any], **fields: Any) -> Any:
    return adopted(held(config), **fields)


@pytest.mark.parametrize("config", [SMALL, TRAINER], ids=["plain", "trainer"])
def test_a_config_comes_back_as_it_was(config: dict[str, Any], tmp_path: Path) -> None:
    adoption = made(config)

    assert same_data(again(adoption, tmp_path), config)
    assert same_data(adoption.config.to_dict(), config)


ONE: dict[str, Any] = {"train_micro_batch_size_per_gpu": 1}
ADAM: dict[str, Any] = {"optimizer": {"type": "Adam", "params": {"lr": 1e-4}}}
CPU = {"device": "cpu"}


def sizes(total: int, micro: int) -> dict[str, Any]:
    return {"train_batch_size": total, "train_micro_batch_size_per_gpu": micro, "gradient_accumulation_steps": 1}


STRANGE: dict[str, dict[str, Any]] = {
    "a total alone": {"train_batch_size": 32},
    "sizes that fix the GPUs": sizes(64, 4),
    "GPUs beyond a node": sizes(128, 2),
    "no section at all": ONE,
    "fp16 without ZeRO": {**ONE, "fp16": {"enabled": True}, "zero_optimization": {"stage": 0}},
    "null": {**ONE, "flops_profiler": {"enabled": False, "output_file": None}},
    "an empty section": {**ONE, "aio": {}},
    "a key nobody reads": {**ONE, "memory_efficient_linear": True, "_note": "ours: yes"},
    "a section of ours": {**ONE, "training": {"lr": 1}, "model": "x"},
    "offload of parameters below stage 3": {
        **ONE,
        **ADAM,
        "zero_optimization": {"stage": 2, "offload_optimizer": CPU, "offload_param": CPU},
    },
    "words that YAML reads otherwise": {**ONE, "wandb": {"enabled": False, "project": "no", "group": "1e5"}},
    "a letter that cannot be printed": {**ONE, "notes": "\x7f\u2028 \U0001f600"},
    "a whole number as a float": {**ONE, "zero_optimization": {"stage": 2, "reduce_bucket_size": 5e8}},
    "an old name": {**ONE, "bfloat16": {"enabled": True}},
    "an offload of the old kind": {**ONE, **ADAM, "zero_optimization": {"stage": 2, "cpu_offload": True}},
}


@pytest.mark.parametrize("name", STRANGE)
def test_what_is_strange_is_kept(name: str, tmp_path: Path) -> None:
    config = STRANGE[name]

    assert same_data(again(made(config), tmp_path), config)


@pytest.mark.parametrize("file", sorted(GOLDEN.glob("*.json")), ids=lambda file: file.stem)
def test_what_dsgen_rendered_itself_comes_back(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every golden config; 1b has as many heads as AutoTP divides."""
    monkeypatch.setattr("dsgen.asking.adopting.adoption.speedups", lambda question: None)
    monkeypatch.setattr("dsgen.asking.adopting.adoption._own", lambda job, question: None)
    config = json.loads(file.read_text("utf-8"))

    assert same_data(made(config, model="1b").config.to_dict(), config)


KEYS = st.fixed_dictionaries(
    {"train_micro_batch_size_per_gpu": st.sampled_from([1, 2, "auto"])},
    optional={
        "gradient_accumulation_steps": st.sampled_from([1, 4, "auto"]),
        "gradient_clipping": st.sampled_from([1.0, 0, "auto"]),
        "bf16": st.sampled_from([{"enabled": True}, {"enabled": "auto"}, {}]),
        "zero_optimization": st.fixed_dictionaries(
            {"stage": st.sampled_from([0, 1, 2, 3])},
            optional={
                "overlap_comm": st.booleans(),
                "reduce_bucket_size": st.sampled_from([5e8, 200_000_000, "auto"]),
                "contiguous_gradients": st.booleans(),
            },
        ),
        "steps_per_print": st.integers(1, 2000),
        "notes": st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF), max_size=20),
        "wandb": st.fixed_dictionaries({"enabled": st.just(False)}, optional={"team": st.none()}),
    },
)


@settings(deadline=None, max_examples=40)
@given(KEYS)
def test_any_mixture_comes_back(config: dict[str, Any]) -> None:
    source = held(config)
    heard = lint(source.document, target=source.target, deepspeed="0.19")
    if any(item.severity is Severity.ERROR for item in heard):
        with pytest.raises(DsgenError):
            adopted(source)
        return
    assert same_data(adopted(source).config.to_dict(), config)


def test_the_gpus_are_those_that_the_batch_adds_up_with() -> None:
    assert made(sizes(64, 4)).config.plan.job.world == 16
    assert "gpus: 16  # 64 / (4 x 1), as its batch keys add up" in made(sizes(64, 4)).text
    assert made({"train_batch_size": 12}).config.plan.job.world == 6  # of 8 in a node, the most that share 12
    assert made(SMALL).config.plan.job.world == 8
    assert made(SMALL, gpus=2).config.plan.job.world == 2
    with pytest.raises(DsgenError, match="train_batch_size"):
        made(sizes(64, 4), gpus=8)


def test_the_plan_is_what_deepspeed_makes_of_the_batch() -> None:
    """A total alone means one step: micro-batches of a total by the GPUs, and no accumulation."""
    chosen = made({"train_batch_size": 32}).config.plan.chosen.strategy

    assert (chosen.micro_batch, chosen.accumulation) == (4, 1)
    assert made({"train_micro_batch_size_per_gpu": 4}).config.plan.chosen.strategy.accumulation == 1


def test_what_dsgen_would_do_is_weighed_beside_it() -> None:
    slow = {
        **SMALL,
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}},
    }

    adoption = adopt(said(hw="a100-80g", model="llama-3.1-8b", seq_len=2048), held(slow))

    assert adoption.gain is not None and adoption.gain > 0.1
    assert adoption.own is not None and adoption.own.strategy.offload_optimizer == "none"
    assert adoption.own.strategy.global_batch == adoption.question.strategy.global_batch == 16
    assert adoption.speedups.changes


@pytest.mark.parametrize("file", sorted(CAUSES.glob("*.json")), ids=lambda file: file.stem)
def test_a_config_that_does_not_start_is_refused_with_its_finding(file: Path) -> None:
    try:
        source = config_reader.read(str(file))
    except DsgenError:
        return  # no config at all
    heard = lint(source.document, target=source.target, deepspeed="0.19")
    errors = [item for item in heard if item.severity is Severity.ERROR]
    if errors:
        with pytest.raises(DsgenError) as caught:
            adopted(source)
        assert "dsgen rule DSG" in str(caught.value.todo)
        assert str(caught.value.where).startswith(f"{file}:")
    else:
        assert same_data(adopted(source).config.to_dict(), dict(source.document.config))


FP16 = {"bf16": {"enabled": False}, "fp16": {"enabled": True}}


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(DsgenError) as caught:
        adopt(
            said(hw="t4-16g", model="13b", seq_len=2048),
            held({**SMALL, "bf16": {"enabled": False}, "fp16": {"enabled": True}}),
        )

    assert caught.value.code == "does-not-fit"
    assert caught.value.what == "13b at 2048 tokens fits nowhere on 4 GPUs of 14.6 GiB as this config runs it"
    assert "dsgen memory --config" in str(caught.value.todo)


def test_a_key_with_a_dot_is_refused() -> None:
    with pytest.raises(DsgenError, match="has a dot in it"):
        made({**SMALL, "a.b": 1})


def test_what_would_change_the_config_is_refused() -> None:
    with pytest.raises(DsgenError, match="would change the config"):
        made(SMALL, set={"zero_optimization.stage": 1})
    with pytest.raises(DsgenError, match=r"a scenario of its own"):
        made(SMALL, file="x.yaml")
    assert "training.lr: 0.01" in made(SMALL, set={"training.lr": 0.01}).text


def arguments(tmp_path: Path, text: str) -> str:
    path = tmp_path / "args.yaml"
    path.write_text(text)
    return str(path)


def test_arguments_fill_in_what_is_auto(tmp_path: Path) -> None:
    text = "per_device_train_batch_size: 2\ngradient_accumulation_steps: 8\nbf16: true\ngradient_checkpointing: true\n"
    told = read_arguments(arguments(tmp_path, f"{text}max_steps: 500\nlearning_rate: 2.0e-5\n"))
    adoption = adopt(said(), held(TRAINER), told)
    chosen = adoption.config.plan.chosen.strategy

    assert (chosen.micro_batch, chosen.accumulation, chosen.precision, chosen.checkpointing) == (2, 8, "bf16", True)
    assert "micro_batch: 2  # " in adoption.text
    assert same_data(adoption.config.to_dict(), TRAINER)


@pytest.mark.parametrize("own", [False, True])
def test_the_program_s_optimizer_is_made_where_the_config_has_none(tmp_path: Path, own: bool) -> None:
    told = read_arguments(arguments(tmp_path, "optim: adamw_8bit\n"))
    config = {**ONE, **ADAM} if own else {key: value for key, value in ONE.items() if key != "optimizer"}

    adoption = adopt(said(), held(config), told)

    assert adoption.question.job.training.optimizer == ("Adam" if own else "AdamW8bit")
    assert "optimizer" not in adoption.config.to_dict() or own


def test_arguments_that_say_otherwise_are_refused_as_the_trainer_does(tmp_path: Path) -> None:
    told = read_arguments(arguments(tmp_path, "per_device_train_batch_size: 2\n"))

    with pytest.raises(DsgenError, match=r"per_device_train_batch_size is 2, and the config's .* 4"):
        adopt(said(), held(SMALL), told)


def test_an_argument_that_is_left_open_is_no_contradiction(tmp_path: Path) -> None:
    """Every example of Axolotl has bf16: auto beside a config with bf16.enabled true."""
    adoption = adopt(said(), held(SMALL), read_arguments(arguments(tmp_path, "bf16: auto\nfp16:\nmax_steps: 9\n")))

    assert adoption.config["bf16"]["enabled"] is True


def test_a_training_file_that_names_its_config_is_its_arguments_and_its_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("zero2.json").write_text(json.dumps(TRAINER), "utf-8")
    Path("sft.yaml").write_text(
        "model_name_or_path: Qwen/Qwen2.5-7B-Instruct\nfinetuning_type: lora\nlora_rank: 8\ncutoff_len: 2048\n"
        "deepspeed: zero2.json\nper_device_train_batch_size: 2\ngradient_accumulation_steps: 4\nbf16: true\n",
        "utf-8",
    )
    shown = run("adopt", "sft.yaml", "--hw", "a100-80g", "--gpus", "4")
    named = run("adopt", "zero2.json", "--args", "sft.yaml", "--model", "Qwen/Qwen2.5-7B-Instruct", "--hw", "a100-80g",
                "--gpus", "4")  # fmt: skip

    assert (shown.code, shown.out) == (named.code, named.out)
    assert "method: lora  # sft.yaml" in shown.out and "seq_len: 2048  # sft.yaml" in shown.out
    assert dsgen.adopt({"hw": "a100-80g", "gpus": 4}, "sft.yaml").text.replace("  # python", "") == shown.out
    assert "no model is named" in run("adopt", "zero2.json", "--hw", "a100-80g").err


def test_every_argument_that_the_trainer_compares_is_compared(tmp_path: Path) -> None:
    rate = {**SMALL, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}}
    batch = f"per_device_train_batch_size: {SMALL['train_micro_batch_size_per_gpu']}\n"

    with pytest.raises(DsgenError, match=r"learning_rate is 0.5, and the config's optimizer.params.lr "):
        adopt(said(), held(rate), read_arguments(arguments(tmp_path, f"{batch}learning_rate: 0.5\n")))
    same = f"{batch}learning_rate: 1.0e-5\nwarmup_steps: 0\n"
    warm = {**rate, "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 100}}}
    assert adopt(said(), held(warm), read_arguments(arguments(tmp_path, same))).text


def test_a_program_s_own_batch_is_that_of_an_auto_alone(tmp_path: Path) -> None:
    told = read_arguments(arguments(tmp_path, "finetuning_type: full\n"))
    numbers = adopt(said(), held(SMALL), told).text.partition("set:")[0]
    auto = {**SMALL, "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"}
    auto.pop("train_batch_size", None)
    left = adopt(said(), held(auto), told).text.partition("set:")[0]

    assert "micro_batch" not in numbers
    assert "accumulation" not in numbers
    assert "micro_batch: 8" in left
    assert "accumulation: 1" in left


def test_arguments_without_any_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DsgenError, match="no argument that a plan follows"):
        read_arguments(arguments(tmp_path, "output_dir: x\n"))


def test_files_of_profiles_are_named_from_the_scenario_s_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "box.yaml").write_text("kind: hardware\nextends: a100-80g\nhardware:\n  gpus_per_node: 4\n")
    (tmp_path / "runs").mkdir()
    adoption = adopt(said(hw="box.yaml"), held(SMALL), path="runs/scenario.yaml")
    adoption.write("runs/scenario.yaml")

    assert 'hw: "../box.yaml"' in adoption.text
    assert dsgen.render(dsgen.scenario("runs/scenario.yaml")).plan.job.world == 4


def test_the_library_adopts_a_dict_or_a_file(tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    path.write_text(json.dumps(SMALL))
    wanted = {"hw": "a100-80g", "model": "1b"}

    assert dsgen.adopt(wanted, str(path)).config == dsgen.adopt(wanted, SMALL).config == SMALL
    adoption = dsgen.adopt(wanted, SMALL)
    target = tmp_path / "s.yaml"
    adoption.write(str(target))
    with pytest.raises(DsgenError, match="there already"):
        adoption.write(str(target))
    with pytest.raises(DsgenError, match=r"ends in \.yaml"):
        adoption.write(str(tmp_path / "s.json"))


# What each program does where its file says nothing.
OF_TRL = {
    "checkpointing": "full",
    "seq_len": 1024,
    "attention": "sdpa",
}  # and bf16 where the GPU has it, as a plan does
ADAPTERS_OF_TRL = {**OF_TRL, "lora_fp32": False, "lora_rank": 16, "lora_dropout": 0.05}
BITS_OF_TRL = {**ADAPTERS_OF_TRL, "method": "qlora", "reentrant": True, "kbit_fp32": "never", "loading": "mapped"}
OF_LLAMA_FACTORY = {"checkpointing": "full", "reentrant": True, "loading": "gpu-fp32", "seq_len": 2048,
                    "attention": "sdpa"}  # fmt: skip
OF_AXOLOTL = {"loading": "gpu", "attention": "sdpa"}
OF_SWIFT = {"checkpointing": "full", "reentrant": True, "loading": "gpu", "attention": "sdpa"}


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("lora_r: 8\n", {"method": "lora", "lora_rank": 8}),
        ("use_peft: true\nload_in_4bit: true\nlora_r: 64\nlora_target_modules: [q_proj, v_proj]\n",
         {**BITS_OF_TRL, "lora_rank": 64, "lora_targets": ["q_proj", "v_proj"], "double_quantization": False}),
        ("use_peft: true\nload_in_4bit: true\nuse_bnb_nested_quant: true\n", BITS_OF_TRL),
        ("use_peft: true\nmodel_name_or_path: Qwen/Qwen3-8B\ntorch_dtype: bfloat16\nmax_seq_length: 8192\n",
         {**ADAPTERS_OF_TRL, "method": "lora", "lora_targets": ["q_proj", "v_proj"], "loading": "mapped",
          "seq_len": 8192}),
        ("use_peft: true\nmodel_name_or_path: EleutherAI/pythia-6.9b\nfp16: true\n",
         {**ADAPTERS_OF_TRL, "method": "lora", "lora_targets": ["query_key_value"], "loading": "fp32",
          "precision": "fp16"}),
        ("use_peft: true\nmodel_name_or_path: ./mine\n", {**ADAPTERS_OF_TRL, "method": "lora", "loading": "fp32"}),
        ("finetuning_type: lora\nlora_rank: 16\nlora_target: all\nquantization_bit: 4\n",
         {"method": "qlora", "lora_rank": 16, "lora_targets": ["all-linear"], "kbit_fp32": "never",
          **OF_LLAMA_FACTORY}),
        ("finetuning_type: lora\nquantization_bit: 4\ndouble_quantization: false\ncutoff_len: 512\n",
         {"method": "qlora", "lora_rank": 8, "double_quantization": False, "kbit_fp32": "never", **OF_LLAMA_FACTORY,
          "seq_len": 512}),
        ("adapter: qlora\nlora_r: 32\nload_in_4bit: true\n",
         {"method": "qlora", "lora_rank": 32, "kbit_fp32": "below-3", **OF_AXOLOTL}),
        ("adapter: lora\ngradient_checkpointing: true\n",
         {"method": "lora", "checkpointing": "full", "reentrant": True, **OF_AXOLOTL}),
        ("adapter: lora\ngradient_checkpointing: true\ngradient_checkpointing_kwargs:\n  use_reentrant: false\n",
         {"method": "lora", "checkpointing": "full", "reentrant": False, **OF_AXOLOTL}),
        ("adapter: lora\nrl: dpo\ngradient_checkpointing: true\n",
         {"method": "lora", "checkpointing": "full", "reentrant": False, **OF_AXOLOTL}),
        ("tuner_type: lora\nquant_bits: 4\n",
         {"method": "qlora", "lora_rank": 8, "lora_dropout": 0.05, "kbit_fp32": "never", **OF_SWIFT}),
        ("train_type: full\ngradient_checkpointing: false\n", {**OF_AXOLOTL, "checkpointing": "none"}),
        ("adapter: lora\nlora_r: 8\nlora_target_linear: true\nmicro_batch_size: 2\nbf16: auto\n",
         {"micro_batch": 2, "method": "lora", "lora_rank": 8, "lora_targets": ["all-linear"], **OF_AXOLOTL}),
        ("use_peft: false\nlora_r: 8\nbf16: true\n", {"loading": "fp32", "precision": "bf16", **OF_TRL}),
        ("finetuning_type: full\nlora_rank: 8\nbf16: true\n", {"precision": "bf16", **OF_LLAMA_FACTORY}),
        ("load_in_4bit: true\nbf16: true\n", {"precision": "bf16"}),  # of another model, perhaps
        ("use_peft: true\nlora_target_modules: null\n", {**ADAPTERS_OF_TRL, "method": "lora", "loading": "fp32"}),
        ("loss_type: chunked_nll\nbf16: true\n", {"precision": "bf16", "chunked_loss": True}),
        ("optim: adamw_8bit\n", {"optimizer": "AdamW8bit"}),
        ("optim: paged_adamw_8bit\n", {"optimizer": "AdamW8bit"}),
        ("optimizer: adamw_bnb_8bit\nbf16: true\n", {"precision": "bf16", "optimizer": "AdamW8bit"}),
        ("optim: adamw_torch_fused\nbf16: true\n", {"precision": "bf16"}),
    ],
)  # fmt: skip
def test_adapters_are_read_as_each_program_names_them(tmp_path: Path, text: str, fields: dict[str, object]) -> None:
    assert dict(read_arguments(arguments(tmp_path, text)).fields) == fields


@pytest.mark.parametrize(
    "text",
    ["activation_offloading: disk", "gradient_checkpointing: offload", "use_gradient_checkpointing: unsloth"],
)
def test_activations_that_leave_the_gpu_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "train.yaml").write_text(f"per_device_train_batch_size: 1\n{text}\n", "utf-8")
    with pytest.raises(DsgenError, match="only TRL's is counted"):
        read_arguments(str(tmp_path / "train.yaml"))
    (tmp_path / "train.yaml").write_text("per_device_train_batch_size: 1\nactivation_offloading: false\n", "utf-8")
    assert read_arguments(str(tmp_path / "train.yaml")).fields == {"micro_batch": 1}


def test_activations_that_trl_moves_are_read_beside_checkpointing_alone(tmp_path: Path) -> None:
    """TRL's SFTConfig and Axolotl have the argument."""
    (tmp_path / "train.yaml").write_text("activation_offloading: true\ngradient_checkpointing: true\n", "utf-8")
    fields = read_arguments(str(tmp_path / "train.yaml")).fields

    assert (fields["activation_offloading"], fields["checkpointing"]) == (True, "full")
    (tmp_path / "train.yaml").write_text("activation_offloading: true\ngradient_checkpointing: false\n", "utf-8")
    with pytest.raises(DsgenError, match="beside gradient_checkpointing: true alone"):
        read_arguments(str(tmp_path / "train.yaml"))


AWAY = "activation_offloading: true\ngradient_checkpointing: true\n"


@pytest.mark.parametrize("program", ["base_model: a\nmicro_batch_size: 1\n", "loss_type: nll\nload_in_4bit: true\n"])
def test_beside_offloaded_activations_axolotl_and_trl_recompute_by_the_other_kind(tmp_path: Path, program: str) -> None:
    """Axolotl wraps blocks by itself then; TRL takes the reentrant kind at stage 3 alone, where that is refused."""
    assert "reentrant" not in read_arguments(arguments(tmp_path, program + AWAY)).fields


def test_axolotl_s_adapters_recompute_nothing_beside_offloaded_activations(tmp_path: Path) -> None:
    with pytest.raises(DsgenError, match="recomputes nothing of adapters"):
        read_arguments(arguments(tmp_path, f"base_model: a\nadapter: lora\n{AWAY}"))


def test_a_batch_that_nobody_said_is_noted_and_one_that_is_said_is_not() -> None:
    """What is written for the Trainer leaves the batch to its arguments: adopted alone it has no such number."""
    noted = "leaves the batch to the program"
    alone, told = made(TRAINER), made(TRAINER, micro_batch=1, accumulation=16)

    assert [note for note in alone.question.notes if noted in note and "--args" in note]
    assert not [note for note in (*told.question.notes, *made(SMALL).question.notes) if noted in note]


def test_growing_segments_are_named_where_they_are_what_differs() -> None:
    config = {**SMALL, "train_micro_batch_size_per_gpu": 1}

    assert "with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in " ".join(text(made(config), "c").split())
