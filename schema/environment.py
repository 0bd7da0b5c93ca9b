"""Write schema/environment.json: the environment variables and launcher options that DeepSpeed and its libraries read.

    python schema/environment.py [--deepspeed DIR ...] [--nccl CHECKOUT] [--accelerate DIR] [--check]

DeepSpeed and torch are the ones of this interpreter. `--deepspeed` names unpacked source distributions: of the same
release for what its setup.py reads, of older ones for what they read and the newest no longer does. `--nccl` names a
checkout of https://github.com/NVIDIA/nccl with its history. A part whose source is not named stays as it is.
"""

from __future__ import annotations

import argparse
import ast
import importlib.metadata
import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parent / "environment.json"
READS = ("environ.get", "environ.pop", "environ.setdefault", "getenv")
OWN = re.compile(r"(DS|DEEPSPEED|AUTOEP)_[A-Z0-9_]+")  # the prefixes of DeepSpeed's own variables
NAME = re.compile(r"[A-Z][A-Z0-9]*_[A-Z0-9_]*[A-Z0-9]|RANK")
TORCH = re.compile(rb"(?:PY)?TORCH[A-Z0-9]*_[A-Z0-9_]*[A-Z0-9]")
NOT_READ = ("testing", "test", "unit_tests", "_vendor")  # folders that no training run loads
# Releases between which NCCL dropped variables; the newest commit of the checkout is read besides.
NCCL_TAGS = ("v2.4.8-1", "v2.7.8-1", "v2.10.3-1", "v2.12.12-1", "v2.16.5-1", "v2.19.4-1", "v2.22.3-1")
NCCL_SOURCES = (
    (r'NCCL_PARAM(?:_ARG)?\([A-Za-z0-9_]+, *"([A-Z0-9_]+)"', "NCCL_"),
    (r"DEFINE_NCCL_PARAM\([^,]+,[^,]+, *(NCCL_[A-Z0-9_]+)", ""),
    (r'"(NCCL_[A-Z0-9_]+)"', ""),
)
CUDA_SOURCE = "CUDA C++ Programming Guide 13, CUDA Environment Variables; Multi-Process Service, Environment Variables"
CUDA = [
    "CUDA_VISIBLE_DEVICES",
    "CUDA_MANAGED_FORCE_DEVICE_ALLOC",
    "CUDA_DEVICE_ORDER",
    "CUDA_CACHE_DISABLE",
    "CUDA_CACHE_PATH",
    "CUDA_CACHE_MAXSIZE",
    "CUDA_FORCE_PTX_JIT",
    "CUDA_DISABLE_PTX_JIT",
    "CUDA_FORCE_JIT",
    "CUDA_DISABLE_JIT",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_DEVICE_MAX_COPY_CONNECTIONS",
    "CUDA_AUTO_BOOST",
    "CUDA_SCALE_LAUNCH_QUEUES",
    "CUDA_GRAPHS_USE_NODE_PRIORITY",
    "CUDA_DEVICE_WAITS_ON_EXCEPTION",
    "CUDA_DEVICE_DEFAULT_PERSISTING_L2_CACHE_PERCENTAGE_LIMIT",
    "CUDA_DISABLE_PERF_BOOST",
    "CUDA_MODULE_LOADING",
    "CUDA_MODULE_DATA_LOADING",
    "CUDA_BINARY_LOADER_THREAD_COUNT",
    "CUDA_ENABLE_COREDUMP_ON_EXCEPTION",
    "CUDA_ENABLE_USER_TRIGGERED_COREDUMP",
    "CUDA_ENABLE_LIGHTWEIGHT_COREDUMP",
    "CUDA_ENABLE_CPU_COREDUMP_ON_EXCEPTION",
    "CUDA_COREDUMP_FILE",
    "CUDA_COREDUMP_PIPE",
    "CUDA_COREDUMP_GENERATION_FLAGS",
    "CUDA_COREDUMP_SHOW_PROGRESS",
    "CUDA_ERROR_LOG",
    "CUDA_LOG_FILE",
    "CUDA_MPS_PIPE_DIRECTORY",
    "CUDA_MPS_LOG_DIRECTORY",
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    "CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING",
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
    "CUDA_MPS_CLIENT_PRIORITY",
    "CUDA_INJECTION32_PATH",
    "CUDA_INJECTION64_PATH",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_ROOT",
    "CUDA_DIR",
    "CUDA_BIN_PATH",
    "CUDA_INC_PATH",
    "CUDA_LIB_PATH",
    "CUDA_VERSION",
    "CUDA_NVCC_EXECUTABLE",
    "CUDA_TOOLKIT_ROOT_DIR",
    "CUDA_ARCH_LIST",
    "CUDA_ARCHITECTURES",
]


