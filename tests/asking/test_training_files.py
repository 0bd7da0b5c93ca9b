"""What a training file that names a config says of the run counts beside it: adapters, length, batch, checkpointing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import run

import dsgen
from dsgen.asking.memory_questions import Question, ask_config
from dsgen.asking.training_arguments import beside, read_arguments
from dsgen.asking.uncounted_arguments import uncounted
from dsgen.linting import config_reader
from dsgen.memory import estimate
from dsgen.shapes.errors import DsgenError

OPEN = {
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "train_batch_size": "auto",
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 2},
}
LLAMA_FACTORY = (
    "model_name_or_path: x\nfinetuning_type: lora\nlora_rank: 8\nlora_target: q_proj,v_proj\nquantization_bit: 4\n"
    "cutoff_len: 1024\nper_device_train_batch_size: 2\ngradient_accumulation_steps: 4\n"
    "gradient_checkpointing: true\ndeepspeed: ds.json\n"
)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ds.json").write_text(json.dumps(OPEN))
    Path("train.yaml").write_text(LLAMA_FACTORY)


def of(path: str, **more: Any) -> Question:
    return ask_config(dsgen.job({"hw": "a100-40g", "model": "7b", "gpus": 8, **more}), config_reader.read(path))


def test_adapters_length_batch_and_checkpointing_of_the_file_count() -> None:
    question = of("train.yaml")
    training, chosen = question.job.training, question.strategy

    assert (training.method, training.lora_rank, training.lora_targets) == ("qlora", 8, ("q_proj", "v_proj"))
    assert question.job.seq_len == 1024
    assert (chosen.micro_batch, chosen.accumulation, chosen.global_batch, chosen.checkpointing) == (2, 4, 64, True)
    said = ("method", "lora rank", "lora targets", "sequence length", "micro-batch", "accumulation", "checkpointing")
    assert {question.said[name].by for name in said} == {"train.yaml"}


def test_the_memory_is_that_of_the_scenario_that_adopt_makes_of_the_file() -> None:
    wanted = {"hw": "a100-40g", "model": "7b", "gpus": 8}

    held, adopted = of("train.yaml"), dsgen.adopt(wanted, "train.yaml").question

    assert estimate(held.job, held.strategy).gpu.peak_bytes == estimate(adopted.job, adopted.strategy).gpu.peak_bytes
    assert dsgen.memory(wanted, config="train.yaml").question.strategy == held.strategy


def test_a_person_and_the_config_s_own_numbers_win() -> None:
    Path("ds.json").write_text(json.dumps({**OPEN, "train_micro_batch_size_per_gpu": 1, "train_batch_size": 24}))

    question = of("train.yaml", method="lora", seq_len=512)

    assert (question.job.training.method, question.job.seq_len) == ("lora", 512)
    assert (question.strategy.micro_batch, question.strategy.accumulation) == (1, 3)


def test_a_script_is_no_training_file() -> None:
    Path("train.sh").write_text("deepspeed train.py --deepspeed ds.json --lora_r 8\n")

    assert of("train.sh").job.training.method == "full"


SCRIPT = (
    "N=4\ndeepspeed --num_gpus 8 train.py --model_name_or_path meta-llama/Llama-2-7b-hf --bf16 True --use_liger_kernel "
    "--per_device_train_batch_size 2 --gradient_accumulation_steps $N --gradient_checkpointing True "
    "--model_max_length 1024 --lora_r 8 --q_lora True --deepspeed ds.json\n"
)


def test_the_arguments_of_the_trainer_in_a_launch_script_count() -> None:
    Path("train.sh").write_text(SCRIPT)

    question = of("train.sh")
    training, chosen = question.job.training, question.strategy

    assert (training.method, training.lora_rank, training.chunked_loss) == ("qlora", 8, True)
    assert (question.job.seq_len, chosen.micro_batch, chosen.accumulation, chosen.checkpointing) == (1024, 2, 4, True)
    assert question.said["micro-batch"].by == "train.sh"
    assert dsgen.adopt({"hw": "a100-40g"}, "train.sh").question.job.names["model"] == "llama-2-7b"


@pytest.mark.parametrize("told", ["run_sft.py sft.yaml", "sft.py --config sft.yaml"])
def test_a_recipe_that_a_script_gives_its_program_counts(told: str) -> None:
    """As alignment-handbook and open-r1 start theirs: Accelerate's file has the config, the recipe has the rest."""
    Path("zero3.yaml").write_text(
        "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 3}\nmixed_precision: bf16\nnum_processes: 8\n"
    )
    Path("sft.yaml").write_text(
        "model_name_or_path: Qwen/Qwen2.5-7B\nper_device_train_batch_size: 2\nmax_length: 2048\nbf16: true\n"
    )
    Path("run.sh").write_text(f"accelerate launch --config_file zero3.yaml {told} --gradient_accumulation_steps 8\n")

    question = dsgen.adopt({"hw": "a100-80g"}, "run.sh").question

    assert (question.job.names["model"], question.job.seq_len) == ("qwen2.5-7b", 2048)
    assert (question.strategy.micro_batch, question.strategy.accumulation) == (2, 8)


