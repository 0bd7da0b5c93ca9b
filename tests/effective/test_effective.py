"""`dsgen effective` without DeepSpeed: what can go wrong before it starts, the plain sentences, the pages."""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

from dsgen.cli import main
from dsgen.deepspeed import surface
from dsgen.effective import Effective, load, loading
from dsgen.effective.written_keys import defaults, in_force, rows
from dsgen.report import effective as report
from dsgen.shapes.errors import DsgenError
from dsgen.targets import find

KNOWN = surface.load("0.19")
WRITTEN: dict[str, Any] = {
    "train_batch_size": 64,
    "zero_optimization": {"stage": "2", "cpu_offload": True, "overlap_comm": "auto", "max_live_parameters": 5},
    "bf16": {"enabled": 1},
    "communication_data_type": "FP16",
    "optimizer": {"type": "AdamW", "params": {"lr": 2e-5}, "lr": 1},
    "zero_optimisation": {"stage": 3},
    "wall_clock_breakdown": False,
    "vocabulary_size": 8,
}
# A report as the child writes it, in short.
REPORT: dict[str, Any] = {
    "seen": ["vocabulary_size"],
    "held": {
        "train_batch_size": 64,
        "train_micro_batch_size_per_gpu": 8,
        "gradient_clipping": 1.0,
        "zero_optimization.stage": 2,
        "zero_optimization.overlap_comm": False,
        "zero_optimization.offload_optimizer.device": "cpu",
        "zero_optimization.stage3_max_live_parameters": 5,
        "zero_optimization.stage3_prefetch_bucket_size": 50_000_000,
        "bf16.enabled": True,
        "communication_data_type": "torch.float16",
        "optimizer.type": "adamw",
        "optimizer.params.lr": 2e-5,
        "wall_clock_breakdown": True,
    },
    "aliases": {"zero_optimization.max_live_parameters": "zero_optimization.stage3_max_live_parameters"},
    "moved": {"zero_optimization.cpu_offload": "zero_optimization.offload_optimizer"},
    "optimizer": {"class": "FusedAdam", "arguments": {"lr": 2e-5, "weight_decay": 0.0}},
    "schedule": None,
}


