"""The rules about batch sizes, ZeRO and parallelism: what DeepSpeed 0.19.8 did with each config, and what they say.

Most cases are probes run on two CPU ranks (the facts say so); the others ran in one process with a fake process group.
"""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsgen.linting.facts import facts as facts_of
from dsgen.linting.linter import lint_config
from dsgen.linting.rules import batch, parallel, zero
from dsgen.linting.rules.batch_sizes import Sizes, adds_up
from dsgen.linting.rules.tensor_parallelism import PRESETS, matches
from dsgen.linting.subjects import Facts
from dsgen.shapes.findings import Assign, Finding, Move, Remove, Severity
from dsgen.shapes.profiles import Training

TRAIN, MICRO, STEPS = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
ADAM: dict[str, Any] = {"optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}
BASE: dict[str, Any] = {MICRO: 2, **ADAM}
ADAGRAD: dict[str, Any] = {"type": "Adagrad", "params": {"lr": 1e-3}}
BF16: dict[str, Any] = {"bf16": {"enabled": True}}
AUTOSP: dict[str, Any] = {"deepcompile": True, "passes": ["autosp"]}
CPU: dict[str, Any] = {"device": "cpu"}
NVME: dict[str, Any] = {"device": "nvme", "nvme_path": "/d"}
ZENFLOW: dict[str, Any] = {"select_strategy": "step", "select_interval": 4, "update_interval": 2}
SPLIT: dict[str, Any] = {
    "partition_config": {
        "layer_specs": [
            {"patterns": [r".*up_proj\.weight$"], "partition_type": "column"},
            {"patterns": [r".*down_proj\.weight$"], "partition_type": "row"},
        ]
    }
}
NAMES = ("layers.0.up_proj.weight", "layers.0.down_proj.weight")
LLAMA = ("model.layers.0.self_attn.q_proj.weight", "model.layers.0.mlp.down_proj.weight")
NAMED = {rule.name for family in (batch, zero, parallel) for rule in family.RULES}


def z(stage: int | None, **keys: Any) -> dict[str, Any]:
    return {"zero_optimization": keys if stage is None else {"stage": stage, **keys}}


def tp(size: Any, **keys: Any) -> dict[str, Any]:
    return {"tensor_parallel": {"autotp_size": size, **SPLIT, **keys}}


def found(
    config: dict[str, Any], *, target: str = "deepspeed", deepspeed: str | None = None, **facts: Any
) -> list[Finding]:
    """The findings of these three families, without those that are only worth knowing."""
    seen = lint_config(config, target=target, deepspeed=deepspeed, facts=Facts(**facts))
    assert not [item.message for item in seen if item.rule == "rule-broke" and set(item.message.split()) & NAMED]
    return [item for item in seen if item.rule in NAMED and item.severity is not Severity.INFO]


REFUSED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("batch-size-missing", {}, {}),
    ("batch-size-missing", {**ADAM, STEPS: 2}, {}),
    ("batch-size-missing", {**ADAM, TRAIN: None, MICRO: None}, {}),
    ("batch-not-positive", {**BASE, STEPS: 0}, {}),
    ("batch-not-positive", {**ADAM, MICRO: -2, STEPS: 1}, {}),
    ("batch-not-positive", {**ADAM, TRAIN: 0}, {}),
    ("batch-never-adds-up", {**BASE, TRAIN: 5, STEPS: 1}, {}),
    ("batch-never-adds-up", {**ADAM, TRAIN: 9, STEPS: 2}, {"world_size": 4}),
    ("batch-mismatches-gpus", {**ADAM, MICRO: 1, TRAIN: 3, STEPS: 1}, {"world_size": 2}),
    ("batch-mismatches-gpus", {**ADAM, TRAIN: 5}, {"world_size": 2}),
    ("batch-mismatches-gpus", {**BASE, MICRO: 1, TRAIN: 1, STEPS: 1, "sequence_parallel_size": 2}, {"world_size": 1}),
    ("batch-mismatches-gpus", {**ADAM, TRAIN: 1}, {"world_size": 2}),
    ("batch-mismatches-gpus", {**BASE, TRAIN: 6}, {"world_size": 2}),
    ("batch-mismatches-gpus", {**ADAM, TRAIN: 6, STEPS: 2}, {"world_size": 2}),
    (
        "sequence-parallel-does-not-fit-gpus",
        {**BASE, **z(1), "sequence_parallel_size": 2, "compile": AUTOSP},
        {"world_size": 3, "calls": frozenset({"engine.compile"})},
    ),
    ("nvme-path-missing", {**BASE, **z(3, offload_optimizer={"device": "nvme"})}, {}),
    ("nvme-path-missing", {**BASE, **z(3, offload_param={"device": "nvme", "nvme_path": None})}, {}),
    (
        "nvme-needs-libaio",
        {**BASE, **z(3, offload_param={"device": "nvme", "nvme_path": "/d"})},
        {"missing": frozenset(("libaio",))},
    ),
    ("offload-ratio-below-stage-3", {**BASE, **z(2, offload_optimizer={"ratio": 0.5})}, {}),
    (
        "offload-ratio-needs-cpu-adam",
        {MICRO: 1, "optimizer": {"type": "Lion"}, **z(3, offload_optimizer={"device": "cpu", "ratio": 0.5})},
        {},
    ),
    (
        "super-offload-needs-cuda",
        {**BASE, **z(3, offload_optimizer={"device": "cpu", "super_offload": True})},
        {"accelerator": "cpu"},
    ),
    ("offload-optimizer-at-stage-0", {**BASE, **z(0, offload_optimizer=CPU)}, {}),
    ("hpz-does-not-divide-gpus", {**BASE, **z(3, zero_hpz_partition_size=2)}, {"world_size": 3}),
    ("quantizers-need-a-gpu", {**BASE, **z(3, zero_quantized_weights=True)}, {"accelerator": "cpu"}),
    ("quantizers-need-a-gpu", {**BASE, **z(3, zero_quantized_gradients=True)}, {"accelerator": "cpu"}),
    ("quantized-gradients-refused", {**BASE, **z(3, zero_quantized_gradients=True, reduce_scatter=False)}, {}),
    (
        "quantized-gradients-refused",
        {MICRO: 1, "optimizer": {"type": "Muon"}, **z(3, zero_quantized_gradients=True, reduce_scatter=False)},
        {},
    ),
    ("prescale-with-reduce-scatter", {**BASE, **z(2), "prescale_gradients": True}, {}),
    ("prescale-with-reduce-scatter", {**BASE, **z(3), "gradient_predivide_factor": 2.0}, {}),
    ("allgather-bucket-odd", {**BASE, **z(1, allgather_bucket_size=7)}, {}),
    ("gradient-sum-refused", {**BASE, **z(3), "gradient_allreduce_op": "sum"}, {}),
    ("gradient-sum-refused", {**BASE, **z(2), "gradient_allreduce_op": "sum", "compile": {"deepcompile": True}}, {}),
    ("grad-norm-switched-off", {**BASE, **z(2, compute_grad_norm=False)}, {}),
    ("grad-norm-switched-off", {**BASE, **z(3, compute_grad_norm=False), "gradient_clipping": 0}, {}),
    (
        "grad-norm-switched-off",
        {**BASE, **z(2, compute_grad_norm=False, offload_optimizer=CPU), "gradient_clipping": 0},
        {},
    ),
    (
        "grad-norm-switched-off",
        {
            **BASE,
            **BF16,
            **z(1, compute_grad_norm=False),
            "gradient_clipping": 0,
            "data_types": {"grad_accum_dtype": "fp32"},
        },
        {},
    ),
    ("legacy-stage-1", {**BASE, **z(3, legacy_stage1=True)}, {}),
    (
        "unmanaged-accumulation-refused",
        {**BASE, **z(0, overlap_comm=True), "managed_gradient_accumulation": False},
        {},
    ),
    (
        "unmanaged-accumulation-refused",
        {**BASE, **z(2), "managed_gradient_accumulation": False, "compile": {"deepcompile": True}},
        {},
    ),
    ("zenflow-without-offload", {**BASE, STEPS: 2, **z(2, zenflow=ZENFLOW)}, {}),
    ("zenflow-without-offload", {**BASE, **z(0, zenflow=ZENFLOW)}, {}),
    (
        "zenflow-without-offload",
        {**BASE, STEPS: 2, **z(3, zenflow=ZENFLOW, offload_optimizer=CPU)},
        {"accelerator": "cpu"},
    ),
    (
        "zenflow-select-interval",
        {**BASE, STEPS: 2, **z(2, zenflow={"select_interval": 4, "update_interval": 2}, offload_optimizer=CPU)},
        {},
    ),
    (
        "zenflow-select-interval",
        {**BASE, STEPS: 2, **z(2, zenflow={**ZENFLOW, "select_interval": 1}, offload_optimizer=CPU)},
        {},
    ),
    (
        "zenflow-select-interval",
        {**BASE, STEPS: 2, **z(2, zenflow={**ZENFLOW, "select_interval": "auto"}, offload_optimizer=CPU)},
        {},
    ),
    (
        "zenflow-offload-without-overlap",
        {**BASE, STEPS: 2, **z(2, zenflow={**ZENFLOW, "offload": True}, offload_optimizer=CPU)},
        {},
    ),
    (
        "zenflow-optimizer-argument",
        {
            MICRO: 2,
            STEPS: 2,
            "optimizer": {"type": "AdamW", "params": {"torch_adam": False}},
            **z(2, zenflow=ZENFLOW, offload_optimizer=CPU),
        },
        {},
    ),
    ("tensor-parallel-key", {**BASE, "tensor_parallel": {"tp_size": 2}}, {}),
    ("tensor-parallel-key", {**BASE, "tensor_parallel": {"enabled": True, "autotp_size": 2}}, {}),
    ("tensor-parallel-sizes-differ", {**BASE, **z(1), **tp(2, tp={"tp_size": 4})}, {}),
    ("tensor-parallel-size-as-text", {**BASE, **z(1), **tp("2")}, {}),
    ("tensor-parallel-does-not-fit-gpus", {**BASE, **z(1), **tp(2)}, {"world_size": 3}),
    ("tensor-parallel-does-not-fit-gpus", {**BASE, **z(1), **tp(4)}, {"world_size": 2}),
    ("tensor-parallel-batch", {**BASE, **z(1), **tp(2), TRAIN: 4, STEPS: 1}, {"world_size": 4}),
    ("tensor-parallel-batch", {**BASE, **z(3), **tp(2), TRAIN: 2}, {"world_size": 2}),
    ("tensor-parallel-zero-3-batch", {**BASE, **z(3), **tp(2), TRAIN: 4, STEPS: 1}, {"world_size": 2}),
    ("tensor-parallel-zero-3-batch", {**BASE, **z(3), **tp(2), TRAIN: 2, STEPS: 1}, {"world_size": 2}),
    ("tensor-parallel-without-plan", {**BASE, **z(1), "tensor_parallel": {"autotp_size": 2}}, {"parameters": NAMES}),
    (
        "tensor-parallel-preset-unknown",
        {**BASE, **z(1), "tensor_parallel": {"autotp_size": 2, "preset_model": "foo"}},
        {"parameters": NAMES},
    ),
    (
        "partition-type-unknown",
        {**BASE, **z(1), **tp(2, partition_config={"layer_specs": [{"patterns": [".*"], "partition_type": "col"}]})},
        {},
    ),
    ("tensor-parallel-dtype", {**BASE, **z(1), **tp(2, dtype="bf16")}, {}),
    (
        "sequence-parallel-does-not-fit-gpus",
        {**BASE, "sequence_parallel_size": 2, "data_parallel_size": 2},
        {"world_size": 2},
    ),
    (
        "sequence-parallel-does-not-fit-gpus",
        {**BASE, "sequence_parallel_size": 2, "data_parallel_size": 1},
        {"world_size": 4},
    ),
    ("sequence-parallel-size-refused", {**BASE, "sequence_parallel_size": "2"}, {}),
    ("sequence-parallel-size-refused", {**BASE, "sequence_parallel_size": 0}, {}),
    ("sequence-parallel-size-refused", {**BASE, "sequence_parallel_size": None}, {}),
    ("sequence-parallel-size-refused", {**BASE, "sequence_parallel_size": 2, "data_parallel_size": None}, {}),
    (
        "batch-mismatches-gpus",
        {**BASE, TRAIN: 8, STEPS: 1, "sequence_parallel_size": 2, "data_parallel_size": 2},
        {"world_size": 4},
    ),
    ("expert-parallel-refused", {**BASE, "expert_parallel": {"enabled": True, "autoep_size": 3}}, {"world_size": 2}),
    (
        "expert-parallel-refused",
        {**BASE, "expert_parallel": {"enabled": True, "autoep_size": 2, "expert_tensor_parallel_size": 2}},
        {"world_size": 4},
    ),
    (
        "expert-parallel-refused",
        {**BASE, "expert_parallel": {"enabled": True, "autoep_size": 2, "preset_model": "foo"}},
        {},
    ),
]

