"""Scenarios: the options as data, from the command line, from a file, and both together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dsgen.asking.plan_questions import variations
from dsgen.cli.options import fields_from
from dsgen.jobs import scenarios
from dsgen.jobs.assembly import assemble
from dsgen.jobs.job import Job
from dsgen.jobs.scenarios import FIELDS, Scenario, ScenarioValue, merge, parse_set
from dsgen.shapes.errors import DsgenError
from dsgen.shapes.layers import Origin, Rank


def write(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def job(scenario: Scenario) -> Job:
    return assemble(scenarios.layers(scenario), scenario.deepspeed)


def error_of(path: str) -> str:
    with pytest.raises(DsgenError) as caught:
        job(scenarios.read(path))
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("training.seq_len=8192", "training.seq_len", 8192),
        ("training.lr=1e-5", "training.lr", 1e-5),
        ("bf16.enabled=true", "bf16.enabled", True),
        ("fp16=null", "fp16", None),
        ("training.precision=bf16", "training.precision", "bf16"),
        ("hardware.gpu_memory=40 GiB", "hardware.gpu_memory", "40 GiB"),
        ('a="32"', "a", "32"),
        ("a=[1, 2]", "a", [1, 2]),
        (" a = b=c ", "a", "b=c"),
        ("a=NaN", "a", "NaN"),
        ("a=1_000", "a", "1_000"),
        ("a=True", "a", "True"),
    ],
)
def test_one_set_is_a_path_and_a_json_value_or_text(text: str, path: str, value: object) -> None:
    found, setting = parse_set(text)

    assert (found, setting) == (path, ScenarioValue(value, Origin("--set")))
    assert type(setting.value) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("foo", "--set: foo; it must be path=value, such as training.seq_len=8192"),
        ("=3", "--set: =3; it must be path=value, such as training.seq_len=8192"),
        (".a=3", "--set: .a=3; it must be path=value, such as training.seq_len=8192"),
        ("a..b=3", "--set: a..b=3; it must be path=value, such as training.seq_len=8192"),
        ("a=", "--set: a has no value; write null to delete it"),
        ('a=""', "--set: a has no value; write null to delete it"),
        (
            "a=[1",
            "--set: a=[1 is not JSON (Expecting ',' delimiter: line 1 column 3 (char 2))\n"
            "  In a shell, quote it: --set 'path=[1, 2]'.",
        ),
        (
            'a={"b": 1}',
            "--set: a is a map; --set takes one value\n"
            "  Say --set a.KEY=VALUE for each key, or put the map into a file for -f.",
        ),
        (
            'a=[{"b": 1, "b": 2}]',
            '--set: a=[{"b": 1, "b": 2}] is not JSON (a key stands twice in one map)\n'
            "  In a shell, quote it: --set 'path=[1, 2]'.",
        ),
        ("a\nb", '--set: "a\\nb"; it must be path=value, such as training.seq_len=8192'),
    ],
)
def test_a_broken_set_says_what_it_must_be(text: str, message: str) -> None:
    with pytest.raises(DsgenError) as caught:
        parse_set(text)

    assert str(caught.value) == message


def test_a_deep_set_is_refused_and_not_a_crash() -> None:
    with pytest.raises(DsgenError, match="is not JSON"):
        parse_set("a=" + "[" * 100_000)


FULL = """\
hw: ../my-box.yaml  # our machines
model: ./hf
network: ethernet-100g
training: [lora]
nodes: 2
seq-len: 2048  # our documents are short
micro_batch: 2
file: site.yaml
deepspeed: "0.19"
set:
  training.lr: 1e-4  # measured
  zero_optimization: {overlap_comm: false}
