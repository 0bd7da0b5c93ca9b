"""Profiles by name, alias and path: the built-in ones, a person's own, and what they extend."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest
from profile_files import error_of, value, write

from dsgen import catalog
from dsgen.catalog import profile_index
from dsgen.shapes.errors import DsgenError
from dsgen.shapes.layers import Rank

LLAMA = {
    "model_type": "llama",
    "hidden_size": 1024,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "intermediate_size": 2816,
    "vocab_size": 32000,
}


def certain(profile: catalog.Profile) -> catalog.Profile:
    """One whose name may mean more says so, by the name that it was given, and is the same."""
    return attrs.evolve(profile, layer=profile.layer._replace(doubt=""))


@pytest.mark.parametrize("kind", catalog.KINDS)
def test_every_built_in_profile_is_found_by_name_and_alias(kind: str) -> None:
    names = catalog.names(kind)

    assert names
    for name in names:
        found = catalog.find(kind, name)
        assert (found.name, found.kind) == (name, kind)
        for alias in found.aliases:
            assert certain(catalog.find(kind, alias)) == certain(found)
        assert certain(catalog.find(kind, name.upper())) == certain(found)


def test_names_are_unique_among_all_kinds() -> None:
    said = [
        name
        for kind in catalog.KINDS
        for profile in map(lambda n, k=kind: catalog.find(k, n), catalog.names(kind))
        for name in {profile.name, *profile.aliases}
    ]

    assert sorted(said) == sorted(set(said))


def test_the_index_is_what_the_files_say() -> None:
    committed = Path(profile_index.data_root() / "profiles" / "index.json").read_text("utf-8")

    assert committed == profile_index.index_text()


def test_whole_profiles_are_those_that_extend_no_other() -> None:
    extending = set(catalog.names("model")) - set(catalog.names("model", whole=True))

    assert {"mistral-nemo-12b", "yi-34b"} <= extending
    assert all(catalog.find("model", name).extends for name in extending)
    assert not any(catalog.find("model", name).extends for name in catalog.names("model", whole=True))


def test_names_are_sorted_by_size() -> None:
    names = catalog.names("model")

    assert names.index("125m") < names.index("1b") < names.index("7b") < names.index("13b") < names.index("1t")


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        (
            "hardware",
            "a100-40",
            "no hardware profile named 'a100-40'\n"
            "  did you mean a100-40g or a100-40g-pcie or a800-40g?  (dsgen profiles list hardware)",
        ),
        (
            "hardware",
            "a10040g",
            "no hardware profile named 'a10040g'\n"
            "  did you mean a100-40g or a800-40g or a100-80g?  (dsgen profiles list hardware)",
        ),
        (
            "hardware",
            "qwerty-zzz",
            "no hardware profile named 'qwerty-zzz'\n  dsgen profiles list hardware shows all of them",
        ),
        (
            "hardware",
            "7b",
            "no hardware profile named '7b'; it names a model profile\n"
            "  dsgen profiles list hardware shows all of them",
        ),
        ("hardware", "", "no hardware profile named ''\n  dsgen profiles list hardware shows all of them"),
        (
            "model",
            "llama-2",
            "no model profile named 'llama-2'\n"
            "  did you mean llama-2-7b or llama-2-13b or llama-2-70b?  (dsgen profiles list model)",
        ),
        (
            "network",
            "ib-ndr-40g",
            "no network profile named 'ib-ndr-40g'\n"
            "  did you mean ib-ndr-400g or ib-xdr-6400g or ib-ndr-3200g?  (dsgen profiles list network)",
        ),
    ],
)
def test_a_near_miss_suggests(kind: str, name: str, message: str) -> None:
    assert error_of(kind, name) == message


@pytest.mark.parametrize("name", ["x" * 100_000, "a\0b", "\udcff", "./" + "y" * 5000, "~nobody-here/x", "../.."])
def test_no_name_is_too_strange_for_a_message(name: str) -> None:
    message = error_of("hardware", name)

    assert len(message) < 800


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "kind: hardwear\n",
            "{file}:1: kind is hardwear; it must be one of hardware, model, network, training\n"
            "  did you mean hardware?",
        ),
        ("kind: model\nextends: 7b\n", "{file}: it is a model profile; a hardware profile is needed here"),
        (
            "kind: hardware\n",
            "{file}: it says nothing; a profile holds facts, such as hardware:\n"
            "  dsgen profiles new hardware NAME writes a template.",
        ),
        ("kind: hardware\nname: 3\n", '{file}:2: name is 3; it must be text\n  Write name: "3".'),
        ("kind: hardware\nname: [a]\n", "{file}:2: name is [a]; it must be text"),
        ("kind: hardware\naliases: a\n", "{file}:2: aliases is a; it must be a list of names"),
        ("kind: hardware\nsource: 3\n", "{file}:2: source is 3; a source is text: a document and its address"),
        (
            "kind: hardware\nnam: x\n",
            "{file}:2: unknown key nam; a profile's header has name, kind, title, aliases, extends, hub, "
            "source, measurements\n  did you mean name?",
        ),
        (
            "kind: hardware\ngpus_per_nod: 4\n",
            "{file}:2: unknown key gpus_per_nod; a profile's header has name, kind, title, aliases, extends, hub, "
            "source, measurements\n  did you mean hardware.gpus_per_node?",
        ),
        (
            "kind: hardware\nextends: a100-40\n",
            "{file}: no hardware profile named 'a100-40'\n"
            "  did you mean a100-40g or a100-40g-pcie or a800-40g?  (dsgen profiles list hardware)",
        ),
        (
            "kind: hardware\nextends: ./no.yaml\n",
            "{folder}/no.yaml: no such file\n  Check the path; `dsgen profiles list` shows the built-in names.",
        ),
    ],
)
def test_a_broken_profile_says_where_and_what(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path / "x.yaml", text)

    assert error_of("hardware", str(path)) == message.format(file=path, folder=tmp_path)


def test_a_profile_without_a_kind_takes_the_one_that_is_needed(tmp_path: Path) -> None:
    path = write(tmp_path / "x.yaml", "extends: a100-40g\n")

    assert catalog.find("hardware", str(path)).kind == "hardware"
    with pytest.raises(DsgenError, match=r"it names no kind; it must be one of hardware, model, network, training"):
        catalog.profile(str(path))


@pytest.mark.parametrize("as_folder", [False, True])
def test_a_model_is_read_from_a_hugging_face_config(tmp_path: Path, as_folder: bool) -> None:
    path = write(tmp_path / "tiny" / "config.json", json.dumps({**LLAMA, "a.b": 1, "a": 2, "id2label": {"0.": "x"}}))

    found = catalog.find("model", str(path.parent if as_folder else path))

    assert (found.name, found.kind, found.layer.rank) == ("tiny", "model", Rank.MODEL)
    assert (value(found, "model.layers"), found.source_of("layers")) == (2, str(path))
    assert catalog.profile(str(path)) == found


def test_a_model_profile_extends_a_hugging_face_config(tmp_path: Path) -> None:
    write(tmp_path / "config.json", json.dumps(LLAMA))
    path = write(tmp_path / "mine.yaml", "kind: model\nextends: ./config.json\nmodel: {max_positions: 1024}\n")

    assert value(catalog.find("model", str(path)), "model.hidden_size") == 1024


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"model_type": "llama", "hidden_size": 1', ":1:41: not JSON: Expecting ',' delimiter"),
        ("", ": it is empty; it must hold a model's config"),
        ("[]", ": the top level is a list; a model's config is a map"),
        ("null", ": the top level is null; a model's config is a map"),
        (
            "{}",
            ": no model_type; a model's config.json has one\n"
            "  Give the config.json that lies beside the model's weights.",
        ),
        ('{"a": 1, "a": 2}', ": a is given twice in one map; a key stands once"),
        ('{"a": ' * 100_000, ": it nests too deep; a config is a few levels deep"),
        ('{"a": ' + "9" * 5000 + "}", ": a number in it is too long; at most 4,300 digits are read"),
        (
            json.dumps({**LLAMA, "num_hidden_layers": -2}),
            ": num_hidden_layers is -2; it must be a whole number of at least 1",
        ),
        (
            json.dumps({**LLAMA, "num_hidden_layers": 1.5}),
            ": num_hidden_layers is 1.5; it must be a whole number of at least 1",
        ),
    ],
)
def test_a_broken_hugging_face_config_says_where_and_what(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path / "config.json", text)

    assert error_of("model", str(path)) == f"{path}{message}"


def test_an_override_file_is_a_layer_of_the_site(tmp_path: Path) -> None:
    path = write(tmp_path / "site.yaml", "zero_optimization:\n  stage: 2  # our rule\ntraining: {seq_len: null}\n")

    layer = catalog.override_layer(str(path))

    assert [(o.path, o.value, str(o.origin), o.rank, o.reason) for o in layer.overrides] == [
        ("zero_optimization.stage", 2, f"{path}:2", Rank.SITE, "our rule"),
        ("training.seq_len", None, f"{path}:3", Rank.SITE, None),
    ]
    with pytest.raises(DsgenError, match="-f names no file; it must name a YAML file"):
        catalog.override_layer("")


def test_a_profile_edited_after_compiling_is_read_from_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = profile_index.data_root() / "profiles"
    for part in ("hardware/t4-16g.yaml", "index.json"):
        write(tmp_path / "profiles" / part, (real / part).read_text("utf-8"))
    edited = tmp_path / "profiles" / "hardware" / "t4-16g.yaml"
    edited.write_text(edited.read_text().replace("\n  cpu_cores: 24", "\n  cpu_cores: 3"))
    write(tmp_path / "profiles" / "hardware" / "new.yaml", "kind: hardware\nextends: t4-16g\n")
    monkeypatch.setattr(profile_index, "data_root", lambda: tmp_path)
    monkeypatch.setattr(profile_index, "_fresh_bytes", lambda file: (tmp_path / file).read_bytes())

    assert value(catalog.find("hardware", "t4-16g"), "hardware.cpu_cores") == 3
    assert value(catalog.find("hardware", "new"), "hardware.cpu_cores") == 3


@pytest.mark.parametrize("kind", ["hardware", "model", "network"])
def test_every_fact_in_force_has_a_source(kind: str) -> None:
    """A child that changes a fact says where the new one is from; its parent's source is no longer true."""
    for name in catalog.names(kind):
        found = catalog.find(kind, name)
        for override in found.layer.overrides:
            section, _, fact = override.path.partition(".")
            assert section != kind or found.source_of(fact), f"{found.file}: {override.path}"


