"""The certificate of a proof: what it says, when it holds, and what is no certificate."""

from __future__ import annotations

import hashlib
import json
import platform
import stat
from importlib import metadata
from pathlib import Path
from typing import Any

import attrs
import cattrs
import pytest

from dsgen.proving import certificates, prover
from dsgen.proving.certificates import Certificate, Claims, Deviation, certify
from dsgen.proving.proven_models import CHECKPOINTING, Lora, ProvenModel
from dsgen.report import certificate as report
from dsgen.shapes.errors import DsgenError

CONFIG: dict[str, Any] = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}}
VERSIONS = {"deepspeed": "0.19.8", "torch": "2.13.0+cpu", "transformers": "5.23.0", "python": "3.11.14"}

ADDED = {"card", "factory", "source_sha256"}  # by a later dsgen, to the same schema version


def proof(**changes: Any) -> prover.Proof:
    """A proof that was proved."""
    fields: dict[str, Any] = {
        "outcome": prover.PROVED, "phase": "checkpoint", "error": None, "site": None, "todo": None,
        "adaptations": (prover.Adaptation("train_batch_size", 256, 16, "smaller"),),
        "checks": (prover.Check("ZeRO stage", 2, 2, True), prover.Check("losses", "finite", [5.5, 5.4], True)),
        "notes": ("built it",), "losses": (5.5, 5.4), "ranks": 2, "device": "cpu", "seconds": 1.25,
        "config_sha256": prover.config_hash(CONFIG), "model_sha256": ProvenModel().sha256,
        "versions": VERSIONS, "phase_seconds": {"load": 0.5, "initialize": 1.0},
    }  # fmt: skip
    return prover.Proof(**{**fields, **changes})


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A certificate on disk."""
    path = tmp_path / "proof.json"
    certify(proof()).write(str(path))
    return path


def here(**changes: str | None) -> dict[str, str | None]:
    """What is installed: the same as was proven with, but for some."""
    return {**VERSIONS, "dsgen": certify(proof()).versions["dsgen"], **changes}


def test_it_comes_back_as_it_was_written(written: Path) -> None:
    record = certificates.read(str(written))

    assert record.checks == proof().checks
    assert record.adaptations == proof().adaptations
    assert record.losses == proof().losses
    assert record.versions["deepspeed"] == "0.19.8"
    assert record.to_json() == written.read_text("utf-8")


def test_cattrs_reads_it(written: Path) -> None:
    """Whoever has cattrs needs no reader of ours."""
    record = json.loads(written.read_text("utf-8"))
    converter = cattrs.Converter()
    converter.register_structure_hook_func(lambda kind: kind is object, lambda value, _: value)

    assert converter.structure(record, Certificate) == certificates.read(str(written))


def test_it_is_what_the_schema_says(written: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    root = Path(__file__).resolve().parents[2]
    schema = json.loads((root / "schema" / "proof.schema.json").read_text("utf-8"))
    record = json.loads(written.read_text("utf-8"))

    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(record, schema)
    assert set(schema["properties"]) == {item.name for item in attrs.fields(Certificate)}
    assert set(schema["required"]) == set(schema["properties"]) - ADDED  # older ones lack them
    jsonschema.validate({name: value for name, value in record.items() if name not in ADDED}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**record, "ranks": 0}, schema)


@pytest.mark.parametrize(
    ("config", "changes", "holds", "words"),
    [
        (CONFIG, {}, True, "holds: the same config, the same versions"),
        (dict(reversed(CONFIG.items())), {}, True, "holds"),  # the order of keys is no difference
        (CONFIG, {"deepspeed": "0.19.9"}, False, "deepspeed is 0.19.9 here, 0.19.8 was proven"),
        (CONFIG, {"torch": None}, False, "torch is not installed here, 2.13.0+cpu was proven"),
        (CONFIG, {"torch": "2.13.0+cu128"}, True, "not counted: torch is 2.13.0+cu128 here"),
        (CONFIG, {"python": "3.11.2"}, True, "not counted: python is 3.11.2 here"),
        (CONFIG, {"python": "3.12.14"}, False, "python is 3.12.14 here"),
        (CONFIG, {"dsgen": "9.9"}, True, "not counted: dsgen is 9.9 here"),
        ({**CONFIG, "gradient_clipping": 1.0}, {}, False, "the config is another: its hash is"),
    ],
)
def test_whether_it_holds(config: dict[str, Any], changes: Any, holds: bool, words: str) -> None:
    answer = certify(proof()).verify(config, installed=here(**changes))

    shown = report.text(answer)
    assert answer.holds is holds
    assert words in " ".join(shown.split())
    dsgen = certify(proof()).versions["dsgen"]
    assert (
        "for deepspeed 0.19.8, torch 2.13.0+cpu, transformers 5.23.0, python 3.11.14, "
        f"dsgen {dsgen} with a tiny Llama on 2 CPU ranks, as deepspeed hands it over"
    ) in " ".join(shown.split())  # what it holds for, whatever is installed here
    assert answer.to_dict()["proven"]["versions"] == {**VERSIONS, "dsgen": dsgen}
    assert max(map(len, shown.splitlines())) <= 80
    assert answer.to_dict()["holds"] is holds


def test_versions_are_those_of_this_interpreter_unless_others_are_said(written: Path) -> None:
    """What is installed is asked for: a DeepSpeed that is none of ours is said as it is."""
    record = certify(proof(versions={"deepspeed": "0.0.1", "python": platform.python_version()}))

    said = record.verify(CONFIG)

    (item,) = said.differences
    try:
        here: str | None = metadata.version("deepspeed")
    except metadata.PackageNotFoundError:
        here = None
    assert item == Deviation("deepspeed", "0.0.1", here)
    now = "is not installed here" if here is None else f"is {here} here"
    assert f"deepspeed {now}, 0.0.1 was proven" in " ".join(report.text(said).split())


def test_a_certificate_of_a_gpu_names_its_card() -> None:
    record = certify(proof(device="cuda", ranks=1, card="NVIDIA H100 80GB HBM3"))

    answer = record.verify(CONFIG, installed=here())

    assert answer.holds
    assert "on 1 GPU rank (NVIDIA H100 80GB HBM3)," in " ".join(report.text(answer).split())
    assert answer.to_dict()["proven"]["card"] == record.card == "NVIDIA H100 80GB HBM3"
    assert certify(proof()).card == ""


def test_a_certificate_of_an_older_dsgen_stays_readable(written: Path) -> None:
    """As it was written before cards and sources were recorded, digest and all."""
    older = {name: value for name, value in json.loads(written.read_text("utf-8")).items() if name not in ADDED}
    older["digest"] = certificates._digest(older)
    written.write_text(json.dumps(older, indent=2), encoding="utf-8")

    record = certificates.read(str(written))

    assert (record.card, record.factory, record.source_sha256) == ("", "", "")
    assert record.verify(CONFIG, installed=here()).holds


LORA = ProvenModel(adapters=Lora(method="lora", rank=16))


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (Claims(), ""),
        (Claims(target="deepspeed", trained=ProvenModel(), ranks=2, device="cpu", steps=1), ""),
        (Claims(device="auto"), ""),
        (Claims(target="accelerate"), "target: accelerate is said, deepspeed was proven"),
        (Claims(trained=LORA), "model: LoRA adapters on a tiny Llama is said, a tiny Llama was proven"),
        (Claims(ranks=4), "ranks: 4 is said, 2 was proven"),
        (Claims(device="cuda"), "device: cuda is said, cpu was proven"),
        (Claims(steps=3), "steps: 3 is said, 1 was proven"),
    ],
)
def test_what_is_said_beside_the_config_is_compared(said: Claims, words: str) -> None:
    answer = certify(proof()).verify(CONFIG, installed=here(), said=said)

    assert answer.holds is (words == "")
    assert words in " ".join(report.text(answer).split())


def test_adapters_of_another_rank_are_another_model() -> None:
    record = certify(proof(model=LORA.title, model_sha256=LORA.sha256))
    other = attrs.evolve(LORA, adapters=Lora(method="lora", rank=8))

    assert record.verify(CONFIG, installed=here(), said=Claims(trained=LORA)).holds
    (item,) = record.verify(CONFIG, installed=here(), said=Claims(trained=other)).differences
    assert item.name == "model"
    assert item.now != item.proven


def test_how_activations_are_checkpointed_is_part_of_what_was_proven() -> None:
    """A claim that does not say it, as one beside a config's file, is none of it; another kind is another proof."""
    kinds = {kind: attrs.evolve(LORA, checkpointing=kind) for kind in CHECKPOINTING}
    record = certify(proof(model=kinds["reentrant"].title, model_sha256=kinds["reentrant"].sha256))
    plain = certify(proof(model=LORA.title, model_sha256=LORA.sha256))

    assert len({model.sha256 for model in kinds.values()}) == len({model.title for model in kinds.values()}) == 3
    holds = {kind: record.verify(CONFIG, installed=here(), said=Claims(trained=kinds[kind])).holds for kind in kinds}
    assert holds == {"": True, "non-reentrant": False, "reentrant": True}
    assert not plain.verify(CONFIG, installed=here(), said=Claims(trained=kinds["reentrant"])).holds


