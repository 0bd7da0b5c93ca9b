"""Every check of the project as a session: `nox` runs what a change must pass, `nox -l` lists all.

`nox -s everything` runs the rest of the proof, `nox -s thorough` what measures the tests themselves.

Two sessions run at a time, the longest first: the proofs beside everything else, of that all tests of one Python. Their
output is printed as each ends.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import nox

REPOSITORY = Path(__file__).resolve().parent
PYPROJECT = nox.project.load_toml("pyproject.toml")
PYTHONS = ["3.10", "3.11", "3.12", "3.13"]
PYTHON = "3.11"  # of the sessions that need only one; the newest that torch's CPU builds and ours share
OTHERS = [version for version in PYTHONS if version != PYTHON]
PINNED = PYPROJECT["project"]["optional-dependencies"]["simulate"]  # what the proofs were recorded with
TORCH = next(one for one in PINNED if one.startswith("torch=="))
DEEPSPEED_LINE = "0.19"  # the release line that the extras `proof` and `simulate` install
COMPILER = REPOSITORY / "tests" / "helpers" / "compiler" / "quick-g++"
# Of the proofs: four processes of pytest for two cores, as ranks wait for each other, for a drive and for their end;
# a file at a time to each, for the tests of a file share what they start; the files in the order of tests/conftest.py,
# the longest first. By itself xdist takes those of the most tests first, and the one that takes longest has few: it
# came last, and one core waited for it.
TOGETHER = ["-n", "4", "--dist", "loadfile", "--no-loadscope-reorder"]
# pip would compile every module of torch and transformers, of which a fifth is ever imported, and so of what tests use.
UNCOMPILED = "--no-compile"
LAUNCH_SECONDS = 1800  # at most, for all real launches together
UPDATE = "update"  # nox -s golden docs schema bench gpu-memory -- update

# What takes too long for `nox`, the longest first: the rest of the proof, and what is asked of the tests themselves.
EVERYTHING = ["cells", "operators", "launch", "releases", "nightly"]
THOROUGH = ["coverage", "whole-3.10", "whole-3.12", "whole-3.13", "mutants"]
PROOF_ENVIRONMENT = "proof-environment"  # the session that installs what those of EVERYTHING share

# Tests start thousands of commands from the checkout: where nothing is written, each compiles all that it imports anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

nox.needs_version = ">=2026.10.20"
nox.options.sessions = ["proof", "tests-3.11", "golden", "tests-3.10", "tests-3.12", "tests-3.13", "docs", "typing",
                        "lint", "bench"]  # fmt: skip
nox.options.parallel = 2
nox.options.allow_parallel = True  # but for `bench`, which measures
nox.options.reuse_venv = "yes"
nox.options.error_on_external_run = True
nox.options.error_on_missing_interpreters = True  # a Python that is not there is a failure, never a skip
nox.options.download_python = "never"


def find_pythons() -> None:
    """Put each Python that only pyenv has on PATH; pyenv's own shim for it is there, and does not run."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for version in PYTHONS:
        name = f"python{version}"
        if shutil.which(name) and subprocess.run([name, "-c", ""], capture_output=True, check=False).returncode == 0:
            continue
        found = [path for path in (pyenv / "versions").glob(f"{version}.*") if (path / "bin" / name).exists()]
        if found:
            newest = max(found, key=_patch)
            os.environ["PATH"] = f"{newest / 'bin'}{os.pathsep}{os.environ['PATH']}"


def _patch(folder: Path) -> int:
    """The last number of a version's folder: 13 of 3.10.13."""
    last = folder.name.rpartition(".")[2]
    return int(last) if last.isdigit() else -1


find_pythons()


def dependencies(group: str) -> list[str]:
    """The requirements of a dependency group of pyproject.toml."""
    return list(nox.project.dependency_groups(PYPROJECT, group))


def mode(session: nox.Session) -> str:
    """`--update` after `-- update`, else `--check`."""
    return "--update" if UPDATE in session.posargs else "--check"