@pytest.mark.parametrize(
    ("called", "name"),
    [
        ("NVIDIA GeForce RTX 3090", "rtx3090-24g"),  # as nvidia-smi has it
        ("NVIDIA H100 80GB HBM3", "h100-80g"),
        ("NVIDIA A100-SXM4-80GB", "a100-80g"),
        ("RTX A6000", "rtxa6000-48g"),
        ("H100 80GB", "h100-80g"),
        ("Tesla T4", "t4-16g"),
        ("AMD Instinct MI300X", "mi300x-192g"),
        ("NVIDIA GeForce RTX 3060", "rtx3060-12g"),
        ("RTX 3060", "rtx3060-12g"),
        ("rtx-3060", "rtx3060-12g"),
        ("3060", "rtx3060-12g"),
        ("RTX 3060 12 GB", "rtx3060-12g"),
        ("GeForce RTX 3060 12GB", "rtx3060-12g"),
        ("rtx3060_12gb", "rtx3060-12g"),
        ("2080 Ti", "rtx2080ti-11g"),
        ("GeForce RTX 2080 Ti", "rtx2080ti-11g"),  # as drivers before 470 have it
        ("RTX 3080", "rtx3080-10g"),
        ("RTX 4060 Ti 16GB", "rtx4060ti-16g"),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", "rtx4070tisuper-16g"),
        ("4070 Ti Super", "rtx4070tisuper-16g"),
        ("RTX 4080", "rtx4080-16g"),
        ("5070ti", "rtx5070ti-16g"),
        ("rtx 5080", "rtx5080-16g"),
        ("NVIDIA RTX 4000 Ada Generation", "rtx4000ada-20g"),
        ("RTX 4000 Ada", "rtx4000ada-20g"),
        ("A4000", "rtxa4000-16g"),
        ("RTX A5000 24GB", "rtxa5000-24g"),
        ("RTX 3090 24GB", "rtx3090-24g"),
        ("rtx4070 ti super", "rtx4070tisuper-16g"),
        ("A100 40 GB", "a100-40g"),
        ("NVIDIA V100 32 GB", "v100-32g"),
        ("H100 PCIe 80GB", "h100-80g-pcie"),
    ],
)
def test_a_card_is_known_by_the_name_that_its_driver_or_a_shop_gives_it(called: str, name: str) -> None:
    assert catalog.find("hardware", called).name == name
    assert catalog.profile(called).name == name


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("8xH100", "Say --hw h100-80g --gpus 8."),
        ("4 x A6000", "Say --hw rtxa6000-48g --gpus 4."),
        ("2x4090", "Say --hw rtx4090-24g --gpus 2."),
        ("4090x2", "Say --hw rtx4090-24g --gpus 2."),
        ("H100x8", "Say --hw h100-80g --gpus 8."),
        ("8xA100", "How many there are: --gpus 8."),
    ],
)
def test_a_number_before_a_card_is_said_to_be_an_option(said: str, told: str) -> None:
    assert told in error_of("hardware", said)


