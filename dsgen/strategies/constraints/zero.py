"""What precision, stage and offload refuse of each other."""

from __future__ import annotations

from dsgen.strategies.buffers import EIGHT_BITS
from dsgen.strategies.constraints.constraint import Constraint
from dsgen.strategies.constraints.setup import Setup

__all__ = ["PRECISION", "ZERO"]

_BELOW_3 = (0, 1, 2)


def _no_units(at: Setup) -> bool:
    hardware = at.hardware
    if hardware is None:
        return False
    return (at.precision == "bf16" and not hardware.bf16_flops_per_second) or (
        at.precision == "fp16" and not hardware.fp16_flops_per_second
    )


def _no_nvme(at: Setup) -> bool:
    swaps = "nvme" in (at.offload_optimizer, at.offload_param)
    return swaps and at.hardware is not None and not at.hardware.nvme_capacity_bytes


def _nowhere(at: Setup) -> bool:
    stays = (at.offload_optimizer, at.offload_param) == ("none", "none")
    return not stays and at.hardware is not None and at.hardware.vendor == "cpu"


def _gathers_into_views(at: Setup) -> bool:
    parts = at.stage in (1, 2) and at.world != at.tp and not at.wrapped
    return parts and at.hardware is not None and at.hardware.vendor == "cpu"


PRECISION = (
    Constraint(
        code="no-16-bit-units",
        about="precision",
        by="hardware",
        stops=False,
        condition=_no_units,
        reason="this GPU has no {at.precision} units: torch emulates {at.precision}, slower than fp32",
        source="torch.cuda.is_bf16_supported(including_emulation=True), which DeepSpeed 0.19.8 asks; V100's data sheet",
        rule="DSG803",
    ),
)

