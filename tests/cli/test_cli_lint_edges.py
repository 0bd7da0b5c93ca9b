"""The linter's commands where something is in the way: files, streams, names and terminals that are not as usual."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from lint_samples import GOOD, MENDED, QUOTED, UNKNOWN, dsgen, found, put

from dsgen.cli.mending import mend

Run = Callable[..., tuple[int, str, str]]
PROGRAM = [sys.executable, "-c", "from dsgen.cli import main; main()"]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line; gives the exit code, stdout and stderr."""

    def call(*arguments: str) -> tuple[int, str, str]:
        return dsgen(capsys, *arguments)

    return call


@pytest.fixture
def locked(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a file that may be read and not written, whoever runs the test."""
    usual = Path.open

    def opened(path: Path, mode: str = "r", *rest: object, **more: object) -> object:
        if path.name == "locked.json" and mode == "r+b":
            raise PermissionError(13, "Permission denied", str(path))
        return usual(path, mode, *rest, **more)

    monkeypatch.setattr(Path, "open", opened)
    return "locked.json"


# --- what is named


def test_a_named_file_is_linted_though_its_folder_passed_it_over(run: Run) -> None:
    put("b/data.json", '{"values": NaN, "more": 1}')

    assert run("lint", "b")[0] == 0
    for order in (["b", "b/data.json"], ["b/data.json", "b"], ["b", "b", "./b/data.json"]):
        code, out, _ = run("lint", *order, "--format", "json")
        assert code == 1
        assert [Path(name) for name in found(out)] == [Path("b/data.json")]


def test_the_standard_input_is_read_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(GOOD.encode())))

    assert run("lint", "-", "-", "--format", "json")[0] == 0


@pytest.mark.parametrize(("name", "says"), [("-", "the standard input is closed"), ("", "the name is empty")])
def test_a_name_of_nothing(run: Run, monkeypatch: pytest.MonkeyPatch, name: str, says: str) -> None:
    monkeypatch.setattr(sys, "stdin", None)

    code, out, _ = run("lint", name)

    assert code == 2
    assert says in out


def test_nothing_linted_is_not_called_clean(run: Run) -> None:
    put("ds.json", GOOD)
    put("ds.json.dsgen.toml", "ignore = 1")

    code, out, err = run("lint", "ds.json")

    assert (code, out) == (2, "")
    assert "ignore is 1; it must be a list of texts" in err


# --- what is written


def test_a_file_that_cannot_be_written_stops_no_other(run: Run, locked: str) -> None:
    put(locked, QUOTED)
    put("ds.json", QUOTED)

    code, out, err = run("lint", "--fix", locked, "ds.json", "--deepspeed", "0.19")

    assert code == 2
    assert err == "error: locked.json: its fixes cannot be written (Permission denied)\n"
    assert (Path(locked).read_text(), Path("ds.json").read_text()) == (QUOTED, MENDED)
    assert "fixed 1 finding, 1 left; 1 fix could not be made;" in out


def test_migrate_says_what_it_could_not_write(run: Run, locked: str) -> None:
    old = '{"train_batch_size": 1, "gradient_clipping": 1.0, "bfloat16": {"enabled": true}}'
    put(locked, old)
    put("ds.json", old)

    code, _, err = run("migrate", locked, "ds.json", "--to", "0.19", "--write")

    assert code == 2
    assert "locked.json: its fixes cannot be written" in err
    assert Path(locked).read_text() == old
    assert '"bf16"' in Path("ds.json").read_text()


def test_a_file_that_is_gone_before_it_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    from dsgen.linting.files import lint_files
    from dsgen.linting.settings import Settings

    file = put("ds.json", QUOTED)
    linted = list(lint_files(["ds.json"], Settings()))
    file.unlink()

    left, mended, stuck = mend(linted, unsafe=False, write=True)

    assert (mended.fixed, stuck, [len(one.findings) for one in left]) == (0, True, [1])
    assert "ds.json: its fixes cannot be written (No such file or directory)" in capsys.readouterr().err
    assert not file.exists()


@pytest.mark.parametrize("command", ["lint", "survey"])
def test_a_report_never_replaces_a_config(run: Run, command: str) -> None:
    put("ds.json", UNKNOWN)
    Path("link.json").symlink_to("ds.json")

    code, _, err = run(command, "ds.json", "-o", "link.json")

    assert code == 2
    assert "-o link.json is one of the files that are linted" in err
    assert Path("ds.json").read_text() == UNKNOWN


@pytest.mark.parametrize("program", [["git", "apply", "-p0"], ["patch", "-p0", "-s", "--binary"]])
@pytest.mark.parametrize("name", ["a b.json", " a.json", "a\tb.json", 'a"b\\c.json', "日本.json", "a\nb.json"])
def test_a_diff_applies_to_a_file_of_any_name(run: Run, name: str, program: list[str]) -> None:
    file = put(name, "\ufeff" + QUOTED.replace("\n", ""))  # a mark and one line: the first line of the file changes
    diff = run("lint", "--diff", "--", name)[1]

    subprocess.run(program, input=diff.encode(), check=True, capture_output=True)

    assert file.read_text() == "\ufeff" + MENDED.replace("\n", "")


# --- what is printed


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "ascii", "utf-8:strict"])
@pytest.mark.parametrize("options", [[], ["--format", "github"], ["--diff"], ["survey"]])
def test_a_terminal_that_lacks_a_letter_ends_no_run(encoding: str, options: list[str], tmp_path: Path) -> None:
    name = os.fsdecode(b"ds_\xff.json")
    (tmp_path / name).write_text('{"train_batch_size": 1, "gradient_clip": 1} // 梯度', encoding="utf-8")

    done = subprocess.run(
        [*PROGRAM, *(options if options == ["survey"] else ["lint", "--fail-on", "warning", *options]), name],
        env={**os.environ, "PYTHONIOENCODING": encoding, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
    )

    assert b"Traceback" not in done.stderr
    assert done.returncode == (0 if options == ["survey"] else 1)
    assert b"ds_" in done.stdout


# --- migrate and survey


@pytest.mark.parametrize("name", ["nowhere.json", "list.json", "broken.json"])
def test_migrate_says_what_it_cannot_read(run: Run, name: str) -> None:
    put("list.json", "[1]")
    put("broken.json", '{"bfloat16": ')
    put("ds.json", GOOD)

    code, _, err = run("migrate", name, "ds.json", "--to", "0.19")

    assert code == (2 if name == "nowhere.json" else 1)
    assert f"{name}:1:" in err
    assert "1 left by hand" in err


def test_survey_counts_no_file_that_is_not_there(run: Run) -> None:
    put("x/ds.json", QUOTED)

    code, out, err = run("survey", "x", "y", "z*")

    assert code == 2
    assert "1 of 1 file (100%) has an error" in out
    assert err == "error: y: there is no such file\nerror: z*: no file matches the pattern\n"


# --- training files of one's own


def test_a_training_file_may_name_its_config_in_a_section_of_its_own(run: Run) -> None:
    put("conf/zero2.json", '{"train_batch_size": 1, "gradient_clip": 1}  // DeepSpeed reads comments')
    for name, text in {
        "a.yaml": "training:\n  deepspeed:\n    config_path: conf/zero2.json\n",
        "b.yaml": "deepspeed_config: conf/zero2.json\n",
    }.items():
        put(name, text)

        code, out, _ = run("lint", name, "--format", "json", "--fail-on", "warning")

        assert code == 1
        assert found(out) == {name: [], "conf/zero2.json": ["unread-key"]}


def test_a_training_file_without_deepspeed_is_no_broken_config(run: Run) -> None:
    put("train.yaml", "training: {mixed_precision: bf16}\ndataloader: {batch_size: 4}\n")
    put("typo.yaml", "zero_optimisation: {stage: 3}\ntrain_batch_size: 1\n")

    assert run("lint", "train.yaml", "--fix", "--unsafe-fixes")[0] == 0
    assert found(run("lint", "typo.yaml", "--format", "json")[1]) == {"typo.yaml": ["unread-key"]}