def test_of_several_trainings_in_a_script_that_differ_none_counts() -> None:
    Path("train.sh").write_text(SCRIPT + SCRIPT.replace("--model_max_length 1024", "--model_max_length 4096"))

    assert of("train.sh").job.training.method == "full"


@pytest.mark.parametrize(
    "argument", ["gradient_checkpointing: offload", "gradient_checkpointing: unsloth", "activation_offloading: legacy"]
)
def test_what_moves_activations_away_is_refused_and_not_left_out(argument: str) -> None:
    """A file of which nothing counted would be said to train all weights."""
    said = LLAMA_FACTORY.replace("gradient_checkpointing: true\n", f"{argument}\n")
    Path("train.yaml").write_text(said)

    with pytest.raises(DsgenError, match="activations") as refused:
        of("train.yaml")
    assert refused.value.where == "train.yaml"
    assert "gradient_checkpointing: true" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "micro", "steps"),
    [
        ("finetuning_type: full\n", 8, 1),
        ("use_peft: false\n", 8, 1),
        ("finetuning_type: full\nper_device_train_batch_size: 2\n", 2, 1),
        ("use_peft: false\ngradient_accumulation_steps: 4\n", 8, 4),
    ],
)
def test_an_auto_batch_is_the_program_s_where_its_file_says_none(text: str, micro: int, steps: int) -> None:
    """It is left to a plan where the file is all there is."""
    Path("ds.json").write_text('{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"}')
    Path("train.yaml").write_text(f"deepspeed: ds.json\n{text}")
    asked = of("train.yaml").strategy

    assert (asked.micro_batch, asked.accumulation) == (micro, steps)
    fields = read_arguments("train.yaml").scenario().fields
    assert ("micro_batch" in fields, "accumulation" in fields) == ("batch_size" in text, "accumulation" in text)


def test_a_trainer_that_is_told_nothing_of_checkpoints_makes_none() -> None:
    """A plan is free to: the file is what it completes."""
    Path("ds.json").write_text('{"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"}}')
    Path("train.yaml").write_text("deepspeed: ds.json\nbf16: true\nper_device_train_batch_size: 4\n")
    assert of("train.yaml").strategy.checkpointing is False
    assert "checkpointing" not in read_arguments("train.yaml").scenario().fields
    assert read_arguments("train.yaml").scenario(running=True).fields["checkpointing"].value == "none"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("torch_compile: true", "torch.compile is not counted"),
        ("predict_with_generate: true", "what an evaluation generates is not counted"),
        ("torch_empty_cache_steps: 4", "dsgen simulate --empty-cache-steps 4"),
        ("use_dora: true", "DoRA is not counted"),
        ("load_in_8bit: true", "a base in 8 bits is counted as one in 16"),
    ],
)
def test_what_no_plan_counts_is_said(said: str, told: str) -> None:
    Path("train.yaml").write_text(f"bf16: true\n{said}\n")
    (words,) = read_arguments("train.yaml").uncounted
    assert words.startswith("train.yaml: ")
    assert told in words
    Path("train.yaml").write_text(f"bf16: true\n{said.partition(':')[0]}: false\n")
    assert read_arguments("train.yaml").uncounted == ()


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("quantization_bit: 8", "a base in 8 bits is counted as one in 16"),
        ("quantization_bit: 4", None),
        ("fsdp: [full_shard, auto_wrap]", "it trains with FSDP"),
        ("fsdp: ''", None),
        ("fsdp_version: 2\ndeepspeed: ds.json", None),
        ("context_parallel_size: 4", "4 GPUs share each sequence"),
        ("sequence_parallel_degree: 1", None),
        ("finetuning_type: freeze", "weights that are frozen are counted as trained ones"),
        ("unfrozen_parameters: [lm_head.weight]", "weights that are frozen"),
        (
            "use_peft: true\nlora_modules_to_save: [lm_head]",
            "lm_head, trained whole beside the adapters, is not counted",
        ),
        ("finetuning_type: lora\nadditional_target: embed_tokens,norm", "embed_tokens, norm, trained whole"),
        ("lora_modules_to_save: [lm_head]", None),  # no adapters, nothing beside them
    ],
)
def test_what_is_counted_as_something_else_is_said(said: str, told: str | None) -> None:
    Path("train.yaml").write_text(f"bf16: true\n{said}\n")

    words = read_arguments("train.yaml").uncounted

    assert [word for word in words if word.startswith(f"train.yaml: {told}")] if told else not words