def test_a_model_without_checkpointing_has_the_hash_that_it_had() -> None:
    """Certificates and proofs that are kept stay."""
    assert ProvenModel().sha256 == hashlib.sha256(b'{"adapters": null, "config": null, "factory": null}').hexdigest()


def test_other_arguments_of_the_program_are_a_difference() -> None:
    """A learning rate that it filled in; a bucket that follows from the model is none."""
    filled = {"optimizer.params.lr": 1e-4, "zero_optimization.reduce_bucket_size": 4096}
    record = certify(proof(filled=filled, target="hf-trainer"))

    same = record.verify(CONFIG, {**filled, "zero_optimization.reduce_bucket_size": 1}, here())
    other = record.verify(CONFIG, {**filled, "optimizer.params.lr": 2e-4}, here())

    assert same.holds
    assert [item.name for item in other.differences] == ["optimizer.params.lr"]


@pytest.mark.parametrize(
    ("old", "new"),
    [('"ranks": 2', '"ranks": 8'), ('"ok": true', '"ok": false'), ('"5.23.0"', '"5.24.0"'), ("5.5", "1.5")],
)
def test_an_edit_by_hand_is_noticed(written: Path, old: str, new: str) -> None:
    text = written.read_text("utf-8")
    assert old in text
    written.write_text(text.replace(old, new, 1), encoding="utf-8")

    with pytest.raises(DsgenError, match="it was changed after it was written") as caught:
        certificates.read(str(written))
    assert str(written) in str(caught.value)


