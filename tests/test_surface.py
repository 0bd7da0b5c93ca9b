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

from dsgen import surface
from dsgen.data import data_root
from dsgen.errors import DsgenError
from dsgen.keys import lookup

REPOSITORY = Path(__file__).resolve().parent.parent
REFERENCE = REPOSITORY.parent / "shared" / "reference" / "deepspeed-0.19.8"
LINES = ("0.14", "0.15", "0.16", "0.17", "0.18", "0.19")
# The probes' notes write these as words; the release's own defaults are the values beside them.
WORDED = {"datastates_ckpt": ("false", False)}
# What DeepSpeed turns into the right type without a word, and the schema refuses on purpose: it says what is meant.
COERCED = {
    "T_zero_stage_str", "T_bucket_strint", "T_overlap_str", "T_bf16_enabled_str", "T_bf16_enabled_yes",
    "T_micro_floatfrac", "T_gas_bool", "T_clip_true", "T_clip_neg", "T_dump_state", "T_prescale_str",
}  # fmt: skip
# Parse errors of several keys together or of the number of ranks: rules of the linter, not of a schema.
TOGETHER = {
    "T_empty", "T_only_gas", "B_mismatch", "B_tb3_w2", "B_tb_only_odd", "B_tb_micro_nondiv", "B_tb_lt_world",
    "B_tb_gas_nondiv", "P_fp16_bf16", "P_bf16_optstates_alone", "P_bf16_master_z0", "O_ratio_z2", "O_depr_both", "ZF_sum",
    "TP_tb_dp_w2", "Z_sum_z3", "Z_cgn_false_z3", "AIO_gds", "DE_cl_nometrics", "DE_db_nomax", "TPZ3_tb2_mb_gas",
    "TPZ3_tb2_mb", "TPZ3_tb4_mb_gas", "TP_w4_dp2_z1_tb4", "T_fp16_window_0",
}  # fmt: skip
# "auto" in a batch key is an error of plain DeepSpeed, and right under Hugging Face, which the schema serves as well.
FILLED = {"T_micro_auto", "T_all_auto"}


def reference(name: str) -> Any:
    path = REFERENCE / name
    assert path.is_file(), f"{path} is missing: these tests compare with what was learnt by running DeepSpeed 0.19.8"
    return json.loads(path.read_text(encoding="utf-8"))


@functools.cache
def schema(line: str) -> jsonschema.Draft202012Validator:
    tree = json.loads((data_root() / "schema" / "deepspeed" / f"{line}.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(tree)
    return jsonschema.Draft202012Validator(tree)


def test_every_key_of_the_reference_is_known_with_its_default() -> None:
    known, wrong = surface.load("0.19"), []
    for fact in reference("keys.json"):
        key = known.key(fact["path"])
        worded, value = WORDED.get(fact["path"], (None, None))
        expected = value if worded is not None and fact["default"] == worded else fact["default"]
        if key is None or (not fact.get("removed") and key.default != expected):
            wrong.append((fact["path"], expected, key and key.default))
        elif bool(fact.get("removed")) != bool(key.removed) or (fact["strict_section"] and "." in fact["path"]) > key.strict:
            wrong.append((fact["path"], "removed or strict", key))
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


@pytest.mark.parametrize("probe", reference("probes.json"), ids=lambda probe: probe["id"])
def test_the_schema_agrees_with_the_probes(probe: dict[str, Any]) -> None:
    """Every parse error one key causes is a schema error; nothing that DeepSpeed takes as it is meant is one."""
    valid = schema("0.19").is_valid(probe["config"])
    if probe["outcome"] == "error at parse":
        assert valid == (probe["id"] in TOGETHER | FILLED)
    elif probe["outcome"] in ("silent", "warning"):
        assert valid == (probe["id"] not in COERCED)


@pytest.mark.parametrize("probe", reference("probes.json"), ids=lambda probe: probe["id"])
def test_unknown_keys_of_strict_sections_are_unknown_here(probe: dict[str, Any]) -> None:
    error = (probe["error"] or "").splitlines()
    refused = [line for line, after in zip(error, error[1:], strict=False) if "Extra inputs are not permitted" in after]
    known = surface.load("0.19")
    for name in refused if probe["id"] != "Z_alias_and_name" else []:  # both of its names are known
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


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("memory_efficient_linear", "zero_optimization.memory_efficient_linear"),
        ("tensor_parallel.tp_size", "tensor_parallel.autotp_size"),
        ("stage", "zero_optimization.stage"),
        ("zero_optimizaton", "zero_optimization"),
        ("zero_optimizaton.stage", "zero_optimization.stage"),
        ("zero_optimization.overlap_com", "zero_optimization.overlap_comm"),
        ("zero_optimization.gradient_clipping", "gradient_clipping"),
        ("prefetch_bucket_size", "zero_optimization.stage3_prefetch_bucket_size"),
        ("activation_checkpointing.partition_activation", "activation_checkpointing.partition_activations"),
        ("optimiser", "optimizer"),
        ("lr", "optimizer.params.lr"),
        ("optimizer.lr", "optimizer.params.lr"),
        ("scheduler.params.warmup_steps", "scheduler.params.warmup_num_steps"),
        ("fp16.enable", "fp16.enabled"),
    ],
)
def test_a_near_miss_finds_what_was_meant(written: str, meant: str) -> None:
    assert surface.load("0.19").nearest(written)[0] == meant


