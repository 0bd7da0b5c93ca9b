"""One cause, one finding: what comes of a misspelt key or of a value that is none is no finding of its own."""

from __future__ import annotations

from typing import Any

import pytest

from dsgen.linting.files import Linted, lint_one
from dsgen.linting.linter import lint_config
from dsgen.linting.settings import Settings
from dsgen.shapes.findings import Finding, Severity

MICRO = {"train_micro_batch_size_per_gpu": 1}
NULL = {"device": None}
ZERO = {"zero_optimization": {"stage": 2}}
ADAM = {"optimizer": {"type": "Adam", "params": {"lr": 0.1}}}
WARMUP = {"type": "WarmupDecayLR", "params": None}


def linted(config: dict[str, Any], target: str = "deepspeed", **said: Any) -> Linted:
    return lint_one(config, Settings(severity=Severity.WARNING, target=target, **said))


def only(config: dict[str, Any], target: str = "deepspeed") -> Finding:
    (finding,) = linted(config, target).findings
    return finding


ONE: list[tuple[dict[str, Any], str, str, str]] = [
    ({"trin_batch_size": 8, **ZERO}, "deepspeed", "unread-key", "error"),
    ({**MICRO, "zeo_optimization": {"stage": 2}}, "hf-trainer", "unread-key", "error"),
    ({**MICRO, "fp16": {"enabled": True}, "zero_optimisation": {"stage": 2}}, "deepspeed", "unread-key", "warning"),
    ({**MICRO, "fp16": {"enabled": True}, "zero_optimization": {"stge": 2}}, "deepspeed", "rejected-key", "error"),
    ({**MICRO, "fp16": {"enabled": True}, "zero_optimization": {}}, "deepspeed", "stage-missing", "warning"),
    ({**MICRO, "fp16": {"enabled": True}, "zero_optimization": None}, "deepspeed", "section-is-no-map", "error"),
    ({**MICRO, "fp16": {"enabled": True}, "zero_optimization": {"stage": "x"}}, "deepspeed", "rejected-value", "error"),
    ({**MICRO, **ZERO, "fp16": {"enbled": True, "loss_scale": 0}}, "deepspeed", "rejected-key", "error"),
    ({**MICRO, **ZERO, "optimizer": {"steps_per_print": 4}}, "deepspeed", "unread-key", "error"),
    ({**MICRO, **ZERO, "optimizer": {"type": None}}, "deepspeed", "optimizer-type-missing", "error"),
    ({**MICRO, **ZERO, "scheduler": None}, "deepspeed", "section-is-no-map", "error"),
    ({**MICRO, **ZERO, **ADAM, "scheduler": WARMUP}, "deepspeed", "scheduler-params-missing", "error"),
    ({"train_batch_size": None, **ZERO}, "deepspeed", "coerced-value", "error"),
    ({**MICRO, **ZERO, "bfloat16": {"enabled": "auto"}}, "hf-trainer", "bfloat16-hidden", "error"),
    ({**MICRO, "zero_optimization": {"stage": 3, "offload_param": NULL}}, "deepspeed", "rejected-value", "error"),
    ({**MICRO, "zero_optimization": {"stage": 3, "offload_param": None}}, "deepspeed", "", ""),
    ({**MICRO, "zero_optimization.stage": 3, "zero_optimization": {}}, "deepspeed", "dotted-key", "warning"),
]  # fmt: skip


@pytest.mark.parametrize(("config", "target", "rule", "severity"), ONE)
def test_one_cause_is_one_finding_as_grave_as_what_comes_of_it(
    config: dict[str, Any], target: str, rule: str, severity: str
) -> None:
    told = [(finding.rule, str(finding.severity)) for finding in linted(config, target).findings]

    assert told == ([(rule, severity)] if rule else [])


def test_what_is_graver_than_its_cause_is_said_with_it() -> None:
    finding = only({"trin_batch_size": 8, **ZERO})

    assert finding.path == "trin_batch_size"
    assert (
        "train_batch_size is meant. So train_batch_size and train_micro_batch_size_per_gpu are both" in finding.message
    )


def test_a_cause_that_is_not_asked_of_hides_nothing() -> None:
    """A rule that the settings leave out takes no other with it."""
    (finding,) = linted({"trin_batch_size": 8, **ZERO}, ignore=("unread-key",)).findings

    assert (finding.rule, finding.severity) == ("batch-size-missing", Severity.ERROR)


TWO: list[tuple[dict[str, Any], set[str]]] = [
    ({**MICRO, "zeo": {"stage": 0}, "fp16": {"enabled": True}}, {"unread-key", "fp16-without-zero"}),
    ({"overlap_com": True, "zero_optimization": {"stage": 2}}, {"unread-key", "batch-size-missing"}),
]


@pytest.mark.parametrize(("config", "rules"), TWO)
def test_what_another_finding_does_not_explain_stays(config: dict[str, Any], rules: set[str]) -> None:
    assert {finding.rule for finding in linted(config).findings} == rules


def test_a_note_gives_way_to_what_is_said_of_its_key() -> None:
    config = {**ZERO, "train_micro_batch_size_per_gpu": "abc"}
    linted = lint_one(config, Settings(severity=Severity.INFO, target="hf-trainer"))

    assert [one.rule for one in linted.findings if one.path == "train_micro_batch_size_per_gpu"] == ["rejected-value"]


def test_the_linter_itself_names_what_explains_a_finding() -> None:
    findings = {one.rule: one for one in lint_config({"trin_batch_size": 8, **ZERO}, target="deepspeed")}

    assert findings["batch-size-missing"].follows == ("unread-key", "trin_batch_size")
    assert findings["unread-key"].follows is None


