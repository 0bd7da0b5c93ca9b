"""What a program must do for a plan: each thing is there, with code for each framework, and its number."""

from __future__ import annotations

import ast
import functools
import json
import operator
import re

import pytest

import dsgen
from dsgen.cli import main
from dsgen.frameworks import FRAMEWORKS
from dsgen.frameworks.needs import _slower, needs
from dsgen.frameworks.rank_environment import job_variables
from dsgen.planning.assumptions import needed
from dsgen.report.needs import data, sentence, text
from dsgen.report.plan import text as plan_text
from dsgen.report.summary import text as summary_text

JOBS = {
    "qlora": {"hw": "rtx3090-24g", "model": "llama-3.1-8b", "gpus": 1, "method": "qlora", "chunked_loss": True},
    "lora": {"hw": "rtx4090-24g", "model": "qwen2.5-7b", "gpus": 1, "method": "lora", "chunked_loss": True},
    "stage 3": {"hw": "h100-80g", "model": "70b", "gpus": 16, "network": "ib-hdr-200g", "zero_stage": 3},
    "AutoTP": {"hw": "a100-80g", "model": "7b", "gpus": 4, "tp": 2, "zero_stage": 1},
    "eager": {"hw": "a100-80g", "model": "7b", "attention": "eager", "zero_stage": 3},
    "8 bits": {"hw": "a100-80g", "model": "7b", "gpus": 4, "optimizer": "AdamW8bit", "zero_stage": 2},
    "packed": {"hw": "a100-80g", "model": "mistral-7b", "gpus": 4, "method": "lora", "packing": True, "mean_len": 500},
}
CODES = {
    "qlora": "four-bits attention chunked-loss adapters checkpointing length",
    "lora": "attention chunked-loss adapters checkpointing length",
    "stage 3": "zero-init attention checkpointing length",
    "AutoTP": "attention checkpointing same-data length",
    "eager": "zero-init attention checkpointing length",
    "8 bits": "attention checkpointing length",
    "packed": "attention adapters checkpointing length",
}


@pytest.mark.parametrize(
    ("stage", "resumes"), [(0, "the folder of its last checkpoint"), (1, "the same number of GPUs")]
)
def test_a_checkpoint_without_shards_loads_on_any_number_of_gpus(stage, resumes):
    """Stage 0 of DeepSpeed 0.19.8 saves one file, mp_rank_00_model_states.pt, with the optimizer's states in it."""
    plan = dsgen.plan({"hw": "h100-80g", "model": "1b", "gpus": 2, "method": "lora", "zero_stage": stage})
    told = {item.code: item for item in needs(plan, "hf-trainer")}

    assert resumes in told["resume"].words
    assert ("universal" in told) is bool(stage)


def test_how_much_slower_it_is_else_is_said_as_a_plan_says_it():
    """No rival is more than 100 % slower: from twice the time for a token on it is said in times."""
    small = {"hw": "rtx4090-24g", "model": "llama-3.1-8b", "gpus": 1, "method": "qlora"}
    told = [item.otherwise for job in (*JOBS.values(), small) for item in needs(dsgen.plan(job), "hf-trainer")]
    slower = [float(number) for said in told for number in re.findall(r"(\d+)% slower", said)]

    assert slower and max(slower) < 50
    plan = dsgen.plan(small)
    speed = plan.chosen.cost.tokens_per_second_per_gpu
    assert [_slower(plan, speed / times) for times in (1, 1.5, 3)] == ["", ", 33% slower", ", 3.0x slower"]


@pytest.mark.parametrize("name", JOBS)
def test_a_plan_says_what_it_counts_on(name):
    plan = dsgen.plan(JOBS[name])
    wanted = CODES[name].split()
    if not plan.chosen.strategy.checkpointing:
        wanted.remove("checkpointing")

    assert [item.code for item in needed(plan)] == wanted


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("target", FRAMEWORKS)
def test_every_need_has_code_that_parses_and_says_what_happens_without_it(name, target):
    told = needs(dsgen.plan(JOBS[name]), target)

    assert len({item.code for item in told}) == len(told)
    for item in told:
        assert item.otherwise
        assert item.snippet
        ast.parse(item.snippet)