def texts(tree: ast.AST) -> Iterator[str]:
    """Every text that stands in a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def constants(trees: Iterable[ast.Module]) -> dict[str, str]:
    """Names that modules give to texts that look like a variable: SCHEDULER_DEBUG_ENV -> DEEPSPEED_..."""
    found = {}
    for tree in trees:
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                for target in node.targets:
                    if isinstance(target, ast.Name) and NAME.fullmatch(str(node.value.value)):
                        found[target.id] = str(node.value.value)
    return found


def asked(tree: ast.AST) -> Iterator[ast.expr]:
    """What a module looks up in the environment: os.environ[X], os.environ.get(X), os.getenv(X), X in os.environ."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and ast.unparse(node.func).endswith(READS):
            yield node.args[0]
        elif isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("environ"):
            yield node.slice
        elif isinstance(node, ast.Compare) and "environ" in ast.unparse(node.comparators[0]):
            yield node.left


def package(folder: Path) -> dict[str, str]:
    """Variable -> the first file that reads it; DeepSpeed's own also where the name only stands as a text."""
    files = sorted(path for path in folder.rglob("*.py") if not set(NOT_READ) & set(path.parts))
    trees = {path: ast.parse(path.read_text("utf-8")) for path in files}
    known = constants(trees.values())
    found: dict[str, str] = {}
    for path, tree in trees.items():
        names = {text for text in texts(tree) if OWN.fullmatch(text)}
        for expression in asked(tree):
            if isinstance(expression, ast.Constant):
                names.add(str(expression.value))
            elif isinstance(expression, (ast.Name, ast.Attribute)):
                names.add(known.get(ast.unparse(expression).rpartition(".")[2], ""))
        for name in names:
            if NAME.fullmatch(name):
                found.setdefault(name, path.relative_to(folder.parent).as_posix())
    return found


def launcher(runner: Path) -> dict[str, Any]:
    """Option of the `deepspeed` command -> whether a value follows it, and the values it takes."""
    found: dict[str, Any] = {}
    for node in ast.walk(ast.parse(runner.read_text("utf-8"))):
        if not (isinstance(node, ast.Call) and ast.unparse(node.func) == "parser.add_argument"):
            continue
        names = [item.value for item in node.args if isinstance(item, ast.Constant)]
        words = {word.arg: ast.unparse(word.value) for word in node.keywords}
        for name in names:
            if name.startswith("-"):
                found[name] = {"value": words.get("action") != "'store_true'"}
                if "choices" in words:
                    found[name]["choices"] = ast.literal_eval(words["choices"])
    return {**found, "-h": {"value": False}, "--help": {"value": False}}


def torch_names(folder: Path) -> list[str]:
    """Every name with torch's prefixes that stands as a text in its Python files, headers and libraries."""
    found: set[str] = set()
    for path in folder.rglob("*"):
        if set(NOT_READ) & set(path.parts) or path.suffix not in (".py", ".h", ".hpp", ".so"):
            continue
        content = path.read_bytes()
        quote = rb"\0" if path.suffix == ".so" else rb"[\"']"
        found.update(name.decode() for name in re.findall(quote + rb"(" + TORCH.pattern + rb")" + quote, content))
    return sorted(found)


