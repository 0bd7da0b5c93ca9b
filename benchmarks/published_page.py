"""docs/published.md: the published measurements beside what dsgen says, misses first."""

from __future__ import annotations

import collections
import statistics
import textwrap
from collections.abc import Iterable, Sequence
from typing import Protocol

from published_cases import LEFT_OUT, PEAK, VERDICT, Case, Peak  # benchmarks/, beside this script
from published_sources import GIB, SOURCES, Reading

from dsgen.memory import Verdict

__all__ = ["bullets", "page", "reasons_table", "summary", "table"]

_WIDTH = 118  # letters of a line of text


class LeftOut(Protocol):
    """What is not compared: whose it is, and why."""

    @property
    def source(self) -> str: ...
    @property
    def reason(self) -> str: ...


_HOW = (
    "DeepSpeed's own runs keep their stage and offload. FSDP's FULL_SHARD is taken as ZeRO-3 and SHARD_GRAD_OP as"
    " ZeRO-2, with buckets and prefetch of one block and nothing kept for reuse. A single GPU is stage 0.",
    "Buckets are those of the record, or of the source where it shows its config (Qwen, ms-swift, the guides of"
    " Transformers), else DeepSpeed's defaults.",
    "FlagPerf makes its model without zero.Init's own linear layer (run_pretraining.py, mem_efficient_linear=False), so"
    " that autograd keeps all that stage 3 has gathered.",
    "DeepSpeed is that of the time of the publication: 0.16 for ms-swift's scripts, and 0.14, the oldest that is known,"
    " for Qwen and FlagPerf, which are of the year before it. Older ones are not told. Liger of ms-swift's scripts was"
    " 0.5.6 to 0.6.1 (modelscope/ms-swift@7b709960f of 2025-04-06, e3f270866, 11a345d41, 3debbef8e; 0.6.2 is of"
    " 2025-08-22), their zero3.json has overlap_comm false and no optimizer, so the Trainer's AdamW is torch's foreach"
    " one, and five scripts set expandable_segments:True.",
    "A model gets the facts of a profile with the same sizes, else those that the record states. MPT is taken as"
    " GPT-NeoX, which has the same layers; Qwen 1 as Qwen 2.",
    "Qwen's full fine-tuning on two GPUs is ZeRO-3: its finetune_ds.sh passes ds_config_zero3.json at every commit. How"
    " it ran on one GPU is not stated, and taken as the record guesses it.",
    "LitGPT's models have a head of their own, whatever the checkpoint ties, and its Phi-3 is Llama: the gate has two"
    " matrices (litgpt/model.py). Logits are made of 128 tokens at a time (litgpt/finetune/lora.py), fp32 by Lightning,"
    " whose bf16-true makes what a model returns of torch's default type (fabric/plugins/precision/half.py,"
    " convert_output), and held until backward is over. On one GPU over 16 bits query, key and value are one product"
    " with one adapter and one dropout (litgpt/lora.py, LoRAQKVLinear): adapters of query and value alone are kept, and"
    " so is the product where each head has its own key and value; else both are written out for every head. With"
    " these facts its own classes, run without numbers, hold within 1.1 % of what each of its runs measured.",
    "ColossalAI-Pytorch-lightning's own loss is one of fp16 logits, copied without the last token's (its model.py,"
    " GPTLMLoss), as GPT-2's was in transformers until 4.47.",
    "LLM Foundry's loss is flash-attn's fused cross-entropy, which keeps one copy of the logits; the chunked loss,"
    " which keeps none, is the nearest word.",
    "A 4-bit base is one with double quantization: the plain NF4 of most records takes 0.37 bits a weight more, GPTQ's"
    " int4 with groups of 128 only 0.03.",
    "Falcon in 4 bits is taken as Phi, which has the same block: transformers leaves Falcon's own layers in 16 bits.",
    "LoRA on a fused matrix is LoRA on each of its parts, each with a dropout of its own.",
    "A mixture has the experts of the release of transformers that its record names: linear layers before 5, which a"
    " 4-bit base packs. Every model has the loss of that release; of a record that names none, that of the newest.",
    "Qwen's base models train embedding and head beside their adapters where the record says so.",
    "Adapters of LitGPT, ms-swift and Qwen have the dropout that their programs have by default, 0.05.",
    "The verdict is that of the GPU alone: few sources state the RAM of their nodes.",
)