def test_what_is_left_out_costs_what_dsgen_memory_says_of_it():
    job = JOBS["qlora"]
    told = {item.code: item.otherwise for item in needs(dsgen.plan(job), "deepspeed")}
    size = dsgen.plan(job).chosen.strategy.micro_batch
    without = dsgen.memory({**job, "checkpointing": "none", "micro_batch": size, "zero_stage": 0, "offload": "none"})

    assert re.match(r"[\d.]+ of 23\.7 GiB does not fit", told["checkpointing"])
    assert float(told["checkpointing"].split()[0]) == pytest.approx(without.memory.gpu.needed_bytes / 2**30, abs=0.1)
    assert "GiB" in told["chunked-loss"]
    assert told["attention"].startswith("torch's (sdpa), which transformers takes by itself: ")


@pytest.mark.parametrize(
    ("card", "model", "asked", "otherwise"),
    [
        ("a100-80g", "gemma-2-2b", "flash_attention_2", "eager attention: "),  # its class has no sdpa
        ("t4-16g", "gemma-2-2b", "eager", "a kernel that was not asked for"),  # and the card no FlashAttention
        ("t4-16g", "llama-3.2-1b", "sdpa", "the same, for transformers takes it by itself"),
    ],
)
def test_the_kernel_that_is_asked_for_is_one_that_the_class_and_the_card_have(card, model, asked, otherwise):
    plan = dsgen.plan({"hw": card, "gpus": 1, "model": model, "method": "qlora", "seq_len": 1024})
    told = {item.code: item for item in needs(plan, "deepspeed")}

    assert told["attention"].otherwise.startswith(otherwise)
    assert f'attn_implementation="{asked}"' in told["attention"].snippet
    assert (plan.job.training.attention == "eager") == (asked == "eager")


def test_adapters_of_the_base_s_type_are_asked_of_peft():
    code = {
        wide: next(item for item in needs(dsgen.plan({**JOBS["lora"], "lora_fp32": wide}), "deepspeed")
                   if item.code == "adapters").snippet
        for wide in (True, False)
    }  # fmt: skip

    assert code[False] == code[True].removesuffix(")") + ", autocast_adapter_dtype=False)"


def test_a_plan_with_its_optimizer_on_nvme_says_what_does_not_resume():
    told = {
        offload: {item.code: item for item in needs(dsgen.plan({**JOBS["eager"], "offload": offload}), "deepspeed")}
        for offload in ("nvme", "optimizer")
    }

    assert "DSG352" in told["nvme"]["resume"].otherwise
    assert "DSG352" not in told["optimizer"]["resume"].otherwise


def test_the_checklist_keeps_to_80_columns_but_for_code():
    for target in FRAMEWORKS:
        for line in text(needs(dsgen.plan(JOBS["stage 3"]), target), target).splitlines():
            assert len(line) <= 80 or line.startswith(" " * 8)


def test_the_command_prints_text_and_json(capsys):
    options = ["--hw", "rtx3090-24g", "--model", "llama-3.1-8b", "--gpus", "1", "--method", "qlora"]
    for form in ("text", "json"):
        with pytest.raises(SystemExit) as ended:
            main(["needs", *options, "--target", "hf-trainer", "--format", form])
        assert ended.value.code == 0
        printed = capsys.readouterr().out
        if form == "text":
            assert printed.startswith("[ ] 1 a base in 4 bits (NF4)\n    else: a base in 16 bits: ")
        else:
            codes = [item["code"] for item in json.loads(printed)["needs"]]
            assert codes[:3] == ["four-bits", "attention", "adapters"]


def test_what_cannot_run_is_not_asked_for():
    """FlashAttention begins with Ampere and with 16 bits; weights in 4 bits have no zero.Init."""
    old = dsgen.plan({"hw": "v100-32g", "model": "llama-3.2-1b", "gpus": 4})
    wide = dsgen.plan({"hw": "a100-80g", "model": "llama-3.2-1b", "gpus": 4, "precision": "fp32"})
    several = dsgen.plan({"hw": "rtx4090-24g", "model": "llama-3.1-8b", "gpus": 4, "method": "qlora", "zero_stage": 3})

    for plan in (old, wide):
        code = {item.code: item.snippet for item in needs(plan, "hf-trainer")}
        assert 'attn_implementation="sdpa"' in code["attention"]
    codes = [item.code for item in needs(several, "deepspeed")]
    assert codes[:2] == ["device", "four-bits"]
    assert "zero-init" not in codes


