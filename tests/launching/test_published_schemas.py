"""Job files of Kubernetes and SkyPilot against their published schemas, of which published/ keeps a cut."""

from __future__ import annotations

import copy
import json
import subprocess
from pathlib import Path
from typing import Any

import attrs
import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from launches_made import FOUR_NODES, OFFLOADED, ONE_NODE, launch
from ruamel.yaml import YAML

from dsgen.launching import JobLaunch, run_folder
from dsgen.launching.yaml_text import yaml_text
from dsgen.shapes.errors import DsgenError

PUBLISHED = Path(__file__).parent / "published"
KINDS = ("jobset", "trainjob", "trainingruntime", "task")
WANTED = [ONE_NODE, FOUR_NODES, OFFLOADED]


def made(wanted: dict[str, Any], launcher: str, **fields: Any) -> JobLaunch:
    return launch(wanted, launcher=launcher, hosts=(), image="registry.example/image:1", **fields)


def documents(one: JobLaunch, name: str) -> list[dict[str, Any]]:
    text = next(file.text for file in run_folder(one).files if file.name == name)
    return list(YAML(typ="safe").load_all(text))


def schema(kind: str) -> Any:
    return json.loads((PUBLISHED / f"{kind}.json").read_text("utf-8"))["schema"]


def of_kind(wanted: dict[str, Any], kind: str) -> dict[str, Any]:
    if kind == "task":
        return documents(made(wanted, "skypilot"), "task.yaml")[0]
    name = "jobset.yaml" if kind == "jobset" else "trainjob.yaml"
    return next(one for one in documents(made(wanted, "kubernetes"), name) if one["kind"].lower() == kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wanted", WANTED)
def test_what_is_written_is_what_is_published(wanted: dict[str, Any], kind: str) -> None:
    jsonschema.Draft202012Validator(schema(kind)).validate(of_kind(wanted, kind))


@pytest.mark.parametrize("kind", KINDS)
def test_the_cut_refuses_what_the_schema_would(kind: str) -> None:
    """Every field that is written has a type in the cut, and no other name is taken beside it."""
    right = of_kind(FOUR_NODES, kind)
    validator = jsonschema.Draft202012Validator(schema(kind))
    for wrong in (dict(right, unheard_of=1), *misspelt(right, kind)):
        with pytest.raises(jsonschema.ValidationError):
            validator.validate(wrong)


def misspelt(right: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    """The same with one field of the first levels misspelt, or of another type."""
    inner, field = {
        "jobset": ("spec", "replicatedJobs"),
        "trainjob": ("spec", "runtimeRef"),
        "trainingruntime": ("spec", "template"),
        "task": ("resources", "job_recovery"),
    }[kind]
    one, other = copy.deepcopy(right), copy.deepcopy(right)
    one[inner][f"{field}s"] = one[inner].pop(field)
    other[inner][field] = 3
    return [one, other]


def test_every_source_is_named_with_its_version() -> None:
    for kind in KINDS:
        source = json.loads((PUBLISHED / f"{kind}.json").read_text("utf-8"))["source"]
        assert "Apache-2.0" in source
        assert any(letter.isdigit() for letter in source)


def test_pods_find_each_other_and_their_files() -> None:
    one = made(FOUR_NODES, "kubernetes", folder="/runs/My Run")
    config_map, claim, jobset = documents(one, "jobset.yaml")
    (job,) = jobset["spec"]["replicatedJobs"]
    pods = job["template"]["spec"]
    (container,) = pods["template"]["spec"]["containers"]

    assert (pods["parallelism"], pods["completions"], pods["completionMode"]) == (4, 4, "Indexed")
    assert "--master-addr my-run-node-0-0.my-run " in container["command"][2]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "8"}
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {"/dsgen/run/rank.sh", "/dsgen/run/env.sh", "/dsgen/run/ds_config.json", "/dsgen/run/checkpoints"} <= mounted
    files = {file.name: file.text for file in run_folder(one).files}
    assert config_map["data"] == {name: files[name] for name in ("ds_config.json", "env.sh", "rank.sh")}
    assert "folder=/dsgen/run\n" in config_map["data"]["rank.sh"]


def test_both_kinds_of_job_run_the_same_pods() -> None:
    one = made(FOUR_NODES, "kubernetes")
    jobset = documents(one, "jobset.yaml")[-1]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    _, _, runtime, trainjob = documents(one, "trainjob.yaml")
    pod = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]

    assert pod["volumes"] == jobset["volumes"]
    assert pod["containers"][0]["volumeMounts"] == jobset["containers"][0]["volumeMounts"]
    assert trainjob["spec"]["runtimeRef"]["name"] == runtime["metadata"]["name"]
    assert (trainjob["spec"]["trainer"]["numNodes"], trainjob["spec"]["trainer"]["numProcPerNode"]) == (4, 8)


