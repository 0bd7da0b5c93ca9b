"""What AutoTP cannot split, and what it refuses beside it."""

from __future__ import annotations

from dsgen.strategies.constraints.constraint import Constraint

__all__ = ["CHUNKED", "DEGREE", "TENSOR_PARALLELISM"]

# They hang on the degree alone, whatever the stage.
DEGREE = (
    Constraint(
        code="no-autotp",
        about="tp",
        by="deepspeed",
        stops=True,
        condition=lambda at: at.tp > 1,
        reason="DeepSpeed {at.version} has no AutoTP for training; 0.16.4 is the first",
        source="deepspeed/runtime/tensor_parallel of 0.16.4, the first with TPTrainingConfig",
        until="0.16.4",
    ),
    Constraint(
        code="autotp-unsplit",
        about="tp",
        by="deepspeed",
        stops=True,
        condition=lambda at: at.unsplit is not None and not at.autotp.runs,
        reason="{at.unsplit}",
        source="DeepSpeed 0.19.8 with transformers 5.23: tests/engine/test_simulate_split.py",
    ),
    Constraint(
        code="autotp-with-biased-rows",
        about="tp",
        by="deepspeed",
        stops=True,
        condition=lambda at: at.tp > 1 and at.autotp.biased_rows,
        reason="AutoTP of DeepSpeed {at.version} adds the bias of a split layer in place, and torch stops in forward; "
        "0.17.0 is the first that does not",
        source="deepspeed/module_inject/layers.py of 0.16.9: LinearAllreduce; 0.16.9 run: gptj, gpt_neox, opt",
        until="0.17.0",
    ),
    Constraint(
        code="autotp-splits-the-head-alone",
        about="tp",
        by="dsgen",
        stops=False,
        condition=lambda at: at.unsplit is not None and at.autotp.runs,
        reason="{at.unsplit}",
        source="DeepSpeed 0.19.8 with transformers 5.23: tests/engine/test_simulate_split.py",
    ),
    Constraint(
        code="autotp-with-adapters",
        about="tp",
        by="deepspeed",
        stops=True,
        condition=lambda at: at.tp > 1 and at.adapters,
        reason="AutoTP splits the layers under peft's adapters, and their weights are lost to the optimizer (0.19.8)",
        source="deepspeed/runtime/zero/stage_1_and_2.py (0.19.8): _create_param_mapping; 0.19.8 run: KeyError",
    ),
    Constraint(
        code="autotp-and-gpus",
        about="tp",
        by="deepspeed",
        stops=True,
        condition=lambda at: at.tp > 1 and at.world is not None and at.world % at.tp != 0,
        reason="{at.world} GPUs do not divide into tensor-parallel groups of {at.tp}",
        source="deepspeed/utils/groups.py (0.19.8): _init_tp_mesh_device; probes TP_gt_world_w2, TP_nondiv_w3",
        rule="DSG404",
    ),
    Constraint(
        code="autotp-leaves-the-node",
        about="tp",
        by="hardware",
        stops=False,
        condition=lambda at: at.gpus_per_node is not None and at.tp > max(at.gpus_per_node, 1),
        reason="tensor parallelism over {at.tp} GPUs leaves the node of {at.gpus_per_node}",
        source="Megatron-LM (arXiv 2104.04473), section 3.2: tensor parallelism within a node",
        rule="DSG812",
    ),
    Constraint(
        code="autotp-and-heads",
        about="tp",
        by="dsgen",
        stops=False,
        condition=lambda at: at.heads is not None and any(heads % at.tp for heads in at.heads),
        reason="{at.heads[0]} heads and {at.heads[1]} key heads do not divide by {at.tp}",
        source="deepspeed/runtime/engine.py (0.19.8): _apply_autotp_partitioning: some ranks get more heads, or none",
    ),
)

TENSOR_PARALLELISM = (
    *DEGREE,
    Constraint(
        code="autotp-at-stage-0",
        about="stage",
        by="deepspeed",
        stops=False,
        condition=lambda at: at.tp > 1 and at.stage == 0 and at.sixteen,
        reason="AutoTP at stage 0 in 16 bit computes a wrong gradient norm (seen on 0.19.8); stage 1 is right",
        source="probes TPgn_z0_tp1, TPgn_z0_tp2, TPgn_z1_tp2 (DeepSpeed 0.19.8)",
        rule="DSG408",
    ),
    Constraint(
        code="autotp-at-stage-3",
        about="stage",
        by="deepspeed",
        stops=True,
        condition=lambda at: at.tp > 1 and at.stage == 3,
        reason="DeepSpeed {at.version} refuses AutoTP with stage 3; 0.19.4 is the first that does not",
        source="deepspeed/runtime/engine.py of 0.16.9, 0.17.6, 0.18.9, 0.19.0 to 0.19.3; gone in 0.19.4",
        until="0.19.4",
        rule="DSG407",
    ),
)

# A plan goes on all the same: another chunked loss than Liger's may run, and who trains like this brings one.
CHUNKED = (
    Constraint(
        code="autotp-with-chunked-loss",
        about="chunked_loss",
        by="transformers",
        stops=False,
        condition=lambda at: at.tp > 1 and at.training.chunked_loss,
        reason="a chunked loss needs the whole head, and AutoTP shares it out: Liger's does not run like this",
        source="liger_kernel/ops/fused_linear_cross_entropy.py takes the head's weight, of which a rank has a part",
        todo="Leave chunked_loss out, or tensor parallelism.",
    ),
)