OTHERWISE: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("stage-missing", {**BASE, **z(None, overlap_comm=True)}, {}),
    ("stage-missing", {**BASE, **z(None)}, {}),
    ("zero-as-boolean", {**BASE, "zero_optimization": True}, {}),
    ("zero-as-boolean", {**BASE, "zero_optimization": False}, {}),
    ("offload-without-device", {**BASE, **z(2, offload_optimizer={"pin_memory": True})}, {}),
    ("offload-without-device", {**BASE, **z(3, offload_param={})}, {}),
    ("stage-missing", {**BASE, **z(None, offload_param=CPU)}, {}),
    ("offload-param-below-stage-3", {**BASE, **z(0, offload_param=CPU)}, {}),
    ("offload-param-below-stage-3", {**BASE, **z(2, cpu_offload_param=True)}, {}),
    ("offload-optimizer-at-stage-0", {**BASE, **z(0, offload_optimizer=CPU)}, {"accelerator": "cpu"}),
    ("nvme-below-stage-3", {**BASE, **z(2, offload_optimizer={"device": "nvme"})}, {}),
    ("part-of-optimizer-on-gpu", {**BASE, **z(3, offload_optimizer={"device": "cpu", "ratio": 0.5})}, {}),
    ("optimizer-on-nvme-not-resumed", {**BASE, **z(3, offload_optimizer={"device": "nvme", "nvme_path": "/d"})}, {}),
    ("parameters-on-nvme-not-resumed", {**BASE, **z(3, offload_param=NVME, offload_optimizer=CPU)}, {}),
    ("hpz-does-not-divide-gpus", {**BASE, **z(3, zero_hpz_partition_size=8)}, {"world_size": 2}),
    ("zenflow-accumulation", {**BASE, **z(2, zenflow={}, offload_optimizer=CPU)}, {}),
    ("zenflow-accumulation", {**BASE, STEPS: 3, **z(2, zenflow=ZENFLOW, offload_optimizer=CPU)}, {}),
    ("elastic-checkpoint-at-stage-3", {**BASE, **z(3, elastic_checkpoint=True)}, {}),
    ("tensor-parallel-size-elsewhere", {**BASE, "tensor_parallel": {"tp": {"tp_size": 2}}}, {}),
    ("tensor-parallel-size-elsewhere", {**BASE, "tensor_parallel": {"tensor_parallel": {"tp_size": 2}}}, {}),
    ("tensor-parallel-stage-0-norm", {**BASE, **BF16, **z(0), **tp(2)}, {}),
    (
        "tensor-parallel-matches-nothing",
        {**BASE, **z(1), "tensor_parallel": {"autotp_size": 2, "preset_model": "llama"}},
        {"parameters": NAMES},
    ),
    ("tensor-parallel-matches-nothing", {**BASE, **z(1), **tp(2)}, {"parameters": ("h.0.c_attn.weight",)}),
    ("sequence-parallel-alone", {**BASE, "sequence_parallel_size": 2}, {}),
    *(("sequence-parallel-alone", {**BASE, "sequence_parallel_size": size}, {}) for size in (0.5, 1e18, 10**30, 1e300)),
    ("sequence-parallel-alone", {**BASE, "data_parallel_size": 3}, {}),
    (
        "sequence-parallel-does-not-fit-gpus",  # unless the program compiles
        {**BASE, **z(1), "sequence_parallel_size": 2, "compile": AUTOSP},
        {"world_size": 3},
    ),
    ("sequence-parallel-alone", {**BASE, **z(2), "sequence_parallel_size": 2, "compile": AUTOSP}, {}),  # it falls back
    ("sequence-parallel-alone", {**BASE, **z(1), "sequence_parallel_size": 2, "compile": {"passes": ["autosp"]}}, {}),
    ("expert-parallel-on-dense-model", {**BASE, "expert_parallel": {"enabled": True}}, {"parameters": NAMES}),
    ("pipeline-unread", {**BASE, "pipeline": {"stages": 2}}, {}),
]