def test_nothing_without_effect_is_suggested() -> None:
    known = surface.load("0.19")
    for path in ("allgather_partitions", "zero_optimization.allgather_partition", "nebul", "cpu_offload"):
        for other in known.nearest(path):
            key = known.key(other)
            assert key is not None and not (key.removed or key.deprecated or key.effect.never)


STAGE2 = {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}
STAGE3 = {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme"}, "offload_param": {"device": "cpu"}}}


@pytest.mark.parametrize(
    ("path", "config", "why"),
    [
        ("zero_optimization.stage3_max_live_parameters", STAGE2, "unless zero_optimization.stage is 3; it is 2."),
        ("zero_optimization.max_live_parameters", STAGE2, "unless zero_optimization.stage is 3; it is 2."),
        ("zero_optimization.offload_param.device", STAGE2, "unless zero_optimization.stage is 3; it is 2."),
        ("zero_optimization.offload_optimizer.nvme_path", STAGE2, "unless zero_optimization.stage is 3; it is 2."),
        ("zero_optimization.reduce_scatter", {}, "unless zero_optimization.stage is 1, 2 or 3; it is 0."),
        ("zero_optimization.reduce_scatter", {"zero_optimization": True}, None),
        ("zero_optimization.allgather_bucket_size", STAGE3, "unless zero_optimization.stage is 1 or 2; it is 3."),
        ("zero_optimization.allgather_partitions", STAGE2, ": nothing reads it after the parse."),
        ("zero_optimization.stage3_max_live_parameters", STAGE3, None),
        ("zero_optimization.offload_optimizer.nvme_path", STAGE3, None),
        ("zero_optimization.offload_param.nvme_path", STAGE3, "unless zero_optimization.offload_param.device is"),
        ("zero_optimization.stage3_max_live_parameters", {"zero_optimization": {"stage": "3"}}, None),
        ("fp16.loss_scale", {}, "while fp16.enabled is false."),
        ("fp16.loss_scale", {"fp16": {"enabled": "auto"}}, None),
        ("fp16.initial_scale_power", {"fp16": {"enabled": True, "loss_scale": 128}}, "unless fp16.loss_scale is 0; it is"),
        ("fp16.initial_scale_power", {"fp16": {"enabled": True}}, None),
        ("bf16.check_grad_overflow", {"bfloat16": {"enabled": True}, **STAGE2}, None),
        ("flops_profiler.profile_step", {"flops_profiler": {"enabled": False}}, "while flops_profiler.enabled is false."),
        ("tensorboard.enabled", {"tensorboard": {"enabled": False}}, None),
        ("aio.block_size", STAGE3, None),
        ("aio.block_size", STAGE2, "unless zero_optimization.stage is 3; it is 2."),
        ("aio.block_size", {"checkpoint": {"writer": {"type": "FAST"}}}, None),
        ("activation_checkpointing.cpu_checkpointing", {}, None),
        ("gradient_predivide_factor", {"prescale_gradients": True}, "unless prescale_gradients is false; it is true."),
        ("tensor_parallel.preset_model", {"tensor_parallel": {"autotp_size": 1}}, "is neither 0 nor 1; it is 1."),
        ("no_such_key", {}, ": DeepSpeed 0.19.8 does not read it."),
    ],
)
def test_effects(path: str, config: dict[str, Any], why: str | None) -> None:
    said = surface.load("0.19").has_effect(path, config)
    assert said is None if why is None else said is not None and said.startswith(f"{path} has no effect") and why in said


@pytest.mark.parametrize(
    ("path", "value", "must"),
    [
        ("zero_optimization.reduce_bucket_size", 5e8, None),
        ("zero_optimization.reduce_bucket_size", 5.5, "it must be a whole number above 0"),
        ("zero_optimization.reduce_bucket_size", 0, "it must be a whole number above 0"),
        ("zero_optimization.reduce_bucket_size", "5e8", "it must be a whole number above 0"),
        ("zero_optimization.reduce_bucket_size", "auto", None),
        ("zero_optimization.overlap_comm", "no", "it must be true or false or null"),
        ("zero_optimization.overlap_comm", 1, "it must be true or false or null"),
        ("zero_optimization.overlap_comm", None, None),
        ("zero_optimization.stage", 4, "it must be one of 0, 1, 2, 3"),
        ("zero_optimization.stage", True, "it must be one of 0, 1, 2, 3"),
        ("zero_optimization.offload_optimizer.device", "gpu", 'it must be one of "none", "cpu", "nvme"'),
        ("zero_optimization.offload_optimizer.ratio", 1.5, "it must be a number of at least 0.0 and of at most 1.0"),
        ("zero_optimization.leaf_module.names", "mlp", None),
        ("train_micro_batch_size_per_gpu", 1.9, "it must be a whole number above 0"),
        ("train_micro_batch_size_per_gpu", True, "it must be a whole number above 0"),
        ("steps_per_print", 0, "it must be a whole number other than 0 or null"),
        ("gradient_clipping", float("nan"), "it must be a number of at least 0"),
        ("gradient_clipping", 1, None),
        ("wall_clock_breakdown", "auto", "it must be true or false"),
        ("checkpoint.tag_validation", "warn", None),
        ("checkpoint.tag_validation", "maybe", 'it must be one of "WARN", "IGNORE", "FAIL"'),
        ("compile.passes", ["z9"], 'it must be a list of "z1", "z3", "autosp", "autotp"'),
        ("optimizer.params.lr", "1e-3", "it must be a number of at least 0"),
        ("optimizer.params.betas", [0.9, 0.95], None),
        ("amp", {"enabled": False}, "it must be left out: DeepSpeed 0.19.8 removed it"),
    ],
)
def test_values(path: str, value: object, must: str | None) -> None:
    known = surface.load("0.19")
    key = known.key(path)
    assert key is not None and known.check_value(key, value) == must


def test_the_default_of_every_key_is_a_value_it_takes() -> None:
    for line in LINES:
        known = surface.load(line)
        for path in known.paths:
            key = known.key(path)
            # What no JSON value can say: an unset marker, a torch dtype, and null where nothing is written.
            if key is None or key.removed or key.default in (None, "unset", "torch.float16"):
                continue
            assert known.check_value(key, key.default) is None, (line, path)


def test_arguments_follow_the_type() -> None:
    known = surface.load("0.19")
    adam, sgd = {"optimizer": {"type": "adamw"}}, {"optimizer": {"type": "SGD"}}
    decay = {"scheduler": {"type": "WarmupDecayLR"}}
    assert known.key("optimizer.params.torch_adam", adam) and not known.key("optimizer.params.torch_adam", sgd)
    assert known.key("optimizer.params.nesterov", sgd) and not known.key("optimizer.params.nesterov", adam)
    assert known.key("optimizer.params.anything", {"optimizer": {"type": "MuAdam"}})
    assert known.key("scheduler.params.total_num_steps", decay)
    assert not known.key("scheduler.params.cos_min_ratio", decay)
    warmup = known.key("scheduler.params.warmup_max_lr", decay)
    assert warmup is not None and warmup.default == 0.001
    assert known.key("optimizer.params.no_such_argument") is None
    assert known.key("optimizer.params") is not None


def test_free_names_and_list_items_resolve() -> None:
    known = surface.load("0.19")
    metrics = "data_efficiency.data_sampling.curriculum_learning.curriculum_metrics"
    for path in (f"{metrics}.seqlen.min_difficulty", "tensor_parallel.partition_config.layer_specs.0.shape",
                 "tensor_parallel.partition_config.layer_specs[1].patterns", "datastates_ckpt.anything"):
        assert known.key(path) is not None
    assert known.key("tensor_parallel.partition_config.no_such_key") is None
    assert known.key("zero_optimization.leaf_module.no_such_key") is None


def test_counts_of_elements_are_marked() -> None:
    known = surface.load("0.19")
    counted = {path for path in known.paths if (key := known.key(path)) and key.elements}
    assert {"zero_optimization.reduce_bucket_size", "zero_optimization.offload_param.buffer_size"} <= counted
    assert not counted & {"aio.block_size", "checkpoint.writer.io_buffer_size", "compile.free_activation_threshold"}


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