def changed_tests() -> list[str]:
    """The tests of what differs from main, committed or not: those of each room, changed ones, and the house's plan."""
    base = git("merge-base", "HEAD", "main") or ["HEAD"]
    paths = [Path(one) for one in git("diff", "--name-only", *base) + git("ls-files", "--others", "--exclude-standard")]
    rooms = {path.parts[1] for path in paths if path.parts[0] == "dsgen" and len(path.parts) > 2}
    files = {path for path in paths if path.name.startswith("test_") and path.exists()}
    folders = {Path("tests", room) for room in rooms if Path("tests", room).is_dir()}
    house = {Path("tests", "house", "test_architecture.py")}
    return sorted(str(path) for path in files | folders | house if "corpus" not in path.parts)


def git(*command: str) -> list[str]:
    """The lines that git prints; none where it fails."""
    done = subprocess.run(["git", *command], capture_output=True, text=True, check=False, cwd=REPOSITORY)
    return done.stdout.split("\n")[:-1] if done.returncode == 0 else []


def update(session: nox.Session) -> list[str]:
    """`--update` after `-- update`, else nothing."""
    return ["--update"] if UPDATE in session.posargs else []


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """The tests against the built wheel: all on one Python, on the others what can differ between them.

    Arguments after -- go to pytest.
    """
    session.install(UNCOMPILED, ".", *dependencies("tests"))
    which = "not proof and not launch" if session.python == PYTHON else "pythons and not proof"
    session.run("pytest", "-m", which, *session.posargs)


@nox.session(python=OTHERS, default=False)
def whole(session: nox.Session) -> None:
    """All tests on the other Pythons too."""
    session.install(UNCOMPILED, ".", *dependencies("tests"))
    everything = {"DSGEN_EXAMPLES": "all"}  # of properties that take long (tests/helpers/tries.py)
    session.run("pytest", "-m", "not proof and not launch", *session.posargs, env=everything)


@nox.session(python=PYTHON, default=False)
def quick(session: nox.Session) -> None:
    """A developer's round: rules, types, and the tests of the rooms that changed since main, in one environment."""
    session.install("-e", ".", *(one for group in ("lint", "typing", "tests", "quick") for one in dependencies(group)))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
    session.run("pytest", "-n", "2", "-m", "not proof and not launch", *changed_tests(), *session.posargs)


@nox.session(python=PYTHON)
def typing(session: nox.Session) -> None:
    """mypy, strict, on the package and on a program that uses its public face."""
    session.install(UNCOMPILED, ".", *dependencies("typing"))
    session.run("mypy")


@nox.session(python=PYTHON)
def lint(session: nox.Session) -> None:
    """ruff's rules and its format; `-- update` mends what it can."""
    session.install(*dependencies("lint"))
    if UPDATE in session.posargs:
        session.run("ruff", "check", "--fix", ".")
        session.run("ruff", "format", ".")
    else:
        session.run("ruff", "check", ".")
        session.run("ruff", "format", "--check", ".")


@nox.session(python=PYTHON)
def golden(session: nox.Session) -> None:
    """The committed outputs, byte for byte; `-- update` rewrites them, and the diff is the review."""
    session.install(UNCOMPILED, "-e", ".")
    session.run("python", "golden/run.py", mode(session))


@nox.session(python=PYTHON)
def docs(session: nox.Session) -> None:
    """The generated pages and every output shown in a hand-written one; `-- update` rewrites them."""
    session.install(UNCOMPILED, "-e", ".")
    session.run("python", "docs/generate.py", mode(session))


@nox.session(python=PYTHON)
def proof(session: nox.Session) -> None:
    """The tests that start a real DeepSpeed, the schema of the release against the release itself, and the examples."""
    install_proof(session)
    schema_of_installed(session)
    build_operators(session, Path(session.bin), "--common")
    # Not compiled when installed (UNCOMPILED): four processes would do it at once, each all of it.
    session.run("python", "-W", "ignore", "tests/helpers/compiled.py")
    session.run("pytest", "-m", "proof and not nightly", *TOGETHER, *session.posargs)
    if not session.posargs:
        run_examples(session, Path(session.bin) / "python")


