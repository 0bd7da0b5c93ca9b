"""What each probe of DeepSpeed 0.19.8 shows, beyond the outcome that was recorded: read from its config and its log."""

from __future__ import annotations

__all__ = ["DEBATABLE", "NOT_IN_THE_CONFIG", "SILENTLY_WRONG", "STOPPED_EARLY"]

# Taken without a word, or with a warning in the log, and not doing what they say.
SILENTLY_WRONG = {
    "A_unk_top", "A_misspelt_zero_section", "A_bfloat16_old", "A_bf16_and_bfloat16", "A_unk_optimizer_key",
    "A_opt_param_misplaced", "A_unk_actckpt", "A_unk_aio", "A_unk_flops", "A_unk_checkpoint", "A_unk_data_types",
    "A_unk_autocast", "A_unk_data_eff", "A_unk_expert", "A_unk_timers", "A_unk_pipeline", "A_unk_autotuning",
    "T_zero_stage_str", "T_zero_bool", "T_zero_nostage", "T_bucket_strint", "T_bucket_auto", "T_z3_autos",
    "T_overlap_str", "T_fp16_enabled_auto", "T_bf16_enabled_auto", "T_bf16_enabled_str", "T_bf16_enabled_yes",
    "T_micro_float", "T_micro_floatfrac", "T_gas_bool", "T_gas_float", "T_clip_true", "T_clip_neg", "T_dump_state",
    "T_prescale_str", "T_device_auto", "T_offload_nodevice", "T_seqsize", "B_seqsize2_w2", "P_bf16_autocast_bf16",
    "P_gad_fp16_bf16_z2", "P_autocast_fp16_z2", "P_comm_fp16_z0", "P_comm_fp16_z2", "P_comm_fp16_z3",
    "O_param_stage2", "O_param_stage1", "O_param_stage0", "O_opt_stage0", "O_opt_torchadam", "O_opt_torchadam_z3",
    "O_nvme_z2_nopath", "O_nvme_z2_path", "O_ratio_z3_nodevice", "O_super_z2", "O_depr_cpu_offload", "O_depr_param",
    "O_depr_gather", "O_pin_alias", "O_client_and_cfg", "ZF_z2_default", "ZF_z2_default_steps", "ZF_gas_overwritten",
    "TP_key_tp_dict_only", "TP_key_tp_dict_full", "TP_preset_llama_nomatch", "TP_pc_unkkey", "TP_pc_nomatch",
    "ZPP_hpz8_gt_world", "ZPP_hpz2_z2", "ZPP_qw_z2", "ZPP_qg_z2", "OPT_Muon_unkparam", "Muon_nesterov_ignored",
    "Z_no_opt_z3", "Z_stage3keys_in_z2", "Z_elastic_z3", "AC_contig_nopart", "DC_on", "SCH_decay_short",
    "SCH_overrides_lr", "SCH_decay_maxabsent", "SCH_linearlower", "TPgn_z0_tp2", "Autocast_and_bf16_z0",
    "Autocast_fp16dtype_bf16model", "F16p_autocast_z2", "CommFp16_fp32model", "gad_fp16_bf16_z1", "Pipe_nothing",
    "Z_allgather_odd_z3", "F16p_z0",
    "nv_z3_opt",  # it steps rightly; its checkpoint does not bring it back
    "O_ratio_z3",  # what stays on the GPU follows no schedule, and no checkpoint has it
}  # fmt: skip
# To be judged either way: a default that surprises, or a feature that works and that nobody wants so.
DEBATABLE = {
    "T_autocast_nodtype", "P_autocast_nodtype_2", "ZF_z2_step", "B_seqsize2_dp1_w2", "ZPP_hpz0", "OPT_Adam_wd",
    "OPT_nolr", "OPT_noparams", "OPT_SGD_allow", "OPT_fused_on_torch", "OPT_torchMuon_z0", "Z_subgroup0",
    "Z_prefetch_0", "Z_bucket1", "Z_overlap_nocontig", "HE_on", "HE_z3", "FP_on", "CL_on", "WQ_on", "EP_on_nomoe",
    "SCH_cosine", "SCH_cosine_lr", "SCH_onecycle", "SCH_max_lr_absent", "AC_part_conf_nompu", "TPgn32_z0_tp2",
    "TPgn_z0_tp1", "TPgn32_z0_tp1", "TPgn_z1_tp1", "TPgn32_z1_tp1", "TPZ3_seq", "SPZ3_tb4", "TP_auto_z0_w2",
    "TPZ2_clip_z0", "nv_z3_both", "nv_z3_smallbuf", "Clip_optimizer_z0_fp32", "Emb_muon", "P_gad_bf16_fp32model_z1",
    "P_gad_bf16_fp32model_z2", "P_gad_bf16_fp32model_z3", "Z_legacy1", "O_contigfalse", "F16p_master_off",
    "OPT_Muon_z0", "P_bf16_immediate_z1", "Muon_z2_betas_ns", "gad_fp32_bf16_z0_nozero", "Z_op_bad",
}  # fmt: skip
# Failing by the data, or because ranks had different files: no single config says it.
NOT_IN_THE_CONFIG = {
    "TP_diffdata", "Z3_input_fp32_bf16model", "R_rankdiff_gas", "R_rankdiff_bucket", "R_rankdiff_stage",
}  # fmt: skip
# Recorded after initialize alone, and failing in the first step: run again with DeepSpeed 0.19.8, it stops there.
STOPPED_EARLY = {
    "Z_no_opt_z0_bf16",
}  # fmt: skip
