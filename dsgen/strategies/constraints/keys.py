"""What single keys of DeepSpeed's need of the strategy that they stand beside."""

from __future__ import annotations

from dsgen.strategies.constraints.constraint import Constraint
from dsgen.strategies.constraints.setup import Setup

__all__ = ["KEYS"]

_CPU_ADAM = ("AdamW", "Adam")  # wishes that DeepSpeed builds DeepSpeedCPUAdam of
# Types whose classes are in ZERO_SUPPORTED_OPTIMIZERS (runtime/zero/utils.py), in small letters.
_TESTED = frozenset({"adam", "adamw", "adagrad", "lion", "muon"})


def _masters(at: Setup) -> bool:
    return bool(at.keys.masters) and at.stage in (1, 2, 3)


def _resident(at: Setup) -> bool:
    """Whether the states are in 16 bits as well, which lets all of them stay on the GPU."""
    return at.keys.masters.startswith("bf16") and at.keys.states


def _scatters(at: Setup) -> bool:
    """Whether gradients are averaged while they are scattered, and so divided by nobody else; stage 2 may add them."""
    return bool(at.keys.reduce_scatter) and (at.stage == 3 or (at.stage == 2 and not at.keys.adds))


def _no_norm(at: Setup) -> bool:
    """Whether the norm of gradients is not to be computed, at a stage that can leave it."""
    return not at.keys.norm and at.stage in (1, 2)


def _divides(at: Setup) -> bool:
    return at.world is None or at.world % at.keys.hpz == 0


