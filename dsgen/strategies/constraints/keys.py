"""What single keys of DeepSpeed's need of the strategy that they stand beside."""

from __future__ import annotations

from dsgen.strategies.constraints.constraint import Constraint
from dsgen.strategies.constraints.setup import Setup

__all__ = ["KEYS"]

_CPU_ADAM = ("AdamW", "Adam")  # wishes that DeepSpeed builds DeepSpeedCPUAdam of


def _masters(at: Setup) -> bool:
    return bool(at.keys.masters) and at.stage in (1, 2, 3)


def _resident(at: Setup) -> bool:
    """Whether the states are in 16 bits as well, which lets all of them stay on the GPU."""
    return at.keys.masters.startswith("bf16") and at.keys.states


def _wrapped(at: Setup) -> bool:
    """Whether BF16_Optimizer runs, which never looks at the key (runtime/engine.py, _do_optimizer_sanity_check)."""
    return at.stage == 1 and at.precision == "bf16" and at.keys.sums == "fp32"


def _divides(at: Setup) -> bool:
    return at.world is None or at.world % at.keys.hpz == 0


KEYS = (
    Constraint(
        code="masters-on-the-gpu",
        about="masters",
        by="deepspeed",
        stops=True,
        condition=lambda at: _masters(at) and at.offload_optimizer == "none" and not _resident(at) and not _wrapped(at),
        reason="16-bit master weights need the optimizer on the CPU, or with bf16 bf16_optimizer_states: true;"
        " deepspeed.initialize stops",
        source="deepspeed/runtime/base_optimizer.py (0.19.8): _configure_master_weights; probe P_bf16_master_z2_nooff",
        rule="DSG622",
    ),
    Constraint(
        code="masters-without-cpu-adam",
        about="masters",
        by="deepspeed",
        stops=True,
        condition=lambda at: (
            _masters(at) and at.offload_optimizer != "none" and at.training.optimizer not in ("", *_CPU_ADAM)
        ),
        reason="16-bit master weights on the CPU need DeepSpeed's own AdamW or Adam; deepspeed.initialize stops",
        source="deepspeed/runtime/base_optimizer.py (0.19.8): _configure_master_weights",
        rule="DSG622",
    ),
    Constraint(
        code="masters-on-nvme",
        about="masters",
        by="dsgen",
        stops=False,
        condition=lambda at: _masters(at) and at.offload_optimizer == "nvme",
        reason="16-bit master weights are counted on the CPU, or with bf16_optimizer_states on the GPU, not on NVMe",
        source="docs/memory-agreement.md: what was held against the simulation",
    ),
    Constraint(
        code="states-without-masters",
        about="states",
        by="deepspeed",
        stops=True,
        condition=lambda at: at.keys.states and not at.keys.masters.startswith("bf16"),
        reason="bf16_optimizer_states needs bf16_master_weights_and_grads: true, and the parse stops without it",
        source="deepspeed/runtime/base_optimizer.py (0.19.8): _configure_master_weights; runtime/config.py",
        since="0.18.3",
        rule="DSG623",
    ),
    Constraint(
        code="hpz-and-gpus",
        about="hpz",
        by="deepspeed",
        stops=True,
        condition=lambda at: at.stage == 3 and not _divides(at) and at.keys.hpz < (at.world or 0),
        reason="zero_hpz_partition_size {at.keys.hpz} does not divide {at.world} GPUs: deepspeed.initialize stops",
        source="deepspeed/utils/groups.py (0.19.8): _create_zero_param_parallel_group; probe ZPP_hpz2_z3_w3",
        rule="DSG320",
    ),
    Constraint(
        code="hpz-above-gpus",
        about="hpz",
        by="deepspeed",
        stops=False,
        condition=lambda at: at.stage == 3 and not _divides(at) and at.keys.hpz > (at.world or 0),
        reason="zero_hpz_partition_size {at.keys.hpz} is more than the {at.world} GPUs, and DeepSpeed uses {at.world}:"
        " one group of all GPUs holds a second copy of the parameters and saves no traffic",
        source="deepspeed/utils/groups.py (0.19.8): _create_zero_param_parallel_group; probe ZPP_hpz8_gt_world",
        rule="DSG320",
    ),
    Constraint(
        code="hpz-with-nvme",
        about="hpz",
        by="deepspeed",
        stops=True,
        condition=lambda at: at.stage == 3 and at.keys.hpz > 1 and at.offload_param == "nvme",
        reason="zero_hpz_partition_size {at.keys.hpz} puts its copy of the parameters where offload_param says, and"
        ' torch has no device "nvme": deepspeed.initialize stops',
        source="deepspeed/runtime/zero/partition_parameters.py (0.19.8): _partition_param_sec; 0.19.8 run with both",
        rule="DSG323",
    ),
    Constraint(
        code="muon-with-reduce-scatter",
        about="reduce_scatter",
        by="deepspeed",
        stops=True,
        condition=lambda at: at.stage == 3 and at.training.optimizer == "Muon" and at.keys.reduce_scatter,
        reason="Muon at stage 3 needs reduce_scatter false; with true deepspeed.initialize stops",
        source="deepspeed/runtime/zero/stage3.py (0.19.8): __init__; probes OPT_Muon_z3, OPT_Muon_z3_rsoff",
        since="0.18.9",
        rule="DSG519",
    ),
    Constraint(
        code="sums-at-stage-0",
        about="sums",
        by="deepspeed",
        stops=True,
        condition=lambda at: (
            at.stage == 0
            and at.precision is not None
            and at.keys.sums not in ("", at.precision)
            and (at.precision, at.keys.sums) != ("bf16", "fp32")
        ),
        reason="without ZeRO a model in {at.precision} cannot accumulate gradients in {at.keys.sums}, and"
        " deepspeed.initialize stops",
        source="deepspeed/runtime/engine.py (0.19.8): _do_optimizer_sanity_check; probe P_gad_bf16_fp32model_z0",
        rule="DSG610",
    ),
    Constraint(
        code="fp32-sums-at-stage-0",
        about="sums",
        by="deepspeed",
        stops=True,
        condition=lambda at: at.stage == 0 and (at.precision, at.keys.sums) == ("bf16", "fp32"),
        reason="without ZeRO a model in bf16 cannot accumulate gradients in fp32, and deepspeed.initialize stops",
        source="deepspeed/runtime/engine.py of 0.18.5 and 0.18.6: _do_optimizer_sanity_check; probe P_gad_fp32_bf16_z0",
        since="0.18.6",
        rule="DSG610",
    ),
    Constraint(
        code="bf16-sums-at-stage-0",
        about="sums",
        by="deepspeed",
        stops=True,
        condition=lambda at: at.stage == 0 and (at.precision, at.keys.sums) == ("bf16", "bf16"),
        reason="without ZeRO a model in bf16 cannot accumulate gradients in bf16, and deepspeed.initialize stops",
        source="deepspeed/runtime/engine.py of 0.17.5 and 0.17.6: _do_optimizer_sanity_check",
        until="0.17.6",
        rule="DSG610",
    ),
)
