"""Rules about the program that loads a config: what it makes of "auto", what it needs, what its own file gets wrong."""

from __future__ import annotations

from typing import Any

import pytest

from dsgen.linting import wrapped_configs
from dsgen.linting.linter import lint, lint_config
from dsgen.linting.subjects import Facts
from dsgen.shapes.findings import Finding, Severity

ADAM = {"type": "AdamW", "params": {"lr": 0.001}}
BASE: dict[str, Any] = {"train_micro_batch_size_per_gpu": 1, "optimizer": ADAM, "zero_optimization": {"stage": 2}}


def put(path: str, value: Any) -> dict[str, Any]:
    def changed(config: dict[str, Any], names: list[str]) -> dict[str, Any]:
        inner = config.get(names[0])
        section = inner if isinstance(inner, dict) else {}
        return {**config, names[0]: value if len(names) == 1 else changed(section, names[1:])}

    return changed(BASE, path.split("."))


def found(config: dict[str, Any], rule: str, **known: Any) -> list[Finding]:
    return [finding for finding in lint_config(config, **known) if finding.rule == rule]


def one(config: dict[str, Any], rule: str, **known: Any) -> Finding:
    [finding] = found(config, rule, **known)
    return finding


STOPS = (
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
    "gradient_clipping",
    "steps_per_print",
    "wall_clock_breakdown",
    "communication_data_type",
    "data_types.grad_accum_dtype",
    "torch_autocast.dtype",
    "tensor_parallel.autotp_size",
    "optimizer",
    "optimizer.params.lr",
    "optimizer.params.betas",
    "scheduler",
    "zero_optimization",
    "bf16",
    "checkpoint.writer",
    "prescale_gradients",
    "gradient_predivide_factor",
)
GOES_ON = (
    "bf16.enabled",
    "fp16.enabled",
    "zero_optimization.stage",
    "zero_optimization.overlap_comm",
    "zero_optimization.reduce_bucket_size",
    "zero_optimization.offload_optimizer",
    "zero_optimization.offload_optimizer.device",
    "tensorboard",
    "dump_state",
    "torch_autocast.enabled",
    "optimizer.params.torch_adam",
    "flops_profiler.top_modules",
)
KNOWN = (
    "data_types.keep_in_fp32_modules",
    "zero_optimization.zenflow.select_strategy",
    "pipeline.stages",
    "expert_parallel.score_func",
)


@pytest.mark.parametrize("target", ["deepspeed", "lightning"])
@pytest.mark.parametrize("path", STOPS)
def test_auto_stops_deepspeed(path: str, target: str) -> None:
    if (target, path) == ("lightning", "gradient_accumulation_steps"):
        assert one(put(path, "auto"), "key-the-program-refuses", target=target).severity is Severity.ERROR
    else:
        assert one(put(path, "auto"), "auto-outside-hugging-face", target=target).severity is Severity.ERROR


@pytest.mark.parametrize("path", GOES_ON)
def test_auto_is_lost_in_deepspeed(path: str) -> None:
    severity = Severity.INFO if path.startswith("flops") else Severity.WARNING  # that profiler is off

    assert one(put(path, "auto"), "auto-outside-hugging-face", target="deepspeed").severity is severity
    assert not [item for item in lint_config(put(path, "auto"), target="deepspeed") if item.severity is Severity.ERROR]


@pytest.mark.parametrize("path", KNOWN)
def test_a_word_that_deepspeed_knows_is_no_fault(path: str) -> None:
    assert found(put(path, "auto"), "auto-outside-hugging-face", target="deepspeed") == []


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("bf16.enabled", "leaves bf16 off, which means fp32"),
        ("zero_optimization.reduce_bucket_size", "its default, 500,000,000"),
        ("zero_optimization.offload_optimizer.device", "offloads nothing"),
        ("zero_optimization.stage", "runs stage 0"),
        ("gradient_clipping", "in the first optimizer step"),
        ("dump_state", "takes it for true"),
    ],
)
def test_the_message_says_what_deepspeed_makes_of_it(path: str, said: str) -> None:
    assert said in one(put(path, "auto"), "auto-outside-hugging-face", target="deepspeed").message


