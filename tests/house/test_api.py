"""The library's face: what `import dsgen` gives, and what it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dsgen
from dsgen.report.diff import text
from dsgen.shapes.errors import DsgenError

ROOT = Path(__file__).resolve().parents[2]
BASE = dsgen.profile("a100-40g") | dsgen.profile("7b")


def test_the_issue_s_line_renders() -> None:
    composed = dsgen.profile("a100-40g") | dsgen.profile("7b") | {"training": {"seq_len": 8192}}

    config = dsgen.render(composed)

    assert config.plan.job.seq_len == 8192
    assert json.loads(config.to_json()) == config.to_dict()
    assert config.why("zero_optimization.stage").reason
    assert dsgen.render(dsgen.plan(dsgen.job(composed))).to_json() == config.to_json()


def test_every_public_name_is_there() -> None:
    assert set(dsgen.__all__) <= set(dir(dsgen))
    for name in dsgen.__all__:
        assert getattr(dsgen, name).__doc__
    with pytest.raises(AttributeError, match="module 'dsgen' has no attribute 'nonsense'"):
        _ = dsgen.nonsense


def test_a_config_given_away_cannot_be_changed_from_outside() -> None:
    config = dsgen.render(BASE)

    config.to_dict()["bf16"]["enabled"] = "changed"

    assert config.to_dict()["bf16"]["enabled"] is True


def test_nested_dotted_and_tuple_values_are_the_same_as_yaml_s() -> None:
    nested = dsgen.overrides({"training": {"lora_targets": ("q_proj", "v_proj")}})

    assert nested == dsgen.overrides({"training.lora_targets": ["q_proj", "v_proj"]})
    assert dsgen.job(BASE | dsgen.profile("lora") | nested).training.lora_targets == ("q_proj", "v_proj")


def test_null_deletes() -> None:
    assert "bf16" not in dsgen.render(BASE | {"bf16": None}).to_dict()


def test_a_scenario_composes_like_a_profile(tmp_path: Path) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text("hw: a100-40g\nmodel: 7b\nseq_len: 1024\n")

    assert dsgen.job(dsgen.scenario(str(file)) | {"training.seq_len": 512}).seq_len == 512


def test_a_release_is_chosen() -> None:
    assert dsgen.job(BASE, "0.18").version.startswith("0.18.")
    assert dsgen.plan(BASE, deepspeed="0.18").job.version.startswith("0.18.")


def cyclic() -> dict[str, Any]:
    endless: dict[str, Any] = {}
    endless["a"] = endless
    return endless


def deep(levels: int) -> dict[str, Any]:
    tree: dict[str, Any] = {"x": 1}
    for _ in range(levels):
        tree = {"a": tree}
    return tree


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"training": {"lr": object}},
            "python: training.lr is a type; it must be a plain value: text, number, true, false, list",
        ),
        (
            {"training": {"lora_targets": [{1}]}},
            "python: training.lora_targets is a set; it must be a plain value: text, number, true, false, list",
        ),
        ({1: 2}, "python: the key 1 in the dict is not a name; a key must be text"),
        ({"training": {None: 2}}, "python: the key None in training is not a name; a key must be text"),
        ({"training": {"": 2}}, "python: the key '' in training is not a name; a key must be text"),
        ({"training.": 2}, "python: the key 'training.' in the dict is not a name; a key must be text"),
        (cyclic(), "python: the dict nests deeper than 40 levels; a config is a few levels deep"),
        (deep(10_000), "python: the dict nests deeper than 40 levels; a config is a few levels deep"),
        ({"a": [cyclic()]}, "python: the dict nests deeper than 40 levels; a config is a few levels deep"),
    ],
)
def test_what_is_no_plain_dict_is_refused(values: dict[Any, Any], message: str) -> None:
    with pytest.raises(DsgenError) as caught:
        _ = BASE | values

    assert str(caught.value) == message


def test_a_name_instead_of_a_profile_is_a_hint() -> None:
    with pytest.raises(DsgenError) as caught:
        _ = BASE | "7b"  # type: ignore[operator]

    assert str(caught.value) == (
        "'7b' cannot be joined with |; it must be a profile or a dict of overrides\n"
        '  Write dsgen.profile("a100-40g"), not its name.'
    )


def test_overrides_need_a_dict() -> None:
    with pytest.raises(DsgenError, match=r"python \(site\): 3 is no dict; overrides are a dict"):
        dsgen.site(3)  # type: ignore[arg-type]


def test_an_empty_dict_joins_nothing() -> None:
    assert BASE | {} == BASE


def test_the_same_wish_twice_in_python_is_refused_when_it_differs() -> None:
    with pytest.raises(
        DsgenError, match=r"training\.seq_len = 1 \(python\) and 2 \(python\) have the same rank \(user\)"
    ):
        dsgen.job(BASE | {"training.seq_len": 1} | {"training": {"seq_len": 2}})


# A job as a dict: the fields of a scenario.

DICT = {"hw": "a100-40g", "model": "7b", "seq_len": 8192}


def test_a_dict_says_a_job_as_layers_and_a_scenario_do(tmp_path: Path) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text("hw: a100-40g\nmodel: 7b\nseq_len: 8192\nset: {training.lr: 1.0e-5}\n")
    said = {**DICT, "set": {"training": {"lr": 1e-5}}}

    configs = [
        dsgen.render(said),
        dsgen.render(dsgen.scenario(said)),
        dsgen.render(dsgen.scenario(file)),
        dsgen.render(BASE | {"training": {"seq_len": 8192, "lr": 1e-5}}),
    ]

    assert len({config.to_json() for config in configs}) == 1
    assert configs[0]["optimizer"]["params"]["lr"] == 1e-5
    assert str(configs[0].plan.job.provenance.where("training.seq_len")) == "python"


def test_every_field_of_a_scenario_file_can_stand_in_a_dict() -> None:
    said = {"hw": "a100-40g", "model": "1b", "training": ["lora"], "lora_targets": ["q_proj"], "gpus": 2}

    assert dsgen.job(said).training.lora_targets == ("q_proj",)
    assert dsgen.job({**said, "deepspeed": "0.18"}).version.startswith("0.18.")
    assert dsgen.job({**said, "deepspeed": "0.18"}, deepspeed="0.17").version.startswith("0.17.")


def test_the_release_of_a_scenario_file_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text('hw: a100-40g\nmodel: 7b\ndeepspeed: "0.18"\n')
    said = dsgen.scenario(file)

    assert dsgen.render(said | {"training.seq_len": 512}).plan.job.version.startswith("0.18.")
    with pytest.raises(DsgenError, match=r"one side is for DeepSpeed 0\.18, the other for 0\.17"):
        _ = said | dsgen.scenario({**DICT, "deepspeed": "0.17"})


@pytest.mark.parametrize("wanted", [dsgen.job(DICT), dsgen.plan(DICT), dsgen.render(DICT)])
def test_what_was_made_for_one_release_is_not_taken_for_another(wanted: Any) -> None:
    assert dsgen.render(wanted, deepspeed="0.19") == dsgen.render(wanted)
    with pytest.raises(DsgenError, match=r"deepspeed is '0\.14', and the job was assembled for DeepSpeed 0\.19"):
        dsgen.render(wanted, deepspeed="0.14")


@pytest.mark.parametrize(
    ("wanted", "words", "code"),
    [
        ({"hw": "a100-40g"}, "no model is named", "missing"),
        ({**DICT, "seq_length": 1}, "python: unknown field seq_length; .*\n  did you mean seq_len", "unknown-name"),
        ({**DICT, "seq-len": 1}, "python: seq_len is given twice; a field stands once", "contradiction"),
        ({**DICT, "hw": 3}, r"python: hw is 3; it must be a name, or a list of names\n  Quote it", "bad-value"),
        (
            {**DICT, "training": {"lr": 1e-5}},
            r"must be a name, or a list of names\n  Paths go under set",
            "bad-value",
        ),
        ({**DICT, "gpus": object()}, "python: gpus is a object; it must be a plain value", "bad-value"),
        ({**DICT, "gpus": "many"}, "python: cluster.gpus is many; it must be a whole number", "bad-value"),
        ({"zero_optimization": {"stage": 2}}, "unknown field zero_optimization", "unknown-name"),
        (
            "scenario.yaml",
            r"'scenario.yaml' says no job; .*\n  For a scenario file: dsgen.scenario\('",
            "bad-value",
        ),
        (None, "None says no job; it must be profiles joined", "bad-value"),
    ],
)
@pytest.mark.parametrize("call", [dsgen.job, dsgen.plan, dsgen.render, dsgen.memory])
def test_what_says_no_job_is_refused_in_words(call: Any, wanted: Any, words: str, code: str) -> None:
    with pytest.raises(DsgenError, match=words) as caught:
        call(wanted)

    assert caught.value.code == code


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: dsgen.render(hw="a100-40g", model="7b"),
            r'dict: dsgen.render\({"hw": "a100-40g", "model": "7b"}\)',
        ),
        (lambda: dsgen.plan({}, seq_len=8), r'Say it in a dict: .*"model": "7b", "seq_len": ...}\)'),
        (lambda: dsgen.plan(hardware="a100-40g"), r'hardware; .*\n  Say it in a dict: dsgen.plan\({"hw": "a100-40g"'),
        (lambda: dsgen.memory({}, world_size=8), r'Say it in a dict: .*"model": "7b", "gpus": ...}\)'),
        (lambda: dsgen.render({}, deepsped="0.19"), "no argument deepsped; .*\n  did you mean deepspeed?"),
        (lambda: dsgen.simulate({}, hw="a100-40g"), "dsgen.simulate has no argument hw; .*\n  did you mean hardware?"),
        (lambda: dsgen.simulate({}, step=3), "did you mean steps"),
        (lambda: dsgen.lint({}, targt="x"), "dsgen.lint has no argument targt; .*\n  did you mean target?"),
        (lambda: dsgen.diff(frist={}, second={}), "did you mean first?"),
    ],
)
def test_a_wrong_argument_names_the_right_one(call: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words) as caught:
        call()

    assert isinstance(caught.value, DsgenError)
    assert caught.value.code == "unknown-name"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        *(
            (call, "^3 names no file; it must be a dict, or the path of a file")
            for call in (
                lambda: dsgen.lint(3),
                lambda: dsgen.fix(3),
                lambda: dsgen.migrate(3, "0.19"),
                lambda: dsgen.effective(3),
                lambda: dsgen.prove(3),
                lambda: dsgen.diff(3, {}),
                lambda: dsgen.scenario(3),
                lambda: dsgen.memory(DICT, config=3),
            )
        ),
        (lambda: dsgen.lint(b"ds_config.json"), "^b'ds_config.json' names no file"),
        (lambda: dsgen.survey({}), "^{} names no file; .* or a glob"),
        (lambda: dsgen.render(DICT).write(3), "^3 names no file"),
        (lambda: dsgen.profile(7), "^name is 7; it must be text\n  Such as"),
        (lambda: dsgen.why(DICT, 2), "^key is 2; it must be text\n  Such as"),
        (lambda: dsgen.render(DICT, deepspeed=0.19), '^deepspeed is 0.19; .*\n  Such as "0.19"'),
        (lambda: dsgen.lint({}, deepspeed=0.19), '^deepspeed is 0.19; .*\n  Such as "0.19"'),
    ],
)
def test_an_argument_of_a_type_that_is_not_taken_is_refused_in_words(call: Any, words: str) -> None:
    with pytest.raises(DsgenError, match=words) as caught:
        call()

    assert caught.value.code == "bad-value"


@pytest.mark.parametrize(
    "ask",
    [dsgen.job, dsgen.plan, dsgen.render, dsgen.memory, dsgen.lint, dsgen.fix, lambda job: dsgen.why(job, "bf16")],
)
def test_an_answer_shows_itself_in_a_screen_and_not_in_a_book(ask: Any) -> None:
    linter = ask in (dsgen.lint, dsgen.fix)
    shown = repr(ask({"gradient_clip": 1, "train_batch_size": 8} if linter else DICT))

    assert len(shown) < 3000  # with all that they were made from it was up to 25,000


# The Config.


def test_a_config_is_a_mapping_of_its_keys() -> None:
    config = dsgen.render(DICT)

    assert isinstance(config, Mapping)
    assert config == config.to_dict() == dict(config)
    assert list(config) == list(config.to_dict())
    assert len(config) == len(config.to_dict())
    assert "zero_optimization" in config
    assert config.get("nonsense") is None
    assert {**config}["bf16"] == {"enabled": True}
    with pytest.raises(KeyError):
        _ = config["nonsense"]


def test_nothing_taken_out_of_a_config_changes_it() -> None:
    config = dsgen.render(DICT)
    before = config.to_json()

    config["bf16"]["enabled"] = False
    dict(config)["bf16"].clear()
    config.to_dict().clear()

    assert config.to_json() == before


def test_a_config_is_written_as_the_command_line_writes_it(tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs.json", tmp_path / "ours.json"
    command = [sys.executable, "-m", "dsgen", "render", "--hw", "a100-40g", "--model", "7b", "--seq-len", "8192"]
    subprocess.run([*command, "-q", "-o", str(theirs)], check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})

    dsgen.render(DICT).write(ours)

    assert ours.read_bytes() == theirs.read_bytes()
    assert ours.stat().st_mode == theirs.stat().st_mode
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ours.json", "theirs.json"]


def test_a_config_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()

    with pytest.raises(DsgenError, match="it is a folder; path names a file") as caught:
        dsgen.render(DICT).write(tmp_path / "folder")
    with pytest.raises(DsgenError, match="No such file or directory"):
        dsgen.render(DICT).write(tmp_path / "nowhere" / "config.json")

    assert caught.value.code == "unwritable"
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


# What else the command line does.

CONFIG = {"train_batch_size": 8, "gradient_clip": 1.0, "zero_optimization": {"stage": 2, "cpu_offload": True}}


def test_a_dict_and_a_file_are_linted_and_mended_alike(tmp_path: Path) -> None:
    file = tmp_path / "ds_config.json"
    file.write_text(json.dumps(CONFIG, indent=2) + "\n")

    found, same = dsgen.lint(CONFIG, deepspeed="0.19"), dsgen.lint(file, deepspeed="0.19")
    mended = dsgen.fix(same)

    assert [item.rule for item in found.findings] == [item.rule for item in same.findings]
    assert "unread-key" in {item.rule for item in found.findings}
    assert json.loads(file.read_text()) == CONFIG  # nothing is written yet
    assert dsgen.fix(CONFIG).config == mended.config == json.loads(mended.text)
    assert mended.config["gradient_clipping"] == 1.0
    mended.write()
    assert file.read_text() == mended.text
    assert "unread-key" not in {item.rule for item in dsgen.lint(file).findings}
    with pytest.raises(DsgenError, match=r"no file holds this config\n  Take .config"):
        dsgen.fix(CONFIG).write()


def test_what_is_not_mended_of_a_dict_stays_as_it_was_given() -> None:
    """DeepSpeed's reader of files makes 1.0 the whole number 1; a dict is handed over as it is."""
    given = {"train_batch_size": 8, "gradient_clip": 1.0, "fp16": {"loss_scale": 0.0}, "elastic": [2.0, 2]}

    mended = dsgen.fix(given).config

    assert repr(mended["gradient_clipping"]) == "1.0"
    assert repr((mended["fp16"], mended["elastic"])) == repr((given["fp16"], given["elastic"]))


