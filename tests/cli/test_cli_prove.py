"""`dsgen prove`: a config or a scenario goes to the prover; what comes of it is shown, and is the exit code."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from command_line import MAIN

from dsgen.proving import certificates, prover

pytestmark = pytest.mark.usefixtures("elsewhere")
Run = Callable[..., tuple[int, str, str]]
CONFIG = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}}
SCENARIO = "hw: a100-40g\nmodel: 7b\n"


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """What the prover is asked: (config, options); it proves stage 2 and no other."""
    asked: list[tuple[dict[str, Any], dict[str, Any]]] = []

    def prove(
        configs: list[Mapping[str, Any]], *, tell: Any, ended: Any, trained: Any, **options: Any
    ) -> tuple[prover.Proof, ...]:
        proofs = []
        for place, (config, model) in enumerate(zip(configs, trained, strict=True)):
            tell(place, len(configs))
            proofs.append(one(dict(config), {**options, "trained": model}))
            ended(place, proofs[-1])
        return tuple(proofs)

    def one(config: dict[str, Any], options: dict[str, Any]) -> prover.Proof:
        if "stop" in config:
            raise KeyboardInterrupt
        asked.append((config, options))
        good = config["zero_optimization"]["stage"] == 2
        return prover.Proof(
            outcome=prover.PROVED if good else prover.FAILED, phase="checkpoint" if good else "initialize",
            error=None if good else "AssertionError: no", site=None, todo=None, adaptations=(), checks=(), notes=(),
            losses=(5.5, 5.4, 5.3, 5.2), ranks=2, device="cpu", seconds=1.0,
            versions={"deepspeed": "0.19.8", "torch": "2.13.0"},
            config_sha256="0", model=options["trained"].title, model_sha256=options["trained"].sha256,
        )  # fmt: skip

    monkeypatch.setattr(prover, "prove_many", prove)
    return asked


@pytest.mark.parametrize(("stage", "code"), [(2, 0), (3, 1)])
def test_the_outcome_is_the_exit_code(run: Run, tmp_path: Path, stage: int, code: int) -> None:
    config = {**CONFIG, "zero_optimization": {"stage": stage}}
    (tmp_path / "ds.json").write_text(json.dumps(config), encoding="utf-8")

    ended, shown, _ = run("prove", "ds.json")
    told, record, _ = run("prove", "ds.json", "--format", "json")

    assert (ended, told) == (code, code)
    assert shown.splitlines()[0].startswith("proved" if code == 0 else "failed")
    assert json.loads(record)["outcome"] == (prover.PROVED if code == 0 else prover.FAILED)


def test_a_config_is_proved_as_it_is_written(run: Run, tmp_path: Path, asked: Any) -> None:
    (tmp_path / "ds.json").write_text(json.dumps(CONFIG), encoding="utf-8")

    run("prove", "ds.json", "--ranks", "4", "--device", "cpu", "--steps", "5", "--timeout", "60")

    (config, options), *others = asked
    assert options.pop("trained").title == "a tiny Llama"
    assert (config, options) == (CONFIG, {"ranks": 4, "device": "cpu", "steps": 5, "timeout_seconds": 60})
    assert not others


def test_options_and_a_scenario_file_are_rendered_first(run: Run, tmp_path: Path, asked: Any) -> None:
    """What is proved is what `dsgen render` writes for the same."""
    run("prove", *MAIN)
    _, rendered, _ = run("render", *MAIN)
    assert asked.pop()[0] == json.loads(rendered)

    (tmp_path / "job.yaml").write_text(SCENARIO, encoding="utf-8")
    run("prove", "job.yaml", "--zero-stage", "3")
    assert asked.pop()[0]["zero_optimization"]["stage"] == 3


def test_a_scenario_is_proved_with_its_own_model_and_method(run: Run, asked: Any) -> None:
    run("prove", *MAIN, "--method", "qlora", "--lora-rank", "4")

    trained = asked.pop()[1]["trained"]
    assert trained.config["model_type"] == "llama"
    assert (trained.adapters.method, trained.adapters.rank) == ("qlora", 4)
    assert trained.title == "LoRA adapters on a tiny sibling of 7b (llama), its weights in 4 bits"


@pytest.mark.parametrize(
    ("said", "title"),
    [
        (["--model", "gemma-2-2b"], "a tiny sibling of gemma-2-2b (gemma2)"),
        (["--model", "my.models:make"], "what my.models:make makes"),
        (["--method", "lora"], "LoRA adapters on a tiny Llama"),
    ],
)
def test_a_config_takes_the_model_that_is_said(
    run: Run, tmp_path: Path, asked: Any, said: list[str], title: str
) -> None:
    (tmp_path / "ds.json").write_text(json.dumps(CONFIG), encoding="utf-8")

    code, shown, _ = run("prove", "ds.json", *said)

    assert code == 0
    assert asked.pop()[1]["trained"].title == title
    assert title in " ".join(shown.split())


AUTOS = {
    "train_micro_batch_size_per_gpu": "auto",
    "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
    "bf16": {"enabled": "auto"},
    "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"},
}


def test_the_autos_are_those_of_the_program(run: Run, tmp_path: Path, asked: Any) -> None:
    """Its arguments where they are told, else its defaults; buckets follow from the model at full size."""
    (tmp_path / "ds.json").write_text(json.dumps(AUTOS), encoding="utf-8")
    (tmp_path / "args.yaml").write_text(
        "per_device_train_batch_size: 3\nlearning_rate: 2.0e-4\nbf16: true\n", encoding="utf-8"
    )

    run("prove", "ds.json", "--target", "hf-trainer", "--args", "args.yaml", "--model", "7b")
    told = asked.pop()[0]
    run("prove", "ds.json", "--target", "hf-trainer")
    untold = asked.pop()[0]

    assert told["train_micro_batch_size_per_gpu"] == 3
    assert told["optimizer"]["params"]["lr"] == 2e-4
    assert told["bf16"] == {"enabled": True}
    assert told["zero_optimization"]["reduce_bucket_size"] == 4096 * 4096
    assert (untold["train_micro_batch_size_per_gpu"], untold["optimizer"]["params"]["lr"]) == (8, 5e-5)


def test_an_auto_that_nobody_fills_in_is_a_mistake(run: Run, tmp_path: Path, asked: Any) -> None:
    (tmp_path / "ds.json").write_text(json.dumps(AUTOS), encoding="utf-8")
    code, _, words = run("prove", "ds.json")
    assert (code, asked) == (2, [])
    assert "--target hf-trainer" in words

    left = {**CONFIG, "zero_optimization": {"stage": 3, "sub_group_size": "auto"}}
    (tmp_path / "ds.json").write_text(json.dumps(left), encoding="utf-8")
    code, _, words = run("prove", "ds.json", "--target", "accelerate")
    assert (code, asked) == (2, [])
    assert 'zero_optimization.sub_group_size is "auto"; Accelerate does not fill it in' in words


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (["prove", *MAIN, "--target", "hf-trainer"], 'a config\'s "auto"'),
        (["prove", "--hw", "a100-40g", "--model", "my.models:make"], "is a function"),
        (["prove", "ds.json", "--lora-rank", "4"], "lora_rank is said"),
        (["prove", "ds.json", "--method", "lora", "--lora-rank", "0"], "lora_rank is 0"),
        (["prove", "ds.json", "--method", "ia3"], "method is 'ia3'"),
        (["prove", "ds.json", "--model", "no-such-model"], "no-such-model"),
        (["prove", "ds.json", "--args", "ds.json"], "no argument that the Trainer fills"),
        (["prove", "ds.json", "--force"], "--force is said without --certificate"),
        (["prove", "ds.json", "--verify", "p.json", "--certificate", "q.json"], "--verify starts nothing"),
        (["prove", "ds.json", "--verify", "p.json", "--timeout", "5"], "--verify starts nothing"),
        (["prove", "ds.json", "--verify", "p.json", "--record", "r.jsonl"], "--verify starts nothing"),
        (["prove", "ds.json", "--certificate", "p.json", "--record", "r.jsonl"], "--record may start none"),
        (["prove", "ds.json", "--record", "ds.json"], "it is no record of proofs"),
        (["prove", "ds.json", "--record", "."], "it is a folder"),
        (["prove", "ds.json", "--record", "no/such/r.jsonl"], "it cannot be written"),
        (["prove", "--verify", "p.json"], "p.json is to be held against a config, and none is named"),
        (["prove", "ds.json", "--verify", "p.json"], "it cannot be read"),
        (["prove", "ds.json", "--verify", "ds.json"], "it is no certificate"),
        (["prove", "ds.json", "--certificate", "ds.json"], "it is there already"),
        (["prove", "ds.json", "--certificate", "no/such/proof.json"], "cannot be written"),
    ],
)
def test_what_cannot_be_asked_is_one_clear_line(
    run: Run, tmp_path: Path, asked: Any, said: list[str], words: str
) -> None:
    """And nothing was started."""
    (tmp_path / "ds.json").write_text(json.dumps(CONFIG), encoding="utf-8")

    code, _, told = run(*said)

    assert (code, asked) == (2, [])
    assert words in told


def test_a_certificate_is_written_and_verified(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ds.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    installed = {"deepspeed": "0.19.8", "torch": "2.13.0"}
    monkeypatch.setattr(certificates, "_installed", installed.get)

    written, _, told = run("prove", "ds.json", "--certificate", "proof.json")
    holds, shown, _ = run("prove", "--verify", "proof.json", "ds.json")
    installed["deepspeed"] = "0.20.0"
    newer, others, _ = run("prove", "--verify", "proof.json", "ds.json")
    (tmp_path / "ds.json").write_text(json.dumps({**CONFIG, "gradient_clipping": 0.5}), encoding="utf-8")
    changed, record, _ = run("prove", "--verify", "proof.json", "ds.json", "--format", "json")

    assert (written, holds, newer, changed) == (0, 0, 1, 1)
    assert "wrote proof.json. Later: dsgen prove --verify proof.json ds.json" in told
    assert shown.startswith("holds")
    assert "deepspeed is 0.20.0 here, 0.19.8 was proven" in others
    assert [item["name"] for item in json.loads(record)["differences"]] == ["config", "deepspeed"]


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ([], None),
        (["--model", "gemma-2-2b", "--method", "lora", "--lora-rank", "4", "--ranks", "2", "--device", "cpu"], None),
        (["--steps", "3", "--target", "deepspeed"], None),
        (["--model", "gemma-2-2b"], "model"),
        (["--method", "lora"], "model"),
        (["--model", "gemma-2-2b", "--method", "lora", "--lora-rank", "8"], "model"),
        (["--ranks", "4"], "ranks"),
        (["--device", "cuda"], "device"),
        (["--target", "hf-trainer"], "target"),
        (["--steps", "5"], "steps"),
    ],
)
def test_what_is_said_beside_verify_must_be_as_it_was_proven(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str], name: str | None
) -> None:
    (tmp_path / "ds.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    monkeypatch.setattr(certificates, "_installed", {"deepspeed": "0.19.8", "torch": "2.13.0"}.get)
    lora = ("--model", "gemma-2-2b", "--method", "lora", "--lora-rank", "4")
    run("prove", "ds.json", *lora, "--certificate", "proof.json")

    code, record, _ = run("prove", "--verify", "proof.json", "ds.json", *said, "--format", "json")

    assert code == (0 if name is None else 1)
    assert [item["name"] for item in json.loads(record)["differences"]] == ([] if name is None else [name])


def test_a_scenario_is_verified_with_its_own_model(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The config is the same, but its adapters are not those that were proven."""
    monkeypatch.setattr(certificates, "_installed", {"deepspeed": "0.19.8", "torch": "2.13.0"}.get)
    job = (*MAIN, "--method", "lora", "--set", "deepspeed.zero_optimization.stage=2")
    run("prove", *job, "--certificate", "proof.json")

    same, _, _ = run("prove", "--verify", "proof.json", *job)
    other, shown, _ = run("prove", "--verify", "proof.json", *job, "--lora-targets", "q_proj")

    assert (same, other) == (0, 1)
    assert "model:" in shown