@nox.session(name=PROOF_ENVIRONMENT, python=PYTHON, default=False)
def proof_environment(session: nox.Session) -> None:
    """What the sessions of `everything` share: a real DeepSpeed, installed once, before any of them starts."""
    install_proof(session)
    session.run("python", "-W", "ignore", "tests/helpers/compiled.py")  # as in `proof`


@nox.session(venv_backend="none", default=False, requires=[PROOF_ENVIRONMENT])
def nightly(session: nox.Session) -> None:
    """The proofs that show again, in other models, stages and frameworks, what one of `proof` shows.

    Of them `operators` runs some, with operators as DeepSpeed builds them: those are not run twice.
    """
    programs = enter_proof_environment(session)
    build_operators(session, programs)
    session.run(f"{programs}/pytest", "-m", "proof and nightly and not operators", *TOGETHER, *session.posargs)


@nox.session(venv_backend="none", default=False, requires=[PROOF_ENVIRONMENT])
def operators(session: nox.Session) -> None:
    """DeepSpeed's operators built as DeepSpeed builds them, and proofs of what each computes, swaps and resumes."""
    programs = enter_proof_environment(session)
    session.env["TORCH_EXTENSIONS_DIR"] += "_as_deepspeed"  # beside those that others build quickly
    session.run(f"{programs}/python", "tests/helpers/operators.py")
    session.run(f"{programs}/pytest", "-m", "operators", *TOGETHER, *session.posargs)


@nox.session(venv_backend="none", default=False, requires=[PROOF_ENVIRONMENT])
def cells(session: nox.Session) -> None:
    """Every start of the matrix, 200 cells one by one, and what is golden trained; `-- update` records the starts."""
    programs = enter_proof_environment(session)
    if UPDATE in session.posargs:
        session.run(f"{programs}/python", "benchmarks/every_cell.py")
    else:
        build_operators(session, programs)
        files = [f"tests/proving/test_{name}.py" for name in ("every_cell", "golden_trained", "resumed_elsewhere")]
        session.run(f"{programs}/pytest", *files, *TOGETHER, env={"DSGEN_CELLS_ALONE": "200"})


@nox.session(venv_backend="none", default=False, requires=[PROOF_ENVIRONMENT])
def releases(session: nox.Session) -> None:
    """What is rendered for DeepSpeed 0.14 to 0.18, started under each; `-- update` renders all of it and records."""
    programs = enter_proof_environment(session)
    session.env.update(quick_compiler(programs.parent, one_unit=False))
    folder = str(programs.parent / "releases")
    session.run(f"{programs}/python", "benchmarks/release_environments.py", folder)
    session.run(f"{programs}/python", "benchmarks/every_release.py", folder, *update(session))


@nox.session(python=PYTHON, default=False)
def coverage(session: nox.Session) -> None:
    """How much of dsgen/ tests and proofs run, branches and child processes included; pyproject.toml has the bound."""
    install_proof(session)
    session.install("-e", ".", *dependencies("coverage"))
    build_operators(session, Path(session.bin))
    session.env["COVERAGE_FILE"] = str(
        Path(session.virtualenv.location) / "coverage"
    )  # create_tmp would move all temporary files
    session.run("coverage", "erase")
    session.run("coverage", "run", "-m", "pytest", "-m", "not launch", *TOGETHER, *session.posargs)
    session.run("coverage", "combine", "--quiet")
    session.run("coverage", "report")


@nox.session(venv_backend="none", default=False, requires=[PROOF_ENVIRONMENT])
def launch(session: nox.Session) -> None:
    """What `dsgen launch` writes, run: by real launchers, on two hosts of network namespaces, under a real Slurm."""
    programs = enter_proof_environment(session)
    need_launchers(session)
    build_operators(session, programs)
    root = [] if os.geteuid() == 0 else ["sudo", "--preserve-env=PATH,TORCH_EXTENSIONS_DIR"]  # it makes namespaces
    bound = ["timeout", "--signal=INT", f"{LAUNCH_SECONDS}"]  # as Ctrl-C, so that hosts and Slurm are ended
    python = str(programs / "python")
    session.run(
        *root, *bound, python, "-m", "pytest", "-m", "launch", "tests/launching", *session.posargs, external=True
    )


