"""The surface of each DeepSpeed release: complete, as the release itself says, and of use to whoever mistypes a key."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import recorded

from dsgen.deepspeed import surface
from dsgen.deepspeed.keys import lookup
from dsgen.shapes.data import data_root
from dsgen.shapes.errors import DsgenError

REPOSITORY = Path(__file__).resolve().parents[2]
LINES = ("0.14", "0.15", "0.16", "0.17", "0.18", "0.19")
# What DeepSpeed turns into the right type without a word, and the schema refuses on purpose: it says what is meant.
COERCED = {
    "T_zero_stage_str", "T_bucket_strint", "T_overlap_str", "T_bf16_enabled_str", "T_bf16_enabled_yes",
    "T_micro_floatfrac", "T_gas_bool", "T_clip_true", "T_clip_neg", "T_dump_state", "T_prescale_str",
}  # fmt: skip
# Parse errors of several keys together or of the number of ranks: rules of the linter, not of a schema.
TOGETHER = {
    "T_empty", "T_only_gas", "B_mismatch", "B_tb3_w2", "B_tb_only_odd", "B_tb_micro_nondiv", "B_tb_lt_world",
    "B_tb_gas_nondiv", "P_fp16_bf16", "P_bf16_optstates_alone", "P_bf16_master_z0", "O_ratio_z2", "O_depr_both",
    "ZF_sum", "TP_tb_dp_w2", "Z_sum_z3", "Z_cgn_false_z3", "AIO_gds", "DE_cl_nometrics", "DE_db_nomax",
    "TPZ3_tb2_mb_gas", "TPZ3_tb2_mb", "TPZ3_tb4_mb_gas", "TP_w4_dp2_z1_tb4", "T_fp16_window_0",
}  # fmt: skip
# "auto" in a batch key is an error of plain DeepSpeed, and right under Hugging Face, which the schema serves as well.
FILLED = {"T_micro_auto", "T_all_auto"}


@functools.cache
def schema(line: str) -> jsonschema.Draft202012Validator:
    tree = json.loads((data_root() / "schema" / "deepspeed" / f"{line}.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(tree)
    return jsonschema.Draft202012Validator(tree)


def test_every_key_of_the_reference_is_known_with_its_default() -> None:
    known, wrong = surface.load("0.19"), []
    for fact in recorded.key_facts():
        key = known.key(fact["path"])
        if key is None or (not fact.get("removed") and key.default != fact["default"]):
            wrong.append((fact["path"], fact["default"], key and key.default))
        elif bool(fact.get("removed")) != bool(key.removed):
            wrong.append((fact["path"], fact.get("removed"), key.removed))
        elif fact["strict"] and "." in fact["path"] and not key.strict:
            wrong.append((fact["path"], "strict", key.strict))
    assert not wrong


def test_every_key_has_a_description_and_a_type() -> None:
    known = surface.load("0.19")
    keys = [known.key(path) for path in known.paths]
    untyped = {key.path for key in keys if key and not key.types}
    assert len(keys) >= 410
    assert not [key for key in keys if key is None or not key.description.endswith(".")]
    assert untyped == {"tensor_parallel.tp.mpu", "tensor_parallel.tp.tp_group"}  # Python objects


def test_names_that_public_configs_use_are_known() -> None:
    known = surface.load("0.19")
    for name in ("gather_16bit_weights_on_model_save", "max_live_parameters", "max_reuse_distance"):
        key = known.key(f"zero_optimization.{name}")
        assert key is not None and key.path == f"zero_optimization.stage3_{name}"
    assert known.key("timers.throughput.enabled") is not None
    bfloat16 = known.key("bfloat16.enabled")
    assert bfloat16 is not None and bfloat16.deprecated and bfloat16.replaced_by == "bf16.enabled"


@pytest.mark.parametrize("probe", recorded.probes(), ids=lambda probe: probe["id"])
def test_the_schema_agrees_with_the_probes(probe: dict[str, Any]) -> None:
    """Every parse error one key causes is a schema error; nothing that DeepSpeed takes as it is meant is one."""
    valid = schema("0.19").is_valid(probe["config"])
    if probe["outcome"] == "error at parse":
        assert valid == (probe["id"] in TOGETHER | FILLED)
    elif probe["outcome"] in ("silent", "warning"):
        assert valid == (probe["id"] not in COERCED)


@pytest.mark.parametrize("probe", recorded.probes(), ids=lambda probe: probe["id"])
def test_unknown_keys_of_strict_sections_are_unknown_here(probe: dict[str, Any]) -> None:
    known = surface.load("0.19")
    for name in probe.get("refused", ()) if probe["id"] != "Z_alias_and_name" else []:  # both of its names are known
        sections = ("", "timers.throughput.", *(f"{section}." for section in probe["config"]))
        path = next(s + name for s in sections if lookup(probe["config"], s + name)[0])
        assert known.key(path) is None
        assert known.sections[path.rpartition(".")[0]] == "strict"


@pytest.mark.parametrize("line", LINES)
def test_every_line_has_a_schema_and_a_table_of_one_release(line: str) -> None:
    known = surface.load(line)
    assert known.version.startswith(f"{line}.")
    assert known.version in schema(line).schema["description"]
    assert schema(line).is_valid({"train_batch_size": 8, "zero_optimization": {"stage": 2}})
    assert not schema(line).is_valid({"zero_optimization": {"stage": 4}})
    assert not schema(line).is_valid({"zero_optimization": {"stag": 3}})


@pytest.mark.parametrize(
    ("path", "lines"),
    [
        ("torch_autocast.enabled", "0.17 0.18 0.19"),
        ("tensor_parallel.autotp_size", "0.16 0.17 0.18 0.19"),
        ("compile.deepcompile", "0.16 0.17 0.18 0.19"),
        ("zero_optimization.zenflow", "0.17 0.18 0.19"),
        ("zero_optimization.leaf_module.classes", "0.18 0.19"),
        ("zero_optimization.offload_optimizer.super_offload", "0.18 0.19"),
        ("expert_parallel.autoep_size", "0.19"),
        ("zero_optimization.compute_grad_norm", "0.19"),
        ("seq_parallel_comm_data_type", "0.14 0.15"),
        ("aio.thread_count", "0.14 0.15"),
        ("timers.throughput.enabled", "0.14 0.15 0.16 0.17 0.18 0.19"),
    ],
)
def test_versions_differ_in_what_they_read(path: str, lines: str) -> None:
    assert " ".join(line for line in LINES if surface.load(line).key(path)) == lines


def test_versions_differ_in_defaults_and_strictness() -> None:
    assert [surface.load(line).default("gradient_clipping") for line in LINES] == [0.0, 0.0, 0.0, 0.0, 0.0, 1.0]
    assert [surface.load(line).default("steps_per_print") for line in LINES] == [10, None, None, None, None, None]
    strict = [surface.load(line).sections["fp16"] for line in LINES]
    assert strict == ["loose", "loose", "loose", "strict", "strict", "strict"]
    patches = [surface.load(patch).sections["bf16"] for patch in ("0.17.0", "0.17.1", "0.17.5")]
    assert patches == ["loose", "strict", "strict"]


@pytest.mark.parametrize(
    ("path", "removed"), [("nebula", "0.19.7"), ("amp", "0.19.8"), ("zero_optimization.mics_shard_size", "0.19.7")]
)
def test_removed_keys_know_since_when(path: str, removed: str) -> None:
    newest, before = surface.load("0.19").key(path), surface.load("0.19.6").key(path)
    assert newest is not None and newest.removed == removed
    assert before is not None and before.removed is None
    assert surface.load("0.18").key(path) is not None
    assert not schema("0.19").is_valid(_nested(path, {"enabled": False}))


def test_a_patch_release_has_only_what_it_had() -> None:
    early, late = surface.load("0.19.2"), surface.load("0.19.8")
    assert (early.version, late.version) == ("0.19.2", "0.19.8")
    assert (early.default("gradient_clipping"), late.default("gradient_clipping")) == (0.0, 1.0)
    assert early.key("disable_python_gc") is None and late.key("disable_python_gc") is not None
    assert surface.load() is surface.load(late.version.rpartition(".")[0])


def test_since_agrees_with_the_lines_themselves() -> None:
    """A key's `since` is never later than the first line that has it, nor before the last that has not."""
    first = {path: line for line in reversed(LINES) for path in surface.load(line).paths}
    wrong = []
    for path in surface.load("0.19").paths:
        key = surface.load("0.19").key(path)
        assert key is not None
        since = ".".join((key.since or "0.14").split(".")[:2])
        if since != first[path] and not key.removed:
            wrong.append((path, key.since, first[path]))
    assert not wrong


@pytest.mark.parametrize("version", ["0.20", "0.19.9", "0.13", "1", "", "newest", "0.19.x", "0.19.8.1", "../0.19"])
def test_an_unknown_release_is_an_error_that_lists_the_known(version: str) -> None:
    with pytest.raises(DsgenError, match=r"is not known; the known releases are 0\.14 \(up to 0\.14\.5\), .*0\.19"):
        surface.load(version)


@pytest.mark.proof
def test_the_newest_line_is_what_the_installed_release_says() -> None:
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "schema" / "generate.py"), "--deepspeed", "0.19", "--check"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def _nested(path: str, value: Any) -> dict[str, Any]:
    for part in reversed(path.split(".")):
        value = {part: value}
    assert isinstance(value, dict)
    return value