def test_a_failed_proof_leaves_no_certificate_and_junit_says_why(run: Run, tmp_path: Path) -> None:
    wrong = {**CONFIG, "zero_optimization": {"stage": 3}}
    (tmp_path / "ds.json").write_text(json.dumps(wrong), encoding="utf-8")

    code, shown, told = run("prove", "ds.json", "--certificate", "proof.json", "--junit", "proof.xml")

    suite = ElementTree.parse(tmp_path / "proof.xml").getroot()
    assert code == 1
    assert "no certificate was written: the proof is failed" in told
    assert not (tmp_path / "proof.json").exists()
    assert (suite.get("tests"), suite.get("failures")) == ("1", "1")
    assert suite.find("testcase/failure") is not None
    assert "dsgen lint did not foresee this: it has a hole" in " ".join(shown.split())


def test_several_configs_are_proven_each(run: Run, tmp_path: Path, asked: Any) -> None:
    """Each below its name; one that fails is the exit code; JUnit has all of them."""
    for name, stage in (("good", 2), ("bad", 3)):
        config = {**CONFIG, "zero_optimization": {"stage": stage}}
        (tmp_path / f"{name}.json").write_text(json.dumps(config), encoding="utf-8")

    code, shown, _ = run("prove", "good.json", "bad.json", "--junit", "proofs.xml")
    _, records, _ = run("prove", "good.json", "bad.json", "--format", "json")
    refused, _, words = run("prove", "good.json", "bad.json", "--certificate", "proof.json")
    twice, _, _ = run("prove", "good.json", "good.json")

    cases = ElementTree.parse(tmp_path / "proofs.xml").getroot().findall("testcase")
    assert (code, refused, twice, len(asked)) == (1, 2, 2, 4)
    assert [line for line in shown.splitlines() if line.endswith(".json")] == ["good.json", "bad.json"]
    assert [(case.get("name"), case.find("failure") is not None) for case in cases] == [
        ("good.json", False), ("bad.json", True),
    ]  # fmt: skip
    assert {name: record["outcome"] for name, record in json.loads(records).items()} == {
        "good.json": "proved", "bad.json": "failed",
    }  # fmt: skip
    assert "a certificate is about one" in words