def test_auto_of_a_switch_that_is_off_is_a_note_and_of_one_that_is_on_an_error() -> None:
    profiler = {"flops_profiler": {"enabled": True, "top_modules": "auto"}}

    assert one({**BASE, **profiler}, "auto-outside-hugging-face").severity is Severity.ERROR


def test_the_clients_optimizer_makes_the_configs_harmless() -> None:
    config = put("optimizer.params.lr", "auto")

    finding = one(config, "auto-outside-hugging-face", target="deepspeed", facts=Facts(client_optimizer="torch"))

    assert finding.severity is Severity.WARNING


def test_fp16_beside_bf16_is_switched_off_safely() -> None:
    config = {**BASE, "fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"}}

    fixes = {item.path: item.fix for item in found(config, "auto-outside-hugging-face", target="deepspeed")}

    assert {path: (fix.title, fix.safe) for path, fix in fixes.items() if fix} == {
        "fp16.enabled": ("write false", True),
        "bf16.enabled": ("write true", False),
    }


@pytest.mark.parametrize("target", ["hf-trainer", "accelerate"])
def test_auto_that_is_filled_in_is_no_fault(target: str) -> None:
    config = {
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "bf16": {"enabled": "auto"},
        "optimizer": {"type": "AdamW", "params": {"lr": "auto", "weight_decay": "auto"}},
        "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto"},
    }

    assert [item.rule for item in lint_config(config, target=target) if "auto" in item.rule] == []


@pytest.mark.parametrize("path", [*KNOWN[:3], "zero_optimization.overlap_comm", "dump_state"])
@pytest.mark.parametrize("target", ["accelerate", "hf-trainer"])
def test_any_other_auto_is_refused_by_accelerate_and_so_by_the_trainer(path: str, target: str) -> None:
    config = put(path, "auto")

    assert one(config, "auto-not-filled", target=target).severity is Severity.ERROR


@pytest.mark.parametrize("path", ["wall_clock_breakdown", "optimizer.params.momentum", "communication_data_type"])
def test_what_deepspeed_refuses_too_is_an_error_for_the_trainer(path: str) -> None:
    config = {**put(path, "auto")}
    if path.endswith("momentum"):
        config["optimizer"] = {"type": "SGD", "params": {"lr": 0.1, "momentum": "auto"}}

    assert one(config, "auto-not-filled", target="hf-trainer").severity is Severity.ERROR


FP16 = {"fp16": {"enabled": True}}
NO_OFFLOAD: dict[str, Any] = {"zero_optimization": {"stage": 2, "offload_optimizer": None}}
_OFFLOAD = "zero_optimization.offload_optimizer"


@pytest.mark.parametrize(
    ("config", "target", "path"),
    [
        (NO_OFFLOAD, "hf-trainer", _OFFLOAD),
        (NO_OFFLOAD, "accelerate", _OFFLOAD),
        ({**NO_OFFLOAD, "optimizer": {"type": "AdamW"}}, "accelerate", None),
        ({"zero_optimization": {"stage": 2}, "bf16": None}, "hf-trainer", "bf16"),
        ({"zero_optimization": {"stage": 2}, "bf16": None}, "accelerate", "bf16"),
        ({"zero_optimization": {"stage": 2}, "bf16": None, **FP16}, "hf-trainer", "bf16"),
        ({"zero_optimization": {"stage": 2}, "bf16": None, **FP16}, "accelerate", None),
        ({"zero_optimization": {"stage": 3, "offload_param": None}}, "hf-trainer", None),
        ({**NO_OFFLOAD, "bf16": None}, "deepspeed", None),
    ],
)  # fmt: skip
def test_a_null_where_accelerate_looks_for_keys(config: dict[str, Any], target: str, path: str | None) -> None:
    """As the real programs did, accelerate 1.15.0: AttributeError, 'NoneType' object has no attribute 'get'."""
    findings = found({"train_micro_batch_size_per_gpu": 1, **config}, "section-the-program-needs", target=target)

    assert [finding.path for finding in findings] == ([path] if path else [])


