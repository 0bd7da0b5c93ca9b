"""What the page on speeds says in words: what each source's number means, how a run is said, and causes of errors."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["CAUSES", "FITTED", "HOW", "MEANINGS"]

# Prefix of a source -> what its speed counts, and what it hides.
MEANINGS: Mapping[str, str] = {
    "clpl": "samples/s of 2 to 8 steps in all, the first among them",
    "coast": "tokens of the data set a second over the whole run of often two minutes, start-up included; all samples "
    "are full; accumulation is not stated",
    "dsat": "end-to-end samples/s of HF's scripts; of some rows the autotuner's sum of forward, backward and step, "
    "which is 20 to 45 % higher and good for their order alone: the mean of steps 3 to 6, which overflow, since fp16 "
    "begins at a loss scale of 2 to the 32nd, and so skip the optimizer",
    "dsaz": "read off a chart of TFLOPS to about 1 %, in which a recomputed block counts; tokens from its own formula",
    "dsdc": "read off bar charts by the pixel; of the offload rows TFLOPS to about 1, by its own formula",
    "dsgist": "samples/s without a unit in the text; the row may be that of another micro-batch",
    "flagp": "tokens/s/GPU as printed",
    "fms": "HF's Trainer, tokens/s of one rank; unpacked files have only mean lengths, and padding counts as tokens "
    "unless the run had none",
    "fmsfsdp": "tokens/s/GPU as printed",
    "fsdpq": "time of a whole run over 1,024 full samples",
    "hfb": "time of a step as printed; its batch is of 32,850 tokens a GPU, 8 x 4,106",
    "intern": "tokens/s/GPU as printed, samples packed",
    "llmf": "tokens/s/GPU, printed to four digits",
    "openllama": "tokens/s/GPU as printed; how many GPUs is not stated, eight are taken",
    "peftmc": "real tokens over the time of training alone, at a mean of about 210 tokens a sample in batches of like "
    "lengths; its peak of memory is that of the longest",
    "qwen": "seconds a step of 8 micro-batches, printed to 0.1 s: up to 5 % at the shortest lengths",
    "swq": "seconds a step, packed samples",
    "sws": "from the length of whole runs, rounded; samples are packed, and attention stops at their borders",
    "tune": "tokens/s as printed",
    "ttnh": "tokens/s/GPU as printed; whether it was compiled is not stated",
    "ullmt": "seconds of one micro-batch of 2 x 8,192 tokens, also where 32 of them make a step",
    "xtuner": "tokens/s/GPU as printed; the stage is not, and is taken as 3",
}

HOW = (
    "Job and strategy are those of [Published measurements](published.md), and what is said there of models, stages,"
    " buckets and FSDP holds here too. A bucket or overlap that a source states is used.",
    "Where sequences differ in length, their mean is taken as the length of all.",
    "A network that a source does not state is the usual one of its GPUs: 1,600 Gb/s a node of A100, 3,200 of H100.",
    "Accumulation that a source does not state is one micro-batch a step, an optimizer AdamW.",
    "Weights and states without an fp32 copy are said as 16 bits with one: only the optimizer's pass differs.",
    "Where a program set what its table does not say (kernel, stage, buckets, launcher), its repository was read:"
    " benchmarks/published_speed_facts.py has each with its place.",
    "MPT is timed as OPT: it has learned positions too, and no rotary embedding as GPT-NeoX has, which it is weighed"
    " as.",
    "At stage 1 InternEvo, like torch's ZeroRedundancyOptimizer, gives whole tensors to ranks, and each broadcasts what"
    " it owns in one call; DeepSpeed gathers all in one.",
    "Tensor parallelism that leaves sequences whole (InternEvo's) is AutoTP: two all-reduces a block and pass.",
    "Kernels of a project's own, and torch.compile, are no word of dsgen's: such rows are shown apart.",
    "DeepSpeed's blog on Azure enables offload where memory ran out alone; its larger models have 8 to 32 GB of states"
    " on each GPU, and are taken as not offloaded.",
    "H100 without a word on its kind is the one with NVLink, a V100 without its memory the one of 32 GB.",
)

FITTED = (
    "What an eager operator costs the host of these runs on V100 and A100 (7 us) was fitted on Qwen's LoRA runs at 256"
    " and 512 tokens, and stands for the shorter Python of 2023. With what a plan takes for every host (11 us,"
    " [measured](gpu.md) beside an H200 with today's), which rests on none of these rows, Qwen's median absolute error"
    " is"
    " {host:.1f} % instead of {own:.1f} %.",
    "That collectives of stage 3 hide nothing was concluded from DeepSpeed's blog on Azure. On the rows of stage 3 of"
    " all other sources the rule has a median absolute error of {others:.1f} %.",
    "The interval was chosen on the rows that may be looked at; where the host bounds a step it reaches from one that"
    " takes 1.34 times as long, as one of a kind did on another day, to one that takes 0.56, as beside a B200.",
)

# What the largest errors come from, as far as the sources show it.
CAUSES = (
    "Qwen3-30B-A3B at stage 3 (ms-swift): experts ran in a loop of Python, one after another, which dsgen counts for"
    " transformers 4; and DeepSpeed before 0.18 fetches each of their layers by itself where a program does not ask for"
    " leaf modules: 128 experts of three layers in 48 blocks are 18,432 fetches in each of three passes. dsgen takes"
    " them as gathered whole, for `dsgen needs` says so.",
    "fsdp_qlora on two 3090 with one sequence (fsdpq-03, fsdpq-04): 512 tokens take 5.1 s and 2,048 take 6.0, so that"
    " nearly all is the gathering of weights over PCIe without peer-to-peer, at less than half of what such cards"
    " reached elsewhere: its source blames an older motherboard with slow PCI lanes.",
    "Full cards: Coastline's 8B with 8 sequences on one GPU (coast-036) and 16 on four (coast-047) is slower than with"
    " 2 and 8. So is fms-acceleration's with 8 instead of 4 (fms-liger-067), where nvidia-smi saw 79.2 GiB; runs with"
    " up to 77.2 show nothing of it. Torch's allocator then gives back what it keeps and asks anew, and the GPU waits."
    " dsgen says of these three that they do not fit, and a plan takes none of them.",
    "fms-acceleration with a 4-bit base: bitsandbytes before 0.47 multiplies in the type of its input, which peft"
    " leaves in fp32 here; and the same setup was measured 20 % apart on two days.",
    "XTuner on 32 GPUs (xtuner-06, xtuner-10): with four micro-batches a step each takes 10 s less (70B), so that much"
    " is spent once a step, on what its source does not say.",
    "InternEvo on 1,024 GPUs (intern-tp1-zall-1024): behind a step each tensor is broadcast by the rank that owns it,"
    " in 291 calls over all ranks. Its source has 2.7 s a step more for that than with owners in every node, where"
    " dsgen says 1.3 for all of it: what a broadcast takes to pass a thousand ranks is not known well.",
    "Qwen-72B LoRA at stage 3 with 256 tokens (qwen-70): what is measured is as long as if each weight were gathered"
    " once in backward; DeepSpeed 0.19.8 gathers most twice, for the second forward and for backward.",
    "ms-swift's scripts on H20: a card with little arithmetic reaches 0.9 of it, and attention stops at the borders of"
    " packed samples.",
    "DeepSpeed's blog on Azure on 1,024 GPUs: likely its NCCL 2.12, which gathers in a ring whose start-up grows with"
    " the ranks.",
)
