"""What the five guides' own examples get wrong, and `dsgen lint` says: the column "must catch" of their README."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from dsgen.documents.hjson import reader
from dsgen.linting import launch_files, wrapped_configs
from dsgen.linting.linter import lint
from dsgen.linting.subjects import Facts
from dsgen.shapes.findings import Finding, Severity

Blocks = Callable[[int, str], list[str]]
_FENCE = re.compile(r"^[ \t]*```(\w+)\n(.*?)^[ \t]*```", re.S | re.M)


@pytest.fixture
def blocks(folder: Path) -> Blocks:
    """Gives the examples of a guide in one language, in order."""

    def found(guide: int, language: str) -> list[str]:
        [file] = (folder / "guides").glob(f"{guide:03}_*.txt")
        return [text for kind, text in _FENCE.findall(file.read_text(encoding="utf-8")) if kind == language]

    return found


def inside(text: str) -> str:
    """The entries of an example, whether or not it has the braces of the file around it."""
    entries = text.strip().removesuffix(",")
    if entries.startswith('"'):
        return entries
    return entries[entries.index("{") + 1 : entries.rindex("}")].rstrip()


def together(*texts: str) -> str:
    """Examples that are parts of one file, as that file."""
    return "{\n" + ",\n".join(inside(text) for text in texts) + "\n}\n"


def said(text: str, target: str = "deepspeed", **facts: object) -> dict[tuple[str, str], Finding]:
    """(rule, path) -> finding."""
    document = reader.read(text, "ds_config.json")
    found = lint(document, target=target, deepspeed="0.19", facts=Facts(**facts))
    return {(finding.rule, finding.path): finding for finding in found}


def launched(text: str) -> set[tuple[str, str]]:
    document = launch_files.read(text, "run.sh")
    return {(finding.rule, finding.path) for finding in lint(document, target="deepspeed", deepspeed="0.19")}


def errors(found: dict[tuple[str, str], Finding]) -> set[tuple[str, str]]:
    return {place for place, finding in found.items() if finding.severity is Severity.ERROR}


# Guide 0: one batch size per GPU size, whatever the model; buckets "of 500 MB" that are elements.


@pytest.mark.parametrize("number", [0, 1, 2])
def test_guide_0_says_that_the_batch_fixes_the_gpus(number: int, blocks: Blocks) -> None:
    found = said(blocks(0, "json")[number])

    assert found["batch-fixes-gpu-count", "train_batch_size"].severity is Severity.INFO
    assert "8" in found["batch-fixes-gpu-count", "train_batch_size"].message


def test_guide_0_the_given_config_is_right_on_8_gpus_and_wrong_on_4(blocks: Blocks) -> None:
    given = blocks(0, "json")[0]

    assert errors(said(given, world_size=8)) == set()
    assert ("batch-mismatches-gpus", "train_batch_size") in errors(said(given, world_size=4))


def test_guide_0_reads_bucket_sizes_as_elements(blocks: Blocks) -> None:
    """5e8 elements are 1 GB in bf16, and twice that with overlap_comm: the guide says 500 MB."""
    given = blocks(0, "json")[0].replace('"reduce_scatter": true', '"overlap_comm": true, "reduce_scatter": true')
    found = said(given, world_size=8, hardware="t4-16g")

    message = found["bucket-takes-memory", "zero_optimization.reduce_bucket_size"].message
    assert "elements" in message
    assert "GiB" in message


def test_guide_0_the_fast_variant_has_an_optimizer_that_is_none(blocks: Blocks) -> None:
    found = said(blocks(0, "json")[2])

    assert errors(found) == {("unknown-optimizer", "optimizer.type")}
    assert ("activation-checkpointing-unused", "activation_checkpointing") in found


def test_guide_0_offload_without_a_stage_offloads_nothing(blocks: Blocks) -> None:
    assert ("stage-missing", "zero_optimization.stage") in said(blocks(0, "json")[4])


# Guide 1: variables of the launch, and a training file that names its config.


def test_guide_1_names_variables_that_nothing_reads(blocks: Blocks) -> None:
    found = set().union(*(launched(text) for text in blocks(1, "bash")))

    assert ("variable-nothing-reads", "DEEPSPEED_LOG_LEVEL") in found


def test_guide_1_a_training_file_names_a_config_that_is_missing(blocks: Blocks) -> None:
    first, second = (wrapped_configs.read(text, "train.yaml") for text in blocks(1, "yaml"))

    assert [(rule, fault.path) for rule, fault in first.document.faults] == [
        ("named-config-missing", "training.deepspeed.config_path")
    ]
    assert not second.wraps


# Guide 2: keys and variables that nothing reads, checkpointing that checkpoints nothing.


@pytest.fixture
def guide_2(blocks: Blocks) -> dict[tuple[str, str], Finding]:
    """The config that the guide takes apart, put together again."""
    base, zero, stage_3, *rest = blocks(2, "json")
    whole = zero.rstrip().removesuffix("}").rstrip() + ",\n" + stage_3.strip() + "\n}"
    return said(together(base, whole, *rest), world_size=8)


@pytest.mark.parametrize("key", ["memory_efficient_linear", "use_dynamic_tiling"])
def test_guide_2_has_keys_that_deepspeed_never_reads(key: str, guide_2: dict[tuple[str, str], Finding]) -> None:
    assert guide_2["unread-key", key].severity is Severity.WARNING


def test_guide_2_activation_checkpointing_does_nothing_by_itself(guide_2: dict[tuple[str, str], Finding]) -> None:
    assert guide_2["activation-checkpointing-unused", "activation_checkpointing"].severity is Severity.WARNING


def test_guide_2_says_what_the_batch_means_for_the_gpus(blocks: Blocks) -> None:
    batch = blocks(2, "json")[0]

    assert "the number of GPUs must divide 16" in said(batch)["batch-fixes-gpu-count", "train_batch_size"].message
    assert ("batch-mismatches-gpus", "train_batch_size") in errors(said(batch, world_size=6))


def test_guide_2_offload_to_the_cpu_needs_no_aio(guide_2: dict[tuple[str, str], Finding]) -> None:
    aio = {path for rule, path in guide_2 if rule == "key-has-no-effect" and path.startswith("aio")}

    assert {"aio.block_size", "aio.queue_depth"} <= aio
    assert errors(guide_2) == set()


def test_guide_2_stage_3_keys_at_the_top_are_not_read(blocks: Blocks) -> None:
    found = said(together(blocks(2, "json")[2], '"train_batch_size": 16'))

    assert ("unread-key", "stage3_prefetch_bucket_size") in found
    assert ("unread-key", "round_robin_gradients") in found


def test_guide_2_names_variables_that_nothing_reads(blocks: Blocks) -> None:
    [script, _] = blocks(2, "bash")

    assert {path for rule, path in launched(script) if rule == "variable-nothing-reads"} == {
        "DS_PIPE_RESERVE",
        "DS_SKIP_UNUSED_PARAMETERS",
        "DS_REUSE_BUFFERS",
        "DS_USE_CUDA_TILING",
    }


# Guide 3: "auto" is for the Hugging Face Trainer.


def test_guide_3_auto_means_nothing_to_plain_deepspeed(blocks: Blocks) -> None:
    whole = together(*blocks(3, "json"))
    plain = said(whole)

    assert ("auto-outside-hugging-face", "bf16.enabled") in plain
    assert ("auto-outside-hugging-face", "gradient_clipping") in plain
    assert {path for _, path in errors(plain)} >= {"train_batch_size", "optimizer.params.lr"}


def test_guide_3_auto_is_filled_in_by_the_trainer(blocks: Blocks) -> None:
    found = said(re.sub("//.*", "", together(*blocks(3, "json"))), "hf-trainer")

    assert [place for place in found if place[0].startswith("auto-")] == []
    assert errors(found) == set()


def test_guide_3_the_trainer_reads_no_comments(blocks: Blocks) -> None:
    assert ("not-strict-json", "") in errors(said(together(*blocks(3, "json")), "hf-trainer"))


# Guide 4: AutoTP's keys, and an option that the launcher does not have.


def test_guide_4_has_keys_that_deepspeed_rejects(blocks: Blocks) -> None:
    found = said(blocks(4, "json")[0])

    assert errors(found) >= {
        ("tensor-parallel-key", f"tensor_parallel.{key}") for key in ("enabled", "tp_size", "tp_group_size")
    }
    assert "autotp_size" in found["tensor-parallel-key", "tensor_parallel.tp_size"].message


def test_guide_4_the_other_config_is_right(blocks: Blocks) -> None:
    found = said(blocks(4, "json")[1])

    assert {finding.severity for finding in found.values()} == {Severity.INFO}


def test_guide_4_starts_with_an_option_that_does_not_exist(blocks: Blocks) -> None:
    starts, _, profile = blocks(4, "bash")

    assert launched(profile) == {("launcher-option-unknown", "deepspeed --profile")}
    assert launched(starts) == set()


# Everything that is more than a hint about any shell example of a guide.
LAUNCHED = {
    1: {"DEEPSPEED_LOG_LEVEL", "NCCL_TIMEOUT"},
    2: {"DS_PIPE_RESERVE", "DS_SKIP_UNUSED_PARAMETERS", "DS_REUSE_BUFFERS", "DS_USE_CUDA_TILING"},
    4: {"deepspeed --profile"},
}


@pytest.mark.parametrize("guide", sorted(LAUNCHED))
def test_a_guides_shell_examples_are_told_what_does_nothing(guide: int, blocks: Blocks) -> None:
    documents = [launch_files.read(text, "train.sh") for text in blocks(guide, "bash")]
    found = [finding for document in documents for finding in lint(document)]

    assert {finding.path for finding in found if finding.severity > Severity.INFO} == LAUNCHED[guide]