def test_a_base_in_4_bits_is_under_no_zero_init_on_one_gpu_either():
    plan = dsgen.plan({"hw": "rtx4090-24g", "model": "llama-3.1-8b", "gpus": 1, "method": "qlora", "zero_stage": 3})

    assert [item.code for item in needed(plan)][:2] == ["four-bits", "attention"]
    assert "zero.Init" not in text(needs(plan, "deepspeed"), "deepspeed")


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("target", FRAMEWORKS)
def test_the_environment_is_what_a_launch_writes(name, target):
    plan = dsgen.plan(JOBS[name])
    told = next(item for item in needs(plan, target) if item.code == "environment")

    said = dict(re.findall(r"^# export (\w+)=(\S+)  # \S", told.snippet, re.M))
    assert said == {one.name: one.value for one in job_variables(plan, target)}
    assert "OMP_NUM_THREADS" in said
    assert ("DEEPSPEED_TIMEOUT" in said) == (target in ("deepspeed", "accelerate") and plan.job.world > 1)


DELETED = {"hw": "a100-80g", "model": "llama-3.2-1b", "gpus": 4}


def started(target: str, *names: str) -> tuple[str, str]:
    """Words and code of how optimizer and schedule run where a person deleted these of the config."""
    plan = dsgen.plan({**DELETED, "set": dict.fromkeys(names)})
    return next((item.words, item.snippet) for item in needs(plan, target) if item.code == "start")


@pytest.mark.parametrize("target", FRAMEWORKS)
def test_what_was_deleted_of_the_config_the_program_makes(target):
    assert started(target)[0] == "optimizer and schedule from the config"
    for names in (("optimizer",), ("scheduler",), ("optimizer", "scheduler")):
        words, code = started(target, *names)
        assert "own" in words
        ast.parse(code)
        if target in ("deepspeed", "accelerate", "lightning") and "optimizer" in names:
            assert "torch.optim.AdamW(" in code
            assert "DummyOptim" not in code
        if target in ("deepspeed", "accelerate") and "scheduler" in names:
            assert "get_scheduler(" in code


def test_a_deletion_in_a_layer_is_seen_too():
    plan = dsgen.plan(dsgen.profile("a100-80g") | dsgen.profile("7b") | dsgen.site({"deepspeed": {"optimizer": None}}))

    told = {item.code: item.words for item in needs(plan, "accelerate")}
    assert told["start"].startswith("an optimizer of the program's own")


