"""docs/published.md: the published measurements beside what dsgen says, misses first."""

from __future__ import annotations

import collections
import statistics
import textwrap
from collections.abc import Iterable, Sequence
from typing import Protocol

from published_cases import LEFT_OUT, PEAK, VERDICT, Case  # benchmarks/, beside this script
from published_sources import GIB, SOURCES

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
    "Buckets are those of the source where it shows its config (Qwen, ms-swift, the guides of Transformers), else"
    " DeepSpeed's defaults.",
    "A model gets the facts of a profile with the same sizes, else those that the record states. MPT is taken as"
    " GPT-NeoX, which has the same layers; Qwen 1 as Qwen 2.",
    "Qwen's full fine-tuning on two GPUs is ZeRO-3: its finetune_ds.sh passes ds_config_zero3.json at every commit. How"
    " it ran on one GPU is not stated, and taken as the record guesses it.",
    "LitGPT's models have a head of their own, whatever the checkpoint ties (litgpt/model.py).",
    "LLM Foundry's loss is flash-attn's fused cross-entropy, which keeps one copy of the logits; the chunked loss,"
    " which keeps none, is the nearest word.",
    "A 4-bit base is one with double quantization: the plain NF4 of most records takes 0.37 bits a weight more, GPTQ's"
    " int4 with groups of 128 only 0.03.",
    "Falcon in 4 bits is taken as Phi, which has the same block: transformers leaves Falcon's own layers in 16 bits.",
    "LoRA on a fused matrix is LoRA on each of its parts, each with a dropout of its own.",
    "Qwen's base models train embedding and head beside their adapters where the record says so.",
    "Adapters of LitGPT, ms-swift and Qwen have the dropout that their programs have by default, 0.05.",
    "The verdict is that of the GPU alone: few sources state the RAM of their nodes.",
)

_SYSTEMS = {"deepspeed": "DeepSpeed", "fsdp": "FSDP", "other": "neither: one GPU"}

# What the largest errors come from, as far as the sources show it.
_CAUSES = (
    "LitGPT on several GPUs (litr-39 to litr-47): the measured peaks are the weights of the whole model, the rank's"
    " share of them, and 1.7 to 2.8 GiB: as if its FSDP gathered the whole model at once, which ZeRO-3 never does.",
    "LitGPT with a 4-bit base: it ran bitsandbytes 0.41 and 0.42, which kept the input of every 4-bit layer for"
    " backward until 0.44 (its pull request 1270). TinyLlama took 13.5 GB with a base in bf16 (lith-42), 16.2 GB with"
    " one in NF4 (lith-43), which LitGPT's own issue 1112 calls a bug.",
    "LitGPT without a 4-bit base (lith-08, lith-42): its query, key and value are one matrix, whose adapter drops of"
    " its input once, and dsgen counts that for each of the three.",
    "LitGPT's Phi (litr-01 to litr-05, lith-32): its GELU is one operator; that of transformers' class is made of many"
    " (NewGELUActivation), of which autograd keeps several tensors of the feed-forward part's width.",
    "GPTQ (qwen-13 to qwen-18, qwen-69, swb-47 ...): its own kernels, and Qwen's own model code on one GPU without"
    " DeepSpeed: too low for short sequences and too high for long ones; dsgen knows the words, not that code.",
    "Qwen's LoRA with embedding and head (qwen-07 to qwen-12, qwen-31 to qwen-36, qwen-58 to qwen-63): on one GPU its"
    " finetune.py runs without DeepSpeed, and torch's AdamW keeps what it trains in 16 bits: about 9 bytes for each of"
    " their 0.6 to 1.6 billion weights, where DeepSpeed's stage 0 has 24 with its fp32 copy, moments and gradients.",
    "ms-swift, benchmark: reserved bytes, it seems of sequences of many lengths: blocks that fit one length and no"
    " other stay reserved. They fall from 35.1 to 31.6 GiB where the longest length doubles (swb-28, swb-29). Qwen"
    " padded every sequence to one length and saw 22.2 GiB (qwen-28) where ms-swift reserved 27.7 (swb-08).",
    "ms-swift with a 4-bit base (swb-49, swb-52): peft's `prepare_model_for_kbit_training` turns embeddings, norms and"
    " head into fp32. DeepSpeed makes them 16 bits again when it starts; without it they stay so.",
    "The gist of chenyaofo (dsgist-11): the record itself holds it for a run with micro-batch 16.",
    "DeepSpeed's blog on Muon (dsmuon-1, dsmuon-2): it names 8 GPUs and 4, and a batch of 32 of which it does not say"
    " whether it is that of one GPU.",
    "DeepSpeed's blog on Azure: Megatron's layers with fused softmax and GELU keep less of a block than Hugging Face's"
    " GPT-2, which stands for them.",
)


