"""What each framework is given beside a config: it says what the config says, and is read back as it was meant."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

import dsgen
from dsgen.asking.training_arguments import read_arguments
from dsgen.cli import render
from dsgen.frameworks import FRAMEWORKS, HEADER, job_files
from dsgen.frameworks.job_files import python_value, yaml_value
from dsgen.frameworks.names import NAMES
from dsgen.frameworks.training_arguments import training_arguments
from dsgen.linting.facts import facts
from dsgen.linting.linter import lint_config
from dsgen.shapes.errors import DsgenError
from dsgen.shapes.findings import Severity
from dsgen.targets import TARGETS

TRAINERS = ("hf-trainer", "axolotl", "llama-factory", "ms-swift")
JOBS = {
    "full": {"hw": "a100-40g", "model": "7b", "total_steps": 1000},
    "lora": {"hw": "rtx4090-24g", "model": "qwen2.5-7b", "gpus": 1, "method": "lora", "chunked_loss": True},
    "qlora": {"hw": "rtx3090-24g", "model": "llama-3.1-8b", "gpus": 2, "method": "qlora", "lora_targets": ["q_proj"]},
    "stage 3": {"hw": "h100-80g", "model": "70b", "gpus": 16, "network": "ib-hdr-200g", "zero_stage": 3},
    "fp16": {"hw": "v100-32g", "model": "1.3b", "gpus": 4, "attention": "sdpa"},
    "AutoTP": {"hw": "a100-80g", "model": "7b", "gpus": 4, "tp": 2, "zero_stage": 1},
    "packed": {"hw": "a100-80g", "model": "mistral-7b", "gpus": 4, "method": "lora", "packing": True},
}


def read(text: str) -> dict:
    """YAML as a program reads it."""
    return YAML(typ="safe").load(text)


@pytest.fixture(scope="module", params=JOBS)
def config(request):
    """A rendered config of a common job."""
    return dsgen.render(JOBS[request.param])


@pytest.mark.parametrize("target", FRAMEWORKS)
def test_a_config_for_a_framework_is_clean_to_the_linter(config, target):
    made = job_files(config, target)
    known = {item.name for item in TARGETS}
    said = target if target in known else "hf-trainer"

    heard = lint_config(json.loads(made.files[0].text), target=said, facts=facts(world_size=config.plan.job.world))

    assert [(item.rule, item.message) for item in heard if item.severity is not Severity.INFO] == []


@pytest.mark.parametrize("target", TRAINERS)
def test_arguments_say_what_the_config_says(config, target):
    made = job_files(config, target, resolve=True)
    told = read(made.files[1].text)
    tree = config.to_dict()

    micro = told.get("micro_batch_size", told.get("per_device_train_batch_size"))
    assert micro == tree["train_micro_batch_size_per_gpu"]
    assert told["gradient_accumulation_steps"] == tree["gradient_accumulation_steps"]
    assert told["learning_rate"] == tree["optimizer"]["params"]["lr"]
    assert [told["adam_beta1"], told["adam_beta2"]] == tree["optimizer"]["params"]["betas"]
    assert told["adam_epsilon"] == tree["optimizer"]["params"]["eps"]
    assert isinstance(told["adam_epsilon"], float)
    assert told["max_grad_norm"] == tree["gradient_clipping"]
    assert told["warmup_steps"] == tree["scheduler"]["params"]["warmup_num_steps"]
    assert told["bf16"] == ("bf16" in tree)
    assert told["fp16"] == ("fp16" in tree)
    assert told["deepspeed"] == "ds_config.json"
    checkpointing = told.get("gradient_checkpointing", not told.get("disable_gradient_checkpointing"))
    assert checkpointing == config.plan.chosen.strategy.checkpointing
    assert {"zero_optimization": {"stage": 0}, **tree} == {
        **made.config,
        "steps_per_print": 10,
    }  # it is overwritten


@pytest.mark.parametrize("target", TRAINERS)
def test_auto_stands_where_the_trainer_fills_it_in_and_nowhere_else(config, target):
    made = job_files(config, target)
    written, resolved = json.loads(made.files[0].text), job_files(config, target, resolve=True).config

    def differ(one, other, path=""):
        for key in one:
            here = f"{path}.{key}".lstrip(".")
            if isinstance(one[key], dict):
                yield from differ(one[key], other[key], here)
            elif one[key] != other[key]:
                yield here, one[key]

    changed = dict(differ(written, resolved))
    assert set(changed.values()) == {"auto"}
    assert set(changed) == set(made.autos)
    assert {"train_batch_size", "optimizer.params.lr", "gradient_clipping"} & set(resolved) <= set(changed)
    assert not any("bucket" in key for key in changed)


def test_the_command_line_offers_every_framework():
    assert render.TARGETS == NAMES == tuple(FRAMEWORKS)


def test_agreements_name_a_key_of_the_config_each(config):
    for target in FRAMEWORKS:
        made = job_files(config, target, resolve=True)
        for item in made.agreements:
            node = config.to_dict()
            for part in item.key.split("."):
                assert part in node or item.key == "scheduler.params.total_num_steps" or target == "lightning", item
                node = node.get(part, {})


@pytest.mark.parametrize("target", FRAMEWORKS)
def test_every_file_says_who_wrote_it_and_parses(config, target):
    for item in job_files(config, target).files[1:]:
        assert item.text.startswith(HEADER)
        if item.name.endswith(".py"):
            ast.parse(item.text)
        else:
            assert read(item.text)


def test_lightning_says_the_accumulation_itself():
    made = job_files(dsgen.render(JOBS["full"]), "lightning")

    assert "gradient_accumulation_steps" not in made.config
    assert '"accumulate_grad_batches": 16' in made.files[1].text


def test_accelerate_is_told_the_ranks_and_where_the_config_lies():
    made = job_files(dsgen.render(JOBS["stage 3"]), "accelerate", path="conf/ds.json")
    told = read(made.files[1].text)

    assert told["deepspeed_config"]["deepspeed_config_file"] == "conf/ds.json"
    assert told["deepspeed_config"]["zero3_init_flag"] is True
    assert (told["num_machines"], told["num_processes"]) == (2, 16)
    assert "mixed_precision" not in told


def test_a_target_that_is_not_known_names_the_nearest():
    with pytest.raises(DsgenError, match=r"no target 'hf-trainr'(?s:.)*hf-trainer"):
        job_files(dsgen.render(JOBS["full"]), "hf-trainr")


TEXTS = st.text(st.characters(exclude_categories=["Cc", "Cs", "Cn", "Co"], exclude_characters="\x85\u2028\u2029\ufeff"))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3), max_leaves=5)


@given(VALUES)
def test_a_value_is_read_back_from_yaml_as_it_was(value):
    text = f"key: {yaml_value(value)}\n"
    assert read(text) == {"key": value}
    if isinstance(value, float):
        assert "." in text  # YAML 1.1, which transformers reads, takes 1e-08 for a text


@given(VALUES)
def test_a_value_is_read_back_from_python_as_it_was(value):
    assert eval(python_value(value), {"float": float}) == value


KNOWN = json.loads((Path(__file__).parent / "known_arguments.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("target", TRAINERS)
def test_every_argument_is_one_that_the_framework_has(config, target):
    """Names read in the frameworks' own classes; Axolotl lists all, the others add theirs to TrainingArguments."""
    known = {name for source in {target, "transformers"} - {"hf-trainer"} for name in KNOWN[source]["names"]}
    if target == "axolotl":
        known = set(KNOWN["axolotl"]["names"])

    for resolve in (True, False):
        assert set(read(job_files(config, target, resolve=resolve).files[1].text)) <= known


