"""Repositories on the Hugging Face hub: every built-in model is found by the names people copy from there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dsgen import catalog
from dsgen.catalog import profile_index
from dsgen.shapes.errors import DsgenError

ENTRIES = [entry for entry in profile_index.entries().values() if entry["kind"] == "model"]
REPOSITORIES = [(entry["name"], name) for entry in ENTRIES for name, _ in entry["hub"]]

# Whose config.json differs from the profile's, and in what; each profile's source `hub` says where that was looked up.
DIFFERING: tuple[tuple[str, dict[str, int]], ...] = (
    ("Qwen/Qwen2.5-7B-Instruct", {"max_positions": 32768}),
    ("Qwen/Qwen2.5-Coder-7B-Instruct", {"max_positions": 32768}),
    ("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", {"tied_embeddings": False}),
    ("Qwen/Qwen2.5-Math-7B", {"max_positions": 4096}),
    ("codellama/CodeLlama-13b-hf", {"vocab_size": 32016, "max_positions": 16384}),
    ("Qwen/Qwen3-8B-Base", {"max_positions": 32768}),
    ("Qwen/Qwen3-30B-A3B-Instruct-2507", {"max_positions": 262144}),
    ("microsoft/Phi-3-mini-128k-instruct", {"max_positions": 131072, "sliding_window": 262144}),
    ("mistralai/Mistral-7B-Instruct-v0.2", {"sliding_window": 0}),
    ("mistralai/Mistral-7B-v0.3", {"vocab_size": 32768, "sliding_window": 0}),
    ("mistralai/Mixtral-8x22B-Instruct-v0.1", {"vocab_size": 32768}),
    ("mistralai/Mathstral-7B-v0.1", {"vocab_size": 32768}),
    ("microsoft/Phi-4-reasoning", {"max_positions": 32768}),
    ("codellama/CodeLlama-70b-hf", {"vocab_size": 32016, "max_positions": 16384}),
    ("Qwen/Qwen2-0.5B", {"max_positions": 131072}),
    ("Qwen/Qwen2.5-Math-1.5B-Instruct", {"max_positions": 4096}),
    ("Qwen/Qwen2.5-14B-Instruct-1M", {"max_positions": 1010000}),
    ("deepseek-ai/DeepSeek-R1-0528-Qwen3-8B", {"max_positions": 131072}),
    ("huggyllama/llama-7b", {"max_positions": 2048}),
    ("huggyllama/llama-13b", {"max_positions": 2048}),
    ("teknium/OpenHermes-2.5-Mistral-7B", {"vocab_size": 32002}),
    ("mistralai/Magistral-Small-2506", {"max_positions": 40960}),
    ("mistralai/Devstral-Small-2507", {"max_positions": 131072}),
    ("ibm-granite/granite-3.0-8b-instruct", {"max_positions": 4096}),
    ("Qwen/Qwen1.5-MoE-A2.7B-Chat", {"max_positions": 32768}),
    ("HuggingFaceTB/SmolLM-360M", {"max_positions": 2048}),
    ("openlm-research/open_llama_13b", {"max_positions": 2048}),
)


def facts(name: str) -> dict[str, object]:
    return {item.path.removeprefix("model."): item.value for item in catalog.find("model", name).layer.overrides}


def test_every_model_whose_facts_come_from_the_hub_names_its_repositories() -> None:
    from_the_hub = {entry["name"] for entry in ENTRIES if "huggingface.co" in entry["sources"]["default"]}

    assert from_the_hub == {name for name, _ in REPOSITORIES}
    for entry in ENTRIES:
        address = entry["sources"]["default"]
        assert not entry["hub"] or entry["hub"][0][0] in address, address


@pytest.mark.parametrize(("profile", "repository"), REPOSITORIES)
def test_a_repository_is_found_in_any_case_and_without_its_organisation(profile: str, repository: str) -> None:
    for name in (repository, repository.lower(), repository.upper(), repository.rpartition("/")[2]):
        assert catalog.find("model", name).name == profile
    assert catalog.find("model", f"https://huggingface.co/{repository}/").name == profile


@pytest.mark.parametrize(("repository", "own"), DIFFERING)
def test_a_repository_that_differs_has_its_own_facts_and_source(repository: str, own: dict[str, int]) -> None:
    found = catalog.find("model", repository)

    assert facts(repository) == {**facts(found.name), **own}
    for fact, value in own.items():
        assert facts(found.name)[fact] != value
        assert found.source_of(fact) == f"https://huggingface.co/{repository}/blob/main/config.json"


def test_every_list_of_repositories_says_where_they_were_looked_up() -> None:
    for entry in ENTRIES:
        assert not entry["hub"] or entry["sources"]["hub"], entry["name"]


def test_no_repository_means_two_profiles() -> None:
    names = [name.casefold() for _, repository in REPOSITORIES for name in (repository, repository.rpartition("/")[2])]

    assert sorted(names) == sorted(set(names))


def test_an_unknown_repository_names_the_nearest_and_asks_for_its_config() -> None:
    with pytest.raises(DsgenError) as error:
        catalog.find("model", "Qwen/Qwen2.5-7B-Zork")

    assert "did you mean qwen2.5-7b" in str(error.value)
    assert "config.json" in str(error.value)


@pytest.mark.parametrize(
    ("name", "offered"),
    [
        ("llama-8b", "did you mean llama-3.1-8b or llama-3-8b"),
        ("qwen-7b", "did you mean qwen2.5-7b or qwen1.5-7b"),
        ("gemma-9b", "did you mean gemma-2-9b"),
        ("mistral", "did you mean mistral-7b"),
    ],
)
def test_a_name_without_its_number_means_the_newest_of_that_size(name: str, offered: str) -> None:
    with pytest.raises(DsgenError) as error:
        catalog.find("model", name)

    assert offered in str(error.value)


@pytest.mark.parametrize(
    ("folder", "told"),
    [
        ("/data/models/Meta-Llama-3.1-8B-Instruct", "--model llama-3.1-8b is the model of that name."),
        ("/hub/models--Qwen--Qwen2.5-7B-Instruct/snapshots/a09a354", "--model qwen2.5-7b is the model of that name."),
        ("./checkpoints/mine", "--model says which known model has its shape"),
    ],
)
def test_a_folder_that_is_not_here_is_told_what_stands_for_it(folder: str, told: str) -> None:
    """A file of arguments from a cluster names the folder there."""
    with pytest.raises(DsgenError) as error:
        catalog.find("model", folder)

    assert f"there is no {folder} on this machine" in str(error.value)
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("name", "profile"),
    [
        ("Qwen/Qwen2-1.5B", "qwen2.5-1.5b"),
        ("Qwen/Qwen2-72B", "qwen2.5-72b"),
        ("NousResearch/Hermes-3-Llama-3.1-8B", "llama-3.1-8b"),
        ("NousResearch/Hermes-3-Llama-3.2-3B", "llama-3.2-3b"),
        ("nvidia/Llama-3.1-Nemotron-70B-Instruct-HF", "llama-3.1-70b"),
        ("mistralai/Codestral-22B-v0.1", "mistral-small-22b"),
        ("deepseek-ai/deepseek-math-7b-base", "deepseek-llm-7b"),
        ("deepseek-ai/DeepSeek-Coder-V2-Lite-Instruct", "deepseek-v2-lite"),
        ("ibm-granite/granite-3.2-8b-instruct", "granite-3.1-8b"),
        ("allenai/OLMoE-1B-7B-0125", "olmoe-1b-7b"),
        ("EleutherAI/pythia-160m-deduped", "pythia-160m"),
    ],
)
def test_a_repository_of_another_s_shape_is_that_model_to_the_last_fact(name: str, profile: str) -> None:
    assert facts(name) == facts(profile)


@pytest.mark.parametrize(
    ("name", "profile"),
    [
        ("granite-3.3-8b", "granite-3.3-8b"),
        ("granite-3.2-2b", "granite-3.1-2b"),
        ("codestral-22b", "mistral-small-22b"),
        ("ministral-8b", "ministral-8b"),
        ("mistral-large", "mistral-large-123b"),
        ("qwen2-1.5b", "qwen2.5-1.5b"),
        ("qwen-1.5-14b", "qwen1.5-14b"),
        ("deepseek-math-7b", "deepseek-llm-7b"),
        ("deepseek-coder-v2-lite", "deepseek-v2-lite"),
        ("falcon-3-10b", "falcon3-10b"),
        ("llama-33b", "llama-30b"),
        ("phi-1_5", "phi-1.5"),
        ("solar", "solar-10.7b"),
        ("olmoe", "olmoe-1b-7b"),
        ("smollm-1.7b", "smollm2-1.7b"),
        ("glm4.5-air", "glm-4.5-air"),
        ("stablelm-2-1_6b", "stablelm-2-1.6b"),
        ("codeqwen", "codeqwen1.5-7b"),
        ("THUDM/GLM-4-9B-0414", "glm-4-9b-0414"),
    ],
)
def test_a_model_is_found_by_what_people_call_it(name: str, profile: str) -> None:
    assert catalog.find("model", name).name == profile


@pytest.mark.parametrize(
    ("name", "offered"),
    [
        ("ibm-granite/granite-3.3-8b-base", "granite-3.3-8b or"),
        ("starcoder2", "starcoder2-3b or starcoder2-7b or starcoder2-15b"),
        ("ministral", "ministral-8b or"),
        ("devstral-small", "mistral-small-24b"),
        ("deepseek-coder-5.7b", "deepseek-coder-6.7b or"),
        ("falcon3-1b", "falcon3-10b or falcon3-7b or falcon3-3b"),
        ("pythia-12", "pythia-12b"),
    ],
)
def test_a_size_or_a_base_that_is_not_known_offers_its_kin(name: str, offered: str) -> None:
    with pytest.raises(DsgenError, match=f"did you mean (?s:.)*{offered}"):
        catalog.find("model", name)


@pytest.mark.parametrize(("name", "told"), [("command-r", True), ("internlm2.5-7b", True), ("lama-2-7b", False)])
def test_a_name_that_is_no_near_miss_is_told_of_config_json(name: str, told: bool) -> None:
    with pytest.raises(DsgenError) as error:
        catalog.find("model", name)

    assert ("give the path of that" in str(error.value)) is told


def test_an_own_profile_names_repositories_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "kind: model\nextends: qwen2.5-7b\nhub:\n  - Us/Ours-7B\n  - {name: Us/Ours-7B-Long, max_positions: 9}\n"
    (tmp_path / "ours.yaml").write_text(text)
    monkeypatch.setenv("DSGEN_PROFILE_PATH", str(tmp_path))

    assert catalog.find("model", "us/ours-7b").name == "ours"
    winners = {item.path: item.value for item in catalog.find("model", "Ours-7B-Long").layer.overrides}
    assert winners["model.max_positions"] == 9


@pytest.mark.parametrize(
    ("kind", "hub", "said"),
    [
        ("model", "Qwen/Qwen2.5-7B", "it must be a list of repositories"),
        ("model", "[{max_positions: 9}]", "it must be a list of repositories"),
        ("hardware", "[Us/Ours]", "only a model has repositories"),
    ],
)
def test_a_list_of_repositories_that_is_none(kind: str, hub: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(f"kind: {kind}\nextends: {'7b' if kind == 'model' else 'a100-40g'}\nhub: {hub}\n")

    with pytest.raises(DsgenError, match=said):
        catalog.find(kind, str(file))


def test_the_index_holds_names_as_the_hub_writes_them() -> None:
    text = (profile_index.data_root() / "profiles" / "index.json").read_text("utf-8")

    assert json.dumps("Qwen/Qwen2.5-7B-Instruct") in text


@pytest.mark.parametrize(
    ("mirror", "name"),
    [
        ("unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit", "llama-3.1-8b"),
        ("unsloth/Qwen3-14B-unsloth-bnb-4bit", "qwen3-14b"),
        ("unsloth/llama-3-8b-bnb-4bit", "llama-3-8b"),
        ("NousResearch/Llama-2-7b-hf", "llama-2-7b"),
        ("unsloth/Mistral-Nemo-Base-2407-bnb-4bit", "mistral-nemo-12b"),
        ("unsloth/Mistral-Small-24B-Instruct-2501-unsloth-bnb-4bit", "mistral-small-24b"),
        ("unsloth/tinyllama-bnb-4bit", "tinyllama-1.1b"),
        ("unsloth/Magistral-Small-2506-unsloth-bnb-4bit", "mistral-small-24b"),
        ("unsloth/granite-3.2-8b-instruct-bnb-4bit", "granite-3.1-8b"),
    ],
)
def test_a_repository_that_holds_another_s_weights_again_is_that_model(mirror: str, name: str) -> None:
    assert catalog.find("model", mirror).name == name
    assert catalog.profile(mirror).name == name


def test_a_mirror_has_the_facts_of_the_very_repository() -> None:
    assert facts("unsloth/mistral-7b-v0.3-bnb-4bit") == facts("mistralai/Mistral-7B-v0.3")


@pytest.mark.parametrize("name", ["unsloth/phi-4", "unsloth/", "somebody/Qwen3-14B-mine"])
def test_what_is_stored_otherwise_or_by_others_is_not_guessed(name: str) -> None:
    with pytest.raises(DsgenError, match="no model profile named"):
        catalog.find("model", name)
