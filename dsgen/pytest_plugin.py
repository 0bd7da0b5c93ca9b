"""The tests of a training repository: `pytest --dsgen` checks every committed config against its scenario.

Nothing of dsgen is loaded unless it is asked for: every pytest run imports this module.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dsgen.checking import Pair
    from dsgen.rendering import Config

__all__ = [
    "CommittedItem",
    "ScenarioFile",
    "dsgen_config",
    "pytest_addoption",
    "pytest_collect_file",
    "pytest_collection",
    "pytest_configure",
]

_SUFFIXES = (".yaml", ".yml")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --dsgen, and what goes with it."""
    group = parser.getgroup("dsgen", "DeepSpeed configs")
    group.addoption(
        "--dsgen",
        action="store_true",
        help="Check each *.scenario.yaml, and those of [tool.dsgen.scenarios]: that its committed config is what is "
        "rendered, that lint says nothing of the job's files, and that it fits.",
    )
    group.addoption("--dsgen-update", action="store_true", help="Write what is rendered over the committed configs.")
    group.addoption(
        "--dsgen-prove", action="store_true", help="Also start each config: deepspeed.initialize and three steps."
    )


def pytest_configure(config: pytest.Config) -> None:
    """Name the marker of the checks."""
    config.addinivalue_line("markers", "dsgen: a committed DeepSpeed config against its scenario (--dsgen)")


def _asked(config: pytest.Config) -> bool:
    """Whether any of the options was given."""
    return any(config.getoption(name) for name in ("dsgen", "dsgen_update", "dsgen_prove"))


def pytest_collection(session: pytest.Session) -> None:
    """Where nobody named files, look for scenarios outside `testpaths` too."""
    config = session.config
    if not _asked(config) or config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    from dsgen import checking
    from dsgen.shapes.errors import DsgenError

    seen = [(config.invocation_params.dir / name.partition("::")[0]).resolve() for name in config.args]
    try:
        listed = checking.pairs(str(config.rootpath))
    except DsgenError as error:
        if error.code != "missing":
            raise pytest.UsageError(str(error)) from None
        return
    paths = (Path(pair.scenario).resolve() for pair in listed)
    config.args += [str(path) for path in paths if not any(path.is_relative_to(one) for one in seen)]


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> ScenarioFile | None:
    """A scenario as a file of tests, with --dsgen."""
    if not _asked(parent.config) or file_path.suffix not in _SUFFIXES:
        return None
    from dsgen import checking
    from dsgen.shapes.errors import DsgenError

    try:
        named = checking.is_named(file_path)
    except DsgenError:
        named = True  # broken settings: `collect` says why
    collected: ScenarioFile | None = ScenarioFile.from_parent(parent, path=file_path) if named else None
    return collected


class ScenarioFile(pytest.File):
    """A scenario: its committed config, what lint says of the job, its memory, and with --dsgen-prove its start."""

    def collect(self) -> Iterable[CommittedItem]:
        """One test for each check."""
        from dsgen.shapes.errors import DsgenError

        try:
            _ = self.pair
        except DsgenError as error:
            raise self.CollectError(str(error)) from None
        checks = {"config": self.compare, "lint": self.lint, "memory": self.fit}
        if self.config.getoption("dsgen_prove"):
            checks["starts"] = self.prove
        for name, run in checks.items():
            yield CommittedItem.from_parent(self, name=name, run=run)

    @functools.cached_property
    def pair(self) -> Pair:
        """The scenario and what is committed for it, named as from the folder where pytest was started."""
        from dsgen import checking

        return checking.pair(str(self.path))

    @functools.cached_property
    def rendered(self) -> tuple[Config, Mapping[str, str]]:
        """The config and the texts to be committed by their paths, rendered once for all checks."""
        from dsgen import checking

        return checking.rendered(self.pair)

    def compare(self) -> str:
        """What differs between the committed config and the rendered one, unless it is to be rewritten."""
        from dsgen import checking
        from dsgen.report import checks

        texts = self.rendered[1]
        if self.config.getoption("dsgen_update"):
            checking.update(texts)
        return checks.fault_of_tear(self.pair, checking.tear(self.pair, texts))

    def lint(self) -> str:
        """What lint says of the committed config and the files that start it."""
        from dsgen import checking
        from dsgen.report import checks

        self._there()
        return checks.fault_of_findings(checking.linted(self.pair))

    def fit(self) -> str:
        """What does not fit with the committed config."""
        from dsgen import checking
        from dsgen.report import checks

        self._there()
        return checks.fault_of_memory(self.pair, checking.memory(self.pair))

    def prove(self) -> str:
        """What failed when the config was started."""
        from dsgen.asking.from_python import prove
        from dsgen.proving.prover import PROVED
        from dsgen.report import proof as report

        proof = prove(self.rendered[0])
        return "" if proof.outcome == PROVED else report.text(proof)

    def _there(self) -> None:
        """Write the committed config first with --dsgen-update; refuse to check one that is not there."""
        from dsgen import checking
        from dsgen.shapes.errors import mistake

        if self.config.getoption("dsgen_update"):
            checking.update(self.rendered[1])
        elif not Path(self.pair.config).is_file():
            raise mistake(
                f"{self.pair.config} is not there", todo="pytest --dsgen-update writes it.", code="unreadable"
            )


class CommittedItem(pytest.Item):
    """One check of one scenario."""

    def __init__(self, *, run: Callable[[], str], **others: Any) -> None:
        super().__init__(**others)
        self._run = run
        self.add_marker("dsgen")

    def runtest(self) -> None:
        """Fail with what the check says."""
        from dsgen.shapes.errors import DsgenError

        try:
            said = self._run()
        except DsgenError as error:
            said = str(error)
        if said:
            pytest.fail(said.rstrip("\n"), pytrace=False)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Where the test stands: in its scenario."""
        return self.path, None, self.name


@pytest.fixture
def dsgen_config(request: pytest.FixtureRequest) -> Callable[..., Config]:
    """Render a scenario in a test of one's own: `dsgen_config("lora.scenario.yaml", seq_len=8192)`.

    The file is looked for beside the test, then from the root of the tests. Fields of a scenario that are given with it
    win over the file's; a dict of fields says a scenario without a file.
    """
    from dsgen import api
    from dsgen.jobs import scenarios

    def render(scenario: Any, **fields: Any) -> Config:
        if isinstance(scenario, dict):
            return api.render({**scenario, **fields})
        beside = request.path.parent / scenario
        file = scenarios.read(str(beside if beside.is_file() else request.config.rootpath / scenario))
        said = scenarios.merge(file, scenarios.of(fields, "dsgen_config"))
        return api.render(api.Layers(scenarios.layers(said), said.deepspeed))

    return render
