"""The house: floors, walls, lengths and documentation of the modules, read from their source."""

from __future__ import annotations

import ast
import graphlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsgen.families import FAMILIES

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = REPOSITORY / "dsgen"
LONGEST_FILE = 400  # lines; from 300 on a file should make one think

# A room imports only from lower floors, and on its own floor only from the rooms that stand before it.
FLOORS = {
    "1 shapes": "shapes kernels allocators",
    "2 what there is": "deepspeed documents families proving detecting",
    "3 named": "catalog targets",
    "4 jobs": "jobs effective",
    "5 strategies": "strategies",
    "6 memory": "memory",
    "7 cost": "cost",
    "8 choice": "planning linting",
    "9 rendering": "rendering frameworks",
    "10 questions": "asking checking simulating diagnosing",
    "11 pages": "report launching api pytest_plugin",
    "12 doors": "dsgen cli __main__",  # "dsgen" is the library's face, dsgen/__init__.py
}
APART = "engine"  # runs as a child process: it imports nothing of the house but the laws below, and nothing imports it
# Arithmetic on plain numbers, so that the child's clock and the planner's are one, and its allocator and the memory's.
LAWS = {"kernels", "allocators"}
OUTSIDE = {"dsgen", "api", "pytest_plugin", "__main__"}  # the only modules that lie in no room

# Library -> the only modules that may import it, at the top or in a function.
WALLS: dict[str, tuple[str, ...]] = {
    "ruamel": ("documents.yaml.reader",),
    "cattrs": ("catalog.structure",),
    "rich": ("report.colours", "report.tables"),
    "torch": ("engine",),
    "deepspeed": ("engine",),
    "transformers": ("engine",),
    "click": ("cli", "report.reference.commands"),
    "pynvml": ("detecting.nvml",),
    "pytest": ("pytest_plugin",),
}

# Function with an `assert` -> what of our own it states; a user's mistake is never an assert.
ASSERTS = {
    "engine.surface.dump._nested": "a path has at least one part",
    "families.reading._derived": "the rules are a table of ours",
    "proving.children._answer": "the child was started with pipes",
    "proving.children.ask": "the child was started with pipes",
}

# Module outside families/ that names model types -> whose words they are there.
NAMING = {
    "linting.rules.parallel.expert_parallel_refused": "presets of DeepSpeed's AutoEP",
    "linting.rules.tensor_parallelism": "presets of DeepSpeed's AutoTP",
    "proving.sizeless": "the family that turns so many elements of a head, whatever its size",
    "report.templates": "an example in a template",
}

# Module -> why its annotations are types and not text. So are those of every module with a NamedTuple: typing would
# compile each field's text, 500 of them at a start of render.
TYPED = {"shapes.profiles": "the catalog reads what a profile says by the types of its fields"}

# A subclass's methods override theirs, and are documented there.
STANDARD = {"dict[str, Any]", "click.Group", "CPU_Accelerator"}

HEAVY = ("torch", "deepspeed", "transformers", "ruamel", "rich", "jsonschema", "yaml", "numpy")

# What answers other questions than a render's; it cost time at every start until it was imported where it is used.
NOT_FOR_A_RENDER = (
    *("dsgen.linting", "dsgen.asking", "dsgen.simulating", "dsgen.proving", "dsgen.effective", "dsgen.engine"),
    *("dsgen.targets", "dsgen.documents", "dsgen.shapes.findings", "dsgen.report.reference"),
    *("asyncio", "concurrent", "email", "http", "logging", "multiprocessing", "shutil", "socket", "sqlite3"),
    *("subprocess", "tempfile", "xml"),
)


def modules() -> dict[str, Path]:
    """Name below dsgen -> file; a package is named by its folder, the face is `dsgen`."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "dsgen"] = path
    return found


MODULES = modules()
TREES = {name: ast.parse(path.read_text("utf-8")) for name, path in MODULES.items()}


def imports(name: str) -> Iterator[str]:
    """Everything a module imports, inside functions too; of dsgen the module itself: dsgen.shapes.layers."""
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} has a relative import"
            targets = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for target in targets:
            yield f"dsgen.{_module(target)}" if target.split(".")[0] == "dsgen" else target


def _module(target: str) -> str:
    """dsgen.shapes.layers.Rank -> layers."""
    below = target.removeprefix("dsgen").removeprefix(".")
    while below and below not in MODULES:
        below = below.rpartition(".")[0]
    return below or "dsgen"


def own_imports(name: str) -> set[str]:
    """The modules of dsgen that a module imports; a room may be named as a library is (deepspeed)."""
    own = {target.removeprefix("dsgen.") for target in imports(name) if target.startswith("dsgen.")}
    return own - {name}


def entry(name: str) -> str:
    """A module's entry in FLOORS: its room where it lies in one."""
    return name.partition(".")[0]