@pytest.mark.parametrize(
    "said",
    [
        "adapter: lora\nlora_modules_to_save: [embed_tokens, lm_head]",
        "finetuning_type: lora\nadditional_target: model.embed_tokens, lm_head",
        "tuner_type: lora\nmodules_to_save: [wte, lm_head]",
    ],
)
def test_embedding_and_head_that_are_trained_beside_adapters_count(said: str) -> None:
    Path("train.yaml").write_text(f"bf16: true\n{said}\n")

    told = read_arguments("train.yaml")

    assert told.fields["lora_train_embeddings"] is True
    assert told.uncounted == ()


@pytest.mark.parametrize(
    ("said", "optimizer", "other"),
    [
        ("optim: sgd", "SGD", None),
        ("optimizer: adamw_bnb_8bit", "AdamW8bit", None),
        ("optim: adamw_torch_fused", None, None),  # a plan's own
        ("optim: adafactor", None, "adafactor"),
    ],
)
def test_the_optimizer_of_a_file_is_what_a_plan_takes(said: str, optimizer: str | None, other: str | None) -> None:
    Path("train.yaml").write_text(f"bf16: true\n{said}\n")

    told = read_arguments("train.yaml")

    assert (told.fields.get("optimizer"), told.other_optimizer) == (optimizer, other)


def test_a_dtype_that_a_config_leaves_open_is_the_program_s() -> None:
    """Of a card that has bf16 it was bf16, whatever the file says."""
    for dtype in ("bf16", "fp16"):
        Path("ds.json").write_text('{"fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"}}')
        Path("train.yaml").write_text(f"{dtype}: true\nper_device_train_batch_size: 1\ndeepspeed: ds.json\n")
        question = of("train.yaml")
        assert (question.strategy.precision, question.said["precision"].by) == (dtype, "train.yaml")
    Path("ds.json").write_text('{"bf16": {"enabled": true}}')
    assert of("train.yaml").strategy.precision == "bf16"


def test_embedding_and_head_count_beside_a_config_too() -> None:
    Path("train.yaml").write_text(f"{LLAMA_FACTORY}additional_target: embed_tokens,lm_head\n")

    assert of("train.yaml").job.training.lora_train_embeddings


def test_another_way_to_checkpoint_is_refused() -> None:
    Path("train.yaml").write_text("bf16: true\ngradient_checkpointing: selective\n")
    with pytest.raises(DsgenError, match="gradient_checkpointing is selective"):
        read_arguments("train.yaml")


def test_two_precisions_in_one_file_are_refused_as_the_trainer_does() -> None:
    Path("train.yaml").write_text("model: 1b\nbf16: true\nfp16: true\n")
    with pytest.raises(DsgenError, match="bf16 and fp16 are both true"):
        read_arguments("train.yaml")


def test_arguments_may_be_named_beside_a_config_that_no_file_names() -> None:
    """alignment-handbook and TRL start with Accelerate's file and one of arguments, which do not name each other."""
    Path("train.yaml").write_text(LLAMA_FACTORY.replace("deepspeed: ds.json\n", ""))

    source, told = beside(config_reader.read("ds.json"), "train.yaml")
    question = ask_config(dsgen.job({"hw": "a100-40g", "model": "7b", "gpus": 8}), source)

    assert told is not None and told.model == "x"
    assert (question.job.training.method, question.job.seq_len, question.strategy.micro_batch) == ("qlora", 1024, 2)


