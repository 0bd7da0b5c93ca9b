"""Who measured: for every source what its number of memory means, and the buffers its program communicates through."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import attrs

__all__ = ["GIB", "SOURCES", "Reading", "Source", "measured_bytes", "source_of"]

GB = 10**9  # bytes
GIB = 2**30  # bytes


class Reading(enum.Enum):
    """What a number of memory counts, and which of ours it is compared with."""

    ALLOCATED = "allocated: torch's `max_memory_allocated`"
    RESERVED = "reserved: torch's `max_memory_reserved`"
    DRIVER = "the whole process, as nvidia-smi shows it"
    UNSTATED = "not stated; compared with what torch reserves, in an interval from allocated to nvidia-smi"


@attrs.frozen(kw_only=True)
class Source:
    """One publication.

    Attributes:
        title: Who measured.
        prefix: What the ids of its records begin with.
        reading: What its number of memory means.
        why: From where that is known.
        whole: Its number counts loading too, which is as dsgen has it: nobody reset it before the steps.
        unit: Bytes of its "GB" where a record has no number in GiB.
        buffers: `huggingface`, `fsdp` or `default`: what is communicated through (published_questions.py).
        length: Why the sequences were not as long as the record says; empty where they were.
        fused_loss: Its program's loss keeps fewer copies of the logits than torch's.
        lora_dropout: The dropout of its adapters, as its program has it by default.
        efficient_linear: zero.Init has its own linear layer (memory_efficient_linear).
        own_loss: Who makes the logits fp32, whether they are copied, and of how many tokens they are made at a time, in
            a loss of the program's own (logits_upcast, logits_shifted, head_chunk of Model); None: as the model's
            class has it.
    """

    title: str
    prefix: str
    reading: Reading = Reading.UNSTATED
    why: str = ""
    whole: bool = False
    unit: int = GB
    buffers: str = "default"
    length: str = ""
    fused_loss: bool = False
    lora_dropout: float = 0.0
    efficient_linear: bool = True
    own_loss: tuple[str, bool, int] | None = None


# `lora_dropout` of LitGPT (litgpt/finetune/lora.py; its config hub writes it out, 0.1 for Gemma, which takes the same),
# of Qwen (finetune.py, LoraArguments) and of ms-swift (tuner_args.py; `lora_dropout_p` before), whose scripts say none.
_DROPOUT = 0.05
_LITGPT = "litgpt/finetune/lora.py prints `max_memory_allocated() / 1e9` when training has ended"
# Of 128 tokens, which Lightning's bf16-true makes fp32, the default type (fabric/plugins/precision/half.py,
# convert_output), without the last token's (litgpt/finetune/lora.py, fit; utils.py, chunked_cross_entropy).
_LITGPTS_LOSS = ("model", True, 128)
_SCRIPT = "header comment of the script, rounded to GiB, method not stated"
_SOURCES = (
    Source(
        title="LitGPT, table of resources",
        prefix="litr",
        reading=Reading.ALLOCATED,
        why=_LITGPT,
        lora_dropout=_DROPOUT,
        own_loss=_LITGPTS_LOSS,
    ),
    Source(
        title="LitGPT, config hub",
        prefix="lith",
        reading=Reading.ALLOCATED,
        why=_LITGPT,
        lora_dropout=_DROPOUT,
        own_loss=_LITGPTS_LOSS,
    ),
    Source(
        title="ms-swift, benchmark",
        prefix="swb",
        reading=Reading.RESERVED,
        why="swift's trainer: `get_max_cuda_memory` is `max_memory_reserved / 1024**3`, the highest of the run",
        buffers="huggingface",
        lora_dropout=_DROPOUT,
    ),
    Source(title="ms-swift, example scripts", prefix="sws", why=_SCRIPT, buffers="huggingface", lora_dropout=_DROPOUT),
    Source(
        title="Qwen, README",
        prefix="qwen",
        why='printed as "G" without a method; 81.0 on a card of 80 GiB shows that it is not GiB',
        buffers="huggingface",
        lora_dropout=_DROPOUT,
    ),
    Source(
        title="PEFT, MetaMathQA comparison",
        prefix="peftmc",
        reading=Reading.RESERVED,
        why="`accelerator_memory_max` of its results: the most bytes reserved",
    ),
    Source(title="PEFT, README and FSDP guide", prefix="peft", why="printed as GB without a method"),
    Source(
        title="torchtune, README",
        prefix="tune",
        why="`get_memory_stats` logs active, allocated and reserved bytes; the table does not say which",
    ),
    Source(
        title="torchtune, tutorials",
        prefix="tunel2",
        reading=Reading.RESERVED,
        why='the text says "reserved"; its `memory_stats_log` divided by 1e9',
        length="the sequences were not packed, and their length is not stated",
    ),
    Source(
        title="TorchTitan, benchmarks",
        prefix="ttn",
        reading=Reading.RESERVED,
        why="the most bytes reserved over the ranks, in GiB",
    ),
    Source(
        title="gist of chenyaofo, ZeRO on LLaMA-7B",
        prefix="dsgist",
        reading=Reading.ALLOCATED,
        why="the text says `torch.cuda.max_memory_allocated()`",
    ),
    Source(title="DeepSpeed, blog on Muon", prefix="dsmuon", why="printed as GiB without a method"),
    Source(title="DeepSpeed, blog on Ulysses-Offload", prefix="dsfpdt", why="printed as GB without a method"),
    Source(
        title="DeepSpeed-Chat, training logs",
        prefix="dschat",
        reading=Reading.ALLOCATED,
        why="DeepSpeed's `see_memory_usage` prints MaxMemAllocated in GiB",
        unit=GIB,
    ),
    Source(
        title="BELLE, issue 402",
        prefix="belle",
        reading=Reading.DRIVER,
        why="nvidia-smi, which counts in MiB",
        unit=GIB,
        buffers="huggingface",
    ),
    Source(title="H2O LLM Studio, pull request 288", prefix="h2o", why="printed as GB without a method"),
    Source(title="Colossal-AI, READMEs", prefix="col", why="printed without a method"),
    Source(title="nanotron, summary of benchmarks", prefix="nano", why="printed without a method"),
    Source(
        title="BigScience, chronicles of the 176B model",
        prefix="bs",
        reading=Reading.DRIVER,
        why="the most over the nodes, as nvidia-smi shows it",
        unit=GIB,
    ),
    Source(title="Axolotl, examples", prefix="axo", why='the text calls them "estimates"'),
    Source(title="issues of DeepSpeed, Transformers and Accelerate", prefix="iss", why="each as its text says"),
    Source(
        title="LLM Foundry, benchmarking",
        prefix="llmf",
        fused_loss=True,  # llmfoundry/models/mpt/modeling_mpt.py: loss_fn is fused_crossentropy unless told otherwise
    ),
    Source(title="DeepSpeed, DeepCompile benchmark", prefix="dsdc"),
    Source(title="DeepSpeed, blog on Azure", prefix="dsaz"),
    Source(title="DeepSpeed, autotuning examples", prefix="dsat"),
    Source(title="DeepSpeed, blog on communication", prefix="dsuly"),
    Source(title="Megatron-DeepSpeed, long sequences", prefix="dslong"),
    Source(title="Megatron-Bridge, performance summary", prefix="mb"),
    Source(title="Megatron-LM, README", prefix="mlm"),
    Source(title="Megatron-LM, Llama example", prefix="dst"),
    Source(title="Hugging Face, blog", prefix="hfb"),
    Source(title="XTuner, benchmark", prefix="xtuner", buffers="huggingface"),
    Source(title="Open-Llama, README", prefix="openllama"),
    Source(
        title="fms-acceleration, benchmarks",
        prefix="fms",
        reading=Reading.ALLOCATED,
        why="the Trainer's memory metrics, torch's `max_memory_allocated` of rank 0 summed over its stages; nvidia-smi "
        "each second, less its first reading",
        lora_dropout=0.1,  # as its records say
    ),
    Source(title="SimuMax, B200", prefix="smx"),
    Source(title="Coastline, database of runs", prefix="coast"),
    Source(
        title="FlagPerf",
        prefix="flagp",
        why="printed as used of 80 without a method",
        unit=GIB,
        efficient_linear=False,  # training/benchmarks/llama2_7b/deepspeed/run_pretraining.py, get_deepspeed_engine
    ),
    Source(title="InternEvo, performance", prefix="intern", why="whole GB without a method"),
    Source(title="Sailor, validation runs", prefix="sailor"),
    Source(
        title="ColossalAI-Pytorch-lightning, benchmark",
        prefix="clpl",
        reading=Reading.ALLOCATED,
        why="the script prints `torch.cuda.max_memory_allocated()`",
        own_loss=("none", True, 0),  # benchmark/gpt/model.py, GPTLMLoss: of fp16 logits, without the last token's
    ),
    Source(title="DeepSeed_Zero_Optimizer, README", prefix="ds7math", buffers="huggingface"),
    Source(title="DeepSpeed, pull request 8064", prefix="ds8064"),
    Source(title="DeepSpeed, issue 3901", prefix="ds3901", buffers="huggingface"),
    Source(title="TinyLlama, issue 1", prefix="tinyl", buffers="huggingface"),
    Source(title="Colossal-AI, issue 4342", prefix="cai4342"),
    Source(title="fms-fsdp, README", prefix="fmsfsdp"),
    Source(
        title="universal-llm-trainer, GPU test",
        prefix="ullmt",
        why="whole GiB without a method",
        lora_dropout=_DROPOUT,
    ),
    Source(
        title="fsdp_qlora, benchmarks",
        prefix="fsdpq",
        reading=Reading.RESERVED,
        why="the script logs `torch.cuda.max_memory_reserved`",
    ),
    Source(title="TorchTitan, benchmarks of 2024", prefix="ttnh"),
    Source(title="Unsloth, README", prefix="unsl"),
    Source(title="ms-swift, Megatron quick start", prefix="swq", buffers="huggingface"),
    Source(title="ms-swift, tuner scripts", prefix="swt", buffers="huggingface", lora_dropout=_DROPOUT),
    Source(title="Megatron-Bridge, recomputation", prefix="mbr"),
    Source(
        title="PEFT, DeepSpeed guide",
        prefix="peftds",
        reading=Reading.DRIVER,
        why="the memory of the GPU as Weights & Biases charts it, or a number beside such a chart",
        buffers="huggingface",
    ),
    Source(title="ms-swift, older scripts", prefix="swo", why=_SCRIPT, buffers="huggingface", lora_dropout=_DROPOUT),
    Source(
        title="LLaMA-Factory, issues",
        prefix="lf",
        reading=Reading.DRIVER,
        why="as nvidia-smi shows it",
        buffers="huggingface",
    ),
    Source(title="OpenRLHF, issues", prefix="orlhf", buffers="huggingface"),
    Source(title="XTuner, issues", prefix="xt", buffers="huggingface"),
    Source(title="Qwen, issues", prefix="qw", buffers="huggingface", lora_dropout=_DROPOUT),
    Source(title="Open R1, issues", prefix="r1", buffers="huggingface"),
    Source(title="Axolotl, issues", prefix="ax", buffers="huggingface"),
    Source(title="DeepSpeed, issue 3448", prefix="ds"),
    Source(title="Open-Instruct, issues", prefix="oi", buffers="huggingface"),
    Source(title="TRL, issues", prefix="trl", buffers="huggingface"),
    Source(title="VectorLM, throughput", prefix="vlm", lora_dropout=0.1),
    Source(title="XTuner, Llama 3", prefix="xtl3", buffers="huggingface"),
    Source(title="Ray, LLM fine-tuning", prefix="ray"),
    Source(title="DeepSpeed, ZenFlow's core binding", prefix="zf"),
    Source(title="DeepSpeed, bf16 master weights", prefix="bf16mw"),
    Source(title="Open-Llama, issue 60", prefix="ol48"),
    Source(title="Optimum Habana, tests", prefix="hab", lora_dropout=_DROPOUT),
    Source(title="DeepSpeed, pull request 1453", prefix="jfc"),
    Source(title="P. Schmid, fine-tuning in 2025", prefix="ps25", buffers="huggingface", lora_dropout=_DROPOUT),
    Source(
        title="ML Engineering, H200 and B200",
        prefix="mle",
        reading=Reading.RESERVED,
        why="benchmark.py: the most `max_memory_reserved` of the ranks since they began, in GiB",
        whole=True,
    ),
    Source(
        title="ArcticTraining, long sequences",
        prefix="arc",
        reading=Reading.DRIVER,
        why="`NV`: what nvidia-smi shows, as DeepSpeed's see_memory_usage prints it beside its own, in GiB",
    ),
    Source(title="P. Schmid, FLAN-T5", prefix="pst5", buffers="huggingface"),
    Source(title="P. Schmid, Falcon 180B", prefix="psf", buffers="huggingface", lora_dropout=0.1),
    Source(title="Ray, GPT-J", prefix="raygptj", buffers="huggingface"),
    Source(title="Ray, Vicuna 13B", prefix="rayvic", buffers="huggingface"),
    Source(title="Finetune_LLMs, issue 16", prefix="malb", buffers="huggingface"),
    Source(title="DeepSpeed, issue 7482", prefix="ds7482"),
    Source(title="DeepSpeed, issue 2899", prefix="ds2899", buffers="huggingface"),
    Source(title="Stanford Alpaca, issues", prefix="alp", buffers="huggingface"),
    Source(title="FastChat, issues", prefix="fc", reading=Reading.DRIVER, why="as nvidia-smi shows it"),
    Source(title="Alignment Handbook, recipes", prefix="ah", buffers="huggingface"),
    Source(title="h2oGPT, pull request 86", prefix="h2ogpt", lora_dropout=_DROPOUT),
    Source(title="Lit-LLaMA, issues", prefix="lit"),
    Source(title="dLLM, issues", prefix="llada", buffers="huggingface"),
    Source(title="DeepSeek-Coder, issues", prefix="dsc", buffers="huggingface"),
    Source(title="Hugging Face, 4 bits on a T4", prefix="bnb4", lora_dropout=0.1),
    Source(
        title="TRL, notebook of QLoRA",
        prefix="trlnb",
        reading=Reading.RESERVED,
        why="`max_memory_reserved` when training has ended, in GiB",
        whole=True,
    ),
    Source(title="Transformers, issue 28339", prefix="mixq", lora_dropout=_DROPOUT),
    Source(title="torchtune, issues", prefix="tti", why="about 24 GB of an A100, and 20.2 as allocated"),
    Source(title="Anyscale, templates", prefix="any", buffers="huggingface", lora_dropout=_DROPOUT),
    Source(title="MLPerf, Llama 2 70B LoRA", prefix="mlp", lora_dropout=0.1),
    Source(
        title="ATorch, Llama 2",
        prefix="ator",
        reading=Reading.ALLOCATED,
        why="example_utils.py prints `max_memory_allocated` in MiB; nobody reset it",
        whole=True,
        lora_dropout=_DROPOUT,
    ),
    Source(title="Pythia", prefix="pyth"),
    Source(title="NeMo AutoModel, Llama 3", prefix="nam", lora_dropout=0.1),
    Source(title="NeMo AutoModel, Qwen 2.5", prefix="namq"),
    Source(title="Transformer Engine, Llama tutorial", prefix="tel"),
    Source(title="Lambda, guide to distributed training", prefix="lam", reading=Reading.ALLOCATED, why="its own words"),
    Source(title="TinyLlama, README", prefix="tinyr"),
    Source(
        title="AMD, LoRA on MI300X",
        prefix="rocm",
        reading=Reading.DRIVER,
        why="the share of a GPU's memory that rocm-smi shows",
        lora_dropout=0.1,
    ),
    Source(title="Intel, Optimum Habana's models", prefix="gaud", lora_dropout=_DROPOUT),
    Source(title="Dolly", prefix="dolly", buffers="huggingface"),
    Source(title="ms-swift, issues", prefix="swi", buffers="huggingface", lora_dropout=_DROPOUT),
    Source(title="Transformers, issue 27197", prefix="trfi", buffers="huggingface"),
    Source(title="YaRN, issue 23", prefix="yarni", buffers="huggingface"),
    Source(title="LongLoRA", prefix="lol", why="printed as GB without a method", buffers="huggingface"),
    Source(
        title="Llama Cookbook, pull request 41 and issue 100",
        prefix="lrec",
        reading=Reading.RESERVED,
        why="the text says peak reserved",
        lora_dropout=_DROPOUT,
    ),
    Source(
        title="LSAIE project, ETH Zürich",
        prefix="lsaie",
        reading=Reading.ALLOCATED,
        why="src/train.py logs `max_memory_allocated() / 1e9`; nobody reset it",
        whole=True,
    ),
    Source(title="LAI project, ETH Zürich", prefix="lai"),
    Source(title="TRL, Ulysses", prefix="ulys", why="printed as GB without a method", buffers="huggingface"),
    Source(
        title="fairseq, FSDP of 13B",
        prefix="fsq",
        reading=Reading.ALLOCATED,
        why="`gb_free`: what the card has less `max_memory_allocated` since the last line of its log",
    ),
    Source(title="Mistral, fine-tuning", prefix="mft"),
    Source(title="GLM-4, fine-tuning", prefix="glm4f", buffers="huggingface", lora_dropout=0.1),
    Source(title="Hugging Face, Accelerate and DeepSpeed", prefix="accb", buffers="huggingface"),
    Source(title="fms-fsdp, issue 67", prefix="ibmfi"),
    Source(title="DeepSpeed, issue 2174", prefix="ds2174", buffers="huggingface"),
    Source(title="Colossal-AI, issue 4719", prefix="cai4719", why="MiB without a method", buffers="huggingface"),
    Source(title="DeepSpeedExamples, issue 411", prefix="dsx411"),
    Source(title="LitGPT, issue 781", prefix="lgi", lora_dropout=_DROPOUT, own_loss=_LITGPTS_LOSS),
    Source(title="OpenThaiGPT, pull request 137", prefix="othai"),
    Source(
        title="ms-swift, Qwen3", prefix="swq3", why="GB without a method", buffers="huggingface", lora_dropout=_DROPOUT
    ),
    Source(
        title="Optimum Habana, pull request 712",
        prefix="habpr",
        reading=Reading.ALLOCATED,
        why="`max_memory_allocated` as its Trainer prints it, in GB of 1024**3 (optimum/habana/utils.py)",
        whole=True,
        unit=GIB,
        lora_dropout=_DROPOUT,
    ),
    Source(title="Optimum Benchmark, QLoRA and full", prefix="ob"),
    Source(title="Optimum Benchmark, LoRA", prefix="obl"),
    Source(title="Prime-RL, baselines", prefix="prime", reading=Reading.RESERVED, why="its trainer, reset each step"),
    Source(title="Vertex AI, OpenLLaMA", prefix="vtx", why="printed as GB without a method", lora_dropout=_DROPOUT),
    Source(title="Mai", prefix="mai", lora_dropout=_DROPOUT),
    Source(title="vision_genai", prefix="vgen"),
    Source(title="Scicom, small ablation studies", prefix="scic"),
    Source(title="s1, issue 106", prefix="s1", buffers="huggingface"),
    Source(title="LMFlow, issue 213", prefix="lmf", lora_dropout=0.1),
    Source(title="QLoRA, issue 17", prefix="qlo"),
    Source(
        title="Liger, examples of the Trainer",
        prefix="lgr",
        reading=Reading.ALLOCATED,
        why="its callback's `max_memory_allocated / 2**20`, the most of the steps behind two",
    ),
    Source(title="EasyContext", prefix="easy", buffers="huggingface"),
    Source(title="FlashAttention, training", prefix="fla"),
    Source(
        title="LLMs from Scratch, training speed",
        prefix="lfs",
        reading=Reading.RESERVED,
        why="`memory_reserved / 1024**3` when training has ended",
    ),
    Source(title="Daddyofadoggy, DDP and FSDP", prefix="dofd", why="MB without a method"),
    Source(
        title="Soup, H100 validation",
        prefix="soup",
        reading=Reading.DRIVER,
        why="nvidia-smi, twice a second",
        buffers="huggingface",
        lora_dropout=_DROPOUT,
    ),
    Source(title="PEFT examples, UltraChat", prefix="pex", why="what Weights & Biases charts", lora_dropout=0.2),
    Source(title="Llama-X", prefix="llx", buffers="huggingface"),
    Source(title="MiniLLM from scratch", prefix="mini", why="about so many G a card, without a method"),
    Source(
        title="BDML, Llama 3B",
        prefix="bdml",
        reading=Reading.DRIVER,
        why="as nvidia-smi shows it, of 81.9",
        lora_dropout=0.1,
    ),
    Source(title="DeepSpeed Llama, training speed", prefix="dsl", buffers="huggingface"),
    Source(title="AWS, FSDP test cases", prefix="awsd"),
    Source(title="PaddleNLP, benchmark of torch", prefix="pdl", buffers="huggingface"),
    Source(
        title="Training benchmark on Oracle's Kubernetes",
        prefix="oke",
        reading=Reading.ALLOCATED,
        why="`max_memory_allocated / 1e9`, reset before the steps",
    ),
    Source(title="xTuring", prefix="xtu", why="GB without a method", lora_dropout=0.1),
    Source(
        title="Verification of DeepSpeed's losses",
        prefix="dsv",
        reading=Reading.ALLOCATED,
        why="`max_memory_allocated` of rank 0; nobody reset it",
        whole=True,
    ),
    Source(title="OpenChat", prefix="och", own_loss=("none", False, 0)),  # unpadded_mistral.py: shifted before
    Source(title="Yi, issues", prefix="yif", efficient_linear=False),  # finetune/utils/ds_utils.py
    Source(title="verl, issue 798", prefix="vrl"),
    Source(title="LLaMA, issue 250", prefix="mll"),
    Source(title="godot-dodo", prefix="god"),
    Source(title="ALMA, issue 32", prefix="alm", buffers="huggingface"),
    Source(title="Chinese-LLaMA-Alpaca and users", prefix="cla", buffers="huggingface", lora_dropout=_DROPOUT),
    Source(title="Llama 2 as a Python coder", prefix="pyc", lora_dropout=0.1),
    Source(title="NVIDIA, DGX Cloud benchmarking", prefix="dgx", lora_dropout=0.1),
    Source(title="peft-explore", prefix="bob", lora_dropout=_DROPOUT),
    Source(
        title="LitGPT on Chameleon",
        prefix="lithc",
        reading=Reading.ALLOCATED,
        why=_LITGPT,
        lora_dropout=_DROPOUT,
        own_loss=_LITGPTS_LOSS,
    ),
    Source(
        title="AsymGEMM, profiles",
        prefix="asg",
        reading=Reading.ALLOCATED,
        why="`peak_allocated_hbm_bytes` of a step, `max_memory_allocated` since it began",
        buffers="huggingface",
    ),
    Source(
        title="AsymGEMM, throughput",
        prefix="ast",
        reading=Reading.RESERVED,
        why='"resv": `max_memory_reserved` in GiB',
    ),
    Source(title="Halo", prefix="halo"),
    Source(
        title="ChatGLM-Finetuning",
        prefix="cgf",
        reading=Reading.DRIVER,
        why="printed as G, of which a whole A40 has 45, as nvidia-smi has 46,068 MiB",
        lora_dropout=0.1,
    ),
    Source(
        title="Qwen, recipes",
        prefix="qwr",
        why="GB without a method",
        buffers="huggingface",
        lora_dropout=_DROPOUT,
    ),
    Source(title="Baichuan 2, issue 162", prefix="bc2"),
    Source(title="Open-Llama, issue 70", prefix="oll", buffers="huggingface"),
    Source(title="Transformers, issue 30629", prefix="trm", buffers="huggingface"),
    Source(title="PEFT, issue 1703", prefix="pft", lora_dropout=0.1),
    Source(title="DeepSpeed-Chat, issues", prefix="dsx"),
    Source(title="Firefly, issue 33", prefix="ff", lora_dropout=_DROPOUT),
)
SOURCES: Mapping[str, Source] = {source.prefix: source for source in _SOURCES}


def source_of(record: Mapping[str, Any]) -> Source:
    """The publication that a record is from.

    Raises:
        KeyError: A record of a source that has no row here.
    """
    return SOURCES[record["id"].partition("-")[0]]


def measured_bytes(record: Mapping[str, Any]) -> int | None:
    """The peak of a record in bytes: what is printed in GiB wins over GB; None where no peak was measured."""
    found: Mapping[str, float | None] = record["measured"]
    gib, gb = found.get("peak_gib"), found.get("peak_gb")
    if gib is not None:
        return round(gib * GIB)
    return None if gb is None else round(gb * source_of(record).unit)