def nccl_names(checkout: Path) -> dict[str, str]:
    """Variable -> the newest release of NCCL_TAGS that reads it; the release of the checkout for those in use."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(checkout), *words], capture_output=True, text=True, check=False)
        return done.stdout

    numbers = dict(re.findall(r"NCCL_(MAJOR|MINOR|PATCH) *:= *(\d+)", git("show", "HEAD:makefiles/version.mk")))
    newest = ".".join(numbers[part] for part in ("MAJOR", "MINOR", "PATCH"))
    found: dict[str, str] = {}
    for tag in (*NCCL_TAGS, "HEAD"):
        text = git("grep", "-hE", "NCCL_[A-Z]*|NCCL_PARAM", tag, "--", "src", "plugins", "ext-net")
        text += "".join(f'"{name}"\n' for name in re.findall(r"^NCCL_[A-Z0-9_]+", documented(git, tag), re.M))
        release = newest if tag == "HEAD" else tag[1:].partition("-")[0]
        for pattern, prefix in NCCL_SOURCES:
            found.update({prefix + name: release for name in re.findall(pattern, text)})
    for name, until in re.findall(r"^(NCCL_[A-Z0-9_]+)\n.*\n\(.*?removed in ([\d.]+)", documented(git, "HEAD"), re.M):
        found[name] = f"before {until}"
    return found


def documented(git: Any, tag: str) -> str:
    """NCCL's page of variables as a release had it; empty before it was part of the repository."""
    return str(git("show", f"{tag}:docs/userguide/source/env.rst"))


def installed(name: str) -> Path:
    """The folder of a package of this interpreter."""
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        sys.exit(f"{sys.executable} has no {name}")
    return Path(found.origin).parent


def deepspeed_part(sources: Iterable[Path], before: dict[str, Any]) -> dict[str, Any]:
    """What the release reads, and what only older ones do: variable -> their newest release."""
    release = importlib.metadata.version("deepspeed")
    names = package(installed("deepspeed"))
    options = launcher(installed("deepspeed") / "launcher" / "runner.py")
    older: dict[str, str] = {}
    dropped: dict[str, Any] = {}
    for folder in sorted(sources):
        version = folder.name.partition("-")[2]
        if version == release:
            setup = (folder / "setup.py").read_text("utf-8")
            names.update(
                {text: "setup.py" for text in texts(ast.parse(setup)) if OWN.fullmatch(text) and text not in names}
            )
        else:
            older.update({name: version for name in package(folder / "deepspeed") if OWN.fullmatch(name)})
            found = launcher(folder / "deepspeed" / "launcher" / "runner.py").items()
            dropped.update({name: {**facts, "until": version} for name, facts in found if name not in options})
    if not older:
        older, dropped = before.get("older", {}), before.get("older_options", {})
        kept = before.get("names", {}).items()
        names.update({name: file for name, file in kept if file == "setup.py" and name not in names})
    return {
        "source": f"deepspeed {release}",
        "names": dict(sorted(names.items())),
        "older": {name: older[name] for name in sorted(older) if name not in names},
        "options": options,
        "older_options": dropped,
    }


def main() -> None:
    """Write the file, or compare it with `--check`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deepspeed", type=Path, nargs="*", default=[])
    parser.add_argument("--nccl", type=Path)
    parser.add_argument("--accelerate", type=Path)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    before: dict[str, Any] = json.loads(FILE.read_text("utf-8")) if FILE.exists() else {}
    parts = {**before, "deepspeed": deepspeed_part(given.deepspeed, before.get("deepspeed", {}))}
    parts["torch"] = {
        "source": f"torch {importlib.metadata.version('torch').partition('+')[0]}",
        "names": torch_names(installed("torch")),
    }
    parts["cuda"] = {"source": CUDA_SOURCE, "names": sorted(CUDA)}
    if given.nccl:
        names = nccl_names(given.nccl)
        newest = max((version for version in names.values() if version[0].isdigit()), key=_numbers)
        parts["nccl"] = {
            "source": f"NVIDIA/nccl {newest}: source and docs/userguide/source/env.rst",
            "names": sorted(name for name, version in names.items() if version == newest),
            "older": {name: version for name, version in sorted(names.items()) if version != newest},
        }
    if given.accelerate:
        names = package(given.accelerate)
        parts["accelerate"] = {
            "source": next(path.stem for path in given.accelerate.parent.glob("accelerate-*.dist-info")),
            "names": sorted(name for name in names if name.startswith(("ACCELERATE_", "FSDP_", "DEEPSPEED_"))),
        }
    text = json.dumps(parts, indent=1, sort_keys=True) + "\n"
    if given.check and FILE.read_text("utf-8") != text:
        sys.exit(f"{FILE} is not what this interpreter's deepspeed and torch read; run without --check")
    FILE.write_text(text, encoding="utf-8")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


if __name__ == "__main__":
    main()