AUTO = {
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "bf16": {"enabled": "auto"},
    "zero_optimization": {"stage": 2},
    "optimizer": {"type": "AdamW", "params": dict.fromkeys(("lr", "betas", "eps", "weight_decay"), "auto")},
}


@pytest.mark.parametrize("target", FRAMEWORKS)
@pytest.mark.parametrize("resolve", [False, True])
def test_an_auto_that_a_person_wrote_becomes_the_plan_s_number(tmp_path, target, resolve):
    """A config that was adopted keeps its "auto"; what is told beside it, and numbers that are asked for, have none."""
    adopted = dsgen.adopt({"hw": "a100-80g", "model": "llama-3.2-1b"}, AUTO)
    adopted.write(tmp_path / "adopted.yaml")
    config = dsgen.render(dsgen.scenario(tmp_path / "adopted.yaml"))

    made = job_files(config, target, resolve=resolve)

    assert not [item.name for item in made.arguments if item.value == "auto"]
    if target in ("accelerate", "lightning") or (resolve and target != "deepspeed"):
        assert '"auto"' not in json.dumps(made.config)


def test_the_floor_of_a_cosine_is_the_config_s():
    config = dsgen.render({**JOBS["full"], "set": {"scheduler.params.cos_min_ratio": 0.01}})

    assert {item.name: item.value for item in job_files(config, "hf-trainer").arguments}["lr_scheduler_kwargs"] == {
        "min_lr_rate": 0.01
    }


@pytest.mark.parametrize("model", ["llama-3.1-8b", "qwen2.5-7b"])
def test_the_batch_of_an_evaluation_says_as_many_surely_fit_as_the_memory_report(model):
    scenario = {"hw": "rtx4090-24g", "gpus": 1, "model": model, "method": "lora"}
    (said,) = (one for one in training_arguments(dsgen.render(scenario)) if one.name == "per_device_eval_batch_size")

    most = dsgen.memory(scenario).most_evaluated

    assert said.value <= most < 2 * said.value
    assert (f"{most} surely fit" if most > said.value else "no more surely fit") in said.reason


@pytest.mark.parametrize(
    ("target", "argument"),
    [("axolotl", "sample_packing"), ("llama-factory", "neat_packing"), ("ms-swift", "packing")],
)
def test_packed_samples_are_asked_of_the_program_that_packs_them(tmp_path, target, argument):
    """And read back: the file's own plan packs too."""
    made = job_files(dsgen.render(JOBS["packed"]), target, resolve=True)
    file = tmp_path / made.files[1].name
    file.write_text(made.files[1].text)

    assert read(made.files[1].text)[argument] is True
    assert read_arguments(str(file)).fields["packing"] is True
    assert argument not in read(job_files(dsgen.render(JOBS["lora"]), target).files[1].text)


def test_samples_end_to_end_are_asked_of_the_program_that_has_a_switch_for_them():
    free = dsgen.render({**JOBS["packed"], "packing": False, "padding_free": True})
    assert read(job_files(free, "ms-swift").files[1].text)["padding_free"] is True
    for target in ("axolotl", "llama-factory"):
        with pytest.raises(DsgenError, match=r"padding_free is true; .* has no switch for it"):
            job_files(free, target)