RIGHT: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({**BASE, TRAIN: 8}, {"world_size": 2}),
    ({**ADAM, TRAIN: 8, STEPS: 2}, {"world_size": 2}),
    ({**BASE, TRAIN: 64, STEPS: 4}, {"world_size": 8}),
    ({**BASE, TRAIN: 4, STEPS: 1, "sequence_parallel_size": 2, "data_parallel_size": 2}, {"world_size": 4}),
    ({**BASE, "sequence_parallel_size": 2, "data_parallel_size": 1}, {"world_size": 2}),
    ({**BASE, **z(1), "sequence_parallel_size": 2, "compile": AUTOSP}, {"world_size": 2}),
    ({**BASE, **z(1), "prescale_gradients": True}, {}),
    ({**BASE, **z(3, reduce_scatter=False), "gradient_predivide_factor": 2.0}, {}),
    ({**BASE, **z(2), "prescale_gradients": True, "gradient_allreduce_op": "sum"}, {}),
    ({**BASE, **z(3, allgather_bucket_size=7)}, {}),
    ({**BASE, **BF16, **z(1, allgather_bucket_size=7), "data_types": {"grad_accum_dtype": "fp32"}}, {}),
    ({**BASE, **z(2, compute_grad_norm=False), "gradient_clipping": 0}, {}),
    ({**BASE, **z(0, legacy_stage1=True)}, {}),
    ({**BASE, **z(3), "managed_gradient_accumulation": False}, {}),
    ({**BASE, **z(1), "managed_gradient_accumulation": False}, {}),
    ({**BASE, **z(3, zero_hpz_partition_size=2)}, {"world_size": 2}),
    ({**BASE, **z(3, zero_hpz_partition_size=0)}, {"world_size": 2}),
    ({**BASE, **z(3, zero_quantized_weights=True, zero_quantized_gradients=True)}, {"accelerator": "cuda"}),
    ({**BASE, **z(3, offload_optimizer={"device": "cpu", "ratio": 1.0})}, {}),
    ({MICRO: 2, **z(2, offload_optimizer=CPU), "zero_force_ds_cpu_optimizer": False}, {"client_optimizer": "torch"}),
    ({**BASE, STEPS: 2, **z(2, zenflow=ZENFLOW, offload_optimizer=CPU)}, {}),
    ({**BASE, **BF16, **z(1), **tp(2)}, {"world_size": 4, "parameters": NAMES}),
    ({**BASE, **z(3), **tp(2)}, {"world_size": 2, "parameters": NAMES}),
    ({**BASE, **z(3), **tp(2), TRAIN: 8}, {"world_size": 4}),
    ({**ADAM, **z(3), **tp(2), TRAIN: 8, STEPS: 1}, {"world_size": 4}),
    ({**BASE, **z(1), **tp(2), TRAIN: 8, STEPS: 1}, {"world_size": 4}),
    ({**BASE, **z(1), "tensor_parallel": {"autotp_size": 2}}, {"parameters": LLAMA}),
    ({**BASE, **z(1), **tp(1, tp={"tp_size": 1})}, {"world_size": 3}),
    ({**BASE, "expert_parallel": {"enabled": True, "autoep_size": 2}}, {"world_size": 2}),
    ({**BASE, "expert_parallel": {"enabled": False, "autoep_size": 3}}, {"world_size": 2, "parameters": NAMES}),
    ({**BASE, "pipeline": {"activation_checkpoint_interval": 1}}, {}),
    ({**BASE, **z(4, offload_param=CPU, compute_grad_norm=False, zenflow={})}, {}),  # the stage is refused
]


