"""The house: floors, walls, lengths and documentation of the modules, read from their source."""

from __future__ import annotations

import ast
import functools
import graphlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from parsed import parsed

from dsgen.families import FAMILIES

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = REPOSITORY / "dsgen"
TESTS = REPOSITORY / "tests"
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
    "planning.candidates.weighed": "what holds alone is more than the GPU has",
    "proving.children._answer": "the child was started with pipes",
    "proving.children.ask": "the child was started with pipes",
}

# Module outside families/ that names model types -> whose words they are there.
NAMING = {
    "asking.training_programs": "the types for which peft has a choice of matrices",
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


def modules() -> dict[str, Path]:
    """Name below dsgen -> file; a package is named by its folder, the face is `dsgen`."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "dsgen"] = path
    return found


MODULES = modules()
TREES = {name: parsed(path) for name, path in MODULES.items()}


@functools.cache
def imports(name: str) -> tuple[str, ...]:
    """Everything a module imports, inside functions too; of dsgen the module itself: dsgen.shapes.layers."""
    found = []
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} has a relative import"
            targets = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        found += [f"dsgen.{_module(one)}" if one.split(".")[0] == "dsgen" else one for one in targets]
    return tuple(found)


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


def test_a_module_imports_only_what_lies_below_it() -> None:
    own = {name: own_imports(name) for name in MODULES if entry(name) != APART}

    above = {
        f"{name} imports {target}"
        for name, targets in own.items()
        for target in targets
        if entry(target) != entry(name) and ORDER.get(entry(target), len(ORDER)) > ORDER[entry(name)]
    }

    assert above == set()


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


def test_only_the_command_line_prints_and_exits() -> None:
    said = {
        f"{name} calls {call}"
        for name, tree in TREES.items()
        if entry(name) not in ("cli", APART)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute))
        if (call := ast.unparse(node.func)) in ("print", "exit", "quit", "sys.exit", "SystemExit")
    }

    assert said == set()


def test_a_file_is_short() -> None:
    lines = {name: len(path.read_text("utf-8").splitlines()) for name, path in MODULES.items()}

    assert {name: count for name, count in lines.items() if count > LONGEST_FILE} == {}


def test_a_module_opens_with_a_sentence() -> None:
    """Its first paragraph is one."""
    opened = {name: (ast.get_docstring(tree) or "").partition("\n\n")[0] for name, tree in TREES.items()}

    assert [name for name, words in opened.items() if not words.endswith((".", ":"))] == []


def test_a_module_has_annotations_as_text_but_where_they_are_compiled() -> None:
    wrong = []
    for name, tree in TREES.items():
        first = next((node for node in tree.body if not isinstance(node, ast.Expr)), None)
        if first is not None:  # a package that only holds modules has nothing but its sentence
            bases = {ast.unparse(base) for node in tree.body if isinstance(node, ast.ClassDef) for base in node.bases}
            as_text = ast.unparse(first) == "from __future__ import annotations"
            if as_text == ("NamedTuple" in bases or name in TYPED):
                wrong.append(name)

    assert wrong == []


def test_a_module_names_what_is_public() -> None:
    kinds = (ast.FunctionDef, ast.ClassDef)
    assigned = {
        name: {ast.unparse(target) for node in tree.body if isinstance(node, ast.Assign) for target in node.targets}
        for name, tree in TREES.items()
        if any(isinstance(node, kinds) for node in tree.body)
    }

    assert [name for name, names in assigned.items() if "__all__" not in names] == []


def test_what_is_public_is_documented() -> None:
    assert [f"{name}.{one}" for name in MODULES for one in undocumented(name)] == []


def undocumented(name: str) -> list[str]:
    """What a module makes public without a docstring."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    top = [node for node in TREES[name].body if isinstance(node, kinds) and not node.name.startswith("_")]
    methods = [
        item
        for node in top
        if isinstance(node, ast.ClassDef) and not {ast.unparse(base) for base in node.bases} & STANDARD
        for item in node.body
        if isinstance(item, ast.FunctionDef) and not item.name.startswith("_")
    ]
    return [node.name for node in (*top, *methods) if not ast.get_docstring(node)]


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
    """What `nox` runs."""
    return sessions_named("nox.options.sessions")


def test_nox_runs_tests_on_every_python() -> None:
    default = default_sessions()

    assert len(default) == len(set(default))
    assert {one for one in default if one.startswith("tests")} == {f"tests-{it}" for it in sessions_named("PYTHONS")}


def sessions_named(name: str) -> list[str]:
    """A list of noxfile.py."""
    body = ast.parse((REPOSITORY / "noxfile.py").read_text("utf-8")).body
    values = {ast.unparse(node.targets[0]): node.value for node in body if isinstance(node, ast.Assign)}
    found: list[str] = ast.literal_eval(values[name])
    return found


def test_the_workflow_at_night_runs_every_session_that_can_fail_once() -> None:
    nightly = (REPOSITORY / ".github" / "workflows" / "nightly.yml").read_text("utf-8")
    contributing = (REPOSITORY / "CONTRIBUTING.md").read_text("utf-8")
    default, everything, thorough = default_sessions(), sessions_named("EVERYTHING"), sessions_named("THOROUGH")

    together = [*default, *everything, *thorough]
    assert len(together) == len(set(together))
    assert {f"whole-{python}" for python in sessions_named("PYTHONS") if python != "3.11"} < set(thorough)
    for name, sessions in (("everything", everything), ("thorough", thorough)):
        listed = re.findall(rf"^\| `([\w-]+)` \|.*; in `{name}` \|", contributing, re.MULTILINE)
        assert sorted(listed) == sorted({one.partition("-3.")[0] for one in sessions})
    runs = re.findall(r"^ *- command: (.*)$", nightly, re.MULTILINE)
    assert runs == ["nox", "nox -s everything", "nox -s thorough"]
    assert "run: ${{ matrix.command }}\n" in nightly


def test_a_session_without_an_environment_of_its_own_requires_the_one_that_is_installed_for_it() -> None:
    """Two sessions run at a time: what each installed into the same environment would break what the other runs."""
    tree = ast.parse((REPOSITORY / "noxfile.py").read_text("utf-8"))
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}

    for name in sessions_named("EVERYTHING"):
        decorator, body = ast.unparse(functions[name].decorator_list[0]), ast.unparse(functions[name])
        assert "venv_backend='none'" in decorator
        assert "requires=[PROOF_ENVIRONMENT]" in decorator
        assert "enter_proof_environment(session)" in body
        assert ".install(" not in body
        assert "install_proof(" not in body