"""


@pytest.fixture
def repository(tmp_path: Path) -> str:
    """A training repository with a scenario and what it names, each relative to the scenario's folder."""
    write(tmp_path / "my-box.yaml", "kind: hardware\nextends: a100-40g\nhardware: {gpus_per_node: 4}\n")
    write(
        tmp_path / "run" / "hf" / "config.json",
        '{"model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 2, "num_attention_heads": 8, '
        '"intermediate_size": 2816, "vocab_size": 32000}',
    )
    write(tmp_path / "run" / "site.yaml", "zero_optimization:\n  stage: 2\n")
    return write(tmp_path / "run" / "scenario.yaml", FULL)


def test_a_scenario_file_says_all_that_options_say(repository: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")

    found = job(scenarios.read(repository))

    assert (found.world, found.gpus_per_node, found.seq_len, found.model.layers) == (8, 4, 2048, 2)
    assert (found.training.method, found.training.lr, found.network.fabric) == ("lora", 1e-4, "ethernet")
    assert found.deepspeed["zero_optimization"] == {"stage": 2, "overlap_comm": False}
    winner = found.provenance.history("training.seq_len")[-1]
    assert (str(winner.origin), winner.reason, winner.rank) == (f"{repository}:6", "our documents are short", Rank.SITE)
    assert scenarios.is_scenario(repository)
    assert not scenarios.is_scenario(str(Path(repository).parent / "site.yaml"))


def test_options_win_over_the_file_and_the_loser_stays(repository: str) -> None:
    options = Scenario(
        profiles={"model": ("7b",), "training": ()}, fields={"seq_len": ScenarioValue(512, Origin("--seq-len"))}
    )

    found = job(merge(scenarios.read(repository), options))

    assert (found.seq_len, found.model.hidden_size, found.training.method) == (512, 4096, "lora")
    assert [item.value for item in found.provenance.history("training.seq_len")] == [2048, 512]


def test_options_may_repeat_the_file(repository: str) -> None:
    options = Scenario(fields={"seq_len": ScenarioValue(2048, Origin("--seq-len"))}, deepspeed="0.18")

    found = job(merge(scenarios.read(repository), options))

    assert found.version.startswith("0.18")
    assert f"--seq-len: training.seq_len = 2048 changes nothing; it is so already ({repository}:6)" in found.warnings


def test_a_file_of_the_options_comes_after_the_file_of_the_scenario(repository: str, tmp_path: Path) -> None:
    later = write(tmp_path / "later.yaml", "zero_optimization: {stage: 3}\n")

    found = job(merge(scenarios.read(repository), Scenario(files=(later,))))

    assert found.deepspeed["zero_optimization"]["stage"] == 3


KNOWN = ", ".join(["hw", "model", "network", "training", *FIELDS, "deepspeed", "file", "set"])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("foo: 3", f"{{file}}:3: unknown field foo; a scenario has {KNOWN}\n  Other paths go under set:."),
        ("hardware: a100-80g", "{file}:3: unknown field hardware\n  did you mean hw?"),
        ("batch-size: 8", "{file}:3: unknown field batch-size\n  did you mean micro_batch or global_batch?"),
        ("epochs: 3", "{file}:3: unknown field epochs\n  did you mean total_steps or total_tokens?"),
        (
            "weight_decay: 0.1",
            "{file}:3: unknown field weight_decay\n  did you mean set: {{training.weight_decay: ...}}?",
        ),
        (
            "gpu: 3",
            f"{{file}}:3: unknown field gpu; a scenario has {KNOWN}\n"
            "  did you mean gpus or gpu_memory or gpu_memory_used?",
        ),
        (
            "training: {seq_len: 3}",
            f"{{file}}:3: unknown field training.seq_len; a scenario has {KNOWN}\n"
            "  did you mean training or target_len or seq_len?",
        ),
        ("network: 7", '{file}:3: network is 7; it must be a name, or a list of names\n  Quote it: network: "7".'),
        ("training: []", "{file}:3: training is []; it must be a name, or a list of names"),
        ("training: [lora, 3]", "{file}:3: training is [lora, 3]; it must be a name, or a list of names"),
        (
            "deepspeed: 0.19",
            "{file}:3: deepspeed is 0.19; it must be one release, quoted: 0.10 would read as 0.1\n"
            '  Write deepspeed: "0.19".',
        ),
        ("set: foo", "{file}:3: set is foo; it must be a map of paths, or a list of path=value"),
        ("set: [5]", '{file}:3: "5"; it must be path=value, such as training.seq_len=8192'),
        ("seq_len: 1.5", "{file}:3: training.seq_len is 1.5; it must be a whole number of at least 1"),
        ('seq_len: "32"', '{file}:3: training.seq_len is "32"; it must be a whole number of at least 1'),
        (
            "seq_len: 1\nseq-len: 1",
            "{file}:4: seq_len is given twice, first in line 3; a field stands once\n  Drop one of the two.",
        ),
        (
            "seq_len: 15\nset: {training.seq_len: 16}",
            "training.seq_len = 15 ({file}:3) and 16 ({file}:4); it can have one value\n  Drop one of the two.",
        ),
        (
            "set: {zero_optimization.stage: 1, deepspeed.zero_optimization.stage: 2}",
            "deepspeed.zero_optimization.stage = 1 ({file}:3) and 2 ({file}:3); it can have one value\n"
            "  Drop one of the two.",
        ),
        (
            "file: no.yaml",
            "{folder}/no.yaml: no such file\n  Check the path; `dsgen profiles list` shows the built-in names.",
        ),
    ],
)
def test_a_mistake_in_a_scenario_says_where_and_what(tmp_path: Path, line: str, message: str) -> None:
    path = write(tmp_path / "scenario.yaml", f"hw: a100-40g\nmodel: 7b\n{line}\n")

    assert error_of(path) == message.format(file=path, folder=tmp_path)