@pytest.mark.parametrize("sizes", [{TRAIN: 16}, {TRAIN: "auto"}, {TRAIN: 16, "data_parallel_size": 4}], ids=str)
def test_the_trainer_and_deepspeed_count_gpus_that_share_a_sequence_differently(sizes: dict[str, Any]) -> None:
    config = {MICRO: "auto", STEPS: "auto", **z(1), "sequence_parallel_size": 2, **sizes}

    (error,) = [item for item in found(config, target="hf-trainer") if item.severity is Severity.ERROR]

    assert error.rule == "batch-never-adds-up"
    assert "wants per_device_train_batch_size x gradient_accumulation_steps x GPUs" in error.message
    assert "DeepSpeed that / 2" in error.message
    assert error.fix is not None and error.fix.edits == (Remove(TRAIN),)


@pytest.mark.parametrize(
    ("changes", "target", "release"),
    [
        ({TRAIN: None}, "hf-trainer", None),  # DeepSpeed multiplies the other two
        ({MICRO: None}, "hf-trainer", None),  # DeepSpeed divides
        ({"sequence_parallel_size": 1}, "hf-trainer", None),
        ({}, "hf-trainer", "0.16"),  # which reads no sequence_parallel_size alone
        ({}, "accelerate", None),  # compares nothing
    ],
)
def test_a_batch_size_with_shared_sequences_may_add_up(
    changes: dict[str, Any], target: str, release: str | None
) -> None:
    config = {MICRO: "auto", STEPS: "auto", TRAIN: 16, **z(1), "sequence_parallel_size": 2, **changes}

    assert not [
        item
        for item in found(config, target=target, deepspeed=release)
        if item.severity is Severity.ERROR and item.rule == "batch-never-adds-up"
    ]