def test_keys_that_one_value_makes_idle_are_one_finding() -> None:
    zero = {"stage": 0, "allgather_bucket_size": 7, "overlap_comm": True, "stage3_max_live_parameters": 7}
    finding = only({**MICRO, "zero_optimization": zero})

    assert finding.message == (
        "zero_optimization: allgather_bucket_size, overlap_comm and stage3_max_live_parameters have no effect while "
        "zero_optimization.stage is 0"
    )


DOTTED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"zero_optimization.stage": 3}, {"zero_optimization": {"stage": 3}}),
    ({"zero_optimization.stage": 3, "zero_optimization": {"overlap_comm": True}},
     {"zero_optimization": {"overlap_comm": True, "stage": 3}}),
    ({"zero_optimization": {"stage": 2, "offload_optimizer.device": "cpu"}},
     {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}),
    ({"optimizer": {"type": "Adam", "params.lr": 0.1}}, {"optimizer": {"type": "Adam", "params": {"lr": 0.1}}}),
]  # fmt: skip


@pytest.mark.parametrize(("config", "nested"), DOTTED)
def test_a_dotted_key_is_nested_by_an_unsafe_fix(config: dict[str, Any], nested: dict[str, Any]) -> None:
    from dsgen.documents.editor import apply_to_config

    (finding,) = (one for one in lint_config({**MICRO, **config}, target="deepspeed") if one.rule == "dotted-key")
    assert finding.fix is not None and not finding.fix.safe

    assert apply_to_config({**MICRO, **config}, finding.fix.edits) == {**MICRO, **nested}


@pytest.mark.parametrize(
    "config",
    [
        {"autotuning": {"enabled": False, "arg_mappings": {"train.micro": "--batch"}}},
        {"a.b": 1},
    ],
)
def test_a_dot_in_a_name_that_is_no_path_is_no_dotted_key(config: dict[str, Any]) -> None:
    assert not [one for one in lint_config({**MICRO, **config}, target="deepspeed") if one.rule == "dotted-key"]


MISPLACED: list[tuple[dict[str, Any], str, str]] = [
    ({"zero_optimization": {"stage": 1, "gradient_clipping": 1.0}},
     "zero_optimization.gradient_clipping", "gradient_clipping"),
    ({"zero_optimization": {"stage": 1, "offload_optimizer": {"pin_memory": True}, "device": "cpu"}},
     "zero_optimization.device", "zero_optimization.offload_optimizer.device"),
    ({**ZERO, "fp16": {"loss_scale": 0}, "enabled": True}, "enabled", "fp16.enabled"),
    ({"zero_optimization": {"stages": 2}}, "zero_optimization.stages", "zero_optimization.stage"),
    ({**ZERO, **ADAM, "scheduler": {"type": "WarmupLR", "params": {"warmup_steps": 5}}},
     "scheduler.params.warmup_steps", "scheduler.params.warmup_num_steps"),
]  # fmt: skip


@pytest.mark.parametrize(("config", "path", "to"), MISPLACED)
def test_a_misplaced_key_is_offered_its_place(config: dict[str, Any], path: str, to: str) -> None:
    (finding,) = (one for one in lint_config({**MICRO, **config}, target="deepspeed") if one.path == path)

    assert finding.fix is not None and not finding.fix.safe
    assert [(edit.path, getattr(edit, "to", "")) for edit in finding.fix.edits] == [(path, to)]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"optimizer": {"type": "auto"}}, "it has Adagrad, Adam, AdamW, "),
        ({**ADAM, "scheduler": {"type": "LION"}}, "it has LRRangeTest, OneCycle, WarmupCosineLR, "),
        ({"optimizer": {"type": "Adam", "params": {"lr": 0.1, "zzz": 1}}}, "it takes adam_w_mode, "),
    ],
)
def test_where_nothing_is_alike_what_there_is_is_listed(config: dict[str, Any], said: str) -> None:
    (finding,) = (one for one in lint_config({**MICRO, **config}, target="deepspeed") if "unknown-" in one.rule)

    assert said in finding.message
    assert finding.fix is None or "write" not in finding.fix.title


def test_what_asks_for_nothing_goes_safely() -> None:
    """Null and a section that is false are refused, and say nothing that a run could keep."""
    for config, path in (
        ({**ZERO, "scheduler": None}, "scheduler"),
        ({"zero_optimization": {"stage": 2, "offload_optimizer": False}}, "zero_optimization.offload_optimizer"),
        ({"zero_optimization": {"stage": 2, "reduce_bucket_size": None}}, "zero_optimization.reduce_bucket_size"),
    ):
        finding = only({**MICRO, **config})
        assert finding.fix is not None and finding.fix.safe
        assert [edit.path for edit in finding.fix.edits] == [path]


def test_an_offload_that_is_true_is_offered_the_cpu() -> None:
    finding = only({**MICRO, "zero_optimization": {"stage": 2, "offload_optimizer": True}})

    assert finding.fix is not None and not finding.fix.safe
    assert finding.fix.title == 'write {"device": "cpu"}'


def test_a_long_list_of_keys_is_cut_short() -> None:
    finding = only({**MICRO, **ZERO, **{f"our_own_{number}": number for number in range(9)}})

    assert finding.message.startswith("our_own_0, our_own_1, our_own_2, our_own_3, our_own_4 and 4 more are keys that ")
    assert finding.fix is not None and len(finding.fix.edits) == 9


def test_a_key_that_stands_where_it_counts_too_says_so() -> None:
    finding = only({**MICRO, "overlap_comm": True, "zero_optimization": {"stage": 2, "overlap_comm": True}})

    assert finding.message.endswith("it does nothing here; what counts stands in zero_optimization")
