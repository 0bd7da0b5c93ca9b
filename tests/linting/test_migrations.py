"""A move to a release says nothing of a config only where that release takes it, on every rule's own example."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from dsgen.deepspeed import surface
from dsgen.documents.hjson import reader
from dsgen.linting import rules
from dsgen.linting.files import check
from dsgen.linting.migrations import is_to_do, migrated
from dsgen.linting.settings import Settings
from dsgen.linting.sources import Source
from dsgen.shapes.findings import Severity


def examples() -> Iterator[Any]:
    """The rules' examples that are configs, each for its program."""
    for rule in rules.RULES:
        if rule.reads == "config":
            document = reader.read(rule.example, f"{rule.name}.hjson")
            if isinstance(document.config, dict):
                target = rule.given.get("target", "deepspeed")
                yield pytest.param(Source(document=document, target=target), id=rule.code)


@pytest.mark.parametrize("source", list(examples()))
def test_what_a_release_refuses_is_never_nothing_to_change(source: Source) -> None:
    for release in surface.known_versions():
        linted = check(source, Settings(deepspeed=release, severity=Severity.INFO))
        if any(finding.severity is Severity.ERROR for finding in linted.findings):
            made = migrated(linted)
            assert made.applied or any(map(is_to_do, made.findings)), release


OLD = {
    "curriculum_learning": {"enabled": True, "curriculum_type": "seqlen", "min_difficulty": 8},
    "amp": {"enabled": True, "opt_level": "O2"},
    "progressive_layer_drop": {"enabled": True, "theta": 0.5},
}


@pytest.mark.parametrize("name", list(OLD))
def test_what_a_later_release_removed_is_kept_where_it_is_read(name: str) -> None:
    """DeepSpeed 0.18.9 reads every key of these sections; 0.19 has dropped some of them."""
    config = {"train_batch_size": 8, name: OLD[name]}
    document = reader.read(json.dumps(config), "ds_config.json")
    linted = check(Source(document=document, target="deepspeed"), Settings(deepspeed="0.18", severity=Severity.INFO))

    assert [one.path for one in linted.findings if one.rule == "key-too-new"] == []
    assert all(not one.path.startswith(f"{name}.") for one in linted.findings if one.fix is not None and one.fix.safe)


def test_what_an_older_release_does_not_have_is_no_safe_removal() -> None:
    config = {"train_batch_size": 8, "torch_autocast": {"enabled": True}, "tensor_parallel": {"autotp_size": 2}}
    document = reader.read(json.dumps(config), "ds_config.json")
    made = migrated(check(Source(document=document, target="deepspeed"), Settings(deepspeed="0.14")))

    assert made.applied == ()
    assert {one.path for one in made.findings if is_to_do(one)} == {"torch_autocast", "tensor_parallel"}


def test_what_every_release_refuses_is_left_to_do() -> None:
    """No release has a stage 9, so no release differs in it; it is said all the same."""
    config = {"train_batch_size": 8, "zero_optimization": {"stage": 9}}
    document = reader.read(json.dumps(config), "ds.json")

    for release in surface.known_versions():
        linted = check(
            Source(document=document, target="deepspeed"), Settings(deepspeed=release, severity=Severity.INFO)
        )
        assert "zero_optimization.stage" in {finding.path for finding in migrated(linted).findings}


def moved(config: dict[str, Any], release: str) -> Any:
    """A config of plain DeepSpeed's, moved to a release."""
    document = reader.read(json.dumps(config), "ds_config.json")
    source = Source(document=document, target="deepspeed")
    return migrated(check(source, Settings(deepspeed=release, severity=Severity.INFO)))


@pytest.mark.parametrize(("release", "needs"), [("0.14", False), ("0.18", False), ("0.19", True)])
def test_elasticity_says_the_batch_where_a_release_has_it(release: str, needs: bool) -> None:
    """Real releases: 0.14.5 to 0.18.9 take it, 0.19.8 has no elasticity and stops without a batch size."""
    elastic = {"enabled": True, "max_train_batch_size": 2000, "micro_batch_sizes": [2, 4], "min_gpus": 1, "max_gpus": 8}
    rules_left = {one.rule for one in moved({"elasticity": elastic}, release).findings if is_to_do(one)}

    assert ("batch-size-missing" in rules_left) is needs
    assert ("removed-key" in rules_left) is needs


@pytest.mark.parametrize("release", ["0.14", "0.18"])
def test_arguments_of_one_bit_adam_are_its_own(release: str) -> None:
    """DeepSpeed's own tutorial writes them; up to 0.18.9 the class takes them from the config."""
    params = {"lr": 1e-4, "freeze_step": 400, "cuda_aware": False, "comm_backend_name": "nccl"}
    made = moved({"train_batch_size": 8, "optimizer": {"type": "OneBitAdam", "params": params}}, release)

    assert [one.path for one in made.findings if one.severity is Severity.ERROR] == []


@pytest.mark.parametrize("release", ["0.16", "0.18", "0.19"])
def test_a_key_that_the_release_reads_is_no_matter_of_a_move(release: str) -> None:
    """No aio without NVMe: true in each release that has the key, and 0.14 does not have it."""
    config = {"train_batch_size": 8, "zero_optimization": {"stage": 3}, "aio": {"intra_op_parallelism": 2}}

    assert moved(config, release).applied == ()
    assert [one.path for one in moved(config, "0.14").findings if is_to_do(one)] == ["aio.intra_op_parallelism"]