@pytest.mark.parametrize(("rule", "config", "facts"), REFUSED)
def test_what_deepspeed_refuses_is_one_error(rule: str, config: dict[str, Any], facts: dict[str, Any]) -> None:
    errors = [item.rule for item in found(config, **facts) if item.severity is Severity.ERROR]

    assert errors == [rule]


@pytest.mark.parametrize(("rule", "config", "facts"), OTHERWISE)
def test_what_runs_otherwise_than_written_is_one_warning(
    rule: str, config: dict[str, Any], facts: dict[str, Any]
) -> None:
    assert [(item.rule, item.severity) for item in found(config, **facts)] == [(rule, Severity.WARNING)]


@pytest.mark.parametrize(("config", "facts"), RIGHT)
def test_what_does_as_it_says_has_no_finding(config: dict[str, Any], facts: dict[str, Any]) -> None:
    assert found(config, **facts) == []


@pytest.mark.parametrize(
    ("training", "world", "more", "warned"),
    [
        (Training(method="lora"), 2, {}, False),
        (Training(method="lora"), 2, {"max_in_cpu": 1000}, True),
        (Training(method="lora", lora_rank=1024), 1, {}, True),
        (Training(method="lora", lora_rank=1024), 8, {}, False),
        (Training(), 4, {}, True),
        (Training(), 8, {}, False),
        (None, 4, {}, True),
        (Training(method="lora", lora_targets=("nothing",)), 2, {}, True),
    ],
)
@pytest.mark.parametrize("optimizer", [{}, {"offload_optimizer": CPU}], ids=["on the GPU", "in RAM"])
def test_of_parameters_on_nvme_what_is_trained_and_lies_in_ram_resumes(
    optimizer: dict[str, Any], training: Training | None, world: int, more: dict[str, Any], warned: bool
) -> None:
    """7 billion elements, of which max_in_cpu keeps 1e9 of a rank. The simulated engine of 0.19.8 resumes

    Llama 3.2 1B on 2 GPUs, whole and with adapters of rank 8, and ends in the AttributeError with max_in_cpu 1000.
    """
    config = {**BASE, **z(3, offload_param={**NVME, **more}, **optimizer)}
    rules = [item.rule for item in found(config, model="7b", training=training, world_size=world)]

    assert ("parameters-on-nvme-not-resumed" in rules) is warned