def fake_python(folder: Path, body: str) -> str:
    """A program that stands where an interpreter belongs."""
    program = folder / "python"
    program.write_text(f"#!{sys.executable}\n{body}\n", encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


def answering(folder: Path, *answers: Mapping[str, Any]) -> str:
    """An interpreter that greets and answers, whatever it is asked."""
    lines = [json.dumps({"versions": {"deepspeed": "0.19.8+x", "torch": "2"}}), *map(json.dumps, answers)]
    return fake_python(folder, f"import sys\nfor line in {lines!r}:\n    sys.stdin.readline(); print(line, flush=True)")


def outcomes(found: Effective | Any) -> dict[str, str]:
    return {row.path: row.happened for row in found}


def test_every_written_key_is_told_by_what_became_of_it() -> None:
    values = in_force(REPORT, ())
    told = rows(WRITTEN, REPORT, values, (), find("deepspeed"), KNOWN)

    assert outcomes(told) == {
        "train_batch_size": "kept",
        "zero_optimization.stage": "converted",
        "zero_optimization.cpu_offload": "moved",
        "zero_optimization.overlap_comm": "dropped",
        "zero_optimization.max_live_parameters": "kept",
        "bf16.enabled": "converted",
        "communication_data_type": "kept",
        "optimizer.type": "kept",
        "optimizer.params.lr": "kept",
        "optimizer.lr": "not read",
        "zero_optimisation": "not read",
        "wall_clock_breakdown": "changed",
        "vocabulary_size": "kept",
    }
    by_path = {row.path: row for row in told}
    assert by_path["zero_optimization.cpu_offload"].in_force == {"device": "cpu"}
    assert by_path["zero_optimization.cpu_offload"].note == "to zero_optimization.offload_optimizer"
    assert by_path["zero_optimization.overlap_comm"].in_force is False
    assert by_path["zero_optimisation"].note == "did you mean zero_optimization?"
    assert "unless zero_optimization.stage is 3" in str(by_path["zero_optimization.max_live_parameters"].note)


def test_defaults_are_what_nobody_wrote_and_what_acts() -> None:
    values = in_force(REPORT, ())

    assert defaults(WRITTEN, REPORT, values, (), KNOWN) == {
        "train_micro_batch_size_per_gpu": 8,
        "gradient_clipping": 1.0,
        "optimizer.params.weight_decay": 0.0,
    }


def test_a_key_left_open_is_marked_and_no_default() -> None:
    values = in_force(REPORT, ("train_micro_batch_size_per_gpu",))
    written = {"gradient_clipping": "auto"}
    told = rows(written, REPORT, values, ("gradient_clipping",), find("hf-trainer"), KNOWN)

    assert [(row.happened, row.in_force, row.note) for row in told] == [
        ("left open", None, "filled in by the Hugging Face Trainer")
    ]
    assert "gradient_clipping" not in defaults(written, REPORT, values, ("gradient_clipping",), KNOWN)
    assert "train_micro_batch_size_per_gpu" not in values


@pytest.mark.parametrize(
    ("name", "words"),
    [("missing.json", "no such file"), (".", "it is a folder"), ("a\0b", "no such file"), ("", "it is a folder")],
)
def test_a_file_that_is_none_is_a_clear_error(name: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "find_spec", lambda name: object())
    with pytest.raises(DsgenError, match=words):
        load(name)


@pytest.mark.parametrize("package", ["torch", "deepspeed"])
def test_a_missing_package_says_what_to_install(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "ds_config.json"
    file.write_text("{}", encoding="utf-8")
    monkeypatch.setattr(loading, "find_spec", lambda name: None if name == package else object())

    with pytest.raises(SystemExit) as ended:
        main(["effective", str(file)])

    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert f"this needs {package}, which {sys.executable} has not" in error
    assert 'pip install "dsgen[proof]"' in error


def test_a_package_missing_elsewhere_is_said_by_the_child(tmp_path: Path) -> None:
    python = fake_python(tmp_path, 'import sys; sys.stdin.readline(); print(\'{"missing": "deepspeed"}\', flush=True)')
    with pytest.raises(DsgenError, match=f"this needs deepspeed, which {python} has not"):
        load({}, python=python)


def test_a_program_that_is_no_python_is_a_clear_error() -> None:
    with pytest.raises(DsgenError, match=r"DeepSpeed was lost: (it answered .-c import|the engine process ended)"):
        load({}, python="/bin/echo")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"died": {"timed_out": True, "code": -9, "tail": ""}}, "had not loaded it within 7 s"),
        ({"died": {"timed_out": False, "code": -11, "tail": "Segmentation\nfault"}}, "code -11: Segmentation fault"),
    ],
)
def test_a_child_that_hangs_or_dies_is_a_clear_error(answer: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(DsgenError, match=words):
        load({}, python=answering(tmp_path, answer), timeout_seconds=7)


def test_a_child_that_ends_at_once_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(DsgenError, match=r"DeepSpeed was lost: .*code 3: no torch here"):
        load({}, python=fake_python(tmp_path, "import sys; sys.stderr.write('no torch here'); sys.exit(3)"))


def test_an_interpreter_that_is_none_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(DsgenError, match="cannot run the interpreter"):
        load({}, python=str(tmp_path / "nowhere"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"world_size": 0}, "world_size is 0"),
        ({"world_size": True}, "world_size is True"),
        ({"timeout_seconds": 0}, "timeout_seconds is 0"),
        ({"target": "hf-trainr"}, "did you mean hf-trainer"),
    ],
)
def test_a_wrong_argument_is_a_clear_error(options: Any, words: str) -> None:
    with pytest.raises(DsgenError, match=words):
        load({}, **options)