def page(cases: Sequence[Case]) -> str:
    """The whole page."""
    peaks = [case for case in cases if case.kind == PEAK]
    verdicts = [case for case in cases if case.kind == VERDICT]
    left = [case for case in cases if case.kind == LEFT_OUT]
    lines = [
        "# How far the memory model agrees with published measurements",
        "",
        f"Others measured {len(cases)} training runs and published them. Of those, {len(peaks)} are compared with the",
        f"instant memory model by their peak, {len(verdicts)} by whether they ran, and {len(left)} not at all, each",
        "for a reason. benchmarks/data/published.json has the records with their sources; `nox -s published` writes",
        "this page.",
        "",
        "An error is dsgen's number less the measured one, of the measured one: above 0, dsgen says more.",
        "",
        "## Peaks",
        "",
        *summary(cases),
        "",
        *_by_system(peaks),
        "",
        "## Verdicts",
        "",
        "First the runs that are compared by their verdict alone, then all of them, those with a peak too. What is",
        "`uncertain` is neither right nor wrong. A run that leaves much memory free is an easy one; LLM Foundry's",
        "micro-batches were tuned near the limit.",
        "",
        *_verdict_table(verdicts, [*peaks, *verdicts]),
        "",
        "## What a number means",
        "",
        *table(("source", "its number", "known from"), _readings(peaks)),
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


def summary(cases: Iterable[Case]) -> list[str]:
    """The table of peaks by source, and of all of them."""
    peaks = [case for case in cases if case.kind == PEAK]
    head = ("source", "records", "median error", "median absolute error", "worst")
    rows = [
        (source.title, *_errors([case for case in peaks if case.source == prefix]))
        for prefix, source in SOURCES.items()
        if any(case.source == prefix for case in peaks)
    ]
    return table(head, [*rows, ("all", *_errors(peaks))])


def _by_system(peaks: Sequence[Case]) -> list[str]:
    """The same by what ran: who holds the states, and what is trained."""
    groups: dict[tuple[str, str], list[Case]] = {}
    for case in peaks:
        groups.setdefault(case.system, []).append(case)
    rows = [(_SYSTEMS[system], method, *_errors(those)) for (system, method), those in sorted(groups.items())]
    return table(("ran with", "trained", "records", "median error", "median absolute error", "worst"), rows)


def _errors(cases: Sequence[Case]) -> tuple[str, str, str, str]:
    worst = max(cases, key=_size)
    return (
        str(len(cases)),
        _percent(statistics.median(case.error for case in cases)),
        _percent(statistics.median(map(_size, cases)), signed=False),
        f"{_percent(worst.error)} ({worst.name})",
    )


def _size(case: Case) -> float:
    return abs(case.error)


def _percent(value: float, *, signed: bool = True) -> str:
    return f"{100 * value:+.1f} %" if signed else f"{100 * value:.1f} %"


def _verdict_table(verdicts: Sequence[Case], everything: Sequence[Case]) -> list[str]:
    head = ("", "runs", *(verdict.value for verdict in Verdict), "right")
    rows = []
    for title, those in (("by verdict alone", verdicts), ("all", everything)):
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


def _every_peak(peaks: Sequence[Case]) -> list[str]:
    lines: list[str] = []
    for prefix, source in SOURCES.items():
        those = sorted((case for case in peaks if case.source == prefix), key=_size, reverse=True)
        if those:
            rows = [
                (case.name, case.title, case.grade, _gib(case.measured), _gib(case.ours), _percent(case.error))
                for case in those
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
