"""`dsgen effective` with the real DeepSpeed: what it makes of a dozen configs, and where dsgen's own tables agree."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import own_configs
import pytest
import recorded
from effective_checks import compare

from dsgen.effective import Effective, WrittenKey, load, load_many
from dsgen.shapes.errors import DsgenError

pytestmark = [pytest.mark.proof, pytest.mark.usefixtures("warm")]

SAMPLE, PROBES = 3, 7  # every third config, every seventh probe's verdict: all would take two minutes

ADAMW = {"type": "AdamW", "params": {"lr": 2e-5}}
DECAY = {"type": "WarmupDecayLR", "params": {"total_num_steps": 100, "warmup_num_steps": 10}}
TEXTS = {
    "misspelt section": '{"train_batch_size": 8, "zero_optimisation": {"stage": 3}}',
    "bf16 auto": '{"train_batch_size": 8, "bf16": {"enabled": "auto"}}',
    "number as text": '{"train_batch_size": 8, "zero_optimization": {"stage": "2", "reduce_bucket_size": 5e8}}',
    "stage 3": '{"train_batch_size": 8, "zero_optimization": {"stage": 3}}',
    "deprecated": '{"train_batch_size": 8, "zero_optimization": {"stage": 2, "cpu_offload": true}}',
    "schedule": json.dumps({"train_batch_size": 8, "optimizer": ADAMW, "scheduler": DECAY}),
    "schedule of nothing": json.dumps({"train_batch_size": 8, "optimizer": ADAMW, "scheduler": {
        "type": "WarmupDecayLR", "params": {"warmup_max_lr": 1e-3}}}),
    "triple": '{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2}',
    "comments": "{\n  # a comment\n  train_batch_size: 8, // another\n  'bf16': {enabled: true,},\n}",
    "raw true": '{"train_batch_size": 8, "bf16": true}',
    "duplicate": '{"train_batch_size": 8, "train_batch_size": 16}',
    "removed": '{"train_batch_size": 8, "elasticity": {"enabled": false}}',
    "not closed": '{"train_batch_size": 8',
    "a list": "[1, 2]",
    "empty": "",
    "deep": "[" * 10_000,
    "bytes": b'{"train_batch_size": 8, "a": "\xff"}',
    "unknown argument": '{"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"lr": 1, "beta": 2}}}',
}  # fmt: skip


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Effective]:
    """All of them, with one start."""
    folder = tmp_path_factory.mktemp("configs")
    files = []
    for number, text in enumerate(TEXTS.values()):
        files.append(folder / f"{number}.json")
        files[-1].write_bytes(text if isinstance(text, bytes) else text.encode())
    return dict(zip(TEXTS, load_many(files), strict=True))


def row(found: Effective, path: str) -> WrittenKey:
    return next(item for item in found.rows if item.path == path)


def test_a_misspelt_section_leaves_stage_0(loaded: dict[str, Effective]) -> None:
    found = loaded["misspelt section"]
    assert found.refused is None and found.answers is not None
    assert (row(found, "zero_optimisation").happened, found.answers.stage) == ("not read", 0)
    assert found.values["zero_optimization.stage"] == 0


def test_an_auto_in_a_strict_section_is_lost(loaded: dict[str, Effective]) -> None:
    found = loaded["bf16 auto"]
    lost = row(found, "bf16.enabled")
    assert found.answers is not None
    assert (lost.happened, lost.in_force, found.answers.dtype) == ("dropped", False, "fp32")


def test_clipping_is_on_where_nobody_wrote_it(loaded: dict[str, Effective]) -> None:
    found = loaded["bf16 auto"]
    assert found.defaults["gradient_clipping"] == 1.0


def test_a_number_as_text_is_converted(loaded: dict[str, Effective]) -> None:
    found = loaded["number as text"]
    assert (row(found, "zero_optimization.stage").happened, found.values["zero_optimization.stage"]) == ("converted", 2)
    assert row(found, "zero_optimization.reduce_bucket_size").happened == "kept"


def test_overlap_is_on_at_stage_3_alone(loaded: dict[str, Effective]) -> None:
    stages = [loaded[name].values["zero_optimization.overlap_comm"] for name in ("stage 3", "number as text")]
    assert stages == [True, False]


def test_a_deprecated_key_moves_its_value(loaded: dict[str, Effective]) -> None:
    found = loaded["deprecated"]
    moved = row(found, "zero_optimization.cpu_offload")
    assert found.answers is not None and isinstance(moved.in_force, Mapping)
    assert (moved.happened, moved.in_force["device"], found.answers.offload_optimizer) == ("moved", "cpu", "cpu")
    assert any("cpu_offload is deprecated" in warning for warning in found.warnings)


def test_the_decaying_schedule_sets_a_rate_of_its_own(loaded: dict[str, Effective]) -> None:
    """Its warmup_max_lr is 0.001 where nobody wrote it, whatever the optimizer's rate is."""
    answers = loaded["schedule"].answers
    assert answers is not None
    assert (answers.optimizer, answers.lr, answers.first_lr) == ("FusedAdam", 2e-5, 0.0)
    assert answers.highest_lr == pytest.approx(1e-3)
    assert (answers.highest_lr_step, answers.schedule_ignores_lr) == (11, True)
    assert loaded["schedule"].defaults["scheduler.params.warmup_max_lr"] == 1e-3
    assert loaded["schedule"].defaults["optimizer.params.adam_w_mode"] is True