def test_two_hardwares_are_a_conflict_that_names_both() -> None:
    with pytest.raises(DsgenError) as caught:
        job(Scenario(profiles={"hardware": ("a100-40g", "h100-80g"), "model": ("7b",)}))

    assert str(caught.value) == (
        "hardware.gpu_memory = 40 GiB (profiles/hardware/a100-40g.yaml:25) and 80 GiB "
        "(profiles/hardware/h100-80g.yaml:25) have the same rank (hardware); one value must win\n"
        "  Drop one of the two, or decide it above them: -f a file or --set hardware.gpu_memory=VALUE."
    )


def test_a_profile_named_twice_is_named_once() -> None:
    twice = Scenario(
        profiles={"hardware": ("a100-40g", "A100-40G"), "model": ("7b", "7b"), "training": ("lora", "lora")}
    )

    assert job(twice).training.method == "lora"


def test_an_option_and_a_set_that_differ_are_both_named() -> None:
    settings: dict[str, Any] = {
        "fields": {"seq_len": ScenarioValue(1, Origin("--seq-len"))},
        "sets": (("training.seq_len", ScenarioValue(1.0, Origin("--set"))),),
    }

    with pytest.raises(DsgenError) as caught:
        job(Scenario(profiles={"hardware": ("a100-40g",), "model": ("7b",)}, **settings))

    assert str(caught.value) == (
        "training.seq_len = 1 (--seq-len) and 1.0 (--set); it can have one value\n  Drop one of the two."
    )


@pytest.mark.parametrize("name", ["scenario.json", "config.yaml.txt"])
def test_only_yaml_is_a_scenario(tmp_path: Path, name: str) -> None:
    assert not scenarios.is_scenario(write(tmp_path / name, "hw: a100-40g\n"))


def test_a_card_without_a_profile_is_named_by_its_memory() -> None:
    """The nearest stated shape lends the other facts, the share that is usable among them."""
    named = job(said(model="7b", gpu_memory="20 GiB", host_memory="100 GiB"))

    assert named.names["hardware"] == "generic-24g"
    assert named.hardware.gpu_memory_bytes == 20 * 2**30
    assert named.hardware.usable_memory_bytes == int(20 * 2**30 * (22.03 / 24))
    assert named.hardware.host_memory_bytes == 100 * 2**30