def test_arguments_that_say_otherwise_than_the_config_are_refused() -> None:
    Path("train.yaml").write_text("per_device_train_batch_size: 2\n")
    Path("ds.json").write_text(json.dumps({**OPEN, "train_micro_batch_size_per_gpu": 4}))

    with pytest.raises(DsgenError, match="per_device_train_batch_size is 2"):
        beside(config_reader.read("ds.json"), "train.yaml")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("max_prompt_length: 512\nper_device_train_batch_size: 8\n", "--micro-batch 16 counts both answers"),
        ("rl: dpo\nmicro_batch_size: 1\n", "its reference model are not counted"),
        ("stage: rm\nbf16: true\n", "the second answer of each pair is not counted; --micro-batch N"),
        ("rl: dpo\nadapter: lora\n", "the second answer of each pair is not counted"),
        ("rlhf_type: kto\nbf16: true\n", "its reference model is not counted; --gpu-memory-used SIZE"),
        ("num_generations: 8\nmax_prompt_length: 512\nbf16: true\n", "what generates its answers"),
    ],
)
def test_what_aligning_holds_besides_is_said_not_to_be_counted(said: str, told: str) -> None:
    Path("train.yaml").write_text(f"{said}deepspeed: ds.json\n")

    assert [note for note in of("train.yaml").notes if told in note]


@pytest.mark.parametrize(
    ("trainer", "told"),
    [
        ("DPO", "of DPO: the second answer of each pair and its reference model are not counted"),
        ("KTO", "of KTO: its reference model is not counted"),
        ("Reward", "of REWARD: the second answer of each pair is not counted"),
        ("GRPO", "of GRPO: what generates its answers, and a reference model where one is, are not counted"),
        ("SFT", ""),
    ],
)
def test_a_program_is_of_the_class_of_its_arguments(trainer: str, told: str) -> None:
    Path("train.py").write_text(f'args = {trainer}Config(output_dir="x", bf16=True)\n')
    arguments = read_arguments("train.py")

    said = list(uncounted(arguments.values, "train.py", arguments.fields))

    assert [told in note for note in said] == ([True] if told else [])


@pytest.mark.parametrize("said", ["stage: sft\nbf16: true\n", "rlhf_type: kto\nadapter: lora\n", "bf16: true\n"])
def test_other_trainings_hold_nothing_besides(said: str) -> None:
    Path("train.yaml").write_text(f"{said}deepspeed: ds.json\n")

    assert not any("not counted" in note for note in of("train.yaml").notes)


def test_a_prompt_and_an_answer_make_a_sequence() -> None:
    Path("train.yaml").write_text("max_prompt_length: 512\nmax_completion_length: 1536\ndeepspeed: ds.json\n")

    assert of("train.yaml").job.seq_len == 2048


@pytest.mark.parametrize(
    "said",
    [
        "use_liger_kernel: true",
        "enable_liger_kernel: true",
        "liger_fused_linear_cross_entropy: true",
        "use_liger: true",
    ],
)
def test_a_loss_that_never_holds_all_logits_counts(said: str) -> None:
    Path("train.yaml").write_text(f"{LLAMA_FACTORY}{said}\n")
    wanted = {"hw": "a100-40g", "model": "7b", "gpus": 8}

    held, adopted = of("train.yaml"), dsgen.adopt(wanted, "train.yaml").question

    assert held.job.training.chunked_loss
    assert held.said["chunked loss"].by == "train.yaml"
    assert estimate(held.job, held.strategy).gpu.peak_bytes == estimate(adopted.job, adopted.strategy).gpu.peak_bytes


