"""Sources: what a person names becomes documents, each once, for the right program; nothing stops the others."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

from dsgen.documents import editor
from dsgen.linting import sources, wrapped_configs
from dsgen.linting.linter import lint
from dsgen.linting.sources import STDIN, Source, documents
from dsgen.linting.subjects import Facts
from dsgen.shapes.findings import Assign, Finding, Move, Remove, Severity

CONFIG = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}'
HF = '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}'
ACCELERATE = """compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
num_processes: 8
mixed_precision: bf16
deepspeed_config:
  zero_stage: 2   # comment
  offload_param_device: cpu
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(files: dict[str, str | bytes]) -> None:
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())


def names(*paths: str, **known: Any) -> list[str]:
    return [source.document.name for source in documents(paths, **known)]


def fault(source: Source) -> str:
    [(rule, _)] = source.document.faults
    return rule


def said(source: Source) -> list[Finding]:
    return list(lint(source.document, target=source.target, facts=Facts(world_size=source.world_size)))


def named(source: Source, rule: str) -> Finding:
    [found] = [finding for finding in said(source) if finding.rule == rule]
    return found


def test_each_file_is_given_once_in_the_order_named(here: Path) -> None:
    write({"b.json": CONFIG, "a.json": CONFIG, "sub/c.json": CONFIG})
    Path("link.json").symlink_to("a.json")

    assert names("b.json", "a.json", "sub", "./b.json", "link.json") == ["b.json", "a.json", "sub/c.json"]


@pytest.mark.parametrize("pattern", ["*.json", "**/*.json", "?.json"])
def test_a_pattern_that_the_shell_left_is_expanded(here: Path, pattern: str) -> None:
    write({"a.json": CONFIG, "b.json": CONFIG})

    assert [Path(name).name for name in names(pattern)] == ["a.json", "b.json"]


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(here: Path) -> None:
    write({"a[1].json": CONFIG, "a1.json": CONFIG})

    assert names("a[1].json") == ["a[1].json"]


def test_a_folder_gives_what_looks_like_a_config(here: Path) -> None:
    ours: dict[str, str | bytes] = {
        "zero.json": CONFIG,
        "deep/er/ds.hjson": "{\n  # comment\n  zero_optimization: {stage: 2}\n}",
        "precision.json": '{"bf16": {"enabled": true}, "optimizer": {"type": "Adam", "params": {}}}',
        "broken.json": '{"zero_optimization": {"stage": 2',
        "latin.json": b'{"zero_optimization": "\xe9"}',
        "windows.json": CONFIG.encode("utf-16"),
        "accelerate.yaml": ACCELERATE,
        "zero.yml": "train_micro_batch_size_per_gpu: 1\n",
        "run.sh": "export CUDA_LAUNCH_BLOCKING=1\ndeepspeed train.py\n",
    }
    others = {
        "package.json": '{"name": "deepspeed-viewer"}',
        "model/config.json": '{"hidden_size": 8, "optimizer": "adam"}',
        "fsdp.yaml": "distributed_type: FSDP\ndeepspeed_config: {}\n",
        "workflow.yaml": "jobs: {deepspeed: {steps: 3}}\n",
        "other.sh": "echo hello\n",
        "train.py": "import deepspeed\n",
        "words.json": b'{"optimizer": "\xe9"}',
        "notes.txt": CONFIG,
        **{f"{skipped}/x.json": CONFIG for skipped in (".git", "node_modules", "env/lib")},
        "env/pyvenv.cfg": "home = /usr\n",
    }
    write({**ours, **others})

    assert sorted(names(".")) == sorted(ours)


def test_a_named_file_is_given_whatever_it_looks_like(here: Path) -> None:
    files: dict[str, str | bytes] = {
        "package.json": "{}",
        "x.yaml": "a: 1\n",
        "other.sh": "echo\n",
        "ds.config": CONFIG,
    }
    write(files)

    assert [(source.document.name, source.document.kind) for source in documents(list(files))] == [
        ("package.json", "json"),
        ("x.yaml", "yaml"),
        ("other.sh", "launch"),
        ("ds.config", "json"),
    ]