_SYSTEMS = {"deepspeed": "DeepSpeed", "fsdp": "FSDP", "internevo": "InternEvo", "other": "neither: one GPU"}

# What the largest errors come from, as far as the sources show it.
_CAUSES = (
    "SantaCoder over a 4-bit base (fms-main-072): CUDA's autocast runs LayerNorm in fp32 (ATen/autocast_mode.h), and a"
    " 4-bit layer of bitsandbytes gives what it is given (Linear4bit.forward), so what flows between its blocks is fp32"
    " from the first on (transformers' class with such layers, run on a CPU): 1.4 of the 3.3 GiB that are missing."
    " Models with RMSNorm, which autocast leaves alone, are not touched. The rest is not explained.",
    "InternEvo's table of memory (intern-mem-...), in whole GB of an unstated meaning: its FSDP optimizer makes fp32"
    " gradients of a rank's share before it steps (solver/optimizer/fsdp_optimizer.py, step), 4 bytes a weight, and"
    " torch's AdamW of many tensors makes about as much again. What is missing is 7 to 10 bytes a weight of a rank's"
    " share, on 3, 5 and 8 GPUs.",
    "ms-swift's scripts with a chunked loss and torch's default segments (sws-01, sws-04): the engine of DeepSpeed"
    " 0.16 reserves 54.9 and 50.4 GiB in its simulation, as the instant model says, and the scripts' headers say 42,"
    " which is what it needs with growing segments beside the process's own. The header of sws-01 said 56 GB of the"
    " same command until a change of sequence parallelism (e3f270866) made it 42, what sws-04 has with half the length;"
    " that of sws-04 is not explained. With growing segments said, as in sws-02, sws-03 and sws-07, it is 5 to 10 %"
    " below what they say. Not told: the Trainer brings"
    " Liger's SwiGLU, norms and RoPE too (training.liger_kernels), with which sws-01 would be +25.3 %, sws-04 +18.8 %,"
    " sws-02 and sws-03 -7.7 %, and sws-07 as it is.",
    "Qwen's own class takes its loss of 16-bit logits (modeling_qwen.py, QWenLMHeadModel), which without autocast, as"
    " under DeepSpeed, stay so. It is not told: LoRA of Qwen-72B, whose error grows with the length, up to +19.7 % at"
    " 8,192 tokens (qwen-75), would be between -0.6 and +6.0 %, but its LoRA of 7B on four GPUs grew by 15 bytes an"
    " element of the logits, as with an fp32 loss. Its full runs of up to 4,096 tokens peak in the"
    " step, where there are no logits.",
    "LitGPT's Gemma 2 (lith-08) takes its own steps to a capped score, and is taken as transformers'.",
    "fsdp_qlora's LoRA of one sequence (fsdpq-03, fsdpq-04): what was reserved is the same at 512 and 2,048 tokens,"
    " 10.2 GiB, where its text says 8.28 and 9.16 allocated: as if it was reserved before the steps.",
    "The gist of chenyaofo (dsgist-11): the record itself holds it for a run with micro-batch 16.",
    "DeepSpeed's blog on Muon (dsmuon-1, dsmuon-2): it names 8 GPUs and 4, and a batch of 32 of which it does not say"
    " whether it is that of one GPU.",
    "DeepSpeed's blog on Azure: Megatron's layers with fused softmax and GELU keep less of a block than Hugging Face's"
    " GPT-2, which stands for them.",
    "ds7math-5 ran out of memory where it lacked 1.56 GiB: one table of its 102,400 words in fp32, as if its model"
    " came to the GPU in fp32, before a step.",
    "litr-45 ran out of memory and is said to fit: LitGPT's FSDP, shown apart, gathers gradients of frozen weights and"
    " keeps them whole between steps, which took 2 to 3.7 times what dsgen says in the rows of it that ran.",
)

