"""Targets: what each program fills in, adds and refuses; against the real transformers and accelerate where marked."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dsgen import targets
from dsgen.deepspeed.keys import lookup
from dsgen.deepspeed.surface import load
from dsgen.documents.yaml import documents as yaml_documents
from dsgen.linting import accelerate_files
from dsgen.linting.subjects import OPEN, Subject
from dsgen.shapes.errors import DsgenError
from dsgen.targets import TARGETS, Target

CHILD = Path(__file__).parents[1] / "helpers" / "hf_programs.py"
HF = [target for target in TARGETS if target.strict_json and target.filled]

# "auto" wherever the Trainer fills it in.
FILLED: dict[str, Any] = {
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "steps_per_print": "auto",
    "bf16": {"enabled": "auto"},
    "fp16": {"enabled": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "weight_decay": "auto"}},
    "scheduler": {
        "type": "WarmupDecayLR",
        "params": dict.fromkeys(("warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "total_num_steps"), "auto"),
    },
    "zero_optimization": {
        "stage": "auto",
        "reduce_bucket_size": "auto",
        "stage3_prefetch_bucket_size": "auto",
        "stage3_param_persistence_threshold": "auto",
        "stage3_gather_16bit_weights_on_model_save": "auto",
        "offload_optimizer": {"device": "auto", "nvme_path": "auto"},
        "offload_param": {"device": "auto", "nvme_path": "auto"},
    },
}
TRAINER_ONLY = {"betas": "auto", "eps": "auto"}


def subject(config: dict[str, Any], target: Target) -> Subject:
    from dsgen.documents.document import unwritten

    return Subject(config=config, surface=load("0.19"), target=target, document=unwritten(config))


def put(config: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    changed: dict[str, Any] = json.loads(json.dumps(config))
    here = changed
    *sections, last = path.split(".")
    for name in sections:
        here = here.setdefault(name, {})
    here[last] = value
    return changed


def test_a_target_is_found_by_its_name() -> None:
    assert [targets.find(target.name) for target in TARGETS] == list(TARGETS)


@pytest.mark.parametrize(
    ("name", "told", "instead"),
    [
        ("hf-trainer", {}, {"gradient_clipping": targets.OPEN, "zero_optimization.stage": 2}),
        ("hf-trainer", {"gradient_clipping": 0.5}, {"gradient_clipping": 0.5, "zero_optimization.stage": 2}),
        ("deepspeed", {"gradient_clipping": 0.5}, {}),
    ],
)
def test_what_deepspeed_sees_instead_of_auto(name: str, told: dict[str, Any], instead: dict[str, Any]) -> None:
    config = {
        "gradient_clipping": "auto",
        "zero_optimization": {"stage": "auto", "overlap_comm": "auto"},
        "zero_optimization.stage": "auto",  # a name with a dot is no path
    }

    assert targets.find(name).filled_in(config, told) == instead
    assert targets.find(name).filled_in({"zero_optimization.stage": "auto"}, told) == {}


@pytest.mark.parametrize("target", TARGETS)
def test_a_rule_sees_what_deepspeed_is_given(target: Target) -> None:
    """One table settles "auto", for lint and for what is loaded."""
    filled = target.filled_in(FILLED, {})

    assert {path: subject(FILLED, target).value(path) for path in filled} == filled


def test_an_unknown_target_names_the_near_one() -> None:
    with pytest.raises(DsgenError, match="did you mean hf-trainer"):
        targets.find("hf_trainer")


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"train_micro_batch_size_per_gpu": "auto"}, "hf-trainer"),
        ({"bf16": {"enabled": "auto"}}, "hf-trainer"),
        ({"zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"}}, "hf-trainer"),
        ({"train_micro_batch_size_per_gpu": 1}, "deepspeed"),
        ({"data_types": {"keep_in_fp32_modules": "auto"}}, "deepspeed"),
        ({"steps_per_print": "auto"}, "deepspeed"),
        ({"bf16": "auto"}, "deepspeed"),
        ([], "deepspeed"),
        (None, "deepspeed"),
    ],
)
def test_the_target_is_guessed_from_what_is_auto(config: Any, name: str) -> None:
    assert targets.guess(config).name == name


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_every_key_of_a_target_is_one_that_deepspeed_reads(target: Target) -> None:
    keys = {*target.brings, *target.filled, *target.settled, *target.shared, *target.overwritten, *target.matched}

    known = load("0.19")

    assert [path for path in {*keys, *target.refused, *target.needed} if known.key(path) is None] == []


@pytest.mark.parametrize("target", HF, ids=lambda target: target.name)
def test_what_is_filled_in_is_open_and_what_is_settled_is_known(target: Target) -> None:
    asked = subject(FILLED, target)

    assert asked.value("train_micro_batch_size_per_gpu") is OPEN
    assert asked.value("zero_optimization.reduce_bucket_size") is OPEN
    assert asked.stage == 2
    assert asked.offload("optimizer") == "none"


def test_nothing_is_filled_in_by_plain_deepspeed_and_lightning() -> None:
    paths = {path for target in HF for path in target.filled}

    assert [
        (name, path) for name in ("deepspeed", "lightning") for path in paths if targets.find(name).fills(path)
    ] == []


# The real programs, each asked once in one child process.

REFUSED = (
    "zero_optimization.overlap_comm",
    "zero_optimization.allgather_bucket_size",
    "zero_optimization.prefetch_bucket_size",
    "zero_optimization.zenflow.select_strategy",
    "data_types.keep_in_fp32_modules",
    "wall_clock_breakdown",
    "optimizer.params.torch_adam",
    "bfloat16.enabled",
    "anything.at_all",
)
BASE: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 8,
    "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
    "zero_optimization": {"stage": 2},
}
YAML = """distributed_type: DEEPSPEED
mixed_precision: {precision}
num_processes: 2
deepspeed_config:
  zero_stage: {stage}
  offload_optimizer_device: {device}
  offload_param_device: nvme
  offload_param_nvme_path: /local_nvme
  gradient_accumulation_steps: 4
  gradient_clipping: 0.5
  zero3_save_16bit_model: true