@pytest.mark.parametrize(
    "card",
    [
        "RTX 2080",
        "rtx 3070",
        "GTX 1080 Ti",
        "RTX4070",
        "RTX 3060 Ti",
        "3060 8GB",
        "RTX 3080 12GB",
        "RTX 4080 SUPER",
        "RTX 4090 D",
        "RTX 4000 SFF Ada",
        "NVIDIA GeForce RTX 3080 Laptop GPU",
    ],
)
def test_the_number_of_a_card_counts_no_cards_and_its_memory_stands_for_it(card: str) -> None:
    said = error_of("hardware", card)

    assert "--gpus" not in said
    memory = {"3060 8GB": 8, "RTX 3080 12GB": 12}.get(card, 16)
    assert f"such as --gpu-memory {memory}GiB" in said


@pytest.mark.parametrize("name", ["nvidia", " ", "-", "8x", "NVIDIA"])
def test_words_that_name_no_card_are_no_card(name: str) -> None:
    assert "no hardware profile named" in error_of("hardware", name)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("RTX 3070", "such as --gpu-memory 16GiB.\n  did you mean rtx3060-12g or rtx3080-10g or rtx3090-24g?"),
        ("RTX 4090 D", "Say its memory in the place of --hw, such as --gpu-memory 16GiB.\n  did you mean rtx4090-24g?"),
        ("3070", "such as --gpu-memory 16GiB.\n  dsgen profiles list hardware shows those"),
        ("RTX 4060 Ti 8GB", "such as --gpu-memory 8GiB.\n"),
        ("RTX 3080 12 GB", "such as --gpu-memory 12GiB.\n"),
        ("m3-max", "Apple's GPUs are not among them"),
        ("MacBook Pro", "Apple's GPUs are not among them"),
        ("mi300", "did you mean mi300a-128g or mi300x-192g?"),
    ],
)
def test_a_card_that_is_not_known_is_answered_with_what_helps(name: str, says: str) -> None:
    with pytest.raises(DsgenError) as error:
        catalog.find("hardware", name)

    assert says in str(error.value.todo)
