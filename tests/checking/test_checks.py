"""A scenario against what is committed beside it: which config, what differs, what lint and memory say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import dsgen
from dsgen import checking
from dsgen.frameworks import FRAMEWORKS
from dsgen.linting import sources
from dsgen.report import checks
from dsgen.shapes.errors import DsgenError

SCENARIO = "hw: rtx3090-24g\ngpus: 1\nmodel: llama-3.1-8b\nmethod: lora\nchunked_loss: true\n"
TOO_LARGE = "hw: rtx3090-24g\ngpus: 1\nmodel: llama-3.1-70b\nzero_stage: 0\noffload: none\n"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def _here(elsewhere: None) -> None:
    Path("lora.scenario.yaml").write_text(SCENARIO)


def commit(name: str = "lora.json") -> Path:
    """What the scenario renders, committed."""
    dsgen.render(dsgen.scenario("lora.scenario.yaml")).write(name)
    return Path(name)


# Which config belongs to which scenario.


@pytest.mark.parametrize(
    ("there", "config"),
    [
        ([], "lora.json"),
        (["lora.hjson"], "lora.hjson"),
        (["lora.json", "lora.hjson", "ds_config.json"], "lora.json"),
        (["ds_config.json"], "ds_config.json"),
        (["ds_config.json", "full.scenario.yaml"], "lora.json"),  # whose would it be?
    ],
)
def test_the_config_stands_beside_the_scenario(there: list[str], config: str) -> None:
    for name in there:
        Path(name).write_text("")

    assert checking.pair("lora.scenario.yaml").config == config


def test_settings_name_scenarios_configs_and_files() -> None:
    Path("jobs").mkdir()
    Path("jobs/seventy.yaml").write_text(SCENARIO)
    Path("jobs/seven.yaml").write_text(SCENARIO)
    Path("train.sh").write_text("")
    Path("pyproject.toml").write_text(
        '[tool.dsgen.scenarios]\n"jobs/seventy.yaml" = "configs/seventy.json"\n'
        '"jobs/seven.yaml" = { config = "seven.hjson", files = ["train.sh"] }\n'
    )

    listed = checking.pairs(".")

    assert [(one.scenario, one.config, one.files) for one in listed] == [
        ("jobs/seven.yaml", "seven.hjson", ("train.sh",)),
        ("jobs/seventy.yaml", "configs/seventy.json", ()),
        ("lora.scenario.yaml", "lora.json", ()),
    ]
    assert [one.scenario for one in checking.pairs("jobs")] == ["jobs/seven.yaml", "jobs/seventy.yaml"]
    assert checking.is_named(Path("jobs/seven.yaml"))
    assert not checking.is_named(Path("jobs/other.yaml"))


@pytest.mark.parametrize(
    ("table", "what"),
    [
        ('scenarios = "x"', "tool.dsgen.scenarios is 'x'; it must be a table"),
        ('scenarios = {"no.yaml" = "x.json"}', 'scenarios."no.yaml" is no file'),
        (
            'scenarios = {"lora.scenario.yaml" = 3}',
            '."lora.scenario.yaml".config is 3; it must be the path of a config',
        ),
        ('scenarios = {"lora.scenario.yaml" = {files = "x"}}', ".files is 'x'; it must be a list of paths"),
        ('scenarios = {"lora.scenario.yaml" = {files = ["x"]}}', ".files names x, which is not there"),
        (
            'scenarios = {"lora.scenario.yaml" = {target = "hf"}}',
            ".target is 'hf'; it must be one of deepspeed, hf-trainer",
        ),
        ('scenarios = {"lora.scenario.yaml" = {resolve = 1}}', ".resolve is 1; it must be true or false"),
        ('scenarios = {"lora.scenario.yaml" = {configs = "x"}}', "no setting tool.dsgen.scenarios"),
        ('scenario = {"lora.scenario.yaml" = "x"}', "no setting tool.dsgen.scenario; the settings are lint, scenarios"),
    ],
)
def test_wrong_settings_are_said_with_their_place(run: Run, table: str, what: str) -> None:
    Path("pyproject.toml").write_text(f"[tool.dsgen]\n{table}\n")

    code, _, err = run("render", "--check", "lora.scenario.yaml")

    assert code == 2
    assert err.startswith("error: ")
    assert "pyproject.toml" in err
    assert what in err


def test_the_files_of_a_job_are_those_that_name_its_config() -> None:
    commit()
    Path("args.yaml").write_text("deepspeed: lora.json\nbf16: true\n")
    Path("other.yaml").write_text("deepspeed: other.json\nbf16: true\n")
    Path("readme.md").write_text("lora.json")

    assert checking.pair("lora.scenario.yaml").files == ("args.yaml",)
    assert [str(path) for path in sources.named_by("args.yaml")] == ["lora.json"]


# The checks.


def test_what_is_as_it_must_be() -> None:
    commit()

    checked = dsgen.check("lora.scenario.yaml")

    assert checked.ok and checked.clean and checked.fits
    assert checked.tear == ()
    assert [line.split()[0] for line in checks.text(checked).splitlines()] == [
        "lora.scenario.yaml", "config", "lint", "memory",
    ]  # fmt: skip
    assert dsgen.check("lora.scenario.yaml", "lora.json").ok


def test_reasons_in_a_config_are_committed_too() -> None:
    Path("lora.hjson").write_text(dsgen.render(dsgen.scenario("lora.scenario.yaml")).to_hjson())

    assert dsgen.check("lora.scenario.yaml").ok

    Path("lora.hjson").write_text(dsgen.render(dsgen.scenario("lora.scenario.yaml")).to_json())
    checked = dsgen.check("lora.scenario.yaml")
    assert not checked.ok
    assert "-o lora.hjson --format hjson" in checks.text(checked)


def test_one_byte_is_a_difference() -> None:
    config = commit()
    config.write_bytes(config.read_bytes()[:-1])

    assert not dsgen.check("lora.scenario.yaml").ok

    config = commit()
    config.write_bytes(config.read_bytes().replace(b"\n", b"\r\n"))
    assert "other line ends" in dsgen.check("lora.scenario.yaml").tear[0]

    config.write_bytes(b'{"train_batch_size": "\xff"}\n')
    assert any(
        line.startswith("-") for line in checking.tear(checking.pair("lora.scenario.yaml"), {"lora.json": "{}\n"})
    )


def test_the_files_of_the_job_are_linted_with_it() -> None:
    commit()
    Path("args.yaml").write_text("deepspeed: lora.json\nbf16: true\n")

    checked = dsgen.check("lora.scenario.yaml")

    assert [file.document.name for file in checked.linted] == ["lora.json", "args.yaml"]
    assert checked.linted[0].target == "hf-trainer"


def test_a_committed_config_that_does_not_fit_is_said() -> None:
    config = commit()
    config.write_text(config.read_text().replace('"train_batch_size": 16', '"train_batch_size": 128').replace(
        '"train_micro_batch_size_per_gpu": 1', '"train_micro_batch_size_per_gpu": 8'))  # fmt: skip

    checked = dsgen.check("lora.scenario.yaml")

    assert not checked.fits
    assert not checked.clean
    assert "with lora.json it does not fit" in checks.text(checked)
    assert max(map(len, checks.text(checked).splitlines())) <= 80


def test_a_scenario_that_nothing_fits_is_said_and_not_raised() -> None:
    Path("lora.scenario.yaml").write_text(TOO_LARGE)

    checked = dsgen.check("lora.scenario.yaml")

    assert not checked.ok
    assert checked.refused is not None and checked.refused.code == "does-not-fit"
    assert "render  " in checks.text(checked)


def test_an_update_writes_once() -> None:
    pair = checking.pair("lora.scenario.yaml")
    texts = checking.rendered(pair)[1]

    assert [checking.update(texts), checking.update(texts)] == [True, False]
    assert {path: checking.committed(path) for path in texts} == texts


@pytest.mark.parametrize("target", [name for name in FRAMEWORKS if name != "deepspeed"])
@pytest.mark.parametrize("resolve", [False, True])
def test_what_a_framework_is_given_is_committed_whole(run: Run, target: str, resolve: bool) -> None:
    words = ["--target", target, *(["--resolve"] if resolve else [])]
    assert run("render", "lora.scenario.yaml", "-q", "-o", "lora.json", *words)[0] == 0
    texts = checking.rendered(checking.pair("lora.scenario.yaml", None, target, resolve))[1]

    assert {path.name for path in Path().iterdir()} == {*texts, "lora.scenario.yaml"}
    code, out, _ = run("render", "--check", "lora.scenario.yaml", *words)
    assert (code, out.count("\n")) == (0, 4), out
    Path("pyproject.toml").write_text(
        f'[tool.dsgen.scenarios]\n"lora.scenario.yaml" = {{target = "{target}", resolve = {str(resolve).lower()}}}\n'
    )
    assert dsgen.check("lora.scenario.yaml").ok
    last = Path(list(texts)[-1])
    last.write_text(f"{last.read_text()} ")
    assert " ".join(["-o lora.json", *words]) in checks.text(dsgen.check("lora.scenario.yaml"))


def test_the_files_are_the_same_from_every_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("pyproject.toml").write_text('[tool.dsgen.scenarios]\n"sub/x.scenario.yaml" = {target = "hf-trainer"}\n')
    Path("sub").mkdir()
    Path("sub/x.scenario.yaml").write_text(SCENARIO)
    here = list(checking.rendered(checking.pair("sub/x.scenario.yaml"))[1].values())
    assert "deepspeed: sub/x.json  #" in here[1]
    message = checks.fault_of_tear(checking.pair("sub/x.scenario.yaml"), ("x",))
    assert "  dsgen render sub/x.scenario.yaml -q -o sub/x.json --target hf-trainer\n" in message

    monkeypatch.chdir("sub")

    pair = checking.pair("x.scenario.yaml")
    assert list(checking.rendered(pair)[1].values()) == here
    root = Path.cwd().parent
    assert f"  cd {root} && dsgen render sub/x.scenario.yaml -q -o sub/x.json" in checks.fault_of_tear(pair, ("x",))


# The command line.


def test_the_command_checks_one_scenario(run: Run) -> None:
    code, out, _ = run("render", "--check", "lora.scenario.yaml")
    assert code == 1
    assert "lora.json is not there" in out
    assert not Path("lora.json").exists()

    commit()
    assert run("render", "--check", "lora.scenario.yaml")[0] == 0
    assert run("render", "--check", "lora.scenario.yaml", "-q")[:2] == (0, "")

    commit("other.json")
    code, out, _ = run("render", "--check", "lora.scenario.yaml", "-o", "other.json")
    assert code == 0
    assert "other.json is what is rendered" in out


def test_the_command_checks_a_folder(run: Run) -> None:
    Path("b").mkdir()
    Path("b/two.scenario.yaml").write_text(SCENARIO)
    commit()

    code, out, _ = run("render", "--check", ".")

    assert code == 1
    assert "b/two.json is not there" in out
    assert out.endswith("1 of 2 scenarios not as committed\n")


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ([], "--check names no scenario"),
        (["lora.scenario.yaml", "--hw", "a100-40g"], "--check and --hw exclude each other"),
        (["lora.scenario.yaml", "--set", "training.seq_len=8"], "--check and --set exclude each other"),
        (["nowhere.yaml"], "nowhere.yaml: no such file"),
        (["empty"], "empty: no scenario is here"),
    ],
)
def test_mistakes_are_said(run: Run, words: list[str], what: str) -> None:
    Path("empty").mkdir()

    code, out, err = run("render", "--check", *words)

    assert (code, out) == (2, "")
    assert what in err


def test_a_config_that_is_none_is_the_users_mistake() -> None:
    Path("lora.json").write_text("[]\n")

    with pytest.raises(DsgenError, match=r"lora\.json"):
        dsgen.check("lora.scenario.yaml")


def test_a_save_that_does_not_fit_is_said_and_fails_no_check() -> None:
    Path("two.yaml").write_text(
        "hw: a100-80g\ngpus: 8\nmodel: llama-3-8b\nzero_stage: 2\noffload: none\ntp: 1\nmicro_batch: 1\n"
        "loading: mapped\nhost_memory: 130 GiB\n"
    )
    for target, said in (("hf-trainer", True), ("deepspeed", False)):
        pair = checking.pair("two.yaml", "two.json", target)
        checking.update(checking.rendered(pair)[1])
        checked = checking.check(pair)
        told = checks.text(checked)

        assert checked.ok, told
        assert bool(checked.cautions) == said
        assert ("the steps fit, but saving and resuming do not fit in host RAM" in " ".join(told.split())) == said
        assert max(map(len, told.splitlines())) <= 80