ORDER = {name: place for place, name in enumerate(name for floor in FLOORS.values() for name in floor.split())}


def test_every_module_lies_in_a_room() -> None:
    on_disk = {entry(name) for name in MODULES} - {APART}

    assert on_disk == set(ORDER)
    assert {name for name in on_disk if f"{name}.py" in {path.name for path in PACKAGE.glob("*.py")}} | {
        "dsgen"
    } == OUTSIDE


@pytest.mark.parametrize("name", [name for name in MODULES if entry(name) != APART])
def test_a_module_imports_only_what_lies_below_it(name: str) -> None:
    others = {target for target in own_imports(name) if entry(target) != entry(name)}

    above = sorted(target for target in others if ORDER.get(entry(target), len(ORDER)) > ORDER[entry(name)])

    assert above == []


def test_no_circle_inside_a_package() -> None:
    graph = {name: own_imports(name) for name in MODULES}

    assert len(list(graphlib.TopologicalSorter(graph).static_order())) == len(MODULES)


def test_the_engine_imports_nothing_of_the_house_but_the_laws() -> None:
    engine = [name for name in MODULES if entry(name) == APART]

    assert len(engine) > 1
    assert {entry(target) for name in engine for target in own_imports(name)} <= {APART, *LAWS}


def test_the_laws_load_nothing_that_the_engine_s_interpreter_may_lack() -> None:
    """A child gets an empty package `dsgen` that only knows where its modules lie; the laws must load there."""
    program = (
        "import sys, types; package = types.ModuleType('dsgen'); package.__path__ = [sys.argv[1]]; "
        "sys.modules['dsgen'] = package; import dsgen.kernels, dsgen.allocators; print(*sorted(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", program, str(PACKAGE)], capture_output=True, text=True, check=True
    )

    loaded = done.stdout.split()

    assert {"dsgen.kernels.rates", "dsgen.allocators.expandable"} <= set(loaded)
    assert [
        name for name in loaded if name.startswith("dsgen.") and entry(name.removeprefix("dsgen.")) not in LAWS
    ] == []


@pytest.mark.parametrize("library", WALLS)
def test_a_library_stays_behind_its_wall(library: str) -> None:
    users = {name for name in MODULES if any(target.split(".")[0] == library for target in imports(name))}

    assert users, f"nothing uses {library}"
    assert [name for name in users if not name.startswith(WALLS[library])] == []


@pytest.mark.parametrize("name", [name for name in MODULES if entry(name) not in ("cli", APART)])
def test_only_the_command_line_prints_and_exits(name: str) -> None:
    calls = [node.func for node in ast.walk(TREES[name]) if isinstance(node, ast.Call)]
    said = {ast.unparse(function) for function in calls}

    assert said & {"print", "exit", "quit", "sys.exit", "SystemExit"} == set()


@pytest.mark.parametrize(
    "program",
    [
        "import dsgen",
        "import dsgen; dsgen.render(dsgen.profile('a100-40g') | dsgen.profile('7b'))",
        "from dsgen.cli import cli; cli(['render', '--hw', 'a100-40g', '--model', '7b'], standalone_mode=False)",
        "from dsgen.cli import cli; cli(['--help'], standalone_mode=False)",
    ],
)
def test_the_short_way_loads_nothing_heavy(program: str) -> None:
    ending = "; import sys; sys.stderr.write(' '.join(['loaded:', *sys.modules]))"
    done = subprocess.run([sys.executable, "-c", program + ending], capture_output=True, text=True, check=True)

    loaded = {name.split(".")[0] for name in done.stderr.rpartition("loaded: ")[2].split()}

    assert "dsgen" in loaded
    assert loaded & set(HEAVY) == set()


def test_a_render_imports_nothing_that_it_does_not_need() -> None:
    render = "cli(['render', '--hw', 'a100-40g', '--model', '7b'], standalone_mode=False)"
    libraries = "import sys, attrs, cattrs, click; known = set(sys.modules)"  # and what those need on each Python
    program = f"{libraries}; from dsgen.cli import cli; {render}"
    ending = "; sys.stderr.write(' '.join(['loaded:', *(set(sys.modules) - known)]))"
    done = subprocess.run([sys.executable, "-c", program + ending], capture_output=True, text=True, check=True)

    loaded = set(done.stderr.rpartition("loaded: ")[2].split())
    assert {"dsgen.rendering.configs", "dsgen.families.llama"} <= loaded
    assert sorted(name for name in loaded if name.startswith(NOT_FOR_A_RENDER)) == []
    assert {name for name in loaded if name.startswith("dsgen.families.")} & {
        f"dsgen.families.{name}" for name in ("bloom", "falcon", "gpt2", "t5", "mixtral", "qwen3")
    } == set()


