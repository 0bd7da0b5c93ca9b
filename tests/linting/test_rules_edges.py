"""Where a rule begins and ends: the case that it is about, and beside it the nearest one that it is not about."""

from __future__ import annotations

from typing import Any

import pytest

from dsgen.linting.linter import lint_config
from dsgen.linting.subjects import Facts
from dsgen.shapes.findings import Assign, Edit, Finding, Move, Remove

TRAIN, MICRO, STEPS = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
PREDIVIDE, PARAMETERS = "gradient_predivide_factor", "zero_optimization.offload_param.device"
LARGEST_OF_7B = 4096 * 11008  # elements: a matrix of the feed-forward part; only embedding and head are larger
SIZE = "tensor_parallel.autotp_size"
LTD = "data_efficiency.data_routing.random_ltd"
OFFLOAD: dict[str, Any] = {"offload_optimizer": {"device": "cpu"}}
ZENFLOW: dict[str, Any] = {**OFFLOAD, "zenflow": {"offload": True}}
MLP = {"parameters": ("layers.0.up_proj.weight", "layers.0.down_proj.weight")}
TIMERS = {"timers": {"throughput": {"enabled": True}}}


def z(stage: int, **keys: Any) -> dict[str, Any]:
    return {"zero_optimization": {"stage": stage, **keys}}


def opt(kind: str, **params: Any) -> dict[str, Any]:
    return {"optimizer": {"type": kind, "params": {"lr": 1e-3, **params}}}


def warmup(**params: Any) -> dict[str, Any]:
    return {"scheduler": {"type": "WarmupLR", "params": params}}


def cycle(**params: Any) -> dict[str, Any]:
    rates = {"cycle_min_lr": 1e-4, "cycle_max_lr": 1e-3, "cycle_min_mom": "0.8"}
    return {"scheduler": {"type": "OneCycle", "params": {**rates, **params}}}


def tp(*layers: str) -> dict[str, Any]:
    specs = [{"patterns": [rf".*{layer}\.weight$"], "partition_type": "column"} for layer in layers]
    return {"tensor_parallel": {"autotp_size": 2, "partition_config": {"layer_specs": specs}}}


def legacy() -> dict[str, Any]:
    return {"optimizer": {"type": "AdamW", "params": {"lr": 1e-3}, "legacy_fusion": True}}


def experts(size: int) -> dict[str, Any]:
    return {"expert_parallel": {"enabled": True, "autoep_size": size}}


def fp16(**keys: Any) -> dict[str, Any]:
    return {**opt("AdamW"), **z(2), "fp16": {"enabled": True, **keys}}


def ltd(**keys: Any) -> dict[str, Any]:
    routing = {"enabled": True, "random_ltd": {"enabled": True, **keys}}
    return {"data_efficiency": {"enabled": True, "data_routing": routing}}


def sequence(size: int, data: int) -> dict[str, Any]:
    return {"sequence_parallel_size": size, "data_parallel_size": data}


def renamed(old: str, new: str) -> Move:
    return Move(f"zero_optimization.{old}", f"zero_optimization.{new}")


def linted(rule: str, config: dict[str, Any], *, target: str = "deepspeed", **facts: Any) -> list[Finding]:
    """What one rule says of a config, in which a micro-batch stands unless it says another."""
    seen = lint_config({MICRO: 2, **config}, target=target, facts=Facts(**facts))
    assert [item.message for item in seen if item.rule == "rule-broke"] == []
    return [item for item in seen if item.rule == rule]