def test_a_file_that_cannot_be_read_has_one_fault_and_stops_no_other(here: Path) -> None:
    write(
        {"last.json": CONFIG, "big.json": b" " * 1_000_001, "latin.json": b'{"a": "\xe9"}', "wide.json": b"\xff\xfe{\0"}
    )
    Path("nowhere.json").symlink_to("missing")
    os.mkfifo("pipe.json")
    paths = ["none.json", "none*.json", "a\0b", "x" * 5000, "nowhere.json", "pipe.json", "big.json", "latin.json"]

    found = list(documents([*paths, "wide.json", "last.json"]))

    assert [fault(source) for source in found[:-1]] == [*["unreadable-file"] * 6, "too-large", "not-utf8", "not-utf8"]
    assert "UTF-16" in found[-2].document.faults[0][1].message
    assert "a link to nothing" in found[4].document.faults[0][1].message
    assert found[-1].document.config is not None


def test_a_file_without_permission_has_a_fault(secret: Path) -> None:
    assert [fault(source) for source in documents([str(secret)])] == ["unreadable-file"]


def test_a_byte_order_mark_is_left_to_the_reader(here: Path) -> None:
    write({"marked.json": b"\xef\xbb\xbf" + CONFIG.encode(), "marked.yaml": b"\xef\xbb\xbf" + ACCELERATE.encode()})

    found = list(documents(["marked.json", "marked.yaml"]))

    assert fault(found[0]) == "byte-order-mark"
    assert found[1].target == "accelerate"


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [(None, CONFIG, "json"), ("x.yaml", ACCELERATE, "yaml"), ("x.sh", "deepspeed a\n", "launch")],
)
def test_the_standard_input_is_read_by_the_name_it_would_have(
    monkeypatch: pytest.MonkeyPatch, name: str | None, text: str, kind: str
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    [source] = documents(["-"], stdin_name=name)

    assert (source.document.name, source.document.kind) == (STDIN, kind)


def test_the_target_is_the_one_asked_for_then_the_files_then_a_guess(here: Path) -> None:
    write({"plain.json": CONFIG, "hf.json": HF, "accelerate.yaml": ACCELERATE})
    paths = ["plain.json", "hf.json", "accelerate.yaml"]

    assert [(source.target, source.guessed) for source in documents(paths)] == [
        ("deepspeed", True),
        ("hf-trainer", True),
        ("accelerate", False),
    ]
    assert {(source.target, source.guessed) for source in documents(paths, target="lightning")} == {
        ("lightning", False)
    }


@pytest.mark.parametrize("order", [["accelerate.yaml"], ["ds/z.json", "accelerate.yaml"], ["."]])
def test_a_config_that_accelerate_names_is_linted_for_it(here: Path, order: list[str]) -> None:
    named_there = (
        "distributed_type: DEEPSPEED\nnum_processes: 4\ndeepspeed_config:\n  deepspeed_config_file: ds/z.json\n"
    )
    write({"accelerate.yaml": named_there, "ds/z.json": HF})

    found = {source.document.name: source for source in documents(order)}

    assert list(found) == (["ds/z.json", "accelerate.yaml"] if len(order) > 1 else ["accelerate.yaml", "ds/z.json"])
    config = found["ds/z.json"]
    assert (config.target, config.of, config.world_size) == ("accelerate", "accelerate.yaml", 4)
    assert said(found["accelerate.yaml"]) == []


@pytest.mark.parametrize("place", ["ds.json", "sub/ds.json", "sub/deep/ds.json"])
def test_a_named_config_is_found_from_here_beside_and_above(here: Path, place: str) -> None:
    write({"sub/deep/train.yaml": "deepspeed: ds.json\n", place: HF})

    found = list(documents(["sub/deep/train.yaml"]))

    assert [(source.document.name, source.target) for source in found[1:]] == [(place, "hf-trainer")]


def test_a_named_config_that_is_missing_is_a_finding(here: Path) -> None:
    write({"train.yaml": "model: x\ndeepspeed: nowhere.json\n", "open.yaml": "deepspeed: ${CONFIG}/ds.json\n"})

    missing, placeholder = documents(["train.yaml", "open.yaml"])

    assert (named(missing, "named-config-missing").line, named(missing, "named-config-missing").column) == (2, 12)
    assert said(placeholder) == []


def test_two_files_that_name_each_other_end(here: Path) -> None:
    write({"a.yaml": "deepspeed: b.yaml\n", "b.yaml": "deepspeed: a.yaml\n"})

    assert names("a.yaml") == ["a.yaml", "b.yaml"]


def test_a_config_inside_a_training_file_keeps_its_places(here: Path) -> None:
    text = "base_model: x\nbf16: auto\ndeepspeed:\n  zero_optimization:\n    stag: 3\n"
    write({"axolotl.yml": text})

    [source] = documents(["axolotl.yml"])
    found = named(source, "rejected-key")

    assert (source.target, found.path, found.line, found.column) == ("hf-trainer", "zero_optimization.stag", 5, 5)
    assert named(source, "batch-size-missing").line == 3  # of what is not written, the config's own key


@pytest.mark.parametrize(
    ("beside", "target", "rules"),
    [
        ("type: sft\nmicro_batch_size: 2\n", "deepspeed", []),  # ArcticTraining, which writes the batch into it
        ("type: sft\n", "hf-trainer", ["batch-size-missing"]),
        ("base_model: a\nmicro_batch_size: 2\n", "hf-trainer", ["batch-size-missing"]),  # Axolotl: the Trainer's
        ("per_device_train_batch_size: 2\n", "hf-trainer", ["batch-size-missing"]),
    ],
)
def test_a_program_that_says_a_batch_size_of_its_own_is_not_the_trainer(
    here: Path, beside: str, target: str, rules: list[str]
) -> None:
    config = "deepspeed:\n  zero_optimization: {stage: 3, stage3_gather_16bit_weights_on_model_save: true}\n"
    write({"top.yml": f"{beside}{config}", "deep.yml": f"trainer:\n{indent(beside + config, '  ')}"})

    for source in documents(["top.yml", "deep.yml"]):
        assert source.target == target
        assert [found.rule for found in said(source) if found.severity is Severity.ERROR] == rules
        assert [found.rule for found in said(source) if found.severity is Severity.WARNING] == []


@pytest.mark.parametrize(
    ("beside", "asked"),
    [
        ("batch_size", False),
        ("train_batch_size", False),
        ("eval_batch_size", True),
        ("per_device_eval_batch_size", True),
    ],
)
def test_the_batch_of_an_evaluation_is_not_the_one_that_is_asked_for(here: Path, beside: str, asked: bool) -> None:
    write({"a.yml": f"{beside}: 4\ndeepspeed_config:\n  zero_optimization: {{stage: 2}}\n"})

    [source] = documents(["a.yml"])

    assert ("batch-size-missing" in [found.rule for found in said(source)]) is asked


def test_auto_makes_no_trainer_of_a_program_that_says_a_batch_size_of_its_own(here: Path) -> None:
    config = "deepspeed:\n  gradient_accumulation_steps: auto\n  zero_optimization: {stage: 3}\n"
    write({"sft.yml": f"type: sft\nmicro_batch_size: 2\n{config}"})

    [source] = documents(["sft.yml"])

    assert source.target == "deepspeed"
    told = [found for found in said(source) if found.severity is not Severity.INFO]
    assert [(found.rule, found.severity) for found in told] == [("auto-outside-hugging-face", Severity.WARNING)]
    assert told[0].message.endswith("unless the program that is started fills it in")


def test_a_config_in_a_section_whose_name_has_a_dot_is_read(here: Path) -> None:
    write({"a.yml": "my.section:\n  micro_batch_size: 2\n  deepspeed: {zero_optimization: {stage: 2}}\n"})

    [source] = documents(["a.yml"])

    assert source.document.config == {"zero_optimization": {"stage": 2}}
    assert "rule-broke" not in [found.rule for found in said(source)]


def test_edits_go_to_the_file_around_the_config() -> None:
    document = wrapped_configs.read("a: 1\ndeepspeed:\n  bf16: {enabled: false}  # why\n", "x.yaml").document

    edits = document.edits_in_file([Assign("bf16.enabled", True), Assign("train_batch_size", 8)])

    assert edits == (Assign("deepspeed.bf16.enabled", True), Assign("deepspeed.train_batch_size", 8))
    assert document.whole is not None
    text = editor.apply(document.whole, edits)
    assert wrapped_configs.read(text, "x.yaml").document.config == {"bf16": {"enabled": True}, "train_batch_size": 8}
    assert text.startswith("a: 1\ndeepspeed:\n  bf16: {enabled: true}  # why\n")


ACCELERATE_JSON = """{
  "compute_environment": "LOCAL_MACHINE",
  "debug": false,
  "distributed_type": "DEEPSPEED",
  "mixed_precision": "bf16",
  "num_processes": 8,
  "deepspeed_config": {"zero_stage": 3, "zero3_save_16bit_model": true, "reduce_bucket_size": 1}
}
"""


def test_accelerates_file_in_json_is_read_as_the_one_in_yaml(here: Path) -> None:
    write({"ds.json": ACCELERATE_JSON, "run.sh": "accelerate launch --config_file ds.json train.py\n"})

    _, source = documents(["run.sh"])

    assert (source.target, source.guessed, source.world_size) == ("accelerate", False, 8)
    assert source.document.config["zero_optimization"]["stage"] == 3
    assert [(found.rule, found.line) for found in said(source)] == [("accelerate-unknown-key", 7)]


def test_accelerates_file_for_another_way_to_train_is_no_config(here: Path) -> None:
    fsdp = ACCELERATE_JSON.replace("DEEPSPEED", "FSDP").replace("deepspeed_config", "fsdp_config")
    write({"fsdp.json": fsdp, "zero.json": CONFIG})

    [source] = documents(["fsdp.json"])

    assert source.document.config is None
    assert said(source) == []
    assert sorted(names(".")) == ["zero.json"]
    Path("zero.json").write_text(CONFIG.replace("{", '{"distributed_type": "DEEPSPEED", ', 1))
    [kept] = documents(["zero.json"])
    assert named(kept, "unread-key").path == "distributed_type"  # a key too many, in a config all the same


@pytest.mark.parametrize("name", ["old.json", "old.yaml"])
@pytest.mark.parametrize(("kind", "stage"), [("DEEPSPEED", 3), ("MULTI_GPU", None)])
def test_accelerates_first_files_have_fp16_as_a_switch(here: Path, name: str, kind: str, stage: int | None) -> None:
    old = ACCELERATE_JSON.replace("DEEPSPEED", kind).replace('"mixed_precision": "bf16"', '"fp16": true')
    old = old.replace(', "reduce_bucket_size": 1', "")
    write({name: old if stage else old.replace("deepspeed_config", "fsdp_config")})

    [source] = documents([name])

    assert (source.document.config or {}).get("zero_optimization", {}).get("stage") == stage
    assert (source.document.config or {}).get("fp16", {}).get("enabled", False) is (stage is not None)
    assert said(source) == []


def test_accelerates_keys_stand_for_deepspeeds() -> None:
    found = wrapped_configs.read(ACCELERATE, "accelerate.yaml")
    document = found.document

    assert found.world_size == 8
    assert document.config["zero_optimization"] == {"stage": 2, "offload_param": {"device": "cpu"}}
    assert document.config["bf16"] == {"enabled": True}
    assert document.position(document.span("zero_optimization.offload_param.device").start) == (7, 3)
    assert document.position(document.span("bf16.enabled").start) == (4, 1)
    assert document.position(document.span("zero_optimization.overlap_comm").start) == (5, 1)
    assert document.edits_in_file([Assign("zero_optimization.stage", 3)]) == (Assign("deepspeed_config.zero_stage", 3),)
    assert document.edits_in_file([Assign("zero_optimization.overlap_comm", True)]) is None
    assert document.edits_in_file([Move("zero_optimization.stage", "stage")]) is None
    assert document.edits_in_file([Remove("mixed_precision")]) == (Remove("mixed_precision"),)


def test_a_source_reads_its_new_text_the_same_way(here: Path) -> None:
    write({"accelerate.yaml": ACCELERATE})
    [source] = documents(["accelerate.yaml"])

    again = source.read(ACCELERATE.replace("zero_stage: 2", "zero_stage: 3"), "accelerate.yaml")

    assert again.config["zero_optimization"]["stage"] == 3


@pytest.mark.parametrize("text", ["", "- 1\n", "a: [\n", "deepspeed: 7\n", "deepspeed:\n", "distributed_type: 3\n"])
def test_any_yaml_is_a_document(text: str) -> None:
    assert wrapped_configs.read(text, "x.yaml").files == ()


def test_a_json_file_loads_no_yaml_reader(here: Path) -> None:
    write({"a.json": CONFIG, "run.sh": "deepspeed train.py\n"})
    program = (
        "import sys; from dsgen.linting import sources; "
        "found = [one.document.name for one in sources.documents(['.'])]; assert found == ['a.json', 'run.sh'], found; "
        "assert 'ruamel.yaml' not in sys.modules"
    )
    folder = Path(sources.__file__).parents[2]

    subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ, "PYTHONPATH": str(folder)})


def test_the_gpus_of_a_command_come_before_those_of_accelerate_s_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("zero3.yaml").write_text("distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 3}\nnum_processes: 8\n")
    Path("run.sh").write_text("accelerate launch --config_file zero3.yaml --num_processes=7 train.py\n")
    Path("two.sh").write_text("accelerate launch --config_file zero3.yaml train.py\n")

    ranks = [{one.document.name: one.world_size for one in documents([name])} for name in ("run.sh", "two.sh")]

    assert [one["zero3.yaml"] for one in ranks] == [7, 8]