@pytest.mark.parametrize("name", MODULES)
def test_a_file_is_short(name: str) -> None:
    assert len(MODULES[name].read_text("utf-8").splitlines()) <= LONGEST_FILE


@pytest.mark.parametrize("name", MODULES)
def test_a_module_opens_with_a_sentence_and_names_what_is_public(name: str) -> None:
    tree = TREES[name]
    docstring = (ast.get_docstring(tree) or "").partition("\n\n")[0]

    assert docstring.endswith((".", ":")), "the first paragraph is a sentence"
    assigned = {ast.unparse(target) for node in tree.body if isinstance(node, ast.Assign) for target in node.targets}
    first = next((node for node in tree.body if not isinstance(node, ast.Expr)), None)
    if first is not None:  # a package that only holds modules has nothing but its sentence
        bases = {ast.unparse(base) for node in tree.body if isinstance(node, ast.ClassDef) for base in node.bases}
        as_text = ast.unparse(first) == "from __future__ import annotations"
        assert as_text != ("NamedTuple" in bases or name in TYPED)
    if any(isinstance(node, (ast.FunctionDef, ast.ClassDef)) for node in tree.body):
        assert "__all__" in assigned


@pytest.mark.parametrize("name", MODULES)
def test_what_is_public_is_documented(name: str) -> None:
    kinds = (ast.FunctionDef, ast.ClassDef)
    top = [node for node in TREES[name].body if isinstance(node, kinds) and not node.name.startswith("_")]
    methods = [
        item
        for node in top
        if isinstance(node, ast.ClassDef) and not {ast.unparse(base) for base in node.bases} & STANDARD
        for item in node.body
        if isinstance(item, ast.FunctionDef) and not item.name.startswith("_")
    ]

    assert [node.name for node in (*top, *methods) if not ast.get_docstring(node)] == []


def test_an_assert_states_something_of_our_own() -> None:
    found = {
        f"{name}.{function.name}"
        for name, tree in TREES.items()
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        if any(isinstance(node, ast.Assert) for node in ast.walk(function))
    }

    assert found == set(ASSERTS)


def test_what_is_special_about_a_family_stands_in_its_file() -> None:
    """No other module asks which model type it has: a trait of the family answers."""

    def named(tree: ast.Module) -> bool:
        constants = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
        return any(isinstance(value, str) and value in FAMILIES for value in constants)

    outside = {name: tree for name, tree in TREES.items() if entry(name) not in ("families", APART)}

    assert {name for name, tree in outside.items() if named(tree)} == set(NAMING)


def test_ci_runs_every_session() -> None:
    workflow = (REPOSITORY / ".github" / "workflows" / "ci.yml").read_text("utf-8")

    matrix = next(line for line in workflow.splitlines() if line.strip().startswith("session: ["))

    assert matrix.partition("[")[2].rstrip("]").split(", ") == default_sessions()


def default_sessions() -> list[str]:
    """What `nox` runs, the tests once for each Python."""
    pythons, sessions = sessions_named("PYTHONS"), sessions_named("nox.options.sessions")
    return [name for one in sessions for name in ([f"tests-{it}" for it in pythons] if one == "tests" else [one])]


def sessions_named(name: str) -> list[str]:
    """A list of noxfile.py."""
    body = ast.parse((REPOSITORY / "noxfile.py").read_text("utf-8")).body
    values = {ast.unparse(node.targets[0]): node.value for node in body if isinstance(node, ast.Assign)}
    found: list[str] = ast.literal_eval(values[name])
    return found


def test_everything_has_what_nox_runs_and_the_workflow_at_night_runs_it() -> None:
    nightly = (REPOSITORY / ".github" / "workflows" / "nightly.yml").read_text("utf-8")
    default, everything = default_sessions(), sessions_named("EVERYTHING")

    assert everything[: len(default)] == default
    assert {f"whole-{python}" for python in sessions_named("PYTHONS") if python != "3.11"} < set(everything)
    assert "run: nox -s everything\n" in nightly


def test_what_can_differ_between_pythons_is_there() -> None:
    tests = REPOSITORY / "tests"
    listed = next(
        ast.literal_eval(node.value)
        for node in ast.parse((tests / "conftest.py").read_text("utf-8")).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ACROSS_PYTHONS"
    )

    assert [one for one in listed if not (tests / one).exists()] == []


def test_ruff_has_one_version() -> None:
    pinned = re.findall(r"ruff==([\d.]+)", (REPOSITORY / "pyproject.toml").read_text("utf-8"))
    hooks = (REPOSITORY / ".pre-commit-config.yaml").read_text("utf-8")
    hook = re.findall(r"ruff-pre-commit\n    rev: v([\d.]+)", hooks)

    assert pinned == hook
    assert len(pinned) == 1
