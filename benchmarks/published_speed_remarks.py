"""What the page on speeds says in words: what each source's number means, how a run is said, and causes of errors."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["CAUSES", "HOW", "MEANINGS"]

# Prefix of a source -> what its speed counts, and what it hides.
MEANINGS: Mapping[str, str] = {
    "clpl": "samples/s of 2 to 8 steps in all, the first among them",
    "coast": "tokens of the data set a second over the whole run of often two minutes, start-up included; all samples "
    "are full; accumulation is not stated",
    "dsat": "end-to-end samples/s of HF's scripts; of some rows the autotuner's sum of forward, backward and step, "
    "which is 20 to 45 % higher and good for their order alone",
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
    "A base in GPTQ's 4 bits is said as NF4: what turns it into 16 bits has other kernels.",
    "Tensor parallelism that leaves sequences whole (InternEvo's) is AutoTP: two all-reduces a block and pass.",
    "Kernels of a project's own, and torch.compile, are no word of dsgen's: such rows are shown apart.",
    "DeepSpeed's blog on Azure enables offload where memory ran out alone; its larger models have 8 to 32 GB of states"
    " on each GPU, and are taken as not offloaded.",
    "H100 without a word on its kind is the one with NVLink, a V100 without its memory the one of 32 GB.",
)

# What the largest errors come from, as far as the sources show it.
CAUSES = (
    "universal-llm-trainer with a 4-bit base: a micro-batch takes 2.5 to 5 times as long as with its base in 16 bits"
    " (Llama-3-8B on an A100: 57.6 s for 11.5), where turning the weights into 16 bits in every pass moves less than"
    " 0.1 TB, and takes no second. bitsandbytes multiplies in fp32 unless it is told another type, which on an A100 is"
    " 35 s and more. The source does not say what it told; dsgen has no word for it.",
    "universal-llm-trainer without: its full fine-tuning reaches 0.2 to 0.4 of the peak, and its LoRA is slower than"
    " that (11.5 s for 9.7 on an A100), though it has a quarter less to compute. What its loop does beside is not"
    " stated.",
    "Qwen-1.8B at 256 and 512 tokens: a step of eight micro-batches takes 1.0 to 2.1 s whatever the length, because the"
    " host cannot launch kernels faster; dsgen has no floor for that. Its 7B and 14B are faster than dsgen says at such"
    " lengths: products of 256 rows reach more than a third of their rate.",
    "Qwen's LoRA over two nodes (qwen-47 to qwen-51): 0.6 of the speed of one GPU. What joins the nodes is not stated.",
    "LLM Foundry from 8,192 tokens on: attention is charged as if it were a matrix product. The error grows with the"
    " length, and is largest for small models, of which attention is the larger part.",
    "fsdp_qlora on two 3090 with one sequence (fsdpq-03, fsdpq-04): 512 tokens take 5.1 s and 2,048 take 6.0, so that"
    " nearly all is the gathering of weights over PCIe without peer-to-peer; dsgen hides most of it behind compute.",
    "DeepSpeed's autotuning examples: transformers 4.12 on V100, which has no flash attention: scores, softmax and"
    " dropout of every head, and a GELU of many operators, pass through memory.",
    "DeepSpeed's blog on Azure at micro-batches 1 and 2: the weights' collectives take longer than the compute that"
    " dsgen hides them behind.",
    "InternEvo on 512 and 1,024 GPUs: four links of 100 Gb/s a node carry the gradients and weights of 8 GPUs; dsgen"
    " hides them behind backward.",
    "ms-swift's scripts on H20: a card with little arithmetic reaches more of it than 0.62, and attention stops at the"
    " borders of packed samples.",
    "Mixtures of experts: the experts of a block run in a loop of Python, one after another, and ZeRO-3 fetches each by"
    " itself.",
    "Coastline, 8B on one GPU: 8 sequences are measured slower than 2 (coast-034, coast-036), on a card that is full.",
)