ZERO = (
    Constraint(
        code="8-bit-states-offloaded",
        about="offload_optimizer",
        by="deepspeed",
        stops=True,
        condition=lambda at: at.training.optimizer == EIGHT_BITS and at.offload_optimizer != "none",
        reason="{at.training.optimizer} steps on the GPU, and DeepSpeed offloads to its own Adam alone",
        source="deepspeed/runtime/engine.py (0.19.8): _configure_optimizer, zero_force_ds_cpu_optimizer",
        todo="Offload with AdamW (optim: adamw_torch, --optimizer AdamW), or keep the states on the GPU.",
    ),
    Constraint(
        code="optimizer-offload-at-stage-0",
        about="offload_optimizer",
        by="deepspeed",
        stops=False,
        condition=lambda at: at.stage == 0 and at.offload_optimizer != "none",
        reason="optimizer offload needs ZeRO: at stage 0 DeepSpeed offloads nothing",
        source="deepspeed/runtime/engine.py (0.19.8): _configure_optimizer; probe O_opt_stage0",
        rule="DSG304",
    ),
    Constraint(
        code="adagrad-at-stage-0",
        about="optimizer",
        by="deepspeed",
        stops=False,
        condition=lambda at: at.stage == 0 and at.sixteen and at.training.optimizer == "Adagrad",
        reason="Adagrad at stage 0 in 16 bit cannot save a checkpoint (KeyError in 0.19.8); stage 1 can",
        source="DeepSpeed 0.19.8 run: save_checkpoint of the golden config at stage 0",
    ),
    Constraint(
        code="masters-at-stage-0",
        about="masters",
        by="deepspeed",
        stops=True,
        condition=lambda at: at.stage == 0 and at.narrow,
        reason="16-bit master weights need ZeRO: at stage 0 DeepSpeed refuses them",
        source="deepspeed/runtime/config.py (0.19.8): _do_error_check; probe P_bf16_master_z0",
        rule="DSG621",
    ),
    Constraint(
        code="masters-at-stage-2-alone",
        about="masters",
        by="deepspeed",
        stops=True,
        condition=lambda at: at.stage in (1, 3) and at.narrow,
        reason="DeepSpeed {at.version} takes 16-bit master weights at stage 2 alone; 0.18.3 is the first with others",
        source="deepspeed/runtime/config.py of 0.17.6 and 0.18.3: _do_error_check",
        until="0.18.3",
        rule="DSG621",
    ),
    Constraint(
        code="fp16-at-stage-0",
        about="precision",
        by="deepspeed",
        stops=False,
        condition=lambda at: at.stage == 0 and at.precision == "fp16",
        reason="since 0.18.3 DeepSpeed does not scale the loss in fp16 at stage 0, yet divides the gradients by the"
        " scale: SGD stood still in a test (loss 0.5963 after 25 steps from 0.5964; 0.0008 at stage 1), Adam was a"
        " little slower (0.0072; 0.0054); stage 1 scales it",
        source="https://github.com/deepspeedai/DeepSpeed/pull/8393; 0.19.8 run on a CPU that was said to take fp16: a"
        " perceptron of 32 inputs, lr 0.1 for SGD and 0.01 for Adam",
        since="0.18.3",
        rule="DSG626",
    ),
    Constraint(
        code="bf16-at-stage-0",
        about="precision",
        by="deepspeed",
        stops=False,
        condition=lambda at: at.stage == 0 and at.precision == "bf16",
        reason="from 0.18.3 to 0.18.5 DeepSpeed does not scale the loss in bf16 at stage 0, yet divides the"
        " gradients by the scale; stage 1 scales it",
        source="https://github.com/deepspeedai/DeepSpeed/pull/7839",
        since="0.18.3",
        until="0.18.6",
        rule="DSG626",
    ),
    Constraint(
        code="parameter-offload-below-stage-3",
        about="offload_param",
        by="deepspeed",
        stops=False,
        condition=lambda at: at.stage in _BELOW_3 and at.offload_param != "none",
        reason="parameter offload works at stage 3 only",
        source="deepspeed/runtime/engine.py (0.19.8): _configure_zero_optimizer; probes O_param_stage0 to 2",
        rule="DSG303",
    ),
    Constraint(
        code="nvme-below-stage-3",
        about="offload_optimizer",
        by="deepspeed",
        stops=False,
        condition=lambda at: at.stage in _BELOW_3 and at.offload_optimizer == "nvme",
        reason="NVMe offload works at stage 3 only: below it DeepSpeed silently uses CPU memory",
        source="deepspeed/runtime/zero/stage_1_and_2.py (0.19.8): any device is the CPU; probe O_nvme_z2_path",
        rule="DSG305",
    ),
    Constraint(
        code="no-nvme",
        about="offload_optimizer",
        by="hardware",
        stops=False,
        condition=_no_nvme,
        reason="this node has no local NVMe",
        source="the hardware profile: nvme_capacity",
        rule="DSG802",
    ),
    Constraint(
        code="offload-on-a-cpu",
        about="offload_optimizer",
        by="hardware",
        stops=False,
        condition=_nowhere,
        reason="on a CPU there is nowhere to offload to",
        source="the hardware profile: vendor",
    ),
    Constraint(
        code="muon-at-stage-3",
        about="stage",
        by="deepspeed",
        stops=True,
        condition=lambda at: at.stage == 3 and at.training.optimizer == "Muon",
        reason="DeepSpeed {at.version} refuses Muon at stage 3; 0.18.9 is the first that does not",
        source="deepspeed/runtime/engine.py of 0.17.6 and 0.18.9: _configure_zero_optimizer",
        until="0.18.9",
        rule="DSG519",
    ),
    Constraint(
        code="gradual-stages-on-a-cpu",
        about="stage",
        by="deepspeed",
        stops=True,
        condition=_gathers_into_views,
        reason="on a CPU the first step of DeepSpeed {at.version} stops at stage {at.stage}: gloo gathers the weights "
        "into views that autograd still follows; 0.18.6 and 0.19.0 run, and so do stages 0 and 3",
        source="deepspeed/runtime/zero/stage_1_and_2.py of 0.18.6, 0.18.7 and 0.19.0; each run on two ranks",
        since="0.18.7",
        until="0.19.0",
        rule="DSG354",
    ),
)
