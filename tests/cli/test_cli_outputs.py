"""Where -o writes: over what was made before, over nothing that was read, and to stdout for -."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dsgen.cli import main

Run = Callable[..., tuple[object, str, str]]
SCENARIO = "hw: a100-40g\nmodel: 125m\ngpus: 1\n"
CONFIG = '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}}'
OVERRIDE = "training: {seq_len: 1024}\n"
OF_CONFIG = ("--hw", "a100-40g", "--model", "125m", "--world-size", "1")
READ = {
    "a scenario": ("render", "job.yaml", "-o", "job.yaml"),
    "an override": ("render", "job.yaml", "-f", "more.yaml", "-o", "more.yaml"),
    "a scenario by another name": ("render", "job.yaml", "-o", "link.yaml"),
    "a simulated config": ("simulate", "--config", "ds.json", *OF_CONFIG, "-o", "ds.json"),
    "a simulated scenario": ("simulate", "job.yaml", "--format", "trace", "-o", "job.yaml"),
    "an adopted config": ("adopt", "ds.json", "--hw", "a100-40g", "--model", "125m", "-o", "ds.json", "--force"),
    "a linted config": ("lint", "ds.json", "-o", "ds.json"),
    "a surveyed config": ("survey", ".", "-o", "ds.json"),
}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line among three files; gives the exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    for name, text in (("job.yaml", SCENARIO), ("ds.json", CONFIG), ("more.yaml", OVERRIDE)):
        Path(name).write_text(text, encoding="utf-8")
    Path("link.yaml").symlink_to("job.yaml")

    def call(*arguments: str) -> tuple[object, str, str]:
        with pytest.raises(SystemExit) as stopped:
            main(list(arguments))
        return stopped.value.code or 0, *capsys.readouterr()

    return call


@pytest.mark.parametrize("arguments", READ.values(), ids=list(READ))
def test_nothing_that_was_read_is_written_over(run: Run, arguments: tuple[str]) -> None:
    before = sorted(Path().iterdir())
    code, _, err = run(*arguments)

    assert code == 2
    assert "needs a file of its own" in err
    assert [Path(name).read_text(encoding="utf-8") for name in ("job.yaml", "ds.json", "more.yaml")] == [
        SCENARIO,
        CONFIG,
        OVERRIDE,
    ]
    assert sorted(Path().iterdir()) == before


def test_what_is_made_anew_is_written_over(run: Run) -> None:
    made = [run("render", "job.yaml", *more, "-o", "made.json")[0] for more in ((), ("-f", "more.yaml"))]

    assert made == [0, 0]
    assert run("schema", "-o", "made.json")[0] == 0
    assert list(Path().glob(".*")) == []


def test_a_profile_of_a_person_s_is_written_over_with_force_alone(run: Run) -> None:
    Path("box.yaml").write_text("mine", encoding="utf-8")
    code, _, err = run("profiles", "new", "hardware", "box", "-o", "box.yaml")

    assert (code, Path("box.yaml").read_text(encoding="utf-8")) == (2, "mine")
    assert "box.yaml: it is there already" in err
    assert run("profiles", "new", "hardware", "box", "-o", "box.yaml", "--force")[0] == 0
    assert Path("box.yaml").read_text(encoding="utf-8").startswith("name: box")


@pytest.mark.parametrize(
    "arguments",
    [("render", "job.yaml"), ("schema",), ("profiles", "new", "hardware", "box"), ("lint", "ds.json"), ("survey", ".")],
    ids=" ".join,
)
def test_a_dash_is_stdout(run: Run, arguments: tuple[str, ...]) -> None:
    _, plain, _ = run(*arguments)
    _, dashed, _ = run(*arguments, "-o", "-")

    assert dashed == plain != ""
    assert not Path("-").exists()