# What is shown apart, in more words than its reason has.
_APART = (
    "LitGPT with a 4-bit base: it ran bitsandbytes 0.41 and 0.42, which kept the input of every 4-bit layer for"
    " backward until 0.44 (its pull request 1270). TinyLlama took 13.5 GB with a base in bf16 (lith-42), 16.2 GB with"
    " one in NF4 (lith-43), which LitGPT's own issue 1112 calls a bug.",
    "LitGPT's Phi: its GELU is one operator; that of transformers' class is made of many (NewGELUActivation), of which"
    " autograd keeps several tensors of the feed-forward part's width.",
    "LitGPT on several GPUs: the measured peaks are the rank's share of the weights, as many bytes as the weights of"
    " the whole model have, and 1.7 to 2.8 GiB. Its FSDP wraps a block with its adapters, so that weights that are not"
    " trained get gradients too (LitGPT's issue 1417, which torch warns of), and in all passes but the last of a step"
    " they are summed whole (`no_backward_sync`). So does torch 2.13 on a CPU: under `no_sync` a frozen weight of 256 x"
    " 256 beside its adapter has a gradient of 256 x 256 on each of two ranks. ZeRO-3 has gradients of adapters alone."
    " Verdicts are those of a model that comes without zero.Init, whole to each GPU, and then is cut: a rank's share"
    " less.",
    "Qwen's LoRA with embedding and head, on one GPU without DeepSpeed: torch's AdamW keeps what it trains in 16 bits,"
    " about 9 bytes for each of their 0.6 to 1.6 billion weights, where DeepSpeed's stage 0 has 24.",
    "peft's `prepare_model_for_kbit_training` turns embeddings, norms and head into fp32, and with them what flows"
    " between the blocks. DeepSpeed makes them 16 bits again when it starts; without it they stay so.",
    "ms-swift's benchmark: blocks that fit one length and no other stay reserved. They fall from 35.1 to 31.6 GiB where"
    " the longest length doubles (swb-28, swb-29). Qwen padded every sequence to one length and saw 22.2 GiB (qwen-28)"
    " where ms-swift reserved 27.7 (swb-08).",
    "fms-acceleration's fused kernels bring a loss of their own: 2 bytes an element of the logits less than that of"
    " transformers in its first benchmark, 4 bytes in the later one, of Llama 3 and of Mistral alike.",
)


