"""`dsgen lint` as a person uses it: what is found, streams, exit codes, settings, reports."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from email.message import Message
from importlib import metadata
from pathlib import Path

import pytest
from lint_samples import GOOD, TYPO, UNKNOWN, found, put

from dsgen import targets
from dsgen.cli import lint_options
from dsgen.cli.lint import _package

Run = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.usefixtures("elsewhere")


# --- what is found, and the exit codes


def test_a_file_without_findings_is_code_0(run: Run) -> None:
    put("ds.json", GOOD)

    code, out, err = run("lint", "ds.json")

    assert (code, err) == (0, "")
    assert out.startswith("no findings in 1 file")


def test_a_finding_is_code_1_and_shows_its_line(run: Run) -> None:
    put("ds.json", TYPO)

    code, out, err = run("lint", "ds.json")

    lines = out.splitlines()
    assert (code, err) == (1, "")
    assert lines[0] == "ds.json:3:25 error rejected-key (DSG101)"
    assert lines[1] == '    3 |   "zero_optimization": {"overlap_com": false, "stage": 1}'
    assert lines[2].startswith("      |                         ^^^^^^^^^^^^^")
    assert "      fix: rename to overlap_comm (unsafe)" in lines
    assert "1 finding, 1 fixable with --fix" in out
    closing = " ".join(out.split())
    assert "`dsgen rule DSG101` explains." in closing
    assert 'Linted for plain DeepSpeed (guessed, as it has no "auto": --target) and for DeepSpeed ' in closing


def test_exit_zero(run: Run) -> None:
    put("ds.json", TYPO)

    assert run("lint", "ds.json", "--exit-zero")[0] == 0


def test_severity_moves_what_is_shown_and_fail_on_the_exit_code(run: Run) -> None:
    put("ds.json", UNKNOWN)

    assert run("lint", "ds.json")[0] == 0
    assert run("lint", "ds.json", "--fail-on", "warning")[0] == 1
    code, out, _ = run("lint", "ds.json", "--severity", "error")
    assert code == 0
    assert "1 warning hidden" in out
    assert run("lint", "ds.json", "--severity", "error", "--fail-on", "warning")[0] == 1
    assert run("lint", "ds.json", "--fail-on", "warning", "--exit-zero")[0] == 0


def test_files_folders_globs_and_the_standard_input(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    put("a.json", TYPO)
    put("dir/deep/ds_b.json", TYPO)
    put("dir/ds_c.json", GOOD)
    put("dir/notes.json", '{"notes": 1}')
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TYPO.encode())))

    code, out, _ = run("lint", "dir", "*.json", "-", "--format", "json")

    assert code == 1
    assert found(out) == {
        "dir/ds_c.json": [],
        "dir/deep/ds_b.json": ["rejected-key"],
        "a.json": ["rejected-key"],
        "<stdin>": ["rejected-key"],
    }


def test_the_standard_input_has_the_settings_of_its_name(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    put("sub/pyproject.toml", '[tool.dsgen.lint]\nignore = ["rejected-key"]\n')
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TYPO.encode())))

    code, out, _ = run("lint", "-", "--stdin-filename", "sub/ds.json", "--format", "json")

    assert (code, found(out)) == (0, {"sub/ds.json": []})


def test_a_bad_file_stops_no_other(run: Run) -> None:
    put("latin.json", b'{"a": "\xe9"}')
    put("broken.json", "{")
    put("empty.json", "")
    put("list.json", "[]")
    Path("link.json").symlink_to("nowhere.json")
    put("last.json", TYPO)

    code, out, err = run(
        "lint", "latin.json", "broken.json", "empty.json", "list.json", "link.json", "last.json", "--format", "json"
    )

    said = found(out)
    assert (code, err) == (2, "")  # link.json leads to nothing
    assert said.pop("last.json") == ["rejected-key"]
    assert len(said) == 5
    assert all(said.values())


def test_an_empty_folder_is_said(run: Run) -> None:
    Path("dir").mkdir()

    code, _, err = run("lint", "dir")

    assert (code, err) == (0, "note: no config file in dir\n")


def test_a_training_file_without_a_config_is_said_to_be_unchecked(run: Run) -> None:
    put("sft.yaml", "model_name_or_path: Qwen/Qwen2.5-7B\nper_device_train_batch_size: 2\nbf16: true\n")
    put("named.yaml", "model_name_or_path: Qwen/Qwen2.5-7B\ndeepspeed: ds.json\n")
    put("ds.json", GOOD.replace("}", ', "zero_optimization": {"stage": 2}}'))

    code, _, err = run("lint", "sft.yaml", "named.yaml")

    assert (code, err) == (0, "note: sft.yaml holds no DeepSpeed config and names none, so nothing is checked\n")


# --- mistakes


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--select", "od-key"], "no rule 'od-key'"),
        (["--select", "rejected-kye"], "did you mean rejected-key"),
        (["--ignore", "DSG1,DSGX"], "no rule 'DSGX'"),
        (["--deepspeed", "9.9"], "DeepSpeed 9.9 is not known"),
        (["--accelerator", "cdua"], "did you mean cuda?"),
        (["--hw", "a100-40"], "did you mean a100-40g"),
        (["--parameters", "none.txt"], "none.txt: it cannot be read"),
        (["--unsafe-fixes"], "it goes with --fix or --diff"),
        (["--fix", "--diff"], "exclude each other"),
        (["--statistics", "--format", "json"], "exclude each other"),
        (["--target", "hf"], "'hf' is not one of"),
        (["--world-size", "0"], "0 is not in the range"),
    ],
)
def test_a_mistake_is_code_2(run: Run, arguments: list[str], says: str) -> None:
    put("ds.json", TYPO)

    code, out, err = run("lint", "ds.json", *arguments)

    assert code == 2
    assert says in err
    assert "rejected-key (" not in out


def test_no_file_is_a_mistake(run: Run) -> None:
    assert run("lint")[0] == 2


def test_a_broken_settings_file_is_said_once_and_stops_no_other(run: Run) -> None:
    put("bad/pyproject.toml", "[tool.dsgen.lint]\nselct = []\n")
    put("bad/ds_a.json", TYPO)
    put("bad/ds_b.json", TYPO)
    put("ok/ds.json", TYPO)

    code, out, err = run("lint", "bad", "ok", "--format", "json")

    assert code == 2
    assert err.count("no setting tool.dsgen.lint.selct") == 1
    assert found(out) == {"ok/ds.json": ["rejected-key"]}


# --- select, settings, suppressions


def test_select_and_ignore(run: Run) -> None:
    put("ds.json", TYPO.replace("1,", '1, "our_own_key": 1,'))

    both = found(run("lint", "ds.json", "--format", "json")[1])["ds.json"]
    assert both == ["unread-key", "rejected-key"]
    assert found(run("lint", "ds.json", "--format", "json", "--select", "DSG101")[1])["ds.json"] == ["rejected-key"]
    assert found(run("lint", "ds.json", "--format", "json", "--ignore", "DSG101,DSG3")[1])["ds.json"] == ["unread-key"]
    assert found(run("lint", "ds.json", "--format", "json", "--ignore", "DSG1")[1])["ds.json"] == []


def test_settings_suppressions_and_exclusions(run: Run) -> None:
    put("pyproject.toml", '[tool.dsgen.lint]\nexclude = ["old"]\ndeepspeed = "0.18"\ntarget = "deepspeed"\n')
    put("old/ds.json", TYPO)
    put("a.json", TYPO)
    put("a.json.dsgen.toml", '[[ignore-at]]\nrule = "rejected-key"\npath = "zero_optimization"\n')
    put("b.hjson", TYPO.replace("1}", "1} # dsgen: ignore[rejected-key, unread-key]"))

    code, out, err = run("lint", "old/ds.json", "a.json", "b.hjson")

    assert code == 0
    assert "1 file excluded by" in err
    assert "2 suppressed" in out
    assert "note: b.hjson:3: ignore[unread-key]: suppresses nothing" in out
    assert "Linted" not in out, "nothing was assumed"


def test_what_suppresses_a_rule_that_was_not_asked_is_not_unused(run: Run) -> None:
    put("b.hjson", TYPO.replace("1}", "1} # dsgen: ignore[rejected-key]"))

    assert "suppresses nothing" not in run("lint", "b.hjson", "--ignore", "DSG1")[1]


# --- reports


def test_a_report_goes_to_a_file(run: Run) -> None:
    put("ds.json", TYPO)

    code, out, err = run("lint", "ds.json", "--format", "sarif", "-o", "report.sarif")

    assert (code, out, err) == (1, "", "wrote report.sarif\n")
    assert json.loads(Path("report.sarif").read_text())["runs"][0]["results"][0]["ruleId"] == "DSG101"


def test_statistics_count_the_rules(run: Run) -> None:
    put("ds_a.json", TYPO)
    put("ds_b.json", TYPO)

    code, out, _ = run("lint", ".", "--statistics")

    assert code == 1
    assert out.splitlines()[1].split() == ["2", "2", "error", "DSG101", "rejected-key"]
    assert "overlap_com" not in out


def test_colour_only_on_a_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    put("ds.json", TYPO)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b" not in run("lint", "ds.json")[1]

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert "\x1b[1;31merror" in run("lint", "ds.json")[1]
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in run("lint", "ds.json")[1]


def test_every_choice_of_the_options_is_known_to_the_library() -> None:
    from dsgen.linting.settings import ACCELERATORS, CLIENT_OPTIMIZERS
    from dsgen.shapes.findings import Severity

    assert tuple(target.name for target in targets.TARGETS) == lint_options.TARGETS
    assert tuple(str(severity) for severity in Severity) == lint_options.LEVELS
    assert lint_options.CLIENT_OPTIMIZERS == CLIENT_OPTIMIZERS
    assert "cuda" in ACCELERATORS


def test_version_and_address_of_the_docs_come_from_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    said = Message()
    said["Version"] = "1.2.3"
    monkeypatch.setattr(metadata, "metadata", lambda _: said)
    assert _package() == ("1.2.3", None)

    said["Project-URL"] = "Documentation, https://example.org/docs"
    assert _package() == ("1.2.3", "https://example.org/docs/rules/")


def test_without_an_installed_package_there_is_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "metadata", gone)

    assert _package() == (None, None)


def test_what_arguments_say_of_the_run_is_no_finding(run: Run) -> None:
    """Adapters leave room, and nothing to gather when they are saved."""
    zero = {"stage": 3, "stage3_gather_16bit_weights_on_model_save": False}
    put(
        "ds.json",
        json.dumps({"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": zero}),
    )
    put("sft.yaml", "per_device_train_batch_size: 1\nbf16: true\nuse_peft: true\n")
    put("full.yaml", "per_device_train_batch_size: 1\nbf16: true\n")
    hardware = ("--hw", "4090", "--model", "qwen3-8b", "--world-size", "2", "--target", "hf-trainer")

    assert "training all its parameters takes" in run("lint", "ds.json", *hardware, "--args", "full.yaml")[1]
    code, out, _ = run("lint", "ds.json", *hardware, "--args", "sft.yaml")
    assert (code, "no findings in 1 file" in out) == (0, True)
    assert "does nothing" not in run("lint", "ds.json", "--args", "sft.yaml")[2]
