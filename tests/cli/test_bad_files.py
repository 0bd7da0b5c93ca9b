"""Files that cannot be read, understood or written, through the real command line: a clear message, nothing done."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command_line import MAIN, refused


@pytest.fixture
def target(tmp_path: Path) -> Iterator[str]:
    """A file for -o that must not come into being, in a folder where nothing may."""
    folder = tmp_path / "out"
    folder.mkdir()
    yield str(folder / "ds_config.json")
    assert list(folder.iterdir()) == []


# content of a file, and the whole message; the same for -f, a profile and a scenario
FILES: list[tuple[bytes, str]] = [
    (b"", "{file}: it is empty; it must hold a map, such as training: {{seq_len: 8192}}\n"),
    (
        b"training: [1,\n",
        "{file}:2:1: not YAML: expected the node content, but found '<stream end>' "
        "(while parsing a flow node from line 2 on)\n",
    ),
    (
        b"training: {seq_len: 1}\nmodel: {}\ntraining: {}\n",
        "{file}:3: training is given twice, first in line 1; a key stands once\n"
        "  Drop one of the two; most readers would silently keep the last.\n",
    ),
    (
        b"training:\n  x: !!python/object/apply:os.system [echo]\n",
        "{file}:2: training.x carries the tag !!python/object/apply:os.system; only plain values are read\n"
        "  Remove the tag; a config never builds objects.\n",
    ),
    (b"a: \xff\n", "{file}: byte 3 is not UTF-8; it must be UTF-8 text\n  Save it again as UTF-8.\n"),
    (b"[1]\n", "{file}: the top level is a list; it must be a map of sections\n"),
    (b"a: " + b"[" * 10_000 + b"]" * 10_000, "{file}: it nests deeper than 40 levels; a config is a few levels deep\n"),
    (
        b"#" * 1_000_001,
        "{file}: it has 1,000,001 bytes; at most 1,000,000 are read\n"
        "  A profile or override file is a few kilobytes; was another file meant?\n",
    ),
]


@pytest.mark.parametrize(("content", "message"), FILES)
@pytest.mark.parametrize("option", ["-f", "--hw", "--network", "--training", ""])
def test_a_broken_file(tmp_path: Path, target: str, content: bytes, message: str, option: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_bytes(content)
    arguments = [*MAIN, option, str(file)] if option else [str(file)]

    assert refused("render", *arguments, "-o", target) == f"error: {message.format(file=file)}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "training:\n  micro_batch: 1.9\n",
            "{file}:2: training.micro_batch is 1.9; it must be a whole number of at least 1\n",
        ),
        ("training:\n  save_16bit: no\n", "{file}:2: training.save_16bit is no; it must be true or false\n"),
        (
            'training:\n  micro_batch: "32"\n',
            '{file}:2: training.micro_batch is "32"; it must be a whole number of at least 1\n',
        ),
        (
            "training:\n  seqlen: 19\n",
            "{file}:2: unknown path training.seqlen; neither dsgen nor DeepSpeed reads it\n"
            "  did you mean training.seq_len?\n",
        ),
        (
            "zero_optimization:\n  stage: 2\n  reduce_buckets: 1\n",
            "{file}:3: unknown path zero_optimization.reduce_buckets; neither dsgen nor DeepSpeed reads it\n"
            "  did you mean zero_optimization.reduce_bucket_size?\n",
        ),
        ("zero_optimization:\n  stage: 5\n", "{file}:2: zero_optimization.stage is 5; it must be one of 0, 1, 2, 3\n"),
        (
            "# Mine.\nhw: t4-16g\n",
            "{file}:2: hw is t4-16g; a file of overrides has sections; this one is a scenario\n"
            "  Give it without -f: dsgen plan {file}.\n",
        ),
        (
            "training: lora\n",
            "{file}:1: training is lora; a file of overrides has sections; this one is a scenario\n"
            "  Give it without -f: dsgen plan {file}.\n",
        ),
        *(
            (
                f"name: ours\nkind: {kind}\n",
                f"{{file}}:2: kind is {kind}; a file of overrides has sections; this one is a profile\n"
                f"  Give it without -f: {option} {{file}}.\n",
            )
            for kind, option in (("training", "--training"), ("hardware", "--hw"))
        ),
        (
            "train_batch_size: 65\n",
            "deepspeed.train_batch_size = 65 ({file}:1) cannot be had\n"
            "  train_batch_size 65 is no multiple of the 8 GPUs. "
            "It works if you drop deepspeed.train_batch_size.\n",
        ),
    ],
)
def test_a_wrong_override_names_its_line(tmp_path: Path, target: str, text: str, message: str) -> None:
    file = tmp_path / "site.yaml"
    file.write_text(text)

    assert refused("render", *MAIN, "-f", str(file), "-o", target) == f"error: {message.format(file=file)}"


# what a path may lead to, and the message about it
def folder(path: Path) -> str:
    path.mkdir()
    return "it is a folder; it must be a YAML file"


def fifo(path: Path) -> str:
    os.mkfifo(path)
    return "it is not a regular file"


def loop(path: Path) -> str:
    path.symlink_to(path)
    return "a link that leads to no file"


def dangling(path: Path) -> str:
    path.symlink_to("nowhere")
    return "a link that leads to no file"


def sparse(path: Path) -> str:
    with path.open("wb") as file:
        file.truncate(100_000_000)
    return "it has 100,000,000 bytes; at most 1,000,000 are read"


def missing(path: Path) -> str:
    return "no such file"


@pytest.mark.parametrize("make", [folder, fifo, loop, dangling, sparse, missing])
@pytest.mark.parametrize("option", ["-f", "--hw", "--model", "--training", ""])
def test_a_path_that_leads_to_no_text(tmp_path: Path, target: str, make: Callable[[Path], str], option: str) -> None:
    path = tmp_path / "x.yaml"
    what = make(path)
    arguments = [*MAIN, option, str(path)] if option else [str(path)]

    assert refused("render", *arguments, "-o", target).startswith(f"error: {path}: {what}")


@pytest.mark.parametrize("option", ["-f", "--hw", "--training", ""])
def test_an_unreadable_file(secret: Path, option: str) -> None:
    arguments = [*MAIN, option, str(secret)] if option else [str(secret)]

    assert refused("render", *arguments) == f"error: {secret}: it cannot be read (Permission denied)\n"


def test_a_folder_where_nothing_may_be_written(nobody: Path) -> None:
    if os.getuid() != 0:
        nobody.chmod(0o555)

    message = refused("render", *MAIN, "-o", str(nobody / "x.json"))

    nobody_s = f"error: {nobody / 'x.json'}: it cannot be written (Permission denied)\n"
    assert message == nobody_s + "  Nothing was written. Name a file in a folder that exists and is yours.\n"
    assert list(nobody.iterdir()) == []


# Outputs of which it can be told before anything is written, and what is said.
UNWRITABLE = [
    ("/nonexistent/x.json", "it cannot be written (No such file or directory)"),
    ("{folder}", "it is a folder; -o names a file"),
    ("{folder}/loop", "it cannot be written ("),
    ("{folder}/a\0b", "it cannot be written ("),
    ("~nobody-here/x.json", "it cannot be written ("),
    ("", "-o names no file; it must name one"),
]


@pytest.mark.parametrize(
    ("output", "why"),
    [
        *UNWRITABLE,
        ("/dev/full", "it cannot be written (No space left on device)"),
        ("{folder}/" + "x" * 300, "it cannot be written (File name too long)"),
    ],
)
def test_an_unwritable_output(tmp_path: Path, output: str, why: str) -> None:
    loop(tmp_path / "loop")
    before = sorted(tmp_path.iterdir())

    assert why in refused("render", *MAIN, "-o", output.format(folder=tmp_path))
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(("output", "why"), UNWRITABLE)
def test_a_simulation_says_so_before_it_begins(tmp_path: Path, output: str, why: str) -> None:
    """With an interpreter that does not exist: it is not asked for."""
    loop(tmp_path / "loop")
    before = sorted(tmp_path.iterdir())

    nowhere = str(tmp_path / "python")
    message = refused("simulate", *MAIN, "--python", nowhere, "-o", output.format(folder=tmp_path))

    assert why in message and nowhere not in message
    assert sorted(tmp_path.iterdir()) == before


def test_an_old_file_stays_when_the_new_config_fails(tmp_path: Path) -> None:
    file = tmp_path / "ds_config.json"
    file.write_text("old")

    refused("render", *MAIN, "--gpus", "1.9", "-o", str(file))

    assert file.read_text() == "old"


@pytest.mark.parametrize(
    ("beside", "todo"),
    [("model.safetensors", ""), ("adapter_config.json", "  Of adapters name the base: base_model_name_or_path")],
)
def test_a_folder_of_a_model_without_its_config_is_told_so(tmp_path: Path, beside: str, todo: str) -> None:
    (tmp_path / beside).touch()

    told = refused("plan", "--hw", "a100-40g", "--model", str(tmp_path)).splitlines()

    assert told[0] == f"error: {tmp_path}: it is a folder without a config.json; the folder of a model has one"
    assert [line.startswith(todo) for line in told[1:]] == ([True] if todo else [])
