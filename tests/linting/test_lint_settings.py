"""What decides which findings are shown: pyproject.toml and the command line on top of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from three_rules import KINDS, finding

from dsgen.linting.setting_files import read
from dsgen.linting.settings import Settings, rules_named
from dsgen.shapes.errors import DsgenError
from dsgen.shapes.findings import Severity

pytestmark = pytest.mark.usefixtures("three_rules")


EACH = tuple(finding(name) for name in KINDS)


def shown(settings: Settings, file: str = "ds.json") -> list[str]:
    return [item.rule for item in settings.judge(EACH, file)]


def pyproject(folder: Path, text: str) -> Path:
    file = folder / "pyproject.toml"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("word", "names"),
    [
        ("odd-key", {"odd-key"}),
        ("DSG902", {"odd-key"}),
        ("dsg902", {"odd-key"}),
        ("DSG90", {"loud-key", "odd-key"}),
        ("DSG", {"loud-key", "odd-key", "dull-key", "rule-broke"}),
        ("rule-broke", {"rule-broke"}),
    ],
)
def test_a_rule_is_named_by_name_code_or_start_of_codes(word: str, names: set[str]) -> None:
    assert rules_named(word) == names


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("od-key", "odd-key"),
        ("DSG912", "DSG911"),
        ("", "`dsgen rule`"),
        ("D", "`dsgen rule`"),
    ],
)
def test_a_name_of_no_rule_is_refused_with_the_nearest(word: str, near: str) -> None:
    with pytest.raises(DsgenError, match="no rule") as error:
        rules_named(word)

    assert near in str(error.value)


def test_nothing_said_shows_every_rule() -> None:
    assert shown(Settings()) == list(KINDS)


def test_select_and_ignore() -> None:
    assert shown(Settings(select=("DSG90",))) == ["loud-key", "odd-key"]
    assert shown(Settings(select=("DSG90",), ignore=("loud-key",))) == ["odd-key"]


def test_severities_change_and_switch_off() -> None:
    settings = Settings(severities={"DSG902": Severity.ERROR, "loud-key": None})

    judged = settings.judge(EACH, "ds.json")

    assert [(item.rule, item.severity) for item in judged] == [("odd-key", Severity.ERROR), ("dull-key", Severity.INFO)]


def test_the_command_line_wins() -> None:
    file = Settings(select=("odd-key",), ignore=("loud-key",), deepspeed="0.16", severity=Severity.ERROR)

    assert file.under(Settings()) == file
    assert file.under(Settings(deepspeed="0.18")).deepspeed == "0.18"
    assert file.under(Settings(severity=Severity.INFO)).severity is Severity.INFO
    assert shown(file.under(Settings(select=("loud-key",)))) == ["loud-key"]
    assert shown(file.under(Settings(ignore=("odd-key",)))) == []
    assert shown(Settings(ignore=("loud-key",)).under(Settings(ignore=("odd-key",)))) == ["dull-key"]


def test_a_selected_rule_speaks_in_files_that_ignore_it() -> None:
    file = Settings(file=Path.cwd() / "pyproject.toml", per_file_ignores={"*.json": ("DSG9",)})

    assert shown(file) == []
    assert shown(file.under(Settings(select=("odd-key",)))) == ["odd-key"]


def test_the_nearest_pyproject_with_our_table_counts(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    outer = pyproject(tmp_path, '[tool.dsgen.lint]\nselect = ["odd-key"]\nworld-size = 8\nhw = "a100-40g"\n')
    pyproject(inner, "[tool.ruff]\nline-length = 100  # no dsgen here, but its name\n")

    found = read(inner)

    assert (found.file, found.select, found.world_size, found.hardware) == (outer, ("odd-key",), 8, "a100-40g")


def test_every_setting_is_read(tmp_path: Path) -> None:
    (tmp_path / "box.yaml").write_text("kind: hardware\nextends: a100-40g\n", encoding="utf-8")
    (tmp_path / "names.txt").write_text("embed.weight\n", encoding="utf-8")
    pyproject(
        tmp_path,
        """