def test_the_batch_triple_says_the_number_of_ranks(loaded: dict[str, Effective]) -> None:
    found = loaded["triple"]
    assert (found.world_size, found.implied, found.refused) == (8, True, None)


def test_comments_are_read_as_deepspeed_reads_them(loaded: dict[str, Effective]) -> None:
    found = loaded["comments"]
    assert found.refused is None and found.answers is not None
    assert found.answers.dtype == "bf16"


@pytest.mark.parametrize(
    ("name", "phase", "kind", "words"),
    [
        ("raw true", "parse", "TypeError", "bf16 is true; it must be a section"),
        ("duplicate", "read", "ValueError", "a key stands twice in one section: train_batch_size"),
        ("removed", "parse", "DeepSpeedConfigError", "Elastic training has been removed"),
        ("not closed", "read", "HjsonDecodeError", "the file is not HJSON"),
        ("a list", "parse", "TypeError", "the top level is [1, 2]; it must be a map"),
        ("empty", "parse", "AssertionError", "neither train_batch_size nor train_micro_batch_size_per_gpu is written"),
        ("deep", "read", "RecursionError", "the file nests too deep"),
        ("bytes", "read", "UnicodeDecodeError", "the file is not text in UTF-8"),
        ("schedule of nothing", "initialize", "TypeError", "WarmupDecayLR needs total_num_steps"),
        ("unknown argument", "initialize", "TypeError", "FusedAdam takes no argument beta"),
    ],
)
def test_what_deepspeed_refuses(name: str, phase: str, kind: str, words: str, loaded: dict[str, Effective]) -> None:
    refused = loaded[name].refused
    assert refused is not None
    assert (refused.phase, refused.kind) == (phase, kind)
    assert refused.sentence.startswith(words)


def test_the_number_of_ranks_decides_over_a_triple() -> None:
    triple = json.loads(str(TEXTS["triple"]))
    eight, two = load(triple, world_size=8), load(triple, world_size=2)
    assert eight.answers is not None and eight.refused is None
    assert (eight.answers.train_batch_size, eight.answers.micro_batch, eight.answers.accumulation) == (64, 4, 2)
    assert two.refused is not None
    assert two.refused.sentence == (
        "train_batch_size 64 is not micro-batch 4 x 2 steps x 2 GPUs; the three keys need 8 GPUs"
    )


