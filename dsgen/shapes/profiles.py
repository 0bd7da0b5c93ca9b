"""The shapes of what a profile can say: hardware, model, network, cluster and training, frozen and typed.

A YAML key is the field's name without its unit: `gpu_memory: 40 GiB` fills `gpu_memory_bytes`. What a field means,
its unit, its bounds and its choices are declared here once; the assembly, the error messages, the template of
`dsgen profiles new` and the generated docs all read them.

What reads them wants types and not their text, so annotations are no text here.
"""

from typing import Any

import attrs

from dsgen.shapes.limits import MOST_TOKENS
from dsgen.shapes.units import BANDWIDTH, BYTES, FLOPS, LARGEST_MEMORY, SECONDS
from dsgen.shapes.value import Value

__all__ = ["SECTIONS", "Cluster", "Hardware", "Model", "Network", "Training", "type_name", "yaml_name"]

_BLOCKS = 10_000  # every block is walked by itself; the deepest transformer published has 1,000 (DeepNet)
_SUFFIXES = tuple(f"_{unit}" for unit in (BANDWIDTH, FLOPS, BYTES, SECONDS))


def fact(
    doc: str,
    *,
    default: Any = attrs.NOTHING,
    minimum: float | None = None,
    above: float | None = None,
    below: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """One field of a shape: what it means, and the bounds a written value must keep.

    Args:
        doc: One sentence for the docs and the template.
        default: The value when no layer says anything; none means the field must be given.
        minimum: The least value allowed.
        above: A bound the value must exceed.
        below: A bound the value must stay under.
        choices: The only texts allowed.
    """
    return attrs.field(
        default=default, metadata={"doc": doc, "minimum": minimum, "above": above, "below": below, "choices": choices}
    )


def yaml_name(field_name: str) -> str:
    """The key of a field in YAML: its name without the unit (`gpu_memory_bytes` -> `gpu_memory`)."""
    for suffix in _SUFFIXES:
        if field_name.endswith(suffix):
            return field_name[: -len(suffix)]
    return field_name


def type_name(field: "attrs.Attribute[Any]") -> str:
    """The name of a field's type: "int", "bool", "int | None" ..."""
    return field.type.__name__ if isinstance(field.type, type) else str(field.type)


@attrs.frozen(kw_only=True, repr=False, eq=False)
class Hardware(Value):
    """One kind of node: its accelerators and what surrounds them. Bandwidths are per direction."""

    vendor: str = fact("Who makes the accelerator.", choices=("nvidia", "amd", "intel", "cpu", "generic"))
    gpu_memory_bytes: int = fact("Memory of one GPU as sold (40 GiB).", above=0, below=LARGEST_MEMORY)
    usable_memory_bytes: int = fact(
        "What the driver reports as the total of one GPU, before any context is created.", above=0
    )
    gpu_memory_used_bytes: int = fact(
        "What other processes hold on every GPU: a desktop, a notebook, a server of a model.", default=0, minimum=0
    )
    memory_bandwidth_bytes_per_second: float = fact("Peak bandwidth of one GPU's own memory.", above=0)
    fp32_flops_per_second: float = fact("Dense peak of one GPU in fp32, outside tensor cores.", above=0)
    tf32_flops_per_second: float = fact("Dense peak in TF32; 0 where there is none.", default=0.0, minimum=0)
    fp16_flops_per_second: float = fact("Dense peak in fp16 (no sparsity); 0 where there is none.", minimum=0)
    bf16_flops_per_second: float = fact("Dense peak in bf16 (no sparsity); 0 where there is none.", minimum=0)
    fp8_flops_per_second: float = fact(
        "Dense peak in fp8 (no sparsity); 0 where there is none.", default=0.0, minimum=0
    )
    gpus_per_node: int = fact("GPUs in one full node.", minimum=1)
    intra_node_link: str = fact(
        "How the GPUs of a node are joined.", choices=("nvlink", "xgmi", "pcie", "ethernet", "memory", "none")
    )
    intra_node_bandwidth_bytes_per_second: float = fact(
        "What one GPU can send to its neighbours in the node, one direction.", minimum=0
    )
    intra_node_latency_seconds: float = fact("Time of the smallest message between two GPUs of a node.", minimum=0)
    host_link_bandwidth_bytes_per_second: float = fact(
        "Between one GPU and host memory (PCIe, NVLink-C2C), one direction.", above=0
    )
    host_memory_bytes: int = fact("RAM of one node.", above=0, below=LARGEST_MEMORY)
    host_memory_bandwidth_bytes_per_second: float = fact("Peak bandwidth of the node's RAM, all sockets.", above=0)
    cpu_cores: int = fact("Physical cores of one node.", minimum=1)
    numa_domains: int = fact(
        "Parts of that RAM, each near to some cores: one a socket as servers come, several with AMD's NPS or Intel's "
        "SNC. What one rank updates on the CPU lies in one of them, and no more than its bandwidth is there.",
        default=1, minimum=1,
    )  # fmt: skip
    nvme_capacity_bytes: int = fact("Local NVMe of one node; 0 where there is none.", default=0, minimum=0)
    nvme_read_bandwidth_bytes_per_second: float = fact("Sequential read, all drives of a node.", default=0.0, minimum=0)
    nvme_write_bandwidth_bytes_per_second: float = fact("Sequential write, as for reading.", default=0.0, minimum=0)
    compute_capability: str | None = fact(
        'Compute capability of an NVIDIA GPU ("9.0"); empty means the one that its rates point to.', default=None,
        choices=("7.0", "7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "10.3", "12.0"),
    )  # fmt: skip
    processors: int | None = fact(
        "Streaming multiprocessors or compute units of one GPU; empty means as many as its fp32 peak needs.",
        default=None, minimum=1,
    )  # fmt: skip
    peer_access: bool = fact(
        "Whether the GPUs of a node read each other's memory; where not, what they exchange passes through the host's.",
        default=True,
    )
    product_efficiency: float | None = fact(
        "Share of the dense 16-bit peak that large matrix products reach for minutes; empty means that of its family.",
        default=None, above=0, below=1.5,
    )  # fmt: skip
    memory_efficiency: float | None = fact(
        "Share of the memory's peak bandwidth that large copies reach; empty means that of its family.",
        default=None, above=0, below=1.5,
    )  # fmt: skip
    l2_cache_bytes: int = fact(
        "L2 cache of one GPU, where it is several times as fast as its memory; 0 where it is not.", default=0, minimum=0
    )
    dispatch_seconds: float | None = fact(
        "What one eager operator costs the host, forward; empty means that of a server's core.", default=None, above=0
    )
    price_per_gpu_hour: float | None = fact(
        "What one GPU costs an hour, in whatever currency you count; empty where nobody says.", default=None, minimum=0
    )
    step_time_ratio: float | None = fact(
        "Measured seconds of a step by the computed ones, as dsgen calibrate writes it: every step takes so many times "
        "as long; empty where nobody measured.",
        default=None, above=0.1, below=10,
    )  # fmt: skip
    peak_memory_ratio: float | None = fact(
        "Measured peak of a GPU's tensors by the computed one, as dsgen calibrate writes it: every strategy's tensors "
        "take so many times as much; empty where nobody measured.",
        default=None, above=0.3, below=3,
    )  # fmt: skip
    measured_runs: tuple[str, ...] | None = fact(
        "The runs that were measured for these ratios, such as 7b on 8 GPUs; the interval of such runs is narrower.",
        default=None,
    )

    @property
    def calibrated(self) -> bool:
        """Whether somebody measured this machine."""
        return self.step_time_ratio is not None or self.peak_memory_ratio is not None


@attrs.frozen(kw_only=True, repr=False, eq=False)
class Model(Value):
    """The architecture of one transformer, in Hugging Face's terms: a decoder, or a decoder behind an encoder.

    Sizes are element counts.
    """

    architecture: str = fact("The `model_type` of Hugging Face's config.json (llama, gpt2, mixtral ...).")
    layers: int = fact("Transformer blocks; of a model with an encoder those of the decoder.", minimum=1, below=_BLOCKS)
    hidden_size: int = fact("Width of the residual stream.", minimum=1)
    attention_heads: int = fact("Query heads.", minimum=1)
    kv_heads: int = fact("Key and value heads; fewer than the query heads means GQA, 1 MQA.", minimum=1)
    head_size: int = fact("Width of one head.", minimum=1)
    ffn_size: int = fact("Inner width of the dense feed-forward block.", minimum=1)
    vocab_size: int = fact("Rows of the embedding.", minimum=1)
    max_positions: int = fact("Longest sequence the architecture was built for.", minimum=1)
    tied_embeddings: bool = fact("The output head shares the embedding's weight.")
    gated_ffn: bool = fact("The feed-forward block has a gate (SwiGLU, GeGLU): three matrices instead of two.")
    experts: int = fact("Experts of a mixture-of-experts block; 0 for a dense model.", default=0, minimum=0)
    experts_per_token: int = fact("Experts each token is routed to.", default=0, minimum=0)
    expert_ffn_size: int = fact("Inner width of one expert; 0 for a dense model.", default=0, minimum=0)
    experts_apart: bool = fact(
        "Each expert is linear layers of its own, as transformers 4 has most mixtures, so that a 4-bit base packs "
        "them; from 5 on all are one tensor, in 16 bits. training.transformers says it.", default=False,
    )  # fmt: skip
    logits_upcast: str = fact(
        "Who makes logits fp32 (training.transformers says it).", default="loss", choices=("loss", "model", "none")
    )
    logits_shifted: bool = fact("A loss copies logits without the last (training.transformers says it).", default=False)
    litgpt: str = fact(
        "LitGPT's one adapter of query, key and value, of all or of two, below stage 3 in 16 bits; empty: peft's.",
        default="", choices=("", "qkv", "qv"),
    )  # fmt: skip
    head_chunk: int = fact(
        "Tokens of a sequence whose logits and loss are made at a time, of a program that holds all of them until its "
        "backward is over (LitGPT's 128); 0: all at once, and held by no program.", default=0, minimum=0,
    )  # fmt: skip
    liger: str = fact(
        "The release of Liger from which on a chunked loss is as this one (training.liger says it).", default="0.6.2",
        choices=("0.3.0", "0.5.0", "0.5.3", "0.5.6", "0.6.2"),
    )  # fmt: skip
    liger_kernels: str = fact(
        "The same of Liger's SwiGLU, norms and RoPE; empty: none run.", default="", choices=("", "0.4.1", "0.8.5")
    )
    shared_experts: int = fact("Experts that every token passes.", default=0, minimum=0)
    shared_ffn_size: int = fact(
        "Inner width of the shared experts where a key of its own says it (qwen2_moe's "
        "shared_expert_intermediate_size); 0 means shared_experts x expert_ffn_size.",
        default=0, minimum=0,
    )  # fmt: skip
    expert_groups: int = fact(
        "Groups of experts of which a token first picks some (deepseek_v2's n_group, with topk_method "
        "group_limited_greedy); 0 where it picks among all.", default=0, minimum=0,
    )  # fmt: skip
    dense_layers: int = fact("Leading blocks of an MoE model that are dense.", default=0, minimum=0)
    sliding_window: int = fact("Width of local attention where the model has it; 0 for none.", default=0, minimum=0)
    q_lora_rank: int = fact("MLA: rank of the compressed query; 0 for none.", default=0, minimum=0)
    kv_lora_rank: int = fact("MLA: rank of the compressed key and value; 0 for none.", default=0, minimum=0)
    qk_rope_head_size: int = fact("MLA: rotary part of a head.", default=0, minimum=0)
    v_head_size: int = fact("MLA: width of a value head; 0 means head_size.", default=0, minimum=0)
    attention_bias: bool = fact("Biases of attention that the architecture leaves to the config.", default=False)
    qk_norm: bool = fact("A norm of each query and key head that the config says (glm4_moe).", default=False)
    mlp_bias: bool = fact("Biases of the feed-forward block that the architecture leaves to the config.", default=False)
    embedding_size: int = fact(
        "Width of the embedding where it differs from hidden_size (opt-350m); 0 means hidden_size.",
        default=0, minimum=0,
    )  # fmt: skip
    post_norm: bool = fact("Norms follow each sublayer and none follows the last block (opt-350m).", default=False)
    dropout: bool = fact("Dropout in training, where the architecture leaves it to the config.", default=False)
    encoder_layers: int = fact(
        "Blocks of the encoder to whose output every block of the decoder attends (t5); 0 for a decoder alone.",
        default=0,
        minimum=0,
        below=_BLOCKS,
    )
    relative_buckets: int = fact(
        "Distances between tokens that have a learned bias for every head (t5); 0 for none.", default=0, minimum=0
    )

    @property
    def shared_width(self) -> int:
        """Inner width of what every token passes beside its experts; 0 for nothing."""
        return self.shared_ffn_size or self.shared_experts * self.expert_ffn_size


@attrs.frozen(kw_only=True, repr=False, eq=False)
class Network(Value):
    """What joins the nodes. Bandwidth is per node and per direction."""

    fabric: str = fact("What it is.", choices=("none", "ethernet", "roce", "infiniband", "efa"))
    bandwidth_bytes_per_second: float = fact("Line rate out of one node, all its ports.", minimum=0)
    latency_seconds: float = fact("Time of the smallest message between two nodes.", minimum=0)
    rdma: bool = fact("Whether GPUs send without the host's CPU copying.")


@attrs.frozen(kw_only=True, repr=False, eq=False)
class Cluster(Value):
    """How many of the GPUs are used."""

    gpus: int | None = fact("GPUs in all; empty means every GPU of the nodes.", default=None, minimum=1)
    nodes: int | None = fact("Nodes; empty means as many as the GPUs need.", default=None, minimum=1)


@attrs.frozen(kw_only=True, repr=False, eq=False)
class Training(Value):
    """What a person wants. An empty wish leaves the choice to the planner."""

    method: str = fact("What is trained.", default="full", choices=("full", "lora", "qlora"))
    objective: str = fact(
        "What to prefer among strategies that fit.", default="balanced", choices=("balanced", "throughput", "memory")
    )
    precision: str = fact("Compute dtype.", default="auto", choices=("auto", "bf16", "fp16", "fp32"))
    seq_len: int | None = fact("Tokens per sequence; empty means 4096 or the model's longest.", default=None, minimum=1)
    target_len: int | None = fact(
        "Tokens of a target sequence, where a model has an encoder that reads seq_len; empty means as many.",
        default=None, minimum=1,
    )  # fmt: skip
    mean_len: int | None = fact(
        "Tokens of a sample in the mean, none longer than seq_len: a micro-batch is padded to its longest, or packed. "
        "Empty means that all have seq_len.", default=None, minimum=1,
    )  # fmt: skip
    packing: bool = fact(
        "Samples fill sequences, and attention stops at borders, as FlashAttention's can.", default=False
    )
    padding_free: bool = fact("A micro-batch's samples lie end to end without padding, likewise.", default=False)
    global_batch: int | None = fact(
        "Sequences per optimizer step, all GPUs; empty means what tokens_per_step and tokens_per_gpu hold: a power of "
        "two for each GPU.", default=None, minimum=1,
    )  # fmt: skip
    tokens_per_step: int | None = fact(
        "Most tokens of an optimizer step whose sequences nobody counted (global_batch); each GPU has one sequence "
        "all the same, and shorter sequences are no more than of 4096 tokens.",
        default=1_048_576, minimum=1,
    )  # fmt: skip
    tokens_per_gpu: int | None = fact(
        "Most of these tokens for each GPU, so that a step of few GPUs is no long wait; empty means no such bound.",
        default=None, minimum=1,
    )  # fmt: skip
    micro_batch: int | None = fact("Sequences per GPU and forward pass.", default=None, minimum=1)
    accumulation: int | None = fact("Forward passes per optimizer step.", default=None, minimum=1)
    zero_stage: int | None = fact("ZeRO stage, 0 to 3.", default=None, minimum=0)
    offload: str = fact(
        "What leaves the GPU: optimizer (states on CPU), all (states and parameters on CPU), nvme (both on NVMe), "
        "cpu (either of the first two).", default="auto", choices=("auto", "none", "cpu", "optimizer", "all", "nvme"),
    )  # fmt: skip
    tp: int | None = fact("AutoTP degree: how many GPUs share each layer.", default=None, minimum=1)
    checkpointing: str = fact(
        "Activation checkpointing: recompute each block in backward.", default="auto", choices=("auto", "none", "full")
    )
    reentrant: bool | None = fact("torch's reentrant kind recomputes; null: for QLoRA at stage 3.", default=None)
    activation_offloading: bool = fact("What autograd keeps waits in the node's RAM, as TRL moves it.", default=False)
    attention: str = fact(
        "Attention kernel; it decides what is kept for backward.", default="flash", choices=("flash", "sdpa", "eager")
    )
    flash_attention: int = fact(
        "Release of FlashAttention that runs where attention is flash or sdpa: 1, 2, 3 (Hopper) or 4 (Blackwell).",
        default=2, minimum=1, below=5,
    )  # fmt: skip
    torch: str | None = fact(
        "Release of torch that runs, such as 2.8; empty means the newest that is known. From 2.11 on its sdpa runs "
        "cuDNN's kernel on Hopper and on B200, before that FlashAttention's; until 2.6 NCCL held more.", default=None,
    )  # fmt: skip
    chunked_loss: bool = fact("The loss never holds all logits (Liger's or another chunked one).", default=False)
    liger: str | None = fact("Release of Liger that runs, such as 0.5.10; empty: the newest.", default=None)
    liger_kernels: bool | None = fact("Liger's SwiGLU, norms and RoPE run; empty: by the program.", default=None)
    transformers: str | None = fact(
        "Release of transformers that runs, such as 4.57; empty means the newest that is known. Before 5 a mixture's "
        "experts are linear layers, which a 4-bit base packs; before 4.49 a loss copies the logits.", default=None,
    )  # fmt: skip
    loading: str = fact(
        "How each rank reads a model that no zero.Init makes: mapped (files of the dtype asked for), copied (into its "
        "own RAM, from a config or another dtype), fp32 (so, in fp32), gpu (by device_map), gpu-fp32 (what is trained "
        "becomes fp32 there), auto (not known; a copy counts).",
        default="auto", choices=("auto", "mapped", "copied", "fp32", "gpu", "gpu-fp32"),
    )  # fmt: skip
    zero_init: bool = fact(
        "At stage 3 the model is made under zero.Init; without, each rank moves all of it to its GPU.", default=True
    )
    foreach: bool | None = fact(
        "The program's AdamW is torch's foreach one, which copies a moment; empty: as its release has it.", default=None
    )
    expandable_segments: bool = fact(
        "torch's allocator runs with expandable_segments:True, as dsgen launch sets it for NVIDIA's GPUs; a plan with "
        "torch's default settings must leave more free.", default=True,
    )  # fmt: skip
    optimizer: str = fact(
        "Optimizer that DeepSpeed builds; AdamW8bit is bitsandbytes', which the program brings.",
        default="AdamW", choices=("AdamW", "Adam", "Lion", "Adagrad", "SGD", "Muon", "AdamW8bit"),
    )  # fmt: skip
    lr: float = fact("Peak learning rate.", default=2e-5, above=0)
    beta1: float = fact("First Adam beta.", default=0.9, minimum=0, below=1)
    beta2: float = fact("Second Adam beta.", default=0.95, minimum=0, below=1)
    eps: float = fact("Adam's epsilon.", default=1e-8, above=0)
    weight_decay: float = fact("Decoupled weight decay.", default=0.1, minimum=0)
    gradient_clipping: float = fact("Largest global gradient norm; 0 turns clipping off.", default=1.0, minimum=0)
    scheduler: str = fact(
        "Learning-rate schedule; auto: a cosine for total_steps or total_tokens, else WarmupLR; program: its own one.",
        default="auto", choices=("auto", "none", "program", "WarmupLR", "WarmupDecayLR", "WarmupCosineLR"),
    )  # fmt: skip
    warmup_steps: int | None = fact(
        "Steps of warm-up; empty means 3 % of the run, at most 2000, or 40 where its length is not said; adapters: 10.",
        default=None, minimum=1,
    )  # fmt: skip
    total_steps: int | None = fact("Optimizer steps of the whole run.", default=None, minimum=1)
    total_tokens: float | None = fact(
        "Tokens of the whole run, all epochs; the same as total_steps, whatever the batch.",
        default=None, minimum=1, below=MOST_TOKENS,
    )  # fmt: skip
    lora_rank: int = fact("Rank of the adapters.", default=16, minimum=1)
    lora_targets: tuple[str, ...] = fact("Matrices with adapters: all-linear, or names.", default=("all-linear",))
    lora_dropout: float = fact("Share of its input that an adapter drops.", default=0.0, minimum=0, below=1)
    lora_train_embeddings: bool = fact(
        "Train a copy of the input embedding and of the output head beside the adapters (peft's modules_to_save).",
        default=False,
    )
    lora_fp32: bool = fact(
        "peft makes adapters fp32; under zero.Init they and their products stay so. TRL says no there.", default=True
    )
    double_quantization: bool = fact("A base in 4 bits has its scales in 8 (bnb_4bit_use_double_quant).", default=True)
    kbit_fp32: str = fact(
        "Whether peft's prepare_model_for_kbit_training makes fp32 of what a base has not in 4 bits, until initialize.",
        default="always", choices=("always", "below-3", "never"),
    )  # fmt: skip
    launcher: str = fact(
        "Who starts the ranks, and so which CPU threads each has for Adam on the host: torchrun and accelerate one, "
        "deepspeed all or a share of them on any cores, bound (deepspeed --bind_cores_to_rank, as dsgen launch starts "
        "it) its share on cores of its own.",
        default="torchrun", choices=("torchrun", "deepspeed", "bound"),
    )  # fmt: skip
    nvme_path: str = fact("Folder on the local NVMe that offload may fill.", default="/local_nvme")
    save_16bit: bool = fact("A save at stage 3 gathers the whole 16-bit model, to load it elsewhere.", default=True)
    steps_per_print: int = fact("Optimizer steps between DeepSpeed's progress lines.", default=10, minimum=1)
    monitor: str = fact(
        "Where DeepSpeed logs loss, learning rate and loss scale.",
        default="none", choices=("none", "tensorboard", "csv", "wandb"),
    )  # fmt: skip
    flops_profiler: bool = fact("Print a FLOPS profile of one step.", default=False)
    comms_logger: bool = fact("Log every collective with its size and time (slows each one down).", default=False)


SECTIONS: dict[str, type] = {
    "hardware": Hardware,
    "model": Model,
    "network": Network,
    "cluster": Cluster,
    "training": Training,
}
