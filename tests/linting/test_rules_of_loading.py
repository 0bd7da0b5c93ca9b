"""Rules about how a program loads its model: a device_map beside stage 3, and a load before the arguments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dsgen.linting.asked import lint
from dsgen.linting.loading_order import loads
from dsgen.linting.model_loads import ModelLoad
from dsgen.linting.taken import taken
from dsgen.shapes.errors import DsgenError
from dsgen.shapes.findings import Finding, Severity

MAP, FIRST = "device-map-beside-deepspeed", "model-loaded-first"
MAKES = 'args = TrainingArguments("out", bf16=True, deepspeed="ds.json")\n'
SPREAD = 'model = AutoModelForCausalLM.from_pretrained("m", device_map="auto")\n'
OWN = 'model = AutoModelForCausalLM.from_pretrained("m", device_map={"": rank}, quantization_config=bits)\n'
PLAIN = 'model = AutoModelForCausalLM.from_pretrained("m")\n'
NO_MAP = 'model = AutoModelForCausalLM.from_pretrained("m", device_map=None, low_cpu_mem_usage=True)\n'
HELD = 'kept = HfDeepSpeedConfig("ds.json")\n'


def indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


def called_with(value: str) -> str:
    return f'AutoModelForCausalLM.from_pretrained("m", device_map={value})\n'


def found(folder: Path, text: str, stage: int = 3, **more: Any) -> list[Finding]:
    config, program = folder / "ds.json", folder / "train.py"
    config.write_text(json.dumps({"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": stage}}))
    program.write_text(text)
    said = lint(config, arguments=program, **more).findings
    return [one for one in said if one.rule in (MAP, FIRST)]


def said(folder: Path, text: str, stage: int = 3, **more: Any) -> list[tuple[str, Severity]]:
    return [(one.rule, one.severity) for one in found(folder, text, stage, **more)]


ERROR, WARNING = Severity.ERROR, Severity.WARNING


@pytest.mark.parametrize(
    ("text", "stage", "says"),
    [
        (MAKES + SPREAD, 3, [(MAP, ERROR)]),
        (MAKES + OWN, 3, [(MAP, ERROR)]),
        (MAKES + NO_MAP, 3, []),
        (MAKES + PLAIN, 3, []),
        (HELD + SPREAD + MAKES, 3, [(MAP, ERROR)]),
        ('HfDeepSpeedConfig("ds.json")\n' + OWN + MAKES, 3, []),  # nobody keeps it, so that it is gone
        (MAKES + "if args.bf16:\n" + indented(SPREAD), 3, [(MAP, WARNING)]),
        ("def load():\n" + indented(SPREAD) + MAKES + "load()\n", 3, [(MAP, ERROR)]),
        ("def load():\n" + indented(SPREAD) + MAKES, 3, [(MAP, WARNING)]),  # when it is called nobody knows
        # Before the arguments nothing refuses it but what spreads
        (SPREAD + MAKES, 3, [(MAP, WARNING), (FIRST, WARNING)]),
        (OWN + MAKES, 3, []),
        (PLAIN + MAKES, 3, [(FIRST, WARNING)]),
        (MAKES + SPREAD, 2, [(MAP, WARNING)]),
        (MAKES + OWN, 2, []),
        (PLAIN + MAKES, 2, []),
    ],
)
def test_what_a_program_tells_from_pretrained_is_judged_by_the_stage(
    tmp_path: Path, text: str, stage: int, says: list[tuple[str, Severity]]
) -> None:
    assert said(tmp_path, text, stage) == says


def test_a_rank_that_sees_one_gpu_spreads_nothing(tmp_path: Path) -> None:
    assert said(tmp_path, MAKES + SPREAD, 2, world_size=4) == [(MAP, WARNING)]
    assert said(tmp_path, MAKES + SPREAD, 2, world_size=1) == []
    assert said(tmp_path, MAKES + SPREAD, 3, world_size=1) == [(MAP, ERROR)]


def test_a_finding_stands_at_the_stage_and_names_the_lines(tmp_path: Path) -> None:
    program = tmp_path / "train.py"

    [refused] = found(tmp_path, MAKES + "\n" + SPREAD)
    [late] = found(tmp_path, PLAIN + MAKES)

    assert (refused.path, late.path) == ("zero_optimization.stage", "zero_optimization.stage")
    assert f'device_map="auto" ({program}:3) when line 1 has made the config known' in refused.message
    assert f"{program} loads its model (line 1) before it makes its arguments (line 2)" in late.message


@pytest.mark.parametrize(
    ("text", "device_map"),
    [
        (called_with('"auto"'), '"auto"'),
        (called_with("0"), "0"),
        (called_with("{}"), "{}"),
        (called_with("torch.device('cuda')"), 'torch.device("cuda")'),
        (called_with("{name: 0 for name in the_names_of_all_modules(model)}"), "{...}"),
        ('where = "cuda:0"\n' + called_with("where"), '"cuda:0"'),
        ('told = dict(device_map="auto")\nAutoModel.from_pretrained("m", **told)\n', '"auto"'),
        ('told = {"device_map": {"": 0}}\nAutoModel.from_pretrained("m", **told)\n', '{"": 0}'),
        # Perhaps None
        (called_with("get_kbit_device_map() if bits is not None else None"), None),
        (called_with("get_kbit_device_map()"), None),
        (called_with("args.device_map"), None),
        ('where = "auto"\nif zero3:\n    where = None\n' + called_with("where"), None),
        ('told = {"device_map": "auto"}\ntold["device_map"] = None\nAutoModel.from_pretrained("m", **told)\n', None),
        ('told = {"device_map": "auto"}\ntold.pop("device_map")\nAutoModel.from_pretrained("m", **told)\n', None),
        ('where = "auto"\ndef load(where=None):\n    ' + called_with("where"), None),
        ('FastLanguageModel.from_pretrained("m", device_map="auto")\n', None),
    ],
)
def test_a_device_map_counts_where_it_is_surely_not_none(text: str, device_map: str | None) -> None:
    assert [one.device_map for one in loads(text, "train.py")] == [device_map]


def test_adapters_and_tokenizers_are_no_models() -> None:
    text = 'PeftModel.from_pretrained(model, "a", device_map="auto")\nAutoTokenizer.from_pretrained("m")\n'

    assert loads(text, "train.py") == ()


@pytest.mark.parametrize(
    ("text", "known", "after"),
    [
        ("def main():\n" + indented(MAKES + PLAIN) + "main()\n", 2, None),
        ("def load():\n" + indented(PLAIN) + "def main():\n" + indented("load()\n" + MAKES) + "main()\n", None, 5),
        ("class Run:\n def load(self):\n  " + PLAIN + " def main(self):\n  " + MAKES + "  self.load()\n", 5, None),
        ("args, = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n" + PLAIN, 1, None),
        ("train(" + PLAIN.partition("= ")[2].strip() + ",\n " + MAKES.partition("= ")[2].strip() + ")\n", None, 2),
        ("def turn():\n    turn()\n    turn()\nturn()\n" + PLAIN + MAKES, None, 6),
        ("def held():\n" + indented(HELD) + "held()\n" + PLAIN, 2, None),
    ],
)
def test_calls_are_followed_in_the_order_in_which_they_run(text: str, known: int | None, after: int | None) -> None:
    [load] = loads(text, "train.py")

    assert (load.known, load.after) == (known, after)


def test_a_config_whose_function_has_ended_may_be_gone() -> None:
    [load] = loads("def held():\n" + indented(HELD) + "held()\n" + PLAIN, "train.py")

    assert not load.sure


def test_a_load_says_itself_in_words() -> None:
    assert str(ModelLoad(file="train.py", line=2, known=1, device_map="0")) == (
        "loads its model on line 2 with device_map=0 and its arguments on line 1"
    )


def test_effective_stops_before_deepspeed_does(tmp_path: Path) -> None:
    found(tmp_path, MAKES + SPREAD)

    handover = taken(str(tmp_path / "ds.json"), arguments=str(tmp_path / "train.py"))

    assert handover is not None
    assert MAP in {one.rule for one in handover.judged("0.19.8").findings}


def test_what_is_no_python_is_said_so() -> None:
    with pytest.raises(DsgenError, match="no Python"):
        loads("def", "train.py")
