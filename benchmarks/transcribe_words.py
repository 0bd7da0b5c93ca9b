"""What the published records call a thing -> what benchmarks/data/ calls it; None where it is no answer.

A word that is not here is no longer one of the files that this was written for.
"""

from __future__ import annotations

__all__ = [
    "ATTENTIONS",
    "CARDS",
    "EVERY_PART",
    "FABRICS",
    "LINKS",
    "OFFLOADS",
    "OPTIMIZERS",
    "PARTS",
    "PRECISIONS",
    "QUANTIZATIONS",
    "TARGETS",
    "UNSIZED_CARDS",
    "VARIANTS",
]

PRECISIONS = {
    None: None,
    **dict.fromkeys(("amp_bf16", "bf16", "bf16 (early)", "bf16 (fp32 master)", "bf16 mixed"), "bf16"),
    "bf16 (fp32 master and states)": "bf16",
    "bf16 (fp32 params sharded, bf16 compute, fp32 reduce)": "bf16",
    "bf16 (mxfp4 weights dequantized)": "bf16",
    "bf16 + BF16_Optimizer (fp32 gradient accumulation, own ZeRO-1; +4 B/param unsharded)": "bf16",
    "bf16 + fp32 grad accumulation": "bf16",
    "bf16, fp32 gradient accumulation and all-reduce, fp32 master and states": "bf16",
    "bf16 compute, fp32 parameter shards, gradients and AdamW states (accelerate upcasts under FSDP mixed precision; "
    "allocated memory is 16 bytes/parameter)": "bf16",
    "bfloat16 base with bf16 autocast": "bf16",
    "bfloat16 base (FSDP mixed precision: trainable weights upcast to fp32) with bf16 autocast": "bf16",
    "bf16 (pure: params and states bf16)": "pure bf16",
    "bf16 params (LoRA adapters fp32: autocast_adapter_dtype)": "pure bf16",
    "bf16 params (adapters fp32: autocast_adapter_dtype)": "pure bf16",
    "bf16 params (adapters bf16)": "pure bf16",
    "bf16-true": "pure bf16",
    "bfloat16 base": "pure bf16",
    "bfloat16 weights with bf16 autocast (AdamW states in the dtype of the weights)": "pure bf16",
    "pure bf16 (default torch_dtype, not stated)": "pure bf16",
    "pure bf16 (model and AdamW states in bf16)": "pure bf16",
    "pure bf16 (model and AdamW states in bf16) with AMP": "pure bf16",
    "pure bfloat16 (weights, gradients and AdamW states in bfloat16; no fp32 master, no autocast)": "pure bf16",
    "fp16": "fp16",
    "fp16 (fp16 grad accumulation)": "fp16",
    "fp16 mixed (Lightning precision=16)": "fp16",
    "float16 base with fp16 autocast": "fp16",
    "float16 base (FSDP mixed precision: trainable weights upcast to fp32) with fp16 autocast": "fp16",
    "pure float16 (weights, gradients and AdamW states in float16; no fp32 master, no autocast)": "pure fp16",
    "fp16 AMP": "fp16 autocast",
    "fp32": "fp32",
    "fp32 (neither fp16 nor bf16 in the DeepSpeed config)": "fp32",
    **dict.fromkeys(("FP8", "FP8-CS", "FP8-CS (FP8-MX)", "MXFP8", "amp_fp8", "bf16 + fp8 hybrid"), "fp8"),
    **dict.fromkeys(("fp8 hybrid", "float8 tensorwise", "float8 rowwise"), "fp8"),
    "float8 linear + fp8 all-gather, bf16 else": "fp8",
    "NVFP4": "fp4",
    **dict.fromkeys(("fp16?", "fp16/bf16", "fp32 (examples) / bf16?")),
}
OPTIMIZERS = {
    None: None,
    "Adam": "Adam",
    **dict.fromkeys(("FusedAdam", "FusedAdam (apex)"), "Adam"),
    **dict.fromkeys(("AdamW", "AdamW (CPUAdam)", "AdamW (bf16 params)", "AdamW cpu", "AdamW fused"), "AdamW"),
    **dict.fromkeys(("decoupled_adamw", "torch.optim.AdamW", "adamw_torch", "adamw_torch_fused"), "AdamW"),
    **dict.fromkeys(("AdamW (HF default)", "AdamW (HF default adamw_torch)"), "AdamW"),
    **dict.fromkeys(("Muon", "Muon (2D hidden weights) + Adam rest"), "Muon"),
    "AdamW, optimizer_in_bwd": "AdamW inside backward",
    "AdamW8bit, optimizer_in_bwd": "8-bit AdamW inside backward",
    "PagedAdamW8bit, optimizer_in_bwd": "8-bit AdamW inside backward",
    **dict.fromkeys(("adamw_bnb_8bit", "adamw_torch_8bit", "paged_adamw_8bit"), "8-bit AdamW"),
    "DeepSpeedCPUAdam": "CPU Adam",
    **dict.fromkeys(("distributed Adam", "Adam (distributed optimizer)"), "distributed Adam"),
    **dict.fromkeys(
        ("Adam (distributed optimizer assumed)", "Adam (Megatron distributed optimizer)"), "distributed Adam"
    ),
    **dict.fromkeys(("HybridAdam", "HybridAdam/FusedAdam"), "hybrid Adam"),
    "lora-fa": "LoRA-FA",
    "unknown (differs from the 4090 row)": None,
}
OFFLOADS = {
    "none": "none",
    "optimizer cpu": "optimizer",
    **dict.fromkeys(("optimizer+param cpu", "optimizer cpu + params cpu"), "optimizer and parameters"),
    **dict.fromkeys(("param cpu", "params cpu"), "optimizer and parameters"),  # FSDP's CPUOffload takes all along
    "params+grads+optimizer cpu (fsdp_cpu_offload, fused AdamW)": "whole states of FSDP",
    "params + optimizer cpu (FSDP CPUOffload)": "whole states of FSDP",
    "params cpu (FSDP CPUOffload)": "whole states of FSDP",
    "params + optimizer cpu": "whole states of FSDP",
    "optimizer cpu (hybrid, precision-aware)": "a part of the optimizer",
    "activation checkpoints to cpu": "checkpoints",
    **dict.fromkeys(("cpu", "ZeRO-Infinity (optimizer+param nvme/cpu)", "auto (Gemini placement)")),
}
QUANTIZATIONS = {
    **dict.fromkeys(("gptq-int4", "int4 (gptq)", "gptq 4-bit", "gptq 4-bit (triton_v2)"), "gptq-int4"),
    "int8 (gptq)": "gptq-int8",
    **dict.fromkeys(("bnb.nf4", "nf4", "int4 (bnb)", "bnb nf4", "bnb nf4 (bf16 storage)"), "nf4"),
    "bnb.nf4-dq": "nf4 twice",
}
ATTENTIONS = {
    False: "eager",
    True: "flash",
    "eager (no FlashAttention)": "eager",
    **dict.fromkeys(("SDPA", "SDPA (default)", "SDPA (flash)"), "sdpa"),
    **dict.fromkeys(("FA2", "FA3", "FA2/SDPA", "FA2 (2.4.2)", "FA2 (default, not stated)"), "flash"),
    **dict.fromkeys(("TE", "TE/cuDNN", "TransformerEngine fused attention", "--use-flash-attn"), "flash"),
    "TransformerEngine attention (--use-flash-attn)": "flash",
    "xformers memory_efficient_attention": "flash",
    "xformers blocksparse": "sparse",
}
CARDS = {
    **dict.fromkeys(("A100-80GB?", "A800/H800-80GB", "V100 (16 or 32GB not stated)", "unknown (8 GPUs, slow)")),
    **dict.fromkeys(("not stated", *(f"{size} GB GPU (type not stated)" for size in (8, 12, 16, 24, 48, 80)))),
    "unknown >=24GB": None,
    "A100-SXM4-80GB": "A100-80GB",
}
# Cards whose memory alone is not stated: speed does not depend on it.
UNSIZED_CARDS = {"V100 (16 or 32GB not stated)": "V100", "A100-80GB?": "A100"}
TARGETS = {
    **dict.fromkeys(("all-linear", "all linear", "c_attn,c_proj,w1,w2"), ("all-linear",)),
    **dict.fromkeys(("c_attn", "DEFAULT (c_attn for qwen, q,k,v for mistral)"), ("q", "k", "v")),
    "DEFAULT": None,
    **dict.fromkeys(("q,v", "q,v (peft default)"), ("q", "v")),
    **dict.fromkeys(("q,v,output_proj,mlp", "q,v,output,mlp"), ("q", "v", "o", "mlp")),
    "all layers incl. output": ("all-linear", "output"),
    "q_proj,k_proj,v_proj,o_proj": ("q", "k", "v", "o"),
    "q_proj,k_proj,v_proj,o_proj,c_attn": ("q", "k", "v", "o", "c_attn"),
    "q_proj,v_proj,k_proj,o_proj,gate_proj,up_proj,down_proj": ("all-linear",),
    "qkv_proj,o_proj,gate_up_proj,down_proj": ("all-linear",),
    **dict.fromkeys(("self_attn", "model.embed_tokens")),
}
PARTS = {"query": "q", "key": "k", "value": "v", "q_proj": "q", "k_proj": "k", "v_proj": "v"}
EVERY_PART = {"query", "key", "value", "projection", "mlp"}
# What the end of an id tells of adapters whose record calls them LoRA.
VARIANTS = {"-bdlora": "block-diagonal", "-lorafa": "lora-fa"}

