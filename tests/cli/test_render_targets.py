"""`dsgen render --target`: files beside the config are written together, and what a person wrote is not replaced."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from dsgen.cli import main

JOB = ["render", "--hw", "a100-40g", "--model", "7b", "--target", "hf-trainer"]


def render(*options: str) -> int:
    """The exit code."""
    with pytest.raises(SystemExit) as ended:
        main([*JOB, *options])
    return int(ended.value.code or 0)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch) -> Path:
    """An empty folder to run in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_files_lie_beside_the_config_and_name_it(here, capsys):
    (here / "conf").mkdir()

    assert render("-o", "conf/ds.json") == 0

    assert sorted(path.name for path in (here / "conf").iterdir()) == [
        "ds.json",
        "ds.training_args.yaml",
        "ds_training_args.py",
    ]
    assert "deepspeed: conf/ds.json" in (here / "conf" / "ds.training_args.yaml").read_text()
    assert "wrote conf/ds.training_args.yaml" in capsys.readouterr().err
    assert render("-q", "-o", "conf/ds.json") == 0  # its own it replaces


def test_two_scenarios_share_a_folder(here):
    assert render("-q", "-o", "lora.json") == 0
    first = (here / "lora.training_args.yaml").read_text()

    assert render("-q", "-o", "full-8.json", "--zero-stage", "3") == 0

    assert (here / "lora.training_args.yaml").read_text() == first
    assert "deepspeed: full-8.json" in (here / "full-8.training_args.yaml").read_text()
    runpy = (here / "full_8_training_args.py").read_text()
    assert '"deepspeed": "full-8.json"' in runpy


def test_what_belongs_to_another_config_is_not_replaced(here, capsys):
    assert render("-q", "-o", "a-b.json") == 0

    assert render("-q", "-o", "a_b.json") == 2  # as modules of Python the two names are one

    assert "a_b_training_args.py is there, and dsgen did not write it for a_b.json" in capsys.readouterr().err
    assert not (here / "a_b.json").exists()


def test_what_a_person_filled_in_stays(here):
    with pytest.raises(SystemExit):
        main([*JOB[:-1], "llama-factory", "-q", "-o", "ds_config.json"])
    file = here / "llama_factory.yaml"
    assert "template: FILL_IN" in file.read_text()
    file.write_text(re.sub(r"template: FILL_IN.*", "template: qwen", file.read_text()))

    with pytest.raises(SystemExit):
        main([*JOB[:-1], "llama-factory", "-q", "-o", "ds_config.json", "--zero-stage", "3"])

    assert "template: qwen\n" in file.read_text()
    assert "dataset: FILL_IN" in file.read_text()


def test_without_a_file_the_config_alone_goes_to_stdout(here, capsys):
    assert render() == 0

    printed = capsys.readouterr()
    assert json.loads(printed.out)["train_batch_size"] == "auto"
    assert "-o ds_config.json also writes training_args.yaml" in " ".join(printed.err.split())
    assert list(here.iterdir()) == []


def test_numbers_stand_where_they_are_asked_for(capsys):
    assert render("--resolve", "-q") == 0

    assert json.loads(capsys.readouterr().out)["train_batch_size"] == 256


def test_what_a_person_wrote_is_replaced_only_when_told(here, capsys):
    (here / "training_args.yaml").write_text("mine: 1\n")

    assert render("-o", "ds_config.json") == 2
    assert "training_args.yaml is there, and dsgen did not write it" in capsys.readouterr().err
    assert sorted(path.name for path in here.iterdir()) == ["training_args.yaml"]  # nothing was written
    assert (here / "training_args.yaml").read_text() == "mine: 1\n"

    assert render("-o", "ds_config.json", "--force", "-q") == 0
    assert "mine" not in (here / "training_args.yaml").read_text()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["-o", "nowhere/ds.json"], "nowhere/ds.json: it cannot be written"),
        (["-o", "."], "it is a folder"),
        (["--format", "hjson"], "--format hjson and --target hf-trainer exclude each other"),
    ],
)
def test_a_mistake_is_said_and_nothing_written(here, capsys, options, says):
    assert render(*options) == 2

    assert says in capsys.readouterr().err
    assert list(here.iterdir()) == []


def test_options_of_frameworks_do_nothing_without_one(capsys):
    with pytest.raises(SystemExit):
        main(["render", "--hw", "a100-40g", "--model", "7b", "-q", "--resolve"])

    assert "warning: --resolve does nothing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("target", "file", "key"),
    [
        ("llama-factory", "llama_factory.yaml", "model_name_or_path"),
        ("axolotl", "axolotl.yaml", "base_model"),
        ("ms-swift", "ms_swift.yaml", "model"),
    ],
)
def test_a_model_that_is_named_as_the_hub_does_is_written(here, target, file, key):
    def written(model: str) -> str:
        assert render("-q", "-o", "ds_config.json", "--force", "--target", target, "--model", model) == 0
        return (here / file).read_text()

    assert f"{key}: meta-llama/Llama-3.1-8B\n" in written("meta-llama/Llama-3.1-8B")
    assert f"{key}: unsloth/Qwen2.5-7B\n" in written("https://huggingface.co/unsloth/Qwen2.5-7B")
    assert f"{key}: FILL_IN" in written("llama-3.1-8b")
    shape = {"model_type": "qwen2", "vocab_size": 1024, "hidden_size": 256, "intermediate_size": 512}
    heads = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    (here / "mine").mkdir()
    (here / "mine" / "config.json").write_text(json.dumps(shape | heads))
    assert f"{key}: mine\n" in written("mine")
    assert f"{key}: FILL_IN" in written("mine/config.json")  # weights may lie elsewhere


def test_what_a_program_needs_loads_the_model_that_was_named(capsys):
    for model, said in (("Qwen/Qwen3-8B", '"Qwen/Qwen3-8B",'), ("qwen3-8b", "MODEL,")):
        with pytest.raises(SystemExit):
            main(["needs", "--hw", "a100-40g", "--model", model])
        assert f"from_pretrained(\n            {said}\n" in capsys.readouterr().out