@pytest.mark.parametrize(
    ("said", "model", "chunked", "kernels"),
    [
        ("use_liger_kernel: true", "7b", True, True),
        ("enable_liger_kernel: true", "7b", True, True),
        ("use_liger_kernel: true\nliger_kernel_config: {fused_linear_cross_entropy: false}", "7b", False, True),
        ("use_liger_kernel: true\nliger_kernel_config: {rope: false, swiglu: false}", "7b", True, False),
        ("liger_fused_linear_cross_entropy: true", "7b", True, False),
        ("liger_rope: true\nliger_rms_norm: true\nliger_glu_activation: true", "7b", False, True),
        ("liger_rope: true\nliger_rms_norm: true", "7b", False, False),
        ("use_liger_kernel: true", "phi-2", True, False),  # of which they are not known: Hugging Face's hold more
    ],
)
def test_who_switches_liger_on_takes_all_of_it(said: str, model: str, chunked: bool, kernels: bool) -> None:
    Path("train.yaml").write_text(f"{LLAMA_FACTORY}{said}\n")
    wanted = {"hw": "a100-40g", "model": model, "gpus": 8}

    held, adopted = of("train.yaml", model=model), dsgen.adopt(wanted, "train.yaml").question

    assert (held.job.training.chunked_loss, bool(held.job.model.liger_kernels)) == (chunked, kernels)
    assert (adopted.job.training.chunked_loss, bool(adopted.job.model.liger_kernels)) == (chunked, kernels)
    assert of("train.yaml", model=model, liger_kernels=False).job.model.liger_kernels == ""


def test_a_loss_that_holds_them_is_said_by_nobody_but_a_person() -> None:
    Path("train.yaml").write_text(f"{LLAMA_FACTORY}use_liger_kernel: true\n")

    assert not of("train.yaml", chunked_loss=False).job.training.chunked_loss


@pytest.mark.parametrize(
    ("said", "kernel"),
    [
        ("attn_implementation: flash_attention_2", "flash"),
        ("attn_implementation: sdpa", "sdpa"),
        ("attn_impl: eager", "eager"),
        ("flash_attn: fa2", "flash"),
        ("sdp_attention: true", "sdpa"),
        ("flash_attn: auto", "sdpa"),  # transformers takes it where nobody asks
        ("", "sdpa"),
        ("attn_impl: flash_attention_4", "flash"),
        ("attn_implementation: kernels-community/flash-attn3", "flash"),
        ("xformers_attention: true", "flash"),  # no plan knows it: dsgen's default
        ("model_name_or_path: google/gemma-2-9b", "flash"),  # LLaMA-Factory asks for it by itself
    ],
)
def test_the_kernel_of_attention_counts(said: str, kernel: str) -> None:
    text = LLAMA_FACTORY.replace("model_name_or_path: x\n", "") if "model_name_or_path" in said else LLAMA_FACTORY
    Path("train.yaml").write_text(f"{text}{said}\n")

    assert of("train.yaml").job.training.attention == kernel


@pytest.mark.parametrize(
    ("said", "kernel"),
    [
        ("use_peft: true", "sdpa"),
        ("tuner_type: lora", "sdpa"),
        ("tuner_type: lora\nmodel: google/gemma-3-4b-pt", "eager"),  # ms-swift asks for it by itself
        ("base_model: Qwen/Qwen3-8B\nsequence_len: 4096", "sdpa"),
        ("per_device_train_batch_size: 1", None),  # a program of one's own may ask for any
    ],
)
def test_each_program_has_the_kernel_of_attention_that_transformers_takes_unasked(said: str, kernel: str) -> None:
    Path("train.yaml").write_text(f"{said}\nbf16: true\n")

    assert read_arguments("train.yaml").fields.get("attention") == kernel


FLASH = "attn_implementation: flash_attention_2\nper_device_train_batch_size: 1\n"
AXOLOTL = "base_model: Qwen/Qwen3-8B\nsequence_len: 4096\nmicro_batch_size: 1\n"


@pytest.mark.parametrize(
    ("said", "counts"),
    [
        (f"{LLAMA_FACTORY}packing: true", ""),  # attention goes on over the borders
        (f"{LLAMA_FACTORY}packing: true\nneat_packing: true\nflash_attn: fa2", "packing"),
        (f"{LLAMA_FACTORY}packing: true\nneat_packing: true", ""),  # sdpa runs unasked
        (f"{LLAMA_FACTORY}neat_packing: true\nflash_attn: sdpa", ""),  # it sees what a mask hides from it
        (f"{AXOLOTL}sample_packing: true\nflash_attention: true", "packing"),
        (f"{AXOLOTL}sample_packing: true", ""),
        (f"tuner_type: lora\n{FLASH}packing: true", "packing"),
        (f"use_peft: true\n{FLASH}packing: true", "packing"),
        ("use_peft: true\nper_device_train_batch_size: 1\npacking: true", ""),
        (f"use_peft: true\n{FLASH}packing: true\npacking_strategy: wrapped", ""),
        (f"use_peft: true\n{FLASH}padding_free: true", "padding_free"),
        (f"use_peft: true\n{FLASH}packing: true\npadding_free: true", "packing"),
        ("use_peft: true\nper_device_train_batch_size: 1\npadding_free: true\nattn_implementation: sdpa", ""),
    ],
)
def test_samples_that_share_a_row_with_borders_count(said: str, counts: str) -> None:
    Path("train.yaml").write_text(f"{said}\n")

    told = read_arguments("train.yaml").fields
    assert [name for name in ("packing", "padding_free") if told.get(name)] == counts.split()