def test_which_rules_speak_can_be_said() -> None:
    only = dsgen.lint(CONFIG, select=["unread-key"])

    assert {item.rule for item in only.findings} == {"unread-key"}
    assert not dsgen.lint(CONFIG, ignore=["DSG"], severity="info").findings
    assert {item.rule for item in dsgen.fix(only).applied} == {"unread-key"}


@pytest.mark.parametrize(
    ("call", "words", "code"),
    [
        (lambda: dsgen.lint("nowhere.json"), "nowhere.json: there is no such file", "unreadable"),
        (lambda: dsgen.lint("."), "it is a folder; it must be a config", "unreadable"),
        (lambda: dsgen.lint({}, select=["unred-key"]), "select: no rule 'unred-key'", "unknown-name"),
        (
            lambda: dsgen.lint({}, select="DSG1"),
            r"select is 'DSG1'; it must be a list\n  Write select=",
            "bad-value",
        ),
        (lambda: dsgen.lint({}, severity="warn"), "no severity 'warn'; it must be one of info", "unknown-name"),
        (lambda: dsgen.lint({}, target="hf"), "no target 'hf'", "unknown-name"),
        (lambda: dsgen.lint({}, world_size="8"), "world_size is '8'; it must be a whole number", "bad-value"),
        (lambda: dsgen.prove({"gradient_clipping": "auto"}), 'gradient_clipping is "auto"; a proof hands', "bad-value"),
        (lambda: dsgen.lint({}, accelerator="cdua"), "did you mean cuda?", "unknown-name"),
        (lambda: dsgen.lint({}, client_optimizer="mine"), "no client optimizer 'mine'", "unknown-name"),
        (lambda: dsgen.lint({}, deepspeed="9"), "DeepSpeed 9 is not known", "unknown-name"),
        (lambda: dsgen.migrate({}, "9"), "DeepSpeed 9 is not known", "unknown-name"),
        (lambda: dsgen.lint({"a": object()}), "<config>: a is a object", "bad-value"),
        (lambda: dsgen.why(DICT, "zero_optimization.stge"), "did you mean zero_optimization.stage", "unknown-name"),
        (lambda: dsgen.simulate({}, world_size=8), "model is missing", "missing"),
        (lambda: dsgen.simulate({}, model="7b"), "world_size is missing", "missing"),
        (lambda: dsgen.simulate(DSGEN, model="7b"), "model is for a config as a dict", "contradiction"),
    ],
)
def test_a_mistake_in_a_question_is_told_with_its_kind(call: Any, words: str, code: str) -> None:
    with pytest.raises(DsgenError, match=words) as caught:
        call()

    assert caught.value.code == code


