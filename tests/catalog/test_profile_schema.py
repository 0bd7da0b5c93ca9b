"""schema/profile/: generated from the shapes, true of every file that dsgen ships, and as strict as dsgen itself."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import jsonschema
import own_configs
import pytest
from referencing import Registry, Resource
from ruamel.yaml import YAML

import dsgen
from dsgen.catalog.sheets import KINDS
from dsgen.cli import main
from dsgen.jobs.assembly import assemble
from dsgen.jobs.scenarios import Scenario, ScenarioValue, layers, read
from dsgen.report import schemas
from dsgen.shapes.data import data_root
from dsgen.shapes.errors import DsgenError
from dsgen.shapes.layers import Origin
from dsgen.shapes.profiles import SECTIONS, yaml_name

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDER = data_root() / "schema" / "profile"


def tree(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


@functools.cache
def schema(name: str) -> jsonschema.Draft202012Validator:
    """One of the committed schemas, with the files it refers to found beside it, as an editor finds them."""

    def retrieve(uri: str) -> Resource[Any]:
        return Resource.from_contents(tree(Path(uri.removeprefix("file://"))))

    path = FOLDER / f"{name}.schema.json"
    jsonschema.Draft202012Validator.check_schema(tree(path))
    registry: Registry[Any] = Registry(retrieve=retrieve)  # type: ignore[call-arg]
    return jsonschema.Draft202012Validator({"$ref": path.as_uri()}, registry=registry)


def parsed(text: str) -> Any:
    return YAML(typ="safe", pure=True).load(text)


def verdict(name: str, text: str, folder: Path) -> str | None:
    """Why dsgen refuses a file in a job that is otherwise whole; None when it takes it."""
    file = folder / "my-file.yaml"
    file.write_text(text, encoding="utf-8")
    named = {"hardware": ("a100-80g",), "model": ("7b",)}
    nodes = {"nodes": ScenarioValue(2, Origin("test"))} if name == "network" else {}
    try:
        if name == "scenario":
            said = read(str(file))
            said = attrs.evolve(said, profiles={**named, **said.profiles})
        elif name == "override":
            said = Scenario(profiles=named, files=(str(file),))
        else:
            said = Scenario(profiles={**named, name: (str(file),)}, fields=nodes)
        assemble(layers(said), said.deepspeed)
    except DsgenError as error:
        return str(error)
    return None


def test_the_committed_files_are_what_the_shapes_say() -> None:
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "schema" / "profile_schema.py"), "--check"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_every_shipped_profile_is_valid(kind: str) -> None:
    files = sorted((data_root() / "profiles" / kind).glob("*.yaml"))
    wrong = [
        (path.name, error.message)
        for path in files
        for error in schema(kind).iter_errors(parsed(path.read_text(encoding="utf-8")))
    ]
    assert len(files) > 5
    assert not wrong


@pytest.mark.parametrize(("name", "folder"), [("scenario", "scenarios"), ("override", "overrides")])
def test_every_golden_file_is_valid(name: str, folder: str) -> None:
    files = sorted((REPOSITORY / "golden" / folder).glob("*.yaml"))
    wrong = [
        (path.name, error.message)
        for path in files
        for error in schema(name).iter_errors(parsed(path.read_text(encoding="utf-8")))
    ]
    assert len(files) >= 10
    assert not wrong


def test_every_field_is_there_with_its_meaning() -> None:
    definitions = tree(FOLDER / "sections.schema.json")["$defs"]
    for name, shape in SECTIONS.items():
        told = definitions[name]["properties"]
        assert {yaml_name(field.name): field.metadata["doc"] for field in attrs.fields(shape)} == {
            key: node["description"] for key, node in told.items()
        }


HARDWARE = (REPOSITORY / "profiles" / "hardware" / "a100-40g.yaml").read_text(encoding="utf-8")
NETWORK = "kind: network\nnetwork: {fabric: roce, bandwidth: 200 Gb/s, latency: 2 us, rdma: true}\n"
RIGHT = {
    "child": ("hardware", "kind: hardware\nextends: a100-40g\nhardware:\n  host_memory: 256 GiB\n"),
    "whole network": ("network", NETWORK),
    "no NVMe": ("hardware", HARDWARE.replace("nvme_capacity: 15.36 TB", "nvme_capacity: 0")),
    "wish deleted": ("training", "training:\n  seq_len: null\n  lr: 1e-5\n"),
    "keys of DeepSpeed": ("training", "deepspeed: {zero_optimization: {round_robin_gradients: true}}\n"),
    "bare section of DeepSpeed": ("training", "extends: standard\nzero_optimization: {overlap_comm: false}\n"),
    "bare keys": ("override", "steps_per_print: 5\nscheduler: null\nfp16: {loss_scale: null}\n"),
    "dotted": ("override", "zero_optimization.overlap_comm: false\ntraining.lr: 1e-4\n"),
    "alias": ("override", "zero_optimization: {max_live_parameters: 100}\n"),
    "whole number as 5e8": ("override", "zero_optimization: {reduce_bucket_size: 5e8}\n"),
    "scenario": ("scenario", "hw: a100-80g\nmodel: 7b\nseq-len: 2048\nset: {training.lr: 1e-5}\n"),
    "scenario with list": ("scenario", "model: 7b\nset: [training.lr=1e-5, steps_per_print=7]\n"),
    "scenario of a whole config": (
        "scenario",
        "model: 7b\nset:\n  deepspeed: null\n  train_micro_batch_size_per_gpu: 1\n  deepspeed.notes: ours\n",
    ),
    "scenario of a release": ("scenario", 'model: 7b\ndeepspeed: "0.18"\n'),
}  # fmt: skip
BROKEN = {
    "no unit": ("hardware", HARDWARE.replace("gpu_memory: 40 GiB", "gpu_memory: 40")),
    "unit of another kind": ("hardware", HARDWARE.replace("gpu_memory: 40 GiB", "gpu_memory: 40 GB/s")),
    "unit in wrong letters": ("hardware", HARDWARE.replace("gpu_memory: 40 GiB", "gpu_memory: 40 gib")),
    "nothing where something must be": ("hardware", HARDWARE.replace("gpu_memory: 40 GiB", "gpu_memory: 0 GiB")),
    "missing fact": ("hardware", HARDWARE.replace("  cpu_cores: 128\n", "")),
    "unknown fact": ("hardware", HARDWARE + "  gpu_memroy: 40 GiB\n"),
    "unknown header": ("hardware", "titel: x\n" + HARDWARE),
    "another kind": ("network", NETWORK.replace("kind: network", "kind: hardware")),
    "choice": ("network", NETWORK.replace("roce", "rocee")),
    "text for a truth value": ("network", NETWORK.replace("rdma: true", 'rdma: "true"')),
    "section that is a list": ("training", "training: [1]\n"),
    "section that is null": ("training", "training: null\n"),
    "says nothing": ("training", "kind: training\ntitle: x\n"),
    "source that is a number": ("training", "source: {default: 5}\ntraining: {lr: 1e-5}\n"),
    "number as text": ("training", 'training: {seq_len: "4096"}\n'),
    "fraction": ("training", "training: {micro_batch: 1.5}\n"),
    "below its least": ("training", "training: {micro_batch: 0}\n"),
    "bound": ("training", "training: {beta1: 1.0}\n"),
    "empty list": ("training", "training: {lora_targets: []}\n"),
    "aliases that are one text": ("training", "aliases: fast\ntraining: {lr: 1e-5}\n"),
    "scalar of DeepSpeed in a profile": ("training", "steps_per_print: 5\ntraining: {lr: 1e-5}\n"),
    "unknown key of DeepSpeed": ("training", "deepspeed: {zero_optimization: {overlap_com: true}}\n"),
    "unknown section": ("override", "zero_optimisation: {stage: 3}\n"),
    "unknown key of a loose section": ("override", "activation_checkpointing: {partition: true}\n"),
    "wrong stage": ("override", "zero_optimization: {stage: 4}\n"),
    "removed key": ("override", "elasticity: {enabled: false}\n"),
    "short form": ("override", "zero_optimization: true\n"),
    "value of a dotted key": ("override", "zero_optimization.stage: 7\n"),
    "empty override": ("override", "{}\n"),
    "unknown field": ("scenario", "hw: a100-80g\nmodle: 7b\n"),
    "release as number": ("scenario", "model: 7b\ndeepspeed: 0.19\n"),
    "model as number": ("scenario", "model: 7\n"),
    "stage that is none": ("scenario", "model: 7b\nzero_stage: two\n"),
    "set that is text": ("scenario", "model: 7b\nset: training.lr=1\n"),
    "set of an unknown path": ("scenario", "model: 7b\nset: {training.learning: 1}\n"),
    "set without value": ("scenario", "model: 7b\nset: [training.lr]\n"),
}  # fmt: skip


@pytest.mark.parametrize("case", RIGHT)
def test_what_dsgen_takes_is_valid(case: str, tmp_path: Path) -> None:
    name, text = RIGHT[case]
    assert [error.message for error in schema(name).iter_errors(parsed(text))] == []
    assert verdict(name, text, tmp_path) is None


@pytest.mark.parametrize("case", BROKEN)
def test_what_dsgen_refuses_is_not(case: str, tmp_path: Path) -> None:
    name, text = BROKEN[case]
    assert not schema(name).is_valid(parsed(text))
    assert verdict(name, text, tmp_path) is not None


def offered(name: str) -> dict[str, Any]:
    return dict(tree(FOLDER / f"{name}.schema.json")["properties"])


def test_an_editor_has_something_to_offer() -> None:
    """Keys, values and words: of our files, and of a DeepSpeed config."""
    ours = tree(FOLDER / "sections.schema.json")["$defs"]
    assert {"hw", "model", "zero_stage", "zero-stage", "set"} <= set(offered("scenario"))
    assert {"zero_optimization.stage", "training.lr", "zero_optimization"} <= set(offered("override"))
    assert ours["network"]["properties"]["fabric"]["enum"][:2] == ["none", "ethernet"]
    assert ours["hardware"]["properties"]["gpu_memory"]["examples"] == ["40 GiB"]
    config = tree(data_root() / "schema" / "deepspeed" / "0.19.schema.json")
    keys = list(_keys(config["properties"]))
    zero = config["properties"]["zero_optimization"]["properties"]
    assert len(keys) > 400
    assert not [name for name, node in keys if "description" not in node]
    assert zero["overlap_comm"]["description"] and zero["reduce_bucket_size"]["default"] == 500_000_000
    assert {"enum": ["none", "cpu", "nvme"]} in zero["offload_optimizer"]["properties"]["device"]["anyOf"]


def _keys(properties: dict[str, Any], before: str = "") -> Any:
    for name, node in properties.items():
        yield f"{before}{name}", node
        yield from _keys(node.get("properties", {}), f"{before}{name}.")


def test_the_deepspeed_schema_takes_the_configs_that_deepspeed_takes() -> None:
    """Ours, also with keys that nothing reads and "auto" for the Trainer; a rejected key it refuses."""
    validator = jsonschema.Draft202012Validator(tree(data_root() / "schema" / "deepspeed" / "0.19.schema.json"))
    strict = {name: json.loads(text) for name, text in own_configs.texts().items() if own_configs.strict(text)}
    refused = {name for name, config in strict.items() if not validator.is_valid(config)}

    assert len(strict) > 170
    assert refused == {"tensor-parallel-by-other-names.json"}


def test_the_command_lists_and_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main(["schema", *arguments])
        return int(str(ended.value.code)), capsys.readouterr().out

    assert json.loads(run()[1])["title"] == "DeepSpeed 0.19 configuration"
    assert json.loads(run("--deepspeed", "0.14")[1])["title"] == "DeepSpeed 0.14 configuration"
    listed = run("--list")[1]
    assert all(word in listed for word in ("0.14", "0.19", "hardware", "training", "override", "scenario"))
    code, shown = run("training", "-o", str(tmp_path / "t.json"))
    assert (code, shown) == (0, "")
    assert tree(tmp_path / "t.json")["title"] == "dsgen training profile"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--deepspeed", "0.13"], "DeepSpeed 0.13 is not known; the known releases are 0.14"),
        (["--deepspeed", "newest"], "is not known"),
        (["trainig"], "did you mean training?"),
        (["training", "--deepspeed", "0.19"], "training is a file of dsgen's own"),
        (["--list", "training"], "--list stands alone"),
    ],
)
def test_the_command_explains_what_it_cannot_do(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["schema", *arguments])
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("name", ["hardware", "override", "scenario"])
def test_a_printed_schema_needs_no_other_file(name: str) -> None:
    whole = json.loads(schemas.own(name))
    text = json.dumps(whole)
    assert '"$ref": "#/' in text and '"$ref": ".' not in text and "schema.json#" not in text
    validator = jsonschema.Draft202012Validator(whole)
    cases = [(case, text) for case, (kind, text) in {**RIGHT, **BROKEN}.items() if kind == name]
    assert cases
    for case, text in cases:
        assert validator.is_valid(parsed(text)) == (case in RIGHT)


def test_what_calibrate_writes_is_a_profile_to_the_schema_too() -> None:
    made = dsgen.calibrate({"hw": "a100-40g", "model": "7b"}, step_seconds=40.0, peak_gib=30.0).profile()
    measured = parsed(made)

    assert list(schema("hardware").iter_errors(measured)) == []
    measured["measurements"][0]["step_seconds"] = -1
    assert [str(error.json_path) for error in schema("hardware").iter_errors(measured)] == [
        "$.measurements[0].step_seconds"
    ]