def test_what_can_differ_between_pythons_is_there() -> None:
    listed = table_of_tests("ACROSS_PYTHONS")

    assert [one for one in listed if not (TESTS / one).exists()] == []


def table_of_tests(name: str) -> Any:
    """A table of tests/conftest.py."""
    for node in ast.parse((TESTS / "conftest.py").read_text("utf-8")).body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if [ast.unparse(target) for target in targets] == [name]:
                assert node.value is not None
                return ast.literal_eval(node.value)
    raise AssertionError(f"tests/conftest.py has no {name}")


def test_of_every_file_that_is_left_to_the_night_nox_runs_what_is_listed() -> None:
    listed, cases_alone = table_of_tests("NIGHTLY"), table_of_tests("NIGHTLY_CASES")
    names = {marks: collected("proof", marks, *listed, *cases_alone) for marks in ("nightly", "not nightly")}

    for file, cases in cases_alone.items():
        left = {name.partition("[")[2].removesuffix("]") for place, name in names["nightly"] if place == file}
        assert left == set(cases)
        assert [name for place, name in names["not nightly"] if place == file]

    for file, kept in listed.items():
        runs = {name for place, name in names["not nightly"] if place == file}
        cases = {name.partition("[")[2].removesuffix("]") for name in runs} | {name.partition("[")[0] for name in runs}
        assert [one for one in kept if one not in runs | cases] == [], f"{file} has no such test or case"
        assert bool(kept) == bool(runs), f"{file} keeps others than are listed"
        assert [name for place, name in names["nightly"] if place == file], f"nothing of {file} is left to the night"


def collected(*marks_and_files: str) -> set[tuple[str, str]]:
    """File and name of the tests that have two markers."""
    one, other, *files = marks_and_files
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", f"{one} and {other}"]
    paths = [str(TESTS / file) for file in files]
    done = subprocess.run([*command, *paths], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    ids = [line.removeprefix("tests/") for line in done.stdout.splitlines() if "::" in line]
    return {(place, name) for place, _, name in (line.partition("::") for line in ids)}


def test_ruff_has_one_version() -> None:
    pinned = re.findall(r"ruff==([\d.]+)", (REPOSITORY / "pyproject.toml").read_text("utf-8"))
    hooks = (REPOSITORY / ".pre-commit-config.yaml").read_text("utf-8")
    hook = re.findall(r"ruff-pre-commit\n    rev: v([\d.]+)", hooks)

    assert pinned == hook
    assert len(pinned) == 1