"""
LAUNCHED = [
    YAML.format(precision=precision, stage=stage, device=device)
    for precision, stage, device in (("bf16", 3, "cpu"), ("fp16", 2, "none"), ("'no'", 3, "nvme"))
]
LAUNCH_REFUSES = {
    "distributed_type: DEEPSPEED\nmixed_precision: no\nnum_processes: 1\n"
    "deepspeed_config: {zero_stage: 2}\n": "AttributeError",
    "distributed_type: DEEPSPEED\nnum_processes: 1\ndeepspeed_config: {zero_stage: 2}\nzero_stage: 2\n": "ValueError",
    "distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_processes: 1\n"
    "deepspeed_config: {deepspeed_config_file: ds_config.json}\n": "ValueError",
    "distributed_type: DEEPSPEED\nnum_processes: 1\n"
    "deepspeed_config: {deepspeed_config_file: ds_config.json, gradient_clipping: 1.0}\n": "ValueError",
}


def questions() -> dict[str, tuple[str, Any]]:
    asked: dict[str, tuple[str, Any]] = {}
    for target in HF:
        name = target.name
        for stage in ("auto", 2, 3):
            asked[f"{name} filled {stage}"] = (name, put(FILLED, "zero_optimization.stage", stage))
        asked[f"{name} betas"] = (name, put(BASE, "optimizer.params", {"lr": "auto", **TRAINER_ONLY}))
        asked[f"{name} bare"] = (name, {"train_micro_batch_size_per_gpu": 8, "zero_optimization": {"stage": 1}})
        asked[f"{name} no batch"] = (name, {"zero_optimization": {"stage": 1}})
        asked[f"{name} no zero"] = (name, {"train_micro_batch_size_per_gpu": 8})
        asked[f"{name} zero true"] = (name, {"train_micro_batch_size_per_gpu": 8, "zero_optimization": True})
        asked[f"{name} bfloat16"] = (name, {**BASE, "bfloat16": {"enabled": True}})
        for path in REFUSED:
            asked[f"{name} {path}"] = (name, put(BASE, path, "auto"))
    for path in targets.find("hf-trainer").matched:
        asked[f"matched {path}"] = ("hf-trainer", put(put(FILLED, "zero_optimization.stage", 2), path, 0.125))
    for number, text in enumerate(LAUNCHED):
        asked[f"launch {number}"] = ("launch", text)
    for text in LAUNCH_REFUSES:
        asked[text] = ("launch", text)
    return asked


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    asked = questions()
    done = subprocess.run(
        [sys.executable, str(CHILD)],
        input=json.dumps(list(asked.values())),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(zip(asked, json.loads(done.stdout), strict=True))


def autos(config: Any) -> list[str]:
    if isinstance(config, dict):
        return [f"{name} {inner}" for name, value in config.items() for inner in autos(value)]
    return ["auto"] if config == "auto" else []


@pytest.mark.proof
@pytest.mark.parametrize("target", HF, ids=lambda target: target.name)
@pytest.mark.parametrize("stage", ["auto", 2, 3])
def test_the_real_program_fills_in_what_the_target_says(target: Target, stage: object, answers: dict[str, Any]) -> None:
    arrived = answers[f"{target.name} filled {stage}"]

    assert autos(arrived) == []
    written = {path for path in target.filled | set(target.settled) if lookup(FILLED, path)[1] == "auto"}
    assert written >= set(target.settled)
    assert target.filled - written <= {"optimizer.params.betas", "optimizer.params.eps"}  # see the next but one
    assert lookup(arrived, "zero_optimization.stage")[1] == (2 if stage == "auto" else stage)
    settled = {path: value for path, value in target.settled.items() if not path.endswith(".stage")}
    assert {path: lookup(arrived, path)[1] for path in settled} == settled
    assert math.isinf(arrived["steps_per_print"])


@pytest.mark.proof
@pytest.mark.parametrize("target", HF, ids=lambda target: target.name)
@pytest.mark.parametrize("path", REFUSED)
def test_the_real_program_refuses_auto_elsewhere(target: Target, path: str, answers: dict[str, Any]) -> None:
    assert not target.fills(path)
    assert "not found in kwargs" in answers[f"{target.name} {path}"]


@pytest.mark.proof
def test_only_the_real_trainer_fills_in_betas_and_eps(answers: dict[str, Any]) -> None:
    assert answers["hf-trainer betas"]["optimizer"]["params"]["betas"] == [0.9, 0.999]
    assert "`optimizer.params.betas` not found in kwargs" in answers["accelerate betas"]


@pytest.mark.proof
@pytest.mark.parametrize("target", HF, ids=lambda target: target.name)
def test_what_the_real_program_adds_and_needs(target: Target, answers: dict[str, Any]) -> None:
    bare = answers[f"{target.name} bare"]
    added = set(bare) - {"train_micro_batch_size_per_gpu", "zero_optimization"}

    assert added == {*target.brings, *target.overwritten, "zero_allow_untested_optimizer"}
    assert "train_micro_batch_size_per_gpu" not in answers[f"{target.name} no batch"]
    assert not target.brings_batch
    assert answers[f"{target.name} no zero"].startswith("ValueError: Please specify the ZeRO optimization config")
    assert answers[f"{target.name} zero true"].startswith("AttributeError")
    assert answers[f"{target.name} bfloat16"]["bf16"] == {"enabled": False}


@pytest.mark.proof
@pytest.mark.parametrize("path", targets.find("hf-trainer").matched)
def test_the_real_trainer_compares(path: str, answers: dict[str, Any]) -> None:
    assert f"- ds {path}=0.125 vs hf" in answers[f"matched {path}"]


@pytest.mark.proof
@pytest.mark.parametrize("number", range(len(LAUNCHED)))
def test_accelerate_builds_the_config_that_we_translate(number: int, answers: dict[str, Any]) -> None:
    ours = accelerate_files.translated(yaml_documents.read(LAUNCHED[number], "accelerate.yaml").config)
    real = answers[f"launch {number}"]

    assert [path for path in flat(ours) if flat(ours)[path] != flat(real).get(path, "nothing")] == []
    extra = {path: value for path, value in flat(real).items() if path not in flat(ours)}
    assert {value for value in extra.values() if value not in (None, False, "none", math.inf)} == set()


@pytest.mark.proof
@pytest.mark.parametrize("text", LAUNCH_REFUSES)
def test_accelerate_refuses_the_file(text: str, answers: dict[str, Any]) -> None:
    config = yaml_documents.read(text, "accelerate.yaml")

    assert str(answers[text]).startswith(LAUNCH_REFUSES[text])
    assert list(accelerate_files.faults(config.config, config)) != []


def flat(config: dict[str, Any], before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in config.items():
        found |= flat(value, f"{before}{name}.") if isinstance(value, dict) else {f"{before}{name}": value}
    return found