@nox.session(python=PYTHON, default=False)
def mutants(session: nox.Session) -> None:
    """A sample of small faults in rules, memory and planner, of which the tests must notice nearly all."""
    session.install("-e", ".", *dependencies("tests"), *dependencies("coverage"))
    session.run("python", "benchmarks/mutants.py", *session.posargs)


@nox.session(venv_backend="none", default=False, requires=EVERYTHING)
def everything(session: nox.Session) -> None:
    """The rest of the proof, which takes too long for `nox`: releases, the whole matrix, operators, real launches."""
    session.log("the rest of the proof has passed")


@nox.session(venv_backend="none", default=False, requires=THOROUGH)
def thorough(session: nox.Session) -> None:
    """What is asked of the tests themselves: how much they run and notice, and all of them on every Python."""
    session.log("the tests have been measured")


@nox.session(python=PYTHON, default=False)
def schema(session: nox.Session) -> None:
    """schema/deepspeed/ of the newest release line; `-- update` rewrites it."""
    session.install(TORCH)
    session.install(".[simulate]")
    schema_of_installed(session)


@nox.session(python=PYTHON, allow_parallel=False)
def bench(session: nox.Session) -> None:
    """Start-up, rendering and linting against their bounds; `-- update` records benchmarks/results.json."""
    session.install(".")
    session.run("python", "benchmarks/bench.py", "--deepspeed", with_deepspeed(session), *update(session))


@nox.session(python=PYTHON, default=False)
def examples(session: nox.Session) -> None:
    """What `proof` does last: the tests of each repository in examples/; each trains a tiny model."""
    python = Path(with_deepspeed(session))
    session.run(python, "-m", "pip", "install", "--quiet", "--no-deps", ".", external=True)  # it may be an older one
    session.env["TORCH_EXTENSIONS_DIR"] = str(python.parents[1] / "torch_extensions")
    session.env.update(quick_compiler(python.parents[1]))  # another compiler would build the proofs' operators anew
    run_examples(session, python)


@nox.session(name="memory-agreement", python=PYTHON, default=False)
def memory_agreement(session: nox.Session) -> None:
    """Simulate the scenarios that are not recorded, and write docs/memory-agreement.md; 70 minutes for all."""
    session.install(TORCH)
    session.install(".[simulate]")
    session.run("python", "benchmarks/memory_agreement.py", *(session.posargs or ["--update"]))


@nox.session(python=PYTHON, default=False)
def reserved(session: nox.Session) -> None:
    """Replay torch's allocator over the scenarios that are not recorded, and write docs/reserved.md; 20 minutes."""
    session.install(TORCH)
    session.install(".[simulate]")
    session.run("python", "benchmarks/reserved.py", *(session.posargs or ["--update"]))


@nox.session(name="memory-releases", python=PYTHON, default=False)
def memory_releases(session: nox.Session) -> None:
    """Simulate scenarios under DeepSpeed 0.14 to 0.18, record them, and write docs/memory-releases.md; 10 minutes."""
    session.install(TORCH)
    session.install(".[simulate]", "setuptools", "wheel")
    folder = str(Path(session.virtualenv.location) / "releases")
    session.run("python", "benchmarks/release_environments.py", folder)
    session.run("python", "benchmarks/memory_releases.py", folder)


@nox.session(python=PYTHON, default=False)
def corpus(session: nox.Session) -> None:
    """What needs the public configs and guides in the folder after `--`; `-- FOLDER update` mends what is stale."""
    folders = [Path(session.invoked_from, one).resolve() for one in session.posargs if one != UPDATE]
    if len(folders) != 1 or not folders[0].is_dir():
        given = " ".join(map(str, folders)) or "nothing"
        session.error(f"needs the folder of public configs and guides, and got {given}: nox -s corpus -- FOLDER")
    python = with_deepspeed(session)
    session.run(python, "-m", "pip", "install", "--quiet", "--no-deps", ".", external=True)  # it may be an older one
    check = [] if UPDATE in session.posargs else ["--check"]
    for script in ("benchmarks/transcribe.py", "benchmarks/agreement.py"):
        session.run(python, script, str(folders[0]), *check, external=True)
    session.run(python, "-m", "pytest", "-n", "2", "tests/corpus", "--corpus", str(folders[0]), external=True)


