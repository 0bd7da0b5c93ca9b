"""Configs that DeepSpeed stops on, or takes otherwise than written: each fails its proof, and lint had said why."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from chosen import chosen

from dsgen.asking.foresight import foresight
from dsgen.asking.proofs import ToProve, proven
from dsgen.linting import linter
from dsgen.linting.rules import RULES
from dsgen.proving import prover
from dsgen.report import proof as report

pytestmark = [pytest.mark.proof, pytest.mark.usefixtures("warm")]

ADAMW = {"type": "AdamW", "params": {"lr": 1e-3}}
NVME = {"device": "nvme", "nvme_path": "/nvme"}
BASE: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 2,
    "bf16": {"enabled": True},
    "optimizer": ADAMW,
    "zero_optimization": {"stage": 2},
}


def zero(stage: int, **keys: Any) -> dict[str, Any]:
    """The base with another section of ZeRO."""
    return {**BASE, "zero_optimization": {"stage": stage, **keys}}


def optimizer(**arguments: Any) -> dict[str, Any]:
    """The base with arguments of its optimizer."""
    return {**BASE, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, **arguments}}}


def fp16(**keys: Any) -> dict[str, Any]:
    """The base in fp16."""
    return {**{key: value for key, value in BASE.items() if key != "bf16"}, "fp16": {"enabled": True, **keys}}


def profiled(**keys: Any) -> dict[str, Any]:
    """The base with a profile of its first step."""
    return {**BASE, "flops_profiler": {"enabled": True, "profile_step": 1, **keys}}


def scheduled(kind: str, **arguments: Any) -> dict[str, Any]:
    """The base with a schedule."""
    return {**BASE, "scheduler": {"type": kind, "params": arguments}}


def cycle(**arguments: Any) -> dict[str, Any]:
    """The base with a OneCycle."""
    return scheduled("OneCycle", **{"cycle_min_lr": 1e-5, "cycle_max_lr": 1e-3, **arguments})


def nvme(**keys: Any) -> dict[str, Any]:
    """The optimizer on NVMe, with a section `aio`."""
    return {**zero(3, offload_optimizer=NVME), "aio": keys}


def split(layer: str, kind: str) -> dict[str, Any]:
    """One layer of each block split over two ranks."""
    specs = [{"patterns": [f".*{layer}.weight$"], "partition_type": kind}]
    return {**zero(1), "tensor_parallel": {"autotp_size": 2, "partition_config": {"layer_specs": specs}}}


# Requests that this machine grants, where it has raised them too; two ranks ask for four times the depth.
LIMIT = Path("/proc/sys/fs/aio-max-nr")
GRANTED = max(65_536, int(LIMIT.read_text(encoding="ascii")) if LIMIT.exists() else 0)

# name -> the config, and the rule that says why it stops
BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "a section with a slip": ({**BASE, "zero_optimisation": {"stage": 3}}, "unread-key"),
    "a key of ZeRO with a slip": (zero(2, overlap_com=True), "rejected-key"),
    "lr beside params": ({**BASE, "optimizer": {**ADAMW, "lr": 5e-4}}, "optimizer-argument-beside-params"),
    "auto batch": ({**BASE, "train_batch_size": "auto"}, "auto-outside-hugging-face"),
    "auto bucket": (zero(2, reduce_bucket_size="auto"), "auto-outside-hugging-face"),
    "auto learning rate": (
        {**BASE, "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}},
        "auto-outside-hugging-face",
    ),
    "tp_size": ({**BASE, "tensor_parallel": {"tp_size": 2}}, "tensor-parallel-key"),
    "a batch that never multiplies": (
        {**BASE, "train_batch_size": 500, "train_micro_batch_size_per_gpu": 16},
        "batch-never-adds-up",
    ),
    "no batch at all": (
        {"bf16": {"enabled": True}, "optimizer": ADAMW, "zero_optimization": {"stage": 2}},
        "batch-size-missing",
    ),
    "a schedule without its length": (
        {**BASE, "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 10}}},
        "scheduler-argument-missing",
    ),
    "a schedule that is none": ({**BASE, "scheduler": {"type": "Cosine", "params": {}}}, "unknown-scheduler"),
    "a parameter no optimizer has": (
        {**BASE, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "beta": 0.9}}},
        "unknown-optimizer-argument",
    ),
    "clipping as text": ({**BASE, "gradient_clipping": "1.0"}, "rejected-value"),
    "stage 4": (zero(4), "rejected-value"),
    "stage as text": (zero(2) | {"zero_optimization": {"stage": "two"}}, "rejected-value"),
    "parameters offloaded at stage 2": (zero(2, offload_param={"device": "cpu"}), "offload-param-below-stage-3"),
    "optimizer offloaded at stage 0": (zero(0, offload_optimizer={"device": "cpu"}), "offload-optimizer-at-stage-0"),
    "both precisions": ({**BASE, "fp16": {"enabled": True}}, "fp16-and-bf16"),
    "a device that is none": (zero(3, offload_optimizer={"device": "disk"}), "rejected-value"),
    "a loss scale as text": (
        {**BASE, "bf16": {"enabled": False}, "fp16": {"enabled": True, "loss_scale": "big"}},
        "rejected-value",
    ),
    "a section that is a list": ({**BASE, "zero_optimization": [2]}, "section-is-no-map"),
    "offload as true": (zero(2, offload_optimizer=True), "rejected-value"),
    "one beta": (optimizer(betas=[0.9]), "optimizer-argument-type"),
    "betas as text": (optimizer(betas="0.9,0.999"), "optimizer-argument-type"),
    "an eps of 0": (optimizer(eps=0), "optimizer-argument-range"),
    "a beta above 1": (optimizer(betas=[0.9, 1.9]), "optimizer-argument-range"),
    "a rate that is null": (optimizer(lr=None), "optimizer-argument-type"),
    "the optimizer on NVMe at stage 2": (
        zero(2, offload_optimizer={"device": "nvme", "nvme_path": "/nvme"}),
        "nvme-below-stage-3",
    ),
    "three buffers of Adam on NVMe": (
        zero(3, offload_optimizer={"device": "nvme", "nvme_path": "/nvme", "buffer_count": 3}),
        "nvme-buffers-too-few",
    ),
    "four buffers in a pipeline": (
        zero(3, offload_optimizer={"device": "nvme", "nvme_path": "/nvme", "pipeline_read": True}),
        "nvme-buffers-too-few",
    ),
    "seven buffers in a pipeline": (
        zero(3, offload_optimizer={"device": "nvme", "nvme_path": "/nvme", "pipeline_write": True, "buffer_count": 7}),
        "nvme-buffers-too-few",
    ),
    "no buffer of weights on NVMe": (
        zero(3, offload_param={"device": "nvme", "nvme_path": "/nvme", "buffer_count": 0}),
        "nvme-buffers-too-few",
    ),
    "blocks of NVMe that are no sectors": (nvme(block_size=1_000_000), "nvme-io-refused"),
    "blocks of NVMe as text": (nvme(block_size="1048576"), "nvme-io-refused"),
    "a layer of AutoTP without its partners": (split("down_proj", "row"), "tensor-parallel-without-partner"),
    "a part of attention by AutoTP": (split("q_proj", "column"), "tensor-parallel-without-partner"),
    "a head by AutoTP that nobody gathers": (split("lm_head", "column"), "tensor-parallel-without-partner"),
    "more requests to NVMe than Linux grants": (nvme(queue_depth=GRANTED // 2), "nvme-io-refused"),
    "parameters on NVMe alone": (zero(3, offload_param=NVME), "parameters-on-nvme-not-resumed"),
    "parameters on NVMe, optimizer on the CPU": (
        zero(3, offload_param=NVME, offload_optimizer={"device": "cpu"}),
        "parameters-on-nvme-not-resumed",
    ),
    "no request to NVMe": (nvme(queue_depth=0), "nvme-io-refused"),
    "no thread for NVMe": (nvme(intra_op_parallelism=0), "nvme-io-refused"),
    "a number as the type of a schedule": ({**BASE, "scheduler": {"type": 3, "params": {}}}, "rejected-value"),
    "a map as the type of a schedule": ({**BASE, "scheduler": {"type": {}, "params": {}}}, "rejected-value"),
    "a number as the arguments of a schedule": (
        {**BASE, "scheduler": {"type": "WarmupLR", "params": 3}},
        "scheduler-params-missing",
    ),
    "betas that are a number": (optimizer(betas=1.5), "optimizer-argument-type"),
    "a log of communication neither on nor off": ({**BASE, "comms_logger": {"enabled": None}}, "rejected-value"),
    "a log of communication as a map": ({**BASE, "comms_logger": {"enabled": {}}}, "rejected-value"),
    "a depth of modules with a fraction": (profiled(module_depth=1.5), "rejected-value"),
    "a depth of modules as a map": (profiled(module_depth={}), "rejected-value"),
    "a dtype that is a number": ({**BASE, "data_types": {"grad_accum_dtype": 7}}, "rejected-value"),
    "a dtype that is a map": ({**BASE, "data_types": {"grad_accum_dtype": {}}}, "rejected-value"),
    "clipping as a map": ({**BASE, "gradient_clipping": {}}, "rejected-value"),
    "a bucket of more elements than 64 bits count": (zero(2, reduce_bucket_size=10**19), "number-beyond-64-bits"),
    "a bucket of more bytes than 64 bits count": (zero(3, reduce_bucket_size=2**62), "number-beyond-64-bits"),
    "a bucket as a float of more than 64 bits": (zero(2, reduce_bucket_size=1e19), "rejected-value"),
    "clipping to a norm of more than 64 bits": ({**BASE, "gradient_clipping": 2**64}, "number-beyond-64-bits"),
    "a number that no float holds": ({**BASE, "steps_per_print": 10**309}, "number-too-large"),
    "an accumulation that no batch is a multiple of": (
        {**BASE, "train_batch_size": 8, "gradient_accumulation_steps": 10**19},
        "batch-never-adds-up",
    ),
    "an accumulation with a fraction": ({**BASE, "gradient_accumulation_steps": 1.5}, "accumulation-fraction"),
    "a profile deeper than the model": (profiled(module_depth=7), "profiler-deeper-than-model"),
    "a warm-up from no rate": (scheduled("WarmupLR", warmup_min_lr=[]), "scheduler-argument-type"),
    "a warm-up from a list of texts": (scheduled("WarmupLR", warmup_min_lr=["0"]), "scheduler-argument-type"),
    "a form of warm-up that is a map": (scheduled("WarmupLR", warmup_type={}), "unknown-warmup-type"),
    "a range of rates from a text": (
        scheduled("LRRangeTest", lr_range_test_min_lr="x"),
        "scheduler-argument-type",
    ),
    "a range of rates by a list": (
        scheduled("LRRangeTest", lr_range_test_step_rate=[1.0]),
        "scheduler-argument-type",
    ),
    "a cycle from nowhere": (cycle(cycle_min_lr=None), "scheduler-argument-type"),
    "a momentum that is a text": (cycle(cycle_min_mom="x"), "scheduler-argument-type"),
    "a first half that is null": (cycle(cycle_first_step_size=None), "steps-not-positive"),
    "a first half that is a word": (cycle(cycle_first_step_size="x"), "steps-not-positive"),
    "a second half that is a word": (cycle(cycle_second_step_size="x"), "cycle-second-half-negative"),
    "a schedule without its type": ({**BASE, "scheduler": {"type": None, "params": {}}}, "scheduler-type-missing"),
    "ranks of a sequence alone": ({**BASE, "sequence_parallel_size": 2}, "sequence-parallel-alone"),
    "a first loss scale of 2^40": (fp16(initial_scale_power=40), "initial-loss-scale-too-high"),
    "hysteresis 0": (fp16(hysteresis=0), "hysteresis-not-positive"),
    "a window of 0": (fp16(loss_scale_window=0), "loss-scale-bound-not-positive"),
}


# What is wrong elsewhere, beside a fault that stops the start first -> the rule of that, and the one of the other.
BESIDE: dict[str, tuple[dict[str, Any], str, str]] = {
    "a schedule without its length, and steps_per_print 0": (
        {
            **BASE,
            "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 10}},
            "steps_per_print": 0,
        },
        "scheduler-argument-missing",
        "rejected-value",
    ),
    "a key of ZeRO with a slip, and clipping as text": (
        {**zero(2, overlap_com=True), "gradient_clipping": "1.0"},
        "rejected-key",
        "rejected-value",
    ),
    "stage 4, and a schedule that is none": (
        {**zero(4), "scheduler": {"type": "Cosine", "params": {}}},
        "rejected-value",
        "unknown-scheduler",
    ),
}
# What is right and needs a GPU -> the rule that says so.
NEEDS_GPU: dict[str, tuple[dict[str, Any], str]] = {
    "quantized weights": (zero(3, zero_quantized_weights=True), "quantizers-need-a-gpu"),
    "quantized frozen weights": (zero(3, zero_quantized_nontrainable_weights=True), "quantizers-need-a-gpu"),
    "SuperOffload": (
        zero(3, offload_optimizer={"device": "cpu", "super_offload": True}),
        "super-offload-needs-cuda",
    ),
    "the hybrid engine": ({**zero(2), "hybrid_engine": {"enabled": True}}, "hybrid-engine-needs-gpu"),
    "GPUDirect Storage": ({**zero(3), "aio": {"use_gds": True}}, "gds-without-cuda"),
    "Lion": ({**BASE, "optimizer": {"type": "Lion", "params": {"lr": 1e-4}}}, "fused-optimizer-needs-gpu"),
    "ZenFlow at stage 3": (
        zero(
            3,
            offload_optimizer={"device": "cpu"},
            zenflow={"topk_ratio": 0.1, "select_strategy": "step", "select_interval": 8, "update_interval": 4},
        ),
        "zenflow-without-offload",
    ),
}
# What is wrong on every machine, beside something that needs a GPU and was not reached.
WRONG_EVERYWHERE = {**zero(3, zero_quantized_weights=True), "train_micro_batch_size_per_gpu": "four"}
BATCH_OF_MANY = {
    **BASE, "train_batch_size": 4096, "train_micro_batch_size_per_gpu": 16, "gradient_accumulation_steps": 8,
    "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 10}},
}  # fmt: skip
MUP = {**zero(0), "optimizer": {"type": "MuAdam", "params": {"lr": 1e-3}}}
MORE = {"wrong everywhere": WRONG_EVERYWHERE, "the batch of 32 GPUs": BATCH_OF_MANY, "an optimizer of a package": MUP,
        "right": BASE}  # fmt: skip


@pytest.fixture(scope="module")
def proofs(request: pytest.FixtureRequest) -> dict[str, prover.Proof]:
    """All that are asked about, in one session."""
    every = {name: case[0] for name, case in {**BROKEN, **BESIDE, **NEEDS_GPU}.items()} | MORE
    names = list(dict.fromkeys([*chosen(request), *MORE]))
    asked = [ToProve(written=every[name], given=every[name]) for name in names]
    return dict(zip(names, proven(asked, device="cpu", steps=1), strict=True))


def causes(proof: prover.Proof) -> list[str]:
    """The rules that explain it, best first."""
    assert proof.foreseen is not None
    return [item.rule for item in proof.foreseen]


@pytest.mark.parametrize("name", BROKEN)
def test_lint_had_said_why_a_start_fails(name: str, proofs: dict[str, prover.Proof]) -> None:
    """Whoever adds a config that stops and that no rule knows has the linter's hole before him."""
    _, rule = BROKEN[name]
    proof = proofs[name]

    assert proof.outcome == prover.FAILED
    assert proof.error is not None or proof.failed_checks
    assert proof.phase in ("load", "initialize", "step", "checkpoint")
    assert causes(proof)[:1] == [rule], proof.error