def test_another_memory_of_a_named_card_keeps_its_usable_share() -> None:
    found = job(said(hardware="a100-40g", model="7b", gpu_memory="80 GiB"))

    assert found.names["hardware"] == "a100-40g"
    assert found.hardware.usable_memory_bytes == int(80 * 2**30 * (39.39 / 40))
    assert not found.warnings


def test_a_usable_memory_that_was_said_stays() -> None:
    scenario = said(hardware="a100-40g", model="7b", gpu_memory="80 GiB")
    by_hand = Scenario(
        profiles=scenario.profiles,
        fields=scenario.fields,
        sets=(parse_set("hardware.usable_memory=70 GiB"),),
    )

    assert job(by_hand).hardware.usable_memory_bytes == 70 * 2**30


@pytest.mark.parametrize("memory", ["lots", "24", 24, "-3 GiB", "0 GiB", None])
def test_a_memory_that_is_none_is_a_mistake_with_its_option(memory: object) -> None:
    with pytest.raises(DsgenError, match=r"--gpu-memory: hardware.gpu_memory is"):
        job(said(model="7b", gpu_memory=memory))


def said(hardware: str | None = None, model: str | None = None, **fields: object) -> Scenario:
    """A scenario as the command line says it."""
    return Scenario(
        profiles={"hardware": (hardware,) if hardware else (), "model": (model,) if model else ()},
        fields={name: ScenarioValue(value, Origin(f"--{name.replace('_', '-')}")) for name, value in fields.items()},
    )


@pytest.mark.parametrize(
    ("field", "said", "meant"),
    [
        ("seq_len", "32k", 32768),
        ("seq_len", "1.5K", 1536),
        ("total_tokens", "300B", 300 * 10**9),
        ("total_tokens", "1.5t", 15 * 10**11),
    ],
)
def test_thousands_and_billions_of_tokens_are_said_alike_everywhere(
    tmp_path: Path, field: str, said: str, meant: int
) -> None:
    path = write(tmp_path / "scenario.yaml", f"hw: a100-40g\nmodel: 7b\n{field}: {said}\n")

    assert scenarios.read(path).fields[field].value == meant
    assert scenarios.of({field: said}, "here").fields[field].value == meant
    assert fields_from({field: said}, [field])[field].value == meant
    assert variations.parsed(field, said) == meant


@pytest.mark.parametrize("said", ["32M", "k", "8 kb", "-8k"])
def test_what_is_no_number_of_tokens_is_refused_as_it_was_written(tmp_path: Path, said: str) -> None:
    path = write(tmp_path / "scenario.yaml", f"hw: a100-40g\nmodel: 7b\nseq_len: {said}\n")

    assert f"training.seq_len is {said}; it must be a whole number of at least 1" in error_of(path)


@pytest.mark.parametrize(
    "text",
    [
        '{"train_batch_size": 8}',
        "distributed_type: DEEPSPEED\n",
        '{"bf16": {"enabled": true}}',
    ],
)
def test_a_config_in_the_place_of_a_scenario_is_answered_with_what_takes_it(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "ds.json", text)

    assert f"dsgen memory and plan take it by --config {path}, and dsgen adopt" in error_of(path)


def test_a_training_file_in_the_place_of_a_scenario_is_answered_with_what_takes_it(tmp_path: Path) -> None:
    path = write(tmp_path / "sft.yaml", "model_name_or_path: a\n")

    assert f"--args {path} takes what it wants" in error_of(path)


def test_a_profile_that_is_not_known_is_told_with_the_place_that_names_it(tmp_path: Path) -> None:
    path = write(tmp_path / "scenario.yaml", "model: 7b\nhw: nope\n")
    named = Scenario(profiles={"hardware": ("none-such",)})

    assert error_of(path).startswith(f"{path}:2: no hardware profile named 'nope'")
    with pytest.raises(DsgenError) as caught:  # the command line names another: the file is not to blame
        job(merge(scenarios.read(path), named))
    assert str(caught.value).startswith("no hardware profile named 'none-such'")