def page(cases: Sequence[Case]) -> str:
    """The whole page."""
    peaks = [case for case in cases if case.kind == PEAK and not case.apart]
    apart = [case for case in cases if case.kind == PEAK and case.apart]
    verdicts = [case for case in cases if case.kind == VERDICT]
    left = [case for case in cases if case.kind == LEFT_OUT]
    lines = [
        "# How far the memory model agrees with published measurements",
        "",
        f"Others measured {len(cases):,} training runs and published them. Of those, {len(peaks)} are compared with",
        f"the instant memory model by their peak, {len(apart)} apart from them, as their programs held something that",
        f"dsgen has no word for, {len(verdicts)} by whether they ran, and {len(left)} not at all, each for a reason.",
        "benchmarks/data/published.json and published_2.json have the records with their sources; `nox -s published`",
        "writes this page.",
        "",
        "An error is dsgen's number less the measured one, of the measured one: above 0, dsgen says more. The",
        "interval is the one that `dsgen memory` prints; of a number whose meaning is not stated it reaches from the",
        "lowest that may be allocated to the highest that nvidia-smi may show, as it may be any of the three. Every",
        "run is asked about as a config of one's own: with torch's default settings of the allocator.",
        "",
        "## Peaks",
        "",
        *summary(cases),
        "",
        "By source:",
        "",
        *_by_source(peaks),
        "",
        *_by_system(peaks),
        "",
        "## Verdicts",
        "",
        "First the runs that are compared by their verdict alone, then all of them, those with a peak too, and of",
        "these last the ones that are shown apart. What is `uncertain` is neither right nor wrong. A run that leaves",
        "much memory free is an easy one; LLM Foundry's micro-batches were tuned near the limit.",
        "",
        *_verdict_table(verdicts, [*peaks, *apart, *verdicts]),
        "",
        "## What a number means",
        "",
        *table(("source", "its number", "known from"), _readings([*peaks, *apart])),
        "",
        "## How a run becomes a question",
        "",
        *bullets(_HOW),
        "",
        "## Where the largest errors come from",
        "",
        *bullets(_CAUSES),
        "",
        "## Every peak",
        "",
        "Worst first in each source. The grade is that of the record: A is exact, C rests on guesses.",
        "",
        *_every_peak(peaks),
        "## Shown apart",
        "",
        "Their programs held something else than dsgen's words for the rest mean.",
        "",
        *_by_reason(apart),
        "",
        *bullets(_APART),
        "",
        *_every_peak(apart),
        "## Every verdict",
        "",
        "Wrong ones first, then those that dsgen leaves open.",
        "",
        *table(("record", "what ran", "grade", "it", "dsgen says"), _every_verdict(verdicts)),
        "",
        "## What is not compared",
        "",
        *reasons_table(left),
        "",
        "Of two runs of T5 among them, hfb-t53b-2 and hfb-t511b, only the longest lengths are known. At those",
        "dsgen says that they do not fit, and they ran. Another who tried the second later, with one sequence of 128",
        "tokens, ran out of memory (transformers issue 9996): DeepSpeed 0.19 copies the weights once more on the GPU",
        "in `initialize`.",
        "",
    ]
    return "\n".join(lines)


def bullets(items: Iterable[str]) -> list[str]:
    """A list of Markdown, wrapped."""
    return [
        textwrap.fill(item, _WIDTH, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False)
        for item in items
    ]


_HEAD = ("records", "median error", "median absolute error", "in the interval", "worst")


def summary(cases: Iterable[Case]) -> list[str]:
    """The table of peaks by what was measured, and of those that are shown apart."""
    told = [case for case in cases if case.kind == PEAK]
    rows = []
    for kept, what in ((False, ""), (True, ", shown apart")):
        those = [case for case in told if bool(case.apart) is kept]
        for reading in Reading:
            named = [(case, peak) for case in those for peak in case.peaks if peak.reading is reading]
            if named:
                rows.append((f"{reading.value.partition(':')[0].partition(';')[0]}{what}", *_errors(named)))
    return table(("what was measured", *_HEAD), rows)


def _by_source(peaks: Sequence[Case]) -> list[str]:
    """The same by who measured: the first number of each record."""
    rows = [
        (source.title, *_errors(_first([case for case in peaks if case.source == prefix])))
        for prefix, source in SOURCES.items()
        if any(case.source == prefix for case in peaks)
    ]
    return table(("source", *_HEAD), [*rows, ("all", *_errors(_first(peaks)))])


def _by_system(peaks: Sequence[Case]) -> list[str]:
    """The same by what ran: who holds the states, and what is trained."""
    groups: dict[tuple[str, str], list[Case]] = {}
    for case in peaks:
        groups.setdefault(case.system, []).append(case)
    rows = [(_SYSTEMS[system], method, *_errors(_first(those))) for (system, method), those in sorted(groups.items())]
    return table(("ran with", "trained", *_HEAD), rows)