def test_three_sizes_that_multiply_up_for_some_number_of_gpus_are_a_note() -> None:
    """They do as written; for how many GPUs they are is worth knowing, and an error where it is another number."""
    fixed = {**BASE, TRAIN: 64, STEPS: 4}

    (note,) = (item for item in lint_config(fixed) if item.rule == "batch-fixes-gpu-count")

    assert note.severity is Severity.INFO
    gpus = 64 // (4 * BASE[MICRO])
    assert f"exactly {gpus} GPUs" in note.message
    assert found(fixed, world_size=gpus) == []
    assert [item.severity for item in found(fixed, world_size=gpus + 1)] == [Severity.ERROR]


def test_hugging_face_fills_in_what_is_auto_and_nothing_else() -> None:
    auto = {MICRO: "auto", STEPS: "auto", TRAIN: "auto", **z(2)}

    assert found(auto, target="hf-trainer", world_size=3) == []
    missing = found(z(2), target="hf-trainer")
    assert [item.rule for item in missing] == ["batch-size-missing"]
    assert missing[0].message.endswith("Lightning brings one: if that loads the file, say --target lightning")
    assert found(z(2), target="lightning") == []
    assert missing[0].fix is not None and missing[0].fix.edits == (Assign(MICRO, "auto"),) and missing[0].fix.safe


def test_accelerate_writes_an_accumulation_of_1() -> None:
    config = {TRAIN: 16, MICRO: 2, **z(2)}

    assert found(config, world_size=4) == []
    assert [item.rule for item in found(config, target="accelerate", world_size=4)] == ["batch-mismatches-gpus"]
    split = {MICRO: "auto", TRAIN: "auto", **z(3), **tp(2)}
    rules = [item.rule for item in found(split, target="accelerate") if item.severity is Severity.ERROR]
    assert rules == ["tensor-parallel-zero-3-batch"]


def test_weights_that_nobody_gathers_matter_to_who_saves_them() -> None:
    config = {**BASE, **z(3)}

    assert found(config) == []
    for target in ("hf-trainer", "accelerate"):
        assert [item.rule for item in found(config, target=target)] == ["weights-not-gathered-on-save"]
    for key in ("stage3_gather_16bit_weights_on_model_save", "stage3_gather_fp16_weights_on_model_save"):
        assert found({**BASE, **z(3, **{key: True})}, target="hf-trainer") == []
    adapters = Training(method="lora")  # Trainer.save_model of transformers 5.23 gathers them; Accelerate raises
    assert found(config, target="hf-trainer", training=adapters) == []
    assert [item.code for item in found(config, target="accelerate", training=adapters)] == ["DSG351"]


def test_what_a_release_takes_depends_on_the_release() -> None:
    both = {**BASE, **z(3), **tp(2)}
    assert [item.rule for item in found(both, deepspeed="0.19.3")] == ["tensor-parallel-with-zero-3"]
    assert found(both, deepspeed="0.19.4") == []
    norm = {**BASE, **z(2, compute_grad_norm=False)}
    assert found(norm, deepspeed="0.19.6") == []  # the key is not known there, which another family says


def test_a_renamed_size_is_moved_and_the_rest_removed() -> None:
    config = {**BASE, "tensor_parallel": {"enabled": True, "tp_size": 4, "tp_group_size": 4}}

    edits = {item.path: item.fix.edits for item in found(config) if item.fix is not None}

    path = "tensor_parallel"
    assert edits == {
        f"{path}.tp_size": (Move(f"{path}.tp_size", f"{path}.autotp_size"),),
        f"{path}.tp_group_size": (Remove(f"{path}.tp_group_size"),),
        f"{path}.enabled": (Remove(f"{path}.enabled"),),
    }


def test_messages_name_the_number_of_gpus_that_fits() -> None:
    (fixed,) = (item for item in lint_config({**BASE, TRAIN: 64, STEPS: 4}) if item.code == "DSG204")
    assert "exactly 8 GPUs" in fixed.message
    (wrong,) = found({**BASE, TRAIN: 64, STEPS: 4}, world_size=4)
    assert "= 32; as it stands it needs 8 GPUs" in wrong.message
    (one,) = found({**BASE, TRAIN: 64, STEPS: 4}, world_size=1)
    assert "train_batch_size 64 does not fit 1 GPU, and" in one.message
    shared = {**BASE, TRAIN: 64, STEPS: 4, "sequence_parallel_size": 2, "data_parallel_size": 4}
    (half,) = (one for one in found(shared, world_size=8) if one.path == TRAIN)
    assert f"{TRAIN} 64 does not fit 8 GPUs at sequence_parallel_size 2, and" in half.message
    assert "= 32; as it stands it needs 16 GPUs" in half.message
    (alone,) = found({**ADAM, TRAIN: 6, STEPS: 2}, world_size=2)
    assert alone.fix is not None and alone.fix.edits == (Assign(TRAIN, 4),)