@pytest.mark.parametrize("target", ["hf-trainer", "accelerate"])
def test_auto_at_a_key_that_nothing_reads_is_refused_too(target: str) -> None:
    """The real programs: "ValueError: `monitor_config` not found in kwargs", and the same below a section."""
    for path in ("monitor_config", "zero_optimization.stage3_param_perisstence_threshold", "pipeline.chunks"):
        finding = one(put(path, "auto"), "auto-not-filled", target=target)
        assert (finding.path, finding.severity) == (path, Severity.ERROR)
    assert found(put("monitor_config", "auto"), "auto-not-filled", target="deepspeed") == []


def test_another_name_of_a_filled_key_is_renamed() -> None:
    finding = one(put("zero_optimization.prefetch_bucket_size", "auto"), "auto-not-filled", target="hf-trainer")

    assert finding.fix is not None
    assert finding.fix.title.startswith("rename to stage3_prefetch_bucket_size")


def test_what_accelerate_settles_without_asking_is_said() -> None:
    offload = one(put("zero_optimization.offload_optimizer.device", "auto"), "auto-not-filled", target="hf-trainer")
    stage = one(put("zero_optimization.stage", "auto"), "auto-not-filled", target="hf-trainer")

    assert (offload.severity, stage.severity) == (Severity.WARNING, Severity.INFO)
    assert 'makes it "none"' in offload.message


def test_only_the_trainer_fills_in_betas() -> None:
    config = put("optimizer.params.betas", "auto")

    assert found(config, "auto-not-filled", target="hf-trainer") == []
    assert one(config, "auto-not-filled", target="accelerate").severity is Severity.ERROR
    launched = Facts(launched=True)  # by a file, which may start a Trainer
    assert one(config, "auto-not-filled", target="accelerate", facts=launched).severity is Severity.WARNING


@pytest.mark.parametrize("word", ["Auto", "AUTO", " auto", "atuo", "aut", "autoo"])
@pytest.mark.parametrize(
    ("path", "severity"),
    [
        ("train_batch_size", Severity.ERROR),
        ("zero_optimization.overlap_comm", Severity.ERROR),
        ("dump_state", Severity.WARNING),
    ],
)
def test_auto_in_other_letters_is_a_text(path: str, word: str, severity: Severity) -> None:
    assert one(put(path, word), "auto-misspelt", target="hf-trainer").severity is severity


@pytest.mark.parametrize(
    "path", ["tensorboard.job_name", "optimizer.type", "zero_optimization.offload_param.nvme_path"]
)
def test_a_name_may_be_auto_in_other_letters(path: str) -> None:
    assert found(put(path, "Auto"), "auto-misspelt", target="hf-trainer") == []


def test_zero_optimization_must_be_there_as_a_map() -> None:
    none = {"train_micro_batch_size_per_gpu": "auto"}

    assert one(none, "section-the-program-needs", target="accelerate").severity is Severity.ERROR
    assert one(none, "section-the-program-needs", target="hf-trainer").severity is Severity.ERROR
    assert found(none, "section-the-program-needs", target="deepspeed") == []
    switch = one({**none, "zero_optimization": True}, "section-the-program-needs", target="hf-trainer")
    assert switch.severity is Severity.ERROR


@pytest.mark.parametrize("path", ["gradient_clipping", "bf16.enabled", "optimizer.params.lr"])
def test_what_the_trainer_compares_is_a_note(path: str) -> None:
    config = put(path, 1.0 if path != "bf16.enabled" else True)

    assert path in [item.path for item in found(config, "value-must-match", target="hf-trainer")]
    assert found(config, "value-must-match", target="accelerate") == []


def of_file(text: str, rule: str) -> list[tuple[str, int, Severity]]:
    document = wrapped_configs.read(text, "accelerate.yaml").document
    findings = lint(document, target="accelerate")
    return [(item.path, item.line, item.severity) for item in findings if item.rule == rule]


HEAD = "distributed_type: DEEPSPEED\nmixed_precision: {}\ndeepspeed_config:\n"