@pytest.mark.parametrize(
    ("more", "checkpointing", "reentrant"),
    [
        ("", True, True),
        ("disable_gradient_checkpointing: true\n", False, False),
        ("use_reentrant_gc: false\n", True, False),
    ],
)
def test_llama_factory_recomputes_where_nobody_says_otherwise(more: str, checkpointing: bool, reentrant: bool) -> None:
    Path("train.yaml").write_text(LLAMA_FACTORY.replace("gradient_checkpointing: true\n", more))
    wanted = {"hw": "a100-40g", "model": "7b", "gpus": 8}

    held, adopted = of("train.yaml"), dsgen.adopt(wanted, "train.yaml").question

    assert (held.strategy.checkpointing, held.job.training.reentrant) == (checkpointing, reentrant)
    assert estimate(held.job, held.strategy).gpu.peak_bytes == estimate(adopted.job, adopted.strategy).gpu.peak_bytes


def test_a_model_that_is_still_to_be_filled_in_is_none() -> None:
    """dsgen render writes model_name_or_path: FILL_IN for LLaMA-Factory; that is no name of a profile."""
    Path("train.yaml").write_text(LLAMA_FACTORY.replace("model_name_or_path: x", "model_name_or_path: FILL_IN"))

    with pytest.raises(DsgenError, match="no model is named"):
        dsgen.adopt({"hw": "a100-40g"}, Path("train.yaml"))


@pytest.mark.parametrize(("model", "said"), [("phi-4", True), ("gemma-3-12b", False), ("mistral-7b", False)])
def test_liger_whose_kernels_are_not_known_of_a_model_is_counted_as_hugging_face_s_and_said(
    tmp_path: Path, model: str, said: bool
) -> None:
    file, config = tmp_path / "sft.yaml", tmp_path / "ds.json"
    autos = dict.fromkeys(("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size"), "auto")
    config.write_text(json.dumps({**autos, "bf16": {"enabled": True}, "zero_optimization": {"stage": 3}}))
    file.write_text(
        f"per_device_train_batch_size: 1\ngradient_checkpointing: true\nuse_liger_kernel: true\ndeepspeed: {config}\n"
    )
    job = ("--hw", "h100-80g", "--model", model)

    for words in (("plan", "--config"), ("memory", "--config"), ("plan", "--args")):
        done = run(*words, str(file), *job)
        told = " ".join((done.out + done.err).split())
        assert (told.count("Liger is switched on, and its kernels are not known of phi3") == 1) is said, words
    kept = dsgen.adopt({"hw": "h100-80g", "model": model}, str(file)).question.notes
    assert sum("Liger is switched on" in note for note in kept) == int(said)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            "packing: true\nattn_implementation: sdpa",
            "packing without FlashAttention is counted as whole sequences: sdpa",
        ),
        ("padding_free: true\nattn_implementation: eager", "padding_free without FlashAttention is counted as whole"),
        ("packing: true", "packing without FlashAttention is counted as whole sequences: sdpa"),
        ("packing: true\ntuner_type: lora", "ms-swift stops at packing without FlashAttention"),
        ("finetuning_type: lora\nneat_packing: true", "flash_attn: fa2 stops at the borders"),
        ("packing: true\nattn_implementation: flash_attention_2", ""),
        ("attn_implementation: sdpa", ""),
    ],
)
def test_samples_that_share_a_row_behind_a_mask_are_said_to_be_counted_otherwise(said: str, words: str) -> None:
    """transformers makes a mask of the borders, and sdpa computes every pair of tokens beside it."""
    program = "" if "_type" in said else "use_peft: true\n"
    Path("train.yaml").write_text(f"{program}per_device_train_batch_size: 1\n{said}\n")
    told = " ".join(read_arguments("train.yaml").uncounted)

    assert words in told
    assert ("FlashAttention" in told) is bool(words)