# Rule, config, what is known besides, and what is said: key -> severity. An empty map: the rule is silent.
SAID: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, str]]] = [
    # Sizes of the batch: on GPUs that the two sizes do not make, DeepSpeed stops before it counts
    ("batch-mismatches-gpus", {TRAIN: 6, **sequence(2, 2)}, {"world_size": 4}, {TRAIN: "error"}),
    ("batch-mismatches-gpus", {TRAIN: 6, **sequence(2, 2)}, {"world_size": 2}, {}),
    ("batch-not-positive", {STEPS: False}, {}, {STEPS: "error"}),  # counts as 0
    ("batch-not-positive", {STEPS: True}, {}, {}),
    ("batch-not-positive", {STEPS: -0.5}, {}, {STEPS: "error"}),
    ("batch-fixes-gpu-count", {TRAIN: 8}, {}, {TRAIN: "info"}),
    ("batch-fixes-gpu-count", {TRAIN: 8, MICRO: None, STEPS: 2}, {}, {TRAIN: "info"}),
    ("batch-fixes-gpu-count", {TRAIN: 8, MICRO: None}, {}, {}),
    # Accelerate writes an accumulation of 1, Lightning brings one that only it knows
    ("batch-mismatches-gpus", {TRAIN: 16, **z(2)}, {"target": "accelerate", "world_size": 4}, {TRAIN: "error"}),
    ("batch-mismatches-gpus", {TRAIN: 16, **z(2)}, {"target": "lightning", "world_size": 4}, {}),
    # The old section is read, and judged, where no new one stands beside it
    ("loss-scale-in-bf16", {"bfloat16": {"enabled": True, "loss_scale": 0}}, {}, {"bfloat16.loss_scale": "error"}),
    ("loss-scale-in-bf16", {"bfloat16": {"enabled": True, "loss_scale": 0}, "bf16": {}}, {}, {}),
    ("rejected-value", {"bfloat16": {"enabled": 3}}, {}, {"bfloat16.enabled": "error"}),
    ("rejected-value", {"bfloat16": {"enabled": 3}, "bf16": {"enabled": True}}, {}, {}),
    # DeepSpeed asks whether the name is in there, and takes it out as from a map
    ("section-is-no-map", TIMERS, {}, {}),
    ("section-is-no-map", {"scheduler": None}, {}, {"scheduler": "error"}),
    ("section-is-no-map", {"timers": ["throughput"]}, {}, {"timers": "error"}),
    ("section-is-no-map", {"timers": "throughput"}, {}, {"timers": "error"}),
    ("section-is-no-map", {"timers": ["others"]}, {}, {}),
    ("section-is-no-map", {"timers": "others"}, {}, {}),
    # What the config builds counts for nothing where the program brings its own
    ("sparse-adam", opt("SparseAdam"), {}, {"optimizer.type": "warning"}),
    ("sparse-adam", opt("SparseAdam"), {"client_optimizer": "torch"}, {}),
    # A type that is null is written: the name beside it is not what was forgotten
    ("optimizer-type-missing", {"optimizer": {"name": "AdamW"}}, {}, {"optimizer.name": "error"}),
    ("optimizer-type-missing", {"optimizer": {"name": "AdamW", "type": None}}, {}, {"optimizer.type": "error"}),
    ("optimizer-type-missing", {"optimizer": {"params": {}}}, {}, {"optimizer": "error"}),
    ("scheduler-type-missing", {"scheduler": {"name": "WarmupLR"}}, {}, {"scheduler.name": "warning"}),
    ("scheduler-type-missing", {"scheduler": {"name": "WarmupLR", "type": None}}, {}, {"scheduler.type": "warning"}),
    # One of two reasons is enough
    ("profiler-left-on", {"comms_logger": {"enabled": True}}, {}, {"comms_logger.enabled": "info"}),
    ("profiler-left-on", {"comms_logger": {"enabled": True, "verbose": True}}, {}, {"comms_logger.enabled": "warning"}),
    ("chatty-output", {"dump_state": True}, {}, {"dump_state": "info"}),
    ("chatty-output", {"dump_state": False}, {}, {}),
    # A model without a mask, as a ViT, hands none over: DeepSpeed asks whether there is a name
    ("coerced-value", ltd(model_mask_name=None), {}, {}),
    ("coerced-value", ltd(model_mask_name=3), {}, {f"{LTD}.model_mask_name": "warning"}),
    # OneCycle looks at the momentum unless it is told not to
    ("scheduler-argument-type", cycle(), {}, {"scheduler.params.cycle_min_mom": "error"}),
    ("scheduler-argument-type", cycle(cycle_momentum=False), {}, {}),
    # Only a loss scale that adapts, of a mode that is on, counts hysteresis down
    ("hysteresis-not-positive", fp16(hysteresis=0), {}, {"fp16.hysteresis": "warning"}),
    ("hysteresis-not-positive", fp16(hysteresis=1), {}, {}),
    ("hysteresis-not-positive", fp16(hysteresis=0, loss_scale=128), {}, {}),
    ("hysteresis-not-positive", fp16(hysteresis=0, enabled=False), {}, {}),
    # Stage 1 that scatters never divides by it
    ("rejected-value", {PREDIVIDE: "2", **z(1)}, {}, {}),
    (
        "rejected-value",
        {PREDIVIDE: "2", **z(1, reduce_scatter=False)},
        {},
        {PREDIVIDE: "error"},
    ),
    ("auto-outside-hugging-face", {PREDIVIDE: "auto", **z(1)}, {}, {PREDIVIDE: "warning"}),
    ("auto-outside-hugging-face", {PREDIVIDE: "auto", **z(0)}, {}, {PREDIVIDE: "error"}),
    ("auto-outside-hugging-face", {PREDIVIDE: "auto", **z(2)}, {}, {PREDIVIDE: "error"}),
    ("auto-outside-hugging-face", {"bfloat16": {"enabled": "auto"}}, {}, {"bfloat16.enabled": "warning"}),
    ("auto-outside-hugging-face", {"bfloat16": {"enabled": "auto"}, "bf16": {}}, {}, {}),
    # A device that the stage ignores is only worth knowing
    ("auto-not-filled", z(2, offload_param={"device": "auto"}), {"target": "hf-trainer"}, {PARAMETERS: "info"}),
    ("auto-not-filled", z(3, offload_param={"device": "auto"}), {"target": "hf-trainer"}, {PARAMETERS: "warning"}),
    # In which dtype it runs is not known while the Trainer fills it in
    ("legacy-fusion", legacy(), {}, {"optimizer.legacy_fusion": "warning"}),
    ("legacy-fusion", {**legacy(), "fp16": {"enabled": True}}, {}, {"optimizer.legacy_fusion": "error"}),
    ("legacy-fusion", {**legacy(), "fp16": {"enabled": "auto"}}, {"target": "hf-trainer"}, {}),
    # A stage that DeepSpeed refuses is none that ignores the offload
    ("offload-optimizer-at-stage-0", z(0, **OFFLOAD), {}, {"zero_optimization.offload_optimizer": "warning"}),
    ("offload-optimizer-at-stage-0", z(4, **OFFLOAD), {}, {}),
    # Stage 3 overlaps where nobody says
    ("zenflow-offload-without-overlap", z(2, **ZENFLOW), {}, {"zero_optimization.zenflow.offload": "error"}),
    ("zenflow-offload-without-overlap", z(3, **ZENFLOW), {}, {}),
    # On a CPU DeepSpeed has rules of its own for dtypes
    ("dtype-not-in-hardware", {"bf16": {"enabled": True}}, {"hardware": "v100-16g"}, {"bf16.enabled": "warning"}),
    ("dtype-not-in-hardware", {"fp16": {"enabled": True}}, {"hardware": "cpu"}, {}),
    # A tensor as large as the threshold stays whole
    (
        "nothing-is-partitioned",
        z(3, stage3_param_persistence_threshold=LARGEST_OF_7B),
        {"model": "7b"},
        {"zero_optimization.stage3_param_persistence_threshold": "warning"},
    ),
    ("nothing-is-partitioned", z(3, stage3_param_persistence_threshold=LARGEST_OF_7B - 1), {"model": "7b"}, {}),
    # One pattern that matches is enough
    ("tensor-parallel-matches-nothing", {**z(1), **tp("up_proj", "nowhere")}, MLP, {}),
    (
        "tensor-parallel-matches-nothing",
        {**z(1), **tp("nowhere", "neither")},
        MLP,
        {"tensor_parallel.partition_config": "warning"},
    ),
    # A parameter of the model itself has no module in its name
    (
        "per-head-muon-without-attention",
        {**opt("Muon", per_head_muon=True), **z(2)},
        {"parameters": ("weight",)},
        {"optimizer.params.per_head_muon": "error"},
    ),
    # Experts and layers that are both split need more than one GPU for the experts
    ("expert-parallel-refused", {**experts(1), **tp("up_proj")}, {}, {"expert_parallel.autoep_size": "error"}),
    ("expert-parallel-refused", {**experts(2), **tp("up_proj")}, {}, {}),
    ("expert-parallel-refused", experts(1), {}, {}),
    # Muon has rates of its own; another optimizer does not take them
    ("learning-rate-zero", opt("Muon", lr=0), {}, {"optimizer.params.lr": "warning"}),
    ("learning-rate-zero", opt("Muon", lr=0, muon_lr=0.02), {}, {}),
    ("learning-rate-zero", opt("AdamW", lr=0, muon_lr=0.02), {}, {"optimizer.params.lr": "warning"}),
    # The hardware tells where nobody names the accelerator
    ("gds-without-cuda", {"aio": {"use_gds": True}}, {"hardware": "cpu"}, {"aio.use_gds": "error"}),
    ("gds-without-cuda", {"aio": {"use_gds": True}}, {"hardware": "a100-40g"}, {}),
    ("gds-without-cuda", {"aio": {"use_gds": True}}, {}, {}),
    # The ratio is read at stage 3, of what is offloaded
    (
        "offload-ratio-needs-cpu-adam",
        {**opt("Lion"), **z(3, offload_optimizer={"device": "cpu", "ratio": 0.5})},
        {},
        {"zero_optimization.offload_optimizer.ratio": "error"},
    ),
    (
        "offload-ratio-needs-cpu-adam",
        {**opt("Lion"), **z(2, offload_optimizer={"device": "cpu", "ratio": 0.5})},
        {},
        {},
    ),
    ("offload-ratio-needs-cpu-adam", {**opt("Lion"), **z(3, offload_optimizer={"ratio": 0.5})}, {}, {}),
    ("offload-ratio-needs-cpu-adam", z(3, offload_optimizer={"device": "cpu", "ratio": 0.5}), {}, {}),
]