@nox.session(python=PYTHON, default=False)
def published(session: nox.Session) -> None:
    """Write docs/published.md, speed.md, unseen.md and gpu.md: the instant models against published runs, and ours."""
    session.install("-e", ".")
    for script in ("published", "published_speed", "unseen", "gpu_page"):
        session.run("python", f"benchmarks/{script}.py", *session.posargs)


@nox.session(name="step-times", python=PYTHON, default=False)
def step_times(session: nox.Session) -> None:
    """Write docs/step-times.md: the instant cost of a step against the simulated one; `-- --update` simulates anew."""
    if "--update" in session.posargs:
        install_proof(session)
    session.install("-e", ".")
    session.run("python", "benchmarks/step_times.py", "--page", *session.posargs)


@nox.session(python=PYTHON, default=False)
def kernels(session: nox.Session) -> None:
    """Write docs/kernels.md: the laws of kernels against measurements that others published."""
    session.install("-e", ".")
    session.run("python", "benchmarks/kernels.py", *session.posargs)


@nox.session(python=PYTHON, default=False)
def gpu(session: nox.Session) -> None:
    """Golden configs started on a GPU, CUDA and NCCL, one rank; `-- update` records, `-- required` fails without."""
    session.install(TORCH)  # the build for CUDA, from PyPI
    session.install(".[simulate]", "bitsandbytes")  # the latter makes the 4-bit weights of QLoRA
    session.env["TORCH_EXTENSIONS_DIR"] = str(Path(session.virtualenv.location) / "torch_extensions")
    required = ["--required"] if "required" in session.posargs else []
    session.run("python", "benchmarks/gpu_proofs.py", *update(session), *required)


@nox.session(name="gpu-memory", python=PYTHON, default=False)
def gpu_memory(session: nox.Session) -> None:
    """Memory of real steps on a GPU beside the simulation's, and the least card; `-- update` records both."""
    session.install(TORCH)  # the build for CUDA, from PyPI
    session.install(".[simulate]")
    session.env["TORCH_EXTENSIONS_DIR"] = str(Path(session.virtualenv.location) / "torch_extensions")
    options = ["--update" if one == UPDATE else one for one in session.posargs]
    session.run("python", "benchmarks/gpu_memory.py", *options)
    if set(session.posargs) <= {UPDATE}:
        session.run("python", "benchmarks/gpu_memory_limits.py", *options)


@nox.session(name="gpu-speed", python=PYTHON, default=False)
def gpu_speed(session: nox.Session) -> None:
    """Time of kernels, whole runs and the host on a GPU beside dsgen's; records benchmarks/gpu_speed/CARD.json."""
    session.install(TORCH)  # the build for CUDA, from PyPI
    session.install(".[simulate]", "bitsandbytes")  # the latter makes the 4-bit weights of QLoRA
    session.env["TORCH_EXTENSIONS_DIR"] = str(Path(session.virtualenv.location) / "torch_extensions")
    session.run("python", "benchmarks/gpu_speed.py", *session.posargs)
    if not session.posargs:
        session.run("python", "benchmarks/gpu_speed_host.py")


@nox.session(python=PYTHON, default=False)
def estimators(session: nox.Session) -> None:
    """Other estimators of memory, ours, and the real engine on the same cases; `-- update` writes docs/memory.md."""
    session.install(TORCH)
    session.install(".[simulate]", *dependencies("proof"))
    session.run("python", "benchmarks/estimators.py", *update(session))