def write_configs(folder: Path, **stages: int) -> list[str]:
    for name, stage in stages.items():
        config = {**CONFIG, "zero_optimization": {"stage": stage}, "gradient_clipping": ord(name[0]) / 100}
        (folder / f"{name}.json").write_text(json.dumps(config), encoding="utf-8")
    return [f"{name}.json" for name in stages]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The versions of this interpreter, as a proof of the fixture names them."""
    versions = {"deepspeed": "0.19.8", "torch": "2.13.0", "dsgen": "0.1.0"}
    monkeypatch.setattr(certificates, "_installed", versions.get)
    return versions


def test_what_a_record_holds_unchanged_is_not_started_again(
    run: Run, tmp_path: Path, asked: Any, installed: dict[str, str]
) -> None:
    """Only what was proved: a config that failed is started again. Reports, JUnit and JSON have all of them."""
    names = write_configs(tmp_path, a=2, b=3, c=2)
    first, _, quiet = run("prove", *names, "--record", "r.jsonl")
    started = len(asked)

    second, shown, told = run("prove", *names, "--record", "r.jsonl", "--junit", "proofs.xml")
    _, records, _ = run("prove", *names, "--record", "r.jsonl", "--format", "json")

    cases = ElementTree.parse(tmp_path / "proofs.xml").getroot().findall("testcase")
    assert (first, quiet, second, started, len(asked)) == (1, "", 1, 3, 5)
    assert [line for line in shown.splitlines() if line.endswith(".json")] == names
    assert told == "2 of 3: proven already and unchanged (r.jsonl), not started again\n"
    assert shown.count("note: not started again: proven 20") == 2
    assert [case.get("name") for case in cases] == names
    assert ["not started again" in str(record["notes"]) for record in json.loads(records).values()] == [
        True, False, True,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "said",
    [
        ["--steps", "5"],
        ["--ranks", "4"],
        ["--device", "cpu"],
        ["--model", "gemma-2-2b"],
        ["--method", "lora"],
        ["--target", "accelerate"],
    ],
)
def test_a_record_stands_for_no_other_start(
    run: Run, tmp_path: Path, asked: Any, installed: dict[str, str], said: list[str]
) -> None:
    names = write_configs(tmp_path, a=2)
    run("prove", *names, "--record", "r.jsonl")

    run("prove", *names, "--record", "r.jsonl", *said)
    run("prove", *names, "--record", "r.jsonl", *said)

    assert len(asked) == 2


@pytest.mark.parametrize("package", ["deepspeed", "torch", "dsgen"])
def test_a_record_stands_for_no_other_version(
    run: Run, tmp_path: Path, asked: Any, installed: dict[str, str], package: str
) -> None:
    names = write_configs(tmp_path, a=2)
    run("prove", *names, "--record", "r.jsonl")
    run("prove", *names, "--record", "r.jsonl")
    assert len(asked) == 1

    installed[package] += ".1"
    run("prove", *names, "--record", "r.jsonl")

    assert len(asked) == 2


def test_a_record_stands_for_no_other_config_and_no_function_of_ones_own(
    run: Run, tmp_path: Path, asked: Any, installed: dict[str, str]
) -> None:
    """Whose code nobody compares. The layout of a config's text does not count."""
    names = write_configs(tmp_path, a=2)
    run("prove", *names, "--record", "r.jsonl")
    config = json.loads((tmp_path / "a.json").read_text("utf-8"))

    (tmp_path / "a.json").write_text(json.dumps(config, indent=4), encoding="utf-8")
    run("prove", *names, "--record", "r.jsonl")
    assert len(asked) == 1
    (tmp_path / "a.json").write_text(json.dumps({**config, "gradient_clipping": 0.5}), encoding="utf-8")
    run("prove", *names, "--record", "r.jsonl")
    assert len(asked) == 2
    for _ in range(2):
        run("prove", *names, "--record", "r.jsonl", "--model", "my.models:make")
    assert len(asked) == 4