@pytest.mark.parametrize(
    ("rule", "config", "known", "said"), SAID, ids=lambda part: part if isinstance(part, str) else ""
)
def test_a_rule_speaks_where_it_should_and_nowhere_else(
    rule: str, config: dict[str, Any], known: dict[str, Any], said: dict[str, str]
) -> None:
    assert {item.path: str(item.severity) for item in linted(rule, config, **known)} == said


CONTIGUOUS = {"activation_checkpointing": {"contiguous_memory_optimization": True}}
NOT_CONTIGUOUS = Assign("activation_checkpointing.contiguous_memory_optimization", False)
MASTERS = {"bf16": {"enabled": True, "bf16_master_weights_and_grads": True}, **z(2)}
# Rule, config, what is known besides, and the fix: its edits and whether it is safe; None where the rule knows none.
MENDED: list[tuple[str, dict[str, Any], dict[str, Any], tuple[Edit, bool] | None]] = [
    # Only a whole number of replicas can be written
    (
        "sequence-parallel-does-not-fit-gpus",
        sequence(2, 1),
        {"world_size": 4},
        (Assign("data_parallel_size", 2), False),
    ),
    ("sequence-parallel-does-not-fit-gpus", sequence(2, 1), {"world_size": 5}, None),
    ("tensor-parallel-does-not-fit-gpus", tp("up_proj"), {"world_size": 3}, (Assign(SIZE, 1), False)),
    # A name that is only near is no sure one, unless it is a slip that many make
    ("rejected-key", z(2, overlap=True), {}, (Remove("zero_optimization.overlap"), False)),
    ("rejected-key", z(2, bucket_size=5), {}, (renamed("bucket_size", "reduce_bucket_size"), False)),
    (
        "unread-key",
        {"overlap_comm": True, **z(2)},
        {},
        (Move("overlap_comm", "zero_optimization.overlap_comm"), False),
    ),
    ("unread-key", {"max_grad_norm": 1.0}, {}, (Move("max_grad_norm", "gradient_clipping"), False)),
    # Of several sections with a key of that name, the one that is there and lacks it
    (
        "unread-key",
        {"pin_memory": True, **z(2, offload_optimizer={"device": "cpu"})},
        {},
        (Move("pin_memory", "zero_optimization.offload_optimizer.pin_memory"), False),
    ),
    ("unread-key", {"pin_memory": True, **z(2)}, {}, (Remove("pin_memory"), False)),
    (
        "unread-key",
        {"warmup_num_steps": 5, **warmup()},
        {},
        (Move("warmup_num_steps", "scheduler.params.warmup_num_steps"), False),
    ),
    ("unread-key", {"cycle_min_lr": 5, **warmup()}, {}, (Remove("cycle_min_lr"), False)),
    (
        "unread-key",
        {"max_grad_norm": 1.0, "gradient_clipping": 1.0},
        {},
        (Remove("max_grad_norm"), False),
    ),
    (
        "unknown-scheduler-argument",
        warmup(warmup_numsteps=5),
        {},
        (Move("scheduler.params.warmup_numsteps", "scheduler.params.warmup_num_steps"), False),
    ),
    (
        "unknown-scheduler-argument",
        warmup(warmup_steps=5),
        {},
        (Move("scheduler.params.warmup_steps", "scheduler.params.warmup_num_steps"), False),
    ),
    ("unknown-scheduler-argument", warmup(steps=5), {}, (Remove("scheduler.params.steps"), False)),
    # What goes was off anyway
    ("removed-key", {"amp": {"enabled": False}}, {}, (Remove("amp"), True)),
    ("removed-key", {"amp": {"enabled": True}}, {}, (Remove("amp"), False)),
    # A switch that nobody wrote can be added; one that says no, or no section, cannot
    ("param-dtype-conflict", {"data_types": {"param_dtype": "bf16"}}, {}, (Assign("bf16.enabled", True), False)),
    (
        "param-dtype-conflict",
        {"data_types": {"param_dtype": "bf16"}, "bf16": {"enabled": False}},
        {},
        (Remove("data_types.param_dtype"), False),
    ),
    (
        "param-dtype-conflict",
        {"data_types": {"param_dtype": "bf16"}, "bf16": True},
        {},
        (Remove("data_types.param_dtype"), False),
    ),
    # A strict section reads the text, elsewhere any text counts as true
    ("coerced-value", z(2, overlap_comm="false"), {}, (Assign("zero_optimization.overlap_comm", False), True)),
    ("coerced-value", {"dump_state": "false"}, {}, (Assign("dump_state", False), False)),
    # Nothing changes where the program does not call what reads it
    ("contiguous-checkpoints-incomplete", CONTIGUOUS, {}, (NOT_CONTIGUOUS, True)),
    (
        "contiguous-checkpoints-incomplete",
        CONTIGUOUS,
        {"calls": frozenset({"checkpointing.configure"})},
        (NOT_CONTIGUOUS, False),
    ),
    # What decides something for the person
    ("zenflow-without-offload", z(0, zenflow={}), {}, (Assign("zero_optimization.stage", 2), False)),
    (
        "zenflow-without-offload",
        z(2, zenflow={}),
        {},
        (Assign("zero_optimization.offload_optimizer.device", "cpu"), False),
    ),
    (
        "tensor-parallel-leaves-the-node",
        {"tensor_parallel": {"autotp_size": 16}},
        {"hardware": "a100-80g", "world_size": 16},
        (Assign(SIZE, 8), False),
    ),
    (
        "stage-3-on-a-slow-network",
        {**opt("AdamW"), **z(3), "bf16": {"enabled": True}},
        {"hardware": "a100-80g", "world_size": 16, "model": "7b", "network": "ethernet-10g"},
        (Assign("zero_optimization.zero_hpz_partition_size", 8), False),
    ),
    (
        "stage-3-on-a-slow-network",
        {**opt("AdamW"), **z(3), "bf16": {"enabled": True}},
        {"hardware": "a100-80g", "world_size": 16, "model": "7b", "network": "ethernet-10g", "seq_len": 2048},
        (Assign("zero_optimization.stage", 2), False),
    ),
    # fp16 that is off is not what the person meant
    (
        "two-kinds-of-master-weights",
        {**MASTERS, "fp16": {"fp16_master_weights_and_grads": True}},
        {},
        (Remove("fp16.fp16_master_weights_and_grads"), True),
    ),
    (
        "two-kinds-of-master-weights",
        {**MASTERS, "fp16": {"enabled": True, "fp16_master_weights_and_grads": True}},
        {},
        (Remove("fp16.fp16_master_weights_and_grads"), False),
    ),
]