def test_accelerates_keys_beside_a_file() -> None:
    text = f"{HEAD.format('bf16')}  deepspeed_config_file: a.json\n  zero_stage: 2\n  zero3_init_flag: true\n"

    assert of_file(text, "accelerate-keys-beside-file") == [
        ("mixed_precision", 2, Severity.ERROR),
        ("deepspeed_config.zero_stage", 5, Severity.ERROR),
    ]
    assert of_file(text.replace("a.json", "none"), "accelerate-keys-beside-file") == []


def test_accelerates_unknown_keys() -> None:
    text = f"{HEAD.format('bf16')}  zero_stage: 2\n  train_batch_size: 8\nnum_procs: 2\n"

    assert of_file(text, "accelerate-unknown-key") == [
        ("deepspeed_config.train_batch_size", 5, Severity.WARNING),
        ("num_procs", 6, Severity.ERROR),
    ]


@pytest.mark.parametrize(
    ("word", "wrong"), [("no", True), ("'no'", False), ("BF16", False), ("int8", True), ("1", True)]
)
def test_accelerates_precision(word: str, wrong: bool) -> None:
    assert bool(of_file(f"{HEAD.format(word)}  zero_stage: 2\n", "accelerate-precision")) is wrong


def test_accelerates_section_without_deepspeed() -> None:
    text = "distributed_type: {}\ndeepspeed_config: {}\n"

    assert of_file(text.format("FSDP", "{zero_stage: 2}"), "accelerate-without-deepspeed") != []
    assert of_file(text.format("FSDP", "{}"), "accelerate-without-deepspeed") == []


def test_what_accelerate_makes_of_its_keys_is_judged() -> None:
    text = f"{HEAD.format('fp16')}  zero_stage: 4\n"

    assert of_file(text, "rejected-value") == [("zero_optimization.stage", 4, Severity.ERROR)]


def test_the_trainers_own_optimizer_is_not_offloaded_by_the_older_key() -> None:
    """Accelerate makes AdamW DeepSpeed's own for offload_optimizer alone: the Trainer of transformers 5.23.0 stops."""
    rule = "client-optimizer-under-offload"
    old = {"train_batch_size": 1, "zero_optimization": {"stage": 2, "cpu_offload": True}}

    finding = one(old, rule, target="hf-trainer")

    assert finding.severity is Severity.ERROR
    assert finding.path == "zero_optimization.cpu_offload"
    assert not found(old, rule, target="accelerate")  # the program may bring DeepSpeedCPUAdam
    assert not found({**old, "optimizer": ADAM}, rule, target="hf-trainer")
    assert not found({**old, "zero_force_ds_cpu_optimizer": False}, rule, target="hf-trainer")
    new = {"train_batch_size": 1, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}
    assert not found(new, rule, target="hf-trainer")


def test_the_auto_of_bfloat16_stops_the_trainer() -> None:
    config = {**BASE, "bfloat16": {"enabled": "auto"}}

    assert one(config, "bfloat16-hidden", target="hf-trainer").severity is Severity.ERROR
    on = {**BASE, "bfloat16": {"enabled": True}}
    assert one(on, "bfloat16-hidden", target="hf-trainer").severity is Severity.WARNING


def test_accelerate_works_the_whole_batch_out_of_the_micro_batch() -> None:
    config = {"train_batch_size": "auto", "zero_optimization": {"stage": 2}}
    rule = "auto-not-filled"

    assert one(config, rule, target="accelerate").severity is Severity.ERROR
    assert not found({**config, "train_micro_batch_size_per_gpu": "auto"}, rule, target="accelerate")
    assert not found(config, rule, target="hf-trainer")


def test_two_keys_that_one_argument_must_repeat_stop_the_trainer() -> None:
    def scheduled(peak: Any) -> dict[str, Any]:
        return {**BASE, "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": peak}}}

    loud = [
        item
        for item in found(scheduled(0.01), "value-must-match", target="hf-trainer")
        if item.severity > Severity.INFO
    ]

    assert [item.path for item in loud] == ["scheduler.params.warmup_max_lr"]
    assert loud[0].severity is Severity.ERROR
    for same in (0.001, "auto"):
        assert all(
            item.severity is Severity.INFO for item in found(scheduled(same), "value-must-match", target="hf-trainer")
        )