def test_another_layout_is_no_edit(written: Path) -> None:
    """A formatter, or a tool that sorts keys, changes nothing that was said."""
    record = json.loads(written.read_text("utf-8"))
    written.write_text(json.dumps(dict(sorted(record.items()))), encoding="utf-8")

    assert certificates.read(str(written)).outcome == "proved"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it is no JSON"),
        ('{"format": "dsgen-proof"', "it is no JSON"),
        ("[" * 100_000, "it is no JSON"),
        ("[]", "it is no certificate"),
        ("{}", "it is no certificate"),
        ('{"train_batch_size": 8}', "it is no certificate"),
        ('{"format": "dsgen-proof", "schema_version": 7}', "its schema_version is 7; this dsgen reads 1"),
        ('{"format": "dsgen-proof", "schema_version": 1}', "it was changed"),
        ('{"format": "dsgen-proof", "schema_version": 1, "digest": 5}', "it was changed"),
    ],
)
def test_what_is_no_certificate(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "proof.json"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(DsgenError, match=words):
        certificates.read(str(path))


def test_a_file_that_is_not_there_and_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(DsgenError, match="it cannot be read"):
            certificates.read(str(path))


def test_a_digest_of_nonsense_is_refused_too(tmp_path: Path) -> None:
    """Whoever computes the digest himself still has no certificate of another shape."""
    record = {"format": certificates.FORMAT, "schema_version": 1, "checks": 5}
    path = tmp_path / "proof.json"
    path.write_text(json.dumps({**record, "digest": certificates._digest(record)}), encoding="utf-8")

    with pytest.raises(DsgenError, match="it lacks what a certificate has"):
        certificates.read(str(path))


def test_one_that_is_there_stays(written: Path) -> None:
    before = written.read_bytes()
    with pytest.raises(DsgenError, match="it is there already"):
        certify(proof(losses=(1.0,))).write(str(written))
    assert written.read_bytes() == before

    certify(proof(losses=(1.0,))).write(str(written), force=True)
    assert certificates.read(str(written)).losses == (1.0,)
    assert [path.name for path in written.parent.iterdir()] == [written.name]
    assert stat.S_ISREG(written.stat().st_mode)


@pytest.mark.parametrize("outcome", [prover.FAILED, prover.NOT_RUN])
def test_only_what_was_proved_has_one(outcome: str) -> None:
    with pytest.raises(DsgenError, match="only what was proved has a certificate"):
        certify(proof(outcome=outcome))