KEYS = (
    *(
        f"zero_optimization.{name}"
        for name in ("stage", "offload_optimizer", "offload_param", "zenflow", "overlap_comm")
    ),
    *(f"zero_optimization.{name}" for name in ("zero_hpz_partition_size", "allgather_bucket_size", "reduce_scatter")),
    *(f"zero_optimization.offload_optimizer.{name}" for name in ("device", "ratio", "nvme_path", "super_offload")),
    *(f"zero_optimization.zenflow.{name}" for name in ("select_strategy", "select_interval", "update_interval")),
    *(f"tensor_parallel.{name}" for name in ("autotp_size", "tp", "tp_size", "partition_config", "preset_model")),
    *("tensor_parallel.partition_config.layer_specs", "tensor_parallel.tp.tp_size", "expert_parallel.autoep_size"),
    *("expert_parallel.enabled", "expert_parallel.preset_model", "sequence_parallel_size", "data_parallel_size"),
    *(TRAIN, MICRO, STEPS, "optimizer", "optimizer.type", "gradient_clipping", "pipeline", "gradient_predivide_factor"),
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.sampled_from([0, 1, 2, 3, 4, -1, 10**400, 1.5, float("nan"), float("inf")])
    | st.sampled_from(["auto", "", "2", "cpu", "nvme", "none", "step", "adam", "("]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["patterns", "stage", "tp"]), inner),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=8), st.sampled_from([None, 1, 2, 6]))
def test_no_value_at_any_place_breaks_a_rule(written: dict[str, Any], world: int | None) -> None:
    config: dict[str, Any] = {}
    for path in sorted(written):
        here = config
        *parents, name = path.split(".")
        for parent in parents:
            if not isinstance(here.get(parent), dict):
                here[parent] = {}
            here = here[parent]
        here[name] = written[path]

    for target in ("deepspeed", "accelerate"):
        found(config, target=target, world_size=world, accelerator="cpu", parameters=NAMES)


@pytest.mark.proof
def test_the_batch_arithmetic_is_deepspeeds() -> None:
    from deepspeed.runtime.config import DeepSpeedConfig

    sizes = (None, 1, 2, 3, 4, 6, 8)
    for train, micro, steps, world in itertools.product(sizes, sizes, sizes, (1, 2, 3, 4, 1.5)):
        if train is None and micro is None:
            continue
        real = object.__new__(DeepSpeedConfig)
        real.train_batch_size, real.train_micro_batch_size_per_gpu = train, micro
        real.gradient_accumulation_steps, real.world_size = steps, world
        try:
            real._configure_train_batch_size()
            taken = True
        except AssertionError:
            taken = False
        assert adds_up(Sizes(train, micro, steps), Fraction(world)) is taken, (train, micro, steps, world)


@pytest.mark.proof
def test_the_presets_are_deepspeeds() -> None:
    from deepspeed.module_inject.auto_ep_config import PRESET_MODELS
    from deepspeed.module_inject.autotp_config import AutoTPPresets, PartitionType

    from dsgen.linting.rules.parallel.expert_parallel_refused import EXPERT_PRESETS

    layers = (
        *("self_attn.{}_proj", "self_attn.{}", "self_attention.{}", "mlp.{}", "mlp.{}_proj"),
        *("block_sparse_moe.experts.0.{}", "mlp.experts.3.{}_proj", "mlp.shared_experts.{}_proj"),
    )
    parts = (
        *("o", "q", "k", "v", "qkv", "up", "gate", "down", "gate_up", "w1", "w2", "w3", "dense", "query_key_value"),
        *("dense_4h_to_h", "dense_h_to_4h", "q_b_proj", "kv_b_proj", "q_a_proj", "o_proj"),
    )
    names = [f"model.layers.0.{layer.format(part)}.weight" for layer in layers for part in parts]
    for preset, rules in PRESETS.items():
        real = AutoTPPresets.get_preset(preset)
        for name in names:
            spec = real.find_matching_spec(name)
            split = spec is not None and spec.partition_type is not PartitionType.SKIP
            assert any(matches(rule, (name,)) for rule in rules) is split, (preset, name)
    assert AutoTPPresets.get_preset("gpt2") is None
    assert set(EXPERT_PRESETS) == set(PRESET_MODELS)


@pytest.mark.parametrize(
    ("config", "severity"),
    [
        ({**BASE, **z(3, offload_optimizer=NVME)}, None),
        ({**BASE, **z(3, offload_optimizer={**NVME, "buffer_count": 3})}, Severity.ERROR),
        ({**BASE, **z(2, offload_optimizer={**NVME, "buffer_count": 3})}, None),
        ({**BASE, **z(3, offload_optimizer={**NVME, "pipeline_read": True})}, Severity.WARNING),
        ({**BASE, **z(3, offload_optimizer={**NVME, "pipeline_read": True, "buffer_count": 8})}, None),
        ({MICRO: 2, "optimizer": ADAGRAD, **z(3, offload_optimizer={**NVME, "buffer_count": 3})}, None),
        ({MICRO: 2, "optimizer": ADAGRAD, **z(3, offload_optimizer={**NVME, "buffer_count": 2})}, Severity.ERROR),
    ],
)
def test_swap_buffers_hold_a_sub_group_of_the_optimizer(config: dict[str, Any], severity: Severity | None) -> None:
    """As DeepSpeed 0.19.8 took them: 3 and 4 of AdamW, 7 and 8 in a pipeline, 2 and 3 of Adagrad."""
    said = [item.severity for item in lint_config(config) if item.rule == "nvme-buffers-too-few"]
    assert said == ([] if severity is None else [severity])