@pytest.mark.parametrize("name", BESIDE)
def test_what_is_wrong_beside_the_cause_is_no_cause(name: str, proofs: dict[str, prover.Proof]) -> None:
    _, cause, other = BESIDE[name]
    proof = proofs[name]

    assert proof.outcome == prover.FAILED
    assert causes(proof) == [cause], proof.error
    assert [item.rule for item in proof.also] == [other]
    told = " ".join(report.text(proof).split())
    assert f"foreseen by dsgen lint: {cause} " in told
    assert f"dsgen lint also says, of something else: {other} " in told


@pytest.mark.parametrize("name", BESIDE)
def test_an_error_of_something_else_masks_no_hole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same starts, as if nobody had written the rule that foresees them."""
    config, cause, other = BESIDE[name]
    monkeypatch.setattr(linter, "RULES", [rule for rule in RULES if rule.name != cause])

    (proof,) = proven([ToProve(written=config, given=config)], device="cpu", steps=1)

    assert proof.outcome == prover.FAILED
    assert causes(proof) == []
    assert [item.rule for item in proof.also] == [other]
    told = " ".join(report.text(proof).split())
    assert "it has a hole" in told
    assert f"dsgen lint also says, of something else: {other} " in told


@pytest.mark.parametrize("name", NEEDS_GPU)
def test_what_needs_a_gpu_is_not_run_on_a_cpu(name: str, proofs: dict[str, prover.Proof]) -> None:
    """DeepSpeed stops, and the config is right: another machine can prove it."""
    _, rule = NEEDS_GPU[name]
    proof = proofs[name]

    assert (proof.outcome, proof.is_verdict) == (prover.NOT_RUN, False)
    assert proof.error
    assert causes(proof) == [rule]
    assert "--device cuda" in str(proof.todo)
    assert [item.rule for item in proof.also] == []
    told = " ".join(report.text(proof).split())
    assert told.startswith("not run")
    assert "this needs a GPU" in told
    assert f"dsgen lint says so: {rule} " in told
    assert "hole" not in told


def test_what_is_wrong_everywhere_fails_on_a_cpu_too(proofs: dict[str, prover.Proof]) -> None:
    """What needs a GPU beside it is not what failed."""
    proof = proofs["wrong everywhere"]

    assert proof.outcome == prover.FAILED
    assert causes(proof) == ["rejected-value"]


def test_a_package_that_is_not_here_is_no_fault_of_the_config(proofs: dict[str, prover.Proof]) -> None:
    """MuAdam needs mup, which nobody installs with DeepSpeed."""
    assert importlib.util.find_spec("mup") is None
    proof = proofs["an optimizer of a package"]

    assert (proof.outcome, proof.is_verdict) == (prover.NOT_RUN, False)
    assert causes(proof) == ["optimizer-package-missing"]
    assert "install" in str(proof.todo)


def test_lint_judges_the_batch_that_the_ranks_read(proofs: dict[str, prover.Proof]) -> None:
    """A batch of 32 GPUs is right, and two ranks prove a smaller one: nothing is said of it."""
    proof = proofs["the batch of 32 GPUs"]

    assert (proof.outcome, proof.ranks) == (prover.FAILED, 2)
    assert causes(proof) == ["scheduler-argument-missing"]
    assert proof.also == ()


def test_a_config_that_starts_has_no_error_of_lint(proofs: dict[str, prover.Proof]) -> None:
    """The other side: what starts is not blamed, and lint has no error of it."""
    assert proofs["right"].outcome == prover.PROVED
    assert proofs["right"].foreseen is None
    said = foresight(BASE, proofs["right"])
    assert (said.causes, said.also, said.lacking) == ((), (), "")