# How GPUs of a node are joined, by how the words for it begin; what is only assumed is not there.
LINKS = {"NVLink": "nvlink", "NVSwitch": "nvlink", "PCIe": "pcie"}
# What joins the nodes, and Gb/s out of one of them.
FABRICS = {
    "NVLink intra; 1600 Gbps RoCE per node": ("roce", 1600),
    "NVLink intra; 4 x 100 Gb/s RoCE per node": ("roce", 400),
    "NVLink intra; 4x Omni-Path 100 Gbps per node (Jean Zay)": ("omni-path", 400),
    "NVLink intra; 400 Gbps per node": (None, 400),
    "NVLink intra; 800 Gbps per node": (None, 800),
    "NVLink intra; IB (paper: 4 GPUs per node)": ("infiniband", None),
    "NVLink intra; RDMA 400 Gb/s per GPU": (None, 3200),
    "NVLink intra; RDMA 400 Gb/s per GPU (CX-7)": (None, 3200),
    "NVLink/NVSwitch; 400 Gb/s per GPU IB": ("infiniband", 3200),
    "NVLink3 intra; 8x200 Gbps HDR IB per node (NDm A100 v4)": ("infiniband", 1600),
    "NVLink; 1600 Gbps IB": ("infiniband", 1600),
    "NVLink; 8x HDR 200 Gb/s": ("infiniband", 1600),
    "NVLink; 8x200 Gbps HDR IB (Selene)": ("infiniband", 1600),
    "NVLink; EFA 3200 Gbps/node (HF cluster)": ("efa", 3200),
    "NVLink; IB": ("infiniband", None),
    "NVLink; IB 400Gb/s/GPU": ("infiniband", 3200),
}
