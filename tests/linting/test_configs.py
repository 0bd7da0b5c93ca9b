"""One reader of configs: what `lint` reads, `diff`, `prove`, `memory` and `simulate` read, with the same places."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import MAIN, run
from lint_samples import put

from dsgen.deepspeed import surface
from dsgen.deepspeed.autos import unfilled
from dsgen.documents.misreadings import misread
from dsgen.linting import config_reader, wrapped_configs
from dsgen.shapes.errors import DsgenError

BATCH = "train_micro_batch_size_per_gpu"
WANTED = {BATCH: 2, "gradient_accumulation_steps": 1, "zero_optimization": {"stage": 2}}
PLAIN = json.dumps(WANTED)
HJSON = f"# ours\n{{\n  {BATCH}: 2\n  gradient_accumulation_steps: 1  // one\n  zero_optimization: {{stage: 2}}\n}}\n"
YAML = f"{BATCH}: 2\ngradient_accumulation_steps: 1\nzero_optimization:\n  stage: 2\n"
NESTED = f"deepspeed:\n  {BATCH}: 2\n  gradient_accumulation_steps: 1\n  zero_optimization: {{stage: 2}}\n"
NAMING = "deepspeed: ds.json\n"
TEXTS = {"ds.json": PLAIN, "ds.hjson": HJSON, "ds.yaml": YAML, "axolotl.yaml": NESTED, "train.yaml": NAMING}
READERS = (("diff", "{0}", "{0}"), ("prove", "{0}"), ("memory", "--config", "{0}", *MAIN))


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", TEXTS)
def test_every_dialect_is_read_as_the_same_config(name: str) -> None:
    for file, text in TEXTS.items():
        put(file, text)

    assert config_reader.read(name).document.config == WANTED
    assert run("diff", name, "ds.json").out.endswith("no difference\n")
    assert run("memory", "--config", name, *MAIN).out.startswith(
        "7b on 8 a100-40g: ZeRO-2, checkpointing, micro-batch 2"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{\n  "a": 1,\n  "a": 2,\n  "bf16": {}\n}', "bad.json:3:3: a is given twice"),
        ('{\n  "bf16": {"enabled": true\n}', "bad.json:2:11: the { of bf16 in line 2 has no }"),
        ("[1]", "bad.json:1:1: the top level is a list"),
        ("", "bad.json: "),
        (b"\xff\xfe{", "bad.json: "),
        (None, "bad.json: there is no such file"),
    ],
)
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader[0])
def test_what_is_no_config_is_said_alike_and_with_its_place(
    reader: tuple[str, ...], text: str | bytes | None, said: str
) -> None:
    if text is not None:
        put("bad.json", text)

    done = run(*(word.format("bad.json") for word in reader))

    assert done.code == 2
    assert done.err.startswith(f"error: {said}")


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader[0])
def test_a_python_program_is_told_which_option_takes_it(reader: tuple[str, ...]) -> None:
    put("train.py", "import torch\n")

    done = run(*(word.format("train.py") for word in reader))

    assert done.code == 2
    assert "it is a Python program; a config is JSON, HJSON or YAML" in done.err
    assert "dsgen memory, plan, lint, effective and prove take --args train.py" in done.err


def test_the_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    put("ds.json", PLAIN)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(HJSON.encode())))

    assert run("diff", "-", "ds.json").code == 0


def test_prove_refuses_a_config_that_deepspeed_does_not_read() -> None:
    put("ds.yaml", YAML)

    done = run("prove", "ds.yaml")

    assert done.code == 2
    assert done.err.startswith("error: ds.yaml: it is YAML, which DeepSpeed does not read; it takes the file for HJSON")


@pytest.mark.parametrize(
    ("written", "named"),
    [
        ({BATCH: "auto", "train_batch_size": "auto"}, [BATCH, "train_batch_size"]),
        ({BATCH: 1, "optimizer": {"type": "AdamW", "params": {"lr": "auto", "ours": "auto"}}},
         ["optimizer.params.lr", "optimizer.params.ours"]),
        ({BATCH: 1, "bf16": {"enabled": "auto"}}, ["bf16.enabled"]),
    ],
)  # fmt: skip
def test_prove_names_every_auto_that_nobody_fills_in(written: dict[str, Any], named: list[str]) -> None:
    put("ds.json", json.dumps(written, indent=2))

    done = run("prove", "ds.json")

    assert done.code == 2
    line = json.dumps(written, indent=2).split("\n").index(next(_lines(written, named[0]))) + 1
    assert done.err.startswith(f"error: ds.json:{line}: {', '.join(named)} ")
    assert '"auto"; a proof hands the config to DeepSpeed itself' in done.err


def _lines(written: dict[str, Any], path: str) -> Iterator[str]:
    """The line of a key in the indented JSON of a config."""
    key = f'"{path.rpartition(".")[2]}": '
    return (line for line in json.dumps(written, indent=2).split("\n") if line.strip().startswith(key))


def test_an_auto_that_deepspeed_knows_is_no_gap() -> None:
    assert unfilled({"zero_optimization": {"zenflow": {"select_strategy": "auto"}}}, surface.load()) == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (YAML, "zero_optimization is not what it is in YAML"),
        (
            "optimizer:\n  type: A\n  params:\n    lr: 1\nscheduler:\n  type: B\n  params:\n    lr: 1\n",
            "params stands twice, and stops",
        ),
        (f"{BATCH}: 2\ngradient_clipping: 1.5\n", None),
        (PLAIN, None),
        (NESTED, None),
    ],
)
def test_what_deepspeed_makes_of_yaml(text: str, said: str | None) -> None:
    found = misread(wrapped_configs.read(text, "ds.yaml").document)

    assert found is None if said is None else said in (found or "")


@pytest.mark.proof
def test_what_it_makes_of_yaml_is_what_hjson_makes_of_it() -> None:
    import hjson

    assert hjson.loads(YAML) != WANTED
    assert hjson.loads(f"{BATCH}: 2\ngradient_clipping: 1.5\n") == {BATCH: 2, "gradient_clipping": 1.5}


def test_yaml_can_still_be_asked_about() -> None:
    put("ds.yaml", YAML)

    assert config_reader.read("ds.yaml").document.config == WANTED
    with pytest.raises(DsgenError, match="it is YAML"):
        config_reader.for_deepspeed(config_reader.read("ds.yaml"))


@pytest.mark.parametrize(
    ("target", "said"), [("deepspeed", "DeepSpeed reads no YAML"), ("hf-trainer", "Python's json")]
)
def test_lint_says_it_of_the_yaml_that_people_have(target: str, said: str) -> None:
    put("ds.yaml", YAML)

    done = run("lint", "ds.yaml", "--target", target, "--select", "yaml-not-read", "--fail-on", "warning")

    assert done.code == 1
    assert said in " ".join(done.out.split())
    put("axolotl.yaml", NESTED)
    assert run("lint", "axolotl.yaml", "--select", "DSG016").code == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model_name_or_path: a\nbf16: true\ngradient_accumulation_steps: 4\n", "--args train.yaml"),  # TRL's
        ("base_model: a\noptimizer: adamw_torch\nbf16: auto\nmicro_batch_size: 2\n", "--args train.yaml"),  # Axolotl's
        ("distributed_type: FSDP\nfsdp_config: {}\nmixed_precision: bf16\n", "Accelerate's file for FSDP"),
    ],
)
def test_a_file_of_another_program_is_no_broken_config(text: str, said: str) -> None:
    put("train.yaml", text)

    assert run("lint", "train.yaml").out.startswith("no findings in 1 file.")
    with pytest.raises(DsgenError) as refused:
        config_reader.read("train.yaml")
    assert said in str(refused.value)


def test_a_script_that_names_no_config_is_told_what_it_is() -> None:
    put("run.sh", "swift sft --model a --deepspeed zero2\n")

    with pytest.raises(DsgenError, match="it is a script, and names no DeepSpeed config that is there"):
        config_reader.read("run.sh")