KEYS = (
    Constraint(
        code="masters-on-the-gpu",
        about="masters",
        by="deepspeed",
        stops=True,
        condition=lambda at: _masters(at) and at.offload_optimizer == "none" and not (_resident(at) or at.wrapped),
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
        condition=lambda at: at.stage == 3 and at.training.optimizer == "Muon" and bool(at.keys.reduce_scatter),
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
    Constraint(
        code="prescale-with-reduce-scatter",
        about="prescale",
        by="deepspeed",
        stops=True,
        condition=lambda at: at.keys.prescale and _scatters(at),
        reason="prescale_gradients does not go with reduce_scatter at stage {at.stage}: deepspeed.initialize stops",
        source="deepspeed/runtime/zero/stage_1_and_2.py and stage3.py (0.19.8): __init__; probes Z_prescale_z2 and z3",
        rule="DSG330",
        must="at stages 2 and 3 it needs zero_optimization.reduce_scatter: false",
    ),
    Constraint(
        code="predivide-with-reduce-scatter",
        about="predivide",
        by="deepspeed",
        stops=True,
        condition=lambda at: at.keys.predivide != 1 and _scatters(at),
        reason="gradient_predivide_factor {at.keys.predivide} does not go with reduce_scatter at stage {at.stage}:"
        " deepspeed.initialize stops",
        source="deepspeed/runtime/zero/stage_1_and_2.py and stage3.py (0.19.8): __init__; probe Z_predivide_z2",
        rule="DSG330",
        must="at stages 2 and 3 it needs zero_optimization.reduce_scatter: false",
    ),
    Constraint(
        code="odd-allgather-bucket",
        about="allgather",
        by="deepspeed",
        stops=True,
        condition=lambda at: at.stage in (1, 2) and at.keys.allgather % 2 == 1 and not at.wrapped,
        reason="allgather_bucket_size {at.keys.allgather} is odd; stages 1 and 2 take an even number, and"
        " deepspeed.initialize stops",
        source="deepspeed/runtime/zero/stage_1_and_2.py (0.19.8): __init__; probe Z_allgather_odd",
        rule="DSG331",
        must="it must be even",
    ),
    Constraint(
        code="no-norm-at-the-stage",
        about="norm",
        by="deepspeed",
        stops=True,
        condition=lambda at: not at.keys.norm and at.stage in (0, 3),
        reason="compute_grad_norm: false works at stage 1 and 2 only; the stage is {at.stage}, and DeepSpeed stops at"
        " the parse",
        source="deepspeed/runtime/zero/config.py (0.19.8): compute_grad_norm_valid; probe Z_cgn_false_z3",
        since="0.19.7",
        rule="DSG333",
    ),
    Constraint(
        code="no-norm-with-clipping",
        about="norm",
        by="deepspeed",
        stops=True,
        condition=lambda at: _no_norm(at) and bool(at.keys.clipping),
        reason="compute_grad_norm: false needs gradient_clipping 0; it is {at.keys.clipping}: deepspeed.initialize"
        " stops",
        source="deepspeed/runtime/zero/stage_1_and_2.py (0.19.8): __init__; probe Z_cgn_false",
        since="0.19.7",
        rule="DSG333",
        must="false needs gradient_clipping: 0.0",
    ),
    Constraint(
        code="no-norm-in-bf16",
        about="norm",
        by="deepspeed",
        stops=True,
        condition=lambda at: _no_norm(at) and at.wrapped,
        reason="compute_grad_norm: false does not go with bf16 and fp32 accumulation at stage 1: deepspeed.initialize"
        " stops",
        source="deepspeed/runtime/engine.py (0.19.8): _do_optimizer_sanity_check",
        since="0.19.7",
        rule="DSG333",
    ),
    Constraint(
        code="no-norm-with-offload",
        about="norm",
        by="deepspeed",
        stops=True,
        condition=lambda at: _no_norm(at) and (at.offload_optimizer != "none" or at.keys.zenflow != ""),
        reason="compute_grad_norm: false does not go with offload or ZenFlow: deepspeed.initialize stops",
        source="deepspeed/runtime/zero/stage_1_and_2.py (0.19.8): __init__; 0.19.8 run with offload",
        since="0.19.7",
        rule="DSG333",
    ),
    Constraint(
        code="zenflow-without-interval",
        about="zenflow",
        by="deepspeed",
        stops=False,
        condition=lambda at: at.keys.zenflow == "auto" and at.stage in (1, 2, 3),
        reason='zenflow.update_interval is "auto", and ZenFlow then sets gradient_accumulation_steps to 0: the loss is'
        " divided by 0, and weights become NaN from the second step; it must be a number",
        source="deepspeed/runtime/zenflow/engine.py (0.19.8): configure_zenflow, last line; probe ZF_z2_default_steps",
        since="0.17.5",
        rule="DSG343",
        todo="Set zero_optimization.zenflow.update_interval to a whole number.",
        must="with update_interval left to 'auto' DeepSpeed sets the accumulation to 0, and the loss is NaN",
    ),
    Constraint(
        code="own-optimizer-offloaded",
        about="own",
        by="deepspeed",
        stops=True,
        condition=lambda at: at.keys.own and at.keys.forced and at.offload_optimizer != "none",
        reason="the program passes a torch optimizer, and offload_optimizer to {at.offload_optimizer} makes"
        " deepspeed.initialize stop",
        source="deepspeed/runtime/engine.py (0.19.8): _configure_optimizer; probes O_client_opt_off, _off_force",
        rule="DSG525",
        must="with an optimizer of your own on the CPU, DeepSpeed stops",
    ),
    Constraint(
        code="untested-optimizer",
        about="untested",
        by="deepspeed",
        stops=True,
        condition=lambda at: (
            at.stage in (1, 2, 3) and at.keys.named.lower() not in ("", *_TESTED) and not at.keys.untested
        ),
        reason="ZeRO stage {at.stage} refuses {at.keys.named}, which is not on its list, and deepspeed.initialize"
        " stops",
        source="deepspeed/runtime/zero/utils.py (0.19.8): ZERO_SUPPORTED_OPTIMIZERS; probes OPT_SGD_z2, OPT_SGD_allow",
        rule="DSG513",
    ),
)
