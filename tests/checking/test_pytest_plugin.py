"""`pytest --dsgen`: what is collected, what fails and how, what is rewritten, and that it costs nothing unasked."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

SCENARIO = "hw: rtx3090-24g\ngpus: 1\nmodel: llama-3.1-8b\nmethod: lora\nchunked_loss: true\n"
# An installed dsgen brings the plugin by its entry point; a checkout on the path does not.
INSTALLED = any(point.value == "dsgen.pytest_plugin" for point in metadata.entry_points(group="pytest11"))
PLUGIN = () if INSTALLED else ("-p", "dsgen.pytest_plugin")


@pytest.fixture
def repository(pytester: pytest.Pytester) -> pytest.Pytester:
    """A training repository with one scenario."""
    pytester.path.joinpath("lora.scenario.yaml").write_text(SCENARIO)
    return pytester


def run(repository: pytest.Pytester, *words: str) -> pytest.RunResult:
    """One run of pytest there."""
    return repository.runpytest_inprocess(*PLUGIN, "-p", "no:cacheprovider", *words)


def test_nothing_is_collected_unasked(repository: pytest.Pytester) -> None:
    run(repository).assert_outcomes()


def test_nothing_heavy_is_loaded_unasked() -> None:
    program = (
        "import pytest, sys; before = set(sys.modules); import dsgen.pytest_plugin; print(*set(sys.modules) - before)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert set(done.stdout.split()) - {"dsgen", "dsgen.pytest_plugin"} == set()


def test_a_config_that_is_not_there_is_written_with_update(repository: pytest.Pytester) -> None:
    missing = run(repository, "--dsgen")

    missing.assert_outcomes(failed=3)
    missing.stdout.fnmatch_lines(["*lora.json is not there*", "*dsgen render lora.scenario.yaml -q -o lora.json*"])

    run(repository, "--dsgen-update").assert_outcomes(passed=3)
    assert repository.path.joinpath("lora.json").is_file()
    run(repository, "--dsgen").assert_outcomes(passed=3)


def test_a_difference_fails_with_its_lines(repository: pytest.Pytester) -> None:
    run(repository, "--dsgen-update")
    config = repository.path / "lora.json"
    before = config.read_text()
    config.write_text(before.replace('"steps_per_print": 10', '"steps_per_print": 20'))
    assert config.read_text() != before

    result = run(repository, "--dsgen")

    result.assert_outcomes(failed=1, passed=2)
    result.stdout.fnmatch_lines(['*-  "steps_per_print": 20*', '*+  "steps_per_print": 10*', "*--dsgen-update"])
    run(repository, "--dsgen-update").assert_outcomes(passed=3)
    assert config.read_text() == before


def test_findings_and_memory_fail_in_tests_of_their_own(repository: pytest.Pytester) -> None:
    run(repository, "--dsgen-update")
    config = repository.path / "lora.json"
    text = config.read_text().replace('"train_batch_size": 16', '"train_batch_size": 128')
    config.write_text(text.replace('"train_micro_batch_size_per_gpu": 1', '"train_micro_batch_size_per_gpu": 8'))

    result = run(repository, "--dsgen", "-v")

    result.stdout.fnmatch_lines(["lora.scenario.yaml::config FAILED*", "lora.scenario.yaml::lint FAILED*",
                                 "lora.scenario.yaml::memory FAILED*", "*does-not-fit (DSG800)*",
                                 "*with lora.json it does not fit*"])  # fmt: skip


def test_a_mistake_in_a_scenario_is_said_without_a_traceback(repository: pytest.Pytester) -> None:
    repository.path.joinpath("lora.scenario.yaml").write_text("hw: rtx3090-24g\nmodell: 7b\n")

    result = run(repository, "--dsgen")

    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines(["lora.scenario.yaml:2: unknown field modell*"])
    assert "Traceback" not in result.stdout.str()


def test_settings_name_scenarios_of_any_name(repository: pytest.Pytester) -> None:
    repository.path.joinpath("seven.yaml").write_text(SCENARIO)
    repository.makepyprojecttoml('[tool.dsgen.scenarios]\n"seven.yaml" = "configs/seven.json"\n')
    repository.path.joinpath("configs").mkdir()

    run(repository, "--dsgen-update").assert_outcomes(passed=6)

    assert repository.path.joinpath("configs", "seven.json").is_file()
    run(repository, "--dsgen", "seven.yaml").assert_outcomes(passed=3)


def test_broken_settings_end_the_run_in_words(repository: pytest.Pytester) -> None:
    repository.makepyprojecttoml('[tool.dsgen.scenarios]\n"none.yaml" = "x.json"\n')

    result = run(repository, "--dsgen")

    result.stdout.fnmatch_lines(['*"none.yaml" is no file*'])
    assert "Traceback" not in result.stdout.str()
    assert "_hookexec" not in result.stdout.str()
    result.assert_outcomes(errors=1)


def test_scenarios_outside_the_folders_of_tests_are_looked_for(repository: pytest.Pytester) -> None:
    repository.makeini("[pytest]\ntestpaths = tests\n")
    folder = repository.path / "tests"
    folder.mkdir()
    folder.joinpath("test_own.py").write_text("def test_own(): pass\n")
    folder.joinpath("two.scenario.yaml").write_text(SCENARIO)

    run(repository, "--dsgen-update").assert_outcomes(passed=7)
    run(repository, "--dsgen", "tests").assert_outcomes(passed=4)
    run(repository).assert_outcomes(passed=1)


def test_the_marker_selects_the_checks(repository: pytest.Pytester) -> None:
    repository.makepyfile("def test_own(): pass")

    run(repository, "--dsgen-update", "--strict-markers", "-m", "dsgen").assert_outcomes(passed=3, deselected=1)


def test_a_fixture_renders_for_tests_of_one_s_own(repository: pytest.Pytester) -> None:
    repository.makepyfile(
        """
        import pytest

        def test_own(dsgen_config):
            config = dsgen_config("lora.scenario.yaml")
            assert config["train_micro_batch_size_per_gpu"] == 1
            assert config["bf16"] == {"enabled": True}

        def test_longer(dsgen_config):
            assert dsgen_config("lora.scenario.yaml", seq_len=2048).plan.job.seq_len == 2048

        def test_dict(dsgen_config):
            config = dsgen_config({"hw": "a100-40g", "model": "7b"}, gpus=4)
            assert config.plan.job.world == 4

        def test_mistake(dsgen_config):
            with pytest.raises(Exception, match="no_such_field"):
                dsgen_config("lora.scenario.yaml", no_such_field=1)
        """
    )

    run(repository).assert_outcomes(passed=4)


def test_where_deepspeed_is_missing_a_proof_fails_in_words(
    repository: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(repository, "--dsgen-update")
    from dsgen.shapes.errors import mistake

    def missing(*_: object, **__: object) -> None:
        raise mistake("deepspeed is not installed", todo='pip install "dsgen[proof]"', code="missing-package")

    monkeypatch.setattr("dsgen.proving.prover.prove_many", missing)
    result = run(repository, "--dsgen-prove")

    result.assert_outcomes(failed=1, passed=3)
    result.stdout.fnmatch_lines(["deepspeed is not installed", '*pip install "dsgen*'])


@pytest.mark.proof
def test_a_proof_starts_the_config(repository: pytest.Pytester) -> None:
    run(repository, "--dsgen-update")

    run(repository, "--dsgen-prove").assert_outcomes(passed=4)


def test_the_plugin_is_an_entry_point() -> None:
    project = (Path(__file__).resolve().parents[2] / "pyproject.toml").read_text("utf-8")

    assert '[project.entry-points.pytest11]\ndsgen = "dsgen.pytest_plugin"\n' in project