def install_proof(session: nox.Session) -> None:
    """The package with a real DeepSpeed, whose operators are built into the session's environment."""
    need_system_packages(session)
    session.install(UNCOMPILED, TORCH)  # before deepspeed, which otherwise takes whatever torch it finds first
    session.install(UNCOMPILED, ".[simulate]", *dependencies("tests"), *dependencies("proof"))
    # Operators are built for the torch of this environment: shared with another one, each would rebuild the other's.
    session.env["TORCH_EXTENSIONS_DIR"] = str(Path(session.virtualenv.location) / "torch_extensions")


def enter_proof_environment(session: nox.Session) -> Path:
    """Let what a session without an environment of its own runs be of PROOF_ENVIRONMENT; the folder of its programs.

    Two sessions run at a time. So it is installed by a session that they require, and never by one of them; operators
    are built by whoever comes first, and `dsgen.engine.proof.locks` lets the other wait.
    """
    environment = session.cache_dir.resolve().with_name(PROOF_ENVIRONMENT)
    programs = environment / "bin"
    session.env["PATH"] = f"{programs}{os.pathsep}{os.environ['PATH']}"
    session.env["TORCH_EXTENSIONS_DIR"] = str(environment / "torch_extensions")
    return programs


def run_examples(session: nox.Session, python: Path) -> None:
    """The tests of each repository in examples/, with the pytest plugin of this dsgen."""
    for project in sorted((REPOSITORY / "examples").glob("*/pyproject.toml")):
        session.chdir(project.parent)
        session.run(python, "-m", "pytest", "--dsgen", external=True)


def build_operators(session: nox.Session, programs: Path, *which: str) -> None:
    """DeepSpeed's operators, quickly: with little optimisation, and torch's header compiled once."""
    session.env.update(quick_compiler(programs.parent))
    session.run(f"{programs}/python", "tests/helpers/operators.py", *which)


def quick_compiler(environment: Path, one_unit: bool = True) -> dict[str, str]:
    """What makes a build of operators quick in a virtual environment; as one unit only the pinned release's compile."""
    together = {"DSGEN_ONE_UNIT": "yes"} if one_unit else {}
    return {"CXX": str(COMPILER), "DSGEN_TORCH_HEADERS": str(environment / "headers"), **together}


def with_deepspeed(session: nox.Session) -> str:
    """The Python of the proofs' environment; where there is none yet, the session's own, with the same installed."""
    python = Path(session.virtualenv.location).with_name("proof") / "bin" / "python"
    if python.exists():
        return str(python)
    install_proof(session)
    return str(Path(session.bin) / "python")


def schema_of_installed(session: nox.Session) -> None:
    """Check, or with `-- update` write, the schema of the DeepSpeed in the session's environment."""
    check = [] if UPDATE in session.posargs else ["--check"]
    session.run("python", "schema/generate.py", "--deepspeed", DEEPSPEED_LINE, *check)


def need_system_packages(session: nox.Session) -> None:
    """A C++ compiler and libaio's header, with which DeepSpeed builds its operators for CPU and NVMe offload."""
    there = {"g++": shutil.which("g++") or shutil.which("c++"), "libaio-dev": Path("/usr/include/libaio.h").exists()}
    need_packages(session, "the proofs need", {package: bool(found) for package, found in there.items()})


def need_launchers(session: nox.Session) -> None:
    """Slurm, sshd, pdsh and what makes network namespaces, as Debian and Ubuntu have them."""
    programs = {"slurm-wlm": "slurmctld", "munge": "munged", "openssh-server": "sshd", "openssh-client": "ssh",
                "pdsh": "pdsh", "iproute2": "ip"}  # fmt: skip
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    there = {package: shutil.which(program, path=path) is not None for package, program in programs.items()}
    need_packages(session, "real launches need", there)


def need_packages(session: nox.Session, who: str, there: dict[str, bool]) -> None:
    """Install the packages of a distribution that are not there, where that is allowed."""
    missing = [package for package, is_there in there.items() if not is_there]
    if not missing:
        return
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        session.error(f"{who} {' and '.join(missing)}: sudo apt-get install -y {' '.join(missing)}")
    session.run("apt-get", "update", external=True)
    session.run("apt-get", "install", "-y", "--no-install-recommends", *missing, external=True)