DSGEN = dsgen.render(DICT)


def test_a_folder_is_surveyed(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(json.dumps({**CONFIG, "train_micro_batch_size_per_gpu": 1}))
    (tmp_path / "notes.json").write_text("{}")

    files = dsgen.survey(tmp_path, select=["unread-key"])

    assert [Path(file.document.name).name for file in files] == ["a.json", "b.json"]
    assert all(len(file.findings) == 1 for file in files)
    (tmp_path / "pyproject.toml").write_text("[tool.dsgen.lint]\nselekt = []\n")
    with pytest.raises(DsgenError, match=r"no setting tool\.dsgen\.lint\.selekt") as caught:
        dsgen.survey(tmp_path)
    assert len(caught.value.mistakes) == 1  # of the settings, however many files they are for


def test_a_config_is_migrated() -> None:
    mended = dsgen.migrate({"train_batch_size": 8, "zero_optimization": {"stage": 2, "cpu_offload": True}}, "0.19")

    assert mended.config["zero_optimization"] == {"stage": 2, "offload_optimizer": {"device": "cpu"}}
    assert '-    "cpu_offload": true' in mended.diff()


def test_two_configs_are_compared(tmp_path: Path) -> None:
    first, file = dsgen.render(DICT), tmp_path / "ds_config.json"
    first.write(file)

    assert not dsgen.diff(first, file).differences
    [found] = dsgen.diff(first, {**first, "gradient_clipping": 0.5}).differences
    assert (found.path, found.first, found.second) == ("gradient_clipping", 1.0, 0.5)
    assert found.reasons[0]


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_what_overlap_comm_is_by_default_follows_the_stage(stage: int) -> None:
    bare = {"zero_optimization": {"stage": stage}}
    same, other = ({"zero_optimization": {"stage": stage, "overlap_comm": value}} for value in (stage == 3, stage < 3))

    assert not dsgen.diff(bare, same).differences
    [found] = dsgen.diff(other, bare).differences
    assert (found.path, found.first, found.second) == ("zero_optimization.overlap_comm", stage < 3, stage == 3)


@pytest.mark.parametrize(
    ("section", "kind", "argument", "default"),
    [
        ("optimizer", "AdamW", "lr", 0.001),
        ("optimizer", "Adagrad", "lr", 0.01),
        ("scheduler", "WarmupLR", "warmup_num_steps", 1000),
        ("scheduler", "WarmupDecayLR", "warmup_type", "log"),
    ],
)
def test_what_an_argument_is_by_default_follows_its_class(
    section: str, kind: str, argument: str, default: object
) -> None:
    """The first class that has an argument of the name is not the one that runs: AdamW was said to learn at 0.01."""
    bare = {section: {"type": kind}}
    path = f"{section}.params.{argument}"

    assert not dsgen.diff(bare, {section: {"type": kind, "params": {argument: default}}}).differences
    [found] = dsgen.diff(bare, {section: {"type": kind, "params": {argument: 7}}}).differences
    assert (found.path, found.first, found.second) == (path, default, 7)
    *_, found = dsgen.diff({}, {section: {"type": kind, "params": {argument: default}}}).differences
    assert (found.path, found.first, found.second) == (path, None, default)  # without the class nothing has one


def test_an_old_name_of_a_key_is_that_key_where_two_configs_are_compared() -> None:
    old, new = (
        {"zero_optimization": {f"stage3_gather_{name}_weights_on_model_save": True}} for name in ("fp16", "16bit")
    )

    assert not dsgen.diff(old, new).differences
    bare = {"zero_optimization": {"stage": 1}}
    [found] = dsgen.diff({"zero_optimization": {"stage": 1, "cpu_offload": True}}, bare).differences
    assert found.path == "zero_optimization.cpu_offload"  # what replaces it says it otherwise


def test_a_key_that_nothing_reads_has_no_default_where_two_configs_are_compared() -> None:
    bare = {"optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}}
    [found] = dsgen.diff(
        {"optimizer": {"type": "AdamW", "params": {"lr": 1e-5, "beta": [0.9, 0.99]}}}, bare
    ).differences

    assert (found.path, found.known) == ("optimizer.params.beta", False)
    assert "not written, and DeepSpeed reads no such key" in text(dsgen.diff({"our_key": 1}, {}))


def test_a_key_and_the_memory_are_explained() -> None:
    answer = dsgen.why(DICT, "zero_optimization.stage")
    footprint = dsgen.memory(DSGEN, every=True)

    assert answer.value == DSGEN["zero_optimization"]["stage"]
    assert {other.value for other in answer.alternatives} == {0, 1, 2, 3} - {answer.value}
    assert footprint.question.strategy.stage == answer.value
    assert len(footprint.alternatives) > len(dsgen.memory(DICT).alternatives)


def test_a_rendered_config_is_taken_as_it_is() -> None:
    as_chosen, asked = DSGEN.plan.chosen.memory, dsgen.memory(DICT, config=DSGEN)

    assert asked.memory.gpu.peak_bytes == pytest.approx(as_chosen.gpu.peak_bytes, rel=0.01)


@pytest.mark.parametrize("room", ["memory", "effective"])
def test_a_room_does_not_hide_the_function_of_its_name(room: str) -> None:
    program = (
        f"import dsgen, importlib; importlib.import_module('dsgen.{room}'); "
        f"assert callable(dsgen.{room}) and dsgen.{room}.__module__ == 'dsgen.api'; from dsgen import {room} as same; "
        f"assert same is dsgen.{room}; print('as it should be')"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "as it should be\n"


def test_everything_the_command_line_does_is_there() -> None:
    from dsgen.cli import COMMANDS

    as_pages = {"rule", "schema", "profiles"}  # what is printed there is documentation, not an answer
    as_pages |= {"hardware"}  # a group: what it detects is dsgen.detect

    assert set(COMMANDS) - as_pages <= set(dsgen.__all__)


# The laws of `|`; those of the fold are in test_layers.py.

LAW = settings(deadline=None, max_examples=100)

PROFILES = st.sampled_from(["a100-40g", "7b", "standard", "ethernet-25g"]).map(dsgen.profile)
WISHES = st.dictionaries(
    st.sampled_from(["training.seq_len", "training.micro_batch", "cluster.gpus"]), st.integers(1, 3), max_size=2
)
PARTS = st.one_of(PROFILES, WISHES.map(dsgen.overrides), WISHES.map(dsgen.site), st.just(dsgen.Layers()))


@LAW
@given(PARTS)
def test_layers_have_an_identity(part: dsgen.Layers) -> None:
    assert dsgen.Layers() | part == part == part | dsgen.Layers()


@LAW
@given(PARTS, PARTS, PARTS)
def test_joining_is_associative(first: dsgen.Layers, second: dsgen.Layers, third: dsgen.Layers) -> None:
    assert (first | second) | third == first | (second | third)


@LAW
@given(PARTS, PARTS)
def test_joining_twice_is_joining_once(first: dsgen.Layers, second: dsgen.Layers) -> None:
    assert first | first == first
    assert first | second | first | second == first | second


@LAW
@given(WISHES, PARTS)
def test_a_dict_joins_from_either_side(wishes: dict[str, Any], part: dsgen.Layers) -> None:
    assert part | wishes == part | dsgen.overrides(wishes)
    assert wishes | part == dsgen.overrides(wishes) | part


@pytest.mark.parametrize("swap", [False, True])
def test_the_rank_decides_and_not_the_order(swap: bool) -> None:
    parts: list[dsgen.Layers | Mapping[str, Any]] = [
        dsgen.profile("a100-40g"),
        dsgen.profile("7b"),
        dsgen.site({"training": {"seq_len": 1024}}),
        dsgen.overrides({"training": {"seq_len": 2048}}),
    ]
    joined = dsgen.Layers()
    for part in parts[::-1] if swap else parts:
        joined = joined | part

    assert dsgen.job(joined).seq_len == 2048


def test_the_output_does_not_depend_on_the_hash_seed() -> None:
    program = (
        "import dsgen; c = dsgen.render(dsgen.profile('a100-40g') | dsgen.profile('mixtral-8x7b') "
        "| dsgen.profile('lora') "
        "| {'training.monitor': 'csv', 'cluster': {'gpus': 32}, 'comms_logger': {'enabled': True, 'verbose': True}});"
        " print(c.to_json(), c.to_hjson(), c.warnings, c.plan.reason, [str(r.strategy) for r in c.plan.runners_up])"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            check=True,
            capture_output=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
        ).stdout
        for seed in ("0", "1", "4242")
    }

    assert len(outputs) == 1


def test_two_names_of_one_key_do_not_differ() -> None:
    keys = ("gather_16bit_weights_on_model_save", "stage3_gather_16bit_weights_on_model_save")
    short, long = ({"zero_optimization": {"stage": 3, key: True}} for key in keys)

    assert dsgen.diff(short, long).differences == ()
    assert [one.path for one in dsgen.diff(short, {"zero_optimization": {"stage": 3}}).differences] == [
        "zero_optimization.stage3_gather_16bit_weights_on_model_save"
    ]