def test_what_the_trainer_fills_in_stays_open() -> None:
    config = {
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": 2,
        "gradient_clipping": "auto",
        "bf16": {"enabled": "auto"},
        "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
        "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": "auto"}},
        "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto", "allgather_bucket_size": "auto"},
    }

    found = load(config, target="hf-trainer")

    left = {item.path for item in found.rows if item.happened == "left open"}
    assert found.refused is None and found.answers is not None
    assert left == {
        "train_micro_batch_size_per_gpu", "gradient_clipping", "bf16.enabled", "optimizer.params.lr",
        "scheduler.params.total_num_steps", "zero_optimization.reduce_bucket_size",
    }  # fmt: skip
    assert row(found, "zero_optimization.allgather_bucket_size").happened == "dropped"
    answers = found.answers
    assert (answers.dtype, answers.lr, answers.first_lr, answers.gradient_clipping) == (None, None, None, None)
    assert (answers.train_batch_size, answers.micro_batch, answers.accumulation) == (None, None, 2)
    assert not left & set(found.defaults)


def test_the_parent_imports_nothing_heavy(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    file.write_text(str(TEXTS["triple"]), encoding="utf-8")
    program = (
        "import sys; from dsgen.effective import load; found = load(sys.argv[1]); "
        "print(found.world_size, *({'torch', 'deepspeed'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program, str(file)], capture_output=True, text=True, check=True)
    assert done.stdout == "8\n"


def test_a_config_that_hangs_is_ended() -> None:
    """It is not allowed the time between two looks at the clock: whatever the machine, the fork comes too late."""
    with pytest.raises(DsgenError, match=r"had not loaded it within 1e-09 s"):
        load({"train_batch_size": 8}, timeout_seconds=1e-9)


@pytest.fixture(scope="module")
def probed() -> list[tuple[dict[str, Any], Effective]]:
    """A sample of the 417 recorded probes, and what DeepSpeed makes of each today."""
    # Recorded after zero.Init with a mesh of AutoTP, and before the parse, where the mesh of ranks is made.
    elsewhere = {"TPZ3_tb4_mb_gas", "B_spdp_mismatch_w2"}
    sample = recorded.probes()[::PROBES]
    chosen = [probe for probe in sample if probe["world"] == 2 and probe["id"] not in elsewhere]
    found = load_many([probe["config"] for probe in chosen], world_size=2)
    return list(zip(chosen, found, strict=True))


def test_our_tables_agree_with_what_deepspeed_holds(probed: list[tuple[dict[str, Any], Effective]]) -> None:
    """Every value of configs of our own and of the probes: `Subject.value` against the parsed DeepSpeedConfig."""
    golden = sorted(own_configs.GOLDEN.glob("*.json"))[::SAMPLE]
    autos = [own_configs.CAUSES / name for name in ("auto-everywhere.json", "auto-with-comments.json")]
    several_by_target = {
        "deepspeed": [*load_many(golden), *(found for _, found in probed)],
        "hf-trainer": load_many(autos, target="hf-trainer"),
    }
    compared, parsed, wrong = 0, 0, []
    for target, several in several_by_target.items():
        for found in several:
            parsed += bool(found.values)
            count, differing = compare(found, target)
            compared += count
            wrong += differing
    assert not wrong
    assert parsed > 70
    assert compared > 10_000


def test_deepspeeds_own_verdict_on_the_probes(probed: list[tuple[dict[str, Any], Effective]]) -> None:
    """Refused at parse exactly where it was when it was recorded."""
    wrong = []
    for probe, item in probed:
        phase = item.refused.phase if item.refused else None
        outcome = probe["outcome"]
        if (phase == "parse") != (outcome == "error at parse") or (phase and not outcome.startswith("error")):
            wrong.append((probe["id"], outcome, item.refused))
    assert not wrong
    assert len(probed) > 20