@pytest.mark.parametrize(
    ("below", "above", "own"),
    [
        ({}, {}, False),
        ({}, {"optimizer": None}, True),
        ({"optimizer": None}, {"optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}}, False),
        ({"optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}}, {"optimizer": None}, True),
        ({}, {"scheduler": None}, False),
    ],
)
def test_plan_and_render_ask_for_an_optimizer_where_the_config_has_none(below, above, own):
    layers = [dsgen.site({"deepspeed": keys}) for keys in (below, above) if keys]
    plan = dsgen.plan(functools.reduce(operator.or_, layers, dsgen.profile("a100-80g") | dsgen.profile("7b")))

    assert ("an optimizer of its own" in sentence(plan)) is own
    assert ("start" in {item["code"] for item in data(plan)}) is own
    assert sentence(plan) in " ".join(plan_text(plan).split())
    assert sentence(plan) in " ".join(summary_text(dsgen.render(plan)).split())


def test_a_checkpoint_is_as_large_as_its_optimizer_makes_it():
    sizes = {}
    for optimizer in ("AdamW", "Lion", "SGD"):
        plan = dsgen.plan({"hw": "a100-80g", "model": "llama-3.2-1b", "gpus": 4, "optimizer": optimizer})
        words = {item.code: item.words for item in needs(plan, "deepspeed")}["save"]
        sizes[optimizer] = float(words.split()[2])
    assert sizes["Lion"] / sizes["AdamW"] == pytest.approx(10 / 14, rel=0.02)
    assert sizes["SGD"] / sizes["AdamW"] == pytest.approx(6 / 14, rel=0.02)


@pytest.mark.parametrize("name", JOBS)
def test_what_a_launch_starts_reads_the_options_that_it_is_given(name):
    for target in ("hf-trainer", "accelerate", "deepspeed"):
        told = needs(dsgen.plan(JOBS[name]), target, launched=True)
        code = "\n".join(
            item.snippet for item in told if item.code not in ("environment", "start", "save", "resume", "one-file")
        )

        ast.parse(code)
        for file in ("training_args", "accelerate.yaml", '"ds_config.json"'):
            assert file not in code


@pytest.mark.parametrize(
    ("wanted", "target", "words", "code"),
    [
        # Accelerator.get_state_dict of 1.15 raises without the key wherever AutoTP splits, and stage 3 shares out.
        ("AutoTP", "hf-trainer", "in 16 bits", "trainer.model_wrapped._consolidated_16bit_state_dict()"),
        ("AutoTP", "llama-factory", "in 16 bits", "# state = trainer.model_wrapped._consolidated_16bit_state_dict()"),
        ("AutoTP", "accelerate", "in 16 bits", "state = model._consolidated_16bit_state_dict()"),
        ("AutoTP", "deepspeed", "in 16 bits", "state = engine._consolidated_16bit_state_dict()"),
        ("stage 3", "accelerate", "in 16 bits", "accelerator.get_state_dict(model)"),
        ("stage 3", "deepspeed", "in fp32", "zero_to_fp32"),
        ("lora at 3", "accelerate", "adapters", "accelerator.unwrap_model(model).save_pretrained"),
        # transformers 5.23, trainer.py, save_model: exclude_frozen_parameters, whatever the key says
        ("lora at 3", "hf-trainer", "adapters", "writes the adapters alone"),
    ],
)
def test_the_weights_at_the_end_are_those_that_the_code_makes(wanted, target, words, code):
    jobs = {**JOBS, "lora at 3": {"hw": "h100-80g", "model": "70b", "gpus": 8, "method": "lora", "zero_stage": 3}}
    told = {item.code: item for item in needs(dsgen.plan(jobs[wanted]), target)}["one-file"]

    assert words in told.words
    assert code in told.snippet
    assert ("GatheredParameters" in told.snippet) is (wanted == "lora at 3" and target == "accelerate")


def test_another_attention_computes_whole_sequences_of_packed_samples():
    """It stops at no border: a mask hides what another sample has."""
    packed = {"hw": "a100-80g", "model": "llama-3.1-8b", "method": "lora", "chunked_loss": True, "packing": True}
    told = {item.code: item for item in needs(dsgen.plan({**packed, "seq_len": 32768, "mean_len": 900}), "deepspeed")}

    assert re.search(r"transformers takes by itself: .* GiB, \d\.\dx slower$", told["attention"].otherwise)


@pytest.mark.parametrize("target", ["deepspeed", "hf-trainer"])
def test_the_code_that_packs_samples_makes_whole_sequences_with_borders(target):
    """The names are TRL's; what its own code makes of samples is in test_real_frameworks."""
    told = {item.code: item for item in needs(dsgen.plan(JOBS["packed"]), target)}["length"]

    assert told.words == "samples packed into sequences of 4096 tokens"
    assert "pack_dataset(dataset, seq_length=4096" in told.snippet
    assert ("SFTConfig(max_length=4096, packing=True)" in told.snippet) is (target == "hf-trainer")
    assert told.otherwise.startswith("samples that are padded: ")
    assert told.otherwise.endswith(" slower")


@pytest.mark.parametrize("target", ["deepspeed", "hf-trainer"])
def test_the_code_of_samples_end_to_end_is_the_collator_s(target):
    job = {**JOBS["packed"], "packing": False, "padding_free": True}
    told = {item.code: item for item in needs(dsgen.plan(job), target)}["length"]

    assert told.words == "samples end to end, each of at most 4096 tokens"
    assert "collate = DataCollatorWithFlattening()" in told.snippet
    assert ("SFTConfig(max_length=None, padding_free=True) of samples cut at 4096 tokens" in told.snippet) is (
        target == "hf-trainer"
    )
    ast.parse(told.snippet)