@pytest.mark.parametrize(
    ("aio", "where"),
    [
        ({}, []),
        ({"block_size": 512, "queue_depth": 1, "intra_op_parallelism": 3, "overlap_events": False}, []),
        ({"block_size": 1_000_000}, ["aio.block_size"]),
        ({"block_size": 0, "queue_depth": 65_537}, ["aio.block_size", "aio.queue_depth"]),
        ({"block_size": "1048576", "intra_op_parallelism": 1.5}, ["aio.block_size", "aio.intra_op_parallelism"]),
        ({"block_size": True, "queue_depth": None}, ["aio.block_size", "aio.queue_depth"]),
        ({"intra_op_parallelism": 0, "single_submit": "true"}, ["aio.intra_op_parallelism", "aio.single_submit"]),
    ],
)
def test_numbers_of_aio_swap(aio: dict[str, Any], where: list[str]) -> None:
    """As DeepSpeed 0.19.8's operator wrote and read a tensor with each; no rule of types speaks beside it."""
    config = {**BASE, **z(3, offload_optimizer=NVME), "aio": aio}
    said = [item for item in lint_config(config) if item.path.startswith("aio.")]
    assert sorted((item.rule, item.path) for item in said) == [("nvme-io-refused", path) for path in where]
    assert not [item for item in lint_config({**BASE, **z(3), "aio": aio}) if item.rule == "nvme-io-refused"]
    for item in said:
        if item.fix is not None:
            assert isinstance(item.fix.edits[0], Assign)
            mended = {**config, "aio": {**aio, item.path.removeprefix("aio."): item.fix.edits[0].value}}
            assert item.path not in [other.path for other in lint_config(mended) if other.rule == "nvme-io-refused"]


PIPED = {**NVME, "pipeline_read": True, "buffer_count": 8}


@pytest.mark.parametrize(
    ("most", "offloads", "aio", "facts"),
    [
        (32_768, {"offload_optimizer": NVME}, {}, {}),
        (21_845, {"offload_optimizer": NVME}, {"intra_op_parallelism": 2}, {}),
        (10_922, {"offload_optimizer": NVME}, {"intra_op_parallelism": 5}, {}),
        (16_384, {"offload_optimizer": NVME}, {}, {"world_size": 2}),
        (16_384, {"offload_optimizer": PIPED}, {}, {}),
        (16_384, {"offload_param": NVME}, {}, {}),
        (10_922, {"offload_optimizer": NVME, "offload_param": NVME}, {}, {}),
        (4_096, {"offload_optimizer": NVME}, {}, {"world_size": 64}),
        (8_192, {"offload_optimizer": NVME}, {}, {"world_size": 64, "hardware": "a10-24g"}),
    ],
)
def test_linux_grants_the_requests_of_a_node(
    most: int, offloads: dict[str, Any], aio: dict[str, int], facts: dict[str, Any]
) -> None:
    """As ranks of DeepSpeed 0.19.8 were aborted and not, with fs.aio-max-nr as it usually is."""
    for depth, expected in ((most, []), (most + 1, [Severity.WARNING])):
        config = {**BASE, **z(3, **offloads), "aio": {"queue_depth": depth, **aio}}
        said = [item for item in lint_config(config, facts=facts_of(**facts)) if item.rule == "nvme-io-refused"]
        assert [item.severity for item in said] == expected
        assert all(f"at most {most}," in item.message for item in said)


def test_gradients_are_quantized_between_nodes_alone() -> None:
    """Within a node the engine reduces them as they are, and a CPU needs no kernel."""
    config = {**BASE, **z(3, zero_quantized_gradients=True)}
    for facts, expected in (
        ({"world_size": 1}, []),
        ({"world_size": 2}, [Severity.ERROR]),  # started without LOCAL_SIZE, as the probe was
        ({"world_size": 2, "hardware": "cpu"}, [Severity.WARNING]),
        ({"world_size": 4, "hardware": "cpu"}, [Severity.ERROR]),
        ({}, [Severity.ERROR]),
    ):
        said = lint_config(config, facts=facts_of(accelerator="cpu", **facts))
        assert [item.severity for item in said if item.rule == "quantizers-need-a-gpu"] == expected


def test_weights_on_nvme_take_a_buffer() -> None:
    config = {**BASE, **z(3, offload_param={**NVME, "buffer_count": 0})}
    assert "nvme-buffers-too-few" in [item.rule for item in lint_config(config)]
    assert "nvme-buffers-too-few" not in [item.rule for item in lint_config({**BASE, **z(3, offload_param=NVME)})]