def test_a_task_names_the_cloud_s_gpus_and_its_script_is_copied() -> None:
    (task,) = documents(made(FOUR_NODES, "skypilot", folder="/runs/a"), "task.yaml")

    assert task["resources"]["accelerators"] == {"H100": 8}
    assert (task["num_nodes"], task["workdir"]) == (4, "/srv")
    assert task["file_mounts"]["/dsgen/run/rank.sh"] == "/runs/a/rank.sh"
    script = next(file.text for file in run_folder(made(FOUR_NODES, "skypilot")).files if file.name == "rank.sh")
    assert "-u train.py " in script
    done = subprocess.run(["bash", "-n", "-c", task["run"]], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("hardware", "name"),
    [("rtx4000ada-20g", "RTX4000-Ada"), ("rtx4080-16g", "RTX4080"), ("rtxa4000-16g", "RTXA4000"),
     ("rtxa5000-24g", "RTXA5000")],
)  # fmt: skip
def test_a_task_names_a_workstation_s_card_as_runpod_is_asked_for_it(hardware: str, name: str) -> None:
    (task,) = documents(made({**ONE_NODE, "hw": hardware, "gpus": 1, "method": "lora"}, "skypilot"), "task.yaml")

    assert task["resources"]["accelerators"] == {name: 1}


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (launch(ONE_NODE, launcher="kubernetes", image=None), "no image is named; pods run one"),
        (made({**ONE_NODE, "hw": "gb300-288g", "gpus": 1}, "skypilot"), "SkyPilot has no name for gb300-288g"),
        (made(ONE_NODE, "skypilot", working_folder="/other"), "the script /srv/train.py lies outside of /other"),
        (made({"hw": "generic-80g", "model": "1b", "gpus": 1}, "kubernetes"), "a GPU of vendor generic has no name"),
    ],
)
def test_what_cannot_be_written_is_refused(one: JobLaunch, words: str) -> None:
    with pytest.raises(DsgenError, match=words):
        run_folder(one)


@pytest.mark.parametrize("name", ["My Run", "7b", "-", "a" * 90, "é", "x_y.z"])
def test_a_name_is_one_that_kubernetes_takes(name: str) -> None:
    one = made(ONE_NODE, "kubernetes", folder=f"/runs/{name}")
    named = documents(one, "jobset.yaml")[-1]["metadata"]["name"]

    assert named[0].isalpha()
    assert len(f"{named}-node-0-0-abcde") <= 63
    assert all(letter in "abcdefghijklmnopqrstuvwxyz0123456789-" for letter in named)
    assert not named.endswith("-")


SCALARS = st.one_of(
    st.text(max_size=30), st.integers(), st.booleans(), st.none(), st.just("a\n b\n\nc\n"), st.just("yes")
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(SCALARS, max_size=3), st.dictionaries(st.text(min_size=1, max_size=9), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(min_size=1, max_size=9), VALUES, min_size=1, max_size=4))
def test_yaml_is_read_back(value: dict[str, Any]) -> None:
    assert YAML(typ="safe").load(yaml_text(value)) == value


def test_yaml_of_lists_of_maps_is_read_back() -> None:
    value = {"a": [{"b": 1, "c": {"d": ["x", {"e": "on"}]}}, {"f": "two\nlines\n"}], "g": {}, "h": []}

    assert YAML(typ="safe").load(yaml_text(value)) == value


def test_an_accelerated_run_is_the_same_on_every_way() -> None:
    for launcher in ("kubernetes", "skypilot"):
        one = made(FOUR_NODES, launcher)
        script = next(
            file.text for file in run_folder(attrs.evolve(one, folder="/runs/b")).files if file.name == "rank.sh"
        )
        assert "/runs/b" not in script