def _by_reason(apart: Sequence[Case]) -> list[str]:
    """What is shown apart, by what the programs held otherwise."""
    groups: dict[str, list[Case]] = {}
    for case in apart:
        groups.setdefault(case.apart, []).append(case)
    rows = [(why, *_errors(_first(those))) for why, those in sorted(groups.items(), key=lambda item: -len(item[1]))]
    return table(("what the program held", *_HEAD), rows)


def _first(cases: Iterable[Case]) -> list[tuple[Case, Peak]]:
    return [(case, case.peaks[0]) for case in cases]


def _errors(peaks: Sequence[tuple[Case, Peak]]) -> tuple[str, str, str, str, str]:
    case, worst = max(peaks, key=lambda one: abs(one[1].error))
    return (
        str(len(peaks)),
        _percent(statistics.median(peak.error for _, peak in peaks)),
        _percent(statistics.median(abs(peak.error) for _, peak in peaks), signed=False),
        f"{sum(peak.within for _, peak in peaks)}",
        f"{_percent(worst.error)} ({case.name})",
    )


def _size(case: Case) -> float:
    return abs(case.error)


def _percent(value: float, *, signed: bool = True) -> str:
    return f"{100 * value:+.1f} %" if signed else f"{100 * value:.1f} %"


def _verdict_table(verdicts: Sequence[Case], everything: Sequence[Case]) -> list[str]:
    head = ("", "runs", *(verdict.value for verdict in Verdict), "right")
    rows = []
    held = [case for case in everything if case.apart]
    for title, those in (("by verdict alone", verdicts), ("all", everything), ("of them apart", held)):
        for fits, what in ((True, "ran"), (False, "ran out of memory")):
            group = [case for case in those if case.fits is fits]
            counts = collections.Counter(case.verdict for case in group)
            right = sum(case.right is True for case in group)
            numbers = (str(counts[verdict]) for verdict in Verdict)
            rows.append((f"{title}: {what}", str(len(group)), *numbers, f"{right} of {len(group)}"))
    return table(head, rows)


def _readings(peaks: Sequence[Case]) -> list[tuple[str, ...]]:
    used = {case.source for case in peaks}
    return [(source.title, source.reading.value, source.why) for key, source in SOURCES.items() if key in used]


def _every_peak(cases: Sequence[Case]) -> list[str]:
    lines: list[str] = []
    for prefix, source in SOURCES.items():
        those = sorted((case for case in cases if case.source == prefix), key=_size, reverse=True)
        if those:
            rows = [
                (
                    *((case.name, case.title, case.grade) if peak is case.peaks[0] else ("", "by nvidia-smi", "")),
                    _gib(peak.measured),
                    f"{_gib(peak.ours)} ({_gib(peak.low)} to {_gib(peak.high)})",
                    _percent(peak.error),
                )
                for case in those
                for peak in case.peaks
            ]
            head = ("record", "what ran", "grade", "measured, GiB", "dsgen, GiB", "error")
            lines += [f"### {source.title}", "", *table(head, rows), ""]
    return lines


def _gib(size: int) -> str:
    return f"{size / GIB:.2f}"


def _every_verdict(verdicts: Iterable[Case]) -> list[tuple[str, ...]]:
    order = {False: 0, None: 1, True: 2}
    return [
        (case.name, case.title, case.grade, "ran" if case.fits else "ran out of memory", _said(case))
        for case in sorted(verdicts, key=lambda case: order[case.right])
    ]


def _said(case: Case) -> str:
    assert case.verdict is not None
    return case.verdict.value if case.right is not False else f"**{case.verdict.value}**"


def reasons_table(left: Iterable[LeftOut]) -> list[str]:
    """The table of what is not compared: why, how many, and from whom."""
    groups: dict[str, list[LeftOut]] = {}
    for case in left:
        groups.setdefault(case.reason, []).append(case)
    rows = [
        (why, str(len(those)), "; ".join(dict.fromkeys(SOURCES[case.source].title for case in those)))
        for why, those in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    ]
    return table(("why", "records", "sources"), rows)


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    """A table of Markdown, line by line."""
    return [f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows)]