def test_half_a_record_and_a_changed_one_are_no_proof(
    run: Run, tmp_path: Path, asked: Any, installed: dict[str, str]
) -> None:
    """And the next proof is a line of its own behind them."""
    names = write_configs(tmp_path, a=2, b=2, c=2)
    run("prove", *names, "--record", "r.jsonl")
    first, second, third = (tmp_path / "r.jsonl").read_text("utf-8").splitlines()
    changed = second.replace('"outcome": "proved"', '"outcome": "proved "')
    assert changed != second
    (tmp_path / "r.jsonl").write_text(f"{first}\n{changed}\n{third[: len(third) // 2]}", encoding="utf-8")

    _, _, told = run("prove", *names, "--record", "r.jsonl")
    _, _, later = run("prove", *names, "--record", "r.jsonl")

    assert len(asked) == 5
    assert told == (
        "r.jsonl: 2 lines are no whole record of a proof, and not taken for one\n"
        "1 of 3: proven already and unchanged (r.jsonl), not started again\n"
    )
    assert "3 of 3: proven already" in later


@pytest.mark.parametrize("record", [[], ["--record", "r.jsonl"]])
def test_ctrl_c_keeps_what_has_ended_and_says_how_to_go_on(
    run: Run, tmp_path: Path, asked: Any, installed: dict[str, str], record: list[str]
) -> None:
    names = write_configs(tmp_path, a=2, b=2)
    config = json.loads((tmp_path / "b.json").read_text("utf-8"))
    (tmp_path / "b.json").write_text(json.dumps({**config, "stop": True}), encoding="utf-8")

    code, shown, told = run("prove", *names, *record)
    (tmp_path / "b.json").write_text(json.dumps(config), encoding="utf-8")
    again, _, _ = run("prove", *names, *record)

    assert (code, again) == (130, 0)
    assert shown.startswith("a.json\nproved")
    assert told.startswith("interrupted: 1 of 2 had ended; ")
    assert ("the same command goes on from there" if record else "with --record FILE such a run goes on") in told
    assert len(asked) == (2 if record else 3)


def test_a_config_with_a_scenarios_options_is_refused(run: Run, tmp_path: Path, asked: Any) -> None:
    """Which of the two is to be proved, nobody could say."""
    (tmp_path / "ds.json").write_text(json.dumps(CONFIG), encoding="utf-8")

    code, _, words = run("prove", "ds.json", "--hw", "a100-40g")

    assert code == 2
    assert "ds.json is a DeepSpeed config, and --hw describes a scenario" in words
    assert asked == []