@pytest.mark.parametrize(
    ("text", "kind"),
    [("{ /* no */ }", "JSONDecodeError"), ("\ufeff{}", "JSONDecodeError"), ("[" * 100_000, "RecursionError")],
)
def test_a_target_that_reads_plain_json_refuses_more(text: str, kind: str, tmp_path: Path) -> None:
    """DeepSpeed takes comments; the Trainer reads the file with Python's json."""
    file = tmp_path / "c.json"
    file.write_text(text, encoding="utf-8")

    found = load(file, target="hf-trainer", python=answering(tmp_path))

    assert found.refused is not None
    assert (found.refused.phase, found.refused.kind, found.deepspeed) == ("read", kind, "0.19.8")


def loaded(folder: Path, **changes: Any) -> Effective:
    """What the report above becomes."""
    answer = {**REPORT, "config": WRITTEN, "refused": None, "world_size": 8, "implied": True, "warnings": ["w"]}
    return load(WRITTEN, python=answering(folder, {**answer, **changes}))


def test_the_record_holds_what_was_reported(tmp_path: Path) -> None:
    found = loaded(tmp_path)

    assert (found.world_size, found.implied, found.deepspeed, found.warnings) == (8, True, "0.19.8", ("w",))
    assert found.answers is not None
    assert (found.answers.dtype, found.answers.stage, found.answers.offload_optimizer) == ("bf16", 2, "cpu")
    assert (found.answers.optimizer, found.answers.lr, found.answers.gradient_clipping) == ("FusedAdam", 2e-5, 1.0)
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["values"]["gradient_clipping"] == 1.0


def test_numbers_that_json_lacks_become_text(tmp_path: Path) -> None:
    found = loaded(tmp_path, held={**REPORT["held"], "gradient_clipping": float("nan")})

    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["values"]["gradient_clipping"] == "nan"


@pytest.mark.parametrize("width", [80, 200])
def test_the_page_keeps_to_its_width_and_tells_every_key(width: int, tmp_path: Path) -> None:
    page = report.text(loaded(tmp_path), width)

    assert max(map(len, page.splitlines())) <= width
    assert page.splitlines()[0] == "<config> in DeepSpeed 0.19.8 at 8 GPUs (what its batch keys imply)"
    assert "batch      64 = micro-batch 8 x ? steps x 8 GPUs" in page
    assert "clipping   1.0 (DeepSpeed's default)" in page
    for line in ("zero_optimisation ", "  did you mean zero_optimization?", "  gradient_clipping "):
        assert any(shown.startswith(line.rstrip()) for shown in page.splitlines())


def test_who_makes_an_optimizer_that_the_config_lacks_is_told(tmp_path: Path) -> None:
    found = loaded(tmp_path)
    assert found.answers is not None
    found = attrs.evolve(found, answers=attrs.evolve(found.answers, optimizer=None))

    assert "optimizer  none: the program must bring one" in report.text(found, 80)
    handed = attrs.evolve(found, target="hf-trainer")
    assert "optimizer  none here: the Trainer makes the one of its argument optim" in report.text(handed, 80)


def test_a_refused_config_exits_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused = {"phase": "parse", "kind": "ValueError", "message": "Duplicate keys in DeepSpeed config: ['a']",
               "site": "deepspeed/x.py:1", "faults": []}  # fmt: skip
    answer = {"config": {}, "refused": refused, "world_size": 1, "implied": True, "warnings": []}
    file = tmp_path / "c.json"
    file.write_text('{"a": 1, "a": 2}', encoding="utf-8")
    for form in ("text", "json"):
        with pytest.raises(SystemExit) as ended:
            main(["effective", str(file), "--python", answering(tmp_path, answer), "--format", form])
        assert ended.value.code == 1
        shown = capsys.readouterr().out
        if form == "text":
            assert "refused: a key stands twice in one section: a" in shown
            assert "DeepSpeed's words: ValueError: Duplicate keys in DeepSpeed config: ['a']" in shown
        else:
            assert json.loads(shown)["refused"]["sentence"] == "a key stands twice in one section: a"