@pytest.mark.parametrize(
    ("rule", "config", "known", "mended"), MENDED, ids=lambda part: part if isinstance(part, str) else ""
)
def test_a_fix_is_offered_where_one_is_known_and_safe_where_it_changes_nothing(
    rule: str, config: dict[str, Any], known: dict[str, Any], mended: tuple[Edit, bool] | None
) -> None:
    (said,) = linted(rule, config, **known)

    assert (said.fix and (*said.fix.edits, said.fix.safe)) == mended


IN_BF16 = {**opt("AdamW"), **z(2), "bf16": {"enabled": True}}
PCIE = {"hardware": "a100-40g-pcie", "world_size": 4, "model": "7b", "seq_len": 2048}  # one node: no network counts


@pytest.mark.parametrize(
    ("rule", "config", "known", "words"),
    [
        ("optimizer-type-missing", {"optimizer": {"name": "AdamW"}}, {}, "optimizer.name is not read"),
        ("optimizer-type-missing", {"optimizer": {}}, {}, "optimizer has no type"),
        ("optimizer-type-missing", {"optimizer": {}}, {}, "the first step fails"),
        ("optimizer-type-missing", {"optimizer": {}}, {"client_optimizer": "torch"}, "the program's own optimizer"),
        ("coerced-value", z(2, overlap_comm="false"), {}, "DeepSpeed reads it as false"),
        ("coerced-value", {"dump_state": "false"}, {}, "DeepSpeed does not check it and takes it for true"),
        ("no-overlap-on-a-slow-link", IN_BF16, {**PCIE, "network": None}, "times slower than with it"),
        ("no-overlap-on-a-slow-link", IN_BF16, {**PCIE, "network": "ethernet-10g"}, "times slower than with it"),
        ("removed-key", {"amp": {"enabled": False}}, {}, "a config that has it, even switched off; use bf16"),
        ("removed-key", {"amp": {"enabled": True}}, {}, "a config that has it; use bf16"),
        ("datastates-missing", {"datastates_ckpt": {}}, {}, "which DeepSpeed does not install"),
        ("datastates-missing", {"datastates_ckpt": {}}, {"missing": frozenset({"datastates"})}, "this machine"),
    ],
)
def test_a_message_says_what_is_so_here(rule: str, config: dict[str, Any], known: dict[str, Any], words: str) -> None:
    (said,) = linted(rule, config, **known)

    assert words in said.message
