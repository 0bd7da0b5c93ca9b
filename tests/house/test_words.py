"""Words: one name, one thing, read from the source of dsgen."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

from parsed import parsed

PACKAGE = Path(__file__).resolve().parents[2] / "dsgen"
TREES = {path.relative_to(PACKAGE).as_posix(): parsed(path) for path in sorted(PACKAGE.rglob("*.py"))}

# Name that several modules may have -> what it is in each of them; anything else is one thing in one place.
PAIRS = {
    "__init__": "the face of a room",
    "__main__": "what `python -m` runs",
    # A command, what makes its answer, and what prints it.
    "checks diff effective footprints memory mending plan profiles rule rules survey why": "an answer and its report",
    "needs": "what a program must do, and its report",
    "contests deadlines offers speedups what_ifs": "an answer about plans, and its report",
    "findings simulation": "a value and its report",
    "commands": "command lines: of launch scripts, and dsgen's own on a page",
    "questions": "questions about a config, and about memory",
    "results": "what was computed: by a simulated run, from a profile for its page",
    # A child process and its parent, or two children alike.
    "answers": "of a child process, to a person",
    "children": "child processes: how one ends, and how its parent talks to it",
    "errors": "the error of a child, and a user's",
    "loading": "a config through the installed DeepSpeed: parent and child",
    "ops": "DeepSpeed's compiled operators: built for a proof, replaced in a simulation",
    "requests": "what is to be simulated: as the parent says it, and as the child checks it",
    "runs": "a run of a model: simulated by the engine, and as the memory model sees it",
    "server": "the loop of a child process",
    # One subject, seen by the room.
    "adapters": "LoRA adapters",
    "arguments": "arguments: of optimizer and schedule, of the library's functions",
    "asked": "what is asked of a room",
    "attention": "kernels of attention: as a simulation stands in for them, and how long one takes",
    "autos": "the word auto in a config",
    "files": "files that are linted",
    "from_python": "what `import dsgen` offers of a room",
    "keys": "keys of DeepSpeed",
    "liger": "Liger's SwiGLU, norms and RoPE: on a tape, and as a simulation stands in for them",
    "limits": "what is too much: of memory, of anything a user may write",
    "llama": "Llama, and what other families share with it",
    "moments": "when memory can be highest: in a block, in a step",
    "products": "matrix products: as the tape writes them, and how long one takes",
    "reader": "text to a document with places",
    "setups": "a config as the constraints of strategies see it",
    "tensor_parallel tensor_parallelism": "DeepSpeed's AutoTP",
    "training_arguments": "TrainingArguments: written beside a config, and read beside one",
    "wishes": "what a person wants of training",
    "writing": "text to be written: of an edit, into a file",
    "zero": "DeepSpeed's ZeRO",
}
SHARED = {name: meaning for names, meaning in PAIRS.items() for name in names.split()}


def test_no_two_classes_have_one_name() -> None:
    modules = defaultdict(list)
    for name, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                modules[node.name].append(name)
    assert len(modules) > 200
    assert {name: where for name, where in modules.items() if len(where) > 1} == {}


def test_modules_of_one_name_are_about_one_thing() -> None:
    modules = defaultdict(list)
    for name in TREES:
        modules[Path(name).stem].append(name)
    assert {name for name, where in modules.items() if len(where) > 1} == set(SHARED)


def test_nothing_is_called_found() -> None:
    # Linting finds; what any other code has at hand is called what it is.
    names = set()
    for module, tree in TREES.items():
        for node in ast.walk(tree):
            said = {getattr(node, field, None) for field in ("id", "arg", "attr", "name", "asname")}
            if said & {"found", "_found"}:
                names.add(f"{module}:{getattr(node, 'lineno', 0)}")
    assert names == set()