[tool.dsgen.lint]
ignore = ["DSG901"]
severity = "info"
target = "hf-trainer"
deepspeed = "0.18"
seq-len = 2048
hw = "box.yaml"
model = "7b"
network = "roce-100g"
accelerator = "cpu"
client-optimizer = "torch"
missing = ["wandb"]
calls = ["engine.compile"]
parameters = "names.txt"
exclude = ["old"]
per-file-ignores = { "tests/*" = ["odd-key"] }
[tool.dsgen.lint.severities]
dull-key = "warning"
odd-key = "off"
""",
    )

    found = read(tmp_path)

    assert found == Settings(
        file=tmp_path / "pyproject.toml",
        ignore=("DSG901",),
        severity=Severity.INFO,
        target="hf-trainer",
        deepspeed="0.18",
        seq_len=2048,
        hardware=str(tmp_path / "box.yaml"),
        model="7b",
        network="roce-100g",
        accelerator="cpu",
        client_optimizer="torch",
        missing=("wandb",),
        calls=("engine.compile",),
        parameters=str(tmp_path / "names.txt"),
        exclude=("old",),
        per_file_ignores={"tests/*": ("odd-key",)},
        severities={"dull-key": Severity.WARNING, "odd-key": None},
    )
    assert shown(found, str(tmp_path / "tests" / "ds.json")) == ["dull-key"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[tool.dsgen.lint]\nselct = []\n", "no setting tool.dsgen.lint.selct"),
        ("[tool.dsgen.lint]\nselct = []\n", "did you mean select?"),
        ("[tool.dsgen.lnt]\n", "did you mean lint?"),
        ("[tool]\ndsgen = 1\n", "tool.dsgen is 1; it must be a table"),
        ("[tool.dsgen]\nlint = []\n", "tool.dsgen.lint is []; it must be a table"),
        ('[tool.dsgen.lint]\nselect = "odd-key"\n', "it must be a list of texts"),
        ('[tool.dsgen.lint]\nselect = ["od-key"]\n', "did you mean odd-key"),
        ("[tool.dsgen.lint]\nworld-size = 1.5\n", "a whole number of at least 1"),
        ("[tool.dsgen.lint]\nworld-size = true\n", "a whole number of at least 1"),
        ("[tool.dsgen.lint]\ndeepspeed = 0.19\n", 'it must be text: "0.19"'),
        ('[tool.dsgen.lint]\ndeepspeed = "0.1"\n', "DeepSpeed 0.1 is not known"),
        ('[tool.dsgen.lint]\nseverity = "fatal"\n', "one of info, warning, error"),
        ('[tool.dsgen.lint]\ntarget = "hf"\n', "one of deepspeed, hf-trainer"),
        ('[tool.dsgen.lint.severities]\nodd-key = "loud"\n', "one of off, info, warning, error"),
        ('[tool.dsgen.lint.severities]\nod-key = "off"\n', "no rule 'od-key'"),
        ("[tool.dsgen.lint]\nseverities = 1\n", "it must be a table"),
        ('[tool.dsgen.lint]\nhw = "a100-41g"\n', "tool.dsgen.lint.hw: no hardware profile named 'a100-41g'"),
        ('[tool.dsgen.lint]\nmodel = "no.yaml"\n', "tool.dsgen.lint.model: no.yaml: no such file"),
        ('[tool.dsgen.lint]\nparameters = "no.txt"\n', "tool.dsgen.lint.parameters: no.txt: it cannot be read"),
        ("[tool.dsgen.lint]\nper-file-ignores = []\n", "it must be a table"),
        ("[tool.dsgen.lint\n", "it is not TOML"),
    ],
)
def test_a_wrong_setting_names_the_file(tmp_path: Path, text: str, says: str) -> None:
    file = pyproject(tmp_path, text)

    with pytest.raises(DsgenError) as error:
        read(tmp_path)

    assert str(error.value).startswith(f"{file}: ")
    assert says in str(error.value)


def test_a_file_that_is_not_about_dsgen_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_bytes(b"\xff\xfe[[[")

    assert read(tmp_path) == Settings()


@pytest.mark.parametrize("glob", ["old", "old/", "old/*", "*.json", "ds.json", "old/**", "old/ds.json"])
def test_exclude_takes_folders_globs_and_names(tmp_path: Path, glob: str) -> None:
    settings = Settings(file=tmp_path / "pyproject.toml", exclude=(glob,))

    assert settings.excludes(str(tmp_path / "old" / "ds.json"))
    assert not settings.excludes(str(tmp_path / "new" / "zero.hjson"))
