"""tests/causes/: files that are wrong, or right, for one cause each, and what `dsgen lint` says of them.

They show what real guides get wrong; `nox -s corpus` asks the same of the guides themselves.
"""

from __future__ import annotations

import pytest
from own_configs import BROKEN, CAUSES, cause

from dsgen.documents.hjson import reader as hjson_reader
from dsgen.linting import launch_files, wrapped_configs
from dsgen.linting.linter import lint
from dsgen.linting.subjects import Facts
from dsgen.shapes.findings import Finding, Severity


def said(name: str, target: str = "deepspeed", **facts: object) -> dict[tuple[str, str], Finding]:
    """(rule, path) -> finding, for a config or a launch file."""
    reader = hjson_reader if name.endswith(".json") else launch_files
    found = lint(reader.read(cause(name), name), target=target, deepspeed="0.19", facts=Facts(**facts))
    return {(finding.rule, finding.path): finding for finding in found}


def of(severity: Severity, found: dict[tuple[str, str], Finding]) -> set[tuple[str, str]]:
    return {place for place, finding in found.items() if finding.severity is severity}


WARNINGS = {
    "aio-without-nvme.json": {("key-has-no-effect", "aio.queue_depth")},  # block_size is the default: info
    "batch-fixes-the-gpus.json": set(),
    "batch-is-divided-by-the-gpus.json": set(),
    "bucket-of-elements.json": set(),
    "checkpointing-of-nothing.json": {("activation-checkpointing-unused", "activation_checkpointing")},
    "keys-that-nothing-reads.json": {("unread-key", "memory_efficient_linear"), ("unread-key", "use_dynamic_tiling")},
    "launcher.sh": set(),
    "offload-without-a-stage.json": {("stage-missing", "zero_optimization.stage")},
    "section-keys-at-the-top.json": {
        ("unread-key", "stage3_prefetch_bucket_size"),
        ("unread-key", "round_robin_gradients"),
    },
    "tensor-parallel.json": set(),
    "variables-of-other-names.sh": {
        ("variable-nothing-reads", "DEEPSPEED_LOG_LEVEL"),
        ("variable-nothing-reads", "NCCL_TIMEOUT"),
    },
    "variables-that-nothing-reads.sh": {
        ("variable-nothing-reads", "DS_PIPE_RESERVE"),
        ("variable-nothing-reads", "DS_SKIP_UNUSED_PARAMETERS"),
        ("variable-nothing-reads", "DS_REUSE_BUFFERS"),
        ("variable-nothing-reads", "DS_USE_CUDA_TILING"),
    },
}
ERRORS = {
    "launcher-option-that-is-none.sh": {("launcher-option-unknown", "deepspeed --profile")},
    "optimizer-by-its-class.json": {("unknown-optimizer", "optimizer.type")},
    "tensor-parallel-by-other-names.json": {
        ("tensor-parallel-key", f"tensor_parallel.{key}") for key in ("enabled", "tp_size", "tp_group_size")
    },
}
APART = {  # each has tests of its own below
    "auto-everywhere.json",
    "auto-with-comments.json",
    "names-a-config-that-is-missing.yaml",
    "names-no-config.yaml",
    *BROKEN,
}


def test_every_cause_is_asked_about() -> None:
    assert {*WARNINGS, *ERRORS, *APART} == {file.name for file in CAUSES.iterdir()}


@pytest.mark.parametrize("name", sorted(WARNINGS))
def test_what_does_otherwise_than_written_is_a_warning(name: str) -> None:
    found = said(name)

    assert of(Severity.WARNING, found) == WARNINGS[name]
    assert of(Severity.ERROR, found) == set()


@pytest.mark.parametrize("name", sorted(ERRORS))
def test_what_deepspeed_refuses_is_an_error(name: str) -> None:
    assert of(Severity.ERROR, said(name)) == ERRORS[name]


def test_a_batch_is_right_on_the_gpus_that_it_fixes_and_wrong_on_others() -> None:
    found = said("batch-fixes-the-gpus.json")

    assert "8" in found["batch-fixes-gpu-count", "train_batch_size"].message
    assert of(Severity.ERROR, said("batch-fixes-the-gpus.json", world_size=8)) == set()
    assert of(Severity.ERROR, said("batch-fixes-the-gpus.json", world_size=4)) == {
        ("batch-mismatches-gpus", "train_batch_size")
    }


def test_a_batch_alone_says_what_the_number_of_gpus_must_divide() -> None:
    found = said("batch-is-divided-by-the-gpus.json")

    assert "the number of GPUs must divide 16" in found["batch-fixes-gpu-count", "train_batch_size"].message
    assert ("batch-mismatches-gpus", "train_batch_size") in said("batch-is-divided-by-the-gpus.json", world_size=6)
    assert of(Severity.ERROR, said("batch-is-divided-by-the-gpus.json", world_size=4)) == set()


def test_a_bucket_is_counted_in_elements() -> None:
    """5e8 of them are 1 GB in bf16, and twice that with overlap_comm; on a card of 80 GB that is little."""
    small = said("bucket-of-elements.json", world_size=8, hardware="t4-16g")
    large = said("bucket-of-elements.json", world_size=8, hardware="a100-80g")

    message = small["bucket-takes-memory", "zero_optimization.reduce_bucket_size"].message
    assert "elements" in message
    assert "GiB" in message
    assert ("bucket-takes-memory", "zero_optimization.reduce_bucket_size") not in large


def test_the_error_about_tensor_parallelism_names_the_key() -> None:
    found = said("tensor-parallel-by-other-names.json")

    assert "autotp_size" in found["tensor-parallel-key", "tensor_parallel.tp_size"].message


def test_auto_means_nothing_to_plain_deepspeed() -> None:
    plain = said("auto-everywhere.json")
    errors = {path for _, path in of(Severity.ERROR, plain)}

    assert plain["auto-outside-hugging-face", "bf16.enabled"].severity is Severity.WARNING
    assert errors >= {"train_batch_size", "gradient_clipping", "optimizer.params.lr"}


def test_auto_is_filled_in_by_the_trainer() -> None:
    found = said("auto-everywhere.json", "hf-trainer")

    assert [rule for rule, _ in found if rule.startswith("auto-")] == []
    assert of(Severity.ERROR, found) == set()


def test_the_trainer_reads_no_comments() -> None:
    assert ("not-strict-json", "") in of(Severity.ERROR, said("auto-with-comments.json", "hf-trainer"))
    assert ("not-strict-json", "") not in said("auto-with-comments.json")


def test_a_training_file_that_names_a_missing_config_is_told() -> None:
    names, plain = (
        wrapped_configs.read(cause(name), name)
        for name in ("names-a-config-that-is-missing.yaml", "names-no-config.yaml")
    )

    assert [(rule, fault.path) for rule, fault in names.document.faults] == [
        ("named-config-missing", "training.deepspeed.config_path")
    ]
    assert not plain.wraps


@pytest.mark.parametrize(
    ("name", "line", "words"),
    [
        ("brace-never-closed.json", 7, "the { of zero_optimization in line 7"),
        ("fence-behind-the-config.json", 7, "Markdown fence"),
    ],
)
def test_broken_syntax_names_its_cause(name: str, line: int, words: str) -> None:
    [found] = said(name).values()

    assert (found.rule, found.severity, found.line) == ("broken-syntax", Severity.ERROR, line)
    assert words in found.message
